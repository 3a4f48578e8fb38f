"""Outputs, training, and models that are refused before training."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.adversary.signals import SignalTrial
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.learn.tasks import TorchTask, Training, build_task


def records(n: int = 50) -> Any:
    rng = np.random.default_rng(0)
    return dataset("a", rng.normal(size=(n, 4)), rng.integers(0, 3, n)).records


class NoisyInEvaluation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x) + torch.rand(3)
        return out


class AnswersNaN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x) * float("nan")
        return out


def test_outputs_equal_the_module_in_evaluation_mode() -> None:
    model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 3))
    task = TorchTask(lambda: model, 3)
    state = {key: value.numpy().copy() for key, value in model.state_dict().items()}
    model.train()
    found = task.outputs(state, records().x)
    with torch.no_grad():
        expected = model.eval()(torch.from_numpy(records().x)).numpy()
    assert found == pytest.approx(expected, abs=1e-6)
    assert found.dtype == np.float64


def test_training_learns_and_leaves_the_given_state_alone() -> None:
    task = build_task("mlp", (4,), 3, {"hidden": (32,)})
    state = task.initial(0)
    before = {key: value.copy() for key, value in state.items()}
    trained = task.train(state, records(), Training(epochs=200, lr=1e-2), np.random.default_rng(0))
    assert (task.outputs(trained.state, records().x).argmax(1) == records().y).mean() > 0.95
    assert all(np.array_equal(state[key], before[key]) for key in state)
    assert trained.examples == 50
    assert trained.epoch_seconds > 0


def test_initial_depends_on_the_seed_alone() -> None:
    task = build_task("mlp", (4,), 3, {})
    torch.manual_seed(1)
    first = task.initial(7)
    torch.manual_seed(2)
    assert all(np.array_equal(first[key], value) for key, value in task.initial(7).items())
    assert not np.array_equal(first["1.weight"], task.initial(8)["1.weight"])


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (NoisyInEvaluation, "model-random"),
        (AnswersNaN, "model-nan"),
        (lambda: nn.Linear(4, 2), "model-outputs"),
        (lambda: nn.Linear(9, 3), "model-data"),
        (lambda: nn.Linear(4, 3, dtype=torch.bfloat16), "model-state"),
    ],
)
def test_B9_unfit_models_are_refused(build: Any, code: str) -> None:
    task = TorchTask(build, 3)
    with pytest.raises(FedauditError) as caught:
        task.check(task.initial(0), records())
    assert caught.value.code == code


def test_own_model_by_name() -> None:
    task = build_task("fedaudit.learn.models.mlp:mlp", (4,), 3, {"hidden": [5]})
    assert task.initial(0)["1.weight"].shape == (5, 4)
    with pytest.raises(FedauditError, match="unknown-model"):
        build_task("mpl", (4,), 3, {})
    with pytest.raises(FedauditError, match="model-import"):
        build_task("fedaudit.learn.models.mlp:nothing", (4,), 3, {})


def one_argument(shape: Any) -> nn.Module:
    return nn.Linear(4, 3)


def nothing(shape: Any, classes: int) -> None:
    pass


def raises(shape: Any, classes: int) -> nn.Module:
    raise ValueError("no such width")


class Forgetful(nn.Module):
    def __init__(self, shape: Any, classes: int):
        super().__init__()
        self.layer = nn.Linear(4, classes)

    def forward(self, x: torch.Tensor) -> Any:
        return self.lair(x)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("one_argument", r"one_argument cannot be called with \(input_shape, classes, \*\*options\)"),
        ("nothing", "returned NoneType"),
        ("raises", "ValueError: no such width"),
        ("Forgetful", r"model-data.*AttributeError in test_tasks\.py:"),
    ],
)
def test_own_models_that_fail_are_refused_with_the_reason(factory: str, says: str) -> None:
    def build_and_check() -> None:
        task = build_task(f"tests.learn.test_tasks:{factory}", (4,), 3, {})
        task.check(task.initial(0), records())

    with pytest.raises(FedauditError, match=says):
        build_and_check()


def test_a_regression_has_one_value_a_record() -> None:
    for width in (1, 2):
        task = TorchTask(lambda width=width: nn.Linear(4, width), 0)  # type: ignore[misc]
        if width == 1:
            task.check(task.initial(0), records())
            continue
        with pytest.raises(FedauditError, match="one value is needed"):
            task.check(task.initial(0), records())


def test_a_class_at_every_position_needs_an_answer_at_every_position() -> None:
    windows = np.random.default_rng(0).integers(0, 5, (20, 8))
    rows = dataset("text", windows[:, :-1], windows[:, 1:], tokens=True).records
    shapes = {"(7, 5) for each record": (5, 7), "5 classes are needed at each of 7 positions": (5,)}
    for says, shape in shapes.items():
        module = nn.Sequential(nn.Embedding(5, int(np.prod(shape))), Reduced(shape))
        task = TorchTask(lambda module=module: module, 5)  # type: ignore[misc]
        with pytest.raises(FedauditError, match=re.escape(says)) as caught:
            task.check(task.initial(0), rows)
        assert caught.value.code == "model-outputs"


class Reduced(nn.Module):
    """One answer of a given shape, whatever the positions."""

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.shape = shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1).reshape(len(x), *self.shape)


class Twice(nn.Module):
    """The last layer is also the one before it, as itself or as a twin with the same weight."""

    def __init__(self, twin: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 10), nn.Linear(10, 10)
        self.before = nn.Linear(10, 10) if twin else self.last
        self.before.weight = self.last.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(torch.tanh(self.before(torch.tanh(self.first(x.flatten(1))))))
        return out


@pytest.mark.parametrize("twin", [True, False])
@pytest.mark.parametrize("signal", ["gradient-norm", "attribute-gradient-norm"])
def test_a_last_layer_that_is_used_twice_has_no_gradient_from_one_pass(twin: bool, signal: str) -> None:
    task = TorchTask(lambda: Twice(twin), 10)
    assert "more than once" in str(SignalTrial(task, task.initial(0), records()).why_not([signal]))


def test_frozen_layers_keep_their_weights_and_the_others_learn() -> None:
    task = build_task("mlp", (5,), 3, {"hidden": (8, 6)}, frozen=2)
    rng = np.random.default_rng(0)
    rows = dataset("a", rng.normal(size=(64, 5)), rng.integers(0, 3, 64)).records
    before = task.initial(0)
    after = task.train(before, rows, Training(), rng).state
    moved = {name: bool(np.abs(after[name] - before[name]).max() > 0) for name in before}
    assert moved == {
        "1.weight": False, "1.bias": False, "3.weight": False, "3.bias": False, "5.weight": True, "5.bias": True
    }  # fmt: skip
    plain = build_task("mlp", (5,), 3, {"hidden": (8, 6)}).initial(0)
    assert all(np.array_equal(plain[name], before[name]) for name in plain)


def test_a_model_of_which_nothing_would_be_trained_is_refused() -> None:
    with pytest.raises(FedauditError, match=r"the model has 3 layers.*Freeze at most 2"):
        build_task("mlp", (5,), 3, {"hidden": (8, 6)}, frozen=3)


def test_asking_a_model_that_is_loaded_once_gives_its_outputs() -> None:
    """In evaluation mode, and whatever state was looked at since."""

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))

    task, x = TorchTask(build, 3), np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    one, other = task.initial(0), task.initial(1)
    ask = task.asking(one)
    expected = task.outputs(one, x)
    assert np.array_equal(ask(x), expected)
    assert not np.array_equal(task.outputs(other, x), expected)
    assert np.array_equal(ask(x), expected)
