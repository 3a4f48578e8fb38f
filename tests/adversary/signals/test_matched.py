"""The matched filter against its slow twin: every record's gradient formed by itself and whitened as a whole."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedaudit.adversary.signals import ghost, matched
from fedaudit.adversary.signals.ghost import naive
from fedaudit.adversary.signals.whitening import OfFew, Positions, SecondMoment, Whitening
from fedaudit.errors import FedauditError
from fedaudit.learn.models.mlp import mlp
from fedaudit.stats import Block, auc, tpr_at_fpr
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
    "mlp of low rank": (lambda: mlp((6,), 3, (9,), rank=2), FLAT),
    "mlp of projected inputs": (lambda: mlp((6,), 3, (9,), projection=4), FLAT),
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
    inverse: Tensor = torch.linalg.inv(moment + floor * torch.eye(len(moment), dtype=torch.float64))
    return inverse


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
        return b.reshape(-1, b.shape[-1])


def matrix(layer: nn.Module, values: dict[str, Tensor]) -> Tensor:
    """Weight and bias as one matrix, out x width."""
    if isinstance(layer, nn.Embedding):
        return values["weight"].T
    parts = [values["weight"].flatten(1), *([values["bias"][:, None]] if "bias" in values else [])]
    return torch.cat(parts, dim=1)


def slowly(
    module: nn.Module,
    name: str,
    x: Tensor,
    y: Tensor,
    updates: dict[str, Tensor],
    fitting: Tensor,
    adaptive: bool = False,
) -> Tensor:
    """n x K scores: B^-1 G A^-1 formed for every record from its own backward pass, and its product with U."""
    module.eval()
    watched = Watched(module, name)
    both = [watched.vectors(x[i], y[i]) for i in fitting]
    padding = getattr(watched.layer, "padding_idx", None)
    a, b = torch.cat([a for a, _ in both]), torch.cat([b for _, b in both])
    if padding is not None:
        b = b * (a[:, padding] == 0)[:, None]
    left, right = slow_inverse(b.T @ b / len(b), DAMPING), slow_inverse(a.T @ a / len(a), DAMPING)
    scale = torch.outer(b.square().mean(0).sqrt(), a.square().mean(0).sqrt()) if adaptive else 1.0
    owned = [p for p, _ in module.named_parameters() if p.rpartition(".")[0] == name]
    short = {p: p.rpartition(".")[2] for p in owned}
    rows = []
    for g in naive(module, losses, x, y, owned):
        whole = matrix(watched.layer, {short[p]: g[p] for p in owned})
        norm = (left @ whole @ right * whole).sum().sqrt()
        u = [matrix(watched.layer, {short[p]: updates[p][k] for p in owned}) for k in range(2)]
        rows.append(torch.stack([(left @ whole @ right * one * scale).sum() / norm for one in u]))
    return torch.stack(rows)


@pytest.mark.parametrize(("streamed", "adaptive"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("name", MODELS)
def test_equal_to_whitened_gradients_formed_one_by_one(
    name: str, streamed: bool, adaptive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if streamed:
        monkeypatch.setattr(matched, "KEPT", 0)
        monkeypatch.setattr(ghost, "ROWS", 7)
    module, x, y, updates, fitting = world(name)
    prepared = matched.prepare(module, losses, x, y, fitting, DAMPING, adaptive=adaptive)
    found = matched.scores(matched.statistics(prepared, module, updates))
    assert prepared.whitened
    for column, layer in enumerate(prepared.layers):
        expected = slowly(module, layer, x, y, updates, fitting, adaptive)
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


def test_an_input_that_never_changes_is_whitened_once() -> None:
    """The first layer's A^-1 and h' A^-1 h hold for all rounds: a second model gives what a fresh start gives."""
    module, x, y, updates, fitting = world("linear behind another")
    prepared = matched.prepare(module, losses, x, y, fitting, DAMPING)
    assert set(prepared.inputs) == set(prepared.squares) == {"0"}
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    again = matched.prepare(module, losses, x, y, fitting, DAMPING)
    kept, fresh = (matched.statistics(one, module, updates) for one in (prepared, again))
    assert torch.allclose(kept.norm2, fresh.norm2, rtol=1e-12)
    assert torch.allclose(kept.inner, fresh.inner, rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_too_few_to_fit_is_the_plain_cosine_and_says_so(name: str) -> None:
    module, x, y, updates, _ = world(name)
    prepared = matched.prepare(module, losses, x, y, torch.arange(matched.FEWEST - 1), DAMPING)
    assert not prepared.whitened
    found = matched.statistics(prepared, module, updates)
    plain = ghost.statistics(module, losses, x, y, updates)
    columns = [plain.layers.index(layer) for layer in found.layers]
    assert torch.allclose(found.norm2, plain.norm2[:, columns], rtol=1e-9)
    assert torch.allclose(found.inner, plain.inner[:, columns], rtol=1e-9, atol=1e-9)
    assert torch.allclose(found.update2, plain.update2[columns], rtol=1e-9)


def test_few_vectors_are_inverted_by_woodbury() -> None:
    torch.manual_seed(0)
    few, probe = torch.randn(9, 40).double(), torch.randn(5, 40).double()
    expected = probe @ slow_inverse(few.T @ few / 9, 0.2)
    found = SecondMoment.of(few).inverse(0.2)
    assert isinstance(found, OfFew)
    assert torch.allclose(found(probe), expected, rtol=1e-9)


def test_many_positions_are_fitted_on_a_fair_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a record has many positions, part of the fitting records is enough, and each layer takes its own part."""
    module, x, y, updates, fitting = world("convolution", n=600)
    part = matched.prepare(module, losses, x, y, fitting, DAMPING, "layer")
    assert part.limits == {"layer": matched.Limit(196, 1)}
    monkeypatch.setattr(matched, "ENOUGH", 10**9)
    every = matched.prepare(module, losses, x, y, fitting, DAMPING, "layer")
    assert every.limits == {"layer": matched.Limit(len(fitting), 1)}
    a, b = (matched.scores(matched.statistics(one, module, updates))[:, 0, 0].numpy() for one in (every, part))
    assert not np.array_equal(a, b)
    assert np.corrcoef(a, b)[0, 1] > 0.95


