"""Trains many models side by side: one epoch for each, on its own rows and with given targets.

Fully connected models with ReLU are trained all at once (`Stacked`). `Loop` is for everything else: one model after the
other, on two cores two at a time, each with one thread (batched convolutions are slower than that on a CPU). Both take
the same steps; a test compares them in float64.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from fedaudit.learn.tasks import Training, loss_of_batch
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


def steps_of(sets: Sequence[Ints], batch_size: int, rng: np.random.Generator) -> Steps:
    """Each model's rows in an order of its own, in as many near-equal batches as the largest set needs.

    All models thus take the same number of steps, and none has a last batch of a few records.
    """
    needed = max(math.ceil(len(rows) / batch_size) for rows in sets)
    count = min(needed, *(len(rows) for rows in sets))  # no batch is empty
    parts = [np.array_split(rng.permutation(rows), count) for rows in sets]
    return list(zip(*parts, strict=True))


def beside(module: nn.Module, count: int, training: Training, classes: int, positions: bool = False) -> Stacked | Loop:
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
    """The same as `Stacked`, for models of any kind."""

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
        return loss_of_batch(outputs, targets if self.classes else targets.squeeze(-1), self.classes)

    def _for_each(self, work: Callable[[int], None]) -> None:
        if self.workers == 1:
            for i in range(len(self.modules)):
                work(i)
            return
        with one_core_each(self.workers) as pool:
            list(pool.map(work, range(len(self.modules))))


# ------------------------------------------------------------------ all at once, as batched matrix products

# For a small model most of a step's time is the overhead of calls, and a hundred models make a hundred times the calls.
# Here the models' weights are stacked and one call serves all; the gradient at the outputs has a closed form, so
# no graph is recorded and no backward pass is run.
#
# In float64 the outcome equals the plain loop's to 1e-10; in float32 the last bits differ.


ROWS = 1024  # in one forward pass of all models

Steps = Sequence[Sequence[Ints]]  # for each step, for each model, the rows of its batch
Found = Sequence[tuple[Tensor, Tensor]]  # of each layer: the gradient at its outputs, and what went into it


@dataclass(frozen=True)
class Batch:
    """One step of the first models; those after them have made all of theirs.

    A model whose batch is shorter than the others' is filled up with one of its own rows, with a share of 0.
    """

    rows: Tensor  # models x rows
    share: Tensor  # of each row in its model's mean loss


def linear_layers(module: nn.Module) -> list[str] | None:
    """The names of the linear layers where the model is Flatten, Linear, ReLU, Linear, ..., Linear, and all of them are
    trained; else None."""
    if type(module) is not nn.Sequential or not all(p.requires_grad for p in module.parameters()):
        return None
    depth = len(module) // 2
    kinds: list[type[nn.Module]] = [nn.Flatten, *[nn.Linear, nn.ReLU] * (depth - 1), nn.Linear]
    if [type(child) for child in module] != kinds:
        return None
    linear = [name for name, child in module.named_children() if isinstance(child, nn.Linear)]
    biased = len(linear) == depth and all(getattr(module, name).bias is not None for name in linear)
    return linear if biased and repr(module[0]) == repr(nn.Flatten()) else None


class Stacked:
    """One model for each of `starts`, with whose values it begins; they are named as the module's state is.

    Weights are models x outputs x inputs, biases models x 1 x outputs.
    """

    def __init__(self, module: nn.Module, starts: Sequence[Mapping[str, Tensor]], training: Training, classes: int):
        names = linear_layers(module)
        assert names, "only a plain stack of linear layers and ReLU can be trained so"
        self.names, self.training, self.classes = names, training, classes
        dtype = next(module.parameters()).dtype

        def begun(key: str) -> Tensor:
            return torch.stack([start[key].detach() for start in starts]).to(dtype)

        self._weights = [begun(f"{name}.weight") for name in names]
        self._biases = [begun(f"{name}.bias").unsqueeze(1) for name in names]

    def train(self, x: Tensor, targets: Tensor, batches: Iterable[Batch]) -> None:
        """Every model takes its steps, with a fresh optimiser. Targets are classes, soft labels or values."""
        flat = x.flatten(1)
        update = UPDATES[self.training.optimizer](self._weights, self._biases, self.training)
        for batch in batches:
            index, shape = batch.rows.reshape(-1), (*batch.rows.shape, -1)
            inputs, out = self._forward(flat.index_select(0, index).view(shape))
            gradient = self._at_outputs(out, targets.index_select(0, index).view(shape))
            update(self._backward(inputs, gradient.mul_(batch.share[:, :, None])))

    def epoch(self, x: Tensor, targets: Tensor, steps: Steps) -> None:
        """The same from the rows of every model's batch, step by step; all models take all steps."""
        self.train(x, targets, (rectangle(step, x.dtype) for step in steps))

    def outputs(self, x: Tensor) -> Tensor:
        """models x rows x outputs."""
        count = len(self._weights[0])
        parts = [self._forward(part.expand(count, -1, -1))[1] for part in torch.split(x.flatten(1), ROWS)]
        return torch.cat(parts, dim=1)

    def weights(self) -> list[Tensor]:
        """A copy of everything that training changes."""
        return [value.clone() for value in self._parameters()]

    def restore(self, weights: Sequence[Tensor]) -> None:
        for value, before in zip(self._parameters(), weights, strict=True):
            value.copy_(before)

    def states(self) -> list[dict[str, Tensor]]:
        """Each model's parameters. They are views: all models stay in memory as long as one of them is kept."""
        order = [f"{name}.{kind}" for kind in ("weight", "bias") for name in self.names]
        parameters = dict(zip(order, self._parameters(), strict=True))
        by_layer = [f"{name}.{kind}" for name in self.names for kind in ("weight", "bias")]
        return [{key: parameters[key][k] for key in by_layer} for k in range(len(self._weights[0]))]

    def _parameters(self) -> list[Tensor]:
        return [*self._weights, *(bias[:, 0] for bias in self._biases)]

    def _forward(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """What went into each layer, and the outputs, of as many models as `x` has rows for."""
        count = len(x)
        inputs, out = [x], torch.bmm(x, self._weights[0][:count].mT).add_(self._biases[0][:count])
        for weight, bias in zip(self._weights[1:], self._biases[1:], strict=True):
            inputs.append(out.relu_())
            out = torch.bmm(inputs[-1], weight[:count].mT).add_(bias[:count])
        return inputs, out

    def _at_outputs(self, out: Tensor, targets: Tensor) -> Tensor:
        """The gradient of a row's own loss: cross-entropy, or the squared error where there are no classes.

        The two ways to take the softmax differ in the last bit, and training magnifies that. Each kind of target keeps
        its own, so that earlier scores are found again: torch's is four times slower for ten classes and a little
        faster for a hundred.
        """
        if not self.classes:
            return (out - targets).mul_(2)
        if targets.is_floating_point():
            return torch.softmax(out, dim=2).sub_(targets)
        odds = out.sub_(out.amax(2, keepdim=True)).exp_()
        probabilities = odds.div_(odds.sum(2, keepdim=True))
        return probabilities.scatter_add_(2, targets, out.new_full((1, 1, 1), -1).expand(targets.shape))

    def _backward(self, inputs: list[Tensor], gradient: Tensor) -> Found:
        found = []
        for layer in reversed(range(len(inputs))):
            found.append((gradient, inputs[layer]))
            if layer:
                before = torch.bmm(gradient, self._weights[layer][: len(gradient)])
                gradient = torch.ops.aten.threshold_backward(before, inputs[layer], 0)
        return found[::-1]


def rectangle(step: Sequence[Ints], dtype: torch.dtype) -> Batch:
    """The models' rows of one step, of different numbers, as one array."""
    longest = max(len(rows) for rows in step)
    rows = np.empty((len(step), longest), np.int64)
    share = np.zeros((len(step), longest))
    for i, own in enumerate(step):
        rows[i, : len(own)], rows[i, len(own) :] = own, own[-1]
        share[i, : len(own)] = 1 / len(own)
    return Batch(torch.from_numpy(rows), torch.from_numpy(share).to(dtype))


# ------------------------------------------------------------------ what a step does with the gradients


class _Adam:
    """The models that still train have all made the same number of steps, so one count serves them."""

    def __init__(self, weights: list[Tensor], biases: list[Tensor], training: Training):
        self.parameters, self.training = [*weights, *biases], training
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        self.steps = [torch.zeros(()) for _ in self.parameters]

    def __call__(self, found: Found) -> None:
        count = len(found[0][0])
        adam(
            [p[:count] for p in self.parameters],
            [*(torch.bmm(g.mT, a) for g, a in found), *(g.sum(1, keepdim=True) for g, _ in found)],
            [m[:count] for m in self.first],
            [m[:count] for m in self.second],
            [],
            self.steps,
            fused=True, amsgrad=False, beta1=0.9, beta2=0.999, lr=self.training.lr,
            weight_decay=self.training.weight_decay, eps=1e-8, maximize=False,
        )  # fmt: skip


class _Sgd:
    """The gradient is never formed: the step is added to the weights by the product itself."""

    def __init__(self, weights: list[Tensor], biases: list[Tensor], training: Training):
        self.layers = list(zip(weights, biases, strict=True))
        self.lr, self.kept = training.lr, 1 - training.lr * training.weight_decay

    def __call__(self, found: Found) -> None:
        for (weight, bias), (gradient, inputs) in zip(self.layers, found, strict=True):
            count = len(gradient)
            weight[:count].baddbmm_(gradient.mT, inputs, beta=self.kept, alpha=-self.lr)
            if self.kept != 1:
                bias[:count].mul_(self.kept)
            bias[:count].add_(gradient.sum(1, keepdim=True), alpha=-self.lr)


UPDATES: dict[str, type[_Adam] | type[_Sgd]] = {"adam": _Adam, "sgd": _Sgd}
