"""From records to a game: which party holds which records, and which of these are trained on."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.config.schema import NOTHING_LEFT, FederationSection
from fedaudit.data import subjects
from fedaudit.data.records import contents
from fedaudit.errors import FedauditError, suggest
from fedaudit.types import Candidates, Dataset, Game, Ints, Notice, Records, Role, Strings, Truth, Unit, warning

REDRAWS = 100  # how often a Dirichlet split is repeated if it leaves a party with too few records
LABEL, SUBJECT = "label", "subject"  # columns that are no attributes
DOCUMENT = "document"  # the attribute, and the session, of records that are parts of one text
FEW_PEOPLE = "few-people"  # the code of what is said then
LEAST = 10  # records of a party: fewer cannot be split into members and two kinds of non-members
UNKNOWN = -1  # the code of an attribute that a record lacks
LONGEST = 60  # characters of a value that names a party
# Members and evaluation non-members, where nothing is set. An audit of a model that was trained on a third of the data
# says little about one that is trained on all of them, and most of all where they are few. With fewer than FEW records
# no split could show much at a FPR of 1 % (a lower end takes 368 that set thresholds), so nothing is lost there by
# training on more; what can be shown at 5 % and by the AUC is nearly the same (`stats.plan`; docs/start-csv.md).
SHARES, SHARES_OF_FEW, FEW = (0.3, 0.3), (0.6, 0.15), 1000

Parts = dict[str, Ints]  # the rows that each party holds, by its name


def build(dataset: Dataset, federation: FederationSection, rng: np.random.Generator, unit: Unit = "record") -> Game:
    """The game that a configuration describes. Where people are known each has one role, unless they may be split."""
    records, parties = dataset.records, federation.parties
    if dataset.session == DOCUMENT and federation.split_subjects and unit == "record":
        return _whole_documents(dataset, federation, rng)
    if dataset.holder is not None and (unit != "subject" or federation.partition != "subjects"):
        what = f"{dataset.name} is a federation of its own, whose game is about its subjects"
        raise FedauditError("no-partition", what, 'Set federation.partition = "subjects", and no audit.unit.')
    if parties > len(records):
        what = f"{len(records)} records cannot be split among {parties} parties"
        raise FedauditError("empty-set", what, "Use fewer parties, or more data.")
    whole = records.subject is not None and not federation.split_subjects
    if federation.partition == "column" and unit == "subject":
        return game_about_people(dataset, federation, shares_of(federation, records), rng)
    if federation.partition == "subjects":
        assert federation.member_subjects is not None
        shares = federation.member_subjects, federation.outsiders
        if unit == "subject":
            return game_about_people(dataset, federation, shares, rng)
        if federation.coins:
            return game_of_coins(records, _dealt(records, parties, whole, rng), shares, rng, whole)
        if whole:
            return game_of_people(records, by_person(records, parties, rng), shares, rng)
        return game_by_subject(records, iid(records, parties, rng), *shares, rng)
    if federation.partition == "dirichlet":
        assert federation.beta is not None
        parts = dirichlet(dataset, parties, federation.beta, rng)
    elif federation.partition == "column":
        assert federation.column is not None
        parts = by_column(dataset, parties, federation.column)
    else:
        parts = iid(records, parties, rng)
    if federation.coins:
        return game_of_coins(records, parts, shares_of(federation, records), rng)
    if whole:
        return game_of_people(records, parts, shares_of(federation, records), rng)
    return game(records, parts, *shares_of(federation, records), rng)


def _whole_documents(dataset: Dataset, federation: FederationSection, rng: np.random.Generator) -> Game:
    """An author may be on both sides, a document may not: it is dealt out as a person would be. Whose a record is stays
    known, so that intervals account for it."""
    records = dataset.records
    by_document = replace(records, subject=records.attributes[DOCUMENT].astype(np.str_))
    dealt = replace(dataset, records=by_document, session=None)
    try:
        found = build(dealt, federation.model_copy(update={"split_subjects": False}), rng)
    except FedauditError as error:
        if error.code != FEW_PEOPLE:
            raise
        what = (
            f"a document has one role (trained on, evaluation or calibration), and {dataset.name} has too few of them"
        )
        raise FedauditError(FEW_PEOPLE, f"{what} for {federation.parties} parties", "Use fewer parties.") from None
    rows = replace(found.candidates.rows, subject=records.subject)
    return replace(found, candidates=replace(found.candidates, rows=rows, subject=records.subject))


def shares_of(federation: FederationSection, records: Records) -> tuple[float, float]:
    """What is trained on and reported on: as the configuration says, or as is usual for so many records; people, where
    they are known and not split."""
    people = None if federation.split_subjects else records.subject
    many = len(records) if people is None else len(np.unique(people))
    few = many < FEW and not federation.coins  # with coins half of what the shares add up to is trained on
    members, nonmembers = SHARES_OF_FEW if few else SHARES
    found = (
        members if federation.members is None else federation.members,
        nonmembers if federation.nonmembers is None else federation.nonmembers,
    )
    if sum(found) >= 1:
        todo = f"Set federation.members and nonmembers: not set, they are {members:g} and {nonmembers:g} of these data."
        raise FedauditError("fractions", NOTHING_LEFT, todo)
    return found


# ------------------------------------------------------------------ who holds what


def iid(records: Records, parties: int, rng: np.random.Generator) -> Parts:
    """A random, even split."""
    return _numbered([np.sort(part) for part in np.array_split(rng.permutation(len(records)), parties)])


def dirichlet(dataset: Dataset, parties: int, beta: float, rng: np.random.Generator) -> Parts:
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


def by_column(dataset: Dataset, parties: int, column: str) -> Parts:
    """Whole values of a column to parties: the largest first, each to the party with the fewest records so far.

    The parties bear the values' names. Those of people stay numbered: what people read names nobody.
    """
    values, rows, counts = np.unique(column_of(dataset.records, column), return_inverse=True, return_counts=True)
    if column != LABEL and values.dtype.kind in "iu" and values[0] == UNKNOWN:
        what = f"column {column!r} is empty in {counts[0]} of {len(rows)} records, and no party is known to hold them"
        raise FedauditError("column-empty", what, "Fill it in, or take these records out of the file.")
    if len(values) < parties:
        raise FedauditError(
            "column-values",
            f"column {column!r} has {len(values)} values for {parties} parties",
            "Use as many parties as values, or fewer.",
        )
    owner, sizes = np.empty(len(values), np.int64), np.zeros(parties, np.int64)
    largest_first = np.argsort(-counts, kind="stable")
    for value in largest_first:
        owner[value] = sizes.argmin()
        sizes[owner[value]] += counts[value]
    parts = _parts(owner[rows], parties)
    if column == SUBJECT:
        return parts
    texts = [_text(dataset, column, value) for value in values.tolist()]
    names = [_joined([texts[i] for i in largest_first if owner[i] == party]) for party in range(parties)]
    if len(set(names)) < len(names):  # values that differ in what a name cannot show
        names = [f"{name} ({number})" for number, name in enumerate(names, start=1)]
    return dict(zip(names, parts.values(), strict=True))


def _text(dataset: Dataset, column: str, value: float) -> str:
    """A value as it was written, in one line; with the name of its column if it is a number or a single letter."""
    known = dataset.values.get(column)
    text = f"{value:g}" if known is None else known[int(value)]
    text = " ".join(text.split())[:LONGEST]
    alone = len(text) > 1 and any(map(str.isalpha, text))
    return text if alone else f"{column} {text}"


def _joined(values: Sequence[str]) -> str:
    first, *others = values
    return first if not others else f"{first} + {others[0] if len(others) == 1 else f'{len(others)} more'}"


def by_person(records: Records, parties: int, rng: np.random.Generator) -> Parts:
    """Whole people to parties, at random, so that each party has about as many records."""
    assert records.subject is not None
    _, rows, sizes = np.unique(records.subject, return_inverse=True, return_counts=True)
    order = rng.permutation(len(sizes))
    middle = np.cumsum(sizes[order]) - sizes[order] / 2  # of each person's records, laid end to end
    party = np.empty(len(sizes), np.int64)
    party[order] = (middle * parties / len(records)).astype(np.int64)
    return _parts(party[rows], parties)


def column_of(records: Records, column: str) -> NDArray[Any]:
    """`label`, `subject`, or one of the data set's attributes."""
    known: dict[str, NDArray[Any]] = dict(records.attributes)
    if records.y.ndim == 1:
        known[LABEL] = records.y
    if records.subject is not None:
        known[SUBJECT] = records.subject
    if column not in known:
        todo = f"{suggest(column, known)} A column of your table must be declared: [data] attributes = [{column!r}]."
        raise FedauditError("unknown-column", f"there is no column {column!r}", todo)
    return known[column]


