"""From records to a game: who holds what, and which of it is trained on."""

import numpy as np

from fedaudit.errors import FedauditError
from fedaudit.types import Candidates, Game, Ints, Records, Role, Truth


def iid(records: Records, parties: int, rng: np.random.Generator) -> list[Ints]:
    """A random, even split."""
    return [np.sort(part) for part in np.array_split(rng.permutation(len(records)), parties)]


def game(records: Records, parts: list[Ints], members: float, nonmembers: float, rng: np.random.Generator) -> Game:
    """Inside every part: members (trained on), evaluation non-members, and the rest for calibration."""
    party = np.empty(len(records), dtype=f"U{len(party_name(len(parts), len(parts)))}")
    role = np.empty(len(records), dtype="U11")
    for number, part in enumerate(parts):
        name = party_name(number, len(parts))
        order = rng.permutation(part)
        first, second = round(members * len(part)), round((members + nonmembers) * len(part))
        if not 0 < first < second < len(part):
            raise FedauditError(
                "empty-set",
                f"{name} has {len(part)} records: {first} members, {second - first} evaluation and "
                f"{len(part) - second} calibration non-members, and none of the three may be empty",
                "Use fewer parties, more data, or other fractions `members` and `nonmembers`.",
            )
        party[part] = name
        role[order[:first]] = Role.MEMBER.value
        role[order[first:second]] = Role.EVALUATION.value
        role[order[second:]] = Role.CALIBRATION.value
    candidates = Candidates("record", records.id, party, records, np.arange(len(records)), records.subject)
    return Game(candidates, Truth(records.id, role))


def party_name(number: int, total: int) -> str:
    """`party-03`: equal width, so that sorting by name sorts by number."""
    return f"party-{number:0{len(str(max(total - 1, 0)))}d}"
