"""Unmixing against its slow twin: every record's gradient by a backward pass of its own, seen through plain inverses,
and the normal equations solved plainly."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedaudit.adversary.signals import ghost, matched, unmix
from fedaudit.adversary.signals.ghost import naive
from fedaudit.adversary.signals.matched import halfway
from fedaudit.config.schema import parse
from fedaudit.data import load
from fedaudit.errors import FedauditError
from fedaudit.learn.tasks import Training, build_task
from fedaudit.stats import Block, auc
from tests.adversary.signals.test_ghost import Then, losses
from tests.adversary.signals.test_matched import MODELS, Watched, matrix, slow_inverse, world

GIVEN: dict[str, Any] = {"damping": 0.7, "ridge": 0.2, "sketch": 1000}


def of(updates: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: both[0] for name, both in updates.items()}


def roots_of(values: Tensor, adaptive: bool) -> tuple[Tensor, Tensor]:
    """What templates are divided by, and the inverse of the damped moment of what is left."""
    spread = values.square().mean(0).sqrt()
    spread = spread + 0.01 * spread.mean() if adaptive else torch.ones_like(spread)
    scaled = values / spread
    return spread, slow_inverse(scaled.T @ scaled / len(scaled), GIVEN["damping"])


def slowly(blocks: list[tuple[Tensor, Tensor]], ridge: float) -> tuple[Tensor, Tensor, float]:
    """Blocks of templates and updates, whitened by explicit inverse roots. Coefficients, scores, R^2. Each
    score by leaving the record out: its gradient whitened with those of all others."""
    f = torch.cat([g / u.square().mean().sqrt() for g, u in blocks], dim=1)
    u = torch.cat([u / u.square().mean().sqrt() for _, u in blocks])
    floor = ridge * f.square().sum(1).mean()
    a = torch.linalg.solve(f @ f.T + floor * torch.eye(len(f)).double(), f @ u)
    explained = 1 - (u - a @ f).square().sum() / u.square().sum()
    score = []
    for i in range(len(f)):
        others = torch.cat([f[:i], f[i + 1 :]])
        small = others @ others.T + floor * torch.eye(len(others)).double()
        cleared = (f[i] - torch.linalg.solve(small, others @ f[i]) @ others) / floor  # (others'others + floor)^-1 f_i
        score.append(cleared @ u / (cleared @ f[i]).sqrt())
    return a, torch.stack(score), float(explained)


def root(inverse: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(inverse)
    found: Tensor = vectors * values.clamp_min(0).sqrt() @ vectors.T
    return found


def layer_by_layer(
    module: nn.Module, x: Tensor, y: Tensor, updates: Mapping[str, Tensor], adaptive: bool
) -> list[tuple[Tensor, Tensor]]:
    """Of linear, convolutional and embedding layers."""
    module.eval()
    found = []
    for name, names in ghost.trained_layers(module).items():
        watched = Watched(module, name)
        both = [watched.vectors(x[i], y[i]) for i in range(len(x))]
        a, b = torch.cat([a for a, _ in both]), torch.cat([b for _, b in both])
        padding = getattr(watched.layer, "padding_idx", None)
        if padding is not None:
            b = b * (a[:, padding] == 0)[:, None]
        (outer, left), (inner, right) = roots_of(b, adaptive), roots_of(a, adaptive)
        short = {full: full.rpartition(".")[2] for full in names}
        seen = [matrix(watched.layer, {short[p]: g[p] for p in names}) for g in naive(module, losses, x, y, names)]
        seen = [root(left) @ (g / torch.outer(outer, inner)) @ root(right) for g in seen]
        u = root(left) @ matrix(watched.layer, {short[p]: updates[p] for p in names}) @ root(right)
        found.append((torch.stack(seen).flatten(1), u.flatten()))
    return found


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_equal_to_gradients_formed_one_by_one_and_plain_normal_equations(
    name: str, adaptive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ghost, "ROWS", 7)
    module, x, y, made, _ = world(name)
    setup = unmix.prepare(module, losses, x, y, adaptive=adaptive, **GIVEN)
    found = unmix.unmix(setup, module, of(made))
    a, score, explained = slowly(layer_by_layer(module, x, y, of(made), adaptive), GIVEN["ridge"])
    assert torch.allclose(found.coefficient, a, rtol=1e-6, atol=1e-9)
    assert torch.allclose(found.score, score, rtol=1e-6, atol=1e-7)
    assert found.explained == pytest.approx(explained, abs=1e-9)
    assert found.error == 0.0


class Mixed(nn.Module):
    """A bare parameter, a normalisation and a recurrent layer: no rule, a short vector, and no rule again."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(6) + 0.5)
        self.norm = nn.LayerNorm(6)
        self.recurrent = nn.RNN(6, 4, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.recurrent(self.norm(x * self.scale))[0][:, -1])
        return out


