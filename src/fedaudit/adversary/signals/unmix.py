"""Unmixing: which combination of the candidates' gradients makes this update?

The matched filter looks for one record at a time and takes everybody else for noise of a known colour. Whoever audits a
federation holds the others' records too. One ridge regression in every round explains the update by the gradients of
all candidates together, so that a record is not taken for another one that resembles it:

    u = F'c + rest          a = (K + ridge I)^-1 F u          K = F F' (one row of F for each candidate)

1. `prepare` once: which layers, and which of them are sketched.
2. Templates, in every round, at the model halfway between received and sent: a record's gradient in each layer, seen
   through two maps, one for the layer's outputs and one for its inputs. Where the party uses Adam, a map divides by the
   root mean square, as Adam did to the update. It then whitens with the damped second moments of all candidates,
   because what the regression cannot explain has the colour of gradients, too. A wide layer whose weights are shared by
   many positions is sketched: random maps, fixed once, that keep `sketch`^2 numbers. An infinite damping whitens
   nothing, and an infinite ridge looks for one record at a time: that is the matched filter.
3. Every layer counts in units of its own update, so that what is left over is alike in all of them.
4. The score is the coefficient over its standard error, if whether the *others* are in the sum is left open:
   a_i / sqrt(h_i (1 - h_i)), with h_i the leverage of the record. It is the best linear detector of this record if the
   others are in the sum or not as chance has it. Over the rounds, the mean.

For a layer with one position K is exact and costs two small products: K_ij = (g_i.g_j)(h_i.h_j). Above `DIRECT`
candidates nothing of their number squared is formed: conjugate gradients, with groups of candidates solved exactly as
the preconditioner. These groups then give the leverages, and the relative error of the solution is told.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
import torch
from scipy.linalg import get_lapack_funcs
from torch import Tensor, nn

from fedaudit.adversary.signals import ghost, layers
from fedaudit.adversary.signals.ghost import LayerPlan, Losses
from fedaudit.adversary.signals.layers import Call, Calls
from fedaudit.adversary.signals.matched import Limit
from fedaudit.adversary.signals.whitening import Embedding, LayerRule, SecondMoment, rule_for
from fedaudit.errors import FedauditError, suggest

DIRECT = 2048  # candidates up to which the normal equations are solved directly, and the size of a group beyond that
MOST = 2**28  # numbers in all templates together; more are not held in memory
CLOSE, STEPS = 1e-3, 50  # conjugate gradients end at this relative error, or after so many steps
FEW_ROWS = 256  # of the normal equations at once, so that they stay in cache
ROUNDED = 1e-2  # relative error from rounding, at most, that single precision may have
AT_ONCE = 2**14  # columns of an update in one product
ENOUGH = 512  # candidates that tell whether a party uses Adam
SKETCHED = 2048  # dimensions above which a side that is sketched is sketched before it is whitened: less than a
# hundredth of the work and of the memory on ResNet-18, and it finds as much,
WIDE = 2**13  # and above which every side is
OF_WIDE = 1024  # dimensions that are then kept of a side with one position
HELD = 2**25  # numbers in the vectors that all moments are taken from
SLOWEST = 2**20  # numbers in one record's slow gradients, at most
SMALLEST = 0.01  # of the mean root mean square is added to each, so that no input that hardly occurs is blown up


# ------------------------------------------------------------------ what does not change


@dataclass(frozen=True)
class Work:
    """About how many multiplications: one local epoch, of a record; a round of unmixing, of a record, of two records
    together, and whatever their number."""

    epoch: float = 0.0
    record: float = 0.0
    pair: float = 0.0
    once: float = 0.0

    def __add__(self, more: Work) -> Work:
        return Work(self.epoch + more.epoch, self.record + more.record, self.pair + more.pair, self.once + more.once)

    def of(self, n: int) -> float:
        return n * (self.record + 4 / 3 * self.epoch + min(n, DIRECT) / 2 * self.pair) + self.once  # two passes

    @classmethod
    def of_layer(cls, positions: int, out: int, width: int, sketch: int | None) -> Work:
        """`sketch`: where templates are formed."""
        epoch = 3.0 * positions * out * width
        if sketch is None:
            sides = out**2 + width**2
            return cls(epoch, 2.0 * sides, out + width, 1.5 * (out**3 + width**3))
        high, wide = kept(out, width, sketch)
        first = positions * (width * wide + high * out + wide * high)
        last = positions * width * out + high * width * (out + wide)
        once = 0.0
        for side, small in ((out, high), (width, wide)):
            vectors = min(max(32 * side, 2**13), HELD // side)
            sketched = side > SKETCHED and small < side
            once += vectors * side * small if sketched else vectors * side**2 / 2 + 1.5 * side**3
        return cls(epoch, min(first, last), high * wide, once)


@dataclass(frozen=True)
class UnmixSetup:
    """`formed`: layers whose weights are shared by many positions, so that gradients are formed. `vectors`: layers
    whose gradient is a short vector. The other fast ones have one position. `unrolled`: LSTMs and grouped convolutions,
    whose gradients one pass gives for many records. What else is not fast takes a backward pass a record."""

    x: Tensor
    y: Tensor
    losses: Losses
    plan: LayerPlan
    _: KW_ONLY
    formed: Mapping[str, Limit]
    vectors: frozenset[str]
    unrolled: frozenset[str]
    damping: float
    ridge: float
    sketch: int
    adaptive: bool
    sizes: Mapping[str, int]  # layer -> numbers in a template that is formed
    work: Work

    def spread(self, squares: Tensor) -> Tensor:
        """What Adam divides by, of the mean squares of a side's coordinates."""
        spread = squares.sqrt()
        spread = spread + SMALLEST * spread.mean() if self.adaptive else torch.ones_like(spread)
        return torch.where(spread > 0, spread, torch.ones_like(spread))

    @property
    def numbers(self) -> int:
        """In all templates that are formed, together."""
        return len(self.x) * sum(self.sizes.values())


