"""Worlds in which a few records carry the error of an AUC: nearly all members lie above nearly all outsiders."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import integrate, stats

from docs.coverage_worlds import NORMAL, Rng, Shot, Shots, Size, World, both, shot
from fedaudit.stats import Block, auc, auc_difference, band_confidences
from fedaudit.stats.paired import auc_influence, by_unit
from fedaudit.types import Bools, Floats, Ints

Draw = Callable[[Rng, int], Floats]
FAR = 100.0  # above everybody, or below


def drawn(sizes: tuple[int, int], own: Draw, others: Draw, truth: float) -> World:
    """Members and outsiders from two distributions whose AUC is known."""
    m, n = sizes
    return lambda rng: both(auc([Block(own(rng, m), others(rng, n), np.zeros(0))]), truth)


def normal(shift: float = 0.0) -> Draw:
    return lambda rng, n: shift + rng.standard_normal(n)


def with_some(usual: Draw, share: float, at: float) -> Draw:
    """This share of the records lies elsewhere."""
    return lambda rng, n: np.where(rng.random(n) < share, at, usual(rng, n))


def outsiders_above(sizes: tuple[int, int], share: float, shift: float = FAR / 2) -> World:
    """This share of the outsiders lies above all members, the others `shift` below them, with Gaussian scores."""
    truth = (1 - share) * float(NORMAL.cdf(shift / np.sqrt(2)))
    return drawn(sizes, normal(shift), with_some(normal(), share, 3 * FAR), truth)


def members_below(sizes: tuple[int, int], share: float) -> World:
    return drawn(sizes, with_some(normal(FAR / 2), share, -FAR), normal(), 1 - share)


def long_tail(sizes: tuple[int, int], truth: float) -> World:
    """Exponential scores: the outsiders' tail reaches far up among the members."""
    mean = (1 - truth) / truth
    return drawn(sizes, lambda rng, n: -rng.exponential(mean, n), lambda rng, n: -rng.exponential(1.0, n), truth)


def heavy_tail(sizes: tuple[int, int], shift: float, degrees: float = 2.0) -> World:
    """Student's t among the outsiders."""
    of = stats.t(degrees)
    truth = float(integrate.quad(lambda x: NORMAL.pdf(x) * of.cdf(x + shift), -10, 10, epsabs=1e-12)[0])
    return drawn(sizes, normal(shift), lambda rng, n: rng.standard_t(degrees, n), truth)


def few_values(sizes: tuple[int, int], own: Sequence[float], others: Sequence[float]) -> World:
    """The chances of the values 0, 1, 2, ... on either side."""
    below = np.cumsum(others) - np.array(others) / 2

    def values(chances: Sequence[float]) -> Draw:
        return lambda rng, n: rng.choice(len(chances), n, p=chances).astype(np.float64)

    return drawn(sizes, values(own), values(others), float(np.dot(own, below)))


def parties_apart(parties: Sequence[tuple[int, int, float]]) -> World:
    """(members, outsiders, share of the outsiders above all members) of each party."""
    pairs = np.array([m * n for m, n, _ in parties], float)
    truth = float(1 - pairs @ [share for _, _, share in parties] / pairs.sum())

    def world(rng: Rng) -> Shots:
        blocks = [
            Block(normal(FAR / 2)(rng, m), with_some(normal(), share, FAR)(rng, n), np.zeros(0))
            for m, n, share in parties
        ]
        return both(auc(blocks), truth)

    return world


def people_above(members: int, people: int, size: Size, share: float, within: float = 1.0) -> World:
    """Outsiders are people with several records; of this share of the people, the share `within` of the records lies
    above all members. Every member is a person of one record."""

    def world(rng: Rng) -> Shots:
        whose = np.repeat(np.arange(people), [size(rng) for _ in range(people)])
        above = (rng.random(people) < share)[whose] & (rng.random(len(whose)) < within)
        others = np.where(above, FAR, rng.standard_normal(len(whose)))
        names = np.arange(members), members + whose, np.zeros(0, int)
        return both(auc([Block(normal(FAR / 2)(rng, members), others, np.zeros(0), names)]), 1 - share * within)

    return world


# ------------------------------------------------------------------ the same records twice, or in every round


def numbered(sizes: tuple[int, int]) -> tuple[Ints, Ints, Ints]:
    m, n = sizes
    return np.arange(m), m + np.arange(n), np.zeros(0, int)


def placed(rng: Rng, members: int, above: Bools, ids: tuple[Ints, Ints, Ints]) -> list[Block]:
    scores = np.where(above, FAR, rng.standard_normal(len(above)))
    return [Block(normal(FAR / 2)(rng, members), scores, np.zeros(0), ids=ids)]


def pair_above(sizes: tuple[int, int], shares: tuple[float, float]) -> World:
    """Two attacks on the same records: those outsiders that lie above all members by the one which has fewer of them
    also do by the other."""
    m, n = sizes
    ids = numbered(sizes)

    def world(rng: Rng) -> Shots:
        chance = rng.random(n)
        first, second = (placed(rng, m, chance < share, ids) for share in shares)
        return shot(auc_difference(first, second), shares[1] - shares[0])

    return world


@dataclass(frozen=True)
class RoundsAbove:
    """In every round, the same share of the outsiders lies above all members; most of them did in the round before."""

    sizes: tuple[int, int]
    share: float
    rounds: int
    stay: float = 0.9

    def __call__(self, rng: Rng) -> Shots:
        ids, above, each = numbered(self.sizes), rng.random(self.sizes[1]) < self.share, []
        for _ in range(self.rounds):
            each.append(placed(rng, self.sizes[0], above, ids))
            again = rng.random(len(above)) < self.share
            above = np.where(rng.random(len(above)) < self.stay, above, again)
        influences = by_unit([(auc_influence(blocks), blocks) for blocks in each])
        shared = [1 - 0.05 / self.rounds] * self.rounds
        ways = {"band": band_confidences(influences, self.rounds), "equal shares": shared}
        return {name: self._ends(each, confidences) for name, confidences in ways.items()}

    def _ends(self, each: Sequence[Sequence[Block]], confidences: Sequence[float]) -> Shot:
        found = [auc(blocks, own) for blocks, own in zip(each, confidences, strict=True)]
        lows, highs = [e.low or 0.0 for e in found], [1.0 if e.high is None else e.high for e in found]
        return Shot(np.array(lows), np.array(highs), np.full(self.rounds, 1 - self.share))
