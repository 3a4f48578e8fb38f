"""Candidates whose membership the adversary knows: it tunes on them, so they are not reported on.

The paper on subject membership has its thresholds tuned on 1, 5, 10, 25 and 100 known subjects. Known members leave the
reported ones; known non-members come from the half of the calibration set on which attacks are fitted anyway. Who is
known is decided by a hash of the name, so that the k known are among the next larger k.
"""

import numpy as np

from fedaudit.audit.collect import Sight
from fedaudit.stats import hash_order
from fedaudit.types import Bools, Role

KNOWN = (1, 5, 10, 25, 100)  # on each side
USUAL = 25  # for AUC and TPR; fewer where not enough remain
ORDER = "known"  # salt of the hash
REMAINING = 2  # members to report on for each known one, at least


def known(sight: Sight, k: int) -> tuple[Bools, Bools]:
    """The k known members of a sight, and the k known non-members."""
    member = sight.role == Role.MEMBER.value
    return _first(sight, member, k), _first(sight, sight.reference, k)


def _first(sight: Sight, among: Bools, k: int) -> Bools:
    chosen = np.zeros(len(sight.id), bool)
    candidates = np.flatnonzero(among)
    chosen[candidates[hash_order(sight.id[candidates], ORDER)[:k]]] = True
    return chosen


def possible(sight: Sight) -> list[int]:
    """The numbers of known candidates that leave enough to report on."""
    return _leaving_enough(int((sight.role == Role.MEMBER.value).sum()), int(sight.reference.sum()))


def usual(sight: Sight) -> int:
    """How many are known where nothing else is said; 0: too few remain for any."""
    return usual_of(int((sight.role == Role.MEMBER.value).sum()), int(sight.reference.sum()))


def usual_of(members: int, nonmembers: int) -> int:
    """The same from counts: members, and known non-members."""
    return max((k for k in _leaving_enough(members, nonmembers) if k <= USUAL), default=0)


def _leaving_enough(members: int, nonmembers: int) -> list[int]:
    return [k for k in KNOWN if (1 + REMAINING) * k <= members and k <= nonmembers]
