"""Per-record gradient statistics of one layer, from what went in and the loss's gradient at what came out.

Each rule takes the calls of a layer in one pass, a list of (input a, output z, output gradient b) with records along
the first axis, and K update vectors for the layer's parameters. It gives, for every record, |g|^2 and <g, u_1..K>.
A layer that is called twice has simply more positions (or a longer sum).

Where few positions share a weight, nothing of the gradient's size is formed: for one position of a linear layer
|g|^2 = |b|^2 (|a|^2 + 1) and <g, u> = b.(U a + u_b). With many positions, a record's gradient is smaller than that
detour, and is formed for a few records at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

FORMED = 2**20  # numbers held at once where per-record gradients are formed


@dataclass(frozen=True)
class Call:
    a: Tensor
    z: Tensor
    b: Tensor


Calls = Sequence[Call]
Updates = Mapping[str, Tensor]  # parameter of the layer -> K x its shape; absent = not trained
Sums = tuple[Tensor, Tensor]  # n, n x K
Rule = Callable[[nn.Module, Calls, Updates], Sums]


# ------------------------------------------------------------------ linear


def linear(layer: nn.Module, calls: Calls, updates: Updates) -> Sums:
    a = torch.cat([positions_of(c.a, c.a.shape[-1]) for c in calls], dim=1)
    b = torch.cat([positions_of(c.b, c.b.shape[-1]) for c in calls], dim=1)
    return _products(a, b, updates)


def positions_of(values: Tensor, width: int) -> Tensor:
    """n x ... x width -> n x positions x width"""
    return values.reshape(len(values), -1, width)


def _products(a: Tensor, b: Tensor, updates: Updates) -> Sums:
    """g = sum over positions of b a', and of b for the bias."""
    (n, positions, width), out = a.shape, b.shape[2]
    few = positions * (width + out) < width * out
    norm2, inner = _bias(b.sum(1), updates)
    if "weight" not in updates:
        return norm2, inner
    u = updates["weight"]
    if not few:
        by_weight = _formed(lambda some: [(b[some].mT @ a[some]).flatten(1)], n, [u.flatten(1).T], width * out)
        return norm2 + by_weight[0], inner + by_weight[1]
    if positions == 1:
        a, b = a[:, 0], b[:, 0]
        norm2 = norm2 + _square(a) * _square(b)
        products = [((a @ one.T) * b).sum(1) for one in u]
    else:
        norm2 = norm2 + ((a @ a.mT) * (b @ b.mT)).sum((1, 2))
        products = [((a @ one.T) * b).sum((1, 2)) for one in u]
    return norm2, inner + torch.stack(products, dim=1)


def _bias(total: Tensor, updates: Updates) -> Sums:
    """`total` is the gradient of the bias."""
    if "bias" not in updates:
        some = next(iter(updates.values()))
        return total.new_zeros(len(total)), total.new_zeros(len(total), len(some))
    return _square(total), total @ updates["bias"].flatten(1).T


