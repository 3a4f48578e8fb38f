"""The matched filter: is this record's gradient in the update?

To first order a layer's update U = received - sent is a sum of the gradients of the records that it was made from. To
ask whether one known gradient is in the sum is to look for a signal in coloured noise, and the noise, everybody else's
gradients, has about the covariance B (x) A that K-FAC uses (Martens and Grosse 2015). The best linear detector whitens:

    score = <B^-1 delta, U A^-1 h> / (|delta| in B^-1  x  |h| in A^-1)

with the second moments of the inputs h and of the output gradients delta of records that the adversary knows not to
be members, or of all candidates without their labels. Gradient-Cosine is the same without the whitening: there,
records that resemble many others drown in them. We know of no earlier use of both whitenings on updates.

1. `prepare` once: which layers, which records the moments are taken from, what of it never changes.
2. `statistics` in every round, at the model `halfway` between received and sent: one forward pass, one backward pass
   down to the chosen layer. A record was met somewhere on the way, and halfway is nearest to everywhere.
3. `scores`, standardised on the records of the fit. Over rounds their sum, weighted with the whitened norm of the
   record's gradient in each round (`adversary.reductions.Weighted`), which is how strong the signal would be.

Adam divides every coordinate of a gradient by about its root mean square. Where the party is known to use it
(`adaptive`), the update is multiplied by that first, so that it is a sum of gradients again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from fedaudit.adversary.signals import ghost, matched
from fedaudit.adversary.signals.ghost import LayerPlan, Losses, Statistics
from fedaudit.adversary.signals.layers import Call, Calls
from fedaudit.adversary.signals.outputs import from_answers, parts
from fedaudit.adversary.signals.whitening import (
    LayerRule,
    SecondMoment,
    Side,
    Transposed,
    Whitening,
    rule_for,
    with_one,
)
from fedaudit.errors import FedauditError, suggest
from fedaudit.types import Floats, Records, State, Task

FEWEST = 16  # fitting records below which nothing is known about a covariance: the plain cosine
KEPT = 2**26  # values of one pass that are kept, so that no second pass is needed
VECTORS = 32  # for each dimension of a second moment are enough where a record has many positions,
ENOUGH = 2**13  # and never fewer than this, unless they fill the memory,
HELD = 2**27  # numbers in all of them,
RECORDS = 64  # if they come from so many records


@dataclass(frozen=True)
class Limit:
    """Where a record has many positions, some of them, of some of the records, are enough to fit a second moment."""

    records: int
    every: int  # one position of so many

    @classmethod
    def of(cls, positions: int, dim: int, fitting: int, held: int = HELD) -> Limit:
        wanted = max(1, min(max(VECTORS * dim, ENOUGH), held // dim))
        records = fitting if positions == 1 else min(fitting, max(RECORDS, -(-wanted // positions)))
        spare = positions * records // wanted
        return cls(records, 1 if positions == 1 else max(1, spare - 1 + spare % 2))  # odd: it visits every column


@dataclass(frozen=True, kw_only=True)
class MatchedSetup:
    """What does not change from round to round."""

    x: Tensor
    y: Tensor
    losses: Losses
    plan: LayerPlan  # of the chosen layers
    fitting: Tensor  # rows that the moments are taken from
    damping: float
    adaptive: bool  # the updates are those of Adam
    light: bool  # one pass is small enough to be kept
    limits: Mapping[str, Limit]  # layer -> how much of the fitting rows is enough for it
    inputs: Mapping[str, Side] = field(default_factory=dict)  # of layers that are given the record itself
    squares: Mapping[str, Tensor] = field(default_factory=dict)  # and of these, with one position, h' A^-1 h

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(self.plan.layers)

    def layer(self, module: nn.Module, name: str) -> tuple[nn.Module, LayerRule]:
        layer = module.get_submodule(name)
        rule = rule_for(layer, _own(self.plan.layers[name]))
        assert rule is not None
        return layer, rule

    @property
    def whitened(self) -> bool:
        """False: too few records to fit, so that this is the plain cosine."""
        return self.damping < torch.inf


def rules(module: nn.Module, among: Collection[str] | None = None) -> dict[str, LayerRule]:
    """The layers that a matched filter exists for. `among`: those that are fast (None: all are taken for it)."""
    trained = ghost.trained_layers(module)
    found = {
        layer: rule_for(module.get_submodule(layer), _own(names))
        for layer, names in trained.items()
        if among is None or layer in among
    }
    return {layer: rule for layer, rule in found.items() if rule is not None}


def largest_linear(module: nn.Module, among: Collection[str] | None = None) -> str:
    """The linear layer with the most weights, or the largest layer of another kind where there is none."""
    names = rules(module, among)
    if not names:
        raise FedauditError(
            "no-matched-layer",
            "the model has no linear, convolutional or embedding layer of its own that is trained and fast",
            "Take matched-filter out of audit.attacks.",
        )

    def size(name: str) -> tuple[bool, int]:
        layer = module.get_submodule(name)
        assert isinstance(layer.weight, Tensor)
        return isinstance(layer, nn.Linear) or type(names[name]) is Transposed, layer.weight.numel()

    return max(names, key=size)


def prepare(
    module: nn.Module,
    losses: Losses,
    x: Tensor,
    y: Tensor,
    fitting: Tensor,
    damping: float,
    layer: str | None = None,
    adaptive: bool = False,
) -> MatchedSetup:
    """`fitting`: rows of known non-members, or all rows. `layer`: one by name; None: every layer that has a rule.
    `adaptive`: the party trains with Adam.

    `damping`: what is added to a second moment, in units of its mean eigenvalue. Too few rows to fit make it infinite,
    which is the plain cosine.
    """
    known = rules(module)
    if layer is not None and layer not in known:
        raise FedauditError("unknown-layer", f"no matched filter for layer {layer!r}", suggest(layer, known))
    trained = ghost.trained_layers(module)
    chosen = {name: trained[name] for name in ([layer] if layer is not None else known)}
    with ghost.evaluating(module):
        examined, x = ghost.examined(module, chosen, x)
        few, labels = x[: ghost.FEW], y[: ghost.FEW]
        fast = examined.fast & set(chosen)
        if not fast:
            raise FedauditError(
                "slow-layer",
                f"the gradients of {layer or 'the model'} are slow, record by record, and a matched filter is not",
                "Name another layer in audit.matched.layer, or take matched-filter out of audit.attacks.",
            )
        plan = replace(examined, layers={name: chosen[name] for name in chosen if name in fast}, fast=frozenset(fast))
        calls = ghost.calls_of(module, losses, few, labels, plan)
    values = sum(c.a[0].numel() + c.b[0].numel() for every in calls.values() for c in every)
    limits = {}
    for name in plan.layers:
        at = known[name].positions(module.get_submodule(name), calls[name], _own(chosen[name]))
        limits[name] = Limit.of(at.a.shape[1], max(at.a.shape[2], at.b.shape[2]), len(fitting))
    order = torch.randperm(len(fitting), generator=torch.Generator().manual_seed(0))  # any part of it is a fair part
    known_well = len(fitting) >= FEWEST
    damping = damping if known_well else torch.inf
    light = values * len(x) <= KEPT
    prepared = MatchedSetup(
        x=x,
        y=y,
        losses=losses,
        plan=plan,
        fitting=fitting[order],
        damping=damping,
        adaptive=adaptive and known_well,
        light=light,
        limits=limits,
    )
    return _with_constant_inputs(prepared, module, calls)


def _is_the_record(calls: list[Call], x: Tensor) -> bool:
    a = calls[0].a
    return len(calls) == 1 and a.dtype == x.dtype and a.shape[1:].numel() == x.shape[1:].numel() and torch.equal(
        a.flatten(1), x.flatten(1)
    )  # fmt: skip


def _with_constant_inputs(prepared: MatchedSetup, module: nn.Module, calls: Mapping[str, list[Call]]) -> MatchedSetup:
    """A^-1 of a linear layer that is given the records themselves is the same in all rounds, and so is h' A^-1 h."""
    inputs, squares = {}, {}
    for name, names in prepared.plan.layers.items():
        layer, rule = prepared.layer(module, name)
        few = prepared.x[: ghost.FEW]
        if not (isinstance(layer, nn.Linear) and calls[name][0].a.dim() == 2 and _is_the_record(calls[name], few)):
            continue
        h = prepared.x.flatten(1)
        h = with_one(h) if "bias" in _own(names) else h
        inputs[name] = rule.inputs(layer, h[prepared.fitting], prepared.damping)
        squares[name] = torch.cat([inputs[name].inverse.square(part) for part in torch.split(h, ghost.ROWS)])
    return replace(prepared, inputs=inputs, squares=squares)


