"""Empirical epsilon from two arrays of scores: a proved bound, a model-based estimate, and the figure papers quote.

These three labels must never be mixed. *proved*: a one-sided lower bound, wrong with probability at most
1 - confidence, whatever the mechanism is. *model-based*: correct if the scores are Gaussian. *heuristic*: the maximum
over thresholds chosen on the reported data; neither a bound nor an estimate of anything.

(epsilon, delta)-DP bounds every test: TPR <= e^epsilon FPR + delta and TNR <= e^epsilon FNR + delta. So upper limits
of FPR and FNR, wrong together with probability alpha, give a lower bound of epsilon (Jagielski et al. 2020).

The scores must come from independent trials of the mechanism: `members` with the unit, `nonmembers` without it. Scores
of many units of *one* training run are not independent trials; for those see `one_run_epsilon`. Higher score =
member, as everywhere.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from fedaudit.errors import FedauditError
from fedaudit.stats.gaussian import check_delta, gaussian_epsilon
from fedaudit.stats.intervals import clopper_pearson
from fedaudit.stats.rank_bound import MOST_TRIALS, rank_bound, rank_ceiling, ranks_refute
from fedaudit.types import Bools, Estimate, Floats, Ints

LIMITED = "limited by the number of trials"
NORMALITY_ALPHA = 0.01  # shared by the three checks of the Gaussian fit


# ------------------------------------------------------------------ how a threshold is chosen


@dataclass(frozen=True)
class Explicit:
    """A threshold fixed before looking at any score: accuse what lies strictly above it."""

    threshold: float


@dataclass(frozen=True)
class Split:
    """Chosen on a random share of the trials, reported on the rest."""

    share: float = 0.5
    seed: int = 0


@dataclass(frozen=True)
class Ranks:
    """Thresholds at ranks fixed before looking: the largest score of a side, the second largest and so on."""


Threshold = Explicit | Split | Ranks


# ------------------------------------------------------------------ proved


def proved_epsilon(
    members: Floats, nonmembers: Floats, delta: float, threshold: Threshold, confidence: float = 0.95
) -> Estimate:
    """A lower bound of epsilon, valid at `confidence` for the way the threshold was chosen."""
    _check(members, nonmembers, delta, confidence)
    alpha, name = 1 - confidence, f"epsilon-{type(threshold).__name__.lower()}"
    cut: float | None = None
    if isinstance(threshold, Ranks) and max(len(members), len(nonmembers)) <= MOST_TRIALS:
        bound = rank_bound(members, nonmembers, delta, alpha)
        most = rank_ceiling(len(members), len(nonmembers), delta, alpha)
        method = "exact test over ranks fixed in advance"
    elif isinstance(threshold, Ranks):
        bound, most, method = union_bound(members, nonmembers, delta, alpha)
    else:
        if isinstance(threshold, Explicit):
            cut = threshold.threshold
        else:
            members, nonmembers, cut = _choose(members, nonmembers, delta, threshold, alpha)
        fn, fp = int(np.count_nonzero(members <= cut)), int(np.count_nonzero(nonmembers > cut))
        bound = _bound(fn, fp, members, nonmembers, delta, alpha)
        most = ceiling(len(members), len(nonmembers), delta, alpha)
        chosen = "fixed in advance" if isinstance(threshold, Explicit) else "chosen on trials that are not reported"
        method = f"Clopper-Pearson, threshold {chosen}"
    return Estimate(
        name, bound, bound, None, confidence, f"{method}; one-sided lower bound at delta {delta:g}", "proved",
        len(members), len(nonmembers), threshold=cut, reason=LIMITED if bound >= most else None, ceiling=most,
    )  # fmt: skip


def refutes(members: Floats, nonmembers: Floats, claimed: float, delta: float, confidence: float = 0.95) -> bool:
    """Is the claimed epsilon below what is proved over ranks?"""
    if max(len(members), len(nonmembers)) <= MOST_TRIALS:
        return ranks_refute(members, nonmembers, claimed, delta, 1 - confidence)
    return union_bound(members, nonmembers, delta, 1 - confidence)[0] > claimed


def union_bound(members: Floats, nonmembers: Floats, delta: float, alpha: float) -> tuple[float, float, str]:
    """The best of several ranks, which share the error; the most that it can be, and how it came about."""
    tests = list(_ranked(members, nonmembers))
    bound = max(_bound(fn, fp, members, nonmembers, delta, alpha / len(tests)) for fn, fp in tests)
    most = ceiling(len(members), len(nonmembers), delta, alpha / len(tests))
    return bound, most, f"Clopper-Pearson, union bound over {len(tests)} ranks fixed in advance"


def ceiling(n_pos: int, n_neg: int, delta: float, alpha: float) -> float:
    """The largest epsilon that so many trials can ever prove: the bound when no trial goes wrong."""
    return float(_epsilon(_upper_limits(n_pos, alpha / 2)[0], _upper_limits(n_neg, alpha / 2)[0], delta))


def _epsilon(fnr: Any, fpr: Any, delta: float) -> Any:
    """The larger of the two inequalities, at least 0, for rates that are both above 0."""
    best = np.maximum((1 - delta - fnr) / fpr, (1 - delta - fpr) / fnr)
    found = np.log(np.maximum(best, 1.0))
    return float(found) if np.ndim(found) == 0 else found


def _bound(fn: int, fp: int, members: Floats, nonmembers: Floats, delta: float, alpha: float) -> float:
    upper = _upper_limits(len(members), alpha / 2)[fn], _upper_limits(len(nonmembers), alpha / 2)[fp]
    return float(_epsilon(*upper, delta))


@lru_cache(maxsize=64)
def _upper_limits(n: int, alpha: float) -> Floats:
    """Clopper-Pearson's upper limit for k = 0..n errors among n trials."""
    k = np.arange(n)
    return np.append(special.betaincinv(k + 1, n - k, 1 - alpha), 1.0)


