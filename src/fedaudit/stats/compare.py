"""Is one party more exposed than the others? All parties asked at once."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedaudit.stats.intervals import score_interval
from fedaudit.stats.roc import Block, delong_variance, placements


@dataclass(frozen=True)
class Difference:
    """A party's AUC minus that of all others pooled; the intervals of all parties hold together."""

    party: str
    own: float
    others: float
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.own - self.others


@dataclass(frozen=True)
class _Part:
    """The AUC of one party's block."""

    value: float
    variance: float
    size: tuple[int, int]


def party_differences(blocks: Mapping[str, Block], confidence: float = 0.95) -> list[Difference]:
    """One difference for each party that has members and evaluation non-members, the error shared equally among them.

    The interval of a difference follows from the two AUCs' own (Zou and Donner's MOVER), so it keeps its width at
    AUC 1. Parties' records are taken as independent; subjects who are in several parties only make it wider than need
    be, because their scores move both AUCs the same way.
    """
    parts = {name: _part(block) for name, block in blocks.items() if len(block.members) and len(block.evaluation)}
    if len(parts) < 2:
        return []
    alpha = (1 - confidence) / len(parts)
    found = []
    for name, part in parts.items():
        own, own_low, own_high = _pooled([part], alpha)
        others, low, high = _pooled([p for other, p in parts.items() if other != name], alpha)
        below, above = np.hypot(own - own_low, high - others), np.hypot(own_high - own, others - low)
        found.append(Difference(name, own, others, own - others - float(below), own - others + float(above)))
    return found


def _part(block: Block) -> _Part:
    by_member, by_nonmember = placements(block.members, block.evaluation)
    size = (len(block.members), len(block.evaluation))
    return _Part(float(by_member.mean()), delong_variance(by_member, by_nonmember, block.subjects), size)


def _pooled(parts: list[_Part], alpha: float) -> tuple[float, float, float]:
    """As `auc` pools blocks: weighted by pairs."""
    pairs = np.array([m * n for m, n in (part.size for part in parts)], dtype=float)
    weights = pairs / pairs.sum()
    value = min(max(float(weights @ [part.value for part in parts]), 0.0), 1.0)
    variance = float(weights**2 @ [part.variance for part in parts])
    low, high = score_interval(value, [part.size for part in parts], variance, alpha)
    return value, low, high
