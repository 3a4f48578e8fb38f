"""How many members are accused when few outsiders are: TPR at a calibrated false-positive rate.

With r = fpr (n + 1) and n calibration scores, a score is accused when fewer than r of them are ahead of it. A coin
decides about the fraction of r, as it does about ties: such a score is accused in part. So outsiders are accused as
often as was asked however few calibration scores a party has, and small parties keep their place in a pooled figure.
Where subjects are known, ranks and counts are divided by design effects: the threshold is stricter, and the intervals
are wider.
"""

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import special

from fedaudit.stats.blocks import (
    Block,
    Numbers,
    Ranked,
    calibrated,
    design_effect,
    effective_subjects,
    judged,
    lowest,
    needed_for_value,
    numbered,
    ranked,
    records_of_one,
    too_few,
)
from fedaudit.stats.intervals import BY_SUBJECT, clopper_pearson, few_subjects_factor, proportion, quantile_ranks
from fedaudit.stats.ranking import auc
from fedaudit.types import MOST_NAMED, Curve, Doubt, Estimate, Floats, Ints, Missing, Why

_TPR = "threshold on calibration non-members; its binomial rank mixed with the Beta of the members' count"
_MOST_MISSING = 10_000_000
_UNLIKELY = 1e-6  # a chance this small is not chance: one audit asks hundreds of times
_SEVERAL = ", summed over {} thresholds (generalised interval)"
POINTS = 40  # of a ROC curve


def tpr_at_fpr(blocks: Sequence[Block], fpr: float, confidence: float = 0.95, prove: bool = True) -> Estimate:
    """Share of members accused when at most `fpr` of outsiders are, with thresholds set on calibration scores.

    The interval is for the TPR at a *true* FPR of `fpr` (see `fiducial_ends`). Unless `prove` is False, the estimate
    also has ends that hold for every distribution of the scores (see `guaranteed_ends`). With several blocks, each
    has a threshold of its own, and the counts are summed. A block without calibration scores is left out. Where all of
    them together have fewer than 1 / fpr independent ones there is no value, because it could not show a leak however
    large: with 30 of them at 1 %, at most 31 % of the members would be accused.

    Where far more outsiders are accused than was asked, there is no value. Where far fewer are, the value and the lower
    ends are too low at most, and stay; the upper ends are 1. Either is its `doubt`.
    """
    kept = calibrated(blocks) or blocks
    return _tpr(kept, _whose(kept), fpr, confidence, prove)


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
    parts = [ranked(block, fpr) for block in blocks]
    n_cal, method = sum(len(b.calibration) for b in blocks), _method(blocks)
    name, reason = f"tpr@{fpr:g}", _why_no_value(parts, whose, fpr)
    if reason:
        return Estimate(
            name, None, None, None, confidence, method, "measured", n_pos, n_neg, n_cal=n_cal, reason=reason
        )
    alpha = 1 - confidence
    realised, around = _realised_fpr(parts, whose.evaluation, confidence)
    missed = _missed(parts, whose.evaluation)
    if missed is not None and missed.doubt == "more":
        return Estimate(
            name, None, None, None, confidence, method, "measured", n_pos, n_neg, n_cal=n_cal, reason=missed.why,
            realised_fpr=realised, realised_fpr_interval=around, doubt=missed.doubt,
        )  # fmt: skip
    spread = _members_spread(parts, whose.members, alpha)
    low, high = fiducial_ends(parts, n_pos, spread, alpha)
    proved = guaranteed_ends(parts, n_pos, _by_people(spread, whose.members), alpha) if prove else None
    reason = _why_no_lower_end(parts, alpha) if low <= 0 else _why_not_more(parts)
    return Estimate(
        name,
        _accused(parts) / n_pos,
        low,
        1.0 if missed else high,
        confidence,
        method,
        "measured",
        n_pos,
        n_neg,
        n_cal=n_cal,
        threshold=parts[0].threshold if len(parts) == 1 else None,
        realised_fpr=realised,
        realised_fpr_interval=around,
        reason=missed.why if missed else reason,
        guaranteed=(min(low, proved[0]), 1.0 if missed else max(high, proved[1])) if proved else None,
        doubt=missed.doubt if missed else None,
    )


def _method(blocks: Sequence[Block]) -> str:
    several = _SEVERAL.format(len(blocks)) * (len(blocks) > 1)
    return _TPR + several + BY_SUBJECT * any(b.subjects is not None for b in blocks)


