"""Unmixing: which combination of the candidates' gradients makes the update? What was measured is in docs/unmix.md.

Adversary: whoever has most of the records in question and wants to know which of them were trained on: an auditor, or a
party that is suspected to hold a known collection. It sees a party's update (the server), or two consecutive global
models (anybody, secure aggregation or not).

1. In every round, the gradients of all candidates at the model halfway, and the update U = received - sent, both
   whitened as in `adversary.signals.unmix`.
2. One ridge regression of the update on all of them. The score of a round is the record's coefficient over its standard
   error, standardised.
3. The score is the mean over the rounds.

It needs the others in the sum to be among the candidates. `coverage` below 1 says what is left for somebody who knows
only a part of them: the candidates are dealt into groups, and each is unmixed alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.reductions import Kept, Mean, Regression
from fedaudit.adversary.signals import variant_of
from fedaudit.adversary.signals.updates import UNMIX, UNMIX_FIT
from fedaudit.config.attack_registry import ATTACKS, option_in, set_on
from fedaudit.config.attacks import UnmixSection
from fedaudit.types import Floats, Moment


@ATTACKS.register(
    "unmix",
    "the update explained by the gradients of all candidates together: one ridge regression a round",
    brief="the update explained by the gradients of all candidates together",
)
@dataclass(frozen=True)
class Unmix(BaseAttack):
    damping: Literal["auto"] | float = option_in(UnmixSection, "damping")
    ridge: Literal["auto"] | float = option_in(UnmixSection, "ridge")
    layer: str = option_in(UnmixSection, "layer")
    sketch: int = option_in(UnmixSection, "sketch")
    coverage: float = option_in(UnmixSection, "coverage")

    @property
    def signals(self) -> tuple[str, ...]:
        return tuple(variant_of(signal, set_on(self)) for signal in (UNMIX, UNMIX_FIT))

    def reduce(self, n: int) -> Kept:
        signal, fit = self.signals
        return Fitted(signal, fit, n)


class Fitted(Mean):
    """The mean; and how well each round was explained, to which error, from which share of the candidates."""

    def __init__(self, signal: str, fit: str, n: int):
        super().__init__(signal, n)
        self.fit = fit
        self.observed: list[int] = []
        self.explained: list[float] = []
        self.error = 0.0
        self.share = 1.0

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        super().observe(moment, values)
        explained, error, share = np.nanmean(values[self.fit], axis=0).tolist()
        self.observed.append(moment.round)
        self.explained.append(explained)
        self.error, self.share = float(np.maximum(self.error, error)), share  # NaN stays: a solution failed

    def regression(self) -> Regression:
        return Regression(self.observed, self.explained, self.error, self.share)
