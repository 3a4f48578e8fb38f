"""The parties of a round trained at once, where they are many and their model is a small fully connected one. They may
be the parties of several federations (`federation.together`).

1. Each party draws from its own generator exactly what `TorchTask.train` would draw.
2. Parties are ordered by their number of steps. Those still training are then always the first ones and have all made
   the same number of steps; those who are done are no longer in the batch.
3. A party's last batch may be short: it is filled up with one of its own rows, whose gradient is weighted with zero.

Which of the two ways is taken, this or one party after the other, follows from the configuration alone
(docs/decisions/0002-speed.md), so a resumed run takes the same one.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedaudit.learn.arrays import tensor, tensors
from fedaudit.learn.stacked import Batch, Stacked, linear_layers
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.types import Records, State, Trained

MIN_PARTIES = 8
MAX_PARAMETERS = 500_000
# Weights (with Adam also two moments and a gradient) of the parties trained together: the fewer the chunks, the fewer
# the calls, as long as the processor's cache holds one.
CHUNK_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Job:
    """One party in one round, and the model that it begins with."""

    name: str
    records: Records
    rng: np.random.Generator
    model: State


def worthwhile(task: TorchTask, parties: int) -> bool:
    """Is the gain large? Small federations keep the plain loop, although they would gain a little, too."""
    module = task.architecture
    known = type(task) is TorchTask and linear_layers(module) is not None
    return known and parties >= MIN_PARTIES and sum(p.numel() for p in module.parameters()) <= MAX_PARAMETERS


def train(task: TorchTask, jobs: Sequence[Job], training: Training) -> list[Trained]:
    """What every party sends after training, as `task.train` would have it, in the order of the jobs.

    The parties may be those of several federations, as long as their models have the same shape.
    """
    if not jobs:
        return []
    copies = 4 if training.optimizer == "adam" else 1
    bytes_each = copies * sum(value.nbytes for value in jobs[0].model.values())
    chunks = max(1, round(len(jobs) * bytes_each / CHUNK_BYTES))
    ordered = sorted(range(len(jobs)), key=lambda i: (-_steps(len(jobs[i].records), training), jobs[i].name))
    sent: dict[int, Trained] = {}
    for index in np.array_split(np.array(ordered), min(chunks, len(jobs))):
        sent |= zip(index.tolist(), _train_chunk(task, [jobs[i] for i in index], training), strict=True)
    return [sent[i] for i in range(len(jobs))]


def _train_chunk(task: TorchTask, jobs: Sequence[Job], training: Training) -> list[Trained]:
    started = time.perf_counter()
    distinct = {id(job.model): tensors(job.model) for job in jobs}  # parties of one federation begin with one model
    stacked = Stacked(task.architecture, [distinct[id(job.model)] for job in jobs], training, task.classes)
    x = torch.cat([tensor(job.records.x).flatten(1) for job in jobs])
    y = torch.cat([tensor(job.records.y) for job in jobs])
    stacked.train(x, y, _batches(jobs, training, x.dtype))
    seconds = (time.perf_counter() - started) / training.epochs
    total = max(1, sum(len(job.records) for job in jobs))
    return [
        Trained(
            {name: value.numpy() for name, value in state.items()}, len(job.records), seconds * len(job.records) / total
        )
        for job, state in zip(jobs, stacked.states(), strict=True)
    ]


# ------------------------------------------------------------------ who learns from which rows in which step


def _steps(records: int, training: Training) -> int:
    return training.epochs * -(-records // training.batch_size)


def _batches(jobs: Sequence[Job], training: Training, dtype: torch.dtype) -> Iterator[Batch]:
    """Every step, for the parties that are still training in it."""
    steps = np.array([_steps(len(job.records), training) for job in jobs])
    width = min(training.batch_size, max(len(job.records) for job in jobs))
    rows = np.zeros((steps[0], len(jobs), width), np.int64)
    weights = np.zeros((steps[0], len(jobs), width))
    offset = 0
    for k, job in enumerate(job for job in jobs if len(job.records)):
        n, each = len(job.records), steps[k] // training.epochs
        full = (each - 1) * width  # the last batch begins here
        order = np.empty(training.epochs * each * width, np.int64)
        by_epoch = order.reshape(training.epochs, each * width)
        job.rng.integers(2**63)  # where the plain loop seeds dropout
        for epoch in by_epoch:
            epoch[:n] = job.rng.permutation(n)
            epoch[n:] = epoch[n - 1]
        rows[: steps[k], k] = order.reshape(-1, width) + offset
        weights[: steps[k], k] = 1 / width
        last = slice(each - 1, steps[k], each)
        weights[last, k, : n - full], weights[last, k, n - full :] = 1 / (n - full), 0
        offset += n
    shares = torch.from_numpy(weights).to(dtype)
    for step, (row, share) in enumerate(zip(torch.from_numpy(rows), shares, strict=True)):
        still = int(np.count_nonzero(steps > step))
        yield Batch(row[:still], share[:still])