def _own(names: Sequence[str]) -> frozenset[str]:
    return frozenset(map(_last, names))


def _last(name: str) -> str:
    return name.rpartition(".")[2]


# ------------------------------------------------------------------ one round


Seen = list[dict[str, list[Call]]]  # what each layer saw, one part of the rows after the other


def look(prepared: MatchedSetup, module: nn.Module) -> Seen | None:
    """One pass over all rows, for several fits to share; None where it is too large to be kept."""
    with ghost.evaluating(module):
        return _seen(prepared, module, torch.arange(len(prepared.x)), {}) if prepared.light else None


def statistics(
    prepared: MatchedSetup, module: nn.Module, updates: Mapping[str, Tensor], seen: Seen | None = None
) -> Statistics:
    """Of whitened gradients, what `ghost.statistics` says of plain ones: for all rows, at the module's weights.

    `updates`: parameter name -> K x its shape. Squares and products add up over layers. `seen`: from `look`.
    """
    size, n = ghost.rows_at_once(prepared.x, prepared.y, prepared.plan), len(prepared.x)
    seen = seen or look(prepared, module)
    with ghost.evaluating(module):
        if seen is not None:
            by = _fit(prepared, module, seen, torch.arange(n), updates)
        else:
            some = _seen(prepared, module, prepared.fitting, prepared.limits)
            by = _fit(prepared, module, some, prepared.fitting, updates)

        def score(own: nn.Module, start: int) -> tuple[Tensor, Tensor]:
            rows = slice(start, start + size)
            calls = _pass(prepared, own, rows) if seen is None else seen[start // size]
            return _score(prepared, own, calls, by, rows)

        parts = ghost.for_each(score, range(0, n, size), module, torch.get_num_threads())
    update2 = torch.stack([by[name].update2 for name in prepared.layers])
    return Statistics(prepared.layers, torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]), update2)


