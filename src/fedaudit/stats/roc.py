"""How many members are accused when few outsiders are: TPR at a calibrated false-positive rate.

With r = floor(fpr (n + 1)) and n calibration scores, a score is accused when fewer than r of them are ahead of it; ties
are broken as an adversary with a coin would, so that a tied score is accused in part. Where subjects are known, counts
enter exact intervals divided by the design effect.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedaudit.stats.blocks import Block, Numbers, design_effect, fewest, numbered, too_few
from fedaudit.stats.intervals import clopper_pearson, quantile_ranks
from fedaudit.stats.ranking import BY_SUBJECT
from fedaudit.types import Curve, Estimate

_TPR = "threshold on calibration non-members; order statistic + Clopper-Pearson"


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
    return _tpr(blocks, _whose(blocks), fpr, confidence)


@dataclass(frozen=True)
class _Whose:
    """The subjects of members and of evaluation non-members, each numbered through all blocks."""

    members: Numbers
    evaluation: Numbers
    people: int | None  # subjects in the smaller of members and any calibration set; None: all records independent


def _whose(blocks: Sequence[Block]) -> _Whose:
    members = numbered([None if b.subjects is None else b.subjects[0] for b in blocks])
    evaluation = numbered([None if b.subjects is None else b.subjects[1] for b in blocks])
    several = [b.calibration_numbers for b in blocks if b.of_several and b.calibration_numbers is not None]
    everybody = [np.concatenate([own for own in members if own is not None])] if several else []
    return _Whose(members, evaluation, fewest([*everybody, *several]))


def _tpr(blocks: Sequence[Block], whose: _Whose, fpr: float, confidence: float) -> Estimate:
    n_pos, n_neg = sum(len(b.members) for b in blocks), sum(len(b.evaluation) for b in blocks)
    n_cal = sum(len(b.calibration) for b in blocks)
    smallest = min((len(b.calibration) for b in blocks), default=0)
    method = _TPR + BY_SUBJECT * any(b.subjects is not None for b in blocks)
    name = f"tpr@{fpr:g}"
    missing = needed_for_value(fpr) - smallest
    reason = too_few(whose.people)
    if n_pos == 0:
        reason = "no members"
    elif missing > 0:
        needy = "every party" if len(blocks) > 1 else "the calibration set"
        reason = (
            f"needs {missing} more calibration non-members: {needy} must have {needed_for_value(fpr)}, "
            f"the smallest has {smallest}"
        )
    if reason:
        return Estimate(name, None, None, None, confidence, method, "measured", n_pos, n_neg, n_cal, reason=reason)
    alpha = (1 - confidence) / 4
    cuts = [_cuts(block, fpr, alpha / len(blocks)) for block in blocks]
    accused = [block.accused(block.members, cut.rank) for block, cut in zip(blocks, cuts, strict=True)]
    spread = design_effect(accused, whose.members)

    def hits(rank: str) -> float:
        return sum(float(b.hits(np.array([getattr(c, rank)]))[0]) for b, c in zip(blocks, cuts, strict=True))

    wrongly = [block.accused(block.evaluation, cut.rank) for block, cut in zip(blocks, cuts, strict=True)]
    wrongly_spread = design_effect(wrongly, whose.evaluation)
    false_hits = sum(block.accusations(block.evaluation, cut.rank) for block, cut in zip(blocks, cuts, strict=True))
    realised = clopper_pearson(false_hits / wrongly_spread, n_neg / wrongly_spread, 2 * alpha, 2 * alpha)
    return Estimate(
        name,
        hits("rank") / n_pos,
        clopper_pearson(hits("highest") / spread, n_pos / spread, alpha, alpha)[0],
        clopper_pearson(hits("lowest") / spread, n_pos / spread, alpha, alpha)[1],
        confidence,
        method,
        "measured",
        n_pos,
        n_neg,
        n_cal,
        threshold=float(blocks[0].descending[cuts[0].rank]) if len(cuts) == 1 else None,
        realised_fpr=false_hits / n_neg if n_neg else None,
        realised_fpr_interval=realised if n_neg else None,
        reason=_why_no_lower_end(blocks, cuts, needed_for_lower_end(fpr, confidence, len(blocks))),
    )


@dataclass(frozen=True)
class _Cuts:
    """The rank of the threshold in use, and the two between which the true quantile lies."""

    rank: int
    highest: int
    lowest: int
    spread: float  # design effect of the calibration scores


def threshold_rank(n: int, fpr: float) -> int:
    """Fewer than so many of n calibration scores may be ahead of an accused one: the expected FPR is at most `fpr`."""
    return math.floor(fpr * (n + 1) + 1e-9)


def _cuts(block: Block, fpr: float, alpha: float) -> _Cuts:
    n = len(block.calibration)
    rank, spread = threshold_rank(n, fpr), 1.0
    if block.calibration_numbers is not None:
        # So few scores lie beyond a small FPR that their clustering is also judged where there are more.
        looser = math.ceil(max(fpr, 0.1) * n)
        accused = (block.accused(block.calibration, at) for at in (rank, looser))
        spread = max(design_effect([weights], [block.calibration_numbers]) for weights in accused)
    above, below = quantile_ranks(int(n / spread), fpr, alpha)
    return _Cuts(rank, math.floor(above * spread), min(math.ceil(below * spread), n + 1), spread)


def tied_share(blocks: Sequence[Block], fpr: float) -> float:
    """The share of members and calibration scores that equal their threshold, so that coins decide about them.

    More than a few per cent tell of a score that saturates or takes few values.
    """
    tied = of = 0
    for block in blocks:
        threshold = block.descending[threshold_rank(len(block.calibration), fpr)]
        tied += sum(int(np.count_nonzero(scores == threshold)) for scores in (block.members, block.calibration))
        of += len(block.members) + len(block.calibration)
    return tied / of if of else 0.0


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
    whose = _whose(blocks)
    found = [(float(rate), _tpr(blocks, whose, float(rate), confidence)) for rate in rates]
    kept = [(rate, e) for rate, e in found if e.value is not None]
    return Curve(
        [rate for rate, _ in kept],
        [e.value for _, e in kept],
        [e.low for _, e in kept],
        [e.high for _, e in kept],
        f"pointwise {confidence:.0%}: {kept[0][1].method if kept else _TPR}",
    )
