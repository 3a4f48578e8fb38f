"""How well scores separate members from non-members: AUC, and TPR at a calibrated false-positive rate.

Ties never favour anybody: AUC uses mid-ranks, and a threshold accuses only scores strictly above it.
Records of one subject are not independent: where subjects are known, variances are those of subjects, and counts
enter exact intervals divided by the design effect.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedaudit.stats.intervals import clopper_pearson, quantile_ranks, score_interval
from fedaudit.types import Bools, Curve, Estimate, Floats, Ints

Groups = NDArray[Any]  # a name or a number for each record: whose it is


@dataclass(frozen=True)
class Block:
    """Scores that may be compared with one another. Local models of several parties are several blocks.

    `subjects` names whose each score is, for members, evaluation and calibration in turn; None: all independent.
    """

    members: Floats
    evaluation: Floats
    calibration: Floats
    subjects: tuple[Groups, Groups, Groups] | None = None

    @cached_property
    def groups(self) -> tuple[Ints, Ints, Ints] | tuple[None, None, None]:
        """The subjects of each set, numbered without gaps: adding up by subject is then one pass."""
        if self.subjects is None:
            return None, None, None
        members, evaluation, calibration = (np.unique(names, return_inverse=True)[1] for names in self.subjects)
        return members, evaluation, calibration

    @cached_property
    def descending(self) -> Floats:
        """The calibration scores by rank: 0 is above all of them, 1 the largest."""
        return np.concatenate([[np.inf], np.sort(self.calibration)[::-1], [-np.inf]])


# ------------------------------------------------------------------ AUC


def auc(blocks: Sequence[Block], confidence: float = 0.95) -> Estimate:
    """Probability that a member outscores an evaluation non-member of its own block (ties count half)."""
    n_pos = sum(len(b.members) for b in blocks)
    n_neg = sum(len(b.evaluation) for b in blocks)
    usable = [b for b in blocks if len(b.members) and len(b.evaluation)]
    if not usable:
        reason = "needs at least one member and one evaluation non-member"
        return Estimate("auc", None, None, None, confidence, _AUC, "measured", n_pos, n_neg, reason=reason)
    sizes = [(len(b.members), len(b.evaluation)) for b in usable]
    pairs = np.array([m * n for m, n in sizes], dtype=float)
    value = variance = 0.0
    for block, weight in zip(usable, pairs / pairs.sum(), strict=True):
        by_member, by_nonmember = placements(block.members, block.evaluation)
        value += float(weight * by_member.mean())
        variance += float(weight**2) * delong_variance(by_member, by_nonmember, block.subjects)
    value = min(max(value, 0.0), 1.0)
    low, high = score_interval(value, sizes, variance, 1 - confidence)
    method = _AUC + _BY_SUBJECT * any(b.subjects is not None for b in usable)
    return Estimate("auc", value, low, high, confidence, method, "measured", n_pos, n_neg)


def placements(members: Floats, nonmembers: Floats) -> tuple[Floats, Floats]:
    """For each member the share of non-members it beats; for each non-member the share of members that beat it."""
    m = len(members)
    ranks = stats.rankdata(np.concatenate([members, nonmembers]))  # mid-ranks
    by_member = (ranks[:m] - stats.rankdata(members)) / len(nonmembers)
    by_nonmember = 1 - (ranks[m:] - stats.rankdata(nonmembers)) / m
    return by_member, by_nonmember


def delong_variance(
    by_member: Floats, by_nonmember: Floats, subjects: tuple[Groups, Groups, Groups] | None = None
) -> float:
    """DeLong's variance of the AUC; with subjects Obuchowski's, in which whole subjects vary, on both sides at once."""
    m, n = len(by_member), len(by_nonmember)
    if subjects is None:
        of_members = float(np.var(by_member, ddof=1)) / m if m > 1 else 0.0
        of_nonmembers = float(np.var(by_nonmember, ddof=1)) / n if n > 1 else 0.0
        return of_members + of_nonmembers
    parts = np.concatenate([(by_member - by_member.mean()) / m, (by_nonmember - by_nonmember.mean()) / n])
    sums = np.bincount(np.unique(np.concatenate(subjects[:2]), return_inverse=True)[1], parts)
    return float(np.sum(sums**2)) * len(sums) / max(len(sums) - 1, 1)


_AUC = "mid-rank AUC; Newcombe score interval, variance at least DeLong's"
_TPR = "threshold on calibration non-members; order statistic + Clopper-Pearson"
_BY_SUBJECT = "; clustered by subject"


# ------------------------------------------------------------------ TPR at a calibrated FPR


def needed_for_value(fpr: float) -> int:
    """Calibration non-members below which no threshold has an expected FPR of at most `fpr`."""
    return math.ceil(1 / fpr - 1e-9)


def needed_for_lower_end(fpr: float, confidence: float = 0.95, blocks: int = 1) -> int:
    """Independent calibration non-members (per block) from which a TPR's lower end can be above 0."""
    alpha = (1 - confidence) / 4 / blocks
    return math.ceil(math.log(alpha) / math.log1p(-fpr))


