"""Signals from outputs, against their definitions."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from torch import nn

from fedaudit.adversary.signals import SignalTrial
from fedaudit.adversary.signals.outputs import MERLIN_COPIES, MERLIN_SIGMA, SIGNALS, from_outputs
from fedaudit.adversary.vantage import View
from fedaudit.errors import FedauditError
from fedaudit.learn.tasks import TorchTask
from fedaudit.types import Floats, Records, State
from tests.views import one_model, signals


def view(task: TorchTask, state: State, round: int = 1) -> View:
    return one_model(task, state, round=round)


def records(n: int, classes: int) -> Records:
    rng = np.random.default_rng(3)
    y = rng.integers(0, classes, n) if classes else rng.normal(size=n)
    return Records(rng.normal(size=(n, 6)), y, np.arange(n).astype(str))


def test_signals_equal_their_definitions() -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(0, 3, (50, 7)), rng.integers(0, 7, 50)
    found = from_outputs(z, y, ["logit", "loss", "confidence"])
    p = softmax(z, axis=1)[np.arange(50), y]
    assert found["confidence"] == pytest.approx(p, abs=1e-12)
    assert found["loss"] == pytest.approx(-log_softmax(z, axis=1)[np.arange(50), y], abs=1e-12)
    assert found["logit"] == pytest.approx(np.log(p / (1 - p)), abs=1e-9)


def test_T23_confident_records_do_not_tie() -> None:
    """In float32 these five losses are all exactly 0; here they keep their order."""
    z = np.zeros((5, 10), np.float32)
    z[:, 3] = [20, 30, 40, 50, 60]
    loss = from_outputs(z.astype(np.float64), np.full(5, 3), ["loss"])["loss"]
    assert np.all(np.diff(loss) < 0)
    assert np.all(loss > 0)


def test_modified_entropy_equals_its_definition() -> None:
    rng = np.random.default_rng(1)
    z, y = rng.normal(0, 3, (200, 7)), rng.integers(0, 7, 200)
    p, rows = softmax(z, axis=1), np.arange(200)
    others = p * np.log(1 - p)
    others[rows, y] = 0
    expected = -(1 - p[rows, y]) * np.log(p[rows, y]) - others.sum(axis=1)
    assert from_outputs(z, y, ["modified-entropy"])["modified-entropy"] == pytest.approx(expected, rel=1e-9)


def test_T23_sure_answers_right_or_wrong_stay_finite_and_in_order() -> None:
    z = np.zeros((6, 4))
    z[:3, 0] = [40, 80, 300]  # right and surer
    z[3:, 1] = [40, 80, 300]  # wrong and surer
    found = from_outputs(z, np.zeros(6, int), ["modified-entropy"])["modified-entropy"]
    assert np.isfinite(found).all()
    assert np.all(np.diff(found[:3]) < 0)
    assert np.all(np.diff(found[3:]) > 0)


# ------------------------------------------------------------------ the last layer's gradient


def autograd_norms(model: nn.Module, x: Floats, y: Any, classes: int) -> list[float]:
    """One backward pass for each record."""
    layer = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
    loss = nn.CrossEntropyLoss() if classes else nn.MSELoss()
    norms = []
    for i in range(len(x)):
        model.zero_grad()
        out = model(torch.from_numpy(x[i : i + 1]))
        loss(out if classes else out.squeeze(-1), torch.from_numpy(y[i : i + 1])).backward()
        gradients = [p.grad.flatten() for p in layer.parameters() if p.grad is not None]
        norms.append(float(torch.cat(gradients).norm()))
    return norms


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("classes", [5, 2, 0])
def test_gradient_norm_equals_autograd(classes: int, bias: bool) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, max(classes, 1), bias=bias)]
    model = nn.Sequential(*layers).double()
    task = TorchTask(lambda: model, classes)
    rows = records(30, classes)
    found = signals(["gradient-norm", "loss"], view(task, task.initial(0)), rows)
    assert found["gradient-norm"] == pytest.approx(autograd_norms(model, rows.x, rows.y, classes), abs=1e-10)
    assert found["loss"] == pytest.approx(signals(["loss"], view(task, task.initial(0)), rows)["loss"], abs=0)


def test_all_output_signals_come_from_one_forward_pass() -> None:
    passes = 0

    class Counting(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            nonlocal passes
            passes += 1
            return super().forward(x)

    task = TorchTask(lambda: Counting(6, 3).double(), 3)
    assert set(signals(SIGNALS, view(task, task.initial(0)), records(20, 3))) == set(SIGNALS)
    assert passes == 1


class Scaled(nn.Module):
    """Does not end in its linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = 2 * self.layer(x.float())
        return out


def test_a_model_that_does_not_end_in_a_linear_layer_has_no_gradient_norm() -> None:
    task = TorchTask(Scaled, 3)
    trial = SignalTrial(task, task.initial(0), records(5, 3))
    reason = trial.why_not(["gradient-norm"])
    assert reason is not None
    assert "does not end in a linear layer" in reason
    assert trial.why_not(["loss"]) is None


# ------------------------------------------------------------------ a class at every position


class Sequence(nn.Module):
    """Each position sees itself and the one before it; the last layer is given positions, or rows that hold them."""

    def __init__(self, bias: bool = True, rows: bool = False) -> None:
        super().__init__()
        self.embedding, self.last, self.rows = nn.Embedding(5, 6), nn.Linear(6, 5, bias=bias), rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self.embedding(x)
        hidden = torch.tanh(seen + seen.roll(1, 1))
        out: torch.Tensor = self.last(hidden.flatten(0, 1)).view(*x.shape, -1) if self.rows else self.last(hidden)
        return out


