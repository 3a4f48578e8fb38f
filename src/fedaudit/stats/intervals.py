"""Intervals for a proportion, a quantile, an AUC and a mean over runs. They hold for small counts and at 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from statistics import NormalDist

import numpy as np
from scipy import optimize, special

from fedaudit.errors import FedauditError
from fedaudit.stats.blocks import Groups, design_effect, effective_subjects, numbered
from fedaudit.types import MOST_NAMED, Bools, Estimate, Floats, Missing, UnitErrors


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


# ---------------------- a share of records, several of which may belong to one subject


BY_SUBJECT = "; clustered by subject"
_PRIOR = 0.15  # how much of an average subject, whose records all err together, is assumed before any is seen


def proportion(
    hits: Sequence[Bools | Floats],
    subjects: Sequence[Groups | None],
    confidence: float = 0.95,
    name: str = "accuracy",
    method: str = "",
    by: str = "subject",
) -> Estimate:
    """The share of hits over all groups together; `subjects` says whose each record is (None: all independent).
    A hit may be a fraction: the chance that a coin, which breaks a tie, makes it one.

    Clopper-Pearson with counts divided by the design effect, which is enlarged if it was measured on few subjects.
    `method` says what was counted, `by` what the subjects are called.
    """
    n, k = sum(len(own) for own in hits), sum(_total(own) for own in hits)
    known = [own for own in subjects if own is not None]
    people = len(np.unique(np.concatenate(known))) if known else 0
    several = 1 < people < sum(len(own) for own in known)
    told = (f"{method}; " if method else "") + "Clopper-Pearson" + f"; clustered by {by}" * several
    if n == 0:
        return Estimate(name, None, None, None, confidence, told, "measured", 0, 0, reason="nobody is left to count")
    alpha = 1 - confidence
    spread = _spread(hits, subjects, alpha) if several else 1.0
    low, high = clopper_pearson(k / spread, n / spread, alpha / 2, alpha / 2)
    return Estimate(name, k / n, low, high, confidence, told, "measured", round(k), n - round(k))


def _total(hits: Bools | Floats) -> float:
    """The sum, the same bits in whatever order the records are stored."""
    values, counts = np.unique(np.asarray(hits, np.float64), return_counts=True)
    return float(np.sum(values * counts))


def _spread(hits: Sequence[Bools | Floats], subjects: Sequence[Groups | None], alpha: float) -> float:
    """The design effect. A few hits or misses say little about how they cluster, so a fraction of one subject whose
    records all err together is added to what was seen."""
    numbers = numbered(subjects)
    known = [own for own in numbers if own is not None]
    everybody = np.concatenate(known)
    sizes = np.bincount(everybody).astype(np.float64)
    average = float(np.sum(sizes**2) / sizes.sum())
    seen = sum(_variance(own) for own in hits)
    measured = design_effect(hits, numbers)
    blended = (measured * seen + _PRIOR * average**2) / (seen + _PRIOR * average)
    return max(blended, 1.0) * few_subjects_factor(effective_subjects([everybody]), alpha)


def _variance(hits: Bools | Floats) -> float:
    share = float(np.mean(hits)) if len(hits) else 0.0
    return len(hits) * share * (1 - share)


# ------------------------------------------------------------------ over repeated training runs

# Random effects: a run's estimate is the mean over all possible runs, plus what is particular to this run, plus the
# error of measuring it on a limited number of records. The spread over runs (Student's t) holds the first in full, and
# of the second whatever differs from run to run. What runs have in common in it, because they were measured on the same
# records or people, does not average out over them, and no spread shows it. How large that part is follows from what
# each record, or person, adds to the error of each run: rho, the covariance of the errors of two runs over their
# variance. sqrt(rho) of the mean half-width of a run and the end by Student's t are added as squares. With records of
# their own in every run, rho is 0; with one set for all of them, up to 1. Where it is not known who was measured, it
# counts as 1.
#
# Student's t relies on values that vary about normally. A few records that are misplaced in one run of many give next
# to no spread, so no end is closer than errors that have nothing in common would allow: half-width / sqrt(runs).


def of_units(names: Sequence[Groups], values: Sequence[Floats]) -> UnitErrors:
    """Added up by name."""
    unique, numbers = np.unique(np.concatenate(names), return_inverse=True)
    return UnitErrors(unique, np.asarray(np.bincount(numbers, np.concatenate(values), len(unique)), np.float64))


def of_share(hits: Sequence[Bools | Floats], names: Sequence[Groups], weight: float = 1.0) -> UnitErrors:
    """Of the share of hits over all groups together."""
    total = sum(map(len, hits))
    share = sum(float(np.sum(own)) for own in hits) / max(total, 1)
    return of_units(names, [weight * (np.asarray(own, np.float64) - share) / max(total, 1) for own in hits])


def of_sum(one: UnitErrors, two: UnitErrors, weight: float = 1.0) -> UnitErrors:
    """Of the first estimate plus `weight` times the second."""
    names, (first, second) = _joined([one, two])
    return UnitErrors(names, first + weight * second)


def _joined(errors: Sequence[UnitErrors]) -> tuple[Groups, Floats]:
    """All names, and estimates x units; who is not in an estimate adds 0 to it."""
    names, numbers = np.unique(np.concatenate([own.names for own in errors]), return_inverse=True)
    rows = np.zeros((len(errors), len(names)))
    for row, own, at in zip(
        rows, errors, np.split(numbers, np.cumsum([len(own.names) for own in errors])[:-1]), strict=True
    ):
        row[at] = own.values
    return names, rows


def in_common(errors: Sequence[UnitErrors]) -> float:
    """The share of the measuring errors' variance that runs have in common. Where nobody adds anything, as at AUC 1,
    nothing is known of it: 1."""
    _, rows = _joined(errors)
    own = float(np.sum(rows**2))
    if own <= 0:
        return 1.0
    between = (float(np.sum(rows.sum(axis=0) ** 2)) - own) / (len(rows) - 1)
    return min(max(between / own, 0.0), 1.0)


def at_confidence(estimate: Estimate, confidence: float) -> Estimate:
    """The same with an interval of another confidence, as if it were a normal one: for intervals that cannot be
    computed again. No end leaves 0 and 1 if none did before."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return estimate
    normal = NormalDist().inv_cdf
    scale = normal((1 + confidence) / 2) / normal((1 + estimate.confidence) / 2)
    low, high = (estimate.value + scale * (end - estimate.value) for end in (estimate.low, estimate.high))
    if estimate.low >= 0 and estimate.high <= 1:
        low, high = max(low, 0.0), min(high, 1.0)
    return replace(estimate, low=low, high=high, confidence=confidence)


