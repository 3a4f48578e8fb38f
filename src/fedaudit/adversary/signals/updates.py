"""Signals of an update: through the matched filter and its relatives (the arithmetic is in `matched`), and how well a
record's gradient agrees with it (in `ghost`).

Each needs two consecutive models: what the round started from, and what it came to. Where the start was not seen there
is no update, and so none of these signals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedaudit.adversary.vantage import View
from fedaudit.errors import FedauditError
from fedaudit.stats import hash_order
from fedaudit.trace.segments import digest
from fedaudit.types import Bools, Floats, Grant, Ints, Records, State, Stored

if TYPE_CHECKING:
    import torch

    from fedaudit.adversary.signals import ghost, matched, unmix

CONSECUTIVE = frozenset({Grant.WEIGHTS, Grant.START})

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
UNMIX, UNMIX_FIT = "unmix", "unmix-fit"
OF_UNMIXING: dict[str, frozenset[Grant]] = dict.fromkeys((UNMIX, UNMIX_FIT), CONSECUTIVE)
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
    layer: by name (None: the largest linear one; ALL: every layer, each by its own spread).
    adaptive: the parties train with Adam.
    """

    fit: Fit = "all"
    damping: float = 0.1
    layer: str | None = None
    adaptive: bool = False


ALL = "all"  # every layer


class Losses:
    """The losses under the global model that was asked last: the next round starts from it, or, where a party watches
    its own rounds, this one. Where it was asked about the same records, it need not be asked again."""

    def __init__(self) -> None:
        self._last: tuple[str, Records, Floats] | None = None

    def tell(self, state: State, rows: Records, losses: Floats) -> None:
        self._last = digest(state), rows, losses

    def of(self, state: State, rows: Records) -> Floats | None:
        """None where they are not known. Models are told apart by their bits: a caller may change one in place."""
        if self._last is None or self._last[1] is not rows or self._last[0] != digest(state):
            return None
        return self._last[2]


class Filtering:
    """The filter of one sight: what it prepares from the records serves every round."""

    def __init__(self, options: FilterOptions, losses: Losses | None = None, without: frozenset[str] = frozenset()):
        """`without`: parameters that are not looked at."""
        self.options, self.losses, self.without = options, losses or Losses(), without
        self.prepared: matched.MatchedSetup | None = None
        self.layer: str | None = None  # the one that is looked at

    def measure(
        self, names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
    ) -> dict[str, Floats]:
        from fedaudit.adversary.signals import matched

        wanted = set(names)
        found: dict[str, Floats] = {}
        if HESSIAN in wanted:
            module = fresh(view.task, view.weights, self.without)
            found[HESSIAN] = matched.inverse_hessian(self._prepare(module, view, rows, known), module).numpy()
        received = view.received if wanted - {HESSIAN} else None
        if received is None:
            return found
        if BEFORE in wanted:
            losses = self.losses.of(received, rows)
            found[BEFORE] = matched.loss(view.task, received, rows) if losses is None else losses
        if FILTER in wanted:
            found |= self._filtered(FILTER, view, rows, known, received, view.sent)
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
            layer, adaptive = (None, False) if self.layer == ALL else (self.layer, options.adaptive)
            self.prepared = matched.prepare(module, view.task.losses, x, y, fitting, options.damping, layer, adaptive)
        return self.prepared

    def _filtered(
        self, signal: str, view: View, rows: Records, known: Bools, received: State, sent: State
    ) -> dict[str, Floats]:
        from fedaudit.adversary.signals import matched

        module = fresh(view.task, matched.halfway(received, sent), self.without)
        prepared = self._prepare(module, view, rows, known)
        statistics = matched.statistics(prepared, module, _updates(module, received, [sent]))
        every = self.layer == ALL
        found = matched.by_spread(statistics, prepared.fitting) if every else matched.scores(statistics)[:, 0]
        scores = matched.standardised(found[:, 0], prepared.fitting)
        strength = statistics.norm2.sum(1).sqrt()
        return {
            signal: np.asarray(scores.numpy(), np.float64),
            STRENGTH[signal]: np.asarray(strength.numpy(), np.float64),
        }

    def _residual(self, view: View, rows: Records, known: Bools, received: State) -> Floats:
        from fedaudit.adversary.signals import matched
        from fedaudit.learn.tasks import tensor

        module = fresh(view.task, received, self.without)
        self._prepare(module, view, rows, known)
        assert self.layer is not None
        layer = matched.largest_linear(module) if self.layer == ALL else self.layer  # it looks at one
        weight = f"{layer}.weight"
        update = tensor(np.asarray(received[weight] - view.sent[weight]))
        return np.asarray(matched.projection(module, tensor(rows.x), update, layer).numpy(), np.float64)


