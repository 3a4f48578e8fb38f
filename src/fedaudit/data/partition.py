"""From records to a game: which party holds which records, and which of these are trained on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.config.schema import Federation
from fedaudit.errors import FedauditError, suggest
from fedaudit.types import Candidates, Dataset, Game, Ints, Records, Role, Strings, Truth

REDRAWS = 100  # how often a Dirichlet split is repeated if it leaves a party with too few records
LEAST = 10  # records of a party: fewer cannot be split into members and two kinds of non-members


def build(dataset: Dataset, federation: Federation, rng: np.random.Generator) -> Game:
    """The game that a configuration describes."""
    records, parties = dataset.records, federation.parties
    if federation.partition == "subjects":
        assert federation.member_subjects is not None
        assert federation.held_out is not None
        parts = iid(records, parties, rng)
        return game_by_subject(records, parts, federation.member_subjects, federation.held_out, rng)
    if federation.partition == "dirichlet":
        assert federation.beta is not None
        parts = dirichlet(dataset, parties, federation.beta, rng)
    elif federation.partition == "column":
        assert federation.column is not None
        parts = by_column(records, parties, federation.column)
    else:
        parts = iid(records, parties, rng)
    return game(records, parts, federation.members, federation.nonmembers, rng)


# ------------------------------------------------------------------ who holds what


def iid(records: Records, parties: int, rng: np.random.Generator) -> list[Ints]:
    """A random, even split."""
    return [np.sort(part) for part in np.array_split(rng.permutation(len(records)), parties)]


def dirichlet(dataset: Dataset, parties: int, beta: float, rng: np.random.Generator) -> list[Ints]:
    """Label skew: each class is dealt to the parties in shares drawn from Dirichlet(beta); small beta = strong skew.

    A draw that leaves a party with fewer than ten records is drawn again, a hundred times at most.
    """
    if not dataset.classes or dataset.records.y.ndim > 1:
        what = f"{dataset.name} has no class for each record, so there are no classes to skew"
        raise FedauditError("dirichlet-classes", what, 'Use partition = "iid" or "column".')
    classes = [np.flatnonzero(dataset.records.y == label) for label in range(dataset.classes)]
    for _ in range(REDRAWS):
        party = np.empty(len(dataset.records), np.int64)
        for rows in classes:
            ends = np.round(np.cumsum(rng.dirichlet(np.full(parties, beta))) * len(rows)).astype(np.int64)
            party[rng.permutation(rows)] = np.searchsorted(ends, np.arange(len(rows)), side="right")
        sizes = np.bincount(party, minlength=parties)
        if sizes.min() >= LEAST:
            return _parts(party, parties)
    raise FedauditError(
        "dirichlet-empty",
        f"after {REDRAWS} draws with beta = {beta:g}, some of {parties} parties always had fewer than {LEAST} records",
        "Use a larger beta, fewer parties, or more data.",
    )


def by_column(records: Records, parties: int, column: str) -> list[Ints]:
    """Whole values of a column to parties: the largest first, each to the party with the fewest records so far."""
    values, rows, counts = np.unique(column_of(records, column), return_inverse=True, return_counts=True)
    if len(values) < parties:
        raise FedauditError(
            "column-values",
            f"column {column!r} has {len(values)} values for {parties} parties",
            "Use as many parties as values, or fewer.",
        )
    owner, sizes = np.empty(len(values), np.int64), np.zeros(parties, np.int64)
    for value in np.argsort(-counts, kind="stable"):
        owner[value] = sizes.argmin()
        sizes[owner[value]] += counts[value]
    return _parts(owner[rows], parties)


def column_of(records: Records, column: str) -> NDArray[Any]:
    """`label`, `subject`, or one of the data set's attributes (unknown, -1, counts as a value)."""
    known: dict[str, NDArray[Any]] = dict(records.attributes)
    if records.y.ndim == 1:
        known["label"] = records.y
    if records.subject is not None:
        known["subject"] = records.subject
    if column not in known:
        raise FedauditError("unknown-column", f"there is no column {column!r}", suggest(column, known))
    return known[column]


def _parts(party: Ints, parties: int) -> list[Ints]:
    order = np.argsort(party, kind="stable")
    return np.split(order, np.cumsum(np.bincount(party, minlength=parties))[:-1])


# ------------------------------------------------------------------ what is trained on


def game(records: Records, parts: list[Ints], members: float, nonmembers: float, rng: np.random.Generator) -> Game:
    """Inside every part: members (trained on), evaluation non-members, and the rest for calibration."""
    role = np.empty(len(records), dtype="U11")
    for number, part in enumerate(parts):
        order = rng.permutation(part)
        first, second = round(members * len(part)), round((members + nonmembers) * len(part))
        role[order[:first]] = Role.MEMBER.value
        role[order[first:second]] = Role.EVALUATION.value
        role[order[second:]] = Role.CALIBRATION.value
        _no_empty_set(party_name(number, len(parts)), role[part], "`members` and `nonmembers`")
    return _game(records, parts, role)


def game_by_subject(
    records: Records, parts: list[Ints], members: float, held_out: float, rng: np.random.Generator
) -> Game:
    """Subjects are whole: all records of one are members, or evaluate, or calibrate, whichever party holds them."""
    if records.subject is None:
        raise FedauditError(
            "no-subjects",
            'partition = "subjects" needs records with subjects',
            "Use data with subjects (npz: subject_key), or another partition.",
        )
    subjects, rows = np.unique(records.subject, return_inverse=True)
    order = rng.permutation(len(subjects))
    first, second = round(members * len(subjects)), round((members + held_out) * len(subjects))
    role_of = np.empty(len(subjects), dtype="U11")
    role_of[order[:first]] = Role.MEMBER.value
    role_of[order[first:second]] = Role.EVALUATION.value
    role_of[order[second:]] = Role.CALIBRATION.value
    role = role_of[rows]
    for number, part in enumerate(parts):
        _no_empty_set(party_name(number, len(parts)), role[part], "`member_subjects` and `held_out`")
    return refuse_split_subjects(_game(records, parts, role))


def refuse_split_subjects(split: Game) -> Game:
    """Refuses a subject with both members and non-members among its records: it would be its own outsider."""
    subject, member = split.candidates.subject, split.truth.mask(Role.MEMBER)
    assert subject is not None
    both = np.intersect1d(subject[member], subject[~member])
    if len(both):
        raise FedauditError(
            "subject-both",
            f"{len(both)} of {len(np.unique(subject))} subjects have records both trained on and not",
            'Use partition = "subjects", which keeps subjects whole.',
        )
    return split


def _game(records: Records, parts: list[Ints], role: Strings) -> Game:
    party = np.empty(len(records), dtype=f"U{len(party_name(len(parts), len(parts)))}")
    for number, part in enumerate(parts):
        party[part] = party_name(number, len(parts))
    candidates = Candidates("record", records.id, party, records, np.arange(len(records)), records.subject)
    return Game(candidates, Truth(records.id, role))


def _no_empty_set(name: str, roles: Strings, fractions: str) -> None:
    counts: Sequence[int] = [int((roles == role.value).sum()) for role in Role]
    if min(counts) == 0:
        raise FedauditError(
            "empty-set",
            f"{name} has {len(roles)} records: {counts[0]} members, {counts[1]} evaluation and {counts[2]} "
            "calibration non-members, and none of the three may be empty",
            f"Use fewer parties, more data, or other fractions {fractions}.",
        )


def party_name(number: int, total: int) -> str:
    """`party-03`: equal width, so that sorting by name sorts by number."""
    return f"party-{number:0{len(str(max(total - 1, 0)))}d}"
