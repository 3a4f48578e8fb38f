"""Signals by name: one number (or a few) per record and round. Signals that share a pass are computed together."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedaudit.adversary.signals import merlin, outputs
from fedaudit.errors import FedauditError
from fedaudit.types import Floats, Grant, Records, State, Vantage, View


@dataclass(frozen=True)
class Provider:
    """A family of signals: what each needs of a view, and how those wanted are computed together."""

    needs: Mapping[str, frozenset[Grant]]
    measure: Callable[[Iterable[str], View, Records, Any], dict[str, Floats]]


def _gradients(names: Iterable[str], view: View, rows: Records, task: Any) -> dict[str, Floats]:
    from fedaudit.adversary.signals import gradients  # needs torch

    return gradients.measure(names, view, rows, task)


_CONSECUTIVE = frozenset({Grant.WEIGHTS, Grant.EVERY_ROUND})
_GRADIENTS: dict[str, frozenset[Grant]] = {
    **dict.fromkeys(("gradient-cosine", "gradient-diff", "gradient-norm-all"), _CONSECUTIVE),
    "peer-cosine": _CONSECUTIVE | {Grant.UPDATE},
}
GRADIENTS = frozenset(_GRADIENTS)
PROVIDERS = (
    Provider(outputs.NEEDS, outputs.measure),
    Provider(merlin.NEEDS, merlin.measure),
    Provider(_GRADIENTS, _gradients),
)

NEEDS: dict[str, frozenset[Grant]] = {name: grants for p in PROVIDERS for name, grants in p.needs.items()}


def measure(names: Iterable[str], view: View, rows: Records, task: Any) -> dict[str, Floats]:
    """The named signals of every row under the view's model; each provider computes its own at once."""
    wanted = set(names)
    values: dict[str, Floats] = {}
    for provider in PROVIDERS:
        mine = [name for name in provider.needs if name in wanted]
        if mine:
            values |= provider.measure(mine, view, rows, task)
    return values


def why_not(names: Iterable[str], state: State, rows: Records, task: Any) -> str | None:
    """The reason why a task cannot give these signals, found by trying them on two records before training."""
    names = [name.removeprefix("attribute-") for name in names]  # the same signal, at each value of an attribute
    view = View(1, Vantage.SERVER, "local", None, frozenset(Grant), state, state)
    try:
        slow(names, state, rows, task)
        measure(names, view, rows.take(np.arange(min(2, len(rows)))), task)
    except FedauditError as error:
        return error.what
    return None


def slow(names: Iterable[str], state: State, rows: Records, task: Any) -> str | None:
    """Why some of the signals will cost far more than a pass; refuses gradients that would come out wrong."""
    if not GRADIENTS & set(names):
        return None
    from fedaudit.adversary.signals import gradients

    return gradients.check(task, state, rows)
