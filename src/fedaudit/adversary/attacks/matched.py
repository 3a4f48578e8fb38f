"""The matched filter and its relatives: is this record's gradient in the update? What was measured is in
docs/matched-filter.md.

Adversary: the server (a party's update), anybody who holds two consecutive global models (secure aggregation or not),
or the first party about all the others, with its own update taken out of the sum (matched-filter-peer).

1. In every round, the record's gradient and the update U = received - sent of one layer, both whitened with the second
   moments of the layer's inputs and output gradients (`adversary.signals.matched`).
2. The score of a round is their product over the whitened norm of the gradient, standardised.
3. The score is the sum over the rounds, each weighted with the whitened norm of the record's gradient: a round in
   which the record could hardly have left a trace says little about it.

Relatives, on the same records and with the same statistics:
round-gain       how much the round lowered the record's loss: two forward passes, no gradient; mean over the rounds.
projres          how near the record's hidden vector lies to the row space of the update (ProjRes, IEEE S&P 2026, as we
                 read its abstract); mean over the rounds.
inverse-hessian  the curvature-weighted size of the record's gradient under the last model (Suri et al. 2024, as we read
                 its abstract).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack, FittedOn, OneSignal
from fedaudit.adversary.reductions import Kept, Last, Mean, Weighted
from fedaudit.adversary.signals import variant_of
from fedaudit.adversary.signals.updates import BEFORE, FILTER, HESSIAN, PEER, PROJECTION, STRENGTH, Fit
from fedaudit.config.attack_registry import ATTACKS, option_of
from fedaudit.config.attacks import MatchedSection
from fedaudit.config.schema import AuditSection
from fedaudit.types import Floats, Moment


@dataclass(frozen=True)
class UpdateAttack(OneSignal):
    """One signal of the update, mean over the rounds. Known non-members that the whitening is fitted on set no
    threshold. `whitened_on`: what [audit.matched] says about that."""

    fit_on: Fit | None = option_of(MatchedSection, "fit")
    damping: Literal["auto"] | float | None = option_of(MatchedSection, "damping")
    layer: str | None = option_of(MatchedSection, "layer")
    whitened_on: Fit = "all"

    def configured(self, audit: AuditSection) -> Self:
        return replace(self, whitened_on=audit.matched.fit) if audit.matched else self

    @property
    def fitted_on(self) -> tuple[FittedOn, ...]:
        return ("nonmembers",) if (self.fit_on or self.whitened_on) == "nonmembers" else ()

    @property
    def signals(self) -> tuple[str, ...]:
        return (self.measured(self.signal),)

    def measured(self, signal: str) -> str:
        """The signal as these options have it measured."""
        return variant_of(signal, {"fit": self.fit_on, "damping": self.damping, "layer": self.layer})

    def reduce(self, n: int) -> Kept:
        return Mean(self.signals[0], n)


@ATTACKS.register(
    "matched-filter",
    "the record's gradient looked for in the update: both whitened, one layer; rounds weighted by its norm",
    brief="the record's gradient looked for in the update",
)
class MatchedFilter(UpdateAttack):
    signal = FILTER

    @property
    def signals(self) -> tuple[str, ...]:
        return self.measured(self.signal), self.measured(STRENGTH[self.signal])

    def reduce(self, n: int) -> Kept:
        signal, strength = self.signals
        return Weighted(signal, strength, n)


@ATTACKS.register("matched-filter-peer", "matched-filter by the first party, its own update taken out of the sum")
class MatchedFilterPeer(MatchedFilter):
    """The first party about the others: its own records are not judged."""

    signal = PEER
    by_first_party = True


@ATTACKS.register("projres", "how near the record's hidden vector lies to the row space of the update")
class ProjRes(UpdateAttack):
    signal = PROJECTION


@ATTACKS.register("inverse-hessian", "size of the record's gradient under the last model, weighted by curvature")
class InverseHessian(UpdateAttack):
    signal = HESSIAN
    every_round = False
    deferred = True

    def reduce(self, n: int) -> Kept:
        return Last(self.signals[0], 1.0, n)


class Gain(Kept):
    """The loss before the round minus the loss after it, mean over the rounds."""

    def __init__(self, n: int):
        self.sums: Floats = np.zeros(n)
        self.rounds = 0

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        self.sums = self.sums + values[BEFORE] - values["loss"]
        self.rounds += 1

    def features(self) -> Floats:
        return (self.sums / self.rounds if self.rounds else np.full(len(self.sums), np.nan))[:, None]


@ATTACKS.register(
    "round-gain",
    "how much each round lowered the record's loss: two forward passes; mean over the rounds",
    brief="how much each round lowered the record's loss",
)
@dataclass(frozen=True)
class RoundGain(BaseAttack):
    @property
    def signals(self) -> tuple[str, ...]:
        return BEFORE, "loss"

    def reduce(self, n: int) -> Kept:
        return Gain(n)
