"""One way to give a model, in Python as in a configuration: a module, a class, a factory, or its name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.data.set_aside import set_aside
from fedaudit.errors import FedauditError
from fedaudit.integrations.options import Model, as_task, checked
from fedaudit.integrations.plain import matched, numpy_state
from fedaudit.learn.tasks import TorchTask
from tests.learn.test_given import Two, split


class Plain(nn.Linear):
    def __init__(self) -> None:
        super().__init__(5, 4)


def factory(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Linear(input_shape[0], classes)


HERE = "tests.integrations.test_given_models"


@pytest.mark.parametrize(
    "given", [Plain(), Plain, factory, lambda: nn.Linear(5, 4), f"{HERE}:Plain", f"{HERE}:factory"]
)
def test_whatever_is_given_becomes_the_same_kind_of_task(given: Model) -> None:
    task = as_task(given, game())
    assert (task.classes, sorted(task.initial(0))) == (4, ["bias", "weight"])


def game() -> Any:
    rng = np.random.default_rng(0)
    return set_aside(rng.random((200, 5), np.float32), np.arange(200) % 4)[1]


def test_a_hook_is_given_beside_any_of_them() -> None:
    asked: list[Callable[..., Any] | str | nn.Module] = [Two(), Two, "tests.learn.test_given:Two"]
    for given in asked:
        task = as_task(given, game(), split)
        state, rows = task.initial(0), game().candidates.rows
        task.check(state, rows)
        assert task.outputs(state, rows.x).shape == (200, 4)
    checked(3, forward=split, strict=True)  # neither is a key of a configuration


@pytest.mark.parametrize("as_a_task", [False, True])
def test_the_training_is_not_disturbed(as_a_task: bool) -> None:
    module = Two()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    torch.manual_seed(5)
    first = torch.rand(3)
    torch.manual_seed(5)
    task = as_task(TorchTask(Two, 4, split) if as_a_task else module, game(), None if as_a_task else split)
    assert isinstance(task, TorchTask)
    task.outputs(task.initial(0), game().candidates.rows.x)
    task.asking(task.initial(0))(game().candidates.rows.x)
    task.fresh(task.initial(0))
    assert torch.equal(torch.rand(3), first)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert type(module) is Two


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("nowhere:Net", "cannot import 'nowhere:Net'"),
        (f"{HERE}:HERE", "is a str, which is no torch.nn.Module"),
        (lambda: 3, "returned int"),
        (Two, "several inputs|answers with a dict|forward"),
    ],
)
def test_what_is_no_model_is_refused(given: Any, says: str) -> None:
    with pytest.raises((FedauditError, TypeError), match=says):
        as_task(given, game())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_another_precision_is_refused_by_its_name(dtype: torch.dtype) -> None:
    with pytest.raises(FedauditError, match=str(dtype).removeprefix("torch.")) as caught:
        as_task(Plain().to(dtype), game())
    assert caught.value.code == "model-dtype"


def test_several_targets_are_refused_and_what_is_told_instead_works() -> None:
    rng = np.random.default_rng(0)
    features, pictures = rng.random((60, 5), np.float32), rng.random((60, 3, 4, 4), np.float32)
    labels, pixels = rng.integers(0, 2, (60, 4)), rng.integers(0, 4, (60, 4, 4))
    for x, y in ((features, labels), (features, labels.astype(np.float32)), (pictures, pixels)):
        with pytest.raises(FedauditError) as caught:
            set_aside(x, y)
        assert caught.value.code == "shape"

    def first(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        logit = model(x)[:, 0]
        return torch.stack([torch.zeros_like(logit), logit], -1)

    def each_pixel(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(model(x.mT.reshape(len(x), 3, 4, 4)).flatten(2).mT)

    one = set_aside(features, labels[:, 0])[1]
    assert as_task(Plain(), one, first).classes == 2
    flat = set_aside(pictures.reshape(60, 3, 16).transpose(0, 2, 1), pixels.reshape(60, 16))[1]
    task = as_task(nn.Conv2d(3, 4, 1), flat, each_pixel)
    assert task.outputs(task.initial(0), flat.candidates.rows.x).shape == (60, 16, 4)


@pytest.mark.parametrize("prefix", ["_module.", "module.", "module._orig_mod."])
def test_what_others_wrap_around_a_model_is_no_part_of_its_names(prefix: str) -> None:
    state = numpy_state(Plain().state_dict())
    found = matched({f"{prefix}{name}": value for name, value in state.items()}, state, "here")
    assert list(found) == list(state)
    assert all(np.array_equal(found[name], state[name]) for name in state)


def test_too_few_arrays_are_told_how_a_part_is_exchanged() -> None:
    state = numpy_state(Plain().state_dict())
    for given in ({"0": state["weight"]}, {"other": state["bias"]}):
        with pytest.raises(FedauditError, match="trainable"):
            matched(given, state, "here")
