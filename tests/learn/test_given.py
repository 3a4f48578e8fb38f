"""Models as people have them: classes and factories of either kind, several inputs, tuples and dicts as answers."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.adversary.signals import ghost
from fedaudit.errors import FedauditError
from fedaudit.learn.tasks import TorchTask, Training, build_task, module_of, tensor, with_forward
from fedaudit.types import Records

HERE = "tests.learn.test_given"


class Two(nn.Module):
    """Two inputs, and a dict as the answer."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(2, width), nn.Linear(3, width)
        self.last = nn.Linear(2 * width, 4)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        both = torch.cat([self.left(left), self.right(right)], dim=1)
        return {"logits": self.last(torch.relu(both)), "hidden": both}


class One(nn.Module):
    """The same model, with one tensor in and out, and with the same names of its parameters."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(2, width), nn.Linear(3, width)
        self.last = nn.Linear(2 * width, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(torch.relu(torch.cat([self.left(x[:, :2]), self.right(x[:, 2:])], dim=1)))


def split(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model(x[:, :2], x[:, 2:])["logits"]
    return found


def pair(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    class Pair(nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x), x

    return Pair(input_shape[0], classes)


def by_name(depth: int = 1, *, classes: int = 0) -> nn.Module:
    return nn.Linear(5, classes + depth - 1)


INSTANCE = nn.Linear(5, 4)


def records() -> Records:
    rng = np.random.default_rng(0)
    return Records(rng.random((40, 5), np.float32), rng.integers(0, 4, 40), np.array([f"{i:02}" for i in range(40)]))


def test_a_hook_changes_nothing_but_how_the_model_is_asked() -> None:
    """Outputs, training, gradients and names are those of the model that has the hook built in."""
    plain, hooked = TorchTask(One, 4), build_task(f"{HERE}:Two", (5,), 4, {}, split)
    start, rows = plain.initial(3), records()
    assert list(start) == list(hooked.initial(3))
    assert all(np.array_equal(start[name], hooked.initial(3)[name]) for name in start)
    assert np.array_equal(plain.outputs(start, rows.x), hooked.outputs(start, rows.x))
    for one, two in zip(plain.last_layer(start, rows.x), hooked.last_layer(start, rows.x), strict=True):
        assert np.array_equal(one, two)
    trained = [task.train(start, rows, Training(epochs=3), np.random.default_rng(1)).state for task in (plain, hooked)]
    assert all(np.array_equal(trained[0][name], trained[1][name]) for name in start)
    assert any(not np.array_equal(trained[0][name], start[name]) for name in start)
    hooked.check(start, rows)
    x, y = tensor(rows.x), tensor(rows.y)
    plans = [ghost.verify(task.fresh(start), task.losses, x, y) for task in (plain, hooked)]
    assert [type(plan) for plan in plans] == [type(plans[0])] * 2


def test_a_hook_survives_copies_and_errors() -> None:
    import copy

    module = with_forward(Two(), split)
    again, x = copy.deepcopy(module), torch.rand(3, 5)
    assert torch.equal(module(x), again(x))
    assert isinstance(module, Two)
    with pytest.raises(RuntimeError):
        module(torch.rand(3, 4))
    assert torch.equal(module(x), again(x))  # not left as if it were inside its hook
    assert with_forward(again, None) is again


@pytest.mark.parametrize(
    ("name", "options", "outputs"),
    [
        ("pair", {}, 4),  # by position
        ("by_name", {"depth": 3}, 6),  # by the names it has
        ("Two", {"width": 2}, None),  # neither: its own options alone
        ("INSTANCE", {}, 4),
    ],
)
def test_a_class_a_function_and_a_module(name: str, options: dict[str, Any], outputs: int | None) -> None:
    given = globals()[name]
    made = module_of(given, name, (5,), 4, options)
    last = [layer for layer in made.modules() if isinstance(layer, nn.Linear)][-1]
    assert last.out_features == (outputs or 4)
    assert made is not given


def test_an_argument_that_happens_to_be_first_is_not_taken_for_the_shape() -> None:
    assert module_of(Two, "Two", (5,), 4, {}).left.out_features == 8  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "forward", "says"),
    [
        ("Two", None, "several inputs needs a hook"),
        ("pair", None, r"answers with a tuple of 2.*\[model\] forward"),
        ("Two", lambda model, x: model(x[:, :2], x[:, 2:]), r"answers with a dict with logits, hidden"),
    ],
)
def test_what_has_no_hook_and_needs_one_is_told(name: str, forward: Any, says: str) -> None:
    task = build_task(f"{HERE}:{name}", (5,), 4, {}, forward)
    with pytest.raises(FedauditError, match=says):
        task.check(task.initial(0), records())
