"""The matched filter against its slow twin: every record's gradient by a backward pass of its own, whitened as a whole."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedaudit.adversary.signals import matched
from fedaudit.adversary.signals.ghost import naive
from fedaudit.errors import FedauditError
from tests.adversary.signals.test_ghost import Rows, Then, Twice, losses

DAMPING = 0.03
IMAGE, SEQUENCE, FLAT, TOKENS = (4, 7, 6), (5, 6), (6,), (5,)

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: Then(nn.Linear(6, 8)), FLAT),
    "linear without bias": (lambda: Then(nn.Linear(6, 8, bias=False)), FLAT),
    "linear behind another": (lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), Then(nn.Linear(9, 8))), FLAT),
    "linear, more dimensions than records": (lambda: Then(nn.Linear(90, 8)), (90,)),
    "linear, few positions": (lambda: Then(nn.Linear(6, 40)), SEQUENCE),
    "linear, many positions": (lambda: Then(nn.Linear(4, 3)), (20, 4)),
    "linear called twice": (lambda: Twice(nn.Linear(6, 6)), FLAT),
    "convolution": (lambda: Then(nn.Conv2d(4, 8, 3, padding=1)), IMAGE),
    "convolution without bias": (lambda: Then(nn.Conv2d(4, 8, 3, bias=False)), IMAGE),
    "strided unevenly": (lambda: Then(nn.Conv2d(4, 8, (3, 2), stride=(3, 2), padding=(2, 1))), IMAGE),
    "wide with few positions": (lambda: Then(nn.Conv2d(4, 40, (6, 5))), IMAGE),
    "convolution called twice": (lambda: Twice(nn.Conv2d(4, 4, 3, padding=1)), IMAGE),
    "one dimension": (lambda: Then(nn.Conv1d(4, 8, 4, stride=3, padding=2, padding_mode="circular")), (4, 21)),
    "positions in the batch": (Rows, (6, 8)),
    "embedding": (lambda: Then(nn.Embedding(7, 4)), TOKENS),
    "embedding with padding": (lambda: Then(nn.Embedding(7, 4, padding_idx=1)), TOKENS),
}


def world(name: str, n: int = 23, updates: int = 2) -> tuple[nn.Module, Tensor, Tensor, dict[str, Tensor], Tensor]:
    build, shape = MODELS[name]
    torch.manual_seed(len(name))
    module = build()
    tokens = any(isinstance(m, nn.Embedding) for m in module.modules())
    x = torch.randint(0, 7, (n, *shape)) if tokens else torch.randn(n, *shape)
    with torch.no_grad():
        module(x)  # lazy layers
    module = module.double()
    y = torch.randint(0, 3, (n,))
    made = {name: torch.randn(updates, *p.shape).double() for name, p in module.named_parameters()}
    fitting = torch.randperm(n)[: n - 6]
    return module, x if tokens else x.double(), y, made, fitting


def slow_inverse(moment: Tensor, damping: float) -> Tensor:
    floor = damping * moment.trace() / len(moment)
    return torch.linalg.inv(moment + floor * torch.eye(len(moment), dtype=torch.float64))


class Watched:
    """Inputs and output gradients of one layer, every call and position of one record, in the plainest way."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.module, self.layer = module, module.get_submodule(name)

    def vectors(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        calls: list[tuple[Tensor, Tensor]] = []

        def keep(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], z: Tensor) -> None:
            z.retain_grad()
            calls.append((args[0] if args else kwargs["input"], z))

        handle = self.layer.register_forward_hook(keep, with_kwargs=True)
        torch.autograd.backward(losses(self.module(x[None]), y[None]).sum())
        handle.remove()
        a = torch.cat([self.inputs(a.detach()) for a, _ in calls])
        b = torch.cat([self.outputs(z.grad) for _, z in calls if z.grad is not None])
        return a, b

    def inputs(self, a: Tensor) -> Tensor:
        layer = self.layer
        if isinstance(layer, nn.Embedding):
            return nn.functional.one_hot(a.flatten(), layer.num_embeddings).double()
        if isinstance(layer, nn.Linear):
            flat = a.reshape(-1, a.shape[-1])
        else:  # each entry of a patch by a convolution with a one at its place
            assert isinstance(layer, nn.Conv1d | nn.Conv2d)
            shape = layer.weight[0].shape
            picks = torch.eye(shape.numel(), dtype=torch.float64).reshape(-1, *shape)
            bare = type(layer)(layer.in_channels, shape.numel(), layer.kernel_size, layer.stride, layer.padding,  # type: ignore[arg-type]
                               layer.dilation, 1, False, layer.padding_mode)  # type: ignore[arg-type]  # fmt: skip
            bare.weight = nn.Parameter(picks)
            flat = bare(a).detach().flatten(2).mT.flatten(0, 1)
        ones = torch.ones(len(flat), 1, dtype=torch.float64)
        return torch.cat([flat, ones], dim=1) if layer.bias is not None else flat

    def outputs(self, b: Tensor) -> Tensor:
        if isinstance(self.layer, nn.Conv1d | nn.Conv2d):
            return b.flatten(2).mT.flatten(0, 1)
        out = b.reshape(-1, b.shape[-1])
        return out


