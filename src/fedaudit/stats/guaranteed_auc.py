"""Ends of an AUC's interval that are proved for every distribution of independent scores, one party or many.

Pair the members with outsiders, nobody twice: k = min(members, outsiders) independent comparisons. The AUC is the mean
over all such pairings. So for every convex f, f(AUC) is on average at most what a mean of k independent numbers between
0 and 1 gives, and that at most what k coins with the same mean give (Hoeffding 1963, section 5; 1956). With
f(s) = max(s - t, 0) it follows that k AUC reaches x with probability at most E max(S - t, 0) / (x - t), where S is
binomial and t < x may be chosen. This is sharper than Chernoff's bound (t is where Chernoff has an exponential), and at
AUC 1 it is theta^k, Clopper and Pearson's limit.

Several parties are weighted by their pairs. A comparison in party s then counts w_s / k_s, and none counts more than
the largest of these, `weight`. A coin that counts less is never spread more widely than one that counts `weight` and
falls accordingly less often: again a binomial, with the comparisons of all parties.

Where several records belong to one person, the sizes are divided by design effects, which are estimated: the ends are
then only as good as these estimates (docs/coverage.md simulates this), and not proved.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import optimize, special

from fedaudit.stats.intervals import Sizes, pair_weights
from fedaudit.types import Floats, Ints

_TRIED = 24  # values of t near the best one; each gives a bound that holds
_EXACT = 1e-10


def guaranteed_ends(value: float, sizes: Sizes, alpha: float) -> tuple[float, float]:
    """The lower and the upper end, each missed by at most alpha / 2."""
    trials, weight = comparisons(sizes)
    return _least(value, trials, weight, alpha / 2), 1 - _least(1 - value, trials, weight, alpha / 2)


def comparisons(sizes: Sizes) -> tuple[int, float]:
    """How many independent comparisons there are, and the most that one of them counts in the AUC."""
    each = [max(math.floor(min(own) + 1e-9), 1) for own in sizes]
    return sum(each), largest(pair_weights(sizes), each)


def largest(weights: Sequence[float], counts: Sequence[float]) -> float:
    return max(weight / count for weight, count in zip(weights, counts, strict=True))


@lru_cache(maxsize=64)
def _least(value: float, trials: int, weight: float, alpha: float) -> float:
    """The smallest AUC at which reaching `value` has a chance that may be above alpha."""
    if value <= 0:
        return 0.0

    def surplus(theta: float) -> float:
        return reached(value, theta, trials, weight) - alpha

    return float(optimize.brentq(surplus, _EXACT, value, xtol=_EXACT)) if surplus(_EXACT) < 0 else 0.0


def reached(value: float, theta: float, trials: int, weight: float) -> float:
    """The most that the chance of an AUC of at least `value` can be if the true one is `theta`. With unequal parties,
    coins for wins and coins for losses give two bounds; the smaller one counts."""
    wins = at_least(value / weight, trials, min(theta / weight / trials, 1.0))
    if weight * trials < 1 + 1e-9:
        return wins
    losses = at_least(trials - (1 - value) / weight, trials, 1 - min((1 - theta) / weight / trials, 1.0))
    return min(wins, losses)


def at_least(count: float, trials: int, chance: float) -> float:
    """A bound of the chance that a sum, less spread than this binomial in the convex order, is at least `count`."""
    count = min(count, float(trials))  # rounding
    if count <= trials * chance:
        return 1.0
    top = math.ceil(count - 1e-9) - 1
    far = 2 * math.sqrt(trials * chance * (1 - chance)) + 4
    tried = np.unique(np.linspace(max(math.floor(count - far), 0), top, _TRIED).astype(np.int64))
    bounds = _excess(tried, trials, chance) / (count - tried)
    exact = chance**trials if count > trials - 1e-9 else 1.0
    return float(min(bounds.min(), exact, 1.0))


def _excess(tried: Ints, trials: int, chance: float) -> Floats:
    """E max(S - t, 0) for a binomial S."""
    mean = trials * chance
    more = np.where(tried > 0, special.bdtrc(np.maximum(tried - 1, 0), trials, chance), 1.0)  # S >= t
    one_less = special.bdtrc(np.clip(tried - 2, 0, None), max(trials - 1, 1), chance)  # S' >= t - 1, of trials - 1
    one_less = np.where(tried > 1, one_less, 1.0)
    return np.asarray(np.where(tried > 0, mean * one_less - tried * more, mean))