def prepare(
    module: nn.Module,
    losses: Losses,
    x: Tensor,
    y: Tensor,
    *,
    damping: float,
    ridge: float,
    sketch: int,
    layer: str | None = None,
    adaptive: bool = False,
) -> UnmixSetup:
    """`layer`: one by name; None: every layer that is trained. `sketch`: at most its square is kept of the numbers of a
    layer with several positions. `adaptive`: the party trains with Adam."""
    trained = ghost.trained_layers(module)
    if layer is not None and layer not in trained:
        raise FedauditError("unknown-layer", f"the model trains no layer {layer!r}", suggest(layer, trained))
    chosen = trained if layer is None else {layer: trained[layer]}
    sides, sizes, work = dict[str, tuple[int, int, int]](), dict[str, int](), Work()
    fast, vectors, unrolled = set[str](), set[str](), set[str]()
    with ghost.evaluating(module):
        examined, x = ghost.examined(module, chosen, x)
        few, labels = x[: ghost.FEW], y[: ghost.FEW]
        plan = replace(examined, fast=examined.fast & set(chosen))
        calls = ghost.calls_of(module, losses, few, labels, plan)
        for name in plan.fast:
            own, part = _own(chosen[name]), module.get_submodule(name)
            rule = rule_for(part, own)
            if isinstance(part, nn.LSTM) or (isinstance(part, nn.Conv1d | nn.Conv2d) and part.groups > 1):
                unrolled.add(name)
                weights = sum(p.numel() for p in part.parameters(recurse=False))
                work += Work(3.0 * weights * sum(c.b[0, 0].numel() for c in calls[name]), pair=weights)
                continue
            if rule is None and layers.rule_for(part) is not layers.normalisation:
                continue  # no rule of its own
            fast.add(name)
            if rule is None:
                vectors.add(name)
                continue
            at = rule.positions(part, calls[name], own)
            positions, out, width = at.a.shape[1], at.b.shape[2], _width(part, at.a)
            several = positions > 1 or isinstance(rule, Embedding)
            work += Work.of_layer(positions, out, at.a.shape[2], sketch if several else None)
            if several:
                sides[name] = positions, out, at.a.shape[2]
                sizes[name] = math.prod(kept(out, width, sketch))
    formed = {
        name: Limit.of(positions, max(out, into), len(x), HELD * max(out, into) // ((out + into) * len(sides)))
        for name, (positions, out, into) in sides.items()
    }
    plan = replace(plan, fast=frozenset(fast))
    slow = 0
    for name in plan.slow:
        own_of = [module.get_parameter(full) for full in plan.layers[name]]
        slow += 0 if name in unrolled else sum(p.numel() for p in own_of)
        sizes[name] = sum(p.numel() if p.dim() > 1 else 1 for p in own_of)
    if slow > SLOWEST:
        raise FedauditError(
            "too-large",
            f"the slow gradients of {', '.join(plan.slow)} take {4e-9 * slow * len(x):.1f} GB for {len(x):,} records",
            "Name a layer, as in {'name': 'unmix', 'layer': ...}, or leave it out.",
        )
    return UnmixSetup(
        x,
        y,
        losses,
        plan,
        formed=formed,
        vectors=frozenset(vectors),
        unrolled=frozenset(unrolled),
        damping=damping,
        ridge=ridge,
        sketch=sketch,
        adaptive=adaptive,
        sizes=sizes,
        work=work + Work(record=4 * work.epoch * bool(slow)),
    )


def kept(out: int, width: int, sketch: int) -> tuple[int, int]:
    """Dimensions that are kept of either side of a layer: a template has at most sketch^2 numbers, and a narrow side
    leaves its room to the other one. So the factors of LoRA are kept whole, and small convolutions."""
    if out * width <= sketch**2:
        return out, width
    narrow = min(out, width, sketch)
    wide = sketch**2 // narrow
    return (narrow, wide) if out < width else (wide, narrow)


def _own(names: Sequence[str]) -> frozenset[str]:
    return frozenset(_last(name) for name in names)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _width(layer: nn.Module, a: Tensor) -> int:
    return layer.num_embeddings if isinstance(layer, nn.Embedding) else a.shape[-1]


# ------------------------------------------------------------------ the two maps of a layer


@dataclass(frozen=True)
class Map:
    """How one side of a layer is seen: a matrix for the templates, and one for the update, which Adam has divided
    already."""

    templates: Tensor  # k x dim
    update: Tensor

    @classmethod
    def of(cls, vectors: Tensor, setup: UnmixSetup, kept: int | None = None, seed: int = 0) -> Map:
        """From some of this side's vectors. `kept`: so many dimensions, by a random matrix with this seed where there
        are more."""
        dim = vectors.shape[1]
        if dim > (SKETCHED if kept is not None and kept < dim else WIDE):
            return cls._of_many(vectors, setup, kept or OF_WIDE, seed)
        return cls.of_moment(_moment(vectors), setup, kept, seed)

    @classmethod
    def of_moment(cls, moment: Tensor, setup: UnmixSetup, kept: int | None = None, seed: int = 0) -> Map:
        """`moment`: the second moment, dim x dim, or its diagonal."""
        diagonal = moment if moment.dim() == 1 else moment.diagonal()
        spread = setup.spread(diagonal)
        root = _root(moment / (spread.square() if moment.dim() == 1 else torch.outer(spread, spread)), setup.damping)
        if kept is not None and kept < len(spread):
            random = _random(kept, len(spread), seed)
            root = random * root if root.dim() == 1 else random @ root
        elif root.dim() == 1:
            root = torch.diag(root)
        return cls(root / spread, root)

    @classmethod
    def _of_many(cls, vectors: Tensor, setup: UnmixSetup, kept: int, seed: int) -> Map:
        """Sums first, and then whitened, in so few dimensions as are kept."""
        squares = layers.sum_calls(part.double().square().sum(0) for part in torch.split(vectors, ENOUGH))
        spread = setup.spread(squares / len(vectors))
        random = _random(kept, vectors.shape[1], seed)
        into = (random / spread).T.to(vectors.dtype)
        root = _root(_moment(vectors @ into), setup.damping) @ random
        return cls(root / spread, root)

    def between(self, update: Tensor, inputs: Map) -> Tensor:
        """What the two maps make of an update, out x width."""
        parts = zip(torch.split(update, AT_ONCE, 1), torch.split(inputs.update, AT_ONCE, 1), strict=True)
        return layers.sum_calls(self.update @ u.double() @ into.T for u, into in parts)


def _random(kept: int, dim: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(kept, dim, generator=generator, dtype=torch.float64) / math.sqrt(kept)


def _root(moment: Tensor, damping: float) -> Tensor:
    """An inverse root of a second moment, damped in units of its mean eigenvalue. Of a diagonal: its diagonal."""
    dim = len(moment)
    trace = float(moment.sum() if moment.dim() == 1 else moment.trace())
    floor = damping * trace / dim
    if not 0 < floor < torch.inf:
        return torch.ones_like(moment) if moment.dim() == 1 else torch.eye(dim, dtype=torch.float64)
    if moment.dim() == 1:
        return (moment + floor).rsqrt()
    factor = torch.linalg.cholesky(moment + floor * torch.eye(dim, dtype=torch.float64))
    root: Tensor = torch.linalg.solve_triangular(factor, torch.eye(dim, dtype=torch.float64), upper=False)
    return root


def _moment(vectors: Tensor) -> Tensor:
    found = SecondMoment.of(vectors)
    if found.total is not None:
        return found.total / found.count
    assert found.vectors is not None
    few = found.vectors.double()
    return few.T @ few / found.count


# ------------------------------------------------------------------ templates of one layer, for all candidates


@dataclass(frozen=True)
class Products:
    """One position: the template is g h', and is never formed. `update`: out x width."""

    g: Tensor
    h: Tensor
    update: Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.g.dtype

    def rows(self, some: Tensor) -> Products:
        return Products(self.g[some], self.h[some], self.update)

    def add_gram(self, total: Tensor, rows: slice, weight: float) -> None:
        upto = slice(0, rows.stop)
        total.addcmul_(self.g[rows] @ self.g[upto].T, self.h[rows] @ self.h[upto].T, value=weight)

    def along(self, update: Tensor) -> Tensor:
        return ((self.g @ update.to(self.g.dtype)) * self.h).sum(1).double()

    def sum(self, coefficients: Tensor) -> Tensor:
        """The combination of the templates."""
        return (self.g * coefficients[:, None].to(self.g.dtype)).T @ self.h


@dataclass(frozen=True)
class Formed:
    """Templates that are there, n x D; `update`: D."""

    f: Tensor
    update: Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.f.dtype

    def rows(self, some: Tensor) -> Formed:
        return Formed(self.f[some], self.update)

    def add_gram(self, total: Tensor, rows: slice, weight: float) -> None:
        total.addmm_(self.f[rows], self.f[: rows.stop].T, alpha=weight)

    def along(self, update: Tensor) -> Tensor:
        return (self.f @ update.to(self.f.dtype)).double()

    def sum(self, coefficients: Tensor) -> Tensor:
        return coefficients.to(self.f.dtype) @ self.f


Templates = Products | Formed


def templates(setup: UnmixSetup, module: nn.Module, updates: Mapping[str, Tensor]) -> list[Templates]:
    """Of every layer that moved. `updates`: parameter name -> received - sent."""
    with ghost.evaluating(module):
        return [of for of in _templates(setup, module, updates) if of.update.ne(0).any()]


def _templates(setup: UnmixSetup, module: nn.Module, updates: Mapping[str, Tensor]) -> Iterator[Templates]:
    maps = _maps_of_formed(setup, module)
    seen = _seen(setup, module, maps)
    for name in (name for name in setup.plan.layers if name in setup.plan.fast):
        names, layer = setup.plan.layers[name], module.get_submodule(name)
        own = {_last(full): updates[full][None] for full in names}
        if name in maps:
            out, into = maps[name]
            yield Formed(seen[name][0], out.between(_rule(layer, names).update(own)[0], into).flatten())
        elif name in setup.vectors:
            u = torch.cat([of.flatten(1) for of in own.values()], dim=1)[0].double()
            yield _of_vectors(setup, seen[name][0], u)
        else:
            g, h = seen[name]
            out, into = (Map.of(v, setup) for v in (g, h))
            u = out.between(_rule(layer, names).update(own)[0], into)
            yield Products(g @ out.templates.T.to(g.dtype), h @ into.templates.T.to(h.dtype), u)
    yield from _slowly(setup, module, updates)


def _rule(layer: nn.Module, names: Sequence[str]) -> LayerRule:
    rule = rule_for(layer, _own(names))
    assert rule is not None
    return rule


def _of_vectors(setup: UnmixSetup, g: Tensor, update: Tensor) -> Products:
    """A gradient that is a vector: one output gradient, and an input that is always 1."""
    out = Map.of(g, setup)
    return Products(g @ out.templates.T.to(g.dtype), g.new_ones(len(g), 1), (out.update @ update)[:, None])


def _maps_of_formed(setup: UnmixSetup, module: nn.Module) -> dict[str, tuple[Map, Map]]:
    """Before gradients can be formed, their maps must be known: from the moments of some of the records."""
    if not setup.formed:
        return {}
    n, size = len(setup.x), ghost.rows_at_once(setup.x, setup.y, setup.plan)
    most = {name: min(limit.records, n) for name, limit in setup.formed.items()}
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))  # the first so many are a fair part

    def see(own: nn.Module, start: int) -> dict[str, tuple[Tensor, Tensor]]:
        rows = order[start : min(start + size, max(most.values()))]
        plan = replace(setup.plan, fast=frozenset(name for name in most if start < most[name]))
        calls = ghost.calls_of(own, setup.losses, setup.x[rows], setup.y[rows], plan)
        found = {}
        for name in plan.fast:
            layer, names, every = own.get_submodule(name), plan.layers[name], setup.formed[name].every
            some = [_first(most[name] - start, call) for call in calls.pop(name)]
            at = _rule(layer, names).positions(layer, some, _own(names))
            found[name] = at.a[:, ::every].flatten(0, 1).clone(), at.b[:, ::every].flatten(0, 1).clone()
        return found

    parts = ghost.for_each(see, range(0, max(most.values()), size), module, torch.get_num_threads())
    found = {}
    for seed, name in enumerate(setup.formed):
        layer = module.get_submodule(name)
        a, b = (torch.cat(side) for side in zip(*(part.pop(name) for part in parts if name in part), strict=True))
        high, wide = kept(b.shape[1], _width(layer, a), setup.sketch)
        if isinstance(layer, nn.Embedding):
            counts = torch.bincount(a.flatten().long(), minlength=layer.num_embeddings).double()
            inputs = Map.of_moment(counts / counts.sum(), setup, wide, 2 * seed + 1)
        else:
            inputs = Map.of(a, setup, wide, 2 * seed + 1)
        found[name] = Map.of(b, setup, high, 2 * seed), inputs
    return found


