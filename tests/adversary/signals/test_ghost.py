"""Ghost statistics against their slow twin: one backward pass per record, float64, one layer type at a time."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaudit.adversary.signals import ghost
from fedaudit.adversary.signals import layers as layer_rules
from fedaudit.adversary.signals.ghost import (
    ROWS,
    calls_of,
    examine,
    forward_mode,
    naive,
    statistics,
    trained_layers,
    verify,
)
from fedaudit.errors import FedauditError
from fedaudit.learn.models.mlp import mlp


def losses(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y, reduction="none").flatten(1).sum(1) if y.dim() > 1 else F.cross_entropy(
        out, y, reduction="none"
    )  # fmt: skip


class Then(nn.Module):
    """A layer between others, so that gradients flow through it and into it."""

    def __init__(self, layer: nn.Module, after: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        self.layer, self.after, self.head = layer, after, nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.after(self.layer(x)).flatten(1))
        return out


class Twice(nn.Module):
    """One module, called twice."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layer(torch.tanh(self.layer(x))).flatten(1))
        return out


class Tied(nn.Module):
    """One parameter in two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))
        return out


class BorrowedWeight(nn.Module):
    """A layer's weight used outside of the layer: no hook can see it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(F.linear(self.first(x), self.first.weight)))
        return out


class FreeParameter(nn.Module):
    """A parameter that belongs to no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.rand(6)), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(x * self.scale))
        return out


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.Module], **options: Any) -> None:
        super().__init__()
        options = {"batch_first": True, **options}
        self.embed, self.cell, self.head = nn.Embedding(9, 5), kind(5, 4, **options), nn.Linear(4, 7)
        self.records = 0 if options["batch_first"] else 1  # along which axis they are inside the cell

    def forward(self, x: Tensor) -> Tensor:
        made = self.cell(self.embed(x.long()).transpose(0, self.records))[0].transpose(0, self.records)
        out: Tensor = self.head(made[..., :4]).mT  # n x classes x positions
        return out


class InPlace(nn.Module):
    """Operations that overwrite a layer's output after it has run."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu_(self.first(x))
        out = self.norm(hidden)
        out += hidden
        return self.last(torch.sigmoid_(out))  # type: ignore[no-any-return]


class Rows(nn.Module):
    """Reshapes its positions into the batch, and gives the input by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.conv, self.head = nn.Linear(4, 5), nn.Conv1d(1, 2, 3), nn.Linear(72, 3)

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.tanh(self.inner(input=x.reshape(-1, 4)))
        out: Tensor = self.head(self.conv(rows[:, None]).reshape(len(x), -1))
        return out


class Renormed(nn.Linear):
    """A subclass with a forward pass of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight / self.weight.norm(), self.bias)


def small_scale(norm: nn.Module) -> nn.Module:
    """Scales around and at zero: x_hat cannot come from the output."""
    with torch.no_grad():
        assert isinstance(norm.weight, Tensor)
        norm.weight.copy_(torch.linspace(-1, 1, norm.weight.numel()).reshape(norm.weight.shape))
    return norm


def warmed(norm: nn.Module) -> nn.Module:
    with torch.no_grad():
        for _ in range(5):
            norm(torch.randn(32, 4, 7, 6) * 2 + 1)
    return norm


