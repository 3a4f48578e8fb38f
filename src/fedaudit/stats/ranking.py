"""The AUC of one block or several, with an interval. Ties count half (mid-ranks)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fedaudit.stats.blocks import Block, design_effect, effective_subjects, lowest, numbered, too_few
from fedaudit.stats.guaranteed_auc import NONE, Comparisons, guaranteed_ends, of_people, of_records
from fedaudit.stats.intervals import few_subjects_factor, score_interval
from fedaudit.stats.proportions import BY_SUBJECT
from fedaudit.stats.rare import rare_ends, widened
from fedaudit.types import Bools, Estimate, Floats, Ints

_AUC = (
    "mid-rank AUC; Newcombe score interval, variance at least DeLong's; where few records "
    "are misplaced, as wide as one more could make it"
)


def auc(blocks: Sequence[Block], confidence: float = 0.95) -> Estimate:
    """Probability that a member outscores an evaluation non-member of its own block (ties count half).

    The interval is approximate, and simulated in docs/coverage.md; the guaranteed ends are proved for independent
    records or people (see `guaranteed_auc`).
    """
    n_pos = sum(len(b.members) for b in blocks)
    n_neg = sum(len(b.evaluation) for b in blocks)
    usable = [b for b in blocks if len(b.members) and len(b.evaluation)]
    method = _AUC + BY_SUBJECT * any(b.subjects is not None for b in usable)
    found = pooled_auc(usable) if usable else None
    reason = too_few(found.people) if found else "needs at least one member and one evaluation non-member"
    if found is None or reason:
        return Estimate("auc", None, None, None, confidence, method, "measured", n_pos, n_neg, reason=reason)
    (low, high), proved = found.interval(1 - confidence), found.guaranteed(1 - confidence)
    return Estimate("auc", found.value, low, high, confidence, method, "measured", n_pos, n_neg, guaranteed=proved)


def pooled_auc(blocks: Sequence[Block]) -> "Pooled":
    """Of the blocks that have members and evaluation non-members; there is at least one."""
    return pool(parts_of([b for b in blocks if len(b.members) and len(b.evaluation)]))


def placements(members: Floats, nonmembers: Floats) -> tuple[Floats, Floats]:
    """For each member the share of non-members it beats; for each non-member the share of members that beat it."""
    m = len(members)
    ranks = stats.rankdata(np.concatenate([members, nonmembers]))  # mid-ranks
    by_member = (ranks[:m] - stats.rankdata(members)) / len(nonmembers)
    by_nonmember = 1 - (ranks[m:] - stats.rankdata(nonmembers)) / m
    return by_member, by_nonmember


def delong_variance(by_member: Floats, by_nonmember: Floats) -> float:
    """DeLong's variance of the AUC, for independent records."""
    m, n = len(by_member), len(by_nonmember)
    of_members = float(np.var(by_member, ddof=1)) / m if m > 1 else 0.0
    of_nonmembers = float(np.var(by_nonmember, ddof=1)) / n if n > 1 else 0.0
    return of_members + of_nonmembers


@dataclass(frozen=True)
class BlockAuc:
    """The AUC of one block, and what is needed to pool it with others."""

    value: float
    size: tuple[int, int]
    variance: float  # DeLong's, for independent records
    influence: Floats  # what each record, members first, adds to the AUC's error
    whose: Ints | None  # subjects, numbered through all parts
    of_several: bool  # is there more than one subject?
    tied: float  # the factor by which ties lower the variance
    worst: Bools  # the records most easily misplaced: a tenth of the members, a tenth of the others


def parts_of(blocks: Sequence[Block]) -> list[BlockAuc]:
    """Each of these blocks has members and evaluation non-members."""
    names = [None if b.subjects is None else np.concatenate(b.subjects[:2]) for b in blocks]
    return [_part(block, whose) for block, whose in zip(blocks, numbered(names), strict=True)]


def _part(block: Block, whose: Ints | None) -> BlockAuc:
    by_member, by_nonmember = placements(block.members, block.evaluation)
    m, n = len(by_member), len(by_nonmember)
    naive = delong_variance(by_member, by_nonmember)
    influence = np.concatenate([(by_member - by_member.mean()) / m, (by_nonmember - by_nonmember.mean()) / n])
    if whose is not None and block.of_several:
        influence *= _without_oneself(whose, m)
    worst = np.concatenate([lowest(block.members, 0.1), lowest(-block.evaluation, 0.1)])
    tied = _tied(block.members, block.evaluation)
    return BlockAuc(float(by_member.mean()), (m, n), naive, influence, whose, block.of_several, tied, worst)


def _tied(members: Floats, nonmembers: Floats) -> float:
    """The factor by which ties between members and non-members lower the variance of the AUC.

    It is 1 minus the sum of cubes of the share that has each value, as in the Mann-Whitney test. Where the shares of
    the two sides differ, the smaller one counts. Two records more on each side, which tie with nobody, stand for values
    that have not been seen yet: scores that are all equal so far prove nothing.
    """
    values = np.intersect1d(members, nonmembers)
    shares = []
    for side in (np.sort(members), np.sort(nonmembers)):
        counts = np.searchsorted(side, values, side="right") - np.searchsorted(side, values, side="left")
        shares.append(counts / (len(side) + 2))
    return 1 - float(np.sum(np.minimum(*shares) ** 3))