def tpr_at_fpr(blocks: Sequence[Block], fpr: float, confidence: float = 0.95) -> Estimate:
    """Share of members accused when at most `fpr` of outsiders are, with thresholds set on calibration scores.

    The interval is for the TPR at a *true* FPR of `fpr`: a quarter of the error each for the threshold being too
    high, too low, and for the members' count at either threshold (Clopper-Pearson). With several blocks each has a
    threshold of its own, shares the threshold's error, and the counts are summed; a sum of binomials with different
    chances is never wider spread than one binomial, so Clopper-Pearson still holds.
    """
    n_pos, n_neg = sum(len(b.members) for b in blocks), sum(len(b.evaluation) for b in blocks)
    n_cal = sum(len(b.calibration) for b in blocks)
    smallest = min((len(b.calibration) for b in blocks), default=0)
    method = _TPR + _BY_SUBJECT * any(b.subjects is not None for b in blocks)
    name = f"tpr@{fpr:g}"
    missing = needed_for_value(fpr) - smallest
    if n_pos == 0 or missing > 0:
        whose = "every party" if len(blocks) > 1 else "the calibration set"
        reason = "no members" if n_pos == 0 else (
            f"needs {missing} more calibration non-members: {whose} must have {needed_for_value(fpr)}, "
            f"the smallest has {smallest}"
        )  # fmt: skip
        return Estimate(name, None, None, None, confidence, method, "measured", n_pos, n_neg, n_cal, reason=reason)
    alpha = (1 - confidence) / 4
    cuts = [_cuts(block, fpr, alpha / len(blocks)) for block in blocks]
    accused = [block.members > cut.threshold for block, cut in zip(blocks, cuts, strict=True)]
    spread = design_effect(accused, [b.groups[0] for b in blocks])

    def hits(threshold: str) -> int:
        counts = (np.count_nonzero(b.members > getattr(c, threshold)) for b, c in zip(blocks, cuts, strict=True))
        return int(sum(counts))

    wrongly = [block.evaluation > cut.threshold for block, cut in zip(blocks, cuts, strict=True)]
    wrongly_spread = design_effect(wrongly, [b.groups[1] for b in blocks])
    false_hits = sum(int(np.count_nonzero(w)) for w in wrongly)
    realised = clopper_pearson(false_hits / wrongly_spread, n_neg / wrongly_spread, 2 * alpha, 2 * alpha)
    return Estimate(
        name,
        hits("threshold") / n_pos,
        clopper_pearson(hits("highest") / spread, n_pos / spread, alpha, alpha)[0],
        clopper_pearson(hits("lowest") / spread, n_pos / spread, alpha, alpha)[1],
        confidence,
        method,
        "measured",
        n_pos,
        n_neg,
        n_cal,
        threshold=cuts[0].threshold if len(cuts) == 1 else None,
        realised_fpr=false_hits / n_neg if n_neg else None,
        realised_fpr_interval=realised if n_neg else None,
        reason=_why_no_lower_end(blocks, cuts, needed_for_lower_end(fpr, confidence, len(blocks))),
    )


@dataclass(frozen=True)
class _Cuts:
    """The threshold in use, and the two between which the true quantile lies."""

    threshold: float
    highest: float
    lowest: float
    spread: float  # design effect of the calibration scores


def _cuts(block: Block, fpr: float, alpha: float) -> _Cuts:
    n, descending = len(block.calibration), block.descending
    threshold = float(descending[math.floor(fpr * (n + 1) + 1e-9)])
    spread = 1.0
    if block.groups[2] is not None:
        # So few scores lie beyond a small FPR that their clustering is also judged where there are more.
        looser = float(descending[math.ceil(max(fpr, 0.1) * n)])
        spread = max(design_effect([block.calibration > t], [block.groups[2]]) for t in (threshold, looser))
    above, below = quantile_ranks(int(n / spread), fpr, alpha)
    highest, lowest = descending[math.floor(above * spread)], descending[min(math.ceil(below * spread), n + 1)]
    return _Cuts(threshold, float(highest), float(lowest), spread)


def design_effect(indicators: Sequence[Bools], groups: Sequence[Ints | None]) -> float:
    """How many times larger the variance of a count is than if every record stood for itself; at least 1."""
    measured = nominal = 0.0
    for indicator, own in zip(indicators, groups, strict=True):
        share = float(np.mean(indicator)) if len(indicator) else 0.0
        independent = len(indicator) * share * (1 - share)
        nominal += independent
        measured += independent if own is None else float(np.sum(np.bincount(own, indicator - share) ** 2))
    return max(1.0, measured / nominal) if nominal > 0 else 1.0


def _why_no_lower_end(blocks: Sequence[Block], cuts: Sequence[_Cuts], wanted: int) -> str | None:
    missing = max(math.ceil(wanted * c.spread) - len(b.calibration) for b, c in zip(blocks, cuts, strict=True))
    if missing <= 0:
        return None
    where = " in the smallest party" if len(blocks) > 1 else ""
    return f"the lower end is 0 until there are {missing} more calibration non-members{where}"


def roc_curve(blocks: Sequence[Block], points: int = 60, confidence: float = 0.95) -> Curve:
    """TPR against FPR at log-spaced rates, each as `tpr_at_fpr` reports it, down to what can be calibrated."""
    smallest = min((len(b.calibration) for b in blocks), default=0)
    if smallest < 2:
        return Curve([], [], [], [], _TPR)
    rates = np.geomspace(max(1.0 / smallest, 1e-4), 0.99, points)
    found = [(float(rate), tpr_at_fpr(blocks, float(rate), confidence)) for rate in rates]
    kept = [(rate, e) for rate, e in found if e.value is not None]
    return Curve(
        [rate for rate, _ in kept],
        [e.value for _, e in kept],
        [e.low for _, e in kept],
        [e.high for _, e in kept],
        f"pointwise {confidence:.0%}: {kept[0][1].method if kept else _TPR}",
    )
