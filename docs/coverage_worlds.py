"""Simulated audits whose true values are known, for docs/make_coverage.py and for the test that repeats part of it.

A world is drawn at random and handed to the functions that the tool itself calls. It answers with the intervals that
they give, each beside the true value: `Shot`. One with several values (a band, all parties) misses when one of them
does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from fedaudit.stats import (
    Block,
    auc,
    auc_difference,
    band_confidences,
    party_differences,
    proportion,
    tpr_at_fpr,
    tpr_difference,
)
from fedaudit.stats.blocks import ranked
from fedaudit.stats.paired import auc_influence, by_unit, tpr_influence
from fedaudit.types import Estimate, Floats, Ints

Rng = np.random.Generator
NORMAL = stats.norm
Ends = float | Floats


@dataclass(frozen=True)
class Shot:
    """One or more ends beside the truth that they ought to enclose."""

    low: Ends
    high: Ends
    truth: Ends

    @property
    def missed(self) -> tuple[bool, bool]:
        """Does the interval lie above the truth; does it lie below it?"""
        return bool(np.any(self.low > np.asarray(self.truth))), bool(np.any(self.high < np.asarray(self.truth)))

    @property
    def width(self) -> float:
        return float(np.mean(np.asarray(self.high) - np.asarray(self.low)))


Shots = Mapping[str, Shot]  # by the name of the interval; empty: the function gave no value in this world
World = Callable[[Rng], Shots]


def shot(found: Estimate, truth: float) -> Shots:
    if found.low is None or found.high is None:
        return {}
    return {"interval": Shot(found.low, found.high, truth)}


def both(found: Estimate, truth: float) -> Shots:
    """The interval of a TPR or an AUC, and its guaranteed ends."""
    if found.guaranteed is None:
        return {}
    return {**shot(found, truth), "guaranteed": Shot(*found.guaranteed, truth)}


# ------------------------------------------------------------------ TPR at an FPR


def roc_of(score: Any, shift: float, fpr: float) -> float:
    """The TPR of scores that members have larger by `shift`; the parties' means do not matter."""
    return float(score.sf(score.isf(fpr) - shift))


def tpr(parties: Sequence[tuple[int, int]], shift: float, fpr: float = 0.01, degrees: int | None = None) -> World:
    """(members, calibration) of each party. Gaussian scores, or Student's t with so many degrees of freedom."""
    truth = roc_of(NORMAL if degrees is None else stats.t(degrees), shift, fpr)

    def world(rng: Rng) -> Shots:
        def draw(n: int) -> Floats:
            return rng.standard_normal(n) if degrees is None else rng.standard_t(degrees, n)

        blocks = [Block(shift + draw(m), np.zeros(0), draw(n)) for m, n in parties]
        return both(tpr_at_fpr(blocks, fpr), truth)

    return world


def small(parties: Sequence[tuple[int, int, float]], fpr: float = 0.01) -> World:
    """(members, calibration, shift) of each party: the smaller ones may leak more than the larger ones."""
    sizes, shifts = np.array([m for m, _, _ in parties]), np.array([shift for _, _, shift in parties])
    truth = float(np.average(NORMAL.sf(NORMAL.isf(fpr) - shifts), weights=sizes))

    def world(rng: Rng) -> Shots:
        blocks = [Block(s + rng.standard_normal(m), np.zeros(0), rng.standard_normal(n)) for m, n, s in parties]
        return both(tpr_at_fpr(blocks, fpr), truth)

    return world


def few_people(people: int, records: int, extreme: float, fpr: float = 0.01) -> World:
    """So many people calibrate. A share of all people, members or not, has all records above all other records, so that
    the TPR is the FPR. There are ten thousand members with two records each."""

    def world(rng: Rng) -> Shots:
        sets = []
        for many, each, start in ((10_000, 2, 0), (people, records, 10**6)):
            whose = np.repeat(np.arange(many), each)
            sets.append(((rng.random(many) < extreme)[whose] + rng.random(len(whose)), whose + start))
        (members, a), (calibration, c) = sets
        return both(tpr_at_fpr([Block(members, members[:0], calibration, (a, a[:0], c))], fpr), fpr)

    return world