def _why_not_more(parts: Sequence[Ranked]) -> str | None:
    """What a reader of the value must know where small parties accuse nobody for certain."""
    small = sum(not part.certain for part in parts)
    total = sum(len(part.block.members) for part in parts)
    if not small or not total:
        return None
    most = sum(part.most * len(part.block.members) for part in parts) / total
    few = f"{small} of {len(parts)} parties have" if len(parts) > 1 else "there are"
    return f"{few} too few calibration non-members to accuse anybody for certain, so the value cannot exceed {most:.3g}"


def _accused(parts: Sequence[Ranked]) -> float:
    """How many members are; one may be in part."""
    return sum(part.accusations(part.block.members) for part in parts)


def _why_no_value(parts: Sequence[Ranked], whose: _Whose, fpr: float) -> str | None:
    if not any(len(part.block.members) for part in parts):
        return "no members"
    wanted, size = needed_for_value(fpr), sum(part.size for part in parts)
    independent = sum(part.size / part.spread for part in parts)
    missing = math.ceil(wanted * (size / independent if size else 1.0) - 1e-9) - size
    if missing > 0:
        together = " in all parties together" if len(parts) > 1 else ""
        worth = f", which are worth {int(independent)} independent ones" if independent < size else ""
        return (
            f"needs {missing} more calibration non-members: there must be {wanted}{together}, and there are "
            f"{size}{worth}"
        )
    return too_few(whose.people)


def _members_spread(parts: Sequence[Ranked], numbers: Numbers, alpha: float) -> float:
    """The design effect of the hits. Where there are too few hits or misses to judge how they cluster, it is also
    computed on enough of the highest or lowest members, and the larger value counts."""
    if all(own is None for own in numbers):
        return 1.0
    members = [part.block.members for part in parts]
    total = sum(map(len, members))
    hits = _accused(parts)
    spread = design_effect([part.accused(own) for part, own in zip(parts, members, strict=True)], numbers)
    everybody = np.concatenate([own for own in numbers if own is not None])
    share = min(judged(everybody) / total, 0.5)
    if min(hits, total - hits) < share * total:
        rare = [lowest(-own if hits < total / 2 else own, share) for own in members]
        spread = max(spread, design_effect(rare, numbers))
    return spread * few_subjects_factor(effective_subjects([everybody]), alpha)


def _by_people(spread: float, numbers: Numbers) -> float:
    """The same, but not less than if all records of a person were hit together (see `guaranteed_ends`)."""
    known = [own for own in numbers if own is not None]
    return max(spread, records_of_one(np.concatenate(known))) if known else spread


def _realised_fpr(
    parts: Sequence[Ranked], evaluation: Numbers, confidence: float
) -> tuple[float | None, tuple[float, float] | None]:
    """The share of evaluation non-members that are accused, with its own interval."""
    found = proportion([part.accused(part.block.evaluation) for part in parts], evaluation, confidence)
    if found.low is None or found.high is None:
        return None, None
    return found.value, (found.low, found.high)


@dataclass(frozen=True)
class _Missed:
    """The rate that was asked, where thresholds accuse far more outsiders or far fewer. `parts`: how many of several
    do, where all together do not."""

    fpr: float
    realised: float
    parts: str = ""

    @property
    def doubt(self) -> Doubt:
        """Where few are accused, a share that is picked out is one at a smaller rate: at most too low."""
        return "fewer" if self.realised < self.fpr else "more"

    @property
    def why(self) -> str:
        """Of an estimate: why it has no value, or no upper end."""
        told = (
            f"{self.realised:.3g} of the outsiders{self.parts} are accused where {self.fpr:g} was asked: the records "
            "that set the threshold are not like those that are reported on"
        )
        return told if self.doubt == "more" else f"{told}, and more may be picked out at the rate that was asked"


def _missed(parts: Sequence[Ranked], evaluation: Numbers) -> _Missed | None:
    """Do thresholds come from records unlike those that are reported on, from elsewhere for example?

    Those of some parts may, while all together accuse about as many as was asked. Where a part accuses too few, more
    may be picked out there."""
    together = _unlikely(parts, evaluation, _UNLIKELY)
    if together is not None or len(parts) == 1:
        return together
    few = []
    for part, own in zip(parts, evaluation, strict=True):
        missed = _unlikely([part], [own], _UNLIKELY / len(parts))
        few += [part] if missed is not None and missed.doubt == "fewer" else []
    return _Missed(few[0].fpr, _realised(few), f" in {len(few)} of {len(parts)} parties") if few else None