def _parts(party: Ints, parties: int) -> Parts:
    order = np.argsort(party, kind="stable")
    return _numbered(np.split(order, np.cumsum(np.bincount(party, minlength=parties))[:-1]))


def _numbered(parts: Sequence[Ints]) -> Parts:
    return {party_name(number, len(parts)): part for number, part in enumerate(parts)}


# ------------------------------------------------------------------ what is trained on


def game(records: Records, parts: Parts, members: float, nonmembers: float, rng: np.random.Generator) -> Game:
    """Inside every part: members (trained on), evaluation non-members, and the rest for calibration."""
    role = np.empty(len(records), dtype="U11")
    for name, part in parts.items():
        order = rng.permutation(part)
        first, second = round(members * len(part)), round((members + nonmembers) * len(part))
        role[order[:first]] = Role.MEMBER.value
        role[order[first:second]] = Role.EVALUATION.value
        role[order[second:]] = Role.CALIBRATION.value
        _no_empty_set(name, role[part], "`members` and `nonmembers`")
    return _game(records, parts, role)


def game_of_people(records: Records, parts: Parts, shares: tuple[float, float], rng: np.random.Generator) -> Game:
    """A person has one role in all parties; `shares` are of people: members, and evaluation non-members.

    People are drawn in strata, by the party that holds most of their records, so that every party gets all three
    roles; where chance leaves a party without one, it is drawn again.
    """
    assert records.subject is not None
    people, person = np.unique(records.subject, return_inverse=True)
    held = np.stack([np.bincount(person[part], minlength=len(people)) for part in parts.values()])
    for name, counts in zip(parts, held, strict=True):
        if (few := np.count_nonzero(counts)) < len(Role):
            raise _one_role_each(f"{name} has records of {few} people, and a party needs at least {len(Role)}")
    home = held.argmax(axis=0)
    for _ in range(REDRAWS):
        role = _roles_of_people(home, len(parts), shares, rng)[person]
        if all(set(role[part].tolist()) == {each.value for each in Role} for part in parts.values()):
            return _game(records, parts, role)
    raise _one_role_each(f"after {REDRAWS} draws some of {len(parts)} parties always lacked a role")


