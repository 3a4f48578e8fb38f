"""What an attack's success is held against: a blind baseline, and what the released model is worth.

The blind baseline asks whether members can be told from non-members without any model. If so, the two sets were drawn
differently (other dates, other sites, other cleaning), and an attack's success shows the difference between the sets,
not a leak. Fitted on a random half of the subjects (of the records where there are no subjects), reported on the other
half. It is not among the attacks, because it learns who is a member in its half.

A model that has learnt nothing has nothing to leak. Where a record has a class at each of several positions, the
accuracy is the share of positions that are answered rightly. The positions of one record are not independent, nor are
the records of one subject, so that the interval is clustered: by subject, or by record where there are no subjects.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.signals.outputs import parts
from fedaudit.adversary.vantage import MODELS
from fedaudit.audit.case import Case, figure
from fedaudit.audit.collect import gather
from fedaudit.audit.costs import load_learners
from fedaudit.audit.patience import patience
from fedaudit.config.attack_registry import BLIND
from fedaudit.errors import OF_OTHERS
from fedaudit.stats import Block, auc, proportion, random_half
from fedaudit.types import (
    IGNORED,
    AuditResult,
    Bools,
    Candidates,
    Cost,
    Estimate,
    Floats,
    Game,
    Ints,
    Notice,
    Records,
    Role,
    State,
    Stored,
    Task,
    warning,
)

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
        confidence = case.settings.confidence
        if has_texts(self.game):
            confidence = 1 - (1 - confidence) / BASELINES
        found = {"auc": auc([blind_block(self.game, *scores)], confidence)}
        if self.game.candidates.unit == "subject":
            found["count-auc"] = by_count(self.game, confidence)
        found |= of_text(self.game, scores[1], confidence)
        epochs = (self.seconds + time.perf_counter() - started) / case.outlooks.unit()
        vantage, unit = case.settings.vantages[0], self.game.candidates.unit
        return AuditResult(
            BLIND, vantage.value, MODELS[vantage], unit, None, round=case.round, estimates=found, cost=Cost(epochs)
        )

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


PAIRS = 2**14  # columns that pairs of tokens share
BASELINES = 3  # of text: the classifier, length and pairs share the error of a warning


def has_texts(game: Game) -> bool:
    """Is each candidate one text?"""
    rows = game.candidates.rows
    return rows.x.dtype.kind == "i" and rows.y.ndim > 1 and len(rows) == len(game.candidates)


def of_text(game: Game, reported: Bools, confidence: float) -> dict[str, Estimate]:
    """Told apart by the length of a text alone, where that differs; and by its pairs of neighbouring tokens, each
    weighed by how much more often members have it among those that are not reported on."""
    rows, found = game.candidates.rows, dict[str, Estimate]()
    if not has_texts(game):
        return found
    counts, member = rows.y != IGNORED, game.truth.mask(Role.MEMBER)
    if not counts.all():
        lengths = auc([blind_block(game, counts.sum(axis=1).astype(np.float64), np.ones(len(rows), bool))], confidence)
        found["length-auc"] = replace(lengths, name="length-auc", method=f"length alone; {lengths.method}")
    pair = (rows.x.astype(np.uint64) * np.uint64(0x9E3779B1) + rows.y.astype(np.uint64)) % np.uint64(PAIRS)
    often = [
        np.bincount(pair[side & ~reported][counts[side & ~reported]].astype(np.int64), minlength=PAIRS) + 1.0
        for side in (member, game.truth.mask(Role.EVALUATION))
    ]
    weight = np.log(often[0] / often[0].sum()) - np.log(often[1] / often[1].sum())
    scores = np.where(counts, weight[pair.astype(np.int64)], 0.0).sum(axis=1) / counts.sum(axis=1)
    pairs = auc([blind_block(game, scores, reported)], confidence)
    found["ngram-auc"] = replace(pairs, name="ngram-auc", method=f"pairs of tokens, fitted on half; {pairs.method}")
    return found


def blind_block(game: Game, scores: Floats, reported: Bools) -> Block:
    roles = (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)
    members, outsiders, calibration = (game.truth.mask(role) & reported for role in roles)
    subject = game.candidates.subject
    names = None if subject is None else (subject[members], subject[outsiders], subject[calibration])
    return Block(scores[members], scores[outsiders], scores[calibration], names)


def _features(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Of tokens, and of classes at positions, how often each occurs: their numbers have no order."""
    flat = _counts(x) if x.dtype.kind == "i" else x.reshape(len(x), -1)
    if flat.shape[1] > MAX_FEATURES:
        flat = flat[:, np.linspace(0, flat.shape[1] - 1, MAX_FEATURES).astype(int)]
    return np.column_stack([flat, _counts(y) if y.ndim > 1 else y])


def _counts(numbers: NDArray[Any]) -> NDArray[Any]:
    """records x numbers: how often each occurs in a record. Where there are too many, several share a column."""
    width = min(int(numbers.max(initial=0)) + 1, MAX_FEATURES)
    numbers = numbers.reshape(len(numbers), -1)
    rows = np.where(numbers == IGNORED, width, numbers % width)  # what fills a record up has a column of its own
    width += int(rows.max(initial=0) == width)
    flat = rows + width * np.arange(len(rows))[:, None]
    return np.bincount(flat.reshape(-1), minlength=width * len(rows)).reshape(len(rows), width).astype(np.float32)


def sets_differ(blind: Estimate) -> list[Notice]:
    """A blind baseline that succeeds: members and non-members were drawn differently.

    One below chance is told and not turned round: it was fitted with the truth, so that the other way is no better.
    """
    if not _off_chance(blind):
        return []
    return [warning("blind-below-chance" if (blind.high or 0.0) < 0.5 else "sets-differ", **figure(blind))]


