"""Attacks with reference models: would the target look like this if it had been trained on the record?

KTA: Chang, Edwards, Paul, Shokri: "Efficient Privacy Auditing in Federated Learning", USENIX Security 2024, section 6.
LiRA: Carlini et al., S&P 2022. Distillation: Ye et al., CCS 2022 (attack D). RMIA: Zarifzadeh, Liu, Shokri, ICML 2024.

Adversary: a party that invests computation. *Informed* attacks are a party's audit of itself: its references are
trained on its own records, each in half of the sets. *Outside* attacks (`outside-...`) use references trained on data
of the adversary's own, and so know only how a record looks to models that never saw it.

1. A bank of references follows the federation, as many epochs a round as a party (`adversary.shadow`); alpha says how
   much they imitate the target: as configured for KTA, 0 for LiRA and RMIA, 1 for distillation.
2. A statistic of the record under the target and under every reference: the slope of a metric over the rounds (kta-*,
   rmia-slope), or the rescaled logit under the last model (the others).
3. kta-*, lira: one Gaussian for the references that had the record, one for those that had not; the score is the log
   of the likelihood ratio IN : OUT at the target's statistic.
   distillation: how far the target lies above the OUT references, in standard deviations; distillation-fraction: the
   share of the OUT references with a larger loss.
   rmia: log Pr(x | target) - log mean over the references of Pr(x | reference); rmia-slope: slope of the logit under
   the target minus its mean under the references, which is the slope of such a log-ratio.
   outside-kta-*, outside-lira: one Gaussian, as distillation; outside-rmia as rmia.

Deviations:
- Algorithm 2 of the paper prints OUT : IN, which is low for members; it is oriented here.
- `variance = "shared"`: the mean over the records of their variances, one for IN and one for OUT, because eight values
  hardly know a variance. "record" is the paper's way. (LiRA's fixed variance takes in the differences between records,
  too; these are not noise, so they are left out here.)
- RMIA compares a record's ratio with those of a population. That changes no rank, and calibration is the auditor's.
- Where a record has a class at each of several positions, its logit is the mean over them, and rmia's Pr(x) the
  probability of a position with that logit.
- A fraction of N/2 references takes N/2 + 1 values and rarely has a threshold at 1 %; hence the continuous form.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.attacks.trajectory import SIGN, Followed, Slope
from fedaudit.adversary.reductions import Kept, Last
from fedaudit.adversary.shadow import INSIDE
from fedaudit.config.attack_registry import ATTACKS, Short, option, option_of
from fedaudit.config.attacks import ReferenceSection
from fedaudit.config.schema import AuditSection
from fedaudit.errors import FedauditError
from fedaudit.types import Bools, Floats, Moment, Stored

Variance = Literal["shared", "record"]


OUTSIDE = "are the reference models trained on data of an outsider's own?"


@dataclass(frozen=True)
class ReferenceAttack(BaseAttack):
    """A statistic of one metric under the target, and under every model of a bank."""

    @property
    def bank(self) -> str:
        raise NotImplementedError

    @property
    def metric(self) -> str:
        return "logit"

    @property
    def slope(self) -> bool:
        """Over the rounds; else the last value."""
        return False

    @property
    def outside(self) -> bool:
        return False

    @property
    def every_round(self) -> bool:
        return self.slope

    @property
    def deferred(self) -> bool:
        return not self.slope

    @property
    def signals(self) -> tuple[str, ...]:
        return (self.metric, self.of_references) if self.outside else (self.metric, self.of_references, INSIDE)

    @property
    def of_references(self) -> str:
        return f"{'outside-' * self.outside}{self.bank}-{self.metric}"

    def reduce(self, n: int) -> "Beside":
        return Beside(self.metric, self.of_references, self.slope, n)

    def score(self, features: Floats) -> Floats:
        target, references, inside = split(features)
        if np.isnan(target).all():  # not enough rounds yet
            return target
        return self.compare(target, references, inside)

    def compare(self, target: Floats, references: Floats, inside: Bools) -> Floats:
        raise NotImplementedError


class Beside(Kept):
    """The target's statistic, the references', and which of them had the record: 1 + N + N columns."""

    def __init__(self, metric: str, of_references: str, slope: bool, n: int):
        self.metric, self.of_references, self.slope, self.n = metric, of_references, slope, n
        self.target = self._statistic(metric)
        self.references: list[Kept] = []
        self.inside: Bools | None = None

    def _statistic(self, signal: str) -> Kept:
        return Slope(signal, 1.0, self.n) if self.slope else Last(signal, 1.0, self.n)

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        of_references = values[self.of_references]
        if not self.references:
            self.references = [self._statistic(self.of_references) for _ in of_references.T]
            self.inside = np.asarray(values.get(INSIDE, np.zeros(of_references.shape)), bool)
        self.target.observe(moment, values)
        for reference, column in zip(self.references, of_references.T, strict=True):
            reference.observe(moment, {self.of_references: column})

    def restore(self, state: Stored) -> None:
        self.references = [self._statistic(self.of_references) for _ in state["references"]]
        super().restore(state)

    def features(self) -> Floats:
        if self.inside is None:
            return np.full((self.n, 1), np.nan)
        columns = [reduction.features() for reduction in (self.target, *self.references)]
        return np.column_stack([*columns, self.inside])


def split(features: Floats) -> tuple[Floats, Floats, Bools]:
    models = (features.shape[1] - 1) // 2
    return features[:, 0], features[:, 1 : 1 + models], features[:, 1 + models :] > 0


def gaussian(values: Floats, chosen: Bools, variance: Variance) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the chosen references, for every record."""
    count = chosen.sum(axis=1)
    mean = np.where(chosen, values, 0.0).sum(axis=1) / count
    squares = np.where(chosen, (values - mean[:, None]) ** 2, 0.0).sum(axis=1) / np.maximum(count - 1, 1)
    if variance == "shared":
        defined = squares[~np.isnan(squares)]  # a record without a value takes nobody else's
        squares = np.full_like(squares, (defined if len(defined) else squares).mean())
    return mean, np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))


