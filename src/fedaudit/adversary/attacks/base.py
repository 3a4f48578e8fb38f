"""What attacks share. An author writes `reduce` and `score`; the base holds the defaults, the auditor checks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from fedaudit.types import Floats, Grant, ModelKind, Reduction


@dataclass(frozen=True)
class BaseAttack:
    """Frozen hyperparameters, no state. Subclasses orient their scores: higher = member."""

    needs: ClassVar[frozenset[Grant]] = frozenset({Grant.OUTPUTS})
    fits: ClassVar[bool] = False  # True: `fit` uses half of the calibration non-members
    # True: only the last round counts and its signals are dear, so they are measured when a score is asked for.
    deferred: ClassVar[bool] = False
    models: ClassVar[tuple[ModelKind, ...]] = ("global", "local")  # what it can look at
    learns: ClassVar[bool] = False  # True: trained on an adversary's own records under a shadow model (see `series`)

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def signals(self) -> tuple[str, ...]:
        raise NotImplementedError

    def reduce(self, n: int) -> Reduction:
        raise NotImplementedError

    def fit(self, reference: Floats) -> Self:
        return self

    def score(self, features: Floats) -> Floats:
        return features[:, 0]


class Last:
    """Keeps the last observed value of one signal, times a sign."""

    def __init__(self, signal: str, sign: float, n: int):
        self.signal, self.sign = signal, sign
        self.values: Floats = np.full(n, np.nan)

    def observe(self, round: int, values: Mapping[str, Floats]) -> None:
        self.values = self.sign * values[self.signal]

    def features(self) -> Floats:
        return self.values[:, None]