def _first(many: int, call: Call) -> Call:
    return Call(call.a[:many], call.z[:many], call.b[:many])


def _seen(setup: UnmixSetup, module: nn.Module, maps: Mapping[str, tuple[Map, Map]]) -> dict[str, tuple[Tensor, ...]]:
    """One pass over all records: templates that are formed; output gradients and inputs of layers with one position;
    and gradients that are vectors."""
    size = ghost.rows_at_once(setup.x, setup.y, setup.plan)

    def see(own: nn.Module, start: int) -> dict[str, tuple[Tensor, ...]]:
        rows = slice(start, start + size)
        calls = ghost.calls_of(own, setup.losses, setup.x[rows], setup.y[rows], setup.plan)
        return {name: _of_calls(setup, own, name, calls[name], maps.get(name)) for name in setup.plan.fast}

    starts = range(0, len(setup.x), size)
    parts = ghost.for_each(see, starts, module, torch.get_num_threads()) if setup.plan.fast else []
    return {
        name: tuple(torch.cat(column) for column in zip(*(part[name] for part in parts), strict=True))
        for name in setup.plan.fast
    }


def _of_calls(
    setup: UnmixSetup, module: nn.Module, name: str, calls: Calls, maps: tuple[Map, Map] | None
) -> tuple[Tensor, ...]:
    layer, names = module.get_submodule(name), setup.plan.layers[name]
    if name in setup.vectors:
        return (layers.vector(layer, calls, [_last(full) for full in names]),)
    rule = _rule(layer, names)
    if maps is None:
        at = rule.positions(layer, calls, _own(names))
        return at.b[:, 0], at.a[:, 0]
    out, into = (side.templates.to(calls[0].b.dtype) for side in maps)
    return (_formed(layer, rule, calls, _own(names), out, into),)