def kinked(parties: int, members: int, calibration: int, at: float | None, fpr: float = 0.01) -> World:
    """The scores are given by the FPR that they would have as a threshold. All members at one of them, or (None) half
    of the members evenly below the audited FPR and half above it, where the ROC curve then has a corner."""
    truth = 0.5 if at is None else float(at < fpr)

    def world(rng: Rng) -> Shots:
        blocks = []
        for _ in range(parties):
            low = rng.random(members) < 0.5
            corner = np.where(low, fpr * rng.random(members), fpr + (1 - fpr) * rng.random(members))
            own = corner if at is None else np.full(members, at)
            blocks.append(Block(-own, np.zeros(0), -rng.random(calibration)))
        return both(tpr_at_fpr(blocks, fpr), truth)

    return world


def levels(parties: Sequence[tuple[int, int]], shift: float, per_deviation: float, fpr: float = 0.01) -> World:
    """Gaussian scores rounded to a few levels. An adversary with a coin reaches every point between two of them."""
    at = np.arange(-60, 61) / per_deviation + 0.5 / per_deviation
    false, true = NORMAL.sf(at)[::-1], NORMAL.sf(at - shift)[::-1]
    truth = float(np.interp(fpr, false, true))

    def world(rng: Rng) -> Shots:
        blocks = []
        for m, n in parties:
            own, others = shift + rng.standard_normal(m), rng.standard_normal(n)
            members = np.asarray(np.rint(own * per_deviation), np.float64)
            blocks.append(Block(members, np.zeros(0), np.asarray(np.rint(others * per_deviation), np.float64)))
        return both(tpr_at_fpr(blocks, fpr), truth)

    return world


def two_valued(members: int, calibration: int, fpr: float = 0.01) -> World:
    """95 % of the members and 5 % of the others have the higher value."""

    def world(rng: Rng) -> Shots:
        own, others = rng.random(members) < 0.95, rng.random(calibration) < 0.05
        return both(tpr_at_fpr([Block(own.astype(float), np.zeros(0), others.astype(float))], fpr), 0.95 * fpr / 0.05)

    return world


def realised(members: int, calibration: int, evaluation: int, fpr: float = 0.01) -> World:
    """The interval of the realised FPR, against the true FPR of the threshold that was used."""

    def world(rng: Rng) -> Shots:
        sets = rng.standard_normal(members), rng.standard_normal(evaluation), rng.standard_normal(calibration)
        return realised_shot(Block(*sets), fpr)

    return world


def realised_shot(block: Block, fpr: float) -> Shots:
    found, above = tpr_at_fpr([block], fpr), block.descending
    if found.realised_fpr_interval is None:
        return {}
    between = np.concatenate([[np.inf], (above[1:-2] + above[2:-1]) / 2, [-np.inf]])  # where a new score may fall
    truth = float(np.diff(NORMAL.sf(above)) @ ranked(block, fpr).accused(between))
    return {"interval": Shot(*found.realised_fpr_interval, truth)}


# ------------------------------------------------------------------ several records of one subject


def equal(size: int) -> Callable[[Rng], int]:
    return lambda rng: size


def heavy(rng: Rng) -> int:
    """A few subjects have most of the records."""
    return max(1, round(float(np.exp(rng.normal(1.0, 1.2)))))


Size = Callable[[Rng], int]


def clustered(rng: Rng, records: int, size: Size, share: float) -> tuple[Floats, Ints]:
    """Standard normal scores, of whose variance the subject makes a given share."""
    sizes = [size(rng)]
    while sum(sizes) < records:
        sizes.append(size(rng))
    whose = np.repeat(np.arange(len(sizes)), sizes)
    own = rng.standard_normal(len(sizes))[whose]
    return np.sqrt(share) * own + np.sqrt(1 - share) * rng.standard_normal(len(whose)), whose


def by_subject(rng: Rng, counts: tuple[int, int, int], size: Size, share: float, shift: float) -> Block:
    drawn = [clustered(rng, n, size, share) if n else (np.zeros(0), np.zeros(0, int)) for n in counts]
    (members, a), (evaluation, b), (calibration, c) = drawn
    return Block(shift + members, evaluation, calibration, (a, 10**6 + b, 2 * 10**6 + c))


