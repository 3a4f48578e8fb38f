"""TEAR: membership from labels alone, by how robust the label of a record is and how that came about over the rounds.

"Temporal evolution of adversarial robustness" (TEAR): a membership inference attack on federated learning by a party
that sees predicted labels only. Choquette-Choo et al. (2021) threshold the distance under the last model.

Adversary: the first party of the federation. It may ask each round's global model for labels, and for nothing else. It
knows which of its own records were trained on; these teach it, and it is never judged on them.

1. For each record and round, the distance to the nearest decision boundaries, by queries
   (`adversary.signals.boundary`). A record that is labelled wrongly has distance 0.
2. The distances over the rounds are the features: the nearest few, sorted; or (`targets = "all"`) one for each
   class, as in the paper.
3. Gradient boosting, its size chosen by cross-validation, learns from the adversary's own records.
4. It scores everybody else's. The threshold of `accuracy` is the best one on its own records, each scored by a
   classifier that did not see it.

gap            Is the label right under the last model? One query: what anybody gets for nothing.
gap-rounds     In how many rounds it was right, and for how many it has been right for good: one query a round (ours).
boundary       The distance under the last model.
tear-last      Steps 2-4 on the last round alone.
tear-deepfool  Steps 2-4 on distances found with the weights in hand (`adversary.signals.searching`).

Deviations. The paper leaves open the distance of a misclassified record (here 0), the radius of its probes and its step
(see `adversary.signals.boundary`). Its matrix of labels by rounds needs a distance for every class; sorting the nearest
few does as well or better and costs less. scikit-learn's gradient boosting stands in for XGBoost. DeepFool
stops after 50 steps, the paper's after 500.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.attacks.base import BaseAttack, Evidence, FittedOn
from fedaudit.adversary.reductions import Kept
from fedaudit.adversary.signals import variant, variant_of
from fedaudit.adversary.signals.searching import DEEPFOOL, DISTANCE, QUERIES, RIGHT
from fedaudit.config.attack_registry import ATTACKS, Short, option, option_of, plain
from fedaudit.config.attacks import TearSection
from fedaudit.errors import FedauditError
from fedaudit.stats import best_cut
from fedaudit.types import Bools, Floats, Moment, Vantage

FEWEST = 20  # members, and non-members, that the adversary must have of its own
FOLDS = 5
SIZES = ((3, 40), (6, 40), (6, 100))  # leaves and trees that are compared


@dataclass(frozen=True)
class TaughtAttack(BaseAttack):
    """An attack by the first party, with a threshold fixed on its own records."""

    own: int | None = option_of(TearSection, "own")
    threshold: float | None = field(default=None, compare=False)
    by_first_party: ClassVar[bool] = True
    fitted_on: ClassVar[tuple[FittedOn, ...]] = ("own",)

    @property
    def vantage(self) -> Vantage | None:
        return Vantage.LABEL_ONLY_CLIENT

    def fit(self, evidence: Evidence) -> Self:
        own = checked(evidence, self.name)
        return replace(self, threshold=best_threshold(self.score(own.features), own.label))


# ------------------------------------------------------------------ without a search


class Rights(Kept):
    """How often the label was right, for how many rounds it has been so, and whether it is now."""

    def __init__(self, n: int):
        self.rounds = 0
        self.count, self.streak, self.last = np.zeros(n), np.zeros(n), np.full(n, np.nan)

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        right = values[RIGHT]
        self.rounds += 1
        self.count = self.count + right
        self.streak = np.where(right > 0, self.streak + 1, 0.0)
        self.last = right.copy()

    def features(self) -> Floats:
        return np.column_stack([self.last, self.count, self.streak]) / [1, max(self.rounds, 1), max(self.rounds, 1)]

    def queries(self) -> Floats:
        return np.full(len(self.last), float(self.rounds))


class LastRight(Rights):
    def queries(self) -> Floats:
        return np.ones(len(self.last))


@ATTACKS.register(
    "gap",
    "whether the label is right under the last model: one query",
    brief="whether the label is right under the last model",
)
@dataclass(frozen=True)
class GapAttack(TaughtAttack):
    every_round: ClassVar[bool] = False
    deferred: ClassVar[bool] = True

    @property
    def signals(self) -> tuple[str, ...]:
        return (RIGHT,)

    def reduce(self, n: int) -> Kept:
        return LastRight(n)


@ATTACKS.register("gap-rounds", "in how many rounds the label was right, and since when for good")
@dataclass(frozen=True)
class GapRounds(TaughtAttack):
    @property
    def signals(self) -> tuple[str, ...]:
        return (RIGHT,)

    def reduce(self, n: int) -> Kept:
        return Rights(n)

    def score(self, features: Floats) -> Floats:
        return np.asarray((features[:, 1] + features[:, 2]) / 2)


# ------------------------------------------------------------------ with a search


class Distances(Kept):
    """The distances of every round, or of the last one only; and what they cost in labels, where they do."""

    def __init__(self, signal: str, n: int, last_only: bool = False):
        self.signal, self.last_only = signal, last_only
        self.rounds: list[int] = []
        self.columns: list[NDArray[Any]] = []
        self.asked: list[NDArray[Any]] = []  # labels, by round
        self.n = n

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        found = np.array(values[self.signal])
        asked = np.array(values[QUERIES + variant(self.signal)]) if self._by_labels else np.zeros(self.n)
        if self.last_only:
            if self.columns and self._by_labels:  # a record that no labels were left for keeps its last distance
                idle = asked == 0
                found[idle] = self.columns[-1][idle]
            self.columns, self.rounds = [], []
        self.rounds.append(moment.round)
        self.columns.append(found)
        self.asked.append(asked)

    @property
    def _by_labels(self) -> bool:
        return plain(self.signal) == DISTANCE

    def features(self) -> Floats:
        return np.column_stack(self.columns) if self.columns else np.full((self.n, 1), np.nan)

    def queries(self) -> Floats | None:
        return np.sum([np.zeros(self.n), *self.asked], axis=0) if self._by_labels else None

    def distances(self) -> tuple[list[int], Floats, Floats]:
        found = [np.where(np.isnan(c), np.inf, c).reshape(self.n, -1).min(axis=1) for c in self.columns]
        return self.rounds, np.where(np.isinf(found), np.nan, found), np.array(self.asked)


@dataclass(frozen=True)
class SearchAttack(TaughtAttack):
    """An attack on distances to decision boundaries. Its options are those of the search."""

    queries: int | None = option_of(TearSection, "queries")
    targets: int | Literal["all"] | None = option_of(TearSection, "targets")
    bounds: tuple[float, float] | None = option_of(TearSection, "bounds")

    @property
    def signals(self) -> tuple[str, ...]:
        options = {"own": self.own, "queries": self.queries, "targets": self.targets, "bounds": self.bounds}
        return variant_of(DISTANCE, options), variant_of(QUERIES, options)


@ATTACKS.register("boundary", "distance to the last model's decision boundary, by labels alone")
@dataclass(frozen=True)
class Boundary(SearchAttack):
    every_round: ClassVar[bool] = False
    deferred: ClassVar[bool] = True

    def reduce(self, n: int) -> Kept:
        return Distances(self.signals[0], n, last_only=True)

    def score(self, features: Floats) -> Floats:
        """The nearest boundary. Where none was found the record is farther from it than any other."""
        nearest = np.where(np.isnan(features), np.inf, features).min(axis=1)
        farthest = nearest[np.isfinite(nearest)].max(initial=0.0)
        return np.asarray(np.minimum(nearest, 2 * farthest + 1))


@ATTACKS.register(
    "tear",
    "distances to decision boundaries over the rounds",
    short=[
        Short("tear", "distances to decision boundaries over the rounds, by labels alone"),
        Short("tear-last", "tear on the last round alone", {"last": True}),
        Short("tear-deepfool", "tear on distances found with the weights (client)", {"deepfool": True}),
    ],
)
@dataclass(frozen=True)
class Tear(SearchAttack):
    last: bool = option(False, "the distances of the last round alone")
    deepfool: bool = option(False, "distances found with the weights in hand, instead of by labels")
    trained: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        idle = [key for key in ("queries", "bounds") if self.deepfool and getattr(self, key) is not None]
        if idle:
            what = f"tear: {idle[0]} has no effect on distances that are found with the weights"
            raise FedauditError("attack-options", what, f"Leave out {idle[0]}, or deepfool.")

    @property
    def vantage(self) -> Vantage | None:
        return Vantage.CLIENT if self.deepfool else Vantage.LABEL_ONLY_CLIENT

    @property
    def every_round(self) -> bool:
        return not self.last

    @property
    def deferred(self) -> bool:
        return self.last

    @property
    def signals(self) -> tuple[str, ...]:
        if not self.deepfool:
            return super().signals
        return (variant_of(DEEPFOOL, {"own": self.own, "targets": self.targets}),)

    def reduce(self, n: int) -> Kept:
        return Distances(self.signals[0], n, self.last)

    def fit(self, evidence: Evidence) -> Self:
        own = checked(evidence, self.name)
        trained, held_out = boosted(own.features, own.label)
        return replace(self, trained=trained, threshold=best_threshold(held_out, own.label))

    def score(self, features: Floats) -> Floats:
        return np.asarray(self.trained.decision_function(features), np.float64)


# ------------------------------------------------------------------ learning from its own records


def checked(evidence: Evidence, name: str) -> Any:
    """The adversary's own records, if there are enough to learn from."""
    own = evidence.own
    assert own is not None, "it learns from records of the adversary's own"
    member = np.asarray(own.label, bool)
    fewest = min(int(member.sum()), int((~member).sum()))
    if fewest < FEWEST:
        raise FedauditError(
            "few-own",
            f"{name} learns from the first party's own records, and needs at least {FEWEST} members and "
            f"{FEWEST} non-members there; it has {int(member.sum())} and {int((~member).sum())}",
            "Give the first party more records, or raise audit.tear.own.",
        )
    return own


def best_threshold(scores: Floats, member: NDArray[Any]) -> float:
    """The score above which a record is called a member: the best by balanced accuracy."""
    inside = np.asarray(member, bool)
    return best_cut(scores[inside], scores[~inside])


def boosted(features: Floats, label: NDArray[Any]) -> tuple[Any, Floats]:
    """A classifier of the size that predicts held-out records best; and the scores of the held-out ones."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import StratifiedKFold

    member: Bools = np.asarray(label, bool)

    def made(size: tuple[int, int]) -> Any:
        leaves, trees = size
        return HistGradientBoostingClassifier(
            max_leaf_nodes=leaves, max_iter=trees, learning_rate=0.1, early_stopping=False, random_state=0
        )

    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(features, member))
    held_out: list[Floats] = []
    for size in SIZES:
        scores = np.zeros(len(member))
        for learnt, rest in folds:
            scores[rest] = made(size).fit(features[learnt], member[learnt]).decision_function(features[rest])
        held_out.append(scores)
    losses = [float(np.mean(np.logaddexp(0, np.where(member, -s, s)))) for s in held_out]
    best = int(np.argmin(losses))
    return made(SIZES[best]).fit(features, member), held_out[best]
