"""Scores that may be compared with one another, the subjects they belong to, and where a threshold on them lies.

Records of one subject are not independent. Where subjects are known, variances are computed over subjects. A subject
may have records in several blocks (one person in several hospitals), so its name must be the same in all of them.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.types import Bools, Floats, Ints, Strings

Groups = NDArray[Any]  # a name or a number for each record: whose it is
# The least number of subjects on each side for which 95 % intervals miss about 5 % of the time. Simulated with 20
# records per subject, where the subject explains 30-95 % of the variance. With Student's t and 8 subjects, the worst
# case misses 8 %; with 5 subjects, 15 %.
FEW = 8
Numbers = Sequence[Ints | None]  # for each block: whose each record is, as small numbers; None: all independent


@dataclass(frozen=True)
class Block:
    """Scores that may be compared with one another. Local models of several parties are several blocks.

    `subjects` names the subject of each score, for members, evaluation and calibration in turn; None: all independent.
    `ids` names the records, in the same order: only comparisons on the same records need them. `party`: whose scores
    these are, if they are one party's.
    """

    members: Floats
    evaluation: Floats
    calibration: Floats
    subjects: tuple[Groups, Groups, Groups] | None = None
    ids: tuple[Groups, Groups, Groups] | None = None
    _: KW_ONLY
    party: str = ""

    @cached_property
    def calibration_numbers(self) -> Ints | None:
        """Whose each calibration score is."""
        return None if self.subjects is None else numbered([self.subjects[2]])[0]

    @cached_property
    def of_several(self) -> bool:
        """Is there more than one subject? If not, the results are about the records of that one person."""
        names = [own for own in self.subjects or () if len(own)]
        return any(bool((own != names[0][0]).any()) for own in names)

    @cached_property
    def descending(self) -> Floats:
        """The calibration scores by rank: 0 is above all of them, 1 the largest."""
        return np.concatenate([[np.inf], np.sort(self.calibration)[::-1], [-np.inf]])

    @cached_property
    def rising(self) -> Floats:
        """The members' scores, sorted."""
        return np.sort(self.members)

    @cached_property
    def placements(self) -> tuple[Floats, Floats]:
        """For each member the share of evaluation non-members that it beats; for each of these the share of members
        that beat it. Ties count half."""
        return _beaten(self.members, np.sort(self.evaluation)), 1 - _beaten(self.evaluation, self.rising)

    @cached_property
    def untied(self) -> float:
        """The factor by which ties between members and evaluation non-members lower the variance of the AUC.

        It is 1 minus the sum of cubes of the share that has each value, as in the Mann-Whitney test. Where the shares
        of the two sides differ, the smaller one counts. Two records more on each side, which tie with nobody, stand for
        values that have not been seen yet: scores that are all equal so far prove nothing.
        """
        others = np.sort(self.evaluation)
        values = np.unique(self.members[_equal(others, self.members) > 0])
        shares = [_equal(side, values) / (len(side) + 2) for side in (self.rising, others)]
        return 1 - float(np.sum(np.minimum(*shares) ** 3))

    def accused(self, scores: Floats, rank: float, spread: float = 1.0) -> Floats:
        """For each score its weight clip((rank - above) / (tied + spread), 0, 1), by the calibration scores above it
        and equal to it: the chance that it is accused when coins decide about ties, and about the fraction of a rank.
        `spread`: how many calibration scores tell as much as one independent score."""
        low, high = self._zone(rank, spread)
        found, open_ = (scores > high).astype(np.float64), (scores >= low) & (scores <= high)
        found[open_] = self._weights(scores[open_], rank, spread)
        return found

    def accusations(self, scores: Floats, rank: float, spread: float = 1.0) -> float:
        """The sum of `accused`, the same bits in whatever order the scores are stored."""
        low, high = self._zone(rank, spread)
        doubtful = np.sort(scores[(scores >= low) & (scores <= high)])
        return float(np.count_nonzero(scores > high) + self._weights(doubtful, rank, spread).sum())

    def _zone(self, rank: float, spread: float) -> tuple[float, float]:
        """Below the first nobody is accused, above the second everybody is for certain."""
        last = min(math.ceil(rank), len(self.calibration) + 1)
        return float(self.descending[last]), float(self.descending[max(math.floor(rank - spread) + 1, 0)])

    def _weights(self, scores: Floats, rank: float, spread: float) -> Floats:
        above, tied = self._beside(scores)
        return np.asarray(np.clip((rank - above) / (tied + spread), 0.0, 1.0))

    def _beside(self, scores: Floats) -> tuple[Ints, Ints]:
        """For each score how many calibration scores lie above it, and how many equal it."""
        rising = self.descending[-2:0:-1]
        above = len(rising) - np.searchsorted(rising, scores, side="right")
        return above, len(rising) - np.searchsorted(rising, scores, side="left") - above

    def hits(self, ranks: Ints) -> Floats:
        """How many members are accused at each of these ranks; members tied with the threshold count in part."""
        thresholds, rising = self.descending[ranks], self.rising
        above = len(rising) - np.searchsorted(rising, thresholds, side="right")
        tied = len(rising) - np.searchsorted(rising, thresholds, side="left") - above
        found = above.astype(np.float64)
        if tied.any():
            ahead, equal = self._beside(thresholds)
            found += tied * (ranks - ahead) / (equal + 1)
        return found