def apart(blocks: Sequence[Block]) -> list[Block]:
    """Nobody is in two parties."""
    found = []
    for i, block in enumerate(blocks):
        assert block.subjects is not None
        a, b, c = (names + 10**7 * i for names in block.subjects)
        found.append(Block(block.members, block.evaluation, block.calibration, (a, b, c)))
    return found


def tpr_of_subjects(
    parties: int, counts: tuple[int, int], size: Size, share: float, shift: float, fpr: float = 0.01
) -> World:
    """`counts`: members and calibration records of each party."""
    truth = roc_of(NORMAL, shift, fpr)
    sets = counts[0], 0, counts[1]

    def world(rng: Rng) -> Shots:
        blocks = apart([by_subject(rng, sets, size, share, shift) for _ in range(parties)])
        return both(tpr_at_fpr(blocks, fpr), truth)

    return world


def realised_of_subjects(people: tuple[int, int, int], size: int, share: float, fpr: float = 0.1) -> World:
    """The interval of the realised FPR. `people`: how many have members, evaluation and calibration records."""
    members, evaluation, calibration = (own * size for own in people)

    def world(rng: Rng) -> Shots:
        return realised_shot(by_subject(rng, (members, evaluation, calibration), equal(size), share, 0.5), fpr)

    return world


# ------------------------------------------------------------------ AUC and shares


def area(parties: Sequence[tuple[int, int]], shift: float, per_deviation: float | None = None) -> World:
    """(members, evaluation) of each party; rounded to a few levels, if asked."""
    truth = float(NORMAL.cdf(shift / np.sqrt(2)))
    if per_deviation is not None:
        at = np.arange(-60, 61) / per_deviation
        own, others = (np.diff(NORMAL.cdf(np.append(at, np.inf) - 0.5 / per_deviation - s)) for s in (shift, 0.0))
        truth = float(own @ (np.cumsum(others) - others / 2))

    def world(rng: Rng) -> Shots:
        blocks = []
        for m, n in parties:
            own, others = shift + rng.standard_normal(m), rng.standard_normal(n)
            if per_deviation is not None:
                own, others = np.rint(own * per_deviation), np.rint(others * per_deviation)
            blocks.append(Block(own, others, np.zeros(0)))
        return both(auc(blocks), truth)

    return world


def area_of_two_values(sizes: tuple[int, int], own: float, others: float) -> World:
    """These shares of the members and of the others have the higher value."""

    def world(rng: Rng) -> Shots:
        members, evaluation = ((rng.random(n) < p).astype(float) for n, p in zip(sizes, (own, others), strict=True))
        return both(auc([Block(members, evaluation, np.zeros(0))]), 0.5 + (own - others) / 2)

    return world


def area_of_subjects(counts: tuple[int, int], size: Size, share: float, shift: float) -> World:
    truth = float(NORMAL.cdf(shift / np.sqrt(2)))
    return lambda rng: both(auc([by_subject(rng, (*counts, 0), size, share, shift)]), truth)


def between_parties(parties: int, counts: tuple[int, int], shifts: Sequence[float]) -> World:
    """Every party's AUC minus that of the others, all together."""
    own = NORMAL.cdf(np.array(shifts) / np.sqrt(2))
    truth = {str(i): own[i] - np.delete(own, i).mean() for i in range(parties)}

    def world(rng: Rng) -> Shots:
        blocks = {
            str(i): Block(shifts[i] + rng.standard_normal(counts[0]), rng.standard_normal(counts[1]), np.zeros(0))
            for i in range(parties)
        }
        found = party_differences(blocks)
        lows, highs, truths = zip(*((d.low, d.high, truth[d.party]) for d in found), strict=True)
        return {"interval": Shot(np.array(lows), np.array(highs), np.array(truths))}

    return world


def share(records: int, truth: float, size: Size | None = None, within: float = 0.0) -> World:
    """A proportion: accuracy, or a share of right guesses."""

    def world(rng: Rng) -> Shots:
        scores, whose = (rng.standard_normal(records), None) if size is None else clustered(rng, records, size, within)
        return shot(proportion([scores > NORMAL.isf(truth)], [whose]), truth)

    return world


