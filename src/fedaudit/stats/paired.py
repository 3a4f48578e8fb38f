"""One estimate minus another on the same records: attack against attack, defence against defence, round against round.

Whether two intervals overlap does not decide whether the estimates differ: both err on the same records, and mostly
in the same direction. The interval of a difference follows from the two intervals and from the correlation r of their
errors (Zou and Donner's MOVER), which follows from what each record, or each subject, adds to either estimate. If a and
b are their half-widths, that of the difference is the root of a^2 + b^2 - 2 r a b. Where the intervals are lopsided,
the term with r is computed from their mean half-widths, so that two estimates with identical errors differ by 0,
however lopsided their intervals are. Records are joined by id; what only one side has counts as independent.

Two AUCs that err on the same few records seem to have identical errors, although one more record may part them. So the
ends of an AUC's difference are also computed with one record added on which the two differ as much as can be (see
`rare_ends`). Only scores that are the same for every record have a difference of 0 for certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np

from fedaudit.errors import FedauditError
from fedaudit.stats.blocks import Block, Groups, Ranked, calibrated, numbered, ranked, too_few
from fedaudit.stats.intervals import few_subjects_factor, of_units, proportion
from fedaudit.stats.ranking import auc, parts_of, pool, pooled_auc, rare_ends, widened
from fedaudit.stats.roc import tpr_at_fpr
from fedaudit.stats.wording import DECISIONS, fpr_of
from fedaudit.types import Bools, Estimate, Floats, UnitErrors

STEADY = 10  # calibration scores above a threshold, from which on the bias of a TPR is small beside its error


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


def alike(first: Sequence[Block], second: Sequence[Block]) -> tuple[list[Block], list[Block]]:
    """The blocks of the parties that both sides have: two attacks on one federation are compared on the same parties,
    although one of them may not be fitted everywhere."""
    both = {block.party for block in first} & {block.party for block in second}
    one, two = ([block for block in side if block.party in both] for side in (first, second))
    return one, two


def difference(pair: tuple[Estimate, Estimate], influences: Sequence[tuple[Influence, Sequence[Block]]]) -> Estimate:
    """The first estimate minus the second, from both intervals and what each record adds to either. A doubted one is at
    another rate: no value."""
    one, two = pair
    name, counts = f"{one.name}-difference", (min(one.n_pos, two.n_pos), min(one.n_neg, two.n_neg))
    together = correlation(influences)
    method = (
        f"difference on the same records; the two intervals combined at the correlation {together:.3f} of their errors "
        f"(MOVER) of: {one.method}"
    )
    ends = (one.value, one.low, one.high, two.value, two.low, two.high)
    doubted = next((own for own in pair if own.doubt), None)
    if doubted or any(end is None for end in ends):
        reason = doubted.reason if doubted else one.reason or two.reason
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


# ------------------------------------------------------------------ what each record adds to an estimate's error

# An influence has the shape of its blocks: for each of them one array for members, evaluation and calibration in turn.
# Added up by subject (or record), the sum of squares is the estimate's variance, and the sum of products with another
# estimate's is their covariance.


Influence = list[tuple[Floats, Floats, Floats]]


def auc_influence(blocks: Sequence[Block]) -> Influence:
    """Blocks are weighted by their pairs; one without members or without evaluation records adds nothing."""
    usable = [block for block in blocks if len(block.members) and len(block.evaluation)]
    parts = dict(zip(map(id, usable), parts_of(usable), strict=True))
    pairs = sum(len(block.members) * len(block.evaluation) for block in usable)
    found: Influence = []
    for block in blocks:
        m, n = len(block.members), len(block.evaluation)
        own = parts[id(block)].influence * (m * n / pairs) if id(block) in parts else np.zeros(m + n)
        found.append((own[:m], own[m:], np.zeros(len(block.calibration))))
    return found


def tpr_influence(blocks: Sequence[Block], fpr: float) -> Influence:
    """A member adds whether it is hit; a calibration score above the threshold pushes it up, which costs hits. A block
    without calibration scores adds nothing."""
    total = sum(len(block.members) for block in calibrated(blocks))
    found: Influence = []
    for block in blocks:
        if not len(block.calibration):
            found.append((np.zeros(len(block.members)), np.zeros(len(block.evaluation)), np.zeros(0)))
            continue
        part = ranked(block, fpr)
        hit, ahead = part.accused(block.members), part.accused(block.calibration)
        step = max(round(math.sqrt(part.size * fpr * part.spread)), 1)  # the rank's own standard deviation
        low, high = max(math.floor(part.rank) - step, 0), min(math.ceil(part.rank) + step, part.size + 1)
        below, above = block.hits(np.array([low, high]))
        slope = (above - below) / (high - low)
        found.append((
            (hit - (hit.mean() if len(hit) else 0.0)) / max(total, 1),
            np.zeros(len(block.evaluation)),
            -slope * (ahead - (ahead.mean() if len(ahead) else 0.0)) / max(total, 1),
        ))  # fmt: skip
    return found


def by_unit(estimates: Sequence[tuple[Influence, Sequence[Block]]]) -> Floats:
    """Estimates x units: the influence of each subject, or of each record where subjects are not known, joined by
    name over all estimates. A unit that is not in an estimate adds 0 to it."""
    found = numbered([name for _, blocks in estimates for block in blocks for name in _names(block)])
    size = 1 + max((int(own.max()) for own in found if own is not None and len(own)), default=-1)
    numbers = iter(found)
    rows = []
    for influence, _ in estimates:
        row = np.zeros(size)
        for values in (part for block in influence for part in block):
            own = next(numbers)
            assert own is not None
            row += np.bincount(own, values, size)
        rows.append(row)
    return np.array(rows)


def _few(part: Ranked) -> bool:
    return part.fpr * part.size / part.spread < STEADY


def errors_behind(name: str, blocks: Sequence[Block]) -> UnitErrors | None:
    """What each record, or person, adds to the error of the AUC, or of a TPR, of these scores; None of other figures,
    and where the scores do not say whose they are.

    None, too, of a TPR where a party has few independent calibration records for it: the value is then too low by as
    much in every run, or its lower end is cut off at 0, and neither averages out over runs."""
    fpr = fpr_of(name)
    if fpr is not None and any(_few(ranked(block, fpr)) for block in calibrated(blocks)):
        return None
    if (name != "auc" and fpr is None) or any(block.ids is None and block.subjects is None for block in blocks):
        return None
    influence = auc_influence(blocks) if fpr is None else tpr_influence(blocks, fpr)
    return by_name(influence, blocks)


def by_name(influence: Influence, blocks: Sequence[Block]) -> UnitErrors:
    """The influence of each subject, or of each record where subjects are not known."""
    return of_units([name for block in blocks for name in _names(block)], [part for own in influence for part in own])


def on_units(influence: Influence, blocks: Sequence[Block], size: int) -> Floats:
    """The influence of each of `size` units on one estimate; the units' names are their numbers."""
    row = np.zeros(size)
    for values, block in zip(influence, blocks, strict=True):
        for part, numbers in zip(values, _names(block), strict=True):
            row += np.bincount(numbers, part, size)
    return row