def over_runs(
    runs: Sequence[Estimate], least: float = 0.0, most: float = 1.0, errors: Sequence[UnitErrors | None] = ()
) -> Estimate:
    """The mean over training runs, with an interval for the mean over all possible runs. Runs without a value are left
    out; with fewer than two values there is no result, nor where one of them is doubted. `least`, `most`: possible
    values, from -1 for differences. `errors`: for each run what each record, or person, adds to its error, by name."""
    given = errors or [None] * len(runs)
    both = [
        (run, own)
        for run, own in zip(runs, given, strict=True)
        if run.value is not None and run.low is not None and run.high is not None
    ]
    measured, known = [run for run, _ in both], [own for _, own in both if own is not None]
    name, confidence = runs[0].name, runs[0].confidence
    counts = min(run.n_pos for run in runs), min(run.n_neg for run in runs)
    doubts = [run.doubt for run in runs if run.doubt]
    if doubts or len(measured) < 2:
        reason = f"needs two runs that have a value, and there are {len(measured)}"
        if doubts:
            reason = f"the thresholds of {len(doubts)} of {len(runs)} runs are from records of another kind"
        return Estimate(
            name, None, None, None, confidence, "mean over training runs", "measured", *counts, reason=reason,
            doubt="more" if "more" in doubts else next(iter(doubts), None), missing=_missing_in_some(runs),
        )  # fmt: skip
    values, low, high = (np.array([getattr(run, end) for run in measured], float) for end in ("value", "low", "high"))
    mean, count, deviation = float(values.mean()), len(values), float(values.std(ddof=1))
    over = float(special.stdtrit(count - 1, (1 + confidence) / 2)) * deviation / math.sqrt(count)
    common = in_common(known) if len(known) == count else 1.0
    below, above = (
        max(math.hypot(over, math.sqrt(common) * half), half / math.sqrt(count))
        for half in (float(np.mean(values - low)), float(np.mean(high - values)))
    )
    told = f"the share that the runs have in common ({common:.2g})" if len(known) == count else "all"
    method = (
        f"mean over {count} training runs (standard deviation {deviation:.3g}); random effects: Student's t over the "
        f"runs, and {told} of the error of measuring each: {measured[0].method}"
    )
    ends = (mean, max(mean - below, least), min(mean + above, most))
    return Estimate(name, *ends, confidence, method, "measured", *counts, missing=_missing_in_some(measured))


def _missing_in_some(runs: Sequence[Estimate]) -> tuple[Missing, ...]:
    """The parties that are missing from the figure of one run at least; of their members, those of the run that lacks
    most."""
    found: list[Missing] = []
    for why in dict.fromkeys(one.why for run in runs for one in run.missing):
        own = [one for run in runs for one in run.missing if one.why == why]
        names = dict.fromkeys(party for one in own for party in one.parties)
        worst = max(own, key=lambda one: one.members)
        count = max(len(names), *(one.count for one in own))
        found.append(replace(worst, parties=tuple(names)[:MOST_NAMED], count=count))
    return tuple(found)


def check_levels(confidence: float, fprs: Iterable[float]) -> None:
    """Refuse options of the command line that do not lie between 0 and 1."""
    for name, value in [("confidence", confidence), *(("fpr", fpr) for fpr in fprs)]:
        if not 0 < value < 1:
            raise FedauditError("bad-value", f"--{name} must lie between 0 and 1, got {value}", "Change that option.")
