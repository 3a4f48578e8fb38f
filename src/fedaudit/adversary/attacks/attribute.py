"""Attribute inference by gradient series: which value of a hidden attribute fits the models best?

"An efficient gradient-based inference attack for federated learning", 2025, section 4.3.

Adversary: an aggregator or a party with a shadow model (see `series`), who knows everything of a record but one
discrete attribute z, and knows z for its own records.

1. For every value k of the attribute, the series over the rounds of the norm of the last layer's gradient at the record
   with z := k; all series concatenated.
2. Under the shadow's models and for the records the shadow was trained on, these train a classifier of z (multinomial
   logistic regression on the standardised series).
3. The classifier guesses z from the series under the target's models.

An attribute can often be guessed from the rest of the record without any model, so success alone proves nothing. The
auditor compares it with a classifier that sees no model, and with the same attack on non-members.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from fedaudit.adversary.attacks.base import Evidence, FittedOn, OneSignal
from fedaudit.adversary.attacks.series import train_classifier
from fedaudit.adversary.reductions import WholeSeries
from fedaudit.adversary.signals.attribute import SIGNAL
from fedaudit.config.attack_registry import ATTACKS
from fedaudit.types import Floats, Ints

ATTRIBUTE = "attribute"  # `[audit.attribute]` asks for this attack


@ATTACKS.register(
    ATTRIBUTE,
    "guesses a hidden attribute of members; set audit.adversary and [audit.attribute] name; always beside a blind "
    "guess and the same guess about non-members",
    brief="guesses a hidden attribute of members",
)
@dataclass(frozen=True)
class AttributeGuess(OneSignal):
    signal: ClassVar[str] = SIGNAL
    trained: Classifier | None = field(default=None, compare=False, repr=False)
    fitted_on: ClassVar[tuple[FittedOn, ...]] = ("shadow",)
    question: ClassVar[str] = "attribute"

    def reduce(self, n: int) -> WholeSeries:
        return WholeSeries(self.signal, n)

    def fit(self, evidence: Evidence) -> Self:
        """A copy trained on the adversary's own records, whose values it knows."""
        own = evidence.shadow
        assert own is not None, "an attribute is learnt from records of the adversary's own"
        return replace(self, trained=Classifier.learnt(own.features, own.label))

    def guess(self, features: Floats, count: int) -> Floats:
        """For each of the `count` values its log-probability, relative to its share of the adversary's records."""
        assert self.trained is not None, "fit comes first"
        return self.trained.lift(features, count)


@dataclass(frozen=True)
class Classifier:
    """Of the attribute: the same for the attack and for the blind guess it is compared with."""

    pipeline: Any
    log_shares: Floats  # of each value that it knows, among the records it learnt from

    @classmethod
    def learnt(cls, features: Floats, values: Ints) -> Self:
        pipeline = train_classifier("logistic", features, values)
        share = np.bincount(values) / len(values)
        return cls(pipeline, np.log(share[pipeline.classes_]))

    def lift(self, features: Floats, count: int) -> Floats:
        """log p(value | features) - log p(value), for every value; a value never seen is never guessed."""
        from scipy import special

        found = np.full((len(features), count), -np.inf)
        score = self.pipeline.decision_function(features)
        score = np.column_stack([np.zeros(len(score)), score]) if score.ndim == 1 else score
        found[:, self.pipeline.classes_] = special.log_softmax(score, axis=1) - self.log_shares
        return found
