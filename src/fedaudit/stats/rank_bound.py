"""A lower bound of epsilon from the ranks of scores: one exact test over many thresholds at once.

(epsilon, delta)-DP says of every threshold that P(member above) <= e^epsilon P(non-member above) + delta. Place each
score by the share of non-members above it: non-members are then uniform on [0, 1], and among all members that DP
allows those lie highest which are at 0 with chance delta and otherwise uniform on [0, (1 - delta) e^-epsilon]. Whatever
the mechanism, its members lie stochastically below these, ties included. So how many members exceed the largest
non-member, the second largest and so on has a known worst case, jointly for all ranks: no error has to be shared among
thresholds, and none between two rates, which is what a union bound over Clopper-Pearson limits pays for.

The statistic is the largest epsilon at which a single rank is surprising. The chance that the extreme members surprise
as much at *any* rank is exact: given how many non-members lie within the members' range, all orders are equally likely,
and orders that stay below a boundary are counted as paths on a lattice. That chance rises with epsilon, so the bound
is where it reaches the error that is allowed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fedaudit.types import Floats

Counts = NDArray[np.int64]

MOST_TRIALS = 1_000  # on one side: beyond, counting paths takes long, and a union bound takes its place
_SURPRISING = 0.3  # at a single rank, as a share of the error: it shapes the boundary and is no part of the proof
_POINTS = 64  # at which the chance at a single rank is averaged: likewise
_NEVER = 1e-12  # numbers of non-members in the members' range that are as rare as this count as crossings
_REST = 1e-4  # of the error: the chance of numbers of members at 0 that are not counted, which is added to it


def rank_bound(members: Floats, nonmembers: Floats, delta: float, alpha: float) -> float:
    """The smallest epsilon that the scores do not refute; above the true one with probability at most alpha."""
    return max(side.bound(delta, alpha / 2) for side in _sides(members, nonmembers))


def ranks_refute(members: Floats, nonmembers: Floats, epsilon: float, delta: float, alpha: float) -> bool:
    """Does the bound lie above this epsilon? The same answer for the price of one step of the search."""
    return any(side.refutes(epsilon, delta, alpha / 2) for side in _sides(members, nonmembers))


@lru_cache(maxsize=64)
def rank_ceiling(n_pos: int, n_neg: int, delta: float, alpha: float) -> float:
    """The largest epsilon that so many trials can prove: the bound when all members lie above all non-members."""
    return rank_bound(np.ones(n_pos), np.zeros(n_neg), delta, alpha)


def _sides(members: Floats, nonmembers: Floats) -> list["_Side"]:
    """DP bounds members above a threshold by non-members above it, and non-members below by members below."""
    return [_Side.of(members, nonmembers), _Side.of(-nonmembers, -members)]


def _ranks(n: int) -> Counts:
    """1, 2, 3, ... up to n, at most a twelfth apart: where many scores are equal, one rank lies near their end."""
    powers = 2 ** np.arange(0, math.log2(n) + 1 / 8, 1 / 8)
    return np.unique(np.minimum(np.round(powers), n)).astype(np.int64)


@lru_cache(maxsize=64)
def _shares_above(n: int) -> Floats:
    """Quantiles of the share of non-members above the largest of n, the second largest, and so on: rank x point."""
    ranks, points = _ranks(n)[:, None], (np.arange(_POINTS) + 0.5) / _POINTS
    return np.asarray(special.betaincinv(ranks, n - ranks + 1, points))


@dataclass(frozen=True)
class _Side:
    m: int
    n: int
    counts: Counts  # of the m that exceed each rank of the n

    @classmethod
    def of(cls, members: Floats, nonmembers: Floats) -> "_Side":
        thresholds = np.sort(nonmembers)[::-1][_ranks(len(nonmembers)) - 1]
        counts = len(members) - np.searchsorted(np.sort(members), thresholds, side="right")
        return cls(len(members), len(nonmembers), counts)

    def bound(self, delta: float, alpha: float) -> float:
        boundary = self._boundary(delta, alpha)
        return _largest(lambda epsilon: self._crossing(epsilon, delta, boundary, alpha) <= alpha, self._most)

    def refutes(self, epsilon: float, delta: float, alpha: float) -> bool:
        if epsilon >= self._most:
            return False
        return self._crossing(epsilon, delta, self._boundary(delta, alpha), alpha) <= alpha

    @property
    def _most(self) -> float:
        return math.log(self.m * self.n) + 10  # so few trials never prove more

    def _chances(self, counts: Counts, epsilon: float, delta: float) -> Floats:
        """For each rank the chance that so many of the extreme members exceed it, if it is looked at alone."""
        shares = np.minimum(math.exp(epsilon) * _shares_above(self.n) + delta, 1.0)
        least = np.maximum(counts, 1)[:, None]
        return np.where(counts < 1, 1.0, special.betainc(least, self.m - least + 1, shares).mean(axis=1))

    def _boundary(self, delta: float, alpha: float) -> Counts:
        """For each rank the most members that are less surprising than what was seen."""
        level = _SURPRISING * alpha

        def surprising(epsilon: float) -> bool:
            return bool(self._chances(self.counts, epsilon, delta).min() <= level)

        statistic = _largest(surprising, self._most)
        if statistic == 0:
            return self.counts - 1
        usual, surprises = np.zeros_like(self.counts), np.full_like(self.counts, self.m + 1)
        while (surprises - usual).max() > 1:
            middle = (usual + surprises) // 2
            is_usual = self._chances(middle, statistic, delta) > level
            usual, surprises = np.where(is_usual, middle, usual), np.where(is_usual, surprises, middle)
        return usual

    def _crossing(self, epsilon: float, delta: float, boundary: Counts, alpha: float) -> float:
        """The chance that more of the extreme members than the boundary allows exceed some rank."""
        share = (1 - delta) * math.exp(-epsilon)
        within = _binomial(self.n, share)  # non-members in the range of the members
        likely = np.flatnonzero(within > _NEVER)
        at_zero = _binomial(self.m, delta)
        counted = np.flatnonzero(at_zero > _REST * alpha / len(at_zero))
        return 1 - float(at_zero[counted] @ self._staying(counted, share, boundary, likely) @ within[likely])

    def _staying(self, at_zero: Counts, share: float, boundary: Counts, within: Counts) -> Floats:
        """The share of orders that stay within the boundary: members at 0 x non-members in the range of the others.

        An order is a walk: a member is a step up, a non-member a step to the right. A random walk that goes up with
        chance `up` meets every order of the same steps equally often; so the share is the chance that it stays within
        and ends at the corner, divided by the chance that it ends there.
        """
        m, n, heights = self.m, self.n, np.arange(self.m + 1)
        up = (m + 1) / (m + 1 + n * share)

        def chance(ups: Counts, rights: Counts | int) -> Floats:
            ways = _log_binomial(ups + rights, ups)
            return np.asarray(np.exp(ways + ups * math.log(up) + rights * math.log1p(-up)))

        walks = np.eye(m + 1)[at_zero]  # members at 0 x height: chances when the last rank was passed
        staying, passed = np.zeros((len(at_zero), n + 1)), 0
        for most_members, rank in zip([*boundary, m], [*_ranks(n), n + 1], strict=True):
            ends = within[(within >= passed) & (within < rank)]  # where walks end before they come to this rank
            staying[:, ends] = walks @ chance((m - heights)[:, None], ends - passed)
            if rank <= n:
                between = chance(heights, rank - passed - 1) * (1 - up)  # the last of its steps is to the right
                walks = np.array([np.convolve(walk, between)[: m + 1] for walk in walks])
                walks[:, most_members + 1 :] = 0.0
                if most_members < m:  # beyond the members' range all of them are above the next rank
                    staying[:, :rank] = 0.0
                passed = rank
        corner = chance((m - at_zero)[:, None], within)
        return np.minimum(np.divide(staying[:, within], corner, out=np.zeros_like(corner), where=corner > 0), 1.0)


_LOG_FACTORIALS = special.gammaln(np.arange(2 * MOST_TRIALS + 2) + 1)


def _log_binomial(n: Counts, k: Counts) -> Floats:
    return np.asarray(_LOG_FACTORIALS[n] - _LOG_FACTORIALS[k] - _LOG_FACTORIALS[n - k])


def _binomial(n: int, p: float) -> Floats:
    """Chances of 0..n successes."""
    k = np.arange(n + 1)
    return np.asarray(np.exp(_log_binomial(np.full_like(k, n), k) + special.xlogy(k, p) + special.xlog1py(n - k, -p)))


def _largest(holds: Callable[[float], bool], most: float) -> float:
    """The largest value for which it holds, if it holds up to there; 0 if nowhere."""
    if not holds(0.0):
        return 0.0
    low, high = 0.0, most
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