def text(n: int = 23, positions: int = 7) -> Records:
    windows = np.random.default_rng(5).integers(0, 5, (n, positions + 1))
    return Records(windows[:, :-1], windows[:, 1:], np.arange(n).astype(str))


def test_signals_of_positions_are_brought_together() -> None:
    rng, rows = np.random.default_rng(2), text()
    z = rng.normal(0, 3, (23, 7, 5))
    found = from_outputs(z, rows.y, ["logit", "loss", "confidence", "modified-entropy"])
    each = [from_outputs(z[:, s], rows.y[:, s], ["logit", "loss", "confidence", "modified-entropy"]) for s in range(7)]
    assert found["loss"] == pytest.approx(sum(at["loss"] for at in each), rel=1e-12)
    for name in ("logit", "modified-entropy"):
        assert found[name] == pytest.approx(np.mean([at[name] for at in each], axis=0), rel=1e-9)
    product = np.prod([at["confidence"] for at in each], axis=0)
    assert found["confidence"] == pytest.approx(product ** (1 / 7), rel=1e-12)


@pytest.mark.parametrize("rows_of_its_own", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_the_gradient_of_a_text_is_that_of_the_sum_over_its_positions(bias: bool, rows_of_its_own: bool) -> None:
    torch.manual_seed(0)
    model = Sequence(bias, rows_of_its_own).double()
    task, rows = TorchTask(lambda: model, 5), text()
    found = signals(["gradient-norm", "loss"], view(task, task.initial(0)), rows)
    norms, losses = [], []
    for i in range(len(rows)):
        model.zero_grad()
        z = model(torch.from_numpy(rows.x[i : i + 1]))[0]
        loss = nn.functional.cross_entropy(z, torch.from_numpy(rows.y[i]), reduction="sum")
        torch.autograd.backward(loss)
        gradients = [p.grad.flatten() for p in model.last.parameters() if p.grad is not None]
        norms.append(float(torch.cat(gradients).norm()))
        losses.append(float(loss.detach()))
    assert found["gradient-norm"] == pytest.approx(norms, rel=1e-10)
    assert found["loss"] == pytest.approx(losses, rel=1e-10)


def test_answers_at_positions_are_held_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    task, rows = TorchTask(lambda: Sequence().double(), 5), text()
    whole = signals(SIGNALS, view(task, task.initial(0)), rows)
    asked: list[int] = []
    last_layer = TorchTask.last_layer

    def watched(self: TorchTask, state: State, x: Any) -> tuple[Floats, Floats]:
        asked.append(len(x))
        return last_layer(self, state, x)

    monkeypatch.setattr(TorchTask, "last_layer", watched)
    monkeypatch.setattr("fedaudit.adversary.signals.outputs.VALUES", 5 * 7 * 10)
    in_parts = signals(SIGNALS, view(task, task.initial(0)), rows)
    assert asked == [10, 10, 3]
    for name, values in whole.items():
        assert in_parts[name] == pytest.approx(values, rel=1e-12)


def test_tokens_bear_no_noise() -> None:
    task, rows = TorchTask(Sequence, 5), text()
    trial = SignalTrial(task, task.initial(0), rows)
    assert "tokens" in str(trial.why_not(["loss", "merlin"]))
    assert trial.why_not(["loss", "gradient-norm", "gradient-cosine"]) is None


# ------------------------------------------------------------------ regression


def test_a_regression_has_a_squared_error_and_no_logit() -> None:
    task = TorchTask(lambda: nn.Linear(6, 1).double(), 0)
    rows, state = records(9, 0), task.initial(0)
    predicted = rows.x @ state["weight"][0] + state["bias"][0]
    assert signals(["loss"], view(task, state), rows)["loss"] == pytest.approx((predicted - rows.y) ** 2, rel=1e-12)
    with pytest.raises(FedauditError, match="regression"):
        signals(["logit"], view(task, state), rows)


# ------------------------------------------------------------------ merlin


def test_merlin_counts_how_often_noise_makes_the_loss_rise() -> None:
    torch.manual_seed(0)
    task = TorchTask(lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), 3)
    given = records(40, 3)
    rows = Records(given.x.astype(np.float32), given.y, given.id)
    state = task.initial(0)
    found = signals(["merlin"], view(task, state, round=7), rows)["merlin"]
    rng = np.random.default_rng([7, MERLIN_COPIES])
    before = signals(["loss"], view(task, state), rows)["loss"]
    rises = np.zeros(40)
    for _ in range(100):
        noisy = rows.x + np.float32(MERLIN_SIGMA) * rng.standard_normal((40, 6), dtype=np.float32)
        rises += signals(["loss"], view(task, state), Records(noisy, rows.y, rows.id))["loss"] > before
    assert np.array_equal(found, rises / 100)
    assert 0 < found.std() < 0.5
    assert np.array_equal(found, signals(["merlin"], view(task, state, round=7), rows)["merlin"])


def test_merlin_finds_the_dip() -> None:
    """A record at the minimum of its loss: every noisy copy is worse."""

    class Dip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centre = nn.Parameter(torch.zeros(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            distance = ((x - self.centre) ** 2).sum(1)
            return torch.stack([-distance, distance], 1)

    task = TorchTask(Dip, 2)
    rows = Records(np.array([[0.0] * 6, [1.0] * 6], np.float32), np.zeros(2, np.int64), np.array(["a", "b"]))
    found = signals(["merlin"], view(task, task.initial(0)), rows)["merlin"]
    assert found[0] == 1.0
    assert 0.2 < found[1] < 0.8