# ------------------------------------------------------------------ rounds, differences, runs


def path(rng: Rng, records: int, rounds: int, drift: float) -> Floats:
    """Rounds x records: half of the variance is the record's own, the rest drifts, with this correlation from one
    round to the next."""
    own, moving = rng.standard_normal(records), np.zeros((rounds, records))
    moving[0] = rng.standard_normal(records)
    for r in range(1, rounds):
        moving[r] = drift * moving[r - 1] + np.sqrt(1 - drift**2) * rng.standard_normal(records)
    return np.asarray((own + moving) / np.sqrt(2))


@dataclass(frozen=True)
class Rounds:
    """An attack that grows from round to round."""

    parties: int
    counts: tuple[int, int, int]
    rounds: int
    drift: float
    strongest: float
    fpr: float | None = None  # None: the AUC

    def __call__(self, rng: Rng) -> Shots:
        """The band as the auditor makes it, and the one that shares the error equally."""
        shifts = np.linspace(0.0, self.strongest, self.rounds)
        drawn = [[path(rng, n, self.rounds, self.drift) for n in self.counts] for _ in range(self.parties)]
        m, e, c = (np.arange(n) for n in self.counts)
        names = [
            (m + i, e + len(m) + i, c + len(m) + len(e) + i)
            for i in range(0, self.parties * sum(self.counts), sum(self.counts))
        ]
        each = [
            [
                Block(sets[0][r] + shifts[r], sets[1][r], sets[2][r], ids=own)
                for sets, own in zip(drawn, names, strict=True)
            ]
            for r in range(self.rounds)
        ]
        if self.fpr is None:
            influences = by_unit([(auc_influence(blocks), blocks) for blocks in each])
            truth = NORMAL.cdf(shifts / np.sqrt(2))
        else:
            influences = by_unit([(tpr_influence(blocks, self.fpr), blocks) for blocks in each])
            truth = NORMAL.sf(NORMAL.isf(self.fpr) - shifts)
        shared = [1 - 0.05 / self.rounds] * self.rounds
        ways = {"band": band_confidences(influences, self.rounds), "equal shares": shared}
        return {name: self._ends(each, confidences, truth) for name, confidences in ways.items()}

    def _ends(self, each: Sequence[Sequence[Block]], confidences: Sequence[float], truth: Floats) -> Shot:
        found = [
            auc(blocks, own) if self.fpr is None else tpr_at_fpr(blocks, self.fpr, own, prove=False)
            for blocks, own in zip(each, confidences, strict=True)
        ]
        lows, highs = [e.low or 0.0 for e in found], [1.0 if e.high is None else e.high for e in found]
        return Shot(np.array(lows), np.array(highs), truth)


def paired(
    shifts: tuple[float, float], alike: float, counts: tuple[int, int, int], fpr: float | None, parties: int = 1
) -> World:
    """Two attacks on the same records; `alike` is the correlation of their scores."""
    one, two = NORMAL.cdf(np.array(shifts) / np.sqrt(2)) if fpr is None else [roc_of(NORMAL, s, fpr) for s in shifts]

    def world(rng: Rng) -> Shots:
        first, second = [], []
        for i in range(parties):
            common, own, other = ([rng.standard_normal(n) for n in counts] for _ in range(3))
            mixed = [
                [np.sqrt(alike) * c + np.sqrt(1 - alike) * o for c, o in zip(common, mine, strict=True)]
                for mine in (own, other)
            ]
            ends = np.cumsum((0, *counts)) + 10**6 * i
            ids = np.arange(ends[0], ends[1]), np.arange(ends[1], ends[2]), np.arange(ends[2], ends[3])
            first.append(Block(mixed[0][0] + shifts[0], mixed[0][1], mixed[0][2], ids=ids))
            second.append(Block(mixed[1][0] + shifts[1], mixed[1][1], mixed[1][2], ids=ids))
        found = auc_difference(first, second) if fpr is None else tpr_difference(first, second, fpr)
        return shot(found, float(one - two))

    return world