def _beaten(scores: Floats, rising: Floats) -> Floats:
    """For each score the share of the others, sorted, that lie below it; those that equal it count half."""
    if np.isnan(rising[-1]) or np.isnan(scores).any():
        return np.full(len(scores), np.nan)
    twice = np.searchsorted(rising, scores, side="left") + np.searchsorted(rising, scores, side="right")
    return np.asarray(twice / 2 / len(rising))


def _equal(rising: Floats, scores: Floats) -> Ints:
    """For each score how many of the others, sorted, equal it."""
    return np.searchsorted(rising, scores, side="right") - np.searchsorted(rising, scores, side="left")


def numbered(names: Sequence[Groups | None]) -> list[Ints | None]:
    """The subjects of all blocks, numbered together and without gaps: adding up by subject is then one pass."""
    known = [own for own in names if own is not None]
    if not known:
        return [None] * len(names)
    numbers = np.unique(np.concatenate(known), return_inverse=True)[1]
    parts = iter(np.split(numbers, np.cumsum([len(own) for own in known])[:-1]))
    return [None if own is None else next(parts) for own in names]


def effective_subjects(sets: Sequence[Ints], weights: Sequence[Floats] | None = None) -> float | None:
    """How many subjects of equal size would tell as much as these (Kish); of several sets, the smallest such number.

    None where nobody has two records, so that each record stands for itself. `weights`: how much each record counts.
    """
    found, repeated = [], False
    for i, numbers in enumerate(sets):
        shares = np.bincount(numbers, None if weights is None else weights[i])
        found.append(float(shares.sum() ** 2 / np.sum(shares**2)) if len(numbers) else 0.0)
        repeated = repeated or bool(np.bincount(numbers).max(initial=0) > 1)
    return min(found) if repeated else None


def lowest(scores: Floats, share: float) -> Bools:
    """The given share of the scores that lie lowest, rounded up, and whatever ties with them."""
    rank = max(math.ceil(share * len(scores) - 1e-9), 1) - 1
    return np.asarray(scores <= np.partition(scores, rank)[rank]) if len(scores) else np.zeros(0, bool)


def too_few(people: float | None) -> str | None:
    """Why so few subjects have no interval; None where there are enough, or where every record stands for itself."""
    if people is None or people >= FEW - 1e-9:
        return None
    needed = f"needs records of {FEW} subjects among members and among non-members"
    if math.isclose(people, round(people), abs_tol=1e-9):
        return f"{needed}, and there are {round(people)}"
    equal = f"they tell less than {math.ceil(people)} with equal shares would"
    return f"{needed}, and those there are share the records so unevenly that {equal}"


def design_effect(accused: Sequence[Floats | Bools], numbers: Numbers) -> float:
    """How many times larger the variance of a count is than if every record stood for itself; at least 1.

    `accused` are 0 or 1, or, for scores about which a coin decides, its chance; the variance of the coins is added.
    `numbers` count subjects through all blocks: what one subject adds in several of them is summed before squaring.
    """
    measured = nominal = 0.0
    parts, whose = [], []
    for weights, own in zip(accused, numbers, strict=True):
        share = float(np.mean(weights)) if len(weights) else 0.0
        independent = len(weights) * share * (1 - share)
        nominal += independent
        if own is None:
            measured += independent
        else:
            measured += float(np.sum(weights * (1 - weights)))
            parts.append(weights - share)
            whose.append(own)
    if parts:
        measured += float(np.sum(np.bincount(np.concatenate(whose), np.concatenate(parts)) ** 2))
    return measured / nominal if measured > (1 + 1e-9) * nominal else 1.0


# ------------------------------------------------------------------ a threshold, by rank among the calibration scores


def judged(numbers: Ints) -> int:
    """How many scores must lie beyond a threshold before their clustering can be judged: at least forty, and as many as
    two whole subjects have.

    Found by simulation, with correlations of 0 to .9 within subjects of 9 or 30 records or of heavy-tailed sizes.
    """
    own = np.bincount(numbers)
    return max(40, math.ceil(2 * float(np.sum(own**2)) / max(len(numbers), 1)))


def needed_for_value(fpr: float) -> int:
    """With fewer independent calibration non-members than this, of all parties together, a TPR at `fpr` has no value:
    even if every member lay above all of them, fewer than all would be accused."""
    return math.ceil(1 / fpr - 1e-9)


def needed_for_lower_end(fpr: float, confidence: float = 0.95, blocks: int = 1, guaranteed: bool = False) -> int:
    """How many independent calibration non-members each of `blocks` equal blocks must have before the lower end of a
    TPR, or its guaranteed one, can be above 0. With that many in all, it is very unlikely that none of them lies above
    the true threshold of its block."""
    alpha = (1 - confidence) / (4 if guaranteed else 2)
    together = math.ceil(math.log(alpha) / math.log1p(-fpr) - 1e-9)
    return math.ceil(max(together, needed_for_value(fpr)) / blocks)


