"""The AUC of one block or several, with an interval and with guaranteed ends. Ties count half (mid-ranks)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize, special

from fedaudit.stats.blocks import Block, design_effect, effective_subjects, lowest, numbered, too_few
from fedaudit.stats.intervals import BY_SUBJECT, few_subjects_factor, score_interval
from fedaudit.types import Bools, Estimate, Floats, Ints

_AUC = (
    "mid-rank AUC; Newcombe score interval, variance at least DeLong's; where few records "
    "are misplaced, as wide as one more could make it"
)


def auc(blocks: Sequence[Block], confidence: float = 0.95) -> Estimate:
    """Probability that a member outscores an evaluation non-member of its own block (ties count half).

    The interval is approximate, and simulated in docs/coverage.md; the guaranteed ends are proved for independent
    records or people (see `guaranteed_ends`).
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


def pooled_auc(blocks: Sequence[Block]) -> Pooled:
    """Of the blocks that have members and evaluation non-members; there is at least one."""
    return pool(parts_of([b for b in blocks if len(b.members) and len(b.evaluation)]))


def delong_variance(by_member: Floats, by_nonmember: Floats) -> float:
    """DeLong's variance of the AUC, for independent records."""
    m, n = len(by_member), len(by_nonmember)
    of_members = float(np.var(by_member, ddof=1)) / m if m > 1 else 0.0
    of_nonmembers = float(np.var(by_nonmember, ddof=1)) / n if n > 1 else 0.0
    return of_members + of_nonmembers


@dataclass(frozen=True, kw_only=True)
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
    by_member, by_nonmember = block.placements
    m, n = len(by_member), len(by_nonmember)
    naive = delong_variance(by_member, by_nonmember)
    influence = np.concatenate([(by_member - by_member.mean()) / m, (by_nonmember - by_nonmember.mean()) / n])
    if whose is not None and block.of_several:
        influence *= _without_oneself(whose, m)
    worst = np.concatenate([lowest(block.members, 0.1), lowest(-block.evaluation, 0.1)])
    return BlockAuc(
        value=float(by_member.mean()),
        size=(m, n),
        variance=naive,
        influence=influence,
        whose=whose,
        of_several=block.of_several,
        tied=block.untied,
        worst=worst,
    )


def _without_oneself(whose: Ints, members: int) -> Floats:
    """The factor by which a subject's deviation from the mean grows if the subject is left out of that mean (the
    jackknife's correction): a subject with many records draws the mean towards itself. The factor is at most 2, which a
    subject with half of all records has, so that its square counts at most four times."""
    shares = []
    for side in (whose[:members], whose[members:]):
        shares.append(np.bincount(side)[side] / len(side))
    return np.asarray(1 / (1 - np.minimum(np.concatenate(shares), 0.5)))


@dataclass(frozen=True, kw_only=True)
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
        return Pooled(
            value=value,
            sizes=sizes,
            variance=variance,
            third=third,
            comparisons=counted,
            tied=[part.tied for part in parts],
        )
    shared = [(weight * part.influence, part.whose) for weight, part in weighed if part.of_several]
    whose = np.concatenate([own for _, own in shared if own is not None])
    sums = np.asarray(np.bincount(whose, np.concatenate([influence for influence, _ in shared])), np.float64)
    variance, third = variance + float(np.sum(sums**2)), third + _cubes(sums)
    counted += of_people(people, float(sum(weight for weight, part in weighed if part.of_several)))
    return Pooled(
        value=value,
        sizes=sizes,
        variance=variance,
        third=third,
        comparisons=counted,
        people=people,
        worth=_worth(parts),
    )


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


# ---------------------- ends where few records carry the error, as near AUC 1

# If one outsider in a thousand lies above all members, most samples have none or few of them, and no variance that was
# measured tells how many there really are. So one record is added that errs as badly as can be (for the lower end) or
# not at all (for the upper one), and all records are weighted at random (the Bayesian bootstrap; Gaffke 2005). For a
# share of records this is Clopper and Pearson's interval. The weighted mean is described by its first three moments, as
# a gamma variable: that is what a few records among many that err alike give, and many records are nearly normal.
#
# How skewed that variable is says how few records carry the error: 2 for one record, 2 / sqrt(k) for k that err alike.
# `SKEWED` is where these ends count in full; below it, they count in proportion.


SKEWED = 0.5

End = tuple[float, float]  # where it lies, and how much it counts: 0 to 1


def rare_ends(value: float, variance: float, third: float, one: float, alpha: float) -> tuple[End, End]:
    """The lower and the upper end of an AUC. `third`: the sum of the cubes of what each record, or subject, adds to the
    AUC's error; `one`: the most that one of them counts."""
    error = 1 - value
    worst, best = one * value, one * error
    below = error + worst, variance + worst**2, 2 * (worst**3 - third)
    above = error - best, variance + best**2, -2 * (best**3 + third)
    ends = 1 - gamma_quantile(*below, 1 - alpha / 2), 1 - gamma_quantile(*above, alpha / 2)
    return (max(ends[0], 0.0), _weight(*below[1:])), (min(ends[1], 1.0), _weight(*above[1:]))


def widened(ends: tuple[float, float], rare: tuple[End, End]) -> tuple[float, float]:
    """An interval that is right where many records carry the error, widened as far as these ends count."""
    (low, high), (below, above) = ends, rare
    return low + below[1] * min(below[0] - low, 0.0), high + above[1] * max(above[0] - high, 0.0)


