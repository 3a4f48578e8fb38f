"""Signals from a record's gradient: how well it agrees with the update of the model.

g is the gradient of the record's loss at the model that was *received*; u = received - sent is the update as a descent
direction. A record that contributed to the update has a positive product with it. For a party's local model, received
and sent are what the server saw; for a global model, they are two consecutive global models, which everybody has.

There is one column for each layer, and a last one for all layers together.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from fedaudit.adversary.signals import ghost
from fedaudit.adversary.vantage import View
from fedaudit.errors import FedauditError
from fedaudit.learn.tasks import tensor
from fedaudit.types import Bools, Floats, Records, State


def measure(
    names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
) -> dict[str, Floats]:
    """The named signals of every row, from one ghost pass for all updates that they need.

    If the start of the round was not observed, there is no update and none of these signals.
    """
    names = list(names)
    if view.received is None:
        return {}
    everyone = view.peers if "peer-cosine" in names else {}
    peers = {name: state for name, state in everyone.items() if state is not None}
    found = statistics(view.task, view.received, [view.weights, *peers.values()], rows)
    g2 = with_all(found.norm2)

    def of(update: int) -> tuple[Floats, Floats]:
        return with_all(found.inner[:, :, update]), with_all(found.update2[None, :, update])

    def of_peers() -> Floats:
        absent = np.full((len(rows), g2.shape[1]), np.nan)
        places = {name: 1 + place for place, name in enumerate(peers)}
        blocks = [cosine_with(places[name]) if name in places else absent for name in everyone]
        return np.concatenate(blocks or [absent], axis=1)

    def cosine_with(update: int) -> Floats:
        product, u2 = of(update)
        return cosine(product, g2, u2)

    product, u2 = of(0)
    values: dict[str, Callable[[], Floats]] = {
        "gradient-cosine": lambda: cosine_with(0),
        "gradient-diff": lambda: np.sqrt(u2) - np.sqrt(np.maximum(u2 - 2 * product + g2, 0.0)),
        "gradient-norm-all": lambda: np.sqrt(g2[:, -1]),
        "peer-cosine": of_peers,
    }
    return {name: values[name]() for name in names}


def statistics(
    task: Any, received: State, sent: Sequence[State], rows: Records, norms: bool = True
) -> ghost.Statistics:
    """The norm of every row's gradient, and its product with every update of the received model."""
    module = task.fresh(received)
    names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    updates = {
        name: torch.from_numpy(np.stack([received[name] - np.asarray(state[name]) for state in sent])) for name in names
    }
    return ghost.statistics(module, task.losses, tensor(rows.x), tensor(rows.y), updates, norms)


def check(task: Any, state: State, rows: Records) -> str | None:
    """Refuses, before training, a model without per-record gradients. Returns a notice if some layers are slow."""
    if not hasattr(task, "losses"):
        raise FedauditError(
            "no-gradients",
            "a model that is given without torch offers no gradients",
            "Take the gradient attacks out of audit.attacks.",
        )
    plan = ghost.verify(task.fresh(state), task.losses, tensor(rows.x), tensor(rows.y))
    if not plan.slow:
        return None
    layers = ", ".join(repr(layer) if layer else "the model itself" for layer in plan.slow)
    return f"no fast rule covers {layers}: per-record gradients take one backward pass for each record there"


def with_all(by_layer: torch.Tensor) -> Floats:
    """Adds a column: the sum over the layers."""
    values = by_layer.numpy()
    return np.concatenate([values, values.sum(axis=1, keepdims=True)], axis=1)


def cosine(product: Floats, g2: Floats, u2: Floats) -> Floats:
    """0 if the gradient or the update is zero, which is no evidence either way. NaN stays NaN."""
    scale = np.sqrt(g2 * u2)
    return np.divide(product, scale, out=np.zeros_like(product), where=scale != 0)