def _formed(layer: nn.Module, rule: LayerRule, calls: Calls, own: frozenset[str], out: Tensor, into: Tensor) -> Tensor:
    """Of every record, its gradient between the two maps. Whichever is less work comes first: maps, or the sum over
    positions."""
    (wide, width), (high, height) = into.shape, out.shape
    many = sum(c.b.shape[1:].numel() for c in calls) // height
    first = many * (width * wide + height * high + wide * high)
    last = many * width * height + height * width * wide + height * high * wide
    if isinstance(rule, Embedding) or (first < last and isinstance(layer, nn.Linear)):
        at = rule.positions(layer, calls, own)
        a = into.T[at.a[..., 0].long()] if isinstance(rule, Embedding) else at.a @ into.T
        return ((at.b @ out.T).mT @ a).flatten(1)
    return torch.cat([(out @ (g @ into.T)).flatten(1) for g in rule.gradients(layer, calls, own)])


def _slowly(setup: UnmixSetup, module: nn.Module, updates: Mapping[str, Tensor]) -> Iterator[Templates]:
    """Parameters that no rule of whitening covers: every record's gradient, formed."""
    names = [name for layer in setup.plan.slow for name in setup.plan.layers[layer]]
    if not names:
        return
    found = _unrolled(setup, module)
    rest = [name for name in names if name not in found]
    every = list(ghost.naive(module, setup.losses, setup.x, setup.y, rest)) if rest else []
    for seed, name in enumerate(names):
        u = updates[name].double()
        g = found[name] if name in found else torch.stack([one[name] for one in every])
        if g.dim() == 2:
            yield _of_vectors(setup, g, u)
            continue
        while g.dim() > 3 and g.shape[1] == 1:  # a position for all records is no side of its own
            g, u = g[:, 0], u[0]
        g, u = g.flatten(2), u.flatten(1)
        size = g.double().square().mean((0, 1)).mean().sqrt().clamp_min(torch.finfo(torch.float64).tiny).to(g.dtype)
        high, wide = kept(g.shape[1], g.shape[2], setup.sketch)
        out = Map.of(g.mT.flatten(0, 1), setup, high, -2 * seed - 1)
        into = Map.of(g.flatten(0, 1) / size, setup, wide, -2 * seed - 2)
        f = out.templates.to(g.dtype) @ (g @ into.templates.T.to(g.dtype))
        yield Formed(f.flatten(1), out.between(u, into).flatten())


