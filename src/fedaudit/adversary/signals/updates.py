"""Signals of an update: through the matched filter and its relatives (the arithmetic is in `matched`), and how well a
record's gradient agrees with it (in `ghost`).

Each needs two consecutive models: what the round started from, and what it came to. Where the start was not seen there
is no update, and so none of these signals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedaudit.adversary.vantage import View
from fedaudit.errors import FedauditError
from fedaudit.types import Bools, Floats, Grant, Records, State

if TYPE_CHECKING:
    import torch

    from fedaudit.adversary.signals import ghost, matched

CONSECUTIVE = frozenset({Grant.WEIGHTS, Grant.EVERY_ROUND})

FILTER, PEER, BEFORE = "matched-filter", "matched-filter-peer", "loss-before"
PROJECTION, HESSIAN = "projres", "inverse-hessian"
STRENGTH = {FILTER: "matched-strength", PEER: "matched-strength-peer"}  # the whitened norm of the record's gradient
NEEDS: dict[str, frozenset[Grant]] = {
    **dict.fromkeys((FILTER, STRENGTH[FILTER]), CONSECUTIVE),
    **dict.fromkeys((PEER, STRENGTH[PEER]), CONSECUTIVE | {Grant.OWN}),
    BEFORE: CONSECUTIVE,
    PROJECTION: CONSECUTIVE,
    HESSIAN: frozenset({Grant.WEIGHTS}),
}
OF_GRADIENTS: dict[str, frozenset[Grant]] = {
    **dict.fromkeys(("gradient-cosine", "gradient-diff", "gradient-norm-all"), CONSECUTIVE),
    "peer-cosine": CONSECUTIVE | {Grant.UPDATE},
}

# Signals that come out of one pass, and what they need.
_PASSES = ((FILTER, STRENGTH[FILTER]), (PEER, STRENGTH[PEER]), (BEFORE,), (PROJECTION,), (HESSIAN,))
PASSES = tuple({name: NEEDS[name] for name in names} for names in _PASSES)
OF_ONE_LAYER = (FILTER, PEER, PROJECTION, HESSIAN)

Fit = Literal["nonmembers", "all"]


@dataclass(frozen=True)
class FilterOptions:
    """How the filter is set, before training.

    fit: its moments come from known non-members, or from all candidates without their labels.
    damping: what is added to a moment, in units of its mean eigenvalue.
    layer: by name (None: the largest linear one).
    adaptive: the parties train with Adam.
    """

    fit: Fit = "all"
    damping: float = 0.1
    layer: str | None = None
    adaptive: bool = False


class Filtering:
    """The filter of one sight: what it prepares from the records serves every round."""

    def __init__(self, options: FilterOptions):
        self.options = options
        self.prepared: matched.MatchedSetup | None = None
        self.layer: str | None = None  # the one that is looked at

    def measure(
        self, names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
    ) -> dict[str, Floats]:
        from fedaudit.adversary.signals import matched

        wanted = set(names)
        found: dict[str, Floats] = {}
        if HESSIAN in wanted:
            module = view.task.fresh(view.weights)
            found[HESSIAN] = matched.inverse_hessian(self._prepare(module, view, rows, known), module).numpy()
        received = view.received if wanted - {HESSIAN} else None
        if received is None:
            return found
        if BEFORE in wanted:
            found[BEFORE] = matched.loss(view.task, received, rows)
        if FILTER in wanted:
            found |= self._filtered(FILTER, view, rows, known, received, view.weights)
        if PEER in wanted and (others := without_own(view, received)) is not None:
            found |= self._filtered(PEER, view, rows, known, received, others)
        if PROJECTION in wanted:
            found[PROJECTION] = self._residual(view, rows, known, received)
        return found

    def _prepare(self, module: Any, view: View, rows: Records, known: Bools) -> matched.MatchedSetup:
        """Once for all rounds: the rows of a sight stay the same."""
        import torch

        from fedaudit.adversary.signals import matched
        from fedaudit.learn.tasks import tensor

        if self.prepared is None:
            options = self.options
            chosen = np.flatnonzero(known) if options.fit == "nonmembers" else np.arange(len(rows))
            self.layer = options.layer or matched.largest_linear(module)
            x, y, fitting = tensor(rows.x), tensor(rows.y), torch.from_numpy(chosen)
            self.prepared = matched.prepare(
                module, view.task.losses, x, y, fitting, options.damping, self.layer, options.adaptive
            )
        return self.prepared

    def _filtered(
        self, signal: str, view: View, rows: Records, known: Bools, received: State, sent: State
    ) -> dict[str, Floats]:
        from fedaudit.adversary.signals import matched

        module = view.task.fresh(matched.halfway(received, sent))
        prepared = self._prepare(module, view, rows, known)
        statistics = matched.statistics(prepared, module, _updates(module, received, [sent]))
        scores = matched.standardised(matched.scores(statistics)[:, 0, 0], prepared.fitting)
        strength = statistics.norm2[:, 0].sqrt()
        return {
            signal: np.asarray(scores.numpy(), np.float64),
            STRENGTH[signal]: np.asarray(strength.numpy(), np.float64),
        }

    def _residual(self, view: View, rows: Records, known: Bools, received: State) -> Floats:
        from fedaudit.adversary.signals import matched
        from fedaudit.learn.tasks import tensor

        module = view.task.fresh(received)
        self._prepare(module, view, rows, known)
        assert self.layer is not None
        weight = f"{self.layer}.weight"
        update = tensor(np.asarray(received[weight] - view.weights[weight]))
        return np.asarray(matched.projection(module, tensor(rows.x), update, self.layer).numpy(), np.float64)


def without_own(view: View, received: State) -> State | None:
    """What the global model would be without the first party, from what that party knows; None where it took no part or
    does not know how much its model counted."""
    own = view.own
    if own is None or not 0 < own.share < 1:
        return None
    others: dict[str, Any] = {}
    for name, value in received.items():
        if value.dtype.kind != "f":
            others[name] = view.weights[name]
            continue
        whole = np.asarray(view.weights[name], np.float64)
        others[name] = np.asarray((whole - own.share * own.state[name]) / (1 - own.share), value.dtype)
    return others


# ------------------------------------------------------------------ how well a record's gradient agrees with the update

# g is the gradient of the record's loss at the model that was *received*; u = received - sent is the update as a
# descent direction. A record that contributed to the update has a positive product with it. For a party's local model,
# received and sent are what the server saw; for a global model, they are two consecutive global models, which everybody
# has.
#
# There is one column for each layer, and a last one for all layers together.


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
    from fedaudit.adversary.signals import ghost
    from fedaudit.learn.tasks import tensor

    module = task.fresh(received)
    updates = _updates(module, received, sent)
    return ghost.statistics(module, task.losses, tensor(rows.x), tensor(rows.y), updates, norms)


def _updates(module: Any, received: State, sent: Sequence[State]) -> dict[str, torch.Tensor]:
    """By parameter that is trained: all updates, one after the other."""
    import torch

    names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    return {
        name: torch.from_numpy(np.stack([received[name] - np.asarray(state[name]) for state in sent])) for name in names
    }


def check(task: Any, state: State, rows: Records) -> str | None:
    """Refuses, before training, a model without per-record gradients. Returns a notice if some layers are slow."""
    from fedaudit.adversary.signals import ghost
    from fedaudit.learn.tasks import tensor

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
