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

import warnings
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.attacks.base import BaseAttack, Evidence, FittedOn
from fedaudit.adversary.reductions import WholeSeries
from fedaudit.config.attack_registry import ATTACKS, Short, option
from fedaudit.types import Floats

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
        return replace(self, trained=train_classifier(self.learner, own.features, own.label))

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
