"""The blind baseline: can members be told from non-members without any model?

If so, the two sets were drawn differently (other dates, other sites, other cleaning), and an attack's success shows the
difference between the sets, not a leak. Fitted on a random half of the subjects (of the records where there are no
subjects), reported on the other half. It is not among the attacks, because it learns who is a member in its half.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.vantage import MODELS
from fedaudit.audit.case import Case
from fedaudit.audit.collect import gather
from fedaudit.audit.costs import load_learners
from fedaudit.audit.patience import patience
from fedaudit.config.attack_registry import BLIND
from fedaudit.errors import OF_OTHERS
from fedaudit.stats import Block, auc, random_half
from fedaudit.types import AuditResult, Bools, Cost, Estimate, Floats, Game, Role, Stored

MAX_FEATURES = 600  # wider records are thinned to these columns, evenly spread


class Blind:
    """Fitted when it is first needed, and then kept: it is the same after every round, and expensive."""

    def __init__(self, game: Game, seed: int):
        self.game, self.seed = game, seed
        self.found: tuple[Floats, Bools] | None = None
        self.seconds = 0.0  # that fitting took

    def scores(self) -> tuple[Floats, Bools]:
        if self.found is None:
            load_learners()
            started = time.perf_counter()
            self.found = blind_scores(self.game, self.seed)
            self.seconds = time.perf_counter() - started
        return self.found

    def judge(self, case: Case) -> AuditResult:
        scores, started = self.scores(), time.perf_counter()
        found = {"auc": auc([blind_block(self.game, *scores)], case.settings.confidence)}
        if self.game.candidates.unit == "subject":
            found["count-auc"] = by_count(self.game, case.settings.confidence)
        epochs = (self.seconds + time.perf_counter() - started) / case.outlooks.unit()
        vantage, unit = case.settings.vantages[0], self.game.candidates.unit
        return AuditResult(BLIND, vantage.value, MODELS[vantage], unit, None, case.round, found, Cost(epochs))

    def state(self) -> Stored:
        """The same whether somebody has looked before or not. If it cannot be fitted, that is told where it is
        judged."""
        try:
            with patience():
                scores, reported = self.scores()
        except OF_OTHERS:
            return {}
        return {"scores": scores, "reported": reported, "seconds": self.seconds}

    def restore(self, state: Stored) -> None:
        self.found = (state["scores"], state["reported"]) if state else None
        self.seconds = state.get("seconds", 0.0)


def blind_scores(game: Game, seed: int) -> tuple[Floats, Bools]:
    """Scores of every candidate, and the half on which they may be reported."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    candidates, truth = game.candidates, game.truth
    groups = candidates.id if candidates.subject is None else candidates.subject
    reported = random_half(groups, f"blind-{seed}")
    features = _features(candidates.rows.x, candidates.rows.y)
    if len(features) != len(candidates):  # several rows for each candidate: use their mean
        features = gather(features, candidates.owner, len(candidates), "mean")
    in_play = ~truth.mask(Role.CALIBRATION)
    fitted_on = in_play & ~reported
    member = truth.mask(Role.MEMBER)
    scores = np.zeros(len(candidates))
    if len(set(member[fitted_on].tolist())) == 2:
        model = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=15, random_state=0, early_stopping=False)
        model.fit(features[fitted_on], member[fitted_on])
        scores = model.predict_proba(features)[:, 1].astype(np.float64)
    return scores, reported


def by_count(game: Game, confidence: float) -> Estimate:
    """Told apart by nothing but how many records of each candidate the adversary has: it should be at chance."""
    rows = np.bincount(game.candidates.owner, minlength=len(game.candidates)).astype(np.float64)
    found = auc([blind_block(game, rows, np.ones(len(rows), bool))], confidence)
    return replace(found, name="count-auc", method=f"number of records alone; {found.method}")


def blind_block(game: Game, scores: Floats, reported: Bools) -> Block:
    roles = (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)
    sets = [game.truth.mask(role) & reported for role in roles]
    subject = game.candidates.subject
    names = None if subject is None else (subject[sets[0]], subject[sets[1]], subject[sets[2]])
    return Block(scores[sets[0]], scores[sets[1]], scores[sets[2]], names)


def _features(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Of tokens, and of classes at positions, how often each occurs: their numbers have no order."""
    flat = _counts(x) if x.dtype.kind == "i" else x.reshape(len(x), -1)
    if flat.shape[1] > MAX_FEATURES:
        flat = flat[:, np.linspace(0, flat.shape[1] - 1, MAX_FEATURES).astype(int)]
    return np.column_stack([flat, _counts(y) if y.ndim > 1 else y])


def _counts(numbers: NDArray[Any]) -> NDArray[Any]:
    """records x numbers: how often each occurs in a record. Where there are too many, several share a column."""
    width = min(int(numbers.max(initial=0)) + 1, MAX_FEATURES)
    rows = numbers.reshape(len(numbers), -1) % width
    flat = rows + width * np.arange(len(rows))[:, None]
    return np.bincount(flat.reshape(-1), minlength=width * len(rows)).reshape(len(rows), width).astype(np.float32)
