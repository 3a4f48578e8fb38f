"""The matched filter and its relatives: is this record's gradient in the update? What was measured is in
docs/matched-filter.md.

Adversary: the server (a party's update), anybody who holds two consecutive global models (secure aggregation or not),
or the first party about all the others, with its own update taken out of the sum (matched-filter-peer).

1. In every round, the record's gradient and the update U = received - sent of one layer, both whitened with the second
   moments of the layer's inputs and output gradients (`adversary.signals.matched`).
2. The score of a round is their product over the whitened norm of the gradient, standardised.
3. The score is the mean over the rounds.

Relatives, on the same records and with the same statistics:
round-gain       how much the round lowered the record's loss: two forward passes, no gradient; mean over the rounds.
projres          how near the record's hidden vector lies to the row space of the update (ProjRes, IEEE S&P 2026, as we
                 read its abstract); mean over the rounds.
inverse-hessian  the curvature-weighted size of the record's gradient under the last model (Suri et al. 2024, as we read
                 its abstract).
"""

from dataclasses import dataclass
from typing import ClassVar

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.reductions import Kept, Last, Mean
from fedaudit.adversary.signals.updates import FILTER, GAIN, HESSIAN, PEER, PROJECTION, Fit


@dataclass(frozen=True)
class UpdateAttack(BaseAttack):
    """One signal of the update, mean over the rounds. `fit`: what the whitening is fitted on; records that are known to
    be non-members for it set no threshold."""

    fit_on: Fit = "all"
    signal: ClassVar[str]

    @property
    def fits(self) -> bool:  # type: ignore[override]
        return self.fit_on == "nonmembers"

    @property
    def name(self) -> str:
        return self.signal

    @property
    def signals(self) -> tuple[str, ...]:
        return (self.signal,)

    def reduce(self, n: int) -> Kept:
        return Mean(self.signal, n)


class MatchedFilter(UpdateAttack):
    signal = FILTER


class MatchedFilterPeer(UpdateAttack):
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


@dataclass(frozen=True)
class RoundGain(BaseAttack):
    @property
    def name(self) -> str:
        return GAIN

    @property
    def signals(self) -> tuple[str, ...]:
        return (GAIN,)

    def reduce(self, n: int) -> Kept:
        return Mean(GAIN, n)
