"""Crafting canaries: sixteen at once against a few mock updates a step, compared with one after the other against all.

Both networks gain from both, and for ResNet-18 memory is the point: the 64 mock updates lie in a file, as in an audit,
and of these only 16 are in memory in a step, beside the gradients of four canaries. All ways make the same number of
steps and begin once for each canary."""

import resource
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.measuring import Case, interleaved, verdict
from fedaudit.learn.tasks import TorchTask, build_task
from fedaudit.questions.canary.crafting import CraftingRecipe, craft
from fedaudit.questions.canary.parties import Singles, room
from fedaudit.types import Records

MOCKS, TOGETHER, LARGE = 64, 16, 4  # mock updates; canaries at once, of a small network and of a large one


def small_cnn() -> nn.Module:
    """26,650 parameters."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 48)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(768, 10))


def run() -> dict[str, Any]:
    cases: dict[str, Case] = {}
    small, large = TorchTask(small_cnn, 10), build_task("resnet18", (3, 32, 32), 10, {})
    each = partial(steps, small, updates(small, MOCKS), 20)
    found = interleaved(partial(each, 1, MOCKS), partial(each, TOGETHER, TOGETHER), 3.0, times=3)
    cases["CNN, a canary of sixteen"] = Case(found.ratio * TOGETHER, 3.0, found.seconds)
    all_of_them = updates(large, MOCKS)
    filed = room(*all_of_them.shape)
    filed[:] = all_of_them
    one, other = partial(steps, large, all_of_them, 2, 1, MOCKS), partial(steps, large, filed, 2, LARGE, TOGETHER)
    found = interleaved(one, other, 2.0, times=3)
    cases["ResNet-18, a canary of four, 16 mock updates held"] = Case(found.ratio * LARGE, 2.0, found.seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    held = TOGETHER * all_of_them[0].nbytes / 2**30
    return verdict(
        "canary", "higher", cases, threads=torch.get_num_threads(), gib_of_mock_updates=round(held, 2),
        peak_gib_of_both_ways=round(peak, 2),
    )  # fmt: skip


def updates(task: TorchTask, rows: int) -> Singles:
    size = sum(p.numel() for p in task.architecture.parameters())
    drawn = np.random.default_rng(0).standard_normal((rows, size), dtype=np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn


def steps(task: TorchTask, mocks: Singles, count: int, canaries: int, batch: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.random((32, 3, 32, 32), dtype=np.float32)
    pool = Records(x, rng.integers(0, 10, 32), np.arange(32).astype(str))
    craft(
        task, task.initial(0), mocks, 1.0, pool, CraftingRecipe(canaries, count, target=0, batch=batch, starts=1), rng
    )
