"""A proved bound from one training run (Steinke, Nasr, Jagielski: "Privacy auditing with one (1) training run", 2023).

Each of m units (records, subjects or users) is put into training by its own fair coin; the auditor knows the coins.

1. From the scores alone guess, for some units, "in" (the highest) or "out" (the lowest); abstain from the rest.
2. v of r guesses are right. Under epsilon-DP every guess is right with chance at most p = e^eps / (1 + e^eps) whatever
   the others show, so P(v or more right) <= P(Binomial(r, p) >= v).
3. With delta the chance grows by at most 2 m delta max_i (P(Bin >= v - i) - P(Bin >= v)) / i   (their theorem 5.2).
4. The bound is the largest epsilon under which v right guesses have a chance below alpha. (A mechanism that is DP with
   a smaller epsilon is also DP with this one, so smaller epsilons are refuted as well.)

The numbers of guesses are fixed before looking: a few of them, which share alpha. The adjacency is add-remove: a coin
decides whether the unit is there at all.
"""

from functools import lru_cache

import numpy as np
from scipy import stats

from fedaudit.errors import FedauditError
from fedaudit.stats.epsilon import LIMITED
from fedaudit.stats.gaussian import check_delta
from fedaudit.types import Bools, Estimate, Floats, Ints

MAX_EPSILON = 60.0
UNFAIR = 1e-4  # a number of members less probable than this is not accepted as the result of fair coins


def one_run_epsilon(scores: Floats, included: Bools, delta: float, confidence: float = 0.95) -> Estimate:
    """Lower bound of epsilon from the scores of units that were included by independent fair coins."""
    check_delta(delta)
    m, inside = len(scores), int(np.count_nonzero(included))
    if not m or np.isnan(scores).any():
        raise FedauditError(
            "nan-scores", "there are no scores, or some are NaN", "Compute them again, or remove these units."
        )
    name = "epsilon-one-run"
    method = f"Steinke et al. 2023: right guesses about {m} fair coins; one-sided lower bound at delta {delta:g}"
    if not _fair(inside, m):
        reason = f"{inside} of {m} units were included: that is not what independent fair coins give"
        return Estimate(name, None, None, None, confidence, method, "proved", inside, m - inside, reason=reason)
    plans = guess_counts(m)
    alpha = (1 - confidence) / len(plans)
    order = np.lexsort((np.random.default_rng(0).permutation(m), -scores))  # ties: neither by truth nor by storage
    right = included[order]
    bound = 0.0
    for high, low in plans:
        correct = int(np.count_nonzero(right[:high]) + np.count_nonzero(~right[m - low :]))
        if one_run_p_value(m, high + low, correct, bound, delta) <= alpha:  # else it proves no more than the others
            bound = one_run_bound(m, high + low, correct, delta, alpha)
    most = max(one_run_bound(m, high + low, high + low, delta, alpha) for high, low in plans)
    return Estimate(
        name, bound, bound, None, confidence, f"{method}; {len(plans)} numbers of guesses share the error", "proved",
        inside, m - inside, reason=LIMITED if bound >= most else None, ceiling=most,
    )  # fmt: skip


def by_unit(unit: Ints, scores: Floats, included: Bools) -> tuple[Floats, Bools]:
    """If one coin decided about several records: the mean of their scores, and the coin. Sorted by unit."""
    units, first, number = np.unique(unit, return_index=True, return_inverse=True)
    total = np.zeros(len(units))
    np.add.at(total, number, scores)
    return total / np.bincount(number), included[first]


@lru_cache(maxsize=4096)
def _fair(inside: int, m: int) -> bool:
    return bool(stats.binomtest(inside, m).pvalue >= UNFAIR)


def guess_counts(m: int) -> list[tuple[int, int]]:
    """(highest guessed in, lowest guessed out): all units, a quarter, a sixteenth ..., and the highest alone."""
    plans: list[tuple[int, int]] = []
    share = m
    while share >= 8 or not plans:
        plans += [(share // 2, share - share // 2), (max(share // 2, 1), 0)]
        share //= 4
    return plans


@lru_cache(maxsize=4096)
def one_run_bound(m: int, guesses: int, correct: int, delta: float, alpha: float) -> float:
    """The largest epsilon refuted at level alpha by `correct` right among `guesses` about m coins; 0 if none is."""
    if one_run_p_value(m, guesses, correct, 0.0, delta) > alpha:
        return 0.0
    low, high = 0.0, MAX_EPSILON
    while high - low > 1e-9:
        middle = (low + high) / 2
        refuted = one_run_p_value(m, guesses, correct, middle, delta) <= alpha
        low, high = (middle, high) if refuted else (low, middle)
    return low


def one_run_p_value(m: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The largest chance that (epsilon, delta)-DP leaves for so many right guesses or more."""
    chance = 1 / (1 + np.exp(-epsilon))
    tail = float(stats.binom.sf(correct - 1, guesses, chance))
    if delta == 0 or correct == 0:
        return min(tail, 1.0)
    below = np.cumsum(stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, chance))  # P(v - i <= Bin < v)
    worst = float(np.max(below / np.arange(1, correct + 1)))
    return min(tail + 2 * m * delta * worst, 1.0)