def _unlikely(parts: Sequence[Ranked], evaluation: Numbers, level: float) -> _Missed | None:
    """The rate of these parts together, if it is at most half or at least double what was asked, and by chance less
    often than `level`.

    The true FPR of a threshold at rank r = fpr (n + 1) of n is taken for Beta(r, n - r + 1), which is right for whole
    ranks and has the longer tails for others; that of several is a Beta with the mean and the variance of their
    weighted sum. The number of accused is then beta-binomial."""
    fpr, judged_by = parts[0].fpr, [len(part.block.evaluation) for part in parts]
    if not sum(judged_by):
        return None
    realised = _realised(parts)
    if fpr / 2 <= realised <= 2 * fpr:
        return None
    accused = [part.accused(part.block.evaluation) for part in parts]
    spread = max(design_effect(accused, evaluation), *(part.spread for part in parts))
    weight = np.array(judged_by) / sum(judged_by)
    size = np.array([part.size for part in parts]) / spread
    variance = float(weight**2 @ (fpr * (1 - fpr) / (size + 2)))
    strength = fpr * (1 - fpr) / variance - 1
    a, b, outsiders = fpr * strength, (1 - fpr) * strength, round(sum(judged_by) / spread)
    count = realised * sum(judged_by) / spread
    spared = outsiders - math.floor(count)
    chance = _at_most(math.ceil(count), outsiders, a, b) if realised < fpr else _at_most(spared, outsiders, b, a)
    return _Missed(fpr, realised) if chance < level else None


def _realised(parts: Sequence[Ranked]) -> float:
    """The share of outsiders that is accused; one may be in part."""
    accused = sum(part.accusations(part.block.evaluation) for part in parts)
    return accused / sum(len(part.block.evaluation) for part in parts)


def _at_most(count: int, of: int, a: float, b: float) -> float:
    """The chance of a beta-binomial count up to this one."""
    each = np.arange(min(count, of) + 1)
    chances = special.betaln(each + a, of - each + b) - special.betaln(a, b) - special.betaln(of - each + 1, each + 1)
    return float(np.exp(chances - math.log(of + 1)).sum())


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


def roc_curve(blocks: Sequence[Block], confidence: float = 0.95) -> Curve:
    """TPR against FPR at log-spaced rates, each as `tpr_at_fpr` reports it, down to what can be calibrated."""
    blocks = calibrated(blocks)
    together = sum(len(b.calibration) for b in blocks)
    if together < 2:
        return Curve([], [], [], [], _TPR)
    whose, n_pos, alpha = _whose(blocks), sum(len(b.members) for b in blocks), 1 - confidence
    found: list[tuple[float, float | None, float | None, float | None]] = []
    for rate in np.geomspace(max(1.0 / together, 1e-4), 0.99, POINTS).tolist():
        parts = [ranked(block, rate) for block in blocks]
        if _why_no_value(parts, whose, rate) is not None:
            continue
        missed = _missed(parts, whose.evaluation)
        if missed is not None and missed.doubt == "more":
            found.append((rate, None, None, None))
            continue
        low, high = fiducial_ends(parts, n_pos, _members_spread(parts, whose.members, alpha), alpha)
        found.append((rate, _accused(parts) / n_pos, low, 1.0 if missed else high))
    rates, values, lows, highs = (list(column) for column in zip(*found, strict=True)) if found else ([], [], [], [])
    return Curve(rates, values, lows, highs, f"pointwise {confidence:.0%}: {_method(blocks) if found else _TPR}")


# ---------------------- the interval: hits when the rank of the true threshold is not known

# How many of n independent calibration scores lie above the true (1 - fpr) quantile is binomial, whatever their
# distribution is: K ~ Bin(n, fpr), independently in every party. So the number of members above the true quantile is at
# least the hits at rank K and at most those at rank K + 1. Summed over the parties and mixed with the Beta distribution
# that belongs to a count (Clopper-Pearson's), this gives a distribution of the TPR, and its quantiles are the ends of
# the interval. Nothing is drawn at random.
#
# This is a generalised (fiducial) interval, not a proved one. For several parties it relies on their errors to average
# out, which they do where the ROC curve is smooth at the FPR. Even for one party it misses too often where the ROC
# curve has a corner at the FPR (7.8 % at nominal 5 % in `docs/coverage.md`). The guaranteed ends do not.