def _without_oneself(whose: Ints, members: int) -> Floats:
    """The factor by which a subject's deviation from the mean grows if the subject is left out of that mean (the
    jackknife's correction): a subject with many records draws the mean towards itself. The factor is at most 2, which a
    subject with half of all records has, so that its square counts at most four times."""
    shares = []
    for side in (whose[:members], whose[members:]):
        shares.append(np.bincount(side)[side] / len(side))
    return np.asarray(1 / (1 - np.minimum(np.concatenate(shares), 0.5)))


@dataclass(frozen=True)
class Pooled:
    """The AUC of several blocks, weighted by their pairs."""

    value: float
    sizes: list[tuple[int, int]]
    variance: float
    third: float  # sum of the cubes of what each record or subject adds to the error
    comparisons: Comparisons
    people: float | None = None  # effective subjects on the side that has fewer; None: every record stands for itself
    worth: list[tuple[float, float]] | None = None  # the most that the sizes count for, because records are clustered
    tied: list[float] | None = None  # for each block, the factor by which ties lower its variance

    def interval(self, alpha: float) -> tuple[float, float]:
        """Nowhere wider than the guaranteed ends."""
        low, high = score_interval(
            self.value, self.sizes, self.variance, alpha, self.people, self.worth, self.tied
        )  # fmt: skip
        variance = self.variance * few_subjects_factor(self.people, alpha)
        low, high = widened((low, high), rare_ends(self.value, variance, self.third, self.comparisons.weight, alpha))
        proved = self.guaranteed(alpha)
        return max(low, proved[0]), min(high, proved[1])

    def guaranteed(self, alpha: float) -> tuple[float, float]:
        return guaranteed_ends(self.value, self.comparisons, alpha)


def pool(parts: Sequence[BlockAuc]) -> Pooled:
    """With subjects, the variance is Obuchowski's: over whole subjects, in all blocks and on both sides together. How
    many records tie is then known of few people only, and lowers nothing."""
    pairs = np.array([m * n for m, n in (part.size for part in parts)], dtype=float)
    weights = pairs / pairs.sum()
    weighed = list(zip(weights, parts, strict=True))
    value = min(max(sum(float(weight * part.value) for weight, part in weighed), 0.0), 1.0)
    sizes = [part.size for part in parts]
    people = _people(weighed)
    alone = [(weight, part) for weight, part in weighed if people is None or not part.of_several]
    variance = sum(float(weight**2) * part.variance for weight, part in alone)
    third = sum(_cubes(float(weight) * part.influence) for weight, part in alone)
    counted = sum((of_records(part.size, weight) for weight, part in alone), NONE)
    if people is None:
        return Pooled(value, sizes, variance, third, counted, tied=[part.tied for part in parts])
    shared = [(weight * part.influence, part.whose) for weight, part in weighed if part.of_several]
    whose = np.concatenate([own for _, own in shared if own is not None])
    sums = np.asarray(np.bincount(whose, np.concatenate([influence for influence, _ in shared])), np.float64)
    variance, third = variance + float(np.sum(sums**2)), third + _cubes(sums)
    counted += of_people(people, float(sum(weight for weight, part in weighed if part.of_several)))
    return Pooled(value, sizes, variance, third, counted, people, _worth(parts))


def _cubes(influence: Floats) -> float:
    """The same bits in whatever order the records are stored."""
    return float(np.sum(np.sort(influence) ** 3))


def _people(weighed: Sequence[tuple[float, BlockAuc]]) -> float | None:
    """Effective subjects, each record with its weight in the pooled AUC."""
    known = [(part.whose, part.size, weight) for weight, part in weighed if part.whose is not None]
    if not any(part.of_several for _, part in weighed):
        return None
    members = np.concatenate([whose[:m] for whose, (m, _), _ in known])
    nonmembers = np.concatenate([whose[m:] for whose, (m, _), _ in known])
    of_members = np.concatenate([np.full(m, weight / m) for _, (m, _), weight in known])
    of_nonmembers = np.concatenate([np.full(n, weight / n) for _, (_, n), weight in known])
    return effective_subjects([members, nonmembers], [of_members, of_nonmembers])


def _worth(parts: Sequence[BlockAuc]) -> list[tuple[float, float]]:
    """The sizes divided by the design effects of the worst tenths."""
    spreads = []
    for side in (0, 1):
        at = [slice(part.size[0]) if side == 0 else slice(part.size[0], None) for part in parts]
        numbers = [None if p.whose is None or not p.of_several else p.whose[s] for p, s in zip(parts, at, strict=True)]
        spreads.append(design_effect([p.worst[s] for p, s in zip(parts, at, strict=True)], numbers))
    return [(m / spreads[0], n / spreads[1]) for m, n in (part.size for part in parts)]