def test_the_largest_linear_layer_is_the_default() -> None:
    assert matched.largest_linear(nn.Sequential(nn.Linear(6, 9), nn.Linear(9, 50), nn.Linear(50, 3))) == "1"
    picture = nn.Sequential(nn.Conv2d(64, 64, 3), nn.Flatten(), nn.Linear(64, 3))
    assert matched.largest_linear(picture) == "2"
    assert matched.largest_linear(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))) == "1"
    with pytest.raises(FedauditError, match="no linear"):
        matched.largest_linear(nn.Sequential(nn.LayerNorm(6)))


def test_an_unknown_layer_is_refused_with_the_known_ones() -> None:
    module, x, y, _, fitting = world("linear")
    with pytest.raises(FedauditError, match="laier"):
        matched.prepare(module, losses, x, y, fitting, DAMPING, "laier")


def test_a_grouped_convolution_is_left_out() -> None:
    module = Then(nn.Conv2d(4, 4, 3, groups=4))
    x = torch.randn(20, *IMAGE)
    module(x)
    prepared = matched.prepare(module, losses, x, torch.zeros(20).long(), torch.arange(20), DAMPING)
    assert prepared.layers == ("head",)


# ------------------------------------------------------------------ null and not null


class Federation:
    """One party's update on data without any structure: labels are drawn at random, as membership is."""

    def __init__(self, seed: int, known: int, member_is_in: bool) -> None:
        torch.manual_seed(seed)
        self.sets = {"member": 150, "evaluation": 400, "calibration": 400, "known": known}
        n = sum(self.sets.values())
        self.x, self.y = torch.rand(n, 40).lt(0.3).float(), torch.randint(0, 5, (n,))
        others = torch.rand(150, 40).lt(0.3).float(), torch.randint(0, 5, (150,))
        self.module = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 5))
        sent = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 5))
        sent.load_state_dict(self.module.state_dict())
        x, y = (self.x[:150], self.y[:150]) if member_is_in else others
        optimizer = torch.optim.SGD(sent.parameters(), 0.1)
        for batch in torch.split(torch.randperm(150), 30):
            optimizer.zero_grad()
            losses(sent(x[batch]), y[batch]).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        after = dict(sent.named_parameters())
        self.updates = {n: (p - after[n]).detach()[None] for n, p in self.module.named_parameters()}

    def block(self, everybody: bool) -> Block:
        n = len(self.x)
        fitting = torch.arange(n) if everybody else torch.arange(n - self.sets["known"], n)
        prepared = matched.prepare(self.module, losses, self.x, self.y, fitting, DAMPING, "0")
        found = matched.scores(matched.statistics(prepared, self.module, self.updates))[:, 0, 0]
        scores = matched.standardised(found, fitting).numpy()
        return Block(scores[:150], scores[150:550], scores[550:950])