def _roles_of_people(home: Ints, parties: int, shares: tuple[float, float], rng: np.random.Generator) -> Strings:
    role = np.full(len(home), Role.CALIBRATION.value, dtype="U11")
    for party in range(parties):
        order = rng.permutation(np.flatnonzero(home == party))
        first, second = round(shares[0] * len(order)), round(sum(shares) * len(order))
        if len(order) >= len(Role):  # one of each at least
            first = min(max(first, 1), len(order) - 2)
            second = min(max(second, first + 1), len(order) - 1)
        role[order[:first]] = Role.MEMBER.value
        role[order[first:second]] = Role.EVALUATION.value
    return role


def _one_role_each(why: str) -> FedauditError:
    return FedauditError(
        FEW_PEOPLE,
        f"a person has one role (trained on, evaluation or calibration) in all parties: {why}",
        "Use fewer parties or another partition; or set federation.split_subjects = true, under which outsiders are "
        "other records of the same people, and the risk is understated.",
    )


def game_about_people(
    dataset: Dataset, federation: FederationSection, shares: tuple[float, float], rng: np.random.Generator
) -> Game:
    """The unit is the subject (`data.subjects`), in one party; where a column says it; or, with `split_subjects`,
    scattered over all of them."""
    parties, session = federation.parties, dataset.session
    names = [party_name(number, parties) for number in range(parties)]
    if dataset.holder is not None:
        if federation.coins:
            what = f"{dataset.name} says itself who is trained on, so that no coin can decide it"
            raise FedauditError("coins-decided", what, "Remove federation.coins.")
        return subjects.game_of_holders(dataset, federation, names, rng)
    fresh, scattered = federation.fresh or 0.0, bool(federation.split_subjects)
    able = subjects.can_be_split(dataset.records, session if fresh else None)
    records = dataset.records.take(able if fresh else np.ones(len(able), bool))
    if not len(records):
        what = f"nobody in {dataset.name} has two {'records' if session is None else 'sessions'}"
        raise FedauditError("few-people", what, "Set federation.fresh = 0: the adversary then has the trained records.")
    if federation.partition == "column":
        assert federation.column is not None
        parts = by_column(replace(dataset, records=records), parties, federation.column)
        names = list(parts)
    else:
        parts = iid(records, parties, rng) if scattered else by_person(records, parties, rng)
    party = np.empty(len(records), dtype=f"U{max(map(len, names))}")
    for name, part in parts.items():
        party[part] = name
    people, person = subjects.people(records)
    held = np.stack([np.bincount(person[part], minlength=len(people)) for part in parts.values()])
    home = np.zeros(len(people), np.int64) if scattered else held.argmax(axis=0)
    if federation.coins:
        strata = [np.flatnonzero(home == number) for number in range(1 if scattered else parties)]
        role_of = flipped(strata, len(people), sum(shares), rng)
        _check_coins(role_of, "people")
    else:
        role_of = _roles_of_people(home, 1 if scattered else parties, shares, rng)
    for number in range(1 if scattered else parties):
        where = "the federation" if scattered else names[number]
        _no_empty_set(where, role_of[home == number], "`member_subjects` and `nonmember_subjects`", "subjects")
    kept = subjects.kept_for_the_adversary(records, session, fresh, rng) if fresh else None
    found = subjects.game_about(records, party, role_of, kept, scattered, rng)
    if found.parties != sorted(names):
        what = f"{len(names) - len(found.parties)} of {len(names)} parties have nothing to train on"
        raise FedauditError("empty-set", what, "Use fewer parties, more data, or a larger federation.member_subjects.")
    return found


