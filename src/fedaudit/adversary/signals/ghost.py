"""Per-record gradient statistics without per-record gradients.

One forward pass and one backward pass to the activations only (the parameters are frozen): every layer's input and
the loss's gradient at its output give |g|^2 and <g, u> of every record, for any number of update vectors u at once,
by the rules in `layers`. What no rule covers (GRU, parameters used outside of a layer, tied weights) takes the slow
way: forward-mode derivatives for <g, u>, or one backward pass per record where |g| is wanted as well.

A record's gradient exists only where records do not meet: everything is computed in evaluation mode, and `verify`
refuses, before training, a model that mixes the records of a batch or for which the fast and the naive way differ.
"""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from fedaudit.adversary.signals.layers import Call, computes, rule_for, unrolled
from fedaudit.errors import FedauditError
from fedaudit.learn.many import one_core_each

T = TypeVar("T")
Losses = Callable[[Tensor, Tensor], Tensor]  # outputs, labels -> one loss per record

ROWS = 512  # records in one pass at most,
POSITIONS = 4096  # labels of theirs (in text every character has one),
VALUES = 2**18  # and values: pictures in larger batches fall out of the processor's cache,
NUMBERS = 2**25  # and numbers between the layers, which are kept until the end of the pass
FEW = 11  # records that a model is examined with; a prime, so that no other axis is mistaken for the records'


@dataclass(frozen=True)
class Statistics:
    """Of n records, L layers and K updates. Squares, because they add up over layers."""

    layers: tuple[str, ...]
    norm2: Tensor  # n x L; NaN where norms were not asked for
    inner: Tensor  # n x L x K
    update2: Tensor  # L x K


def statistics(
    module: nn.Module, losses: Losses, x: Tensor, y: Tensor, updates: Mapping[str, Tensor], norms: bool = True
) -> Statistics:
    """`updates`: parameter name -> K x its shape. Parameters that do not require gradients are left out."""
    layers = trained_layers(module)
    count = len(next(iter(updates.values())))
    with evaluating(module):
        plan, x = examined(module, layers, x)
        rows = rows_at_once(x, y, plan)

        def one_pass(own: nn.Module, start: int) -> tuple[Tensor, Tensor]:
            some = slice(start, start + rows)
            return _one_pass(own, losses, x[some], y[some], updates, plan, norms)

        parts = for_each(one_pass, range(0, len(x), rows), module, 1 if plan.slow else torch.get_num_threads())
    norm2 = torch.cat([p[0] for p in parts]) if parts else torch.empty(0, len(layers), dtype=torch.float64)
    inner = torch.cat([p[1] for p in parts]) if parts else torch.empty(0, len(layers), count, dtype=torch.float64)
    update2 = torch.stack(
        [sum((updates[name].double().flatten(1).square().sum(1) for name in names), torch.zeros(count).double())
         for names in layers.values()]
    )  # fmt: skip
    return Statistics(tuple(layers), norm2, inner, update2)


