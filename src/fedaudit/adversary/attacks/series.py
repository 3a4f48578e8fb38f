"""Attacks with a shadow model: the adversary learns from its own records how members look, then judges the target.

Gradient series: "An efficient gradient-based inference attack for federated learning", 2025.
CS-MIA: Gu et al., "CS-MIA: Membership inference attack based on prediction confidence series in federated learning",
2022.

Adversary, one of three (`audit.adversary`):
- agg-sh, a semi-honest aggregator: trains a shadow model on its own data from every broadcast, as a party would; its
  target is a party's local models.
- agg-mal, a malicious aggregator: isolates a party with its shadow (a federation of two); target as above.
- do-sh, a semi-honest party: its own local model is the shadow, its own data the shadow's; its target is the global
  models, its question whether any *other* party trained on the record.

1. In every round, a value of every record: the norm of the last layer's gradient (gradient-series), the rescaled logit
   (logit-series), or the confidence in the label (cs-mia).
2. Under the shadow's models, for records that the shadow was and was not trained on, these series train a classifier:
   logistic regression on the standardised series, or for cs-mia a network with one hidden layer of 64 ReLU units.
3. The classifier scores the candidates' series under the target's models, over the rounds that both were seen in.

Nothing of the audited party trains the classifier.

Deviations: cs-mia's input is standardised as well. logit-series is not in the paper: the confidences of learnt records
are all close to 1, but their logits differ.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.attacks.base import BaseAttack, Evidence, FittedOn, OneSignal
from fedaudit.adversary.reductions import WholeSeries
from fedaudit.adversary.signals import outputs
from fedaudit.config.attack_registry import ATTACKS, Short, option
from fedaudit.types import Floats, Ints

Learner = Literal["logistic", "network"]


@ATTACKS.register(
    "series",
    "series of a signal, judged by a classifier trained on the adversary's own records",
    short=[
        Short(
            "gradient-series",
            "series of last-layer gradient norms, judged by a classifier trained on the adversary's own records",
        ),
        Short("logit-series", "the same with rescaled logits", {"signal": "logit"}),
        Short(
            "cs-mia",
            "the same with confidences and a small network",
            {"signal": "confidence", "learner": "network"},
        ),
    ],
)
@dataclass(frozen=True)
class Series(BaseAttack):
    """A classifier of series of one signal. `fit` gives a copy that has been trained."""

    signal: Literal["gradient-norm", "logit", "confidence", "loss"] = option("gradient-norm", "whose series is judged")
    learner: Learner = option("logistic", "logistic regression, or a network with one hidden layer")
    trained: Any = field(default=None, compare=False, repr=False)
    threshold: float | None = field(default=None, compare=False)  # above it, a record is more likely a member
    fitted_on: ClassVar[tuple[FittedOn, ...]] = ("shadow",)

    @property
    def signals(self) -> tuple[str, ...]:
        return (self.signal,)

    def reduce(self, n: int) -> WholeSeries:
        return WholeSeries(self.signal, n)

    def fit(self, evidence: Evidence) -> Self:
        """A copy trained on the adversary's own records: their series, and which of them the shadow was trained on."""
        own = evidence.shadow
        assert own is not None, "a series attack learns from records of the adversary's own"
        share = float(np.mean(own.label))
        trained = train_classifier(self.learner, own.features, own.label)
        return replace(self, trained=trained, threshold=math.log(share / (1 - share)))

    def score(self, features: Floats) -> Floats:
        if self.learner == "logistic":
            return np.asarray(self.trained.decision_function(features))
        chance = self.trained.predict_proba(features)
        return np.asarray(np.log(np.maximum(chance[:, 1], 1e-300)) - np.log(np.maximum(chance[:, 0], 1e-300)))


def train_classifier(learner: Learner, features: Floats, labels: NDArray[Any]) -> Any:
    """A classifier of standardised series. It has a fixed seed, because attacks hold no randomness."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classifiers = {
        "logistic": LogisticRegression(max_iter=2000),
        "network": MLPClassifier((64,), activation="relu", max_iter=200, random_state=0),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one that has not quite converged attacks slightly less well
        return make_pipeline(StandardScaler(), classifiers[learner]).fit(features, labels)


# ---------------------- which value of a hidden attribute fits the models best?

# Attribute inference by gradient series.
#
# "An efficient gradient-based inference attack for federated learning", 2025, section 4.3.
#
# Adversary: an aggregator or a party with a shadow model (see `series`), who knows everything of a record but one
# discrete attribute z, and knows z for its own records.
#
# 1. For every value k of the attribute, the series over the rounds of the norm of the last layer's gradient at the
#    record with z := k; all series concatenated.
# 2. Under the shadow's models and for the records the shadow was trained on, these train a classifier of z (multinomial
#    logistic regression on the standardised series).
# 3. The classifier guesses z from the series under the target's models.
#
# An attribute can often be guessed from the rest of the record without any model, so success alone proves nothing. The
# auditor compares it with a classifier that sees no model, and with the same attack on non-members.


ATTRIBUTE = "attribute"  # `[audit.attribute]` asks for this attack


@ATTACKS.register(
    ATTRIBUTE,
    "guesses a hidden attribute of members; set audit.adversary and [audit.attribute] name; always beside a blind "
    "guess and the same guess about non-members",
    brief="guesses a hidden attribute of members",
)
@dataclass(frozen=True)
class AttributeGuess(OneSignal):
    signal: ClassVar[str] = outputs.ATTRIBUTE
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