IMAGE, LONG, TOKENS, FLAT = (4, 7, 6), (4, 21), (6,), (6,)
sequence = (5, 6)

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: Then(nn.Linear(6, 8)), FLAT),
    "linear without bias": (lambda: Then(nn.Linear(6, 8, bias=False)), FLAT),
    "linear, few positions": (lambda: Then(nn.Linear(6, 40)), (3, 6)),
    "linear, many positions": (lambda: Then(nn.Linear(4, 3)), (20, 4)),
    "linear called twice": (lambda: Twice(nn.Linear(6, 6)), FLAT),
    "linear on sequences called twice": (lambda: Twice(nn.Linear(6, 6)), sequence),
    "convolution": (lambda: Then(nn.Conv2d(4, 8, 3, padding=1)), IMAGE),
    "convolution without bias": (lambda: Then(nn.Conv2d(4, 8, 3, bias=False)), IMAGE),
    "strided": (lambda: Then(nn.Conv2d(4, 8, 3, stride=2, padding=1)), IMAGE),
    "strided unevenly": (lambda: Then(nn.Conv2d(4, 8, (3, 2), stride=(3, 2), padding=(2, 1))), IMAGE),
    "dilated": (lambda: Then(nn.Conv2d(4, 8, 2, dilation=(3, 2), stride=(2, 1))), IMAGE),
    "grouped": (lambda: Then(nn.Conv2d(4, 8, 3, groups=2, stride=2)), IMAGE),
    "depthwise": (lambda: Then(nn.Conv2d(4, 4, 3, groups=4, padding="same")), IMAGE),
    "reflected": (lambda: Then(nn.Conv2d(4, 8, 3, padding=2, padding_mode="reflect")), IMAGE),
    "wide with few positions": (lambda: Then(nn.Conv2d(4, 40, (6, 5), dilation=1)), IMAGE),
    "wide, strided, uneven": (lambda: Then(nn.Conv2d(4, 60, 4, stride=3)), IMAGE),
    "convolution called twice": (lambda: Twice(nn.Conv2d(4, 4, 3, padding=1)), IMAGE),
    "one dimension": (lambda: Then(nn.Conv1d(4, 8, 4, stride=3, padding=2, padding_mode="circular")), LONG),
    "group norm": (lambda: Then(nn.GroupNorm(2, 4)), IMAGE),
    "group norm, scales at zero": (lambda: Then(small_scale(nn.GroupNorm(2, 4))), IMAGE),
    "layer norm": (lambda: Then(nn.LayerNorm(6)), sequence),
    "layer norm, scales at zero": (lambda: Then(small_scale(nn.LayerNorm((7, 6)))), IMAGE),
    "layer norm without bias": (lambda: Then(nn.LayerNorm(6, bias=False)), FLAT),
    "rms norm": (lambda: Then(nn.RMSNorm(6)), sequence),
    "layer norm called twice": (lambda: Twice(nn.LayerNorm(6)), FLAT),
    "batch norm": (lambda: Then(warmed(nn.BatchNorm2d(4))), IMAGE),
    "batch norm, scales at zero": (lambda: Then(small_scale(warmed(nn.BatchNorm2d(4)))), IMAGE),
    "batch norm of vectors": (lambda: Then(nn.BatchNorm1d(6)), FLAT),
    "embedding": (lambda: Then(nn.Embedding(5, 4)), TOKENS),
    "embedding with padding": (lambda: Then(nn.Embedding(5, 4, padding_idx=1)), TOKENS),
    "in place": (InPlace, FLAT),
    "in-place modules": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 3), nn.Dropout(0.5, True)),
        FLAT,
    ),
    "positions in the batch": (Rows, (6, 8)),
    "tied weights": (Tied, FLAT),
    "free parameter": (FreeParameter, FLAT),
    "own forward": (lambda: Then(Renormed(6, 5)), FLAT),
    "lstm, loss summed over positions": (lambda: Recurrent(nn.LSTM), TOKENS),
    "lstm of two layers, without biases": (lambda: Recurrent(nn.LSTM, num_layers=2, bias=False), TOKENS),
    "lstm, positions first": (lambda: Recurrent(nn.LSTM, num_layers=2, batch_first=False), TOKENS),
    "lstm in both directions": (lambda: Recurrent(nn.LSTM, bidirectional=True), TOKENS),
    "gru, loss summed over positions": (lambda: Recurrent(nn.GRU), TOKENS),
    "weight norm": (lambda: Then(nn.utils.parametrizations.weight_norm(nn.Linear(6, 5))), FLAT),
    "attention": (lambda: Then(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)), sequence),
    "mlp of low rank": (lambda: mlp((6,), 3, (9,), rank=2), FLAT),
    "mlp of projected inputs": (lambda: mlp((6,), 3, (9,), projection=4), FLAT),
}


def world(name: str, n: int = 19) -> tuple[nn.Module, Tensor, Tensor, dict[str, Tensor]]:
    build, shape = MODELS[name]
    torch.manual_seed(len(name))
    module = build()
    tokens = shape is TOKENS and any(isinstance(m, nn.Embedding) for m in module.modules())
    x = torch.randint(0, 5, (n, *shape)) if tokens else torch.randn(n, *shape)
    with torch.no_grad():
        module(x)  # lazy layers
    module = module.double().train()
    y = torch.randint(0, 3, (n, 6) if isinstance(module, Recurrent) else (n,))
    updates = {name: torch.randn(3, *p.shape).double() for name, p in module.named_parameters()}
    return module, x if tokens else x.double(), y, updates