def matrix(layer: nn.Module, values: dict[str, Tensor]) -> Tensor:
    """Weight and bias as one matrix, out x width."""
    if isinstance(layer, nn.Embedding):
        return values["weight"].T
    parts = [values["weight"].flatten(1), *([values["bias"][:, None]] if "bias" in values else [])]
    return torch.cat(parts, dim=1)


def slowly(module: nn.Module, name: str, x: Tensor, y: Tensor, updates: dict[str, Tensor], fitting: Tensor) -> Tensor:
    """n x K scores: B^-1/2 G A^-1/2 formed for every record from its own backward pass, and its product with U."""
    module.eval()
    watched = Watched(module, name)
    both = [watched.vectors(x[i], y[i]) for i in fitting]
    padding = getattr(watched.layer, "padding_idx", None)
    a, b = torch.cat([a for a, _ in both]), torch.cat([b for _, b in both])
    if padding is not None:
        b = b * (a[:, padding] == 0)[:, None]
    left, right = slow_inverse(b.T @ b / len(b), DAMPING), slow_inverse(a.T @ a / len(a), DAMPING)
    owned = [p for p, _ in module.named_parameters() if p.rpartition(".")[0] == name]
    short = {p: p.rpartition(".")[2] for p in owned}
    rows = []
    for g in naive(module, losses, x, y, owned):
        whole = matrix(watched.layer, {short[p]: g[p] for p in owned})
        norm = (left @ whole @ right * whole).sum().sqrt()
        u = [matrix(watched.layer, {short[p]: updates[p][k] for p in owned}) for k in range(2)]
        rows.append(torch.stack([(left @ whole @ right * one).sum() / norm for one in u]))
    return torch.stack(rows)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_equal_to_whitened_gradients_formed_one_by_one(
    name: str, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if streamed:
        monkeypatch.setattr(matched, "KEPT", 0)
        monkeypatch.setattr(matched.ghost, "ROWS", 7)
    module, x, y, updates, fitting = world(name)
    prepared = matched.prepare(module, losses, x, y, fitting, DAMPING)
    found = matched.scores(matched.statistics(prepared, module, updates))
    assert prepared.whitened
    for column, layer in enumerate(prepared.layers):
        expected = slowly(module, layer, x, y, updates, fitting)
        assert torch.allclose(found[:, column], expected, rtol=1e-6, atol=1e-8), layer


def test_one_layer_is_a_column_of_all() -> None:
    module, x, y, updates, fitting = world("linear behind another")
    every = matched.prepare(module, losses, x, y, fitting, DAMPING)
    found = matched.scores(matched.statistics(every, module, updates))
    for column, layer in enumerate(every.layers):
        one = matched.prepare(module, losses, x, y, fitting, DAMPING, layer)
        assert one.layers == (layer,)
        alone = matched.scores(matched.statistics(one, module, updates))
        assert torch.allclose(found[:, [column]], alone, rtol=1e-9)
