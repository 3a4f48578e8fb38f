"""Ends of a TPR's interval that are proved for every distribution of independent scores, one party or many.

Where several records belong to one person, counts and ranks are divided by design effects, which are estimated: the
ends are then only as good as these estimates (docs/coverage.md simulates this), and not proved.

Half of the error goes to the ranks of the thresholds, half to the members' count (Clopper-Pearson; a sum of binomials
with different chances is never spread more widely than one binomial).

For one party the rank is an order statistic of the calibration scores. For several, the numbers K of calibration
scores above the true quantiles are independent and binomial, so a joint region of their values can be fixed before a
score is seen. This region is used: the squares of the shortfalls, in standard deviations, add up to no more than a
limit that is exceeded with probability alpha. Within it, the fewest hits are sought; there, the parties in which a low
rank costs most use up most of the limit. A union bound would put all parties at their worst at once, which lies far
outside the region.
"""

import math
from collections.abc import Sequence

import numpy as np

from fedaudit.stats.calibration import Ranked
from fedaudit.stats.fiducial import TAIL, rank_chances
from fedaudit.stats.intervals import clopper_pearson, quantile_ranks
from fedaudit.types import Floats, Ints

_UNIT = 16  # lattice cells to one squared standard deviation


def guaranteed_ends(parts: Sequence[Ranked], total: float, spread: float, alpha: float) -> tuple[float, float]:
    """The lower and the upper end, each missed by at most alpha / 2; `spread`: design effect of the members' count."""
    share = alpha / 4
    few, many = _fewest(parts, share), total - _fewest(parts, share, from_above=True)
    low, _ = clopper_pearson(few / spread, total / spread, share, share)
    _, high = clopper_pearson(many / spread, total / spread, share, share)
    return low, high


def _fewest(parts: Sequence[Ranked], alpha: float, from_above: bool = False) -> float:
    """Fewest hits within the region of ranks that is left with probability alpha at most; from above: fewest misses."""
    cut_off = len(parts) * TAIL  # ranks so far out that they are not looked at
    if len(parts) == 1 or alpha < 2 * cut_off:
        return sum(_alone(part, alpha / len(parts), from_above) for part in parts)
    alpha -= cut_off
    sides = [_side(part, need, from_above) for part, need in zip(parts, _needs(parts), strict=True)]
    limit = _UNIT * (len(parts) + 16)
    while True:
        outside, fewest = _within(sides, limit)
        if outside[-1] <= alpha:
            return float(fewest[int(np.argmax(outside <= alpha))])
        limit *= 2


def _alone(part: Ranked, alpha: float, from_above: bool) -> float:
    above, below = quantile_ranks(part.effective, part.fpr, alpha)
    if from_above:
        return len(part.block.members) - float(part.at_most(np.array([below - 1]))[0])
    return float(part.at_least(np.array([above]))[0])


def _needs(parts: Sequence[Ranked]) -> Floats:
    """How much a shortfall of one standard deviation is expected to cost in each party, by sizes alone; at most 1.

    Where it costs little it also uses up little of the limit.
    """
    costs = np.array([len(part.block.members) / math.sqrt(max(part.effective, 1)) for part in parts])
    return np.asarray(costs / costs.max()) if costs.max() > 0 else np.ones(len(parts))


def _side(part: Ranked, need: float, from_above: bool) -> tuple[Ints, Floats, Floats]:
    """For one party: what each rank uses up of the limit, its chance, and its hits (from above: its misses)."""
    ranks, chances = rank_chances(part.effective, part.fpr)
    mean = part.effective * part.fpr
    shortfall = (ranks - mean if from_above else mean - ranks) / math.sqrt(mean * (1 - part.fpr))
    uses = np.ceil(_UNIT * need * np.maximum(shortfall, 0.0) ** 2 - 1e-9).astype(np.int64)
    hits = len(part.block.members) - part.at_most(ranks) if from_above else part.at_least(ranks)
    levels, level = np.unique(uses, return_inverse=True)
    fewest = np.full(len(levels), np.inf)
    np.minimum.at(fewest, level, hits)
    return levels, np.asarray(np.bincount(level, chances), np.float64), fewest


def _within(sides: Sequence[tuple[Ints, Floats, Floats]], limit: int) -> tuple[Floats, Floats]:
    """For every limit up to this one: the chance that the parties together exceed it, and the fewest hits within."""
    chance = np.zeros(limit + 1)
    fewest = np.full(limit + 1, np.inf)
    chance[0], fewest[0] = 1.0, 0.0
    for levels, chances, hits in sides:
        together, least = np.zeros(limit + 1), np.full(limit + 1, np.inf)
        for level, weight, own in zip(levels.tolist(), chances.tolist(), hits.tolist(), strict=True):
            if level > limit:
                break
            rest = limit + 1 - level
            together[level:] += weight * chance[:rest]
            np.minimum(least[level:], fewest[:rest] + own, out=least[level:])
        chance, fewest = together, least
    return 1 - np.cumsum(chance), np.minimum.accumulate(fewest)