@dataclass(frozen=True)
class Ranked:
    """One block at one FPR: the rank of the threshold in use, and what its calibration scores are worth."""

    block: Block
    fpr: float
    spread: float  # design effect of the calibration scores

    @property
    def size(self) -> int:
        return len(self.block.calibration)

    @property
    def effective(self) -> int:
        """How many independent scores would tell as much as these."""
        return int(self.size / self.spread)

    @property
    def rank(self) -> float:
        return threshold_rank(self.size, self.fpr, self.spread)

    @property
    def threshold(self) -> float:
        """A score as high as this is more likely accused than not."""
        return float(self.block.descending[max(math.floor(self.rank - self.spread / 2) + 1, 1)])

    @property
    def most(self) -> float:
        """The chance that a score above all calibration scores is accused."""
        return min(self.rank / self.spread, 1.0)

    @property
    def certain(self) -> bool:
        """Is a score above all calibration scores always accused?"""
        return self.most >= 1

    def accused(self, scores: Floats) -> Floats:
        return self.block.accused(scores, self.rank, self.spread)

    def accusations(self, scores: Floats) -> float:
        return self.block.accusations(scores, self.rank, self.spread)

    def by_people(self) -> "Ranked":
        """The same, as if all records of a person were one: for ends that must hold however its scores cluster."""
        numbers = self.block.calibration_numbers if self.block.of_several else None
        return self if numbers is None else replace(self, spread=max(self.spread, records_of_one(numbers)))

    def first_hit(self) -> int:
        """The smallest rank at which a member is accused."""
        best = self.block.rising[-1] if len(self.block.rising) else -math.inf
        return 1 + int(np.count_nonzero(self.block.calibration > best))

    def at_least(self, ahead: Ints) -> Floats:
        """The least number of members above the true quantile if `ahead` effective calibration scores lie above it."""
        return self.block.hits(np.floor(ahead * self.spread).astype(np.int64))

    def at_most(self, ahead: Ints) -> Floats:
        """The largest number of them: the next calibration score already lies below the quantile."""
        beyond = np.ceil((ahead + 1) * self.spread).astype(np.int64)
        return self.block.hits(np.minimum(beyond, self.size + 1))


def records_of_one(numbers: Ints) -> float:
    """How many records the person of a record has on average: the design effect if all records of a person err
    together."""
    own = np.bincount(numbers).astype(np.float64)
    return float(np.sum(own**2) / own.sum()) if len(numbers) else 1.0


def threshold_rank(n: int, fpr: float, spread: float = 1.0) -> float:
    """The rank of the threshold among n calibration scores of which `spread` tell as much as one independent score. It
    is no whole number: its fraction is the chance that one score more is accused.

    A score that nobody was trained on has each place among n independent ones with the same chance, so that the
    expected FPR is exactly `fpr`, however small n is.
    """
    return round(fpr * (n + spread), 9)


def ranked(block: Block, fpr: float) -> Ranked:
    """The threshold of one block. Few scores lie beyond the threshold of a small FPR, so their clustering is also
    judged at a lower threshold, and the larger design effect counts."""
    n, spread = len(block.calibration), 1.0
    if n and block.calibration_numbers is not None:
        rank = threshold_rank(n, fpr)
        ranks = rank, max(rank, float(min(judged(block.calibration_numbers), n // 2)))
        accused = (block.accused(block.calibration, rank) for rank in ranks)
        spread = max(design_effect([weights], [block.calibration_numbers]) for weights in accused)
    return Ranked(block, fpr, spread)


def calibrated(blocks: Sequence[Block]) -> list[Block]:
    """Those that have calibration scores: without any, there is no threshold."""
    return [block for block in blocks if len(block.calibration)]


def tied_share(blocks: Sequence[Block], fpr: float) -> float:
    """The share of members and calibration scores that equal their threshold, so that coins decide about them.

    If it is more than a few per cent, the score saturates or takes few values.
    """
    tied = of = 0
    for block in calibrated(blocks):
        threshold = ranked(block, fpr).threshold
        tied += sum(int(np.count_nonzero(scores == threshold)) for scores in (block.members, block.calibration))
        of += len(block.members) + len(block.calibration)
    return tied / of if of else 0.0


# ------------------------------------------------------------------ random, whatever the order of rows


def random_half(names: Strings, salt: str) -> Bools:
    """Half of the names, by hash: the same whatever the order, and all rows of a name together."""
    unique, inverse = np.unique(names, return_inverse=True)
    chosen = np.zeros(len(unique), bool)
    chosen[hash_order(unique, salt)[: len(unique) // 2]] = True
    return np.asarray(chosen[inverse])


def hash_order(names: Strings, salt: str) -> Ints:
    """A random order of the names, whatever order they come in."""
    digests = [hashlib.sha256(f"{salt}|{name}".encode()).digest() for name in names.tolist()]
    return np.array(sorted(range(len(digests)), key=digests.__getitem__), np.int64)


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