def test_gradients_without_a_rule_are_taken_one_by_one() -> None:
    """Every parameter by itself: vectors with the second moment of their entries, matrices with those of both sides."""
    torch.manual_seed(0)
    module = Mixed().double()
    x, y = torch.randn(23, 5, 6).double(), torch.randint(0, 3, (23,))
    made = {name: torch.randn_like(p) for name, p in module.named_parameters()}
    setup = unmix.prepare(module, losses, x, y, adaptive=True, **GIVEN)
    assert set(setup.plan.slow) == {"", "recurrent"}
    assert setup.vectors == {"norm"}
    every = list(naive(module, losses, x, y, list(made)))

    def whole(*names: str) -> tuple[Tensor, Tensor]:
        """One block: the gradients side by side, whitened as one vector."""
        g = torch.stack([torch.cat([one[name].flatten() for name in names]) for one in every])
        u = torch.cat([made[name].flatten() for name in names])
        spread, inverse = roots_of(g, True)
        return g / spread @ root(inverse), root(inverse) @ u

    def two_sided(name: str) -> tuple[Tensor, Tensor]:
        g = torch.stack([one[name] for one in every])
        across = g.flatten(0, 1)
        outer, left = roots_of(g.mT.flatten(0, 1), True)
        inner, right = roots_of(across / across.square().mean().sqrt(), True)
        seen = root(left) @ (g / torch.outer(outer, inner)) @ root(right)
        return seen.flatten(1), (root(left) @ made[name] @ root(right)).flatten()

    head = Watched(module.eval(), "head")
    both = [head.vectors(x[i], y[i]) for i in range(len(x))]
    outer, left = roots_of(torch.cat([b for _, b in both]), True)
    inner, right = roots_of(torch.cat([a for a, _ in both]), True)
    seen = [matrix(head.layer, {"weight": g["head.weight"], "bias": g["head.bias"]}) for g in every]
    seen = [root(left) @ (g / torch.outer(outer, inner)) @ root(right) for g in seen]
    u = root(left) @ matrix(head.layer, {"weight": made["head.weight"], "bias": made["head.bias"]}) @ root(right)
    blocks = [
        (torch.stack(seen).flatten(1), u.flatten()),
        whole("norm.weight", "norm.bias"),
        whole("scale"),
        *(two_sided(f"recurrent.weight_{part}_l0") for part in ("ih", "hh")),
        *(whole(f"recurrent.bias_{part}_l0") for part in ("ih", "hh")),
    ]
    a, score, explained = slowly(blocks, GIVEN["ridge"])
    found = unmix.unmix(setup, module, made)
    assert torch.allclose(found.coefficient, a, rtol=1e-6, atol=1e-9)
    assert torch.allclose(found.score, score, rtol=1e-6, atol=1e-7)
    assert found.explained == pytest.approx(explained, abs=1e-9)


