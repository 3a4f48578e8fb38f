"""Many models at once, against one model after the other, in float64, where the two must agree."""

from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.learn.many import Batch, Loop, Stacked, beside, rectangle, steps_of
from fedaudit.learn.models.mlp import mlp
from fedaudit.learn.tasks import Training

N = 6


def world(classes: int) -> tuple[torch.Tensor, torch.Tensor, Any]:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(101, 3, 4)))
    targets = torch.from_numpy(rng.dirichlet(np.ones(classes), 101) if classes else rng.normal(size=(101, 1)))
    sets = [np.sort(rng.permutation(101)[: 50 + i % 2]) for i in range(N)]  # 50 and 51: the last batches differ
    return x, targets, [steps_of(sets, 16, rng) for _ in range(3)]


def stack(classes: int, training: Training, count: int = N) -> tuple[Stacked, Loop]:
    torch.manual_seed(0)
    module = mlp((3, 4), classes, hidden=(9, 7)).double()
    fast = beside(module, count, training, classes)
    assert isinstance(fast, Stacked)
    return fast, Loop(module, count, training, classes)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("classes", [5, 0])
def test_stacked_equals_the_plain_loop(classes: int, optimizer: str, weight_decay: float) -> None:
    x, targets, epochs = world(classes)
    fast, slow = stack(classes, Training(optimizer, lr=1e-2, weight_decay=weight_decay))
    for steps in epochs:
        fast.epoch(x, targets, steps)
        slow.epoch(x, targets, steps)
    found, expected = fast.outputs(x), slow.outputs(x)
    assert found.shape == (N, 101, max(classes, 1))
    assert torch.allclose(found, expected, rtol=0, atol=1e-10)
    assert not torch.allclose(expected[0], expected[1], atol=1e-3)  # they did learn different things


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_class_is_the_soft_label_that_is_sure(optimizer: str) -> None:
    x, _, epochs = world(5)
    y = torch.from_numpy(np.random.default_rng(1).integers(0, 5, len(x)))
    hard, _ = stack(5, Training(optimizer, lr=1e-2))
    soft, _ = stack(5, Training(optimizer, lr=1e-2))
    hard.epoch(x, y, epochs[0])
    soft.epoch(x, torch.nn.functional.one_hot(y, 5).double(), epochs[0])
    assert torch.allclose(hard.outputs(x), soft.outputs(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_models_that_are_done_stay_as_they_are(optimizer: str) -> None:
    x, targets, epochs = world(5)
    fast, slow = stack(5, Training(optimizer, lr=1e-2))
    batches = [rectangle(step, x.dtype) for step in epochs[0]]
    count = len(batches)
    fast.train(x, targets, [Batch(b.rows[: N - i], b.share[: N - i]) for i, b in enumerate(batches)])
    for model in range(N):  # model k takes part in as many steps as are left for it
        alone = Loop(slow.modules[model], 1, slow.training, 5)
        alone.epoch(x, targets, [[step[model]] for i, step in enumerate(epochs[0]) if model < N - i])
        assert torch.allclose(fast.outputs(x)[model], alone.outputs(x)[0], rtol=0, atol=1e-10)
    assert 1 < count < N


def test_what_was_taken_out_can_be_put_back() -> None:
    x, targets, epochs = world(5)
    fast, _ = stack(5, Training())
    before, answers = fast.weights(), fast.outputs(x)
    fast.epoch(x, targets, epochs[0])
    assert not torch.equal(fast.outputs(x), answers)
    fast.restore(before)
    assert torch.equal(fast.outputs(x), answers)


def test_each_state_is_its_own_model() -> None:
    x, targets, epochs = world(5)
    fast, slow = stack(5, Training())
    fast.epoch(x, targets, epochs[0])
    module = slow.modules[0].eval()
    for answers, state in zip(fast.outputs(x), fast.states(), strict=True):
        module.load_state_dict(state)
        assert torch.allclose(module(x), answers, rtol=0, atol=1e-12)


def test_a_broken_record_spoils_only_the_models_that_learn_from_it() -> None:
    """Shorter batches are filled up with a row of their own, not with somebody else's NaN."""
    x, targets, _ = world(5)
    x[0] = float("nan")
    fast, _ = stack(5, Training(), 2)
    fast.epoch(x, targets, [[np.arange(0, 9), np.arange(9, 16)]])
    spoilt, sound = fast.outputs(x[1:])
    assert spoilt.isnan().all()
    assert sound.isfinite().all()