TAIL = 1e-8  # of a binomial distribution, cut off at either end
_FINENESS = 4  # cells in one standard deviation of the members' own count


def fiducial_ends(parts: Sequence[Ranked], total: float, spread: float, alpha: float) -> tuple[float, float]:
    """The lower and the upper end, each missed by alpha / 2; `spread` is the design effect of the members' count."""
    low, high = _sum_of_hits(parts, Ranked.at_least, spread, -1), _sum_of_hits(parts, Ranked.at_most, spread, 1)
    return lower_end(low, total / spread, alpha / 2), upper_end(high, total / spread, alpha / 2)


@lru_cache(maxsize=4096)  # every attack asks about the same calibration sets
def rank_chances(n: int, fpr: float) -> tuple[Ints, Floats]:
    """How many of n calibration scores may lie above the true quantile, and the chance of each number."""
    first, last = (float(special.bdtrik(tail, n, fpr)) for tail in (TAIL, 1 - TAIL))
    ranks = np.arange(int(first) if math.isfinite(first) else 0, min(math.ceil(last) + 1, n) + 1)
    logarithms = special.gammaln(n + 1) - special.gammaln(ranks + 1) - special.gammaln(n - ranks + 1)
    logarithms += special.xlogy(ranks, fpr) + special.xlog1py(n - ranks, -fpr)
    chances = np.exp(logarithms)
    return ranks, chances / chances.sum()


@dataclass(frozen=True)
class Spread:
    """Values and the chance of each."""

    values: Floats
    chances: Floats


def _sum_of_hits(parts: Sequence[Ranked], hits: Callable[[Ranked, Ints], Floats], spread: float, side: int) -> Spread:
    """The distribution of the hits of all parties together. Where the hits are not linear in the rank, averaging over
    the rank shifts their mean. The shift is small in one party but adds up over many, so the sum is shifted back where
    that makes the interval wider."""
    found, moved = [], 0.0
    for part in parts:
        ranks, chances = rank_chances(part.effective, part.fpr)
        values = hits(part, ranks)
        found.append(Spread(values, chances))
        moved += float(np.interp(part.effective * part.fpr, ranks, values) - chances @ values)
    total = sum(len(part.block.members) for part in parts)
    back = side * max(side * moved, 0.0) if len(parts) > 1 else 0.0
    together = summed(found)
    return Spread(np.clip(together.values + back, 0.0, total) / spread, together.chances)


