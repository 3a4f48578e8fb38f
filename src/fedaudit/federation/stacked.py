"""Many small fully connected parties trained at once: the steps of the plain loop, as batched matrix products.

For a small model most of a step's time is not arithmetic but calling, and a hundred parties make a hundred times the
calls. Here the parties' weights are stacked and one call serves all; the gradient at the logits has a closed form, so
no graph is recorded either.

1. Each party draws from its own generator exactly what `TorchTask.train` would draw.
2. Parties are ordered by their number of steps. Those still training are then always the first ones and have all made
   the same number of steps; those who are done are no longer in the slice.
3. A party's last batch may be short: it is filled up with one of its own rows, whose gradient is weighted with zero.

In float64 a round equals the plain loop's to 1e-10; in float32 the last bits differ. Which of the two is taken follows
from the configuration alone (docs/decisions/0002-speed.md), so a resumed run takes the same one.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.optim.adam import adam

from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.types import Records, State, Trained

MIN_PARTIES = 8
MAX_PARAMETERS = 500_000
# Weights (with Adam also two moments and a gradient) of the parties trained together: what a core's cache holds.
CHUNK_BYTES = 8 * 2**20


@dataclass(frozen=True)
class Job:
    """One party in one round."""

    name: str
    records: Records
    rng: np.random.Generator


def worthwhile(task: TorchTask, parties: int) -> bool:
    """Where the gain is large. Few parties keep the plain loop, though they would gain a little, too."""
    names = linear_layers(task)
    parameters = sum(p.numel() for p in task.architecture.parameters())
    return names is not None and parties >= MIN_PARTIES and parameters <= MAX_PARAMETERS


def linear_layers(task: TorchTask) -> list[str] | None:
    """The names of the linear layers where the model is Flatten, Linear, ReLU, Linear, ..., Linear; else None."""
    module = task.architecture
    if type(task) is not TorchTask or type(module) is not nn.Sequential:
        return None
    depth = len(module) // 2
    kinds: list[type[nn.Module]] = [nn.Flatten, *[nn.Linear, nn.ReLU] * (depth - 1), nn.Linear]
    if [type(child) for child in module] != kinds:
        return None
    linear = [name for name, child in module.named_children() if isinstance(child, nn.Linear)]
    biased = len(linear) == depth and all(getattr(module, name).bias is not None for name in linear)
    return linear if biased and repr(module[0]) == repr(nn.Flatten()) else None


def train(task: TorchTask, model: State, jobs: Sequence[Job], training: Training) -> dict[str, Trained]:
    """What every party sends after training from `model`, as `task.train` would have it, in the order of the jobs."""
    copies = 4 if training.optimizer == "adam" else 1
    bytes_each = copies * sum(value.nbytes for value in model.values())
    chunks = max(1, round(len(jobs) * bytes_each / CHUNK_BYTES))
    ordered = sorted(jobs, key=lambda job: (-_steps(len(job.records), training), job.name))
    sent: dict[str, Trained] = {}
    for index in np.array_split(np.arange(len(jobs)), min(chunks, len(jobs))):
        sent |= _train_chunk(task, model, [ordered[i] for i in index], training)
    return {job.name: sent[job.name] for job in jobs}


def _train_chunk(task: TorchTask, model: State, jobs: Sequence[Job], training: Training) -> dict[str, Trained]:
    started = time.perf_counter()
    names = linear_layers(task) or []
    stack = _Stack(task, model, names, len(jobs))
    x = torch.cat([torch.from_numpy(np.ascontiguousarray(job.records.x)).flatten(1) for job in jobs])
    y = torch.cat([torch.from_numpy(np.ascontiguousarray(job.records.y)) for job in jobs])
    rows, weights, active = _schedule(jobs, training)
    shares = torch.from_numpy(weights).to(x.dtype)
    for step, (index, share) in enumerate(zip(torch.from_numpy(rows), shares, strict=True)):
        still = active[step]
        flat = index[:still].reshape(-1)
        shape = (still, index.shape[1], -1)
        stack.step(
            x.index_select(0, flat).view(shape), y.index_select(0, flat).view(shape), share[:still, :, None], training
        )
    seconds = (time.perf_counter() - started) / training.epochs
    total = max(1, sum(len(job.records) for job in jobs))
    states = stack.states()
    return {
        job.name: Trained(state, len(job.records), seconds * len(job.records) / total)
        for job, state in zip(jobs, states, strict=True)
    }


# ------------------------------------------------------------------ who learns from which rows in which step


def _steps(records: int, training: Training) -> int:
    return training.epochs * -(-records // training.batch_size)


def _schedule(jobs: Sequence[Job], training: Training) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Rows and their weights, both steps x parties x batch, and how many parties are still training in each step."""
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
    return rows, weights, [int(np.count_nonzero(steps > step)) for step in range(steps[0])]


