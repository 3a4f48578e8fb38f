"""Attacks without training models: what a record's trajectory over the rounds reveals.

Chang, Edwards, Paul, Shokri: "Efficient Privacy Auditing in Federated Learning", USENIX Security 2024.

Adversary: any party (sees every global model), or the server (sees each party's local models as well). Nothing is
trained; one forward pass a round, two running sums a record.

1. In round u, a metric c_u of the record: loss, confidence of its label, or rescaled logit.
2. The score is the least-squares slope of c_1..c_t against the round number (members are learnt faster).
3. Members have a larger slope of confidence and logit and a smaller slope of loss, so the loss's slope is negated.

Options of the paper: `weights="printed"`, and `degree` 2 to 4 (its figure 3), the leading coefficient of the fitted
polynomial. A curve that rises fast and then levels off has derivatives of alternating sign, so the sign of the score
alternates with the degree.

Baselines of the paper, in the order of its table 2: modified entropy and loss under the last model; Fed-Loss, the mean
loss; Back-Front, the fall of the loss from the first round to the last; Delta, its largest fall between consecutive
rounds, each as a difference and as a ratio; Merlin; the gradient norm of the last layer.

Deviations:
- Equation (2) of the paper prints weights 6 (2tu - t^2 + 1) / (t^4 - t^2), which do not sum to zero, so that a constant
  series has a slope: they are least squares plus 6 mean(c) / (t (t - 1)). Least squares is used unless asked otherwise.
- Rounds in which a party took no part are gaps: sums run over the observed rounds, "first", "last" and "consecutive"
  mean observed ones, and t in the printed weights is their number.
- Ratios are compared by their logarithm, which ranks alike and neither overflows nor divides by zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack, OneSignal
from fedaudit.adversary.reductions import Kept, Last, Mean
from fedaudit.config.attack_registry import ATTACKS, Short, option
from fedaudit.errors import FedauditError
from fedaudit.types import Floats, Moment

Followed = Literal["confidence", "loss", "logit"]
SIGN = {"loss": -1.0, "confidence": 1.0, "logit": 1.0}


# ------------------------------------------------------------------ FTA


FOLLOWED: dict[Followed, str] = {
    "confidence": "the confidence in the record's label",
    "loss": "the record's loss",
    "logit": "the rescaled logit",
}


def _short_forms(signal: Followed) -> list[Short]:
    own = {} if signal == "confidence" else {"signal": signal}
    slope = Short(f"fta-{signal}", f"slope of {FOLLOWED[signal]} over the rounds", own)
    printed = f"fta-{signal} with the weights as the paper prints them"
    higher = "leading coefficient of a polynomial of degree {} in place of the slope of fta-" + signal
    return [
        slope,
        Short(f"fta-{signal}-printed", printed, own | {"weights": "printed"}),
        *(Short(f"fta-{signal}-degree{k}", higher.format(k), own | {"degree": k}) for k in (2, 3, 4)),
    ]


@ATTACKS.register(
    "fta",
    "slope of a signal of the record over the rounds",
    short=[short for signal in FOLLOWED for short in _short_forms(signal)],
)
@dataclass(frozen=True)
class FTA(BaseAttack):
    """The slope of one signal over the observed rounds; with a higher degree, the leading coefficient."""

    signal: Followed = option("confidence", "what is followed over the rounds")
    degree: int = option(1, "of the polynomial that is fitted; its leading coefficient is the score", ge=1, le=9)
    weights: Literal["least-squares", "printed"] = option("least-squares", "of the rounds, for degree 1")

    def __post_init__(self) -> None:
        if self.weights == "printed" and self.degree > 1:
            what = f"the weights that the paper prints are of a slope, and degree is {self.degree}"
            raise FedauditError("attack-options", what, "Leave out weights, or degree.")

    @property
    def signals(self) -> tuple[str, ...]:
        return (self.signal,)

    def reduce(self, n: int) -> "Slope":
        sign = SIGN[self.signal] * (-1.0) ** (self.degree - 1)
        return Slope(self.signal, sign, n, self.degree, self.weights == "printed")


class Slope(Kept):
    """Least squares online, over the rounds that were observed: the moments S_k = sum u^k c, in float64.

    Rounds are counted from the first observed one: the leading coefficient is the same, and the sums stay small. The
    normal equations hold whole numbers only and are solved exactly, so that no degree is ill-conditioned; without gaps
    their solution is the discrete (Gram) polynomial.
    """

    def __init__(self, signal: str, sign: float, n: int, degree: int = 1, printed: bool = False):
        self.signal, self.sign, self.printed = signal, sign, printed
        self.moments = np.zeros((degree + 1, n))
        self.powers = [0] * (2 * degree + 1)  # sum u^k over the observed rounds
        self.first: int | None = None

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        self.first = moment.round if self.first is None else self.first
        u, c = moment.round - self.first, values[self.signal]
        self.moments[0] += c
        for k in range(1, len(self.moments)):
            self.moments[k] += float(u**k) * c
        self.powers = [total + u**k for k, total in enumerate(self.powers)]

    def features(self) -> Floats:
        t = self.powers[0]
        if t < len(self.moments):  # one point has no slope, two have no curvature
            return np.full((self.moments.shape[1], 1), np.nan)
        slope = leading_row(self.powers) @ self.moments
        if self.printed:
            slope = slope + 6 * self.moments[0] / (t * t * (t - 1))
        return self.sign * slope[:, None]


def leading_row(powers: list[int]) -> Floats:
    """The row of the inverse normal equations that gives the leading coefficient, by exact elimination."""
    size = len(powers) // 2 + 1
    rows = [[Fraction(powers[i + j]) for j in range(size)] + [Fraction(int(i == size - 1))] for i in range(size)]
    for i in range(size):  # positive definite: no pivot is ever zero
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(size):
            if j != i:
                rows[j] = [b - rows[j][i] * a for a, b in zip(rows[i], rows[j], strict=True)]
    return np.array([float(row[-1]) for row in rows])


# ------------------------------------------------------------------ baselines: the last model alone


@dataclass(frozen=True)
class LastModel(OneSignal):
    """One signal under the last model. Members have low values, unless `sign` is positive."""

    sign: ClassVar[float] = -1.0
    every_round: ClassVar[bool] = False

    def reduce(self, n: int) -> Last:
        return Last(self.signal, self.sign, n)


@ATTACKS.register("loss", "the record's loss under the last model alone")
class LastLoss(LastModel):
    signal = "loss"


@ATTACKS.register("modified-entropy", "entropy of the last model's answer, corrected by the label")
class ModifiedEntropy(LastModel):
    signal = "modified-entropy"


@ATTACKS.register("gradient-norm", "gradient norm of the last model's last layer, without a backward pass")
class GradientNorm(LastModel):
    signal = "gradient-norm"


@ATTACKS.register(
    "merlin",
    "how often noise on the record makes the last model's loss rise; 100 passes",
    brief="how often noise on the record makes the last model's loss rise",
)
class Merlin(LastModel):
    """How often noise makes the loss rise. For members it often does, because they lie near a minimum of the loss."""

    signal = "merlin"
    sign = 1.0
    deferred = True


# ------------------------------------------------------------------ baselines: the loss over the rounds


@ATTACKS.register("fed-loss", "mean loss over the rounds")
@dataclass(frozen=True)
class FedLoss(OneSignal):
    """The mean loss over the observed rounds."""

    signal: ClassVar[str] = "loss"

    def reduce(self, n: int) -> "Mean":
        return Mean("loss", n, -1.0)


@dataclass(frozen=True)
class Fall(OneSignal):
    """How far the loss fell."""

    signal: ClassVar[str] = "loss"
    between_consecutive: ClassVar[bool]
    measure: Literal["diff", "ratio"] = option("diff", "the fall as a difference, or as a ratio")

    def reduce(self, n: int) -> "Falls":
        return Falls(self.between_consecutive, self.measure == "ratio", n)


@ATTACKS.register(
    "back-front",
    "fall of the loss from the first round to the last",
    short=[
        Short("back-front-diff", "fall of the loss from the first round to the last"),
        Short("back-front-ratio", "the same fall as a ratio", {"measure": "ratio"}),
    ],
)
class BackFront(Fall):
    between_consecutive = False


@ATTACKS.register(
    "delta",
    "largest fall of the loss between consecutive rounds",
    short=[
        Short("delta-diff", "largest fall of the loss between consecutive rounds"),
        Short("delta-ratio", "the same fall as a ratio", {"measure": "ratio"}),
    ],
)
class Delta(Fall):
    between_consecutive = True


class Falls(Kept):
    """Back-front keeps the first loss and the fall since; delta the loss before and the largest fall so far."""

    def __init__(self, between_consecutive: bool, ratio: bool, n: int):
        self.between_consecutive, self.ratio = between_consecutive, ratio
        self.before: Floats | None = None
        self.fall: Floats = np.full(n, np.nan)

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        loss = values["loss"]
        level = np.log(np.maximum(loss, np.finfo(np.float64).tiny)) if self.ratio else loss
        if self.before is None:
            self.before = level
        elif self.between_consecutive:
            self.fall = np.fmax(self.fall, self.before - level)  # NaN until the second round
            self.before = level
        else:
            self.fall = self.before - level

    def features(self) -> Floats:
        return self.fall[:, None]