# ------------------------------------------------------------------ all candidates at once


@dataclass(frozen=True)
class UnmixOptions:
    """How the update is unmixed, before training.

    layer: by name (ALL: every layer that is trained).
    coverage: the candidates are dealt into groups of about this share, and each group is unmixed alone.
    adaptive: the parties train with Adam. None: not known; the first update says it.
    """

    _: KW_ONLY
    damping: float = 1.0
    ridge: float = 0.1
    layer: str = ALL
    sketch: int = 80
    coverage: float = 1.0
    adaptive: bool | None = False


class Unmixing:
    """The unmixing of one sight: what it prepares from the records serves every round."""

    def __init__(self, options: UnmixOptions, without: frozenset[str] = frozenset()):
        self.options, self.without = options, without
        self.adaptive = options.adaptive
        self.prepared: list[tuple[Ints, unmix.UnmixSetup]] | None = None

    def state(self) -> Stored:
        """What the first update said; what is prepared follows from the records."""
        return {"adaptive": self.adaptive}

    def restore(self, state: Stored) -> None:
        self.adaptive = state["adaptive"]

    def measure(
        self, names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
    ) -> dict[str, Floats]:
        """`unmix-fit`: for all rows of a group alike, the share of the update that is explained, the relative error of
        the solution, and the share of the rows that are in the group."""
        from fedaudit.adversary.signals import matched, unmix

        received = view.received
        if received is None:
            return {}
        module = fresh(view.task, matched.halfway(received, view.sent), self.without)
        update = {name: of[0] for name, of in _updates(module, received, [view.sent]).items()}
        score, fit = np.zeros(len(rows)), np.zeros((len(rows), 3))
        prepared = self._prepare(module, view, rows)
        if self.adaptive is None and any(bool(of.any()) for of in update.values()):
            self.adaptive = unmix.uses_adam(prepared[0][1], module, update)
        for mine, setup in prepared:
            found = unmix.unmix(replace(setup, adaptive=bool(self.adaptive)), module, update)
            score[mine] = matched.standardised(found.score, slice(None)).numpy()
            fit[mine] = found.explained, found.error, len(mine) / len(rows)
        values = {UNMIX: score, UNMIX_FIT: fit}
        return {name: values[name] for name in names}

    def _prepare(self, module: Any, view: View, rows: Records) -> list[tuple[Ints, unmix.UnmixSetup]]:
        """Once for all rounds: the rows of a sight stay the same."""
        from fedaudit.adversary.signals import unmix
        from fedaudit.learn.tasks import tensor

        if self.prepared is None:
            options = self.options

            def setup(some: Ints) -> unmix.UnmixSetup:
                layer = None if options.layer == ALL else options.layer
                x, y = tensor(rows.x[some]), tensor(rows.y[some])
                return unmix.prepare(
                    module,
                    view.task.losses,
                    x,
                    y,
                    damping=options.damping,
                    ridge=options.ridge,
                    sketch=options.sketch,
                    layer=layer,
                )

            order = hash_order(rows.id, UNMIX)
            groups = max(1, min(round(1 / options.coverage), len(rows) // 2))
            if groups == 1:
                whole = setup(np.arange(len(rows)))
                if whole.numbers <= unmix.MOST:
                    self.prepared = [(np.arange(len(rows)), whole)]
                    return self.prepared
                groups = -(-whole.numbers // unmix.MOST)
            dealt = [np.sort(order[first::groups]) for first in range(groups)]
            self.prepared = [(mine, setup(mine)) for mine in dealt if len(mine)]
        return self.prepared


def without_own(view: View, received: State) -> State | None:
    """What the global model would be without the first party, from what that party knows; None where it took no part or
    does not know how much its model counted."""
    own = view.own
    if own is None or not 0 < own.share < 1:
        return None
    others: dict[str, Any] = {}
    for name, value in received.items():
        if value.dtype.kind != "f":
            others[name] = view.sent[name]
            continue
        whole = np.asarray(view.sent[name], np.float64)
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
    names: Iterable[str],
    view: View,
    rows: Records,
    known: Bools,
    rng: np.random.Generator,
    without: frozenset[str] = frozenset(),
) -> dict[str, Floats]:
    """The named signals of every row, from one ghost pass for all updates that they need.

    If the start of the round was not observed, there is no update and none of these signals. `without`: parameters
    that are not looked at.
    """
    names = list(names)
    if view.received is None:
        return {}
    everyone = view.peers if "peer-cosine" in names else {}
    peers = {name: state for name, state in everyone.items() if state is not None}
    found = statistics(view.task, view.received, [view.sent, *peers.values()], rows, without=without)
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
    task: Any,
    received: State,
    sent: Sequence[State],
    rows: Records,
    norms: bool = True,
    without: frozenset[str] = frozenset(),
) -> ghost.Statistics:
    """The norm of every row's gradient, and its product with every update of the received model."""
    from fedaudit.adversary.signals import ghost
    from fedaudit.learn.tasks import tensor

    module = fresh(task, received, without)
    updates = _updates(module, received, sent)
    return ghost.statistics(module, task.losses, tensor(rows.x), tensor(rows.y), updates, norms)


def fresh(task: Any, state: State, without: frozenset[str]) -> Any:
    """A module with this state. What is not looked at is as what is not trained."""
    module = task.fresh(state)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and name not in without)
    return module