def _names(block: Block) -> tuple[Groups, Groups, Groups]:
    names = block.ids if block.subjects is None else block.subjects
    if names is None:
        what = "the scores do not say which record each of them belongs to, so that they cannot be paired"
        raise FedauditError("no-ids", what, "Give the blocks ids, or subjects.")
    return names


# ------------------------------------------------------------------ is one party more exposed than the others?


@dataclass(frozen=True)
class PartyDifference:
    """A party's AUC minus that of all others pooled; the intervals of all parties hold together."""

    party: str
    own: float
    others: float
    low: float
    high: float
    _: KW_ONLY
    own_low: float

    @property
    def value(self) -> float:
        return self.own - self.others


def party_differences(blocks: Mapping[str, Block], confidence: float = 0.95, sharing: int = 0) -> list[PartyDifference]:
    """One difference for each party that has members and evaluation non-members, the error shared equally among them,
    or among `sharing` comparisons of which they are a part.

    The interval of a difference follows from the two AUCs' own (Zou and Donner's MOVER), so it keeps its width at
    AUC 1. A party's AUC is treated as independent of the others'. Subjects who are in several parties only make it
    wider than necessary, because their scores move both AUCs in the same direction. A party with too few subjects is
    left out.
    """
    usable = {name: block for name, block in blocks.items() if len(block.members) and len(block.evaluation)}
    parts = dict(zip(usable, parts_of(list(usable.values())), strict=True))
    if len(parts) < 2:
        return []
    alpha, found = (1 - confidence) / (sharing or len(parts)), []
    for name, part in parts.items():
        own, others = pool([part]), pool([p for other, p in parts.items() if other != name])
        if too_few(own.people) or too_few(others.people):
            continue
        (own_low, own_high), (low, high) = own.interval(alpha), others.interval(alpha)
        below = np.hypot(own.value - own_low, high - others.value)
        above = np.hypot(own_high - own.value, others.value - low)
        value = own.value - others.value
        ends = value - float(below), value + float(above)
        found.append(PartyDifference(name, own.value, others.value, *ends, own_low=float(own_low)))
    return found


# ---------------------- accuracy, precision, recall and F1 at a threshold that was fixed on other records

# All of them are balanced: as if there were as many members as non-members, whatever the numbers are.


