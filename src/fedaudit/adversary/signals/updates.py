"""Signals of an update through the matched filter and its relatives. The arithmetic is in `matched` and `relatives`.

Each needs two consecutive models: what the round started from, and what it came to. Where the start was not seen there
is no update, and so none of these signals.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedaudit.adversary.vantage import View
from fedaudit.types import Bools, Floats, Grant, Records, State

if TYPE_CHECKING:
    import torch

    from fedaudit.adversary.signals import matched

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
        from fedaudit.adversary.signals import relatives

        wanted = set(names)
        found: dict[str, Floats] = {}
        if HESSIAN in wanted:
            module = view.task.fresh(view.weights)
            found[HESSIAN] = relatives.inverse_hessian(self._prepare(module, view, rows, known), module).numpy()
        received = view.received if wanted - {HESSIAN} else None
        if received is None:
            return found
        if BEFORE in wanted:
            found[BEFORE] = relatives.loss(view.task, received, rows)
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

        if self.prepared is None:
            options = self.options
            chosen = np.flatnonzero(known) if options.fit == "nonmembers" else np.arange(len(rows))
            self.layer = options.layer or matched.largest_linear(module)
            x, y = _tensor(rows.x), _tensor(rows.y)
            fitting = torch.from_numpy(chosen)
            self.prepared = matched.prepare(
                module, view.task.losses, x, y, fitting, options.damping, self.layer, options.adaptive
            )
        return self.prepared

    def _filtered(
        self, signal: str, view: View, rows: Records, known: Bools, received: State, sent: State
    ) -> dict[str, Floats]:
        import torch

        from fedaudit.adversary.signals import matched

        module = view.task.fresh(matched.halfway(received, sent))
        prepared = self._prepare(module, view, rows, known)
        updates = {
            name: torch.from_numpy(np.asarray(received[name] - np.asarray(sent[name])))[None]
            for name, parameter in module.named_parameters()
            if parameter.requires_grad
        }
        statistics = matched.statistics(prepared, module, updates)
        scores = matched.standardised(matched.scores(statistics)[:, 0, 0], prepared.fitting)
        strength = statistics.norm2[:, 0].sqrt()
        return {
            signal: np.asarray(scores.numpy(), np.float64),
            STRENGTH[signal]: np.asarray(strength.numpy(), np.float64),
        }

    def _residual(self, view: View, rows: Records, known: Bools, received: State) -> Floats:
        import torch

        from fedaudit.adversary.signals import relatives

        module = view.task.fresh(received)
        self._prepare(module, view, rows, known)
        assert self.layer is not None
        weight = f"{self.layer}.weight"
        update = torch.from_numpy(np.asarray(received[weight] - view.weights[weight]))
        return np.asarray(relatives.projection(module, _tensor(rows.x), update, self.layer).numpy(), np.float64)


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


def _tensor(array: Any) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array))
