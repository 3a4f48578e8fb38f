"""Intervals for a proportion, a quantile and an AUC. All of them hold for small counts and at 0 and 1."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from scipy import optimize, special


def clopper_pearson(k: float, n: float, alpha_low: float, alpha_high: float) -> tuple[float, float]:
    """Exact interval for a proportion: misses below with at most `alpha_low`, above with at most `alpha_high`.

    Counts may be fractional, as they are after division by a design effect.
    """
    if n <= 0:
        return 0.0, 1.0
    low = 0.0 if k <= 0 else float(special.betaincinv(k, n - k + 1, alpha_low))
    high = 1.0 if k >= n else float(special.betaincinv(k + 1, n - k, 1 - alpha_high))
    return low, high


def few_subjects_factor(people: float | None, alpha: float) -> float:
    """The factor by which a design effect is enlarged if it was measured on few subjects: Student's t squared over z
    squared (Korn and Graubard)."""
    if people is None:
        return 1.0
    t, z = special.stdtrit(max(people - 1, 1.0), 1 - alpha / 2), special.ndtri(1 - alpha / 2)
    return float((t / z) ** 2)


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


def hanley_mcneil_variance(theta: float, m: float, n: float) -> float:
    """Variance of an AUC of `theta` for exponential scores; exact at 0.5 for any continuous score."""
    q1, q2 = theta / (2 - theta), 2 * theta**2 / (1 + theta)
    return (theta * (1 - theta) + (m - 1) * (q1 - theta**2) + (n - 1) * (q2 - theta**2)) / (m * n)


Sizes = Sequence[tuple[float, float]]  # (members, non-members) of strata that are weighted by their pairs


def score_interval(
    value: float,
    sizes: Sizes,
    measured_variance: float,
    alpha: float,
    people: float | None = None,
    at_most: Sizes | None = None,
    tied: Sequence[float] | None = None,
) -> tuple[float, float]:
    """Newcombe's score interval for an AUC: the values of theta that lie within z standard errors *of theta*.

    The variance is Hanley and McNeil's at theta, widened by the factor by which the measured (DeLong) variance
    exceeds it at the estimate. Unlike DeLong's own interval it keeps its width at AUC 1. `people`: how many subjects
    the variance was measured on, if it was measured over subjects; Student's t then takes the place of z. `at_most`:
    the largest sizes that the strata may count for. They matter near AUC 1, where hardly anybody is misplaced and the
    factor cannot be measured. `tied`: the factors by which ties lower the variances of the strata, which Hanley and
    McNeil's formula has for scores without ties.

    Hanley and McNeil's variance vanishes towards AUC 1 as (1 - theta)^2 does, that of a share of records which err as
    1 - theta: the measured variance is carried on to other values of theta in both ways, and the larger one counts.
    """
    weights = [w * w * factor for w, factor in zip(_pair_weights(sizes), tied or [1.0] * len(sizes), strict=True)]
    variance = partial(_strata_variance, sizes=sizes, weights=weights)
    least = partial(_strata_variance, sizes=at_most or sizes, weights=weights)
    nominal = variance(value)
    widening = max(1.0, measured_variance / nominal) if nominal > 0 else 1.0
    like_a_share = measured_variance / (value * (1 - value)) if 0 < value < 1 else 0.0
    z = float(special.ndtri(1 - alpha / 2) if people is None else special.stdtrit(people - 1, 1 - alpha / 2))

    def outside(theta: float) -> float:
        spread = max(widening * variance(theta), like_a_share * theta * (1 - theta), least(theta) if at_most else 0.0)
        return (value - theta) ** 2 - z * z * spread

    return _edge(outside, 0.0, value), _edge(outside, 1.0, value)


def _pair_weights(sizes: Sizes) -> list[float]:
    pairs = [m * n for m, n in sizes]
    return [own / sum(pairs) for own in pairs]


def _strata_variance(theta: float, sizes: Sizes, weights: Sequence[float]) -> float:
    terms = (w * hanley_mcneil_variance(theta, m, n) for w, (m, n) in zip(weights, sizes, strict=True))
    return float(sum(terms))


def _edge(outside: Callable[[float], float], end: float, value: float) -> float:
    """Where `outside` turns negative on the way from an end of [0, 1] to the estimate; at an estimate of 0 or 1 it is
    0 there and negative just before."""
    near = value + math.copysign(min(1e-9, abs(end - value) / 2), end - value)
    if outside(end) <= 0:
        return end
    if outside(near) >= 0:
        return value
    return float(optimize.brentq(outside, end, near, xtol=1e-13, rtol=1e-13))
