"""Free-training attacks: what a record's trajectory over the rounds gives away.

Chang, Edwards, Paul, Shokri: "Efficient Privacy Auditing in Federated Learning", USENIX Security 2024.

Adversary: any party (sees every global model), or the server (sees each party's local models as well). Nothing is
trained; one forward pass a round, two running sums a record.

1. In round u, a metric c_u of the record: loss, confidence of its label, or rescaled logit.
2. The score is the least-squares slope of c_1..c_t against the round number (members are learnt faster).
3. Members have a larger slope of confidence and logit and a smaller slope of loss, so the loss's slope is negated.

Baseline of the paper: the loss under the last model alone (`loss`).

Deviation: equation (2) of the paper prints weights 6 (2tu - t^2 + 1) / (t^4 - t^2), which do not sum to zero, so that
a constant series has a slope. Least squares is used here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedaudit.attacks.base import BaseAttack, Last
from fedaudit.types import Floats, Grant

SIGN = {"loss": -1.0, "confidence": 1.0, "logit": 1.0}


@dataclass(frozen=True)
class FTA(BaseAttack):
    """The slope of one metric over the observed rounds."""

    metric: str
    needs: ClassVar[frozenset[Grant]] = frozenset({Grant.OUTPUTS, Grant.EVERY_ROUND})

    @property
    def name(self) -> str:
        return f"fta-{self.metric}"

    @property
    def signals(self) -> tuple[str, ...]:
        return (self.metric,)

    def reduce(self, n: int) -> "Slope":
        return Slope(self.metric, SIGN[self.metric], n)


class Slope:
    """Least squares online, over the rounds that were observed: S0 = sum c, S1 = sum u c, in float64.

    Rounds are counted from the first observed one: the slope is the same, and the sums stay small.
    """

    def __init__(self, signal: str, sign: float, n: int):
        self.signal, self.sign = signal, sign
        self.s0, self.s1 = np.zeros(n), np.zeros(n)
        self.first: int | None = None
        self.n = self.u1 = self.u2 = 0

    def observe(self, round: int, values: Mapping[str, Floats]) -> None:
        self.first = round if self.first is None else self.first
        u, c = round - self.first, values[self.signal]
        self.s0 += c
        self.s1 += u * c
        self.n, self.u1, self.u2 = self.n + 1, self.u1 + u, self.u2 + u * u

    def features(self) -> Floats:
        if self.n < 2:  # one point has no slope
            return np.full((len(self.s0), 1), np.nan)
        slope = (self.n * self.s1 - self.u1 * self.s0) / (self.n * self.u2 - self.u1**2)
        return self.sign * slope[:, None]


@dataclass(frozen=True)
class LastLoss(BaseAttack):
    """The loss under the last model alone."""

    @property
    def name(self) -> str:
        return "loss"

    @property
    def signals(self) -> tuple[str, ...]:
        return ("loss",)

    def reduce(self, n: int) -> Last:
        return Last("loss", -1.0, n)