def rows_at_once(x: Tensor, y: Tensor, plan: LayerPlan) -> int:
    """How many records one pass takes: pictures in larger batches fall out of the processor's cache, and so do records
    with many positions, each of which has an answer; and what a large model keeps of many records fills the memory."""
    most = min(ROWS, VALUES // max(1, x[:1].numel()), POSITIONS // max(1, y[:1].numel()))
    return max(1, min(most, NUMBERS // max(1, plan.numbers)))


def for_each(work: Callable[[nn.Module, int], T], starts: Sequence[int], module: nn.Module, cores: int) -> list[T]:
    """In order. Each core has a model of its own; forward-mode derivatives know one at a time only."""
    workers = min(cores, len(starts))
    if workers < 2:
        return [work(module, start) for start in starts]
    models = [module, *(copy.deepcopy(module) for _ in range(workers - 1))]
    with one_core_each(workers) as pool:
        shares = pool.map(lambda i: [work(models[i], start) for start in starts[i::workers]], range(workers))
        found = dict(zip((s for i in range(workers) for s in starts[i::workers]), chain(*shares), strict=True))
    return [found[start] for start in starts]


def trained_layers(module: nn.Module) -> dict[str, list[str]]:
    """Layer -> full names of the trained parameters it owns; a shared parameter belongs to the first that has it."""
    layers: dict[str, list[str]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            layers.setdefault(name.rpartition(".")[0], []).append(name)
    return layers


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode, and everything as it was afterwards."""
    modes = {m: m.training for m in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for m, mode in modes.items():
            m.training = mode


# ------------------------------------------------------------------ the plan


@dataclass(frozen=True)
class LayerPlan:
    """Which layers follow a rule, which take the slow way, whose output a later operation overwrites, and whose output
    is one for all records, as that of positions. `odd`: whose weights are used outside of them, so that no hook sees
    all of it; found by `verify` alone. `numbers`: how many a pass keeps of a record."""

    layers: Mapping[str, Sequence[str]]
    fast: frozenset[str]
    _: KW_ONLY
    copied: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    odd: frozenset[str] = frozenset()
    numbers: int = 0

    @property
    def slow(self) -> list[str]:
        return [layer for layer in self.layers if layer not in self.fast]


def examined(module: nn.Module, layers: Mapping[str, Sequence[str]], x: Tensor) -> tuple[LayerPlan, Tensor]:
    """The plan, and the records as they are handed to the model: pictures with their channels last, which is how
    convolutions are fastest here, where the model takes them so. One that flattens by `view` does not."""
    if x.dim() == 4:
        try:
            plan = examine(module, layers, x[:FEW].contiguous(memory_format=torch.channels_last))
            return plan, x.contiguous(memory_format=torch.channels_last)
        except Exception:  # whatever else is wrong with the model is raised below
            pass
    return examine(module, layers, x[:FEW]), x


def examine(module: nn.Module, layers: Mapping[str, Sequence[str]], x: Tensor) -> LayerPlan:
    """One forward pass of a few records, every output handed on as a copy whose changes are counted."""
    try:
        return _examine(module, layers, x, spread=True)
    except Exception:  # a model that wants its positions once
        return _examine(module, layers, x, spread=False)


def _examine(module: nn.Module, layers: Mapping[str, Sequence[str]], x: Tensor, spread: bool) -> LayerPlan:
    owners: dict[int, int] = defaultdict(int)
    for m in module.modules():
        for parameter in m._parameters.values():
            owners[id(parameter)] += parameter is not None
    handed_on: list[tuple[str, Tensor]] = []
    given: dict[str, Tensor] = {}
    shared: set[str] = set()
    modules = dict(module.named_modules())

    def has_a_rule(layer: nn.Module) -> bool:
        own = [p for p in layer._parameters.values() if p is not None]
        return rule_for(layer) is not None and all(owners[id(p)] == 1 for p in own)

    fast = {layer for layer in layers if has_a_rule(modules[layer])}

    def watch(layer: str, a: Tensor, z: Tensor) -> Tensor:
        given.setdefault(layer, a)
        if spread and _is_one_for_all(modules[layer], a, z, len(x)):
            shared.add(layer)
            _, z = _for_each_record(len(x), a, z)
        copy = z.clone()
        handed_on.append((layer, copy))
        return copy

    with torch.no_grad(), _hooks(modules, fast, watch):
        module(x)
    elsewhere = {layer for layer, z in handed_on if len(z) % len(x)}  # records do not come first
    wrong = {layer for layer, a in given.items() if not computes(modules[layer], a)}
    overwritten = {layer for layer, z in handed_on if z._version}
    numbers = sum(z.numel() for _, z in handed_on) // len(x)
    known = frozenset(fast & set(given) - elsewhere - wrong)
    return LayerPlan(layers, known, copied=frozenset(overwritten), shared=frozenset(shared), numbers=numbers)


def _is_one_for_all(layer: nn.Module, a: Tensor, z: Tensor, n: int) -> bool:
    """The rows of positions, looked up once for a whole batch."""
    return isinstance(layer, nn.Embedding) and n > 1 and (len(z) == 1 or (a.dim() == 1 and len(z) != n))


def _for_each_record(n: int, a: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """The same, once for each record: added to what differs from record to record, it makes no difference."""
    a, z = (a, z) if len(z) == 1 and a.dim() > 1 else (a[None], z[None])
    return a.expand(n, *a.shape[1:]), z.expand(n, *z.shape[1:])


@contextmanager
def _hooks(
    modules: Mapping[str, nn.Module], names: frozenset[str] | set[str], act: Callable[[str, Tensor, Tensor], Tensor]
) -> Iterator[None]:
    with ExitStack() as stack:
        for name in names:
            layer = modules[name]
            if isinstance(layer, nn.LSTM):
                layer.__dict__["forward"] = unrolled(layer, partial(act, name))
                stack.callback(layer.__dict__.pop, "forward")
                continue

            def hook(_m: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], z: Tensor, name: str = name) -> Tensor:  # fmt: skip  # noqa: E501
                return act(name, args[0] if args else next(iter(kwargs.values())), z)

            handle = layer.register_forward_hook(hook, with_kwargs=True)
            stack.callback(handle.remove)
        yield


# ------------------------------------------------------------------ the pass


def _one_pass(
    module: nn.Module,
    losses: Losses,
    x: Tensor,
    y: Tensor,
    updates: Mapping[str, Tensor],
    plan: LayerPlan,
    norms: bool,
) -> tuple[Tensor, Tensor]:
    n, count = len(x), len(next(iter(updates.values())))
    norm2 = torch.full((n, len(plan.layers)), torch.nan, dtype=torch.float64)
    inner = torch.zeros((n, len(plan.layers), count), dtype=torch.float64)
    calls = calls_of(module, losses, x, y, plan)
    modules = dict(module.named_modules())
    for column, (layer, names) in enumerate(plan.layers.items()):
        if layer in plan.fast:
            rule = rule_for(modules[layer])
            assert rule is not None
            own = {name.rpartition(".")[2]: updates[name] for name in names}
            norm2[:, column], inner[:, column] = rule(modules[layer], calls[layer], own)
    if plan.slow:
        columns = [list(plan.layers).index(layer) for layer in plan.slow]
        of_slow = {layer: list(plan.layers[layer]) for layer in plan.slow}
        norm2[:, columns], inner[:, columns] = _slowly(module, losses, x, y, updates, of_slow, norms)
    return norm2, inner


def calls_of(module: nn.Module, losses: Losses, x: Tensor, y: Tensor, plan: LayerPlan) -> dict[str, list[Call]]:
    """Inputs, outputs and output gradients of the fast layers: forward, then backward to the activations only."""
    seen: list[tuple[str, Tensor, Tensor]] = []

    def keep(layer: str, a: Tensor, z: Tensor) -> Tensor:
        if layer in plan.shared:
            a, z = _for_each_record(len(x), a, z)
            z = z.clone()
        if not z.requires_grad:
            z.requires_grad_()  # nothing before it is trained: the graph starts here
        seen.append((layer, a.detach(), z))
        return z.clone() if layer in plan.copied else z

    with _frozen(module), _hooks(dict(module.named_modules()), plan.fast, keep), torch.enable_grad():
        total = losses(module(x), y).sum()
        found = torch.autograd.grad(total, [z for *_, z in seen], allow_unused=True) if seen else ()
    calls: dict[str, list[Call]] = defaultdict(list)
    for (layer, a, z), b in zip(seen, found, strict=True):
        b = torch.zeros_like(z) if b is None else b
        calls[layer] += _by_record(len(x), Call(a, z.detach(), b))
    return calls


def _by_record(n: int, call: Call) -> list[Call]:
    """A layer that is given several rows of each record at once is one that is called several times."""
    if len(call.a) == n:
        return [call]
    a, z, b = (t.reshape(n, -1, *t.shape[1:]).unbind(1) for t in (call.a, call.z, call.b))
    return [Call(*one) for one in zip(a, z, b, strict=True)]


@contextmanager
def _frozen(module: nn.Module) -> Iterator[None]:
    trained = [p for p in module.parameters() if p.requires_grad]
    for p in trained:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in trained:
            p.requires_grad_(True)


# ------------------------------------------------------------------ the slow ways


def naive(module: nn.Module, losses: Losses, x: Tensor, y: Tensor, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """The gradient of every record, by one backward pass each."""
    parameters = dict(module.named_parameters())
    wanted = [parameters[name] for name in names]
    x = x.contiguous()  # PyTorch ends the process in the backward pass of one picture with its channels last
    for i in range(len(x)):
        loss = losses(module(x[i : i + 1]), y[i : i + 1]).sum()
        found = torch.autograd.grad(loss, wanted, allow_unused=True)
        yield {name: torch.zeros_like(p) if g is None else g for name, p, g in zip(names, wanted, found, strict=True)}


def _slowly(
    module: nn.Module,
    losses: Losses,
    x: Tensor,
    y: Tensor,
    updates: Mapping[str, Tensor],
    layers: Mapping[str, Sequence[str]],
    norms: bool,
) -> tuple[Tensor, Tensor]:
    if not norms:
        try:
            inner = forward_mode(module, losses, x, y, updates, layers)
            return torch.full(inner.shape[:2], torch.nan, dtype=torch.float64), inner
        except (RuntimeError, NotImplementedError):  # a kernel without a forward derivative (LSTM, fused attention)
            pass
    names = [name for owned in layers.values() for name in owned]
    squared, along = [], []
    for gradient in naive(module, losses, x, y, names):
        squares = {name: g.double().square().sum() for name, g in gradient.items()}
        products = {name: (updates[name] * g).double().flatten(1).sum(1) for name, g in gradient.items()}
        squared.append(torch.stack([torch.stack([squares[name] for name in owned]).sum() for owned in layers.values()]))
        along.append(torch.stack([torch.stack([products[name] for name in owned]).sum(0) for owned in layers.values()]))
    return torch.stack(squared), torch.stack(along)


def forward_mode(
    module: nn.Module,
    losses: Losses,
    x: Tensor,
    y: Tensor,
    updates: Mapping[str, Tensor],
    layers: Mapping[str, Sequence[str]],
) -> Tensor:
    """<g, u> of all records at once is the derivative of their losses along u."""
    parameters = {name: p.detach() for name, p in module.named_parameters()}

    def along(owned: Sequence[str], k: int) -> Tensor:
        moving = {name: parameters[name] for name in owned}
        tangent = {name: updates[name][k].to(parameters[name]) for name in owned}

        def of(moved: dict[str, Tensor]) -> Tensor:
            return losses(functional_call(module, {**parameters, **moved}, (x,)), y)

        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*torch.jit.script", DeprecationWarning)  # inside torch.func
            derivative: Tensor = jvp(of, (moving,), (tangent,))[1]
        return derivative.double()

    count = len(next(iter(updates.values())))
    return torch.stack(
        [torch.stack([along(owned, k) for k in range(count)], dim=1) for owned in layers.values()], dim=1
    )


# ------------------------------------------------------------------ refusals before training


LARGE = 2**23  # weights above which no copy in double precision is made


def verify(module: nn.Module, losses: Losses, x: Tensor, y: Tensor) -> LayerPlan:
    """Compare with naive gradients on a few records. Raises where records have none of their own; else says what is
    slow. That includes layers for which the fast way differs, as where their weights are used outside of them."""
    large = sum(p.numel() for p in module.parameters()) > LARGE
    dtype, close = (torch.float32, 1e-2) if large else (torch.float64, 1e-8)
    module = copy.deepcopy(module).double() if dtype is torch.float64 else module
    x = x[:FEW].to(dtype) if x.is_floating_point() else x[:FEW]
    y = y[:FEW].to(dtype) if y.is_floating_point() else y[:FEW]
    with evaluating(module):
        layers = trained_layers(module)
        if not layers:
            raise FedauditError("no-parameters", "the model has no parameter that is trained", "Choose another model.")
        _records_stand_alone(module, losses, x, y, *((1e-4, 1e-5) if large else (1e-9, 1e-12)))
        plan, laid_out = examined(module, layers, x)
        rng = torch.Generator().manual_seed(0)
        updates = {
            name: torch.randn((1, *p.shape), generator=rng, dtype=p.dtype)
            for name, p in module.named_parameters()
            if p.requires_grad
        }
        fast = {layer: layers[layer] for layer in layers if layer in plan.fast}
        own = replace(plan, layers=fast)
        found = _one_pass(module, losses, laid_out, y, updates, own, norms=True)
        norm2, inner = _slowly(module, losses, x, y, updates, fast, norms=True)
        odd, whole = set(), float(norm2.sum(1).max()) ** 0.5
        for column, layer in enumerate(fast):
            scale = max(float(norm2[:, column].max()) ** 0.5, 1e-6 * whole, 1e-30)  # less is rounding
            apart = (found[0][:, column] - norm2[:, column]).abs().max() / scale**2
            apart = max(apart, (found[1][:, column] - inner[:, column]).abs().max() / scale)
            if not apart < close:
                odd.add(layer)
    return replace(plan, fast=plan.fast - odd, odd=frozenset(odd))


def _records_stand_alone(module: nn.Module, losses: Losses, x: Tensor, y: Tensor, rtol: float, atol: float) -> None:
    with torch.no_grad():
        together = losses(module(x), y)
        try:
            alone = torch.cat([losses(module(x[i : i + 1]), y[i : i + 1]) for i in range(len(x))])
        except (RuntimeError, ValueError):  # batch statistics of a single record do not exist
            alone = torch.full_like(together, torch.nan)
    if together.shape != (len(x),) or not torch.allclose(together, alone, rtol=rtol, atol=atol):
        raise FedauditError(
            "records-mixed",
            "a record's loss depends on the other records of its batch, so that it has no gradient of its own "
            "(BatchNorm that uses batch statistics in evaluation mode?)",
            "Keep running statistics, use GroupNorm, or take the gradient attacks out of audit.attacks.",
        )
