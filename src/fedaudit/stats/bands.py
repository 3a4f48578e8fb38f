"""A band over rounds: intervals that hold for all of them together, with as little error spent on each as it takes.

The same records are scored again in every round, so that the estimates of neighbouring rounds err almost together, and
sharing the error equally among R planned rounds (alpha / R each) wastes most of it. Here alpha r / R may be spent by
round r: after each round the band is made just so wide that the chance of having left it by then, *given how the
rounds seen so far err together*, is that much. What one round did not spend, because whoever leaves its band had left
an earlier one, is left for the next. A round's band is settled when it is seen and never changes afterwards, so that a
live audit and one that replays stored rounds draw the same. No round's band is ever wider than alpha / R makes it.

How rounds err together is estimated from what each record (or subject) adds to each round's error, see `influence`;
the chance of leaving the band is that of Gaussian paths with these correlations, drawn once from a fixed seed.
"""

import math

import numpy as np
from scipy import linalg, special

from fedaudit.types import Floats

_DRAWS, _MOST = 1 << 15, 1 << 23  # paths; numbers kept of them


class Band:
    """Rounds come one at a time; each is told with which confidence its own interval belongs into the band."""

    def __init__(self, planned: int, confidence: float = 0.95, seed: int = 0):
        self.planned, self.alpha = planned, 1 - confidence
        self.draws = max(min(_DRAWS, _MOST // max(planned, 1)), 1024)
        self.rng = np.random.default_rng(seed)
        self.units: list[Floats] = []  # what each unit adds to each round's error, scaled to length 1
        self.factor = np.zeros((0, 0))  # Cholesky factor of the rounds' correlations
        self.noise = np.zeros((0, self.draws), np.float32)
        self.inside = np.ones(self.draws, bool)  # paths that have not left the band yet
        self.levels: list[float] = []

    def add(self, influence: Floats) -> float:
        """The confidence for the interval of one more round. `influence`: what each unit adds to its error, the units
        in the same order every time. Beyond the planned rounds the error is used up, and each gets alpha / planned."""
        path = self._path(influence)
        allowed = math.floor(self.alpha * min(len(self.units) / self.planned, 1.0) * self.draws)
        left = max(allowed - int(np.count_nonzero(~self.inside)), 0)
        beyond = np.sort(path[self.inside])
        drawn = float(beyond[-left - 1]) if left < len(beyond) else 0.0
        width = min(drawn, float(special.ndtri(1 - self.alpha / self.planned / 2)))
        self.inside &= path <= width
        self.levels.append(1 - 2 * float(special.ndtr(-width)))
        return self.levels[-1]

    def _path(self, influence: Floats) -> Floats:
        """How far each path is out in this round, in standard deviations."""
        length = float(np.linalg.norm(influence))
        unit = influence / length if length > 0 else influence
        with_before = np.array([float(unit @ before) for before in self.units])
        row = linalg.solve_triangular(self.factor, with_before, lower=True) if self.units else with_before
        row = row / max(float(np.linalg.norm(row)), 1.0)  # rounding, where two rounds are the same
        rest = math.sqrt(max(1 - float(row @ row), 0.0))
        size = len(self.units) + 1
        factor = np.zeros((size, size))
        factor[:-1, :-1], factor[-1, :-1], factor[-1, -1] = self.factor, row, max(rest, 1e-6)
        self.factor = factor
        self.units.append(unit)
        self.noise = np.concatenate([self.noise, self.rng.standard_normal((1, self.draws), np.float32)])
        return np.asarray(np.abs(np.append(row, rest).astype(np.float32) @ self.noise), np.float64)


def band_confidences(influences: Floats, planned: int, confidence: float = 0.95, seed: int = 0) -> list[float]:
    """All at once: rounds x units in, the confidence of each round's own interval out."""
    band = Band(planned, confidence, seed)
    return [band.add(row) for row in influences]
