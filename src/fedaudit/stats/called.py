"""Accuracy, precision and recall of an attack whose threshold was fixed on other records than it is judged on.

All three are balanced: as if there were as many members as non-members, whatever the numbers are.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedaudit.stats.blocks import Block
from fedaudit.stats.intervals import proportion
from fedaudit.stats.paired import Influence, difference
from fedaudit.types import Bools, Estimate, Floats

_AT = "called members above a threshold that was fixed on the adversary's own records"


def decisions(blocks: Sequence[Block], threshold: float | None, confidence: float = 0.95) -> dict[str, Estimate]:
    """Balanced accuracy, precision at equal numbers, and recall (the share of members that are called so)."""
    recall = _share(blocks, threshold, confidence, members=True)
    calls = [_share(blocks, threshold, level, members=False) for level in (confidence, (1 + confidence) / 2)]
    both = recall.n_pos + recall.n_neg, calls[0].n_pos + calls[0].n_neg
    if threshold is None or not all(both):
        why = "no threshold was fixed" if threshold is None else "nobody is left to count"
        names = ("accuracy", "precision", "recall")
        return {n: Estimate(n, None, None, None, confidence, _AT, "measured", *both, reason=why) for n in names}
    t, t_low, t_high = _ends(recall)
    f, f_low, f_high = _ends(calls[0])
    low = (1 + t - f) / 2 - math.hypot(t - t_low, f_high - f) / 2
    high = (1 + t - f) / 2 + math.hypot(t_high - t, f - f_low) / 2
    accuracy = Estimate(
        "accuracy", (1 + t - f) / 2, max(low, 0.0), min(high, 1.0), confidence,
        f"balanced; {_AT}; the two shares' intervals combined (MOVER) of: {recall.method}", "measured", *both,
    )  # fmt: skip
    precise = Estimate(
        "precision", *_precision(_ends(_share(blocks, threshold, (1 + confidence) / 2, members=True)), _ends(calls[1])),
        confidence, f"at equal numbers; {_AT}; from the ends of both shares (Bonferroni)", "measured", *both,
    )  # fmt: skip
    if t + f == 0:
        precise = replace(precise, value=None, low=None, high=None, reason="nobody is called a member")
    told = Estimate("recall", t, t_low, t_high, confidence, f"{_AT}; {recall.method}", "measured", *both)
    return {"accuracy": accuracy, "precision": precise, "recall": told}


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


def _precision(recall: tuple[float, float, float], wrong: tuple[float, float, float]) -> tuple[float, float, float]:
    def of(t: float, f: float) -> float:
        return t / (t + f) if t + f > 0 else 0.5  # an end may be 0 on both sides: not known

    return of(recall[0], wrong[0]), of(recall[1], wrong[2]), of(recall[2], wrong[1])


def accuracy_difference(
    first: Sequence[Block], second: Sequence[Block], thresholds: tuple[float, float], confidence: float = 0.95
) -> Estimate:
    """The first balanced accuracy minus the second, on the same records, each at its own threshold."""
    pair = tuple(
        decisions(blocks, at, confidence)["accuracy"] for blocks, at in zip((first, second), thresholds, strict=True)
    )
    influences = [(_influence(blocks, at), blocks) for blocks, at in zip((first, second), thresholds, strict=True)]
    return difference((pair[0], pair[1]), influences)


def _influence(blocks: Sequence[Block], threshold: float) -> Influence:
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


# ---------------------- where a threshold tells known members best from known non-members


_TIED = 1e-12  # shares that differ by less are the same


def cuts(members: Floats, nonmembers: Floats) -> tuple[Floats, Floats, Floats]:
    """Every threshold that makes a difference: halfway between two scores, or beyond all. For each, the share of
    members and the share of non-members above it. A score of NaN is above none."""
    mine, others = (np.sort(np.where(np.isnan(side), -np.inf, side)) for side in (members, nonmembers))
    values = np.unique(np.concatenate([mine, others]))
    values = values[np.isfinite(values)]
    places = np.concatenate([[-np.inf], (values[1:] + values[:-1]) / 2, [np.inf]])
    hits, alarms = ((len(side) - np.searchsorted(side, places, "right")) / len(side) for side in (mine, others))
    return places, hits, alarms


def best_cut(members: Floats, nonmembers: Floats) -> float:
    """The threshold with the best balanced accuracy; of several equally good ones the middle one. If none is better
    than chance, the lowest: everybody is called a member."""
    places, hits, alarms = cuts(members, nonmembers)
    gain = hits - alarms
    best = np.flatnonzero(gain >= gain.max() - _TIED)
    return float(places[best[0] if gain.max() <= _TIED else best[len(best) // 2]])


def balanced_accuracy(members: Floats, nonmembers: Floats) -> float:
    """The most that one threshold on the scores can reach."""
    _, hits, alarms = cuts(members, nonmembers)
    return float(((1 + hits - alarms) / 2).max())