# ------------------------------------------------------------------ likelihood ratios


@dataclass(frozen=True)
class Gaussians(ReferenceAttack):
    """IN against OUT where both are known, else how far beyond OUT on the members' side. `spread`: the variance that
    [audit.reference] says."""

    outside: bool = option(False, OUTSIDE)
    variance: Variance | None = option_of(ReferenceSection, "variance")
    spread: Variance = "shared"

    def configured(self, audit: AuditSection) -> Self:
        return replace(self, spread=audit.reference.spread)

    def compare(self, target: Floats, references: Floats, inside: Bools) -> Floats:
        mean_out, sd_out = gaussian(references, ~inside, self.variance or self.spread)
        above_out = (target - mean_out) / sd_out
        if self.outside:
            return SIGN[self.metric] * above_out
        mean_in, sd_in = gaussian(references, inside, self.variance or self.spread)
        above_in = (target - mean_in) / sd_in
        return (above_out**2 - above_in**2) / 2 + np.log(sd_out / sd_in)


@ATTACKS.register(
    "kta",
    "slope of a signal, judged by reference models that imitate the target",
    short=[
        Short("kta-confidence", "slope of the confidence, judged by reference models that imitate the target"),
        Short("kta-loss", "the same with the slope of the loss", {"signal": "loss"}),
        Short("kta-logit", "the same with the slope of the rescaled logit", {"signal": "logit"}),
        Short(
            "outside-kta-confidence",
            "kta-confidence with reference models on an outsider's own data",
            {"outside": True},
        ),
    ],
)
@dataclass(frozen=True)
class KTA(Gaussians):
    signal: Followed = option("confidence", "what is followed over the rounds")
    bank: ClassVar[str] = "reference"
    slope: ClassVar[bool] = True

    @property
    def metric(self) -> str:
        return self.signal


@ATTACKS.register(
    "lira",
    "logit under the last model, judged by reference models",
    short=[
        Short("lira", "logit under the last model, judged by reference models with and without the record"),
        Short("outside-lira", "lira with reference models on an outsider's own data", {"outside": True}),
    ],
)
@dataclass(frozen=True)
class LiRA(Gaussians):
    bank: ClassVar[str] = "plain-reference"


# ------------------------------------------------------------------ distillation


@ATTACKS.register(
    "distillation",
    "logit, relative to models distilled from the target without the record",
    short=[
        Short("distillation", "logit, relative to models distilled from the target without the record"),
        Short("distillation-fraction", "share of such models with a larger loss", {"fraction": True}),
    ],
)
@dataclass(frozen=True)
class Distillation(ReferenceAttack):
    fraction: bool = option(False, "the share of the models with a larger loss, instead of a distance from them")
    variance: Variance | None = option_of(ReferenceSection, "variance")
    spread: Variance = "shared"
    bank: ClassVar[str] = "distilled-reference"

    def __post_init__(self) -> None:
        if self.fraction and self.variance:
            raise FedauditError("attack-options", "distillation: a fraction has no variance", "Leave out one of them.")

    def configured(self, audit: AuditSection) -> Self:
        return replace(self, spread=audit.reference.spread)

    def compare(self, target: Floats, references: Floats, inside: Bools) -> Floats:
        if self.fraction:
            larger_loss = (references < target[:, None]) & ~inside  # a smaller logit
            return np.asarray(larger_loss.sum(axis=1) / (~inside).sum(axis=1))
        mean, sd = gaussian(references, ~inside, self.variance or self.spread)
        return (target - mean) / sd


# ------------------------------------------------------------------ RMIA


@ATTACKS.register(
    "rmia",
    "the record's likelihood, relative to its mean under reference models",
    short=[
        Short("rmia", "the record's likelihood, relative to its mean under reference models"),
        Short("rmia-slope", "slope of the logit, relative to its mean under reference models", {"slope": True}),
        Short("outside-rmia", "rmia with reference models on an outsider's own data", {"outside": True}),
    ],
)
@dataclass(frozen=True)
class RMIA(ReferenceAttack):
    slope: bool = option(False, "the slope of the logit over the rounds, instead of the last model's likelihood")
    outside: bool = option(False, OUTSIDE)

    @property
    def bank(self) -> str:
        return "reference" if self.slope else "plain-reference"

    def compare(self, target: Floats, references: Floats, inside: Bools) -> Floats:
        """The logarithm of a probability is -softplus(-logit), exact where the probability is all but 1 or 0."""
        from scipy import special

        if self.slope:
            return np.asarray(target - references.mean(axis=1))
        of_references = special.logsumexp(-np.logaddexp(0, -references), axis=1) - np.log(references.shape[1])
        return np.asarray(-np.logaddexp(0, -target) - of_references)
