"""A game about people: is anything of this person's in the federation?

A candidate is a subject, and its rows are the records of the subject that the adversary has.

1. Subjects are members (trained on), evaluation or calibration non-members.
2. Of a member's records the share `fresh` is kept from training, for the adversary alone; the parties train on the
   rest. With `fresh = 0` the adversary has the very records that are trained on (item-based).
3. A non-member's records are thinned by the same share, and the adversary has at most CAP of anybody's: nothing but the
   training tells members from non-members.
4. Records of one session are nearly the same, so that a session is kept, or trained on, as a whole.

5. People are dealt out to the parties, or stay where their records are (partition "column"). Somebody with records in
   two parties is one person: it has one role in both, is looked for in the models of both, and counts once in what both
   together show.

Who has a single record, or a single session, cannot both be trained on and have a fresh one. Such subjects are left out
on both sides.
"""

import numpy as np

from fedaudit.config.schema import FederationSection
from fedaudit.errors import FedauditError
from fedaudit.types import Bools, Candidates, Dataset, Game, Ints, Records, Role, Strings, TrainedRecords, Truth

CAP = 100
SEVERAL = "several"  # the party of a subject with records in more than one


def no_subjects() -> FedauditError:
    return FedauditError(
        "no-subjects",
        "an audit about people needs to know whose each record is, and the data do not say it",
        "Name the column that does (table: data.subject, npz: data.subject_key), or use another partition and no "
        "audit.unit.",
    )


def people(records: Records) -> tuple[Strings, Ints]:
    """The names of the subjects, sorted, and the number of each record's subject among them."""
    if records.subject is None:
        raise no_subjects()
    return np.unique(records.subject, return_inverse=True)


def can_be_split(records: Records, session: str | None) -> Bools:
    """Which records belong to somebody with two of them at least, or with two sessions."""
    _, person = people(records)
    unit = np.arange(len(records)) if session is None else records.attributes[session]
    pairs = np.unique(np.stack([person, unit], axis=1), axis=0)
    return np.asarray(np.bincount(pairs[:, 0])[person] > 1)


def kept_for_the_adversary(records: Records, session: str | None, fresh: float, rng: np.random.Generator) -> Bools:
    """Of everybody's records, members' and non-members' alike, the share `fresh`, in whole sessions."""
    _, person = people(records)
    unit = np.arange(len(records)) if session is None else records.attributes[session]
    kept = np.zeros(len(records), bool)
    for rows in _by(person):
        units = rng.permutation(np.unique(unit[rows]))
        count = min(max(round(fresh * len(units)), 1), len(units) - 1)
        kept[rows] = np.isin(unit[rows], units[:count])
    return kept


def capped(person: Ints, chosen: Bools, rng: np.random.Generator) -> Bools:
    """At most CAP of a person's chosen records, at random."""
    kept = chosen.copy()
    for rows in _by(person):
        mine = rows[chosen[rows]]
        kept[rng.permutation(mine)[CAP:]] = False
    return kept


def _by(person: Ints) -> list[Ints]:
    """The rows of each person."""
    return np.split(np.argsort(person, kind="stable"), np.cumsum(np.bincount(person))[:-1])


def game_about(
    records: Records, party: Strings, role_of: Strings, kept: Bools | None, scattered: bool, rng: np.random.Generator
) -> Game:
    """`role_of`: of each subject, in the order of their names. `kept`: the records that nobody may train on; None: the
    adversary has the trained ones. `scattered`: nobody is any party's own."""
    names, person = people(records)
    everything = np.ones(len(records), bool)
    trained_on = everything if kept is None else ~kept  # or would be, if its subject were a member
    shown = capped(person, everything if kept is None else kept, rng)
    member = (role_of == Role.MEMBER.value)[person]
    used, rows, has = trained_on & member, records.take(shown), np.bincount(person)
    parties = np.unique(party)
    held = [np.bincount(person[trained_on & (party == name)], minlength=len(names)) for name in parties]
    holds, most = dict(zip(parties.tolist(), np.stack(held) > 0, strict=True)), parties[np.argmax(held, axis=0)]
    if scattered or (np.sum(list(holds.values()), axis=0) > 1).any():  # in several parties, and one person all the same
        home = np.full(len(names), SEVERAL) if scattered else most
        candidates = Candidates("subject", names, home, rows, person[shown], subject=names, held_by=holds, has=has)
    else:
        candidates = Candidates("subject", names, most, rows, person[shown], has=has)
    return Game(candidates, Truth(names, role_of), TrainedRecords(records.take(used), party[used]))


def _any(person: Ints, count: int) -> Bools:
    return np.asarray(np.bincount(person, minlength=count) > 0)


# ------------------------------------------------------------------ federations that the data describe themselves


def game_of_holders(
    dataset: Dataset, federation: FederationSection, party_name: list[str], rng: np.random.Generator
) -> Game:
    """The data say which party holds a record, or that none does: such records are the adversary's.

    Whoever is held by a party is a member, so that `member_subjects` decides nothing; of the others, a part evaluates
    and the rest calibrates. With `fresh = 0` the adversary has as many of a member's trained records instead.
    """
    records = dataset.records
    assert dataset.holder is not None
    holder = records.attributes[dataset.holder]
    users = int(holder.max()) + 1
    if users != federation.parties:
        what = f"{dataset.name} describes a federation of {users}, and federation.parties is {federation.parties}"
        raise FedauditError("parties", what, f"Set federation.parties = {users}.")
    names, person = people(records)
    held = holder >= 0
    member = _any(person[held], len(names))
    others = rng.permutation(np.flatnonzero(~member))
    share = federation.outsiders / (1 - (federation.member_subjects or 0.0))
    role_of = np.where(member, Role.MEMBER.value, Role.CALIBRATION.value).astype(np.str_)
    role_of[others[: round(share * len(others))]] = Role.EVALUATION.value
    shown = capped(person, ~held, rng)
    if federation.fresh == 0:
        shown = _as_many_trained(person, shown, held, rng)
    holds = {name: ~member | _any(person[holder == number], len(names)) for number, name in enumerate(party_name)}
    home = np.full(len(names), SEVERAL)
    candidates = Candidates(
        "subject",
        names,
        home,
        records.take(shown),
        person[shown],
        subject=names,
        held_by=holds,
        has=np.bincount(person),
    )
    training = TrainedRecords(records.take(held), np.array(party_name)[holder[held]])
    return Game(candidates, Truth(names, role_of), training)


def _as_many_trained(person: Ints, shown: Bools, held: Bools, rng: np.random.Generator) -> Bools:
    """For a member, trained records in place of the others."""
    found = shown.copy()
    for rows in _by(person):
        trained = rows[held[rows]]
        if len(trained):
            count = int(shown[rows].sum())
            found[rows] = False
            found[rng.permutation(trained)[:count]] = True
    return found