# ------------------------------------------------------------------ the stacked model


class _Stack:
    """One model for each party: weights are parties x outputs x inputs, biases parties x 1 x outputs."""

    def __init__(self, task: TorchTask, model: State, names: Sequence[str], parties: int):
        self.names, self.classes = names, task.classes
        like = task.architecture.state_dict()

        def repeated(name: str, *shape: int) -> torch.Tensor:
            value = torch.from_numpy(np.array(model[name])).to(like[name].dtype)
            return value.view(shape).expand(parties, -1, -1).clone()

        self.weights = [repeated(f"{name}.weight", *model[f"{name}.weight"].shape) for name in names]
        self.biases = [repeated(f"{name}.bias", 1, -1) for name in names]
        self.moments: tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]] | None = None

    def step(self, x: torch.Tensor, y: torch.Tensor, share: torch.Tensor, training: Training) -> None:
        """One mini-batch for each of the first parties; `share` is the weight of each row in its party's mean loss."""
        parties = len(x)
        weights = [w[:parties] for w in self.weights]
        biases = [b[:parties] for b in self.biases]
        inputs, out = [x], torch.bmm(x, weights[0].mT).add_(biases[0])
        for weight, bias in zip(weights[1:], biases[1:], strict=True):
            inputs.append(out.relu_())
            out = torch.bmm(inputs[-1], weight.mT).add_(bias)
        gradient = self._at_outputs(out, y).mul_(share)
        found: list[tuple[torch.Tensor, torch.Tensor]] = []
        for layer in reversed(range(len(weights))):
            found.append((gradient, inputs[layer]))
            if layer:
                before = torch.bmm(gradient, weights[layer])
                gradient = torch.ops.aten.threshold_backward(before, inputs[layer], 0)
        update = self._adam if training.optimizer == "adam" else _sgd
        update(weights, biases, found[::-1], training.lr)

    def _at_outputs(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The gradient of a row's own loss: cross-entropy, or the squared error where there are no classes."""
        if not self.classes:
            return (out - y).mul_(2)
        odds = out.sub_(out.amax(2, keepdim=True)).exp_()  # torch.softmax is four times slower for ten classes
        probabilities = odds.div_(odds.sum(2, keepdim=True))
        return probabilities.scatter_add_(2, y, out.new_full((1, 1, 1), -1).expand(y.shape))

    def _adam(
        self,
        weights: list[torch.Tensor],
        biases: list[torch.Tensor],
        found: list[tuple[torch.Tensor, torch.Tensor]],
        lr: float,
    ) -> None:
        if self.moments is None:
            whole = [*self.weights, *self.biases]
            self.moments = (
                [torch.zeros_like(p) for p in whole],
                [torch.zeros_like(p) for p in whole],
                [torch.zeros(()) for _ in whole],
            )
        parties = len(weights[0])
        first, second, steps = self.moments
        adam(
            [*weights, *biases],
            [*(torch.bmm(g.mT, a) for g, a in found), *(g.sum(1, keepdim=True) for g, _ in found)],
            [m[:parties] for m in first],
            [m[:parties] for m in second],
            [],
            steps,
            fused=True, amsgrad=False, beta1=0.9, beta2=0.999, lr=lr, weight_decay=0.0, eps=1e-8, maximize=False,
        )  # fmt: skip

    def states(self) -> list[State]:
        """Each party's parameters. They are views: all of a chunk stay in memory as long as one of them is kept."""
        parameters = {f"{name}.weight": w.numpy() for name, w in zip(self.names, self.weights, strict=True)}
        parameters |= {f"{name}.bias": b[:, 0].numpy() for name, b in zip(self.names, self.biases, strict=True)}
        order = [f"{name}.{kind}" for name in self.names for kind in ("weight", "bias")]
        return [{key: parameters[key][k] for key in order} for k in range(len(self.weights[0]))]


def _sgd(
    weights: list[torch.Tensor],
    biases: list[torch.Tensor],
    found: list[tuple[torch.Tensor, torch.Tensor]],
    lr: float,
) -> None:
    """The gradient is never formed: the step is added to the weights by the product itself."""
    for weight, bias, (gradient, inputs) in zip(weights, biases, found, strict=True):
        weight.baddbmm_(gradient.mT, inputs, alpha=-lr)
        bias.add_(gradient.sum(1, keepdim=True), alpha=-lr)