@pytest.mark.parametrize("known", [50, 200, 1000])
@pytest.mark.parametrize("everybody", [False, True])
def test_null_an_update_without_the_candidates_is_at_chance(known: int, everybody: bool) -> None:
    blocks = [Federation(seed, known, member_is_in=False).block(everybody) for seed in range(20)]
    area, rate = auc(blocks), tpr_at_fpr(blocks, 0.1)
    assert number(area.low) < 0.5 < number(area.high)
    assert number(rate.low) < 0.1 < number(rate.high)
    # Thresholds and counts both vary: 400 of each in every world.
    assert abs(number(rate.realised_fpr) - 0.1) < 3 * (0.1 * 0.9 * 2 / 400 / len(blocks)) ** 0.5
    held = [number(one.low) < 0.5 < number(one.high) for one in (auc([block]) for block in blocks)]
    assert sum(held) >= 17  # of twenty intervals at 95 %: fewer would happen once in sixty times


def number(value: float | None) -> float:
    assert value is not None
    return value


def test_members_are_found_where_the_cosine_finds_fewer() -> None:
    blocks, plain = [], []
    for seed in range(3):
        world = Federation(seed, 400, member_is_in=True)
        blocks.append(world.block(everybody=False))
        ghosts = ghost.statistics(world.module, losses, world.x, world.y, world.updates)
        cosine = (ghosts.inner[:, 0, 0] / ghosts.norm2[:, 0].sqrt()).numpy()
        plain.append(Block(cosine[:150], cosine[150:550], cosine[550:950]))
    assert number(auc(blocks).value) > 0.9 > number(auc(plain).value)


def test_halfway_is_between_and_counters_stay() -> None:
    received = {"w": np.array([1.0, 2.0], np.float32), "batches": np.array(5)}
    sent = {"w": np.array([2.0, 4.0], np.float32), "batches": np.array(9)}
    found = matched.halfway(received, sent)
    assert found["w"].tolist() == [1.5, 3.0]
    assert found["w"].dtype == np.float32
    assert found["batches"] == 5


@pytest.mark.parametrize(("n", "expected"), [(75, 0.921), (150, 0.841), (600, 0.692)])
def test_known_answer_weights_per_member(n: int, expected: float) -> None:
    """Coloured gradients b a' of 15 x 20 weights, n of them summed: d'^2 = 300 / n, AUC = Phi(d' / sqrt 2) at most."""
    torch.manual_seed(n)
    colours = [torch.randn(dim, dim).double() / dim**0.5 + torch.diag(torch.rand(dim) + 0.1) for dim in (20, 15)]

    def drawn(count: int) -> Positions:
        return Positions(*(torch.randn(count, 1, len(c)).double() @ c.double() for c in colours))

    areas = []
    for _ in range(60):
        members, others, known = drawn(n), drawn(n), drawn(4000)
        update = (members.b[:, 0].T @ members.a[:, 0])[None]
        inputs, outputs = (SecondMoment.of(v[:, 0]).side(1e-6) for v in (known.a, known.b))
        by = Whitening.of(inputs, outputs, update, adaptive=False)
        inside, outside = ((p[1][:, 0] / p[0].sqrt()).numpy() for p in (s.statistics(by) for s in (members, others)))
        areas.append(auc([Block(inside, outside, outside)]).value)
    spread = float(np.std([number(a) for a in areas])) / 60**0.5
    found = float(np.mean([number(a) for a in areas]))
    assert (
        expected - 0.02 - 3 * spread < found < expected + 3 * spread
    )  # norms vary from record to record: a little less