def game_of_coins(
    records: Records,
    parts: Parts,
    shares: tuple[float, float],
    rng: np.random.Generator,
    whole: bool | None = None,
) -> Game:
    """A fair coin for each unit that the shares do not leave for calibration; the game is about records.

    A unit is a record (`whole` None) or a person: one whose records lie in one party, or (`whole` False) anywhere.
    """
    unit, strata, what, keys = np.arange(len(records)), [*parts.values()], "records", "`members` and `nonmembers`"
    if whole is not None:
        unit = subjects.people(records)[1]
        strata = [np.unique(unit[part]) for part in parts.values()] if whole else [np.unique(unit)]
        what, keys = "people", "`member_subjects` and `nonmember_subjects`"
    role = flipped(strata, int(unit.max()) + 1, sum(shares), rng)
    _check_coins(role, what)
    for name, part in parts.items():
        _no_empty_set(name, role[unit][part], keys)
    return _game(records, parts, role[unit])


def _dealt(records: Records, parties: int, whole: bool, rng: np.random.Generator) -> Parts:
    return by_person(records, parties, rng) if whole else iid(records, parties, rng)


def game_by_subject(records: Records, parts: Parts, members: float, held_out: float, rng: np.random.Generator) -> Game:
    """Every person has one role, drawn without regard to parties, and records wherever they were dealt."""
    if records.subject is None:
        raise subjects.no_subjects()
    people, rows = np.unique(records.subject, return_inverse=True)
    order = rng.permutation(len(people))
    first, second = round(members * len(people)), round((members + held_out) * len(people))
    role_of = np.empty(len(people), dtype="U11")
    role_of[order[:first]] = Role.MEMBER.value
    role_of[order[first:second]] = Role.EVALUATION.value
    role_of[order[second:]] = Role.CALIBRATION.value
    role = role_of[rows]
    for name, part in parts.items():
        _no_empty_set(name, role[part], "`member_subjects` and `held_out`")
    return _game(records, parts, role)


def _game(records: Records, parts: Parts, role: Strings) -> Game:
    party = np.empty(len(records), dtype=f"U{max(map(len, parts))}")
    for name, part in parts.items():
        party[part] = name
    candidates = Candidates("record", records.id, party, records, np.arange(len(records)), subject=records.subject)
    return Game(candidates, Truth(records.id, role))


