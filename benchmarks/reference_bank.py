"""Sixteen reference models, one epoch each: the bank against one model after the other (Adam, soft labels).

The peer is the same training as an ordinary loop: soft labels made once, so that it pays for no teacher either, and
one thread, with which it is fastest at these sizes. The bank has the same one thread for fully connected models, and
two workers with one thread each for the others: that needs two free cores to show.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.measuring import interleaved, verdict
from fedaudit.learn.many import Loop, beside, steps_of
from fedaudit.learn.models.images import cnn
from fedaudit.learn.models.mlp import mlp
from fedaudit.learn.tasks import Training

MODELS, BATCH = 16, 64
IMAGE, FLAT, CLASSES = (3, 32, 32), (600,), 100
CASES: dict[str, tuple[nn.Module, tuple[int, ...], int, float]] = {
    "MLP, 90k parameters": (mlp(FLAT, CLASSES, (128,)), FLAT, 1024, 2.5),
    "MLP, 1.3M parameters": (mlp(FLAT, CLASSES, (1024, 512, 256)), FLAT, 512, 1.6),
    "CNN, 16 filters": (cnn(IMAGE, CLASSES, 16), IMAGE, 256, 1.5),
}


def run() -> dict[str, Any]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    cases = {title: interleaved(*ways(*case[:3]), goal=case[3]) for title, case in CASES.items()}
    torch.set_num_threads(before)
    return verdict("reference-bank", "higher", cases, models=MODELS, batch=BATCH)


def ways(module: nn.Module, shape: tuple[int, ...], records: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Both an epoch of all models, each on its own half of the records."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((records, *shape), np.float32))
    targets = torch.from_numpy(rng.dirichlet(np.ones(CLASSES), records).astype(np.float32))
    steps = steps_of([rng.permutation(records)[: records // 2] for _ in range(MODELS)], BATCH, rng)
    naive, ours = Loop(module, MODELS, Training(), CLASSES), beside(module, MODELS, Training(), CLASSES)
    return lambda: naive.epoch(x, targets, steps), lambda: ours.epoch(x, targets, steps)