@pytest.mark.parametrize("bias", [True, False])
def test_gradients_of_an_lstm_are_those_of_a_backward_pass_for_each_record(
    bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(6, 4, num_layers=2, batch_first=True, bias=bias)
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.lstm(x)[0][:, -1])
            return out

    torch.manual_seed(0)
    module = Recurrent().double().eval()
    x, y = torch.randn(23, 5, 6).double(), torch.randint(0, 3, (23,))
    monkeypatch.setattr(ghost, "ROWS", 7)
    setup = unmix.prepare(module, losses, x, y, **GIVEN)
    assert setup.unrolled == {"lstm"}
    found = unmix._unrolled(setup, module)
    assert set(found) == {name for name, _ in module.named_parameters() if name.startswith("lstm.")}
    for i, one in enumerate(naive(module, losses, x, y, list(found))):
        for name, gradient in one.items():
            assert torch.allclose(found[name][i], gradient, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("name", ["linear, few positions", "convolution", "embedding"])
def test_a_sketch_is_the_same_map_of_every_gradient_and_of_the_update(name: str) -> None:
    module, x, y, made, _ = world(name)
    setup = unmix.prepare(module, losses, x, y, layer="layer", **GIVEN | {"sketch": 5})
    module.eval()
    ((out, into),) = unmix._maps_of_formed(setup, module).values()
    high, wide = len(out.templates), len(into.templates)
    assert (high, wide) == unmix.kept(out.templates.shape[1], into.templates.shape[1], 5)
    assert high * wide < out.templates.shape[1] * into.templates.shape[1]
    layer = module.get_submodule("layer")
    names = setup.plan.layers["layer"]
    short = {full: full.rpartition(".")[2] for full in names}

    def seen(values: Mapping[str, Tensor], by: str) -> Tensor:
        whole = matrix(layer, {short[full]: values[full] for full in names})
        found: Tensor = (getattr(out, by) @ whole @ getattr(into, by).T).flatten()
        return found

    f = torch.stack([seen(g, "templates") for g in naive(module, losses, x, y, names)])
    a, score, _ = slowly([(f, seen(of(made), "update"))], GIVEN["ridge"])
    found = unmix.unmix(setup, module, of(made))
    assert torch.allclose(found.coefficient, a, rtol=1e-6, atol=1e-9)
    assert torch.allclose(found.score, score, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("out", "width", "found"),
    [
        (288, 8, (288, 8)),  # a factor of LoRA: whole
        (16, 145, (16, 145)),  # a small convolution
        (64, 577, (64, 100)),
        (577, 64, (100, 64)),
        (96, 495, (80, 80)),
        (80, 80, (80, 80)),
        (1, 50000, (1, 6400)),
    ],
)
def test_a_narrow_side_leaves_its_room_to_the_other(out: int, width: int, found: tuple[int, int]) -> None:
    assert unmix.kept(out, width, 80) == found


def test_many_candidates_are_solved_step_by_step_and_the_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x, y, made, _ = world("linear behind another", n=120)
    setup = unmix.prepare(module, losses, x, y, **GIVEN)
    direct = unmix.unmix(setup, module, of(made))
    monkeypatch.setattr(unmix, "DIRECT", 50)
    iterated = unmix.unmix(setup, module, of(made))
    assert 0 < iterated.error <= unmix.CLOSE
    assert torch.allclose(iterated.coefficient, direct.coefficient, atol=1e-2 * float(direct.coefficient.std()))
    monkeypatch.setattr(unmix, "STEPS", 1)
    assert unmix.unmix(setup, module, of(made)).error > unmix.CLOSE


def test_the_order_of_the_rows_does_not_matter() -> None:
    module, x, y, made, _ = world("convolution", n=40)
    order = torch.randperm(40)
    plain, mixed = (
        unmix.unmix(unmix.prepare(module, losses, *rows, adaptive=True, **GIVEN), module, of(made)).score
        for rows in ((x, y), (x[order], y[order]))
    )
    assert torch.allclose(plain[order], mixed, rtol=1e-6, atol=1e-8)


def test_an_infinite_ridge_is_the_matched_filter() -> None:
    """Of one layer: one record at a time, with the same whitening."""
    module, x, y, made, _ = world("linear behind another")
    setup = unmix.prepare(module, losses, x, y, layer="0", **GIVEN | {"ridge": 1e6})
    found = unmix.unmix(setup, module, of(made)).score
    prepared = matched.prepare(module, losses, x, y, torch.arange(len(x)), GIVEN["damping"], "0")
    filtered = matched.scores(matched.statistics(prepared, module, made))[:, 0, 0]
    assert torch.corrcoef(torch.stack([found, filtered]))[0, 1] > 1 - 1e-6


def test_what_did_not_move_says_nothing() -> None:
    module, x, y, made, _ = world("linear behind another")
    setup = unmix.prepare(module, losses, x, y, **GIVEN)
    still = {name: torch.zeros_like(u) for name, u in of(made).items()}
    nothing = unmix.unmix(setup, module, still)
    assert not nothing.score.any()
    assert nothing.explained == 0.0
    first = {name: u if name.startswith("0.") else torch.zeros_like(u) for name, u in of(made).items()}
    alone = unmix.prepare(module, losses, x, y, layer="0", **GIVEN)
    assert torch.allclose(unmix.unmix(setup, module, first).score, unmix.unmix(alone, module, first).score)
    diverged = {name: u * torch.nan for name, u in of(made).items()}
    assert unmix.unmix(setup, module, diverged).score.isnan().all()


def test_a_layer_that_is_not_trained_is_refused() -> None:
    module, x, y, *_ = world("linear")
    module.layer.requires_grad_(False)
    with pytest.raises(FedauditError, match="trains no layer 'layer'"):
        unmix.prepare(module, losses, x, y, layer="layer", **GIVEN)
    assert "layer" not in unmix.prepare(module, losses, x, y, **GIVEN).plan.layers


@pytest.mark.parametrize("members", [0, 60])
def test_members_are_found_and_nothing_where_there_is_nothing(members: int) -> None:
    """One step of plain SGD on sixty records: those that are asked about, or sixty others. Twenty seeds."""
    found = []
    for seed in range(20):
        torch.manual_seed(seed)
        module = Then(nn.Linear(12, 40)).double()
        x, y = torch.randn(240, 12).double(), torch.randint(0, 3, (240,))
        trained = slice(0, 60) if members else slice(180, 240)
        total = losses(module(x[trained]), y[trained]).sum()
        gradients = torch.autograd.grad(total, list(module.parameters()))
        made = {name: g for (name, _), g in zip(module.named_parameters(), gradients, strict=True)}
        setup = unmix.prepare(module, losses, x[:180], y[:180], damping=1.0, ridge=0.1, sketch=80)
        score = unmix.unmix(setup, module, made).score.numpy()
        found.append(auc([Block(score[:60], score[60:120], score[120:180])]).value)
    mean, error = torch.tensor(found).mean(), torch.tensor(found).std() / 20**0.5
    assert mean > 0.95 if members else abs(mean - 0.5) < 3 * error


@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize(("optimizer", "lr"), [("adam", 3e-3), ("sgd", 0.1)])
@pytest.mark.parametrize("seed", [0, 1])
def test_whether_a_party_uses_adam_is_seen_from_its_update(model: str, optimizer: str, lr: float, seed: int) -> None:
    digits = load(parse({"data": {"name": "digits", "limit": 200}}).data)
    rows = replace(digits.records, x=digits.records.x.reshape(-1, 1, 8, 8))
    task = build_task(model, (1, 8, 8), digits.classes, {"hidden": (32,)} if model == "mlp" else {})
    received, rng = task.initial(seed), np.random.default_rng(seed)
    sent = task.train(received, rows.take(np.arange(100)), Training(optimizer, lr, 1, 16), rng).state
    module = task.fresh(halfway(received, sent))
    made = {name: torch.from_numpy(received[name] - sent[name]) for name, _ in module.named_parameters()}
    x, y = torch.from_numpy(rows.x), torch.from_numpy(rows.y)
    setup = unmix.prepare(module, task.losses, x, y, damping=1.0, ridge=0.1, sketch=80)
    assert unmix.uses_adam(setup, module, made) is (optimizer == "adam")


def test_a_wide_side_is_summed_up_before_it_is_whitened() -> None:
    """A table of 12,480 positions or 60,000 words asks for no matrix of that size, and members are still found."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(60_000, 8), nn.Flatten(), nn.Linear(8 * 1600, 4))
    x, y = torch.randint(0, 60_000, (60, 1600)), torch.arange(60) % 4
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    torch.autograd.backward(nn.functional.cross_entropy(module(x[:30]), y[:30]))
    optimizer.step()
    update = {name: before[name] - p.detach() for name, p in module.named_parameters()}
    module.load_state_dict(before)
    setup = unmix.prepare(module, losses, x, y, damping=1.0, ridge=0.1, sketch=80)
    largest: list[int] = []
    real = torch.linalg.cholesky

    def counted(matrix: Tensor) -> Tensor:
        largest.append(len(matrix))
        return torch.as_tensor(real(matrix))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.linalg, "cholesky", counted)
        score = unmix.unmix(setup, module, update).score
    assert max(largest) <= unmix.SKETCHED
    assert float((score[:30, None] > score[None, 30:]).float().mean()) > 0.9