def slowly(module: nn.Module, x: Tensor, y: Tensor, updates: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The twin: whole gradients, then sums."""
    layers = trained_layers(module)
    module.eval()
    norm2, inner = [], []
    for g in naive(module, losses, x, y, list(updates)):
        norm2.append([sum((g[p] ** 2).sum() for p in owned) for owned in layers.values()])
        inner.append(
            [[sum((g[p] * updates[p][k]).sum() for p in owned) for k in range(3)] for owned in layers.values()]
        )
    return torch.tensor(norm2, dtype=torch.float64), torch.tensor(inner, dtype=torch.float64)


@pytest.mark.parametrize("name", MODELS)
def test_equal_to_naive_gradients_to_1e_10(name: str) -> None:
    module, x, y, updates = world(name)
    found = statistics(module, losses, x, y, updates)
    norm2, inner = slowly(module, x, y, updates)
    assert torch.allclose(found.norm2, norm2, rtol=1e-10, atol=1e-12)
    assert torch.allclose(found.inner, inner, rtol=1e-10, atol=1e-10)
    expected = [
        [sum((updates[p][k] ** 2).sum() for p in owned) for k in range(3)] for owned in trained_layers(module).values()
    ]
    assert torch.allclose(found.update2, torch.tensor(expected, dtype=torch.float64), rtol=1e-12)


SLOW = {
    "tied weights": {"first", "second"},
    "free parameter": {""},
    "own forward": {"layer"},
    "lstm in both directions": {"cell"},
    "gru, loss summed over positions": {"cell"},
    "weight norm": {"layer.parametrizations.weight"},
    "attention": {"layer.self_attn", "layer.self_attn.out_proj"},
}


@pytest.mark.parametrize("name", MODELS)
def test_only_what_has_no_rule_is_slow(name: str) -> None:
    module, x, y, _ = world(name)
    assert set(verify(module, losses, x, y).slow) == SLOW.get(name, set())


@pytest.mark.parametrize("name", SLOW)
def test_without_norms_the_inner_products_are_the_same(name: str) -> None:
    module, x, y, updates = world(name)
    found = statistics(module, losses, x, y, updates, norms=False)
    assert torch.allclose(found.inner, slowly(module, x, y, updates)[1], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["tied weights", "free parameter", "own forward"])
def test_forward_mode_is_what_is_used_then(name: str) -> None:
    module, x, y, updates = world(name)
    module.eval()
    inner = forward_mode(module, losses, x, y, updates, trained_layers(module))
    assert torch.allclose(inner, slowly(module, x, y, updates)[1], rtol=1e-9, atol=1e-10)


def test_the_module_is_left_as_it_was() -> None:
    module, x, y, updates = world("in place")
    norm = module.get_submodule("norm").eval()
    frozen = norm.bias
    assert isinstance(frozen, nn.Parameter)
    frozen.requires_grad_(False)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    modes = [m.training for m in module.modules()]
    found = statistics(module, losses, x, y, updates)
    assert [m.training for m in module.modules()] == modes
    assert not frozen.requires_grad
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())
    assert not any(m._forward_hooks for m in module.modules())
    # what is frozen is no part of the gradient
    updates.pop("norm.bias")
    norm2, _ = slowly(module, x, y, updates)
    assert torch.allclose(found.norm2, norm2, rtol=1e-10)


def test_more_records_than_one_pass_and_gradients_formed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_rules, "FORMED", 900)  # two records at a time
    module, x, y, updates = world("convolution", n=ROWS + 7)
    found = statistics(module, losses, x, y, updates)
    norm2, inner = slowly(module, x, y, updates)
    assert torch.allclose(found.norm2, norm2, rtol=1e-10)
    assert torch.allclose(found.inner, inner, rtol=1e-10, atol=1e-10)


def test_two_cores_give_the_same_bits_in_the_same_order() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    n = 3 * ROWS + 5
    x, y = torch.randn(n, 5), torch.randint(0, 3, (n,))
    updates = {name: torch.randn(2, *p.shape) for name, p in module.named_parameters()}
    found = {}
    before = torch.get_num_threads()
    try:
        for cores in (1, 2):
            torch.set_num_threads(cores)
            found[cores] = statistics(module, losses, x, y, updates)
            assert torch.get_num_threads() == cores
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[1].norm2, found[2].norm2)
    assert torch.equal(found[1].inner, found[2].inner)


def test_batch_norm_in_training_mode_is_judged_in_evaluation_mode() -> None:
    """Training-mode BatchNorm couples records; the module may be left in that mode, the numbers are those of eval."""
    module, x, y, updates = world("batch norm")
    module.train()
    running = module.get_buffer("layer.running_mean").clone()
    found = statistics(module, losses, x, y, updates)
    assert torch.equal(module.get_buffer("layer.running_mean"), running)
    assert torch.allclose(found.norm2, slowly(module, x, y, updates)[0], rtol=1e-10)


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: Then(nn.BatchNorm1d(6, track_running_stats=False)), "records-mixed"),
        (lambda: Then(nn.Identity(), lambda x: x - x.mean(0)), "records-mixed"),
    ],
)
def test_refused_before_training(build: Callable[[], nn.Module], code: str) -> None:
    torch.manual_seed(0)
    module, x, y = build(), torch.randn(12, 6), torch.randint(0, 3, (12,))
    module(x)
    with pytest.raises(FedauditError) as caught:
        verify(module, losses, x, y)
    assert caught.value.code == code


@pytest.mark.parametrize("name", ["grouped", "depthwise", "one dimension", "dilated", "convolution called twice"])
def test_gradients_of_a_convolution_are_those_of_autograd(name: str) -> None:
    module, x, y, _ = world(name)
    module.eval()
    plan = examine(module, trained_layers(module), x[:11])
    layer = module.get_submodule("layer")
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    found = layer_rules.convolution_gradients(layer, calls_of(module, losses, x, y, plan)["layer"])
    for i, slow in enumerate(naive(module, losses, x, y, ["layer.weight", "layer.bias"])):
        torch.testing.assert_close(found["weight"][i], slow["layer.weight"])
        torch.testing.assert_close(found["bias"][i], slow["layer.bias"])


class Own(nn.Module):
    """Norms, scales and products as every library writes its own: recognised by what they compute."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(5, 8), nn.Embedding(6, 8)
        self.norm, self.scale, self.planes = OwnNorm(8), OwnScale(8), PlanesNorm(6)
        self.product, self.conv, self.head = OwnLinear(8, 8), nn.Conv1d(6, 6, 3, padding=1), nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x) + self.place(torch.arange(x.shape[1])[None])
        h = self.scale(torch.tanh(self.product(self.norm(h))))
        return torch.as_tensor(self.head(torch.tanh(self.planes(self.conv(h))).flatten(1)))


