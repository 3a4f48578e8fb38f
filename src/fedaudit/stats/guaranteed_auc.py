"""Ends of an AUC's interval that are proved for every distribution of independent scores, one party or many.

Pair the members with outsiders, nobody twice: k = min(members, outsiders) independent comparisons. The AUC is the mean
over all such pairings. So for every convex f, f(AUC) is on average at most what a mean of k independent numbers between
0 and 1 gives, and that at most what k coins with the same mean give (Hoeffding 1963, section 5; 1956). With
f(s) = max(s - t, 0) it follows that k AUC reaches x with probability at most E max(S - t, 0) / (x - t), where S is
binomial and t < x may be chosen. This is sharper than Chernoff's bound (t is where Chernoff has an exponential), and at
AUC 1 it is theta^k, Clopper and Pearson's limit.

Several parties are weighted by their pairs. Each record then has a share in the AUC's weight, and the mean over all
pairings can be written so that no comparison counts more than the largest share on either side, `weight`. A coin that
counts less is never spread more widely than one that counts `weight` and falls accordingly less often: again a
binomial, with the comparisons of all parties.

Where people have several records, people take the place of records, because all records of one person may err
together. If everybody has equally many, the ends are proved for independent people. If not, there are as many
comparisons as equally large people would give who tell as much (Kish's effective number); that is simulated in
docs/coverage.md, and not proved.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize, special

from fedaudit.types import Floats

_TRIED = 24  # values of t near the best one; each gives a bound that holds
_EXACT = 1e-10


@dataclass(frozen=True)
class Comparisons:
    """How many independent comparisons an AUC holds, and the most that one of them counts."""

    trials: int
    weight: float

    def __add__(self, other: "Comparisons") -> "Comparisons":
        return Comparisons(self.trials + other.trials, max(self.weight, other.weight))


NONE = Comparisons(0, 0.0)


def of_records(size: tuple[int, int], weight: float) -> Comparisons:
    """One party in which every record stands for itself; `weight`: its own in the AUC."""
    return Comparisons(min(size), float(weight / min(size)))


def of_people(people: float, weight: float) -> Comparisons:
    """So many effective people on the side that has fewer; `weight`: that of their records in the AUC."""
    trials = max(math.floor(people + 1e-9), 1)
    return Comparisons(trials, weight / trials)


def guaranteed_ends(value: float, of: Comparisons, alpha: float) -> tuple[float, float]:
    """The lower and the upper end, each missed by at most alpha / 2."""
    return _least(value, of.trials, of.weight, alpha / 2), 1 - _least(1 - value, of.trials, of.weight, alpha / 2)


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
    tried = np.arange(float(top), max(count - far, 0.0) - 1e-9, -math.ceil(far / _TRIED))
    bounds = _excess(tried, trials, chance) / (count - tried)
    exact = chance**trials if count > trials - 1e-9 else 1.0
    return float(min(bounds.min(), exact, 1.0))


def _excess(tried: Floats, trials: int, chance: float) -> Floats:
    """E max(S - t, 0) for a binomial S: its mean times the chance of at least t - 1 in one trial less, minus t times
    the chance of at least t."""
    more = special.bdtrc(tried - 1, trials, chance)
    one_less = special.bdtrc(tried - 2, trials - 1, chance) if trials > 1 else np.ones(len(tried))
    return np.asarray(trials * chance * np.where(tried > 1, one_less, 1.0) - tried * np.where(tried > 0, more, 1.0))
