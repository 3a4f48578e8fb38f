"""Many models beside one another: one epoch for each of them on its own rows, toward given targets.

`Stacked` is for fully connected models with ReLU: weights of all models in one tensor, batched matrix products, the
gradient at the outputs in closed form, so that nothing is recorded and no backward pass is run. `Loop` is for
everything else: one model after the other, on two cores two at a time, each with one thread (batched convolutions are
slower than that on a CPU). Both take the same steps; a test compares them in float64.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fedaudit.learn import losses
from fedaudit.learn.tasks import OPTIMIZERS, Training
from fedaudit.learn.threads import one_core_each
from fedaudit.types import Ints

ROWS = 1024  # in one forward pass of all models
CORES = 2

Steps = Sequence[Sequence[Ints]]  # for each step, for each model, the rows of its batch


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
    if is_mlp(module) and not positions:
        return Stacked(module, count, training, classes)
    return Loop(module, count, training, classes, 1 if _draws(module) else CORES)


def is_mlp(module: nn.Module) -> bool:
    layers = list(module.children()) if type(module) is nn.Sequential else []
    kinds = [type(layer) for layer in layers if type(layer) is not nn.Flatten]
    linear_first = kinds[::2] == [nn.Linear] * len(kinds[::2]) and kinds[1::2] == [nn.ReLU] * len(kinds[1::2])
    biased = all(layer.bias is not None for layer in layers if isinstance(layer, nn.Linear))
    return len(kinds) % 2 == 1 and linear_first and biased


def _draws(module: nn.Module) -> bool:
    """Dropout draws from the one generator that all threads share: two at a time would not be reproducible."""
    layers = list(module.modules())
    inside = any(isinstance(layer, nn.RNNBase) and layer.dropout for layer in layers)  # between stacked layers
    return inside or any("Dropout" in type(layer).__name__ and getattr(layer, "p", 1) for layer in layers)


def _optimizer(training: Training, parameters: list[Tensor], fused: bool = False) -> torch.optim.Optimizer:
    options = {"lr": training.lr, "weight_decay": training.weight_decay, "fused": fused}
    return OPTIMIZERS[training.optimizer](parameters, **options)


# ------------------------------------------------------------------ the plain way


class Loop:
    def __init__(self, module: nn.Module, count: int, training: Training, classes: int, workers: int = 1):
        self.modules = [copy.deepcopy(module) for _ in range(count)]
        self.training, self.classes, self.workers = training, classes, workers

    def epoch(self, x: Tensor, targets: Tensor, steps: Steps) -> None:
        def train(i: int) -> None:
            module = self.modules[i].train()
            optimizer = _optimizer(self.training, list(module.parameters()))
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


# ------------------------------------------------------------------ the stacked way


class Stacked:
    def __init__(self, module: nn.Module, count: int, training: Training, classes: int):
        self.training, self.classes = training, classes
        self._weights: list[Tensor] = []
        self._biases: list[Tensor] = []
        for layer in module.children():
            if isinstance(layer, nn.Linear):
                self._weights.append(layer.weight.detach().repeat(count, 1, 1).requires_grad_())
                self._biases.append(layer.bias.detach().repeat(count, 1).requires_grad_())

    def epoch(self, x: Tensor, targets: Tensor, steps: Steps) -> None:
        optimizer = _optimizer(self.training, [*self._weights, *self._biases], fused=True)
        flat = x.flatten(1)
        with torch.no_grad():
            for step in steps:
                rows, share = _rectangle(step, flat.dtype)
                inputs, outputs = self._forward(flat[rows])
                self._backward(inputs, self._at_outputs(outputs, targets[rows]) * share[:, :, None])
                optimizer.step()

    def outputs(self, x: Tensor) -> Tensor:
        count = len(self._biases[0])
        with torch.no_grad():
            parts = [self._forward(part.expand(count, -1, -1))[1] for part in torch.split(x.flatten(1), ROWS)]
            return torch.cat(parts, dim=1)

    def weights(self) -> list[Tensor]:
        return [value.detach().clone() for value in (*self._weights, *self._biases)]

    def restore(self, weights: list[Tensor]) -> None:
        with torch.no_grad():
            for value, before in zip((*self._weights, *self._biases), weights, strict=True):
                value.copy_(before)

    def _forward(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """What went into each layer, and the outputs; models x rows x units."""
        inputs = [x]
        for weight, bias in zip(self._weights, self._biases, strict=True):
            inputs.append(torch.baddbmm(bias[:, None], inputs[-1], weight.transpose(1, 2)))
            if weight is not self._weights[-1]:
                inputs[-1].relu_()
        return inputs[:-1], inputs[-1]

    def _at_outputs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The gradient of one record's loss: cross-entropy with soft labels, or squared error."""
        return torch.softmax(outputs, dim=2) - targets if self.classes else 2 * (outputs - targets)

    def _backward(self, inputs: list[Tensor], error: Tensor) -> None:
        for i in reversed(range(len(inputs))):
            self._weights[i].grad = torch.bmm(error.transpose(1, 2), inputs[i])
            self._biases[i].grad = error.sum(dim=1)
            if i:
                error = torch.bmm(error, self._weights[i]) * (inputs[i] > 0)


def _rectangle(step: Sequence[Ints], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Batches of different lengths as one array, and each row's share in its model's mean (0 for what fills up)."""
    longest = max(len(rows) for rows in step)
    rows = np.zeros((len(step), longest), np.int64)
    share = np.zeros((len(step), longest))
    for i, own in enumerate(step):
        rows[i, : len(own)] = own
        share[i, : len(own)] = 1 / len(own)
    return torch.from_numpy(rows), torch.from_numpy(share).to(dtype)
