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
from dataclasses import dataclass

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack, OneSignal
from fedaudit.adversary.reductions import Kept, Last, Mean, Weighted
from fedaudit.adversary.signals.updates import BEFORE, FILTER, HESSIAN, PEER, PROJECTION, STRENGTH, Fit
from fedaudit.types import Floats, Moment


@dataclass(frozen=True)
class UpdateAttack(OneSignal):
    """One signal of the update, mean over the rounds. `fit`: what the whitening is fitted on; records that are known to
    be non-members for it set no threshold."""

    fit_on: Fit = "all"

    @property
    def fits(self) -> bool:  # type: ignore[override]
        return self.fit_on == "nonmembers"

    def reduce(self, n: int) -> Kept:
        return Mean(self.signal, n)


class MatchedFilter(UpdateAttack):
    signal = FILTER

    @property
    def signals(self) -> tuple[str, ...]:
        return self.signal, STRENGTH[self.signal]

    def reduce(self, n: int) -> Kept:
        return Weighted(self.signal, STRENGTH[self.signal], n)


class MatchedFilterPeer(MatchedFilter):
    """The first party about the others: its own records are not judged."""

    signal = PEER
    by_first_party = True


class ProjRes(UpdateAttack):
    signal = PROJECTION


class InverseHessian(UpdateAttack):
    signal = HESSIAN
    every_round = False
    deferred = True

    def reduce(self, n: int) -> Kept:
        return Last(self.signal, 1.0, n)


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


@dataclass(frozen=True)
class RoundGain(BaseAttack):
    @property
    def name(self) -> str:
        return "round-gain"

    @property
    def signals(self) -> tuple[str, ...]:
        return BEFORE, "loss"

    def reduce(self, n: int) -> Kept:
        return Gain(n)
