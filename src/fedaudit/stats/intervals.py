"""Intervals for a proportion, a quantile and an AUC. All of them hold for small counts and at 0 and 1."""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import special, stats


def clopper_pearson(k: float, n: float, alpha_low: float, alpha_high: float) -> tuple[float, float]:
    """Exact interval for a proportion: misses below with at most `alpha_low`, above with at most `alpha_high`.

    Counts may be fractional: counts divided by a design effect are.
    """
    if n <= 0:
        return 0.0, 1.0
    low = 0.0 if k <= 0 else float(special.betaincinv(k, n - k + 1, alpha_low))
    high = 1.0 if k >= n else float(special.betaincinv(k + 1, n - k, 1 - alpha_high))
    return low, high


@lru_cache(maxsize=4096)  # every attack asks about the same calibration sets
def quantile_ranks(n: int, tail: float, alpha: float) -> tuple[int, int]:
    """Ranks (1 = largest) of the order statistics that bracket the upper `tail` quantile of n draws.

    The first lies above the true quantile, the second below it, each wrong with probability at most alpha.
    Rank 0 stands for +infinity (n is too small to bound from above), n + 1 for -infinity.
    """

    def about(probability: float) -> int:
        k = float(special.bdtrik(probability, n, tail))
        return min(max(int(k), 0), n) if math.isfinite(k) else 0

    above = about(alpha)
    while above > 0 and special.bdtr(above - 1, n, tail) > alpha:
        above -= 1
    while above < n and special.bdtr(above, n, tail) <= alpha:
        above += 1
    below = about(1 - alpha) + 1
    while below > 1 and special.bdtrc(below - 2, n, tail) <= alpha:
        below -= 1
    while below <= n and special.bdtrc(below - 1, n, tail) > alpha:
        below += 1
    return above, below


def hanley_mcneil_variance(theta: float, m: int, n: int) -> float:
    """Variance of an AUC of `theta` for exponential scores; exact at 0.5 for any continuous score."""
    q1, q2 = theta / (2 - theta), 2 * theta**2 / (1 + theta)
    return (theta * (1 - theta) + (m - 1) * (q1 - theta**2) + (n - 1) * (q2 - theta**2)) / (m * n)


def score_interval(
    value: float, sizes: list[tuple[int, int]], measured_variance: float, alpha: float, people: int | None = None
) -> tuple[float, float]:
    """Newcombe's score interval for an AUC: the values of theta that lie within z standard errors *of theta*.

    The variance is Hanley and McNeil's at theta, widened by the factor by which the measured (DeLong) variance
    exceeds it at the estimate. Unlike DeLong's own interval it keeps its width at AUC 1. `sizes` are the
    (members, non-members) of strata weighted by their pairs. `people`: the number of subjects, if the variance was
    measured over subjects; Student's t then replaces z.
    """
    pairs = np.array([m * n for m, n in sizes], dtype=float)
    weights = pairs / pairs.sum()

    def variance(theta: float) -> float:
        terms = (w * w * hanley_mcneil_variance(theta, m, n) for w, (m, n) in zip(weights, sizes, strict=True))
        return float(sum(terms))

    nominal = variance(value)
    widening = max(1.0, measured_variance / nominal) if nominal > 0 else 1.0
    z = float(stats.norm.isf(alpha / 2) if people is None else stats.t.isf(alpha / 2, people - 1))

    def outside(theta: float) -> bool:
        return (value - theta) ** 2 > z * z * widening * variance(theta)

    return _edge(outside, 0.0, value), _edge(outside, 1.0, value)


def _edge(outside: Callable[[float], bool], end: float, value: float) -> float:
    """Bisection between an end of [0, 1] and the estimate for where `outside` turns false."""
    if not outside(end):
        return end
    far, near = end, value
    while not math.isclose(far, near, rel_tol=0.0, abs_tol=1e-12):
        middle = (far + near) / 2
        if middle in (far, near):
            break
        far, near = (middle, near) if outside(middle) else (far, middle)
    return near