_AT = "called members above a threshold that was fixed on the adversary's own records"


def decisions(blocks: Sequence[Block], threshold: float | None, confidence: float = 0.95) -> dict[str, Estimate]:
    """Balanced accuracy, precision and F1 at equal numbers, and recall (the share of members that are called so)."""
    recall = _share(blocks, threshold, confidence, members=True)
    calls = [_share(blocks, threshold, level, members=False) for level in (confidence, (1 + confidence) / 2)]
    both = recall.n_pos + recall.n_neg, calls[0].n_pos + calls[0].n_neg
    if threshold is None or not all(both):
        why = "no threshold was fixed" if threshold is None else "nobody is left to count"
        return {n: Estimate(n, None, None, None, confidence, _AT, "measured", *both, reason=why) for n in DECISIONS}
    t, t_low, t_high = _ends(recall)
    f, f_low, f_high = _ends(calls[0])
    low = (1 + t - f) / 2 - math.hypot(t - t_low, f_high - f) / 2
    high = (1 + t - f) / 2 + math.hypot(t_high - t, f - f_low) / 2
    accuracy = Estimate(
        "accuracy", (1 + t - f) / 2, max(low, 0.0), min(high, 1.0), confidence,
        f"balanced; {_AT}; the two shares' intervals combined (MOVER) of: {recall.method}", "measured", *both,
    )  # fmt: skip
    wide = _ends(_share(blocks, threshold, (1 + confidence) / 2, members=True)), _ends(calls[1])
    how = f"at equal numbers; {_AT}; from the ends of both shares (Bonferroni)"
    precise = Estimate("precision", *_at_ends(_precision, *wide), confidence, how, "measured", *both)
    if t + f == 0:
        precise = replace(precise, value=None, low=None, high=None, reason="nobody is called a member")
    told = Estimate("recall", t, t_low, t_high, confidence, f"{_AT}; {recall.method}", "measured", *both)
    f1 = Estimate("f1-balanced", *_at_ends(_f1, *wide), confidence, how, "measured", *both)
    return {"accuracy": accuracy, "precision": precise, "recall": told, f1.name: f1}


def _share(blocks: Sequence[Block], threshold: float | None, confidence: float, members: bool) -> Estimate:
    hits = [called(block.members if members else block.evaluation, threshold) for block in blocks]
    place = 0 if members else 1
    whose = [None if block.subjects is None else block.subjects[place] for block in blocks]
    return proportion(hits, whose, confidence)


def called(scores: Floats, threshold: float | None) -> Bools:
    return np.asarray(scores > (math.inf if threshold is None else threshold))


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    value, low, high = estimate.value, estimate.low, estimate.high
    assert value is not None
    assert low is not None
    assert high is not None
    return value, low, high


_Ends = tuple[float, float, float]


def _at_ends(figure: Callable[[float, float], float], recall: _Ends, wrong: _Ends) -> _Ends:
    """A figure that grows with the share of members that are called so, and falls with that of the others."""
    return figure(recall[0], wrong[0]), figure(recall[1], wrong[2]), figure(recall[2], wrong[1])


def _precision(t: float, f: float) -> float:
    return t / (t + f) if t + f > 0 else 0.5  # an end may be 0 on both sides: not known


def _f1(t: float, f: float) -> float:
    return 2 * t / (1 + t + f)


def accuracy_difference(
    first: Sequence[Block], second: Sequence[Block], thresholds: tuple[float, float], confidence: float = 0.95
) -> Estimate:
    """The first balanced accuracy minus the second, on the same records, each at its own threshold."""
    pair = tuple(
        decisions(blocks, at, confidence)["accuracy"] for blocks, at in zip((first, second), thresholds, strict=True)
    )
    both = zip((first, second), thresholds, strict=True)
    influences = [(accuracy_influence(blocks, at), blocks) for blocks, at in both]
    return difference((pair[0], pair[1]), influences)


def accuracy_influence(blocks: Sequence[Block], threshold: float) -> Influence:
    """What each record adds: half of its deviation from the share of right calls, divided by the number of records of
    its kind."""
    members = sum(len(block.members) for block in blocks)
    others = sum(len(block.evaluation) for block in blocks)
    hit = [called(block.members, threshold) for block in blocks]
    spared = [~called(block.evaluation, threshold) for block in blocks]
    recall = sum(float(own.sum()) for own in hit) / max(members, 1)
    rest = sum(float(own.sum()) for own in spared) / max(others, 1)
    return [
        ((h - recall) / (2 * max(members, 1)), (s - rest) / (2 * max(others, 1)), np.zeros(len(block.calibration)))
        for block, h, s in zip(blocks, hit, spared, strict=True)
    ]
