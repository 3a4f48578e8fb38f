"""One estimate minus another on the same records: attack against attack, defence against defence, round against round.

Whether two intervals overlap does not decide whether the estimates differ: both err on the same records, and mostly
in the same direction. The interval of a difference follows from the two intervals and from the correlation r of their
errors (Zou and Donner's MOVER), which follows from what each record, or each subject, adds to either estimate. If a and
b are their half-widths, that of the difference is the root of a^2 + b^2 - 2 r a b. Where the intervals are lopsided,
the term with r is computed from their mean half-widths, so that two estimates with identical errors differ by 0,
however lopsided their intervals are. Records are joined by id; what only one side has counts as independent.

Two AUCs that err on the same few records seem to have identical errors, although one more record may part them. So the
ends of an AUC's difference are also computed with one record added on which the two differ as much as can be (see
`rare`). Only scores that are the same for every record have a difference of 0 for certain.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedaudit.stats.blocks import Block
from fedaudit.stats.influence import Influence, auc_influence, by_unit, tpr_influence
from fedaudit.stats.intervals import few_subjects_factor
from fedaudit.stats.ranking import auc, pooled_auc
from fedaudit.stats.rare import rare_ends, widened
from fedaudit.stats.roc import tpr_at_fpr
from fedaudit.types import Estimate


def auc_difference(first: Sequence[Block], second: Sequence[Block], confidence: float = 0.95) -> Estimate:
    """The first AUC minus the second."""
    pair = auc(first, confidence), auc(second, confidence)
    influences = [(auc_influence(first), first), (auc_influence(second), second)]
    found = difference(pair, influences)
    if found.value is None or found.low is None or found.high is None or _same_scores(first, second):
        return found
    alpha = 1 - confidence
    pooled = [pooled_auc(blocks) for blocks in (first, second)]
    one = max(own.comparisons.weight for own in pooled)
    few = max(few_subjects_factor(own.people, alpha) for own in pooled)
    mine, theirs = by_unit(influences)
    apart = np.sort(mine - theirs) / 2  # a difference between -1 and 1, brought to 0..1 as an AUC is
    variance, third = few * float(np.sum(apart**2)), float(np.sum(apart**3))
    middle, ends = (1 + found.value) / 2, ((1 + found.low) / 2, (1 + found.high) / 2)
    low, high = widened(ends, rare_ends(middle, variance, third, one, alpha))
    return replace(found, low=2 * low - 1, high=2 * high - 1)


def _same_scores(first: Sequence[Block], second: Sequence[Block]) -> bool:
    """Has every record the same score on both sides?"""
    scores = [([(b.members, b.evaluation, b.calibration) for b in blocks], blocks) for blocks in (first, second)]
    return bool(np.array_equal(*by_unit(scores)))


def tpr_difference(first: Sequence[Block], second: Sequence[Block], fpr: float, confidence: float = 0.95) -> Estimate:
    """The first TPR at an FPR minus the second."""
    pair = tpr_at_fpr(first, fpr, confidence), tpr_at_fpr(second, fpr, confidence)
    return difference(pair, [(tpr_influence(first, fpr), first), (tpr_influence(second, fpr), second)])


def difference(pair: tuple[Estimate, Estimate], influences: Sequence[tuple[Influence, Sequence[Block]]]) -> Estimate:
    """The first estimate minus the second, from both intervals and what each record adds to either."""
    one, two = pair
    name, counts = f"{one.name}-difference", (min(one.n_pos, two.n_pos), min(one.n_neg, two.n_neg))
    together = correlation(influences)
    method = (
        f"difference on the same records; the two intervals combined at the correlation {together:.3f} of their errors "
        f"(MOVER) of: {one.method}"
    )
    ends = (one.value, one.low, one.high, two.value, two.low, two.high)
    if any(end is None for end in ends):
        reason = one.reason or two.reason
        return Estimate(name, None, None, None, one.confidence, method, "measured", *counts, reason=reason)
    a, a_low, a_high, b, b_low, b_high = (float(end) for end in ends if end is not None)
    low, high = ends_of_difference((a, a_low, a_high), (b, b_low, b_high), together)
    return Estimate(name, a - b, low, high, one.confidence, method, "measured", *counts)


Ends = tuple[float, float, float]  # value, low, high


def ends_of_difference(one: Ends, two: Ends, together: float) -> tuple[float, float]:
    """The interval of the first minus the second, whose errors have the correlation `together`."""
    (a, a_low, a_high), (b, b_low, b_high) = one, two
    unlike = together * ((a_high - a_low) - (b_high - b_low)) ** 2 / 4
    low = a - b - math.sqrt(max((1 - together) * ((a - a_low) ** 2 + (b_high - b) ** 2) + unlike, 0.0))
    high = a - b + math.sqrt(max((1 - together) * ((a_high - a) ** 2 + (b - b_low) ** 2) + unlike, 0.0))
    return max(low, -1.0), min(high, 1.0)


def correlation(influences: Sequence[tuple[Influence, Sequence[Block]]]) -> float:
    """How two estimates err together; 0 where one of them does not vary."""
    one, two = by_unit(influences)
    size = math.sqrt(float(one @ one) * float(two @ two))
    return float(np.clip(one @ two / size, -1.0, 1.0)) if size > 0 else 0.0
