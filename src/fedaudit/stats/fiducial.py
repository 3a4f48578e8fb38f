"""The TPR's interval: what is known of the members' hits when the rank of the true threshold is not known.

How many of n independent calibration scores lie above the true (1 - fpr) quantile is binomial, whatever their
distribution is: K ~ Bin(n, fpr), independently in every party. So the number of members above the true quantile is at
least the hits at rank K and at most those at rank K + 1. Summed over the parties and mixed with the Beta distribution
that belongs to a count (Clopper-Pearson's), this gives a distribution of the TPR, and its quantiles are the ends of the
interval. Nothing is drawn at random.

This is a generalised (fiducial) interval, not a proved one. For several parties it relies on their errors to average
out, which they do where the ROC curve is smooth at the FPR. Even for one party it misses too often where the ROC curve
has a corner at the FPR (7.8 % at nominal 5 % in `docs/coverage.md`). The ends of `guaranteed` do not.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from fedaudit.stats.calibration import Ranked
from fedaudit.types import Floats, Ints

TAIL = 1e-8  # of a binomial distribution, cut off at either end
_FINENESS = 4  # cells in one standard deviation of the members' own count


def fiducial_ends(parts: Sequence[Ranked], total: float, spread: float, alpha: float) -> tuple[float, float]:
    """The lower and the upper end, each missed by alpha / 2; `spread` is the design effect of the members' count."""
    low, high = _sum_of_hits(parts, Ranked.at_least, spread, -1), _sum_of_hits(parts, Ranked.at_most, spread, 1)
    return lower_end(low, total / spread, alpha / 2), upper_end(high, total / spread, alpha / 2)


@lru_cache(maxsize=4096)  # every attack asks about the same calibration sets
def rank_chances(n: int, fpr: float) -> tuple[Ints, Floats]:
    """How many of n calibration scores may lie above the true quantile, and the chance of each number."""
    first, last = (float(special.bdtrik(tail, n, fpr)) for tail in (TAIL, 1 - TAIL))
    ranks = np.arange(int(first) if math.isfinite(first) else 0, min(math.ceil(last) + 1, n) + 1)
    logarithms = special.gammaln(n + 1) - special.gammaln(ranks + 1) - special.gammaln(n - ranks + 1)
    logarithms += special.xlogy(ranks, fpr) + special.xlog1py(n - ranks, -fpr)
    chances = np.exp(logarithms)
    return ranks, chances / chances.sum()


@dataclass(frozen=True)
class Spread:
    """Values and the chance of each."""

    values: Floats
    chances: Floats


def _sum_of_hits(parts: Sequence[Ranked], hits: Callable[[Ranked, Ints], Floats], spread: float, side: int) -> Spread:
    """The distribution of the hits of all parties together. Where the hits are not linear in the rank, averaging over
    the rank shifts their mean. The shift is small in one party but adds up over many, so the sum is shifted back where
    that makes the interval wider."""
    found, moved = [], 0.0
    for part in parts:
        ranks, chances = rank_chances(part.effective, part.fpr)
        values = hits(part, ranks)
        found.append(Spread(values, chances))
        moved += float(np.interp(part.effective * part.fpr, ranks, values) - chances @ values)
    total = sum(len(part.block.members) for part in parts)
    back = side * max(side * moved, 0.0) if len(parts) > 1 else 0.0
    together = summed(found)
    return Spread(np.clip(together.values + back, 0.0, total) / spread, together.chances)


def summed(parts: Sequence[Spread]) -> Spread:
    """The distribution of a sum of independent values: chances on one lattice, multiplied in the Fourier domain.

    Counts keep their own lattice. Where it has to be coarser, a value is shared between its neighbours, which keeps
    the mean.
    """
    if len(parts) == 1:
        return parts[0]
    lows = [float(part.values.min()) for part in parts]
    reach = sum(float(part.values.max()) for part in parts) - sum(lows)
    most = max(2000, 64 * len(parts))
    whole = all(np.array_equal(part.values, np.rint(part.values)) for part in parts)
    step = 1.0 if whole and reach < most else max(reach / most, 1e-12)
    size = 1 << int(reach / step + len(parts) + 1).bit_length()  # rounded up in every part
    product = np.ones(size // 2 + 1, complex)
    for part, low in zip(parts, lows, strict=True):
        place = (part.values - low) / step
        cell = np.floor(place).astype(np.int64)
        onwards = part.chances * (place - cell)
        product *= np.fft.rfft(np.bincount(cell, part.chances - onwards, size) + np.bincount(cell + 1, onwards, size))
    chances = np.fft.irfft(product, size)
    kept = np.flatnonzero(chances > 1e-12)
    return Spread(np.asarray(sum(lows) + step * kept, np.float64), chances[kept] / chances[kept].sum())


def lower_end(hits: Spread, total: float, alpha: float) -> float:
    """The alpha quantile of Beta(hits, total - hits + 1), mixed over the hits; no hits at all give 0."""
    if float(hits.chances[hits.values <= 0].sum()) >= alpha:
        return 0.0
    hits = _thinned(hits, total)
    a, b = np.maximum(hits.values, 1e-9), np.maximum(total - hits.values, 0.0) + 1

    def below(p: float) -> tuple[float, float]:
        """The chance of less than p, and its derivative."""
        density = np.exp((a - 1) * math.log(p) + (b - 1) * math.log1p(-p) - special.betaln(a, b))
        return float(hits.chances @ special.betainc(a, b, p)), float(hits.chances @ density)

    return _solve(below, alpha, _start(hits.chances, a, b, alpha))


def upper_end(hits: Spread, total: float, alpha: float) -> float:
    """The 1 - alpha quantile of Beta(hits + 1, total - hits), mixed over the hits; nothing but hits gives 1."""
    return 1 - lower_end(Spread(total - hits.values, hits.chances), total, alpha)


def _thinned(hits: Spread, total: float) -> Spread:
    """Joins neighbouring values that are so close together that the members' own count varies several times as much."""
    share = np.clip(hits.values / total, 0.0, 1.0)
    cell = (2 * _FINENESS * math.sqrt(total) * np.arcsin(np.sqrt(share))).astype(np.int64) + (hits.values > 0)
    chances = np.asarray(np.bincount(cell, hits.chances), np.float64)
    kept = np.flatnonzero(chances > 1e-10)
    return Spread(np.bincount(cell, hits.chances * hits.values)[kept] / chances[kept], chances[kept])


def _start(chances: Floats, a: Floats, b: Floats, alpha: float) -> float:
    """The quantile of the Beta distribution that has the mixture's mean and variance."""
    means = a / (a + b)
    mean = float(chances @ means)
    variance = float(chances @ (means * (1 - means) / (a + b + 1) + (means - mean) ** 2))
    size = max(mean * (1 - mean) / variance - 1, 1e-3)
    return float(special.betaincinv(mean * size, (1 - mean) * size, alpha))


def _solve(below: Callable[[float], tuple[float, float]], alpha: float, start: float) -> float:
    """Newton's method within a bracket, which bisection narrows where it must."""
    low, high, p = 0.0, 1.0, min(max(start, 1e-300), 1 - 1e-12)
    for _ in range(200):
        chance, density = below(p)
        low, high = (p, high) if chance < alpha else (low, p)
        step = (chance - alpha) / density if density > 0 else math.inf
        if abs(step) < 1e-13 + 1e-11 * p or high - low < 1e-14:
            return p
        p = p - step if low < p - step < high else (low + high) / 2
    return p