def counts_differ(counted: Estimate | None) -> list[Notice]:
    """People whose membership shows in how many records of theirs there are."""
    return [warning("counts-differ", **figure(counted))] if counted and _off_chance(counted) else []


def texts_differ(baselines: Mapping[str, Estimate]) -> list[Notice]:
    """Texts whose membership shows in their length, or in their pairs of tokens."""
    told = {"length-auc": "lengths-differ", "ngram-auc": "pairs-differ"}
    found = [(code, baselines[name]) for name, code in told.items() if name in baselines]
    return [warning(code, **figure(estimate)) for code, estimate in found if _off_chance(estimate)]


def _off_chance(found: Estimate) -> bool:
    return found.low is not None and found.high is not None and not found.low <= 0.5 <= found.high


# ------------------------------------------------------------------ what the released model is worth


def right_answers(game: Game, task: Task | None, released: State | None) -> Bools | None:
    """Which candidates' rows the released model answers rightly, where it can be asked."""
    if task is None or not task.classes or released is None:
        return None
    return right_on(game.candidates.rows, task, released)


def right_on(rows: Records, task: Task, state: State) -> Bools | None:
    """Which rows the model answers rightly, or at which of their positions; NaN is no answer, and a model without any
    has no accuracy."""
    right, any_answered = [], False
    for part in parts(rows.y, task.classes):
        outputs = task.outputs(state, rows.x[part])
        answered = ~np.isnan(outputs).any(axis=-1)
        right.append((outputs.argmax(axis=-1) == rows.y[part]) & answered)  # no answer is right where none is asked
        any_answered |= bool(answered.any())
    return np.concatenate(right) if any_answered else None


def packed(right: Bools | None) -> Stored | None:
    """A bit for each answer."""
    return None if right is None else {"bits": np.packbits(right), "shape": list(right.shape)}


def unpacked(stored: Stored | None) -> Bools | None:
    if stored is None:
        return None
    shape = stored["shape"]
    return np.unpackbits(stored["bits"], count=math.prod(shape)).astype(bool).reshape(shape)


def accuracy(game: Game, right: Bools | None, confidence: float) -> dict[str, Estimate]:
    """On members and on outsiders; people are independent of one another, not their records."""
    if right is None:
        return {}
    found, owner, labels = {}, game.candidates.owner, game.candidates.rows.y
    counts = labels != IGNORED if labels.ndim > 1 else None
    whose, by = clusters(game.candidates)
    for name, role in (("members", Role.MEMBER), ("evaluation", Role.EVALUATION)):
        of_role = game.truth.mask(role)[owner]
        asked = None if counts is None else counts[of_role]
        found[name] = share_right(right[of_role], whose[of_role], by, confidence, asked)
    return found


def clusters(candidates: Candidates) -> tuple[Ints, str]:
    """For each row whose it is, a subject's or, where there are no subjects, a candidate's; and which of the two."""
    number = candidates.subject_number
    return (candidates.owner, candidates.unit) if number is None else (number[candidates.owner], "subject")


def share_right(right: Bools, whose: Ints, by: str, confidence: float, asked: Bools | None = None) -> Estimate:
    """`asked`: the positions that count; None: all."""
    hits, positions = right.reshape(-1), right.shape[1] if right.ndim > 1 else 1
    of, whose = f"share of {positions} positions a record" * (positions > 1), np.repeat(whose, positions)
    if asked is not None and not asked.all():
        hits, whose = hits[asked.reshape(-1)], whose[asked.reshape(-1)]
        of = f"share of up to {positions} positions a record"
    return proportion([hits], [whose], confidence, "accuracy", of, by)


def commonest_share(game: Game, role: Role = Role.EVALUATION) -> float:
    """What somebody is right on who always names the label that is commonest among these records; 0 without any."""
    labels = game.candidates.rows.y[game.truth.mask(role)[game.candidates.owner]].reshape(-1)
    labels = labels[labels != IGNORED]
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels)) if len(labels) else 0.0


def useless(game: Game, right: Bools | None, found: Mapping[str, Estimate]) -> Notice | None:
    """A model that guesses, as far as these records show, or is certainly worse than naming the commonest label: a
    useful one may give away more."""
    outside = found.get("evaluation")
    if right is None or outside is None or outside.value is None or outside.high is None:
        return None
    commonest = commonest_share(game)
    data = {"right": outside.value, "commonest": commonest}
    sides = (("members", Role.MEMBER), ("evaluation", Role.EVALUATION))
    if not any(_has_learnt(game, right, role, found[name]) for name, role in sides if name in found):
        return warning("model-not-learnt", **data)
    return warning("model-useless", **data) if outside.high < commonest else None


MOST_CLASSES = 100


def _has_learnt(game: Game, right: Bools, role: Role, accuracy: Estimate) -> bool:
    """Are answers certainly better than a guess? Right more often than always naming the commonest label is, or, where
    labels are uneven, right in the mean class more often than any answers are that do not depend on the record."""
    if accuracy.low is not None and accuracy.low > commonest_share(game, role):
        return True
    mine = game.truth.mask(role)[game.candidates.owner]
    labels = game.candidates.rows.y[mine]
    classes, of = np.unique(labels, return_inverse=True)
    if right.ndim > 1 or not 2 <= len(classes) <= MOST_CLASSES:
        return False
    hits, sizes = np.bincount(of, right[mine], len(classes)), np.bincount(of, minlength=len(classes))
    smooth = (hits + 1) / (sizes + 2)
    error = math.sqrt(float((smooth * (1 - smooth) / sizes).sum())) / len(classes)
    sure = NormalDist().inv_cdf((1 + accuracy.confidence) / 2)
    return bool((hits / sizes).mean() - sure * error > 1 / len(classes))