def _updates(module: Any, received: State, sent: Sequence[State]) -> dict[str, torch.Tensor]:
    """By parameter that is trained: all updates, one after the other."""
    import torch

    names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    return {
        name: torch.from_numpy(np.stack([received[name] - np.asarray(state[name]) for state in sent])) for name in names
    }


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The trained layers of a model, each with its parameters, by how their per-record gradients are had."""

    fast: Mapping[str, tuple[str, ...]]
    slow: Mapping[str, tuple[str, ...]]  # one backward pass for each record
    odd: Mapping[str, tuple[str, ...]]  # their weights are used outside of them: the slow way alone is right
    weights: Mapping[str, int]  # of each layer

    @property
    def why_slow(self) -> str:
        layers = ", ".join(repr(layer) if layer else "the model itself" for layer in self.slow)
        return f"no fast rule covers {layers}: per-record gradients take one backward pass for each record there"

    def share(self, left_out: frozenset[str]) -> float:
        """Of the trained weights, those of the layers with these parameters."""
        every = {**self.fast, **self.slow, **self.odd}
        gone = sum(self.weights[layer] for layer, names in every.items() if not left_out.isdisjoint(names))
        return gone / sum(self.weights.values())


def coverage(task: Any, state: State, rows: Records) -> Coverage:
    """Refuses, before training, a model without per-record gradients."""
    from fedaudit.adversary.signals import ghost
    from fedaudit.learn.tasks import tensor

    if not hasattr(task, "losses"):
        raise FedauditError(
            "no-gradients",
            "a model that is given without torch offers no gradients",
            "Take the gradient attacks out of audit.attacks.",
        )
    module = task.fresh(state)
    plan = ghost.verify(module, task.losses, tensor(rows.x), tensor(rows.y))
    layers = {layer: tuple(names) for layer, names in plan.layers.items()}
    return Coverage(
        fast={layer: names for layer, names in layers.items() if layer in plan.fast},
        slow={layer: names for layer, names in layers.items() if layer not in plan.fast | plan.odd},
        odd={layer: names for layer, names in layers.items() if layer in plan.odd},
        weights={layer: sum(module.get_parameter(n).numel() for n in names) for layer, names in layers.items()},
    )


def with_all(by_layer: torch.Tensor) -> Floats:
    """Adds a column: the sum over the layers."""
    values = by_layer.numpy()
    return np.concatenate([values, values.sum(axis=1, keepdims=True)], axis=1)


def cosine(product: Floats, g2: Floats, u2: Floats) -> Floats:
    """0 if the gradient or the update is zero, which is no evidence either way. NaN stays NaN."""
    scale = np.sqrt(g2 * u2)
    return np.divide(product, scale, out=np.zeros_like(product), where=scale != 0)
