"""Is one party more exposed than the others? The error is shared among all parties."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedaudit.stats.blocks import Block, too_few
from fedaudit.stats.ranking import parts_of, pool


@dataclass(frozen=True)
class PartyDifference:
    """A party's AUC minus that of all others pooled; the intervals of all parties hold together."""

    party: str
    own: float
    others: float
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.own - self.others


def party_differences(blocks: Mapping[str, Block], confidence: float = 0.95) -> list[PartyDifference]:
    """One difference for each party that has members and evaluation non-members, the error shared equally among them.

    The interval of a difference follows from the two AUCs' own (Zou and Donner's MOVER), so it keeps its width at
    AUC 1. A party's AUC is treated as independent of the others'. Subjects who are in several parties only make it
    wider than necessary, because their scores move both AUCs in the same direction. A party with too few subjects is
    left out.
    """
    usable = {name: block for name, block in blocks.items() if len(block.members) and len(block.evaluation)}
    parts = dict(zip(usable, parts_of(list(usable.values())), strict=True))
    if len(parts) < 2:
        return []
    alpha = (1 - confidence) / len(parts)
    found = []
    for name, part in parts.items():
        own, others = pool([part]), pool([p for other, p in parts.items() if other != name])
        if too_few(own.people) or too_few(others.people):
            continue
        (own_low, own_high), (low, high) = own.interval(alpha), others.interval(alpha)
        below = np.hypot(own.value - own_low, high - others.value)
        above = np.hypot(own_high - own.value, others.value - low)
        value = own.value - others.value
        found.append(PartyDifference(name, own.value, others.value, value - float(below), value + float(above)))
    return found
