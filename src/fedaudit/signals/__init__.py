"""Signals by name: one number (or a few) per record and round. Signals that share a pass are computed together."""

from collections.abc import Iterable
from typing import Any

from fedaudit.signals import outputs
from fedaudit.types import Floats, Grant, Records, State, View

GRADIENTS = frozenset({"gradient-cosine", "gradient-diff", "gradient-norm-all"})  # of `gradients`, which needs torch
NEEDS: dict[str, frozenset[Grant]] = {name: frozenset({Grant.OUTPUTS}) for name in outputs.SIGNALS} | dict.fromkeys(
    GRADIENTS, frozenset({Grant.WEIGHTS, Grant.EVERY_ROUND})
)


def passes(names: Iterable[str]) -> list[frozenset[str]]:
    """The names grouped by what they share: signals of one group cost one pass over the records."""
    wanted = frozenset(names)
    return [group for group in (wanted - GRADIENTS, wanted & GRADIENTS) if group]


def measure(names: Iterable[str], view: View, rows: Records, task: Any) -> dict[str, Floats]:
    """The named signals of every row under the view's model."""
    values: dict[str, Floats] = {}
    for group in passes(names):
        if group <= GRADIENTS:
            from fedaudit.signals import gradients

            values |= gradients.measure(group, view, rows, task)
        else:
            values |= outputs.from_outputs(task.outputs(view.state, rows.x), rows.y, group)
    return values


def check(names: Iterable[str], task: Any, state: State, rows: Records) -> str | None:
    """Refuse, before training, signals that this task cannot give; say so if some will cost more than one pass."""
    if not GRADIENTS & set(names):
        return None
    from fedaudit.signals import gradients

    return gradients.check(task, state, rows)
