"""The accuracy of the released model. A model that has learnt nothing has nothing to leak."""

from __future__ import annotations

import numpy as np

from fedaudit.stats import clopper_pearson
from fedaudit.types import Bools, Estimate, Game, Role, State, Task


def right_answers(game: Game, task: Task | None, released: State | None) -> Bools | None:
    """Which rows the model classifies correctly. A row with NaN outputs is wrong; if all are NaN there is no
    accuracy."""
    if task is None or not task.classes or released is None:
        return None
    rows = game.candidates.rows
    outputs = task.outputs(released, rows.x)
    answered = ~np.isnan(outputs).any(axis=1)
    return (outputs.argmax(axis=1) == rows.y) & answered if answered.any() else None


def accuracy(game: Game, right: Bools | None, confidence: float) -> dict[str, Estimate]:
    if right is None:
        return {}
    found, owner = {}, game.candidates.owner
    for name, role in (("members", Role.MEMBER), ("evaluation", Role.EVALUATION)):
        hits = right[game.truth.mask(role)[owner]]
        k, n = int(hits.sum()), len(hits)
        low, high = clopper_pearson(k, n, (1 - confidence) / 2, (1 - confidence) / 2)
        found[name] = Estimate("accuracy", k / n, low, high, confidence, "Clopper-Pearson", "measured", k, n - k)
    return found
