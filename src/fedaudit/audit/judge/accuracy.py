"""What is the released model worth? A model that has learnt nothing has nothing to leak."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedaudit.stats import clopper_pearson, design_effect
from fedaudit.stats.blocks import numbered
from fedaudit.stats.ranking import BY_SUBJECT
from fedaudit.types import Bools, Estimate, Game, Role, State, Task
from fedaudit.wording import share


def right_answers(game: Game, task: Task | None, released: State | None) -> Bools | None:
    """Which candidates' rows the model answers rightly; NaN is no answer, and a model without any has no accuracy."""
    if task is None or not task.classes or released is None:
        return None
    rows = game.candidates.rows
    outputs = task.outputs(released, rows.x)
    answered = ~np.isnan(outputs).any(axis=1)
    return (outputs.argmax(axis=1) == rows.y) & answered if answered.any() else None


def accuracy(game: Game, right: Bools | None, confidence: float) -> dict[str, Estimate]:
    """On members and on outsiders; people are independent of one another, not their records."""
    if right is None:
        return {}
    found, owner = {}, game.candidates.owner
    whose = game.candidates.subject_number
    for name, role in (("members", Role.MEMBER), ("evaluation", Role.EVALUATION)):
        rows = game.truth.mask(role)[owner]
        hits, k, n = right[rows], int(right[rows].sum()), int(rows.sum())
        spread = 1.0 if whose is None else design_effect([hits], numbered([whose[owner][rows]]))
        tail = (1 - confidence) / 2
        low, high = clopper_pearson(k / spread, n / spread, tail, tail)
        method = "Clopper-Pearson" + BY_SUBJECT * (whose is not None)
        found[name] = Estimate("accuracy", k / n, low, high, confidence, method, "measured", k, n - k)
    return found


def useless(game: Game, found: Mapping[str, Estimate]) -> str:
    """A model that is no better than naming the commonest label: what a useful one would give away is not known."""
    outside = found.get("evaluation")
    if outside is None or outside.low is None:
        return ""
    labels = game.candidates.rows.y[game.truth.mask(Role.EVALUATION)[game.candidates.owner]]
    commonest = float(np.unique(labels, return_counts=True)[1].max() / len(labels))
    if outside.low > commonest:
        return ""
    return (
        f"The model itself is of no use: it is right on {share(outside.value)} of outsiders, and whoever always names "
        f"the commonest label on {share(commonest)}; a useful model may give away more."
    )