def _no_empty_set(name: str, roles: Strings, fractions: str, what: str = "records") -> None:
    counts: Sequence[int] = [int((roles == role.value).sum()) for role in Role]
    if min(counts) == 0:
        raise FedauditError(
            "empty-set",
            f"{name} has {len(roles)} {what}: {counts[0]} members, {counts[1]} evaluation and {counts[2]} "
            "calibration non-members, and none of the three may be empty",
            f"Use fewer parties, more data, or other fractions {fractions}.",
        )


def party_name(number: int, total: int) -> str:
    """`party-03`: equal width, so that sorting by name sorts by number."""
    return f"party-{number:0{len(str(max(total - 1, 0)))}d}"


def reserve(records: Records, share: float, rng: np.random.Generator) -> tuple[Records, Records]:
    """What is left for the federation, and about this share for an adversary from outside: data of the same kind, but
    from other people, so subjects are not split."""
    names = records.id if records.subject is None else records.subject
    unique, sizes = np.unique(names, return_counts=True)
    order = rng.permutation(len(unique))
    count = int(np.searchsorted(np.cumsum(sizes[order]), share * len(records))) + 1
    own = np.isin(names, unique[order[:count]])
    return records.take(~own), records.take(own)


def in_several(game: Game) -> tuple[int, int] | None:
    """How many people have records in more than one party, and how many there are; None: nothing says who is who."""
    candidates = game.candidates
    if candidates.unit == "subject":
        held = candidates.held_by or {}
        return int((np.sum(list(held.values()), axis=0) > 1).sum()) if held else 0, len(candidates)
    if (whose := candidates.subject_number) is None:
        return None
    party = np.unique(candidates.party, return_inverse=True)[1]
    pairs = np.unique(np.stack([whose, party]), axis=1)
    counts = np.bincount(pairs[0])
    return int((counts > 1).sum()), len(counts)


# ------------------------------------------------------------------ fair coins

LEAST_COINS = 20  # coins: all guessed rightly, they prove an epsilon of 1.6


def flipped(strata: Sequence[Ints], units: int, played: float, rng: np.random.Generator) -> Strings:
    """The role of each unit, a record or a person. `played`: the share of each stratum about which coins are flipped.

    Calibration units are set aside before any coin is flipped. They are no coin units: everybody may know that they
    were not trained on, so that attacks may be fitted on them and thresholds set. Of the others heads is a member, and
    tails is kept for evaluation. Nothing is drawn again if the coins fall badly, because coins that were chosen are not
    fair: such a game is refused.
    """
    role = np.full(units, Role.CALIBRATION.value, dtype="U11")
    for stratum in strata:
        tossed = rng.permutation(stratum)[: round(played * len(stratum))]
        heads = rng.random(len(tossed)) < 0.5
        role[tossed] = np.where(heads, Role.MEMBER.value, Role.EVALUATION.value)
    return role


def _check_coins(role: Strings, what: str) -> None:
    """Refuses a game with so few coins that nothing could be proved."""
    count = int((role != Role.CALIBRATION.value).sum())
    if count < LEAST_COINS:
        raise FedauditError(
            "few-coins",
            f"federation.coins = true leaves {count} {what} to flip coins about, and so few prove next to nothing",
            f"Use more data, or larger fractions, so that there are at least {LEAST_COINS}; "
            "a thousand can prove epsilon 5.",
        )


# ------------------------------------------------------------------ are outsiders really outsiders?


def understated(game: Game) -> list[Notice]:
    """Why what is found in this game may be less than the risk: people on both sides, and twins make members and
    non-members alike. Or nothing."""
    return [*split_people(game), *twins(game)]


def split_people(game: Game) -> list[Notice]:
    """A warning that counts the non-members of whose people other records were trained on."""
    subject, member = game.candidates.subject, game.truth.mask(Role.MEMBER)
    if subject is None:
        return []
    shared = int(np.isin(subject[~member], subject[member]).sum())
    return [warning("split-people", shared=shared, of=int((~member).sum()))] if shared else []


def twins(game: Game) -> list[Notice]:
    """A warning that counts the members whose content is also that of a non-member, whatever their ids."""
    rows, member = game.candidates.rows, game.truth.mask(Role.MEMBER)
    member = member[game.candidates.owner]
    content = contents(rows)
    shared = int(np.isin(content[member], content[~member]).sum())
    return [warning("twins", shared=shared, of=int(member.sum()), unit=game.candidates.unit)] if shared else []