def _unrolled(setup: UnmixSetup, module: nn.Module) -> dict[str, Tensor]:
    """The gradients of LSTMs and grouped convolutions, which one pass gives for many records."""
    if not setup.unrolled:
        return {}
    size, plan = ghost.rows_at_once(setup.x, setup.y, setup.plan), replace(setup.plan, fast=setup.unrolled)

    def see(own: nn.Module, start: int) -> dict[str, Tensor]:
        rows = slice(start, start + size)
        calls = ghost.calls_of(own, setup.losses, setup.x[rows], setup.y[rows], plan)
        formed = {name: _gradients(own.get_submodule(name), calls[name]) for name in setup.unrolled}
        return {full: formed[name][_last(full)] for name in setup.unrolled for full in plan.layers[name]}

    parts = ghost.for_each(see, range(0, len(setup.x), size), module, torch.get_num_threads())
    return {full: torch.cat([part[full] for part in parts]) for full in parts[0]}


def _gradients(layer: nn.Module, calls: Calls) -> dict[str, Tensor]:
    if isinstance(layer, nn.LSTM):
        return layers.lstm_gradients(layer, calls)
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    return layers.convolution_gradients(layer, calls)


# ------------------------------------------------------------------ the regression


@dataclass(frozen=True)
class Unmixed:
    """Of n candidates. `explained`: the share of the update that the combination makes (R^2, no labels needed).
    `error`: of the solution, relative; 0 where it was solved directly."""

    coefficient: Tensor
    score: Tensor
    explained: float
    error: float


