"""Models beside one another: which way they are trained, and on which rows."""

import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.learn.many import Loop, Stacked, beside, steps_of
from fedaudit.learn.models.mlp import mlp
from fedaudit.learn.tasks import Training


def test_two_at_a_time_equals_one_after_the_other() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(80, 1, 8, 8)).astype(np.float32))
    targets = torch.from_numpy(rng.dirichlet(np.ones(3), 80).astype(np.float32))
    steps = steps_of([rng.permutation(80)[:40] for _ in range(4)], 16, rng)
    found = []
    for workers in (1, 2):
        models = Loop(module, 4, Training(), 3, workers)
        models.epoch(x, targets, steps)
        found.append(models.outputs(x))
    assert torch.equal(*found)


def test_at_positions_the_steps_are_those_of_the_summed_loss() -> None:
    """One model, one step of SGD on all rows, by hand; a model that looks stackable is not stacked."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    rng = np.random.default_rng(0)
    x, targets = torch.from_numpy(rng.normal(size=(20, 5, 6))), torch.from_numpy(rng.dirichlet(np.ones(3), (20, 5)))
    models = beside(module, 2, Training("sgd", lr=0.1), 3, positions=True)
    assert isinstance(models, Loop)
    models.epoch(x, targets, [[np.arange(20), np.arange(10)]])
    loss = -(targets * module(x).log_softmax(-1)).sum((1, 2)).mean()
    gradients = torch.autograd.grad(loss, list(module.parameters()))
    for before, gradient, after in zip(module.parameters(), gradients, models.modules[0].parameters(), strict=True):
        assert torch.allclose(after, before - 0.1 * gradient, rtol=0, atol=1e-12)
    assert models.outputs(x).shape == (2, 20, 5, 3)


def test_every_set_is_used_once_and_in_equal_batches() -> None:
    rng = np.random.default_rng(1)
    sets = [np.arange(0, 64), np.arange(10, 75)]  # 64 fits in one batch of 64, 65 does not
    steps = steps_of(sets, 64, rng)
    assert len(steps) == 2
    for model, rows in enumerate(sets):
        assert np.array_equal(np.sort(np.concatenate([step[model] for step in steps])), rows)
        assert min(len(step[model]) for step in steps) >= 32


@pytest.mark.parametrize(
    ("module", "stacked"),
    [
        (mlp((4,), 3, hidden=(8, 8)), True),
        (mlp((4,), 3, hidden=()), True),
        (nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), False),
        (nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3)), False),
        (nn.Sequential(nn.Linear(4, 8), nn.ReLU()), False),
        (nn.Sequential(nn.Flatten(2), nn.Linear(4, 3)), False),  # keeps positions apart
        (nn.Sequential(nn.Linear(4, 3)), False),  # so does this, where records have positions
        (nn.Linear(4, 3), False),
    ],
)
def test_only_what_the_stacked_way_can_do_is_stacked(module: nn.Module, stacked: bool) -> None:
    assert isinstance(beside(module, 4, Training(), 3), Stacked) is stacked


def test_dropout_is_not_trained_in_two_threads() -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    for drawing in (module, nn.LSTM(4, 4, 2, dropout=0.5)):
        models = beside(drawing, 4, Training(), 3)
        assert isinstance(models, Loop)
        assert models.workers == 1
    calm = beside(nn.LSTM(4, 4, 2), 4, Training(), 3)
    assert isinstance(calm, Loop)
    assert calm.workers == 2


def test_no_batch_is_empty() -> None:
    """An odd number of records leaves one half smaller than the other: all models take the smaller number of steps."""
    steps = steps_of([np.arange(4), np.arange(4, 9)], 1, np.random.default_rng(0))
    assert [[len(batch) for batch in step] for step in steps] == [[1, 2], [1, 1], [1, 1], [1, 1]]
