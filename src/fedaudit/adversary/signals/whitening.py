"""Gradients seen with the eyes of everybody else's: second moments of a layer's inputs and output gradients, their
damped inverses, and a record's whitened gradient statistics without the gradient.

A record's gradient is G = sum over positions of b a' (a: what went in, with a 1 for the bias; b: the loss's gradient at
what came out). With A = E[a a'] and B = E[b b'] over the positions of other records, the covariance of their gradients
is about B (x) A, and the whitened statistics are

    <B^-1 G A^-1, U> = <G, W>, W = B^-1 U A^-1          |G|^2 = sum over positions s, t of (b_s B^-1 b_t) (a_s A^-1 a_t)

For a single position the second is a product of two quadratic forms. Only where a record has many positions is its
gradient smaller than that detour; it is then formed, for a few records at a time, as in `layers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaudit.adversary.signals import layers
from fedaudit.adversary.signals.layers import Call, Calls, Shape, Sums, positions_of, sum_calls

WIDE = 2**13  # dimensions up to which a second moment is held as a matrix,
HELD = 2**25  # and numbers in the vectors that are held beyond that
AT_ONCE = 2**14  # vectors in one product: sums of more are rounded too coarsely in float32


# ------------------------------------------------------------------ inverses


# Of damped second moments. Called with vectors along the last axis: each times the inverse. `square`: v' inverse v of n
# vectors.


@dataclass(frozen=True)
class Identity:
    """Of what is not known: no whitening."""

    def __call__(self, v: Tensor) -> Tensor:
        return v.clone()

    def square(self, v: Tensor) -> Tensor:
        return v.square().sum(1)


@dataclass(frozen=True)
class Diagonal:
    values: Tensor

    def __call__(self, v: Tensor) -> Tensor:
        return v * self.values.to(v.dtype)

    def square(self, v: Tensor) -> Tensor:
        return (v * self(v)).sum(1)


@dataclass(frozen=True)
class Dense:
    """(L L')^-1, by its Cholesky factor: a square costs half of a product, and nothing is inverted for it."""

    factor: Tensor
    casts: dict[str, Tensor] = field(default_factory=dict)  # what was cast already: it is used for every few records

    def __call__(self, v: Tensor) -> Tensor:
        if v.numel() < self.factor.numel():  # fewer vectors than dimensions: solving is less work than inverting
            flat = v.reshape(-1, v.shape[-1]).double()
            return torch.cholesky_solve(flat.T, self.factor).T.reshape(v.shape).to(v.dtype)
        return v @ self._cast("inverse", v.dtype)

    def square(self, v: Tensor) -> Tensor:
        half: Tensor = torch.linalg.solve_triangular(self._cast("factor", v.dtype), v.T, upper=False)
        return half.square().sum(0)

    def _cast(self, what: str, dtype: torch.dtype) -> Tensor:
        key = f"{what} {dtype}"
        if key not in self.casts:
            whole = self.factor if what == "factor" else torch.cholesky_inverse(self.factor)
            self.casts[key] = whole.to(dtype)
        return self.casts[key]


@dataclass(frozen=True)
class OfFew:
    """(V'V / m + floor I)^-1 with fewer vectors than dimensions, by Woodbury: (v - R'R v) / floor."""

    rows: Tensor  # R: m x dim
    floor: float

    def __call__(self, v: Tensor) -> Tensor:
        r = self.rows.to(v.dtype)
        return (v - (v @ r.T) @ r) / self.floor

    def square(self, v: Tensor) -> Tensor:
        return (v * self(v)).sum(1)


Inverse = Identity | Diagonal | Dense | OfFew


@dataclass(frozen=True)
class Side:
    """What is known of a layer's inputs, or of its output gradients."""

    inverse: Inverse
    spread: Tensor  # the root mean square of every coordinate


@dataclass(frozen=True)
class SecondMoment:
    """Of m vectors: their outer products, summed; or, where these would be larger, the vectors themselves, of which
    some are enough where they are very long."""

    count: int
    total: Tensor | None
    vectors: Tensor | None

    @classmethod
    def of(cls, vectors: Tensor) -> SecondMoment:
        m, dim = vectors.shape
        if dim > WIDE and m * dim > HELD:
            vectors = vectors[:: -(-m * dim // HELD)]
            m = len(vectors)
        if 2 * m <= dim or dim > WIDE:
            return cls(m, None, vectors)
        return cls(m, sum_calls((part.T @ part).double() for part in torch.split(vectors, AT_ONCE)), None)

    @property
    def spread(self) -> Tensor:
        """The root mean square of every coordinate."""
        squares = self.total.diagonal() if self.total is not None else _squares(self.vectors)
        return (squares / self.count).sqrt()

    def side(self, damping: float) -> Side:
        return Side(self.inverse(damping), self.spread)

    def inverse(self, damping: float) -> Inverse:
        """(V'V / m + damping trace / dim I)^-1; with few vectors, nothing of dim x dim is inverted (Woodbury)."""
        if self.total is not None:
            floor = damping * float(self.total.trace()) / self.count / len(self.total)
            if not 0 < floor < torch.inf:
                return Identity()
            damped = self.total / self.count
            damped.diagonal().add_(floor)
            return Dense(torch.linalg.cholesky(damped))
        assert self.vectors is not None
        v = self.vectors.double()
        floor = damping * float(v.square().sum()) / v.numel()
        if not 0 < floor < torch.inf:
            return Identity()
        small = v @ v.T + len(v) * floor * torch.eye(len(v), dtype=torch.float64)
        return OfFew(torch.linalg.solve_triangular(torch.linalg.cholesky(small), v, upper=False), floor)


def _squares(vectors: Tensor | None) -> Tensor:
    assert vectors is not None
    return vectors.double().square().sum(0)


# ------------------------------------------------------------------ one layer's whitening


@dataclass(frozen=True)
class Whitening:
    """Both sides' inverses, and the updates between them: W = B^-1 U A^-1, K x out x width, and <U, W>."""

    inputs: Inverse
    outputs: Inverse
    update: Tensor
    update2: Tensor

    @classmethod
    def of(cls, inputs: Side, outputs: Side, update: Tensor, adaptive: bool) -> Whitening:
        """`adaptive`: the optimiser (Adam) has divided every coordinate by about its root mean square; undo that."""
        u = update.double()
        if adaptive:
            u = u * outputs.spread[:, None] * inputs.spread
        w = outputs.inverse(inputs.inverse(u).mT).mT
        return cls(inputs.inverse, outputs.inverse, w, (u * w).sum((1, 2)))

    @cached_property
    def left(self) -> Tensor:
        """B^-1 as a matrix."""
        return self.outputs(torch.eye(self.update.shape[1], dtype=torch.float64))


@dataclass(frozen=True)
class Positions:
    """What went into a layer and came back to it, position by position: n x P x width and n x P x out."""

    a: Tensor
    b: Tensor

    def statistics(self, by: Whitening, a2: Tensor | None = None) -> Sums:
        """|G|^2 and <G, W> of every record; `a2` are its a' A^-1 a where these are known (one position)."""
        (_, positions, width), out = self.a.shape, self.b.shape[2]
        w = by.update.to(self.a.dtype)
        if positions == 1:
            a, b = self.a[:, 0], self.b[:, 0]
            a2 = by.inputs.square(a) if a2 is None else a2
            inner = torch.stack([((a @ one.T) * b).sum(1) for one in w], dim=1)
            return a2 * by.outputs.square(b), inner
        if _few(positions, width, out):
            norm2 = ((self.a @ by.inputs(self.a).mT) * (self.b @ by.outputs(self.b).mT)).sum((1, 2))
            return norm2, torch.stack([((self.a @ one.T) * self.b).sum((1, 2)) for one in w], dim=1)
        parts = [_formed(g, by) for g in self.gradients()]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    def gradients(self) -> Iterator[Tensor]:
        """Of every record, out x width, for a few records at a time."""
        for some in _some(len(self.a), self.a.shape[2] * self.b.shape[2]):
            yield self.b[some].mT @ self.a[some]


def _few(positions: int, width: int, out: int) -> bool:
    """Is it less work to whiten every position than the gradient that is their sum? A very wide one is not formed."""
    if max(width, out) > WIDE:
        return True
    return positions * (width**2 + out**2) + positions**2 * (width + out) < width * out * (width + out)


def _some(n: int, size: int) -> list[slice]:
    rows = max(1, layers.FORMED // size)
    return [slice(start, start + rows) for start in range(0, n, rows)]


def _formed(g: Tensor, by: Whitening) -> Sums:
    """The same of gradients that are there: n x out x width."""
    both = by.inputs(g).mul_(by.left.to(g.dtype) @ g)
    return both.flatten(1).sum(1), g.flatten(1) @ by.update.to(g.dtype).flatten(1).T


# ------------------------------------------------------------------ the layers


# How a kind of layer is taken apart. `own`: the names of its trained parameters. `inputs` takes the vectors that went
# in, m x width; `update` gives K x out x width.


class Linear:
    def positions(self, layer: nn.Module, calls: Calls, own: frozenset[str]) -> Positions:
        a = _joined([positions_of(c.a, c.a.shape[-1]) for c in calls])
        b = _joined([positions_of(c.b, c.b.shape[-1]) for c in calls])
        return Positions(with_one(a) if "bias" in own else a, b)

    def inputs(self, layer: nn.Module, a: Tensor, damping: float) -> Side:
        return SecondMoment.of(a).side(damping)

    def update(self, updates: Mapping[str, Tensor]) -> Tensor:
        """The bias is the last column."""
        weight = updates["weight"].flatten(2)
        return torch.cat([weight, updates["bias"][..., None]], dim=2) if "bias" in updates else weight

    def statistics(
        self, layer: nn.Module, calls: Calls, own: frozenset[str], by: Whitening, a2: Tensor | None = None
    ) -> Sums:
        return self.positions(layer, calls, own).statistics(by, a2)

    def gradients(self, layer: nn.Module, calls: Calls, own: frozenset[str]) -> Iterator[Tensor]:
        """Of every record, out x width, for a few records at a time."""
        return self.positions(layer, calls, own).gradients()


class Transposed(Linear):
    """One whose weight is stored inputs x outputs."""

    def update(self, updates: Mapping[str, Tensor]) -> Tensor:
        return super().update({**updates, "weight": updates["weight"].mT})


class Convolution(Linear):
    """A linear layer on patches. With many positions the gradient is formed, row by row of the kernel."""

    def positions(self, layer: nn.Module, calls: Calls, own: frozenset[str]) -> Positions:
        shape, calls = _in_two_dimensions(layer, calls)
        a = _joined([shape.patches(shape.padded(c.a), c.b) for c in calls])
        b = _joined([c.b.flatten(2).mT for c in calls])
        return Positions(with_one(a) if "bias" in own else a, b)

    def statistics(
        self, layer: nn.Module, calls: Calls, own: frozenset[str], by: Whitening, a2: Tensor | None = None
    ) -> Sums:
        _, in_two = _in_two_dimensions(layer, calls)
        weight = layer.weight
        assert isinstance(weight, Tensor)
        out, width = len(weight), weight[0].numel()
        if _few(sum(c.b[0, 0].numel() for c in in_two), width, out):
            return super().statistics(layer, calls, own, by)
        parts = [_formed(g, by) for g in self.gradients(layer, calls, own)]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    def gradients(self, layer: nn.Module, calls: Calls, own: frozenset[str]) -> Iterator[Tensor]:
        shape, calls = _in_two_dimensions(layer, calls)
        weight = layer.weight
        assert isinstance(weight, Tensor)
        out, width = len(weight), weight[0].numel()
        inputs = [(shape.padded(c.a), c.b) for c in calls]
        for some in _some(len(calls[0].a), out * width + shape.kernel[1] * inputs[0][0][0].numel()):
            rows = list(shape.gradients([(x[some], b[some]) for x, b in inputs]))
            by_row = torch.stack([row.reshape(len(row), out, shape.kernel[1], -1) for row in rows], dim=2)
            g = by_row.permute(0, 1, 4, 2, 3).flatten(2)  # channels, kernel: the order of the weight's entries
            if "bias" in own:
                g = torch.cat([g, sum_calls(b[some].sum((2, 3)) for _, b in inputs)[..., None]], dim=2)
            yield g


def _joined(calls: list[Tensor]) -> Tensor:
    """A layer that is called several times has simply more positions."""
    return calls[0] if len(calls) == 1 else torch.cat(calls, dim=1)


def with_one(a: Tensor) -> Tensor:
    return F.pad(a, (0, 1), value=1.0)


def _in_two_dimensions(layer: nn.Module, calls: Calls) -> tuple[Shape, Calls]:
    """A sequence is an image of height one."""
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    if isinstance(layer, nn.Conv1d):
        calls = [Call(c.a.unsqueeze(2), c.z, c.b.unsqueeze(2)) for c in calls]
    return Shape.of(layer), calls


class Embedding:
    """A linear layer on one-hot tokens, whose second moment is diagonal: how often each token occurs."""

    def positions(self, layer: nn.Module, calls: Calls, own: frozenset[str]) -> Positions:
        """`a` holds the tokens themselves, n x P x 1."""
        assert isinstance(layer, nn.Embedding)
        tokens = _joined([c.a.reshape(len(c.a), -1) for c in calls])
        b = _joined([positions_of(c.b, layer.embedding_dim) for c in calls])
        if layer.padding_idx is not None:
            b = b * (tokens != layer.padding_idx)[..., None]
        return Positions(tokens[..., None], b)

    def inputs(self, layer: nn.Module, a: Tensor, damping: float) -> Side:
        assert isinstance(layer, nn.Embedding)
        counts = torch.bincount(a.flatten().long(), minlength=layer.num_embeddings).double()
        share = counts / counts.sum()
        known: Inverse = Diagonal(1 / (share + damping / len(share))) if damping < torch.inf else Identity()
        return Side(known, share.sqrt())

    def update(self, updates: Mapping[str, Tensor]) -> Tensor:
        return updates["weight"].mT

    def statistics(
        self, layer: nn.Module, calls: Calls, own: frozenset[str], by: Whitening, a2: Tensor | None = None
    ) -> Sums:
        seen = self.positions(layer, calls, own)
        tokens, b = seen.a[..., 0].long(), seen.b
        rarity = by.inputs(torch.ones(by.update.shape[2], dtype=b.dtype))[tokens]
        same = (tokens[:, :, None] == tokens[:, None, :]) * rarity[:, :, None]
        norm2 = ((b @ by.outputs(b).mT) * same).sum((1, 2))
        rows = by.update.to(b.dtype).mT  # K x vocabulary x out
        return norm2, torch.stack([(one[tokens] * b).sum((1, 2)) for one in rows], dim=1)


LayerRule = Linear | Embedding


def rule_for(layer: nn.Module, own: frozenset[str]) -> LayerRule | None:
    """Layers whose weight is trained and whose ghost statistics are known; a grouped convolution has several A."""
    rule = layers.rule_for(layer)
    if "weight" not in own or rule is None:
        return None
    if rule is layers.transposed:
        return Transposed()
    if isinstance(layer, nn.Linear):
        return Linear()
    if isinstance(layer, nn.Conv1d | nn.Conv2d):
        return Convolution() if layer.groups == 1 else None
    return Embedding() if isinstance(layer, nn.Embedding) else None