def _square(values: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(values, dim=1)  # no temporary, twenty times as fast as einsum
    return norms.square()


def _formed(parts: Callable[[slice], Iterable[Tensor]], n: int, u: Sequence[Tensor], size: int) -> Sums:
    """Statistics of gradients that are formed, `size` numbers a record, for as many records at a time as fit in cache.

    A gradient may come in several parts, n x P each, one after the other; `u` holds the updates' parts, P x K each.
    """
    norm2, inner = u[0].new_zeros(n), u[0].new_zeros(n, u[0].shape[1])
    for start in range(0, n, rows := max(1, FORMED // size)):
        some = slice(start, start + rows)
        for g, along in zip(parts(some), u, strict=True):
            norm2[some] += _square(g)
            inner[some] += g @ along
    return norm2, inner


# ------------------------------------------------------------------ convolution


def convolution(layer: nn.Module, calls: Calls, updates: Updates) -> Sums:
    """One and two dimensions; a sequence is an image of height one."""
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    if isinstance(layer, nn.Conv1d):
        calls = [Call(c.a.unsqueeze(2), c.z, c.b.unsqueeze(2)) for c in calls]
    norm2, inner = _bias(sum_calls(c.b.sum((2, 3)) for c in calls), updates)
    if "weight" not in updates:
        return norm2, inner
    shape = Shape.of(layer)
    inputs = [shape.padded(c.a) for c in calls]
    outs, positions = layer.out_channels, sum(c.b.shape[2] * c.b.shape[3] for c in calls)
    width = layer.weight[0].numel()
    if layer.groups == 1 and positions * (width + outs) < width * outs:
        a = torch.cat([shape.patches(x, c.b) for x, c in zip(inputs, calls, strict=True)], dim=1)
        b = torch.cat([c.b.flatten(2).mT for c in calls], dim=1)
        flat = {"weight": updates["weight"].flatten(2)}
        by_weight = _products(a, b, flat)
    else:
        size = layer.weight.numel() + shape.kernel[1] * max(x[0].numel() for x in inputs)
        by_weight = _formed(
            lambda some: shape.gradients([(x[some], c.b[some]) for x, c in zip(inputs, calls, strict=True)]),
            len(inputs[0]),
            shape.by_row(updates["weight"]),
            size,
        )
    return norm2 + by_weight[0], inner + by_weight[1]


def sum_calls(parts: Iterable[Tensor]) -> Tensor:
    return reduce(torch.add, parts)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a convolution walks over its input, always in two dimensions."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    padding: tuple[int, ...]
    mode: str

    @staticmethod
    def of(layer: nn.Conv1d | nn.Conv2d) -> Shape:
        def two(values: tuple[int, ...]) -> tuple[int, int]:
            return (1, values[0]) if len(values) == 1 else (values[0], values[1])

        padding = tuple(layer._reversed_padding_repeated_twice)  # left, right[, top, bottom]; "same" made explicit
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        return Shape(
            kernel=two(layer.kernel_size),
            stride=two(layer.stride),
            dilation=two(layer.dilation),
            groups=layer.groups,
            padding=padding,
            mode=mode,
        )

    def padded(self, x: Tensor) -> Tensor:
        if not any(self.padding):
            return x
        if x.shape[2] == 1 and len(self.padding) == 2:  # a sequence: other modes than zeros pad three axes at most
            return F.pad(x.squeeze(2), self.padding, self.mode).unsqueeze(2)
        return F.pad(x, self.padding, self.mode)

    def patches(self, x: Tensor, b: Tensor) -> Tensor:
        """n x positions x (channels, kernel), in the order of the weight's entries."""
        unfolded = F.unfold(x, self.kernel, self.dilation, 0, self.stride)
        return unfolded[:, :, : b.shape[2] * b.shape[3]].mT

    def gradients(self, calls: Sequence[tuple[Tensor, Tensor]]) -> Iterator[Tensor]:
        """Per-record weight gradients, one kernel row at a time, laid out as `by_row` says.

        The input is unfolded along the width only; each kernel row is then one batched product on a strided view.
        Channels come last: that is how convolutions are fastest here, and it makes the unfolding one plain copy.
        """
        windows = [self._windows(x, b.shape[3]) for x, b in calls]
        outs = [self._by_group(b) for _, b in calls]
        for i in range(self.kernel[0]):
            phase, row = (i * self.dilation[0]) % self.stride[0], (i * self.dilation[0]) // self.stride[0]
            parts = []
            for window, out, (_, b) in zip(windows, outs, calls, strict=True):
                first = row * b.shape[3]
                parts.append(torch.bmm(out.mT, window[:, phase, first : first + out.shape[1]]))
            yield sum_calls(parts).reshape(len(calls[0][0]), -1)

    def _by_group(self, b: Tensor) -> Tensor:
        """(n, groups) x positions x out/groups"""
        n, out = b.shape[:2]
        last = b.permute(0, 2, 3, 1).reshape(n, -1, self.groups, out // self.groups)
        return last.transpose(1, 2).reshape(n * self.groups, -1, out // self.groups)

    def _windows(self, x: Tensor, width: int) -> Tensor:
        """(n, groups) x phase of the vertical stride x (rows, positions) x (kernel columns, in/groups)"""
        n, channels, height, across = x.shape
        (down, step), groups, each = self.stride, self.groups, channels // self.groups
        rows = -(-height // down)
        if rows * down > height:
            x = F.pad(x, (0, 0, 0, rows * down - height))
        last = x.permute(0, 2, 3, 1).contiguous()
        line = across * channels
        overlapping = last.as_strided(
            (n, groups, down, rows, width, self.kernel[1], each),
            (rows * down * line, each, line, down * line, step * channels, self.dilation[1] * channels, 1),
        )
        return overlapping.reshape(n * groups, down, rows * width, self.kernel[1] * each)

    def by_row(self, u: Tensor) -> list[Tensor]:
        """The weight's updates, for each kernel row: (groups, out/groups, kernel columns, in/groups) x K."""
        u = u.reshape(len(u), self.groups, -1, u.shape[2], *self.kernel)  # K, g, out/g, in/g, row, column
        return [row.reshape(-1, len(u)) for row in u.permute(4, 1, 2, 5, 3, 0)]


def convolution_gradients(layer: nn.Conv1d | nn.Conv2d, calls: Calls) -> dict[str, Tensor]:
    """The gradients themselves, by parameter: n x its shape."""
    found = {"bias": sum_calls(c.b.flatten(2).sum(2) for c in calls)} if layer.bias is not None else {}
    if isinstance(layer, nn.Conv1d):
        calls = [Call(c.a.unsqueeze(2), c.z, c.b.unsqueeze(2)) for c in calls]
    shape, n = Shape.of(layer), len(calls[0].a)
    rows = list(shape.gradients([(shape.padded(c.a), c.b) for c in calls]))
    each = layer.in_channels // layer.groups
    by_row = torch.stack([row.reshape(n, layer.out_channels, shape.kernel[1], each) for row in rows])
    return {"weight": by_row.permute(1, 2, 4, 0, 3).reshape(n, *layer.weight.shape), **found}


# ------------------------------------------------------------------ normalisation


def normalisation(layer: nn.Module, calls: Calls, updates: Updates) -> Sums:
    """z = weight * x_hat + bias, so a record's gradient is sum b x_hat and sum b over its positions."""
    names = [name for name, _ in layer.named_parameters(recurse=False) if name in updates]
    g = vector(layer, calls, names)
    u = torch.cat([updates[name].flatten(1) for name in names], dim=1)
    return _square(g), g @ u.T


def vector(layer: nn.Module, calls: Calls, names: Sequence[str]) -> Tensor:
    """The gradients themselves, which are short: n x the parameters of these names, in this order."""
    parts = [_of_norm(layer, call) for call in calls]
    return torch.cat([sum_calls(part[name] for part in parts) for name in names], dim=1)


def _of_norm(layer: nn.Module, call: Call) -> dict[str, Tensor]:
    """Per record, for every scale: sum b x_hat and sum b over the positions that share it."""
    if _certain_rule(layer) is None:
        return _of_vectors(layer, call)
    if isinstance(layer, nn.LayerNorm | nn.RMSNorm) or _known_as(layer) in LAST_AXIS:
        assert isinstance(layer.weight, Tensor)
        size = layer.weight.numel()

        def total(values: Tensor) -> Tensor:
            return values.reshape(len(values), -1, size).sum(1)
    else:  # channels first: GroupNorm, BatchNorm

        def total(values: Tensor) -> Tensor:
            return values.sum(tuple(range(2, values.dim()))) if values.dim() > 2 else values

    weight, shift = layer.weight, getattr(layer, "bias", None)
    assert isinstance(weight, Tensor)
    weight, bias = weight.detach().flatten(), total(call.b)
    if weight.abs().min() > 0.1:  # x_hat from the output: no second normalisation
        along = total(call.b * call.z)
        along = along if shift is None else along - bias * shift.detach().flatten()
        return {"weight": along / weight, "bias": bias}
    return {"weight": total(call.b * _normalised(layer, call.a)), "bias": bias}


def _of_vectors(layer: nn.Module, call: Call) -> dict[str, Tensor]:
    """Of a layer whose output is x_hat * scale + shift, whatever it is called and however it makes x_hat: what goes
    with each of its vectors is what a vector of ones adds to one of zeros."""
    own = {name: p.detach() for name, p in layer.named_parameters(recurse=False)}

    def out(name: str, value: Tensor) -> Tensor:
        with torch.no_grad():
            made: Tensor = functional_call(layer, {**own, name: value}, (call.a,))
        return made

    found = {}
    for name, p in own.items():
        none = out(name, torch.zeros_like(p))
        part = out(name, torch.ones_like(p)) - none
        values, size = call.b * part, p.numel()
        last, second = values.shape[-1] == size, values.dim() > 2 and values.shape[1] == size
        if last and second:  # which axis it is for is seen from what it does
            steps = torch.linspace(1, 2, size, dtype=p.dtype)
            last = torch.allclose(out(name, steps.reshape(p.shape)) - none, part * steps, atol=1e-4)
        if last or not second:
            found[name] = values.reshape(len(values), -1, size).sum(1)
        else:
            found[name] = values.transpose(1, -1).reshape(len(values), -1, size).sum(1)
    return found


def _normalised(layer: nn.Module, a: Tensor) -> Tensor:
    if isinstance(layer, nn.LayerNorm):
        return F.layer_norm(a, layer.normalized_shape, eps=layer.eps)
    if isinstance(layer, nn.RMSNorm):
        return F.rms_norm(a, list(layer.normalized_shape), eps=layer.eps)
    if isinstance(layer, nn.GroupNorm):
        return F.group_norm(a, layer.num_groups, eps=layer.eps)
    if _known_as(layer) in LAST_AXIS:
        return F.rms_norm(a, [a.shape[-1]], eps=float(layer.variance_epsilon))  # type: ignore[arg-type]
    assert isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)
    return F.batch_norm(a, layer.running_mean, layer.running_var, eps=layer.eps)


# ------------------------------------------------------------------ embedding


def embedding(layer: nn.Module, calls: Calls, updates: Updates) -> Sums:
    """The gradient of a token's row is the sum of b over the positions that hold the token."""
    assert isinstance(layer, nn.Embedding)
    tokens = torch.cat([c.a.reshape(len(c.a), -1) for c in calls], dim=1)
    b = torch.cat([positions_of(c.b, layer.embedding_dim) for c in calls], dim=1)
    if layer.padding_idx is not None:
        b = b * (tokens != layer.padding_idx)[..., None]
    same = tokens[:, :, None] == tokens[:, None, :]
    norm2 = ((b @ b.mT) * same).sum((1, 2))
    inner = [(one[tokens] * b).sum((1, 2)) for one in updates["weight"]]
    return norm2, torch.stack(inner, dim=1)


# ------------------------------------------------------------------ LSTM


def lstm(layer: nn.Module, calls: Calls, updates: Updates) -> Sums:
    """Every layer of it is a linear one on (input, hidden state), called once for each position: see `unrolled`."""
    assert isinstance(layer, nn.LSTM)
    sums = []
    for part, x, b in _of_lstm(layer, calls):
        given = {name: updates[f"{name}_{part}"] for name in ("weight", "bias") if f"{name}_{part}" in updates}
        if given:
            sums.append(_products(x, b, given))
    return sum_calls(norm2 for norm2, _ in sums), sum_calls(inner for _, inner in sums)


def lstm_gradients(layer: nn.LSTM, calls: Calls) -> dict[str, Tensor]:
    """The gradients themselves, by parameter: n x its shape."""
    found: dict[str, Tensor] = {}
    for part, x, b in _of_lstm(layer, calls):
        found |= {f"weight_{part}": b.mT @ x, f"bias_{part}": b.sum(1)}
    return found


def _of_lstm(layer: nn.LSTM, calls: Calls) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Each of its products: its name, what went in and the gradients at what came out, n x positions x ..."""
    steps = len(calls) // layer.num_layers
    for number in range(layer.num_layers):
        own = calls[number * steps : (number + 1) * steps]
        a, b = torch.stack([c.a for c in own], dim=1), torch.stack([c.b for c in own], dim=1)
        width = a.shape[2] - layer.hidden_size
        yield f"ih_l{number}", a[..., :width], b
        yield f"hh_l{number}", a[..., width:], b


def unrolled(layer: nn.LSTM, step: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    """The layer's forward pass, one position after the other: torch's own does not show what goes into its gates.
    `step` is told of every (input, hidden state) and of the gates before their nonlinearity, and hands these on."""

    def own(name: str) -> Any:
        return getattr(layer, name, None)  # one without biases has none

    def forward(x: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x = x if layer.batch_first else x.transpose(0, 1)
        last = []
        for number in range(layer.num_layers):
            ih, hh = (
                partial(F.linear, weight=own(f"weight_{part}_l{number}"), bias=own(f"bias_{part}_l{number}"))
                for part in ("ih", "hh")
            )
            h, c = (each[number] for each in hx) if hx else (x.new_zeros(len(x), layer.hidden_size) for _ in range(2))
            outputs = []
            for position in x.unbind(1):
                gates = ih(position) + hh(h)
                i, f, g, o = step(torch.cat([position, h], dim=1), gates).chunk(4, dim=1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
                outputs.append(h)
            x = torch.stack(outputs, dim=1)
            last.append((h, c))
        end = torch.stack([h for h, _ in last]), torch.stack([c for _, c in last])
        return x if layer.batch_first else x.transpose(0, 1), end

    return forward


# ------------------------------------------------------------------ which rule for which layer


def transposed(layer: nn.Module, calls: Calls, updates: Updates) -> Sums:
    """A linear layer whose weight is stored inputs x outputs."""
    return linear(layer, calls, {name: u.mT if name == "weight" else u for name, u in updates.items()})


_RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.GroupNorm: normalisation,
    nn.LayerNorm: normalisation,
    nn.RMSNorm: normalisation,
    nn.BatchNorm1d: normalisation,
    nn.BatchNorm2d: normalisation,
    nn.Embedding: embedding,
}


# Of packages that may not be installed, by their names.
LAST_AXIS = ("transformers.models.llama.modeling_llama.LlamaRMSNorm",)
_OF_OTHERS: dict[str, Rule] = {
    **dict.fromkeys(LAST_AXIS, normalisation),
    "transformers.pytorch_utils.Conv1D": transposed,
}


def _known_as(layer: nn.Module) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


def rule_for(layer: nn.Module) -> Rule | None:
    """The rule of this layer. Where its forward is its own, that is a guess, to be tried: see `computes`."""
    return _certain_rule(layer) or _likely_rule(layer)


def _certain_rule(layer: nn.Module) -> Rule | None:
    """The rule whose formula is this layer's own forward."""
    if type(layer) is nn.LSTM:
        return lstm if not layer.bidirectional and not layer.proj_size else None
    for kind, rule in _RULES.items():
        if isinstance(layer, kind) and type(layer).forward is kind.forward:
            return rule if _is_plain(layer) else None
    return _OF_OTHERS.get(_known_as(layer))


def _likely_rule(layer: nn.Module) -> Rule | None:
    """Subclasses of others, and layers with one or two vectors, such as norms and scales."""
    own = [p for p in layer._parameters.values() if p is not None]
    if isinstance(layer, nn.LSTM) or not own or next(layer.children(), None) is not None:
        return None
    for kind in (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding):
        if isinstance(layer, kind):
            return _RULES[kind] if type(layer).forward is not kind.forward and _is_plain(layer) else None
    vectors = all(p.squeeze().dim() < 2 for p in own)
    return normalisation if vectors and len(own) < 3 else None


def _is_plain(layer: nn.Module) -> bool:
    known = {name for name, value in layer._parameters.items() if value is not None} <= {"weight", "bias"}
    batch = isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and layer.running_mean is None
    rescaled = isinstance(layer, nn.Embedding) and (layer.max_norm or layer.scale_grad_by_freq)
    return known and not batch and not rescaled


def computes(layer: nn.Module, a: Tensor) -> bool:
    """Is the guess right? Tried on two records and random gradients at the output, against autograd."""
    rule = rule_for(layer)
    if _certain_rule(layer) is not None or rule is None:
        return rule is not None
    layer = copy.deepcopy(layer).double()
    a = a[:2].detach().double() if a.is_floating_point() else a[:2].detach()
    own = dict(layer.named_parameters(recurse=False))
    rng = torch.Generator().manual_seed(0)
    updates = {name: torch.randn((1, *p.shape), generator=rng, dtype=p.dtype) for name, p in own.items()}
    try:
        with torch.no_grad():
            z = layer(a)
        b = torch.randn(z.shape, generator=rng, dtype=z.dtype)
        norm2, inner = rule(layer, [Call(a, z, b)], updates)
        for i in range(len(a)):
            with torch.enable_grad():
                gradient = torch.autograd.grad((layer(a[i : i + 1]) * b[i : i + 1]).sum(), list(own.values()))
            square = torch.stack([g.square().sum() for g in gradient]).sum()
            along = torch.stack([(g * updates[name][0]).sum() for name, g in zip(own, gradient, strict=True)]).sum()
            if not (torch.allclose(norm2[i], square, rtol=1e-6) and torch.allclose(inner[i, 0], along, 1e-6, 1e-6)):
                return False
    except Exception:  # whatever it is, it is not what was guessed
        return False
    return True
