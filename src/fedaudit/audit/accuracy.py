"""What is the released model worth? A model that has learnt nothing has nothing to leak.

Where a record has a class at each of several positions, the accuracy is the share of positions that are answered
rightly. The positions of one record are not independent, nor are the records of one subject, so that the interval is
clustered: by subject, or by record where there are no subjects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fedaudit.adversary.signals.outputs import parts
from fedaudit.stats import proportion
from fedaudit.types import Bools, Candidates, Estimate, Game, Ints, Notice, Records, Role, State, Stored, Task, warning


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
        right.append((outputs.argmax(axis=-1) == rows.y[part]) & answered)
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
    found, owner = {}, game.candidates.owner
    whose, by = clusters(game.candidates)
    for name, role in (("members", Role.MEMBER), ("evaluation", Role.EVALUATION)):
        of_role = game.truth.mask(role)[owner]
        found[name] = share_right(right[of_role], whose[of_role], by, confidence)
    return found


def clusters(candidates: Candidates) -> tuple[Ints, str]:
    """For each row whose it is, a subject's or, where there are no subjects, a candidate's; and which of the two."""
    number = candidates.subject_number
    return (candidates.owner, candidates.unit) if number is None else (number[candidates.owner], "subject")


def share_right(right: Bools, whose: Ints, by: str, confidence: float) -> Estimate:
    hits, positions = right.reshape(-1), right.shape[1] if right.ndim > 1 else 1
    of = f"share of {positions} positions a record" * (positions > 1)
    return proportion([hits], [np.repeat(whose, positions)], confidence, "accuracy", of, by)


def useless(game: Game, found: Mapping[str, Estimate]) -> Notice | None:
    """A model that is certainly worse than naming the commonest label: a useful one may give away more."""
    outside = found.get("evaluation")
    if outside is None or outside.high is None:
        return None
    labels = game.candidates.rows.y[game.truth.mask(Role.EVALUATION)[game.candidates.owner]].reshape(-1)
    commonest = float(np.unique(labels, return_counts=True)[1].max() / len(labels))
    if outside.high >= commonest:
        return None
    return warning("model-useless", right=outside.value, commonest=commonest)