def _choose(
    members: Floats, nonmembers: Floats, delta: float, split: Split, alpha: float
) -> tuple[Floats, Floats, float]:
    """The trials that remain for reporting, and the threshold whose bound is largest on the others."""
    rng = np.random.default_rng(split.seed)
    parts = []
    for scores in (members, nonmembers):
        order, cut = rng.permutation(len(scores)), round(split.share * len(scores))
        if not 0 < cut < len(scores):
            raise FedauditError(
                "trials", f"{len(scores)} trials cannot be split in two", "Give at least two trials on each side."
            )
        parts.append((scores[order[:cut]], scores[order[cut:]]))
    (chosen_on, kept), (chosen_on_too, kept_too) = parts
    thresholds, fn, fp = _errors(chosen_on, chosen_on_too)
    limits = _upper_limits(len(chosen_on), alpha / 2)[fn], _upper_limits(len(chosen_on_too), alpha / 2)[fp]
    return kept, kept_too, float(thresholds[np.argmax(_epsilon(*limits, delta))])


def _errors(members: Floats, nonmembers: Floats) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Every threshold that makes a difference, with the members at or below it and the non-members above it."""
    thresholds = np.unique(np.concatenate([members, nonmembers]))
    fn = np.searchsorted(np.sort(members), thresholds, side="right")
    fp = len(nonmembers) - np.searchsorted(np.sort(nonmembers), thresholds, side="right")
    return thresholds, fn, fp


def _ranked(members: Floats, nonmembers: Floats) -> Iterator[tuple[int, int]]:
    """(false negatives, false positives) at thresholds given by a rank on one side.

    Take the k-th largest of n non-member scores as the threshold. The true FPR of "strictly above" is then
    stochastically at most Beta(k, n - k + 1), whose quantile is Clopper-Pearson's limit for k - 1 errors. The members
    are independent of that score, so their errors are binomial. The same holds at the k-th smallest member with "at or
    above". So each rank is a valid test, even with ties, although its threshold depends on the data; and the union
    bound runs over ranks, not over scores.
    """
    up, down = np.sort(members), np.sort(nonmembers)[::-1]
    rank = 1
    while rank <= len(down):
        yield int(np.count_nonzero(members <= down[rank - 1])), rank - 1
        rank *= 2
    rank = 1
    while rank <= len(up):
        yield rank - 1, int(np.count_nonzero(nonmembers >= up[rank - 1]))
        rank *= 2


# ------------------------------------------------------------------ model-based


def gdp_epsilon(members: Floats, nonmembers: Floats, delta: float, confidence: float = 0.95) -> Estimate:
    """Epsilon of the Gaussian mechanism with the separation of the scores (mu-GDP), if the scores are Gaussian.

    The interval inverts the noncentral t, which the separation in standard errors follows exactly for two normal
    samples of one variance. When the scores are not normal or their variances differ, there is no value.
    """
    _check(members, nonmembers, delta, confidence)
    m, n = len(members), len(nonmembers)
    method = f"mu-GDP: two Gaussians of one variance; noncentral t interval of mu; at delta {delta:g}"
    reason = "needs at least 8 trials on either side" if min(m, n) < 8 else _not_gaussian(members, nonmembers)
    if delta == 0:
        reason = "a Gaussian mechanism has no finite epsilon at delta 0"
    if reason:
        return Estimate("epsilon-gdp", None, None, None, confidence, method, "model-based", m, n, reason=reason)
    freedom = m + n - 2
    variance = (np.var(members, ddof=1) * (m - 1) + np.var(nonmembers, ddof=1) * (n - 1)) / freedom
    mu = float((members.mean() - nonmembers.mean()) / math.sqrt(variance))
    error, tail = math.sqrt(1 / m + 1 / n), (1 - confidence) / 2
    ends = (error * float(special.nctdtrinc(freedom, chance, mu / error)) for chance in (1 - tail, tail))
    low, high = (gaussian_epsilon(max(t, 0.0), delta) for t in ends)  # negative: no separation
    value = gaussian_epsilon(max(mu, 0.0), delta)
    return Estimate("epsilon-gdp", value, low, high, confidence, f"{method}; mu = {mu:.4g}", "model-based", m, n)


def _not_gaussian(members: Floats, nonmembers: Floats) -> str | None:
    """Why two Gaussians with the same variance do not fit the scores; None if they do."""
    if not (np.isfinite(members).all() and np.isfinite(nonmembers).all()):
        return "the Gaussian fit is rejected: infinite scores"
    if min(np.ptp(members), np.ptp(nonmembers)) == 0:
        return "the Gaussian fit is rejected: constant scores"
    level = NORMALITY_ALPHA / 3
    for name, scores in (("members'", members), ("non-members'", nonmembers)):
        p = float(stats.normaltest(scores).pvalue if len(scores) >= 20 else stats.shapiro(scores).pvalue)
        if p < level:
            return f"the Gaussian fit is rejected: {name} scores are not normal (p = {p:.1e})"
    p = float(stats.levene(members, nonmembers, center="median").pvalue)
    return f"the Gaussian fit is rejected: the variances differ (p = {p:.1e})" if p < level else None


# ------------------------------------------------------------------ heuristic


def maximised_epsilon(members: Floats, nonmembers: Floats, delta: float, confidence: float = 0.95) -> Estimate:
    """The figure that papers quote: the plug-in epsilon, maximised over thresholds on the reported data.

    Zero errors count as one (CANIFE), so the number of trials caps the figure. The interval is
    Clopper-Pearson's at the winning threshold, as the papers give it: it does not account for the choice.
    """
    _check(members, nonmembers, delta, confidence)
    m, n = len(members), len(nonmembers)
    _, fn, fp = _errors(members, nonmembers)
    by_fn = (1 - delta - fp / n) / (np.maximum(fn, 1) / m)
    by_fp = (1 - delta - fn / m) / (np.maximum(fp, 1) / n)
    found = np.log(np.maximum(np.maximum(by_fn, by_fp), 1.0))
    best = int(np.argmax(found))
    tail = (1 - confidence) / 2
    (fnr_low, fnr), (fpr_low, fpr) = (
        clopper_pearson(int(k), total, tail, tail) for k, total in ((fn[best], m), (fp[best], n))
    )
    high = None if min(fnr_low, fpr_low) <= 0 else _epsilon(fnr_low, fpr_low, delta)
    return Estimate(
        "epsilon-maximised", float(found[best]), _epsilon(fnr, fpr, delta), high, confidence,
        f"largest plug-in epsilon over all thresholds, chosen on these trials; at delta {delta:g}", "heuristic", m, n,
        reason=LIMITED if min(fn[best], fp[best]) == 0 else None, ceiling=math.log(max((1 - delta) * max(m, n), 1.0)),
    )  # fmt: skip


def _check(members: Floats, nonmembers: Floats, delta: float, confidence: float) -> None:
    check_delta(delta)
    if not 0 < confidence < 1:
        raise FedauditError(
            "confidence", f"confidence must lie between 0 and 1, got {confidence}", "Give, for example, 0.95."
        )
    if not len(members) or not len(nonmembers):
        raise FedauditError(
            "empty-set", "there are no trials with the unit, or none without it", "Give scores of both."
        )
    bad = int(np.count_nonzero(np.isnan(members))) + int(np.count_nonzero(np.isnan(nonmembers)))
    if bad:
        raise FedauditError("nan-scores", f"{bad} scores are NaN", "Compute them again, or remove these trials.")


# ------------------------------------------------------------------ proved, from one training run

# Steinke, Nasr, Jagielski: "Privacy auditing with one (1) training run", 2023.
#
# Each of m units (records, subjects or users) is put into training by its own fair coin; the auditor knows the coins.
#
# 1. From the scores alone guess, for some units, "in" (the highest) or "out" (the lowest); abstain from the rest.
# 2. v of r guesses are right. Under epsilon-DP every guess is right with chance at most p = e^eps / (1 + e^eps)
#    whatever the others show, so P(v or more right) <= P(Binomial(r, p) >= v).
# 3. With delta the chance grows by at most 2 m delta max_i (P(Bin >= v - i) - P(Bin >= v)) / i   (their theorem 5.2).
# 4. The bound is the largest epsilon under which v right guesses have a chance below alpha. (A mechanism that is DP
#    with a smaller epsilon is also DP with this one, so smaller epsilons are refuted as well.)
#
# The numbers of guesses are fixed before looking: a few of them, which share alpha. The adjacency is add-remove: a coin
# decides whether the unit is there at all.


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
