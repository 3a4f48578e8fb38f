"""The matched filter of one round, for all records and with the moments taken from all of them: one layer, and every
layer, in units of one local epoch over the same records. What never changes from round to round is prepared before."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.ghost import train, updates
from benchmarks.measuring import Case, interleaved, verdict
from fedaudit.adversary.signals import matched
from fedaudit.learn.tasks import TorchTask, build_task
from fedaudit.types import Records, State

DAMPING = 0.1


def small_cnn() -> nn.Module:
    """Two convolutions and a linear hidden layer, which is the largest."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 128), nn.ReLU(), nn.Linear(128, 100))


# model -> task, shape, records, goals in epochs: one layer, all layers
SETTINGS: dict[str, tuple[TorchTask, tuple[int, ...], int, float, float]] = {
    "MLP": (build_task("mlp", (600,), 100, {}), (600,), 4096, 1.0, 1.0),
    "CNN": (TorchTask(small_cnn, 100), (3, 32, 32), 2048, 1.0, 1.5),
    "ResNet-20": (build_task("resnet20", (3, 32, 32), 100, {}), (3, 32, 32), 1024, 1.0, 2.0),
}


def run() -> dict[str, Any]:
    cases: dict[str, Case] = {}
    for title, (task, shape, n, one, every) in SETTINGS.items():
        rows = records(shape, n)
        state = task.initial(0)
        sent = updates(task, state, rows, 1)[0]
        module = task.fresh(state)
        update = {name: torch.from_numpy(state[name] - sent[name])[None] for name, _ in module.named_parameters()}
        epoch = partial(train, task, state, rows)
        for layer, goal in ((matched.largest_linear(module), one), (None, every)):
            prepared = prepare(task, state, rows, layer)
            way = partial(of_a_round, task, state, prepared, update)
            cases[f"{title}, {'one layer' if layer else 'all layers'}"] = interleaved(way, epoch, goal)
    return verdict("matched", "lower", cases, threads=torch.get_num_threads())


def records(shape: tuple[int, ...], n: int) -> Records:
    rng = np.random.default_rng(0)
    x = (rng.random((n, *shape)) < 0.1).astype(np.float32) if len(shape) == 1 else rng.random((n, *shape), np.float32)
    return Records(x, rng.integers(0, 100, n), np.arange(n).astype(np.str_))


def prepare(task: TorchTask, state: State, rows: Records, layer: str | None) -> matched.MatchedSetup:
    x, y = torch.from_numpy(rows.x), torch.from_numpy(rows.y)
    return matched.prepare(task.fresh(state), task.losses, x, y, torch.arange(len(rows)), DAMPING, layer)


def of_a_round(task: TorchTask, state: State, prepared: matched.MatchedSetup, update: dict[str, Tensor]) -> Tensor:
    found = matched.statistics(prepared, task.fresh(state), update)
    return matched.standardised(matched.together(found), prepared.fitting)
