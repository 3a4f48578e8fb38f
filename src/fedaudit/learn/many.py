"""Trains many models side by side: one epoch for each, on its own rows and with given targets.

Fully connected models with ReLU are trained all at once (`stacked`). `Loop` is for everything else: one model after the
other, on two cores two at a time, each with one thread (batched convolutions are slower than that on a CPU). Both take
the same steps; a test compares them in float64.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fedaudit.learn import losses
from fedaudit.learn.stacked import ROWS, Stacked, Steps, linear_layers
from fedaudit.learn.tasks import Training
from fedaudit.types import Ints

CORES = 2


@contextmanager
def one_core_each(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads whose matrix products start no threads of their own: for small models, one worker per core is faster than
    one product on several cores."""
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)


class Models(Protocol):
    def epoch(self, x: Tensor, targets: Tensor, steps: Steps) -> None:
        """Every model takes every step, with a fresh optimiser, as a party does in its round."""
        ...

    def outputs(self, x: Tensor) -> Tensor:
        """models x rows x outputs, in evaluation mode."""
        ...

    def weights(self) -> list[Tensor]:
        """A copy of everything that training changes."""
        ...

    def restore(self, weights: list[Tensor]) -> None: ...


def steps_of(sets: Sequence[Ints], batch_size: int, rng: np.random.Generator) -> Steps:
    """Each model's rows in an order of its own, in as many near-equal batches as the largest set needs.

    All models thus take the same number of steps, and none has a last batch of a few records.
    """
    needed = max(math.ceil(len(rows) / batch_size) for rows in sets)
    count = min(needed, *(len(rows) for rows in sets))  # no batch is empty
    parts = [np.array_split(rng.permutation(rows), count) for rows in sets]
    return list(zip(*parts, strict=True))


def beside(module: nn.Module, count: int, training: Training, classes: int, positions: bool = False) -> Models:
    """`count` copies of a model, in the faster of the two ways. `positions`: records have a class at each of several,
    which the stacked way does not know."""
    if linear_layers(module) and not positions:
        return Stacked(module, [module.state_dict()] * count, training, classes)
    return Loop(module, count, training, classes, 1 if _draws(module) else CORES)


def _draws(module: nn.Module) -> bool:
    """Dropout draws from the one generator that all threads share: two at a time would not be reproducible."""
    layers = list(module.modules())
    inside = any(isinstance(layer, nn.RNNBase) and layer.dropout for layer in layers)  # between stacked layers
    return inside or any("Dropout" in type(layer).__name__ and getattr(layer, "p", 1) for layer in layers)


class Loop:
    def __init__(self, module: nn.Module, count: int, training: Training, classes: int, workers: int = 1):
        self.modules = [copy.deepcopy(module) for _ in range(count)]
        self.training, self.classes, self.workers = training, classes, workers

    def epoch(self, x: Tensor, targets: Tensor, steps: Steps) -> None:
        def train(i: int) -> None:
            module = self.modules[i].train()
            optimizer = self.training.optimizer_of(module)
            for step in steps:
                batch = torch.from_numpy(step[i])
                optimizer.zero_grad(set_to_none=True)
                torch.autograd.backward(self._loss(module(x[batch]), targets[batch]))
                optimizer.step()

        self._for_each(train)

    def outputs(self, x: Tensor) -> Tensor:
        found: list[Tensor] = [x] * len(self.modules)

        def answer(i: int) -> None:
            module = self.modules[i].eval()
            with torch.inference_mode():
                found[i] = torch.cat([module(part) for part in torch.split(x, ROWS)])

        self._for_each(answer)
        return torch.stack(found)

    def weights(self) -> list[Tensor]:
        return [value.detach().clone() for module in self.modules for value in module.state_dict().values()]

    def restore(self, weights: list[Tensor]) -> None:
        current = [value for module in self.modules for value in module.state_dict().values()]
        for value, before in zip(current, weights, strict=True):
            value.copy_(before)

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return losses.of_batch(outputs, targets if self.classes else targets.squeeze(-1), self.classes)

    def _for_each(self, work: Callable[[int], None]) -> None:
        if self.workers == 1:
            for i in range(len(self.modules)):
                work(i)
            return
        with one_core_each(self.workers) as pool:
            list(pool.map(work, range(len(self.modules))))