def _pass(
    prepared: MatchedSetup, module: nn.Module, rows: Tensor | slice, layers: Sequence[str] | None = None
) -> dict[str, list[Call]]:
    plan = prepared.plan if layers is None else replace(prepared.plan, fast=frozenset(layers))
    return ghost.calls_of(module, prepared.losses, prepared.x[rows], prepared.y[rows], plan)


def _seen(prepared: MatchedSetup, module: nn.Module, rows: Tensor, limits: Mapping[str, Limit]) -> Seen:
    """What each layer saw of these rows, or of the first so many of them."""
    size = ghost.rows_at_once(prepared.x, prepared.y, prepared.plan)
    most = {name: limits[name].records if limits else len(rows) for name in prepared.layers}
    nothing = torch.empty(0)

    def see(own: nn.Module, start: int) -> dict[str, list[Call]]:
        calls = _pass(prepared, own, rows[start : start + size], [name for name in most if start < most[name]])
        return {name: [Call(c.a, nothing, c.b) for c in every] for name, every in calls.items()}  # no outputs

    return ghost.for_each(see, range(0, max(most.values()), size), module, torch.get_num_threads())


def _fit(
    prepared: MatchedSetup, module: nn.Module, seen: Seen, rows: Tensor, updates: Mapping[str, Tensor]
) -> dict[str, Whitening]:
    """Second moments of every chosen layer, on the fitting rows among `rows`, which are those that were seen."""
    found = {}
    for name, names in prepared.plan.layers.items():
        layer, rule = prepared.layer(module, name)
        limit = prepared.limits[name]
        wanted = torch.zeros(len(prepared.x), dtype=torch.bool)
        wanted[prepared.fitting[: limit.records]] = True
        a, b, start = [], [], 0
        for calls in (part[name] for part in seen if name in part):
            mask = wanted[rows[start : start + len(calls[0].a)]]
            start += len(mask)
            if mask.any():
                some = calls if mask.all() else [Call(c.a[mask], c.z, c.b[mask]) for c in calls]
                at = rule.positions(layer, some, _own(names))
                a.append(at.a[:, :: limit.every].flatten(0, 1))
                b.append(at.b[:, :: limit.every].flatten(0, 1))
        inputs = prepared.inputs.get(name) or rule.inputs(layer, torch.cat(a), prepared.damping)
        outputs = SecondMoment.of(torch.cat(b)).side(prepared.damping)
        own = rule.update({_last(full): updates[full] for full in names})
        found[name] = Whitening.of(inputs, outputs, own, prepared.adaptive)
    return found


def _score(
    prepared: MatchedSetup, module: nn.Module, calls: Mapping[str, Calls], by: Mapping[str, Whitening], rows: slice
) -> tuple[Tensor, Tensor]:
    norm2, inner = [], []
    for name, names in prepared.plan.layers.items():
        layer, rule = prepared.layer(module, name)
        a2 = prepared.squares[name][rows] if name in prepared.squares else None
        found = rule.statistics(layer, calls[name], _own(names), by[name], a2)
        norm2.append(found[0].double())
        inner.append(found[1].double())
    return torch.stack(norm2, dim=1), torch.stack(inner, dim=1)


