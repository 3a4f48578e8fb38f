"""Signals by name: one number per record and round. Signals that share a forward pass are computed together."""

from collections.abc import Iterable
from typing import Any

from fedaudit.signals import outputs
from fedaudit.types import Floats, Grant, Records, View

NEEDS: dict[str, frozenset[Grant]] = {name: frozenset({Grant.OUTPUTS}) for name in outputs.SIGNALS}


def measure(names: Iterable[str], view: View, rows: Records, task: Any) -> dict[str, Floats]:
    """The named signals of every row under the view's model: one forward pass for all of them."""
    z = task.outputs(view.state, rows.x)
    return outputs.from_outputs(z, rows.y, names)
