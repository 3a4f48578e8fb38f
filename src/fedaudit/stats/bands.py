"""A band over rounds: intervals that hold for all rounds together, each no wider than that requires.

The same records are scored again in every round, so that the errors of neighbouring rounds are almost the same, and
sharing the error equally among R planned rounds (alpha / R each) wastes most of it. Here a total of alpha r / R may be
spent up to round r: the band of each round is just wide enough that the chance of having left the band by then, *given
how the errors of the rounds so far are correlated*, equals this total. Most paths that are outside the band in one
round have already left it in an earlier one. Such a round spends little, and the rest remains for the rounds after it.
A round's band is settled when the round is seen and never changes afterwards, so that a live audit and one that replays
stored rounds draw the same band. No round's band is ever wider than alpha / R makes it.

How rounds err together is estimated from what each record (or subject) adds to each round's error;
the chance of leaving the band is that of Gaussian paths with these correlations, drawn once from a fixed seed. Of very
many records only random sums are kept (a linear sketch), so that memory does not grow with them; sums of squares, and
those of differences between rounds, come out the same to about 2 per cent.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from fedaudit.types import Floats, Ints, Stored

_DRAWS, _MOST = 1 << 15, 1 << 23  # paths; numbers drawn for them
_CELLS = 4096  # random sums that are kept of more units than this


class Band:
    """Rounds come one at a time; for each, the band says with which confidence its own interval must be computed."""

    def __init__(self, planned: int, confidence: float = 0.95, seed: int = 0):
        self.planned, self.alpha, self.seed = planned, 1 - confidence, seed
        self.draws = max(min(_DRAWS, _MOST // max(planned, 1)), 1024)
        self.units: list[Floats] = []  # what each unit adds to each round's error, scaled to length 1
        self.factor = np.zeros((0, 0))  # Cholesky factor of the rounds' correlations
        self.inside = np.ones(self.draws, bool)  # paths that have not left the band yet
        self.levels: list[float] = []

    @property
    def equal_share(self) -> float:
        """The confidence of a round's interval if every round gets an equal share of the error."""
        return 1 - self.alpha / self.planned

    def add(self, influence: Floats) -> float:
        """The confidence for the interval of one more round. `influence`: what each unit adds to its error, the units
        in the same order every time. Beyond the planned rounds the error is used up, and each gets alpha / planned."""
        if len(self.levels) >= self.planned:
            self.levels.append(self.equal_share)
            return self.equal_share
        path = self._path(influence)
        allowed = math.floor(self.alpha * len(self.units) / self.planned * self.draws)
        left = max(allowed - int(np.count_nonzero(~self.inside)), 0)
        beyond = path[self.inside]
        at = len(beyond) - left - 1
        drawn = float(np.partition(beyond, at)[at]) if at >= 0 else 0.0
        width = min(drawn, float(special.ndtri(1 - self.alpha / self.planned / 2)))
        self.inside &= path <= width
        self.levels.append(1 - 2 * float(special.ndtr(-width)))
        return self.levels[-1]

    def correlation(self, one: int, other: int) -> float:
        """The correlation of the errors of two rounds, numbered in the order in which they were added."""
        return float(np.clip(self.units[one] @ self.units[other], -1.0, 1.0))

    def _path(self, influence: Floats) -> Floats:
        """How far each path is out in this round, in standard deviations."""
        sums = _sketch(influence)
        length = float(np.linalg.norm(sums))
        unit = sums / length if length > 0 else sums
        with_before = np.array([float(unit @ before) for before in self.units])
        row = linalg.solve_triangular(self.factor, with_before, lower=True) if self.units else with_before
        row = row / max(float(np.linalg.norm(row)), 1.0)  # rounding, where two rounds are the same
        rest = math.sqrt(max(1 - float(row @ row), 0.0))
        size = len(self.units) + 1
        factor = np.zeros((size, size))
        factor[:-1, :-1], factor[-1, :-1], factor[-1, -1] = self.factor, row, max(rest, 1e-6)
        self.factor = factor
        self.units.append(unit)
        noise = _noise(self.planned, self.draws, self.seed)[:size]
        return np.asarray(np.abs(np.append(row, rest).astype(np.float32) @ noise), np.float64)

    # ------------------------------------------------------------------ between two rounds

    def state(self) -> Stored:
        """Everything needed to go on with the next round, as arrays and plain values."""
        units = np.array(self.units) if self.units else np.zeros((0, 0))
        return {"units": units, "factor": self.factor, "inside": self.inside, "levels": list(self.levels)}

    def restore(self, state: Stored) -> None:
        self.units, self.levels = list(np.asarray(state["units"])), list(state["levels"])
        self.factor, self.inside = np.asarray(state["factor"]), np.array(state["inside"], bool)


@lru_cache(maxsize=2)  # the same for every band of an audit
def _noise(rounds: int, draws: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rounds, draws), np.float32)


def _sketch(influence: Floats) -> Floats:
    if len(influence) <= _CELLS:
        return influence
    cells, signs = _cells(len(influence))
    return np.asarray(np.bincount(cells, signs * influence, _CELLS), np.float64)


@lru_cache(maxsize=2)
def _cells(units: int) -> tuple[Ints, Floats]:
    """For each unit the sum that it is counted in, and with which sign."""
    rng = np.random.default_rng(units)
    return rng.integers(0, _CELLS, units), rng.choice([-1.0, 1.0], units)


def band_confidences(influences: Floats, planned: int, confidence: float = 0.95, seed: int = 0) -> list[float]:
    """All at once: rounds x units in, the confidence of each round's own interval out."""
    band = Band(planned, confidence, seed)
    return [band.add(row) for row in influences]