class OwnNorm(nn.LayerNorm):
    def __init__(self, size: int) -> None:
        super().__init__(size)

    def forward(self, x: Tensor) -> Tensor:
        return (1 + self.weight) * F.layer_norm(x, self.normalized_shape) + self.bias


class OwnScale(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.rand(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class PlanesNorm(nn.LayerNorm):
    def __init__(self, size: int) -> None:
        super().__init__(size)

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.mT, self.normalized_shape, self.weight, self.bias).mT


class OwnLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + (0 if self.bias is None else self.bias)


def test_layers_are_recognised_by_what_they_compute() -> None:
    torch.manual_seed(0)
    module, x, y = Own().double(), torch.randint(0, 5, (13, 6)), torch.arange(13) % 3
    plan = verify(module, losses, x, y)
    assert not plan.slow
    updates = {name: torch.randn(3, *p.shape).double() for name, p in module.named_parameters()}
    found = statistics(module, losses, x, y, updates)
    norm2, inner = slowly(module, x, y, updates)
    assert torch.allclose(found.norm2, norm2, rtol=1e-10, atol=1e-12)
    assert torch.allclose(found.inner, inner, rtol=1e-10, atol=1e-10)


def test_a_layer_whose_weight_is_used_elsewhere_is_odd() -> None:
    torch.manual_seed(0)
    plan = verify(BorrowedWeight(), losses, torch.randn(12, 6), torch.randint(0, 3, (12,)))
    assert (set(plan.odd), set(plan.fast)) == ({"first"}, {"head"})


def test_records_that_do_not_come_first_take_the_slow_way() -> None:
    class TimeFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.Linear(6, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(torch.tanh(self.inner(x.transpose(0, 1))).sum(0))
            return out

    torch.manual_seed(0)
    module, x, y = TimeFirst().double(), torch.randn(19, 5, 6).double(), torch.randint(0, 3, (19,))
    assert examine(module, trained_layers(module), x[:11]).slow == ["inner"]
    updates = {name: torch.randn(3, *p.shape).double() for name, p in module.named_parameters()}
    found = statistics(module, losses, x, y, updates)
    assert torch.allclose(found.norm2, slowly(module, x, y, updates)[0], rtol=1e-10)


def test_a_large_model_is_examined_without_a_copy_in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ghost, "LARGE", 10)
    for name in ("convolution", "layer norm", "batch norm", "embedding"):
        module, x, y, _ = world(name)
        plan = verify(module.float(), losses, x.float() if x.is_floating_point() else x, y)
        assert not plan.slow
        assert not plan.odd
    assert set(verify(BorrowedWeight(), losses, torch.randn(12, 6), torch.randint(0, 3, (12,))).odd) == {"first"}