def unmix(setup: UnmixSetup, module: nn.Module, updates: Mapping[str, Tensor]) -> Unmixed:
    """At the module's weights. `updates`: parameter name -> received - sent."""
    return regression(templates(setup, module, updates), setup.ridge, len(setup.x))


def uses_adam(setup: UnmixSetup, module: nn.Module, updates: Mapping[str, Tensor]) -> bool:
    """Of a party of whom it is not known: whether its update is explained better by gradients that were divided as Adam
    divides than by gradients as they are. The update is the same in both, because nothing is whitened. Some of the
    candidates are enough."""
    some = torch.linspace(0, len(setup.x) - 1, min(ENOUGH, len(setup.x))).round().long()
    few = replace(setup, x=setup.x[some], y=setup.y[some], damping=math.inf)
    divided, plain = (unmix(replace(few, adaptive=adam), module, updates).explained for adam in (True, False))
    return divided > plain


def regression(blocks: Sequence[Templates], ridge: float, n: int) -> Unmixed:
    """`ridge`: in units of the mean square of a template."""
    nothing = torch.zeros(n, dtype=torch.float64)
    if not blocks:  # the update is zero
        return Unmixed(nothing, nothing, 0.0, 0.0)
    mixed = AllLayers(blocks)
    target = mixed.weighted(block.along(block.update) for block in blocks)
    grams = [(rows, mixed.gram(rows)) for rows in _groups(n)]
    mean = sum(float(gram.diagonal().double().sum()) for _, gram in grams) / n
    if not math.isfinite(mean):
        lost = torch.full_like(nothing, torch.nan)
        return Unmixed(lost, lost, math.nan, math.nan)
    if mean == 0:  # no record has a gradient
        return Unmixed(nothing, nothing, 0.0, 0.0)
    floor = ridge * mean
    groups = [SolvedGroup.of(rows, gram, floor) for rows, gram in grams]
    a, left = (groups[0].solve(target), nothing) if len(groups) == 1 else _iterated(mixed, groups, target, floor)
    error = float(left.norm()) / (float(target.norm()) or 1.0)
    explained = float(a @ (target + left + floor * a) / mixed.size)  # 2 a't - a'Ka, as Ka = t - left - floor a
    rest = torch.cat([group.rest for group in groups])[_order(groups)].clamp(0, 1)  # 1 - h
    leverage = 1 - rest
    score = torch.where(leverage > 0, a / (leverage * rest).clamp_min(1e-300).sqrt(), nothing)
    return Unmixed(a, score, explained, error)


