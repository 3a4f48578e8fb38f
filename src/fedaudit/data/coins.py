"""Fair coins: who is trained on is decided by an independent coin for each unit, a record or a person.

Calibration units are set aside before any coin is flipped. They are no coin units: everybody may know that they were
not trained on, so that attacks may be fitted on them and thresholds set. Of the others heads is a member, and tails is
kept for evaluation. Nothing is drawn again if the coins fall badly, because coins that were chosen are not fair: such a
game is refused.
"""

from collections.abc import Sequence

import numpy as np

from fedaudit.errors import FedauditError
from fedaudit.types import Ints, Role, Strings

LEAST = 20  # coins: all guessed rightly, they prove an epsilon of 1.6


def flipped(strata: Sequence[Ints], units: int, played: float, rng: np.random.Generator) -> Strings:
    """The role of each unit. `played`: the share of each stratum about which coins are flipped."""
    role = np.full(units, Role.CALIBRATION.value, dtype="U11")
    for stratum in strata:
        tossed = rng.permutation(stratum)[: round(played * len(stratum))]
        heads = rng.random(len(tossed)) < 0.5
        role[tossed] = np.where(heads, Role.MEMBER.value, Role.EVALUATION.value)
    return role


def check(role: Strings, what: str) -> None:
    """Refuses a game with so few coins that nothing could be proved."""
    count = int((role != Role.CALIBRATION.value).sum())
    if count < LEAST:
        raise FedauditError(
            "few-coins",
            f"federation.coins = true leaves {count} {what} to flip coins about, and so few prove next to nothing",
            f"Use more data, or larger fractions, so that there are at least {LEAST}; a thousand can prove epsilon 5.",
        )