def gamma_quantile(mean: float, variance: float, third: float, chance: float) -> float:
    """The quantile of a gamma variable, shifted and if need be mirrored, with this third central moment."""
    skewness = _skewness(variance, third)
    if skewness < 0:
        return -gamma_quantile(-mean, variance, -third, 1 - chance)
    deviation = math.sqrt(variance)
    if skewness < 1e-4:
        return mean + deviation * float(special.ndtri(chance))
    shape, scale = 4 / skewness**2, deviation * skewness / 2
    return mean + scale * (float(special.gammaincinv(shape, chance)) - shape)


def _skewness(variance: float, third: float) -> float:
    return third / variance**1.5 if variance > 0 else 0.0


def _weight(variance: float, third: float) -> float:
    return min(abs(_skewness(variance, third)) / SKEWED, 1.0)


# ---------------------- ends that are proved for every distribution of independent scores

# Pair the members with outsiders, nobody twice: k = min(members, outsiders) independent comparisons. The AUC is the
# mean over all such pairings. So for every convex f, f(AUC) is on average at most what a mean of k independent numbers
# between 0 and 1 gives, and that at most what k coins with the same mean give (Hoeffding 1963, section 5; 1956). With
# f(s) = max(s - t, 0) it follows that k AUC reaches x with probability at most E max(S - t, 0) / (x - t), where S is
# binomial and t < x may be chosen. This is sharper than Chernoff's bound (t is where Chernoff has an exponential), and
# at AUC 1 it is theta^k, Clopper and Pearson's limit.
#
# Several parties are weighted by their pairs. Each record then has a share in the AUC's weight, and the mean over all
# pairings can be written so that no comparison counts more than the largest share on either side, `weight`. A coin that
# counts less is never spread more widely than one that counts `weight` and falls accordingly less often: again a
# binomial, with the comparisons of all parties.
#
# Where people have several records, people take the place of records, because all records of one person may err
# together. If everybody has equally many, the ends are proved for independent people. If not, there are as many
# comparisons as equally large people would give who tell as much (Kish's effective number); that is simulated in
# docs/coverage.md, and not proved.


_TRIED = 24  # values of t near the best one; each gives a bound that holds
_EXACT = 1e-10


@dataclass(frozen=True)
class Comparisons:
    """How many independent comparisons an AUC holds, and the most that one of them counts."""

    trials: int
    weight: float

    def __add__(self, other: Comparisons) -> Comparisons:
        return Comparisons(self.trials + other.trials, max(self.weight, other.weight))


NONE = Comparisons(0, 0.0)


def of_records(size: tuple[int, int], weight: float) -> Comparisons:
    """One party in which every record stands for itself; `weight`: its own in the AUC."""
    return Comparisons(min(size), float(weight / min(size)))


def of_people(people: float, weight: float) -> Comparisons:
    """So many effective people on the side that has fewer; `weight`: that of their records in the AUC."""
    trials = max(math.floor(people + 1e-9), 1)
    return Comparisons(trials, weight / trials)


def guaranteed_ends(value: float, of: Comparisons, alpha: float) -> tuple[float, float]:
    """The lower and the upper end, each missed by at most alpha / 2."""
    return _least(value, of.trials, of.weight, alpha / 2), 1 - _least(1 - value, of.trials, of.weight, alpha / 2)


@lru_cache(maxsize=64)
def _least(value: float, trials: int, weight: float, alpha: float) -> float:
    """The smallest AUC at which reaching `value` has a chance that may be above alpha."""
    if value <= 0:
        return 0.0

    def surplus(theta: float) -> float:
        return reached(value, theta, trials, weight) - alpha

    return float(optimize.brentq(surplus, _EXACT, value, xtol=_EXACT)) if surplus(_EXACT) < 0 else 0.0


def reached(value: float, theta: float, trials: int, weight: float) -> float:
    """The most that the chance of an AUC of at least `value` can be if the true one is `theta`. With unequal parties,
    coins for wins and coins for losses give two bounds; the smaller one counts."""
    wins = at_least(value / weight, trials, min(theta / weight / trials, 1.0))
    if weight * trials < 1 + 1e-9:
        return wins
    losses = at_least(trials - (1 - value) / weight, trials, 1 - min((1 - theta) / weight / trials, 1.0))
    return min(wins, losses)


def at_least(count: float, trials: int, chance: float) -> float:
    """A bound of the chance that a sum, less spread than this binomial in the convex order, is at least `count`."""
    count = min(count, float(trials))  # rounding
    if count <= trials * chance:
        return 1.0
    top = math.ceil(count - 1e-9) - 1
    far = 2 * math.sqrt(trials * chance * (1 - chance)) + 4
    tried = np.arange(float(top), max(count - far, 0.0) - 1e-9, -math.ceil(far / _TRIED))
    bounds = _excess(tried, trials, chance) / (count - tried)
    exact = chance**trials if count > trials - 1e-9 else 1.0
    return float(min(bounds.min(), exact, 1.0))


def _excess(tried: Floats, trials: int, chance: float) -> Floats:
    """E max(S - t, 0) for a binomial S: its mean times the chance of at least t - 1 in one trial less, minus t times
    the chance of at least t."""
    more = special.bdtrc(tried - 1, trials, chance)
    one_less = special.bdtrc(tried - 2, trials - 1, chance) if trials > 1 else np.ones(len(tried))
    return np.asarray(trials * chance * np.where(tried > 1, one_less, 1.0) - tried * np.where(tried > 0, more, 1.0))