class AllLayers:
    """The templates of all layers side by side, each layer in units of the root mean square of its update."""

    def __init__(self, blocks: Sequence[Templates]):
        self.blocks = blocks
        self.weights = [block.update.numel() / float(block.update.square().sum()) for block in blocks]
        self.size = float(sum(block.update.numel() for block in blocks))  # the square of the whole update

    def weighted(self, values: Iterable[Tensor]) -> Tensor:
        return torch.stack([weight * value for weight, value in zip(self.weights, values, strict=True)]).sum(0)

    def gram(self, rows: Tensor) -> Tensor:
        """K of these candidates, its lower triangle. All layers are added to a few rows while these are in cache."""
        blocks = [block.rows(rows) for block in self.blocks]
        total = torch.zeros(len(rows), len(rows), dtype=blocks[0].dtype)
        for start in range(0, len(rows), FEW_ROWS):
            some = slice(start, min(start + FEW_ROWS, len(rows)))
            for weight, block in zip(self.weights, blocks, strict=True):
                block.add_gram(total[some, : some.stop], some, weight)
        return total.tril_()

    def times(self, coefficients: Tensor) -> Tensor:
        """K a"""
        return self.weighted(block.along(block.sum(coefficients)) for block in self.blocks)


def _groups(n: int) -> list[Tensor]:
    """Candidates dealt out evenly, one after the other."""
    many = -(-n // DIRECT)
    return [torch.arange(first, n, many) for first in range(many)]


def _order(groups: Sequence[SolvedGroup]) -> Tensor:
    return torch.cat([group.rows for group in groups]).argsort()


@dataclass(frozen=True)
class SolvedGroup:
    """Some candidates, solved as if there were no others."""

    rows: Tensor
    root: Tensor  # the inverse of the Cholesky factor
    rest: Tensor  # 1 - h: ridge times the diagonal of the inverse

    @classmethod
    def of(cls, rows: Tensor, gram: Tensor, floor: float) -> SolvedGroup:
        """`gram`: the lower triangle, which is overwritten. A third of the work that torch's inverse takes."""
        if float(gram.trace()) / floor * torch.finfo(gram.dtype).eps > ROUNDED:  # the largest eigenvalue, at most
            gram = gram.double()
        gram.diagonal().add_(floor)
        upper = gram.numpy().T  # in the order of LAPACK
        factorise, invert = get_lapack_funcs(("potrf", "trtri"), (upper,))
        factor, failed = factorise(upper, lower=0, overwrite_a=1, clean=0)
        root, singular = invert(factor, lower=0, overwrite_c=1)
        if failed or singular:
            raise np.linalg.LinAlgError("the regression of the update on the gradients has no solution")
        found = torch.from_numpy(root.T)
        return cls(rows, found, floor * torch.linalg.vector_norm(found, dim=0).double().square())

    def solve(self, target: Tensor) -> Tensor:
        solved: Tensor = self.root.T @ (self.root @ target[self.rows].to(self.root.dtype))
        return solved.double()


def _iterated(mixed: AllLayers, groups: Sequence[SolvedGroup], target: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Conjugate gradients; every group of candidates solved by itself is the preconditioner. The solution, and what is
    left of the target."""
    order = _order(groups)

    def approximately(of: Tensor) -> Tensor:
        return torch.cat([group.solve(of) for group in groups])[order]

    a = approximately(target)
    left = target - mixed.times(a) - floor * a
    size = float(target.norm()) or 1.0
    z = approximately(left)
    direction, rate = z, float(left @ z)
    for _ in range(STEPS):
        if float(left.norm()) <= CLOSE * size:
            break
        image = mixed.times(direction) + floor * direction
        step = rate / float(direction @ image)
        a, left = a + step * direction, left - step * image
        z = approximately(left)
        rate, former = float(left @ z), rate
        direction = z + (rate / former) * direction
    return a, left