def summed(parts: Sequence[Spread]) -> Spread:
    """The distribution of a sum of independent values: chances on one lattice, multiplied in the Fourier domain.

    Counts keep their own lattice. Where it has to be coarser, a value is shared between its neighbours, which keeps
    the mean.
    """
    if len(parts) == 1:
        return parts[0]
    lows = [float(part.values.min()) for part in parts]
    reach = sum(float(part.values.max()) for part in parts) - sum(lows)
    most = max(2000, 64 * len(parts))
    whole = all(np.array_equal(part.values, np.rint(part.values)) for part in parts)
    step = 1.0 if whole and reach < most else max(reach / most, 1e-12)
    size = 1 << int(reach / step + len(parts) + 1).bit_length()  # rounded up in every part
    product = np.ones(size // 2 + 1, complex)
    for part, low in zip(parts, lows, strict=True):
        place = (part.values - low) / step
        cell = np.floor(place).astype(np.int64)
        onwards = part.chances * (place - cell)
        product *= np.fft.rfft(np.bincount(cell, part.chances - onwards, size) + np.bincount(cell + 1, onwards, size))
    chances = np.fft.irfft(product, size)
    kept = np.flatnonzero(chances > 1e-12)
    return Spread(np.asarray(sum(lows) + step * kept, np.float64), chances[kept] / chances[kept].sum())


def lower_end(hits: Spread, total: float, alpha: float) -> float:
    """The alpha quantile of Beta(hits, total - hits + 1), mixed over the hits; no hits at all give 0."""
    if float(hits.chances[hits.values <= 0].sum()) >= alpha:
        return 0.0
    hits = _thinned(hits, total)
    a, b = np.maximum(hits.values, 1e-9), np.maximum(total - hits.values, 0.0) + 1

    def below(p: float) -> tuple[float, float]:
        """The chance of less than p, and its derivative."""
        density = np.exp((a - 1) * math.log(p) + (b - 1) * math.log1p(-p) - special.betaln(a, b))
        return float(hits.chances @ special.betainc(a, b, p)), float(hits.chances @ density)

    return _solve(below, alpha, _start(hits.chances, a, b, alpha))


def upper_end(hits: Spread, total: float, alpha: float) -> float:
    """The 1 - alpha quantile of Beta(hits + 1, total - hits), mixed over the hits; nothing but hits gives 1."""
    return 1 - lower_end(Spread(total - hits.values, hits.chances), total, alpha)


def _thinned(hits: Spread, total: float) -> Spread:
    """Joins neighbouring values that are so close together that the members' own count varies several times as much."""
    share = np.clip(hits.values / total, 0.0, 1.0)
    cell = (2 * _FINENESS * math.sqrt(total) * np.arcsin(np.sqrt(share))).astype(np.int64) + (hits.values > 0)
    chances = np.asarray(np.bincount(cell, hits.chances), np.float64)
    kept = np.flatnonzero(chances > 1e-10)
    return Spread(np.bincount(cell, hits.chances * hits.values)[kept] / chances[kept], chances[kept])


def _start(chances: Floats, a: Floats, b: Floats, alpha: float) -> float:
    """The quantile of the Beta distribution that has the mixture's mean and variance."""
    means = a / (a + b)
    mean = float(chances @ means)
    variance = float(chances @ (means * (1 - means) / (a + b + 1) + (means - mean) ** 2))
    size = max(mean * (1 - mean) / variance - 1, 1e-3)
    return float(special.betaincinv(mean * size, (1 - mean) * size, alpha))


def _solve(below: Callable[[float], tuple[float, float]], alpha: float, start: float) -> float:
    """Newton's method within a bracket, which bisection narrows where it must."""
    low, high, p = 0.0, 1.0, min(max(start, 1e-300), 1 - 1e-12)
    for _ in range(200):
        chance, density = below(p)
        low, high = (p, high) if chance < alpha else (low, p)
        step = (chance - alpha) / density if density > 0 else math.inf
        if abs(step) < 1e-13 + 1e-11 * p or high - low < 1e-14:
            return p
        p = p - step if low < p - step < high else (low + high) / 2
    return p


# ---------------------- ends that are proved for every distribution of independent scores

# Where several records belong to one person, people are the units: counts and ranks are divided by the number of
# records that the person of a record has on average, or by the measured design effect if that is larger. People whose
# records are all extreme may not be among those who set the threshold, and then no measurement tells how records
# cluster there. A sum over people is spread most widely if all records of a person are hit together (Hoeffding's convex
# order). Where people differ in how many records they have, these ends are simulated in docs/coverage.md, not proved.
#
# Half of the error goes to the ranks of the thresholds, half to the members' count (Clopper-Pearson; a sum of binomials
# with different chances is never spread more widely than one binomial).
#
# For one party the rank is an order statistic of the calibration scores. For several, the numbers K of calibration
# scores above the true quantiles are independent and binomial, so a joint region of their values can be fixed before a
# score is seen. This region is used: the squares of the shortfalls, in standard deviations, add up to no more than a
# limit that is exceeded with probability alpha. Within it, the fewest hits are sought; there, the parties in which a
# low rank costs most use up most of the limit. A union bound would put all parties at their worst at once, which lies
# far outside the region.


_UNIT = 16  # lattice cells to one squared standard deviation


def guaranteed_ends(parts: Sequence[Ranked], total: float, spread: float, alpha: float) -> tuple[float, float]:
    """The lower and the upper end, each missed by at most alpha / 2; `spread`: design effect of the members' count."""
    share, parts = alpha / 4, [part.by_people() for part in parts]
    few, many = _fewest(parts, share), total - _fewest(parts, share, from_above=True)
    low, _ = clopper_pearson(few / spread, total / spread, share, share)
    _, high = clopper_pearson(many / spread, total / spread, share, share)
    return low, high


def _fewest(parts: Sequence[Ranked], alpha: float, from_above: bool = False) -> float:
    """Fewest hits within the region of ranks that is left with probability alpha at most; from above: fewest misses."""
    cut_off = len(parts) * TAIL  # ranks so far out that they are not looked at
    if len(parts) == 1 or alpha < 2 * cut_off:
        return sum(_alone(part, alpha / len(parts), from_above) for part in parts)
    alpha -= cut_off
    sides = [_side(part, need, from_above) for part, need in zip(parts, _needs(parts), strict=True)]
    limit = _UNIT * (len(parts) + 16)
    while True:
        outside, fewest = _within(sides, limit)
        if outside[-1] <= alpha:
            return float(fewest[int(np.argmax(outside <= alpha))])
        limit *= 2


def _alone(part: Ranked, alpha: float, from_above: bool) -> float:
    above, below = quantile_ranks(part.effective, part.fpr, alpha)
    if from_above:
        return len(part.block.members) - float(part.at_most(np.array([below - 1]))[0])
    return float(part.at_least(np.array([above]))[0])


def _needs(parts: Sequence[Ranked]) -> Floats:
    """How much a shortfall of one standard deviation is expected to cost in each party, by sizes alone; at most 1.

    Where it costs little it also uses up little of the limit.
    """
    costs = np.array([len(part.block.members) / math.sqrt(max(part.effective, 1)) for part in parts])
    return np.asarray(costs / costs.max()) if costs.max() > 0 else np.ones(len(parts))


def _side(part: Ranked, need: float, from_above: bool) -> tuple[Ints, Floats, Floats]:
    """For one party: what each rank uses up of the limit, its chance, and its hits (from above: its misses)."""
    ranks, chances = rank_chances(part.effective, part.fpr)
    mean = part.effective * part.fpr
    deviation = math.sqrt(mean * (1 - part.fpr)) or 1.0  # scores that are worth less than one have the rank 0
    shortfall = (ranks - mean if from_above else mean - ranks) / deviation
    uses = np.ceil(_UNIT * need * np.maximum(shortfall, 0.0) ** 2 - 1e-9).astype(np.int64)
    hits = len(part.block.members) - part.at_most(ranks) if from_above else part.at_least(ranks)
    levels, level = np.unique(uses, return_inverse=True)
    fewest = np.full(len(levels), np.inf)
    np.minimum.at(fewest, level, hits)
    return levels, np.asarray(np.bincount(level, chances), np.float64), fewest


def _within(sides: Sequence[tuple[Ints, Floats, Floats]], limit: int) -> tuple[Floats, Floats]:
    """For every limit up to this one: the chance that the parties together exceed it, and the fewest hits within."""
    chance = np.zeros(limit + 1)
    fewest = np.full(limit + 1, np.inf)
    chance[0], fewest[0] = 1.0, 0.0
    for levels, chances, hits in sides:
        together, least = np.zeros(limit + 1), np.full(limit + 1, np.inf)
        for level, weight, own in zip(levels.tolist(), chances.tolist(), hits.tolist(), strict=True):
            if level > limit:
                break
            rest = limit + 1 - level
            together[level:] += weight * chance[:rest]
            np.minimum(least[level:], fewest[:rest] + own, out=least[level:])
        chance, fewest = together, least
    return 1 - np.cumsum(chance), np.minimum.accumulate(fewest)


# ---------------------- pooled figures, and who is missing from them


@dataclass(frozen=True)
class Absent:
    """A party that a figure says nothing about, why, and how many members it has."""

    party: str
    why: Why
    members: int


def estimates(
    blocks: Sequence[Block], fprs: Sequence[float], confidence: float, absent: Sequence[Absent] = ()
) -> dict[str, Estimate]:
    """The AUC, and the TPR at each FPR, each with the parties that it says nothing about. `absent`: those that have no
    block at all."""
    found = [auc(blocks, confidence), *(tpr_at_fpr(blocks, fpr, confidence) for fpr in fprs)]
    return {one.name: replace(one, missing=missing_from(one.name, blocks, absent)) for one in found}


def missing_from(name: str, blocks: Sequence[Block], absent: Sequence[Absent] = ()) -> tuple[Missing, ...]:
    """Who is missing from the pooled figure of this name, by reason. An adversary among the parties has no records in
    its block: it is not judged."""
    judged = [block for block in blocks if len(block.members) + len(block.evaluation) + len(block.calibration)]
    of = len(judged) + len(absent)
    if of < 2:
        return ()
    gone = [*absent]
    for block in judged:
        sets = block.evaluation if name == "auc" else block.calibration
        lacking: Why = "no-evaluation" if name == "auc" else "no-calibration"
        if not len(block.members) or not len(sets):
            why = "no-members" if not len(block.members) else lacking
            gone.append(Absent(block.party, why, len(block.members)))
    found = []
    for why in dict.fromkeys(one.why for one in gone):
        own = [one for one in gone if one.why == why]
        named = tuple(one.party for one in own[:MOST_NAMED])
        found.append(Missing(why, named, len(own), of, sum(one.members for one in own)))
    return tuple(found)