# ------------------------------------------------------------------ from statistics to scores


def halfway(received: State, sent: State) -> State:
    """The model between the two; counters and the like are those received."""
    return {
        name: np.asarray((value + sent[name]) / 2, value.dtype) if value.dtype.kind == "f" else value
        for name, value in received.items()
    }


def scores(found: Statistics) -> Tensor:
    """n x L x K: of each layer alone. 0 where a gradient vanishes: no evidence either way."""
    return _over(found.inner, found.norm2[..., None])


def together(found: Statistics) -> Tensor:
    """n x K: of all the layers as one vector."""
    return _over(found.inner.sum(1), found.norm2.sum(1)[:, None])


def by_spread(found: Statistics, fitting: Tensor) -> Tensor:
    """n x K: of all the layers, the product of each in units of its score's spread on the fitting rows. Without these
    units a layer with large updates would drown the others."""
    spread = scores(found)[fitting].std(0)
    units = torch.where(spread > 0, spread, torch.ones_like(spread))
    return _over((found.inner / units).sum(1), found.norm2.sum(1)[:, None])


def _over(inner: Tensor, norm2: Tensor) -> Tensor:
    """0 where a gradient vanishes. NaN stays NaN: a model that diverged has no score."""
    return torch.where(norm2 == 0, inner.new_zeros(()), inner / norm2.clamp_min(torch.finfo(norm2.dtype).tiny).sqrt())


def standardised(values: Tensor, fitting: Tensor | slice) -> Tensor:
    """One affine map for all rows, from those that were fitted on (along the first axis)."""
    some = values[fitting]
    spread = some.std(0)
    return (values - some.mean(0)) / torch.where(spread > 0, spread, torch.ones_like(spread))


# ------------------------------------------------------------------ relatives of the filter


def loss(task: Task, state: State, rows: Records) -> Floats:
    """Under the model received: what round-gain compares with the loss under the model sent."""
    found = [
        from_answers(task.outputs(state, rows.x[part]), rows.y[part], ["loss"], task.classes)["loss"]
        for part in parts(rows.y, task.classes)
    ]
    return np.concatenate(found)


def projection(module: nn.Module, x: Tensor, update: Tensor, layer: str, cut: float = 0.01) -> Tensor:
    """Projection residuals (ProjRes, IEEE S&P 2026; only the abstract was at hand, so this is our reading of it): how
    far a record's hidden vector lies from the row space of the layer's update, -|h - V V'h| / |h|, the mean over a
    record's positions, at the model received.

    `update`: of the layer's weight, out x width. V: its right singular vectors whose singular values are larger than
    `cut` times the largest. A linear layer.
    """
    _, values, right = torch.linalg.svd(update.double(), full_matrices=False)
    v = right[values > cut * values[0]]
    hidden: list[Tensor] = []

    def keep(_layer: nn.Module, args: tuple[Tensor, ...]) -> None:
        hidden.append(args[0].detach())

    handle = module.get_submodule(layer).register_forward_pre_hook(keep)
    found = []
    try:
        with ghost.evaluating(module), torch.no_grad():
            for part in torch.split(x, ghost.ROWS):
                hidden.clear()
                module(part)
                h = torch.cat([one.reshape(len(part), -1, update.shape[1]) for one in hidden], dim=1).double()
                outside = (h - (h @ v.T) @ v).norm(dim=2)
                found.append(-(outside / h.norm(dim=2).clamp_min(torch.finfo(h.dtype).tiny)).mean(1))
    finally:
        handle.remove()
    return torch.cat(found)


def inverse_hessian(prepared: matched.MatchedSetup, module: nn.Module) -> Tensor:
    """The inverse-Hessian attack (Suri et al. 2024), read from the abstract as well: -(standardised loss + standardised
    <g, H^-1 g>) at the final model, with K-FAC's A (x) B of known non-members as the Hessian. Both are small for a
    member."""
    nothing = {name: torch.zeros(1, *p.shape, dtype=p.dtype) for name, p in module.named_parameters()}
    size = matched.statistics(prepared, module, nothing).norm2.sum(1)
    rows = ghost.rows_at_once(prepared.x, prepared.y, prepared.plan)
    parts = zip(torch.split(prepared.x, rows), torch.split(prepared.y, rows), strict=True)
    with ghost.evaluating(module), torch.no_grad():
        loss = torch.cat([prepared.losses(module(x), y).double() for x, y in parts])
    return -matched.standardised(torch.stack([loss, size], dim=1), prepared.fitting).sum(1)
