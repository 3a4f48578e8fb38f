"""How many members are accused when few outsiders are: TPR at a calibrated false-positive rate.

With r = floor(fpr (n + 1)) and n calibration scores, a score is accused when fewer than r of them are ahead of it; ties
are broken as an adversary with a coin would, so that a tied score is accused in part. Where subjects are known, counts
and ranks enter the intervals divided by design effects.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from fedaudit.stats.blocks import Block, Numbers, design_effect, effective_subjects, lowest, numbered, too_few
from fedaudit.stats.calibration import Ranked, judged, needed_for_value, ranked
from fedaudit.stats.fiducial import fiducial_ends
from fedaudit.stats.guaranteed import guaranteed_ends
from fedaudit.stats.intervals import few_subjects_factor
from fedaudit.stats.proportions import BY_SUBJECT, proportion
from fedaudit.types import Curve, Estimate

_TPR = "threshold on calibration non-members; its binomial rank mixed with the Beta of the members' count"
_MOST_MISSING = 10_000_000
_SEVERAL = ", summed over {} thresholds (generalised interval)"


def tpr_at_fpr(blocks: Sequence[Block], fpr: float, confidence: float = 0.95, prove: bool = True) -> Estimate:
    """Share of members accused when at most `fpr` of outsiders are, with thresholds set on calibration scores.

    The interval is for the TPR at a *true* FPR of `fpr` (see `fiducial`). Unless `prove` is False, the estimate also
    has ends that hold for every distribution of the scores (see `guaranteed`). With several blocks, each has a
    threshold of its own, and the counts are summed.
    """
    return _tpr(blocks, _whose(blocks), fpr, confidence, prove)


@dataclass(frozen=True)
class _Whose:
    """The subjects of members and of evaluation non-members, each numbered through all blocks."""

    members: Numbers
    evaluation: Numbers
    people: float | None  # effective subjects in the smallest of members and calibration sets; None: all independent


def _whose(blocks: Sequence[Block]) -> _Whose:
    members = numbered([b.subjects[0] if b.subjects and b.of_several else None for b in blocks])
    evaluation = numbered([b.subjects[1] if b.subjects and b.of_several else None for b in blocks])
    several = [b.calibration_numbers for b in blocks if b.of_several and b.calibration_numbers is not None]
    everybody = [np.concatenate([own for own in members if own is not None])] if several else []
    return _Whose(members, evaluation, effective_subjects([*everybody, *several]))


def _tpr(blocks: Sequence[Block], whose: _Whose, fpr: float, confidence: float, prove: bool) -> Estimate:
    n_pos, n_neg = sum(len(b.members) for b in blocks), sum(len(b.evaluation) for b in blocks)
    n_cal = sum(len(b.calibration) for b in blocks)
    method = _TPR + _SEVERAL.format(len(blocks)) * (len(blocks) > 1)
    method += BY_SUBJECT * any(b.subjects is not None for b in blocks)
    parts = [ranked(block, fpr) for block in blocks]
    name, reason = f"tpr@{fpr:g}", _why_no_value(parts, whose, fpr)
    if reason:
        return Estimate(name, None, None, None, confidence, method, "measured", n_pos, n_neg, n_cal, reason=reason)
    alpha = 1 - confidence
    spread = _members_spread(parts, whose.members, alpha)
    low, high = fiducial_ends(parts, n_pos, spread, alpha)
    proved = guaranteed_ends(parts, n_pos, spread, alpha) if prove else None
    realised, around = _realised_fpr(parts, whose.evaluation, confidence)
    return Estimate(
        name,
        sum(part.block.accusations(part.block.members, part.rank) for part in parts) / n_pos,
        low,
        high,
        confidence,
        method,
        "measured",
        n_pos,
        n_neg,
        n_cal,
        threshold=float(blocks[0].descending[parts[0].rank]) if len(parts) == 1 else None,
        realised_fpr=realised,
        realised_fpr_interval=around,
        reason=_why_no_lower_end(parts, alpha) if low <= 0 else None,
        guaranteed=(min(low, proved[0]), max(high, proved[1])) if proved else None,
    )


def _why_no_value(parts: Sequence[Ranked], whose: _Whose, fpr: float) -> str | None:
    if not any(len(part.block.members) for part in parts):
        return "no members"
    wanted = needed_for_value(fpr)
    neediest = max(parts, key=lambda part: wanted * part.spread - part.size)
    missing = math.ceil(wanted * neediest.spread - 1e-9) - neediest.size
    if missing > 0:
        needy = "every party" if len(parts) > 1 else "the calibration set"
        worth = f", which are worth {neediest.effective} independent ones" if neediest.spread > 1 else ""
        return (
            f"needs {missing} more calibration non-members: {needy} must have {wanted}, the smallest has "
            f"{neediest.size}{worth}"
        )
    return too_few(whose.people)


def _members_spread(parts: Sequence[Ranked], numbers: Numbers, alpha: float) -> float:
    """The design effect of the hits. Where there are too few hits or misses to judge how they cluster, it is also
    computed on enough of the highest or lowest members, and the larger value counts."""
    if all(own is None for own in numbers):
        return 1.0
    members = [part.block.members for part in parts]
    total = sum(map(len, members))
    hits = sum(part.block.accusations(own, part.rank) for part, own in zip(parts, members, strict=True))
    spread = design_effect([part.block.accused(part.block.members, part.rank) for part in parts], numbers)
    everybody = np.concatenate([own for own in numbers if own is not None])
    share = min(judged(everybody) / total, 0.5)
    if min(hits, total - hits) < share * total:
        rare = [lowest(-own if hits < total / 2 else own, share) for own in members]
        spread = max(spread, design_effect(rare, numbers))
    return spread * few_subjects_factor(effective_subjects([everybody]), alpha)


def _realised_fpr(
    parts: Sequence[Ranked], evaluation: Numbers, confidence: float
) -> tuple[float | None, tuple[float, float] | None]:
    """The share of evaluation non-members that are accused, with its own interval."""
    found = proportion([p.block.accused(p.block.evaluation, p.rank) for p in parts], evaluation, confidence)
    if found.low is None or found.high is None:
        return None, None
    return found.value, (found.low, found.high)


def _why_no_lower_end(parts: Sequence[Ranked], alpha: float) -> str | None:
    """How many more calibration non-members a lower end above 0 needs, if members and non-members keep their places
    relative to each other. None if no number suffices, because the members are not above the outsiders."""

    def chance_of_none(more: int) -> float:
        """The chance that all the true thresholds lie above every member."""
        chance = 1.0
        for part in parts:
            size = part.size + more
            ahead = (part.first_hit() - 1) * size / part.size  # calibration scores above the highest member
            chance *= float(special.bdtr(math.floor(ahead / part.spread), int(size / part.spread), part.fpr))
        return chance

    most = 1
    while chance_of_none(most) >= alpha / 2:
        most *= 2
        if most > _MOST_MISSING:
            return None
    missing = max(1, bisect.bisect_left(range(most), True, key=lambda more: chance_of_none(more) < alpha / 2))
    where = " in every party" if len(parts) > 1 else ""
    return f"the lower end is 0 until there are {missing} more calibration non-members{where}"


def roc_curve(blocks: Sequence[Block], points: int = 40, confidence: float = 0.95) -> Curve:
    """TPR against FPR at log-spaced rates, each as `tpr_at_fpr` reports it, down to what can be calibrated."""
    smallest = min((len(b.calibration) for b in blocks), default=0)
    if smallest < 2:
        return Curve([], [], [], [], _TPR)
    rates = np.geomspace(max(1.0 / smallest, 1e-4), 0.99, points)
    whose = _whose(blocks)
    found = [(float(rate), _tpr(blocks, whose, float(rate), confidence, prove=False)) for rate in rates]
    kept = [(rate, e) for rate, e in found if e.value is not None]
    return Curve(
        [rate for rate, _ in kept],
        [e.value for _, e in kept],
        [e.low for _, e in kept],
        [e.high for _, e in kept],
        f"pointwise {confidence:.0%}: {kept[0][1].method if kept else _TPR}",
    )
