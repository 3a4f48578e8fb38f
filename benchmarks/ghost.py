"""Per-record norm and product with one update, over all layers, for all records: in units of one local epoch over the
same records, and against three ways of forming every record's gradient."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from benchmarks.measuring import Case, interleaved, verdict
from fedaudit.adversary.signals.updates import statistics
from fedaudit.learn.tasks import TorchTask, Training, build_task
from fedaudit.types import Records, State

# model -> name, options, shape, classes, records, goal in epochs
SETTINGS: dict[str, tuple[str, dict[str, Any], tuple[int, ...], int, int, float]] = {
    "MLP 1.3M": ("mlp", {"hidden": (1024, 512, 256, 128)}, (600,), 100, 2048, 0.6),
    "CNN": ("cnn", {"filters": 16}, (3, 32, 32), 100, 512, 1.3),
    "ResNet-20": ("resnet20", {}, (3, 32, 32), 100, 384, 1.3),
}
PEER_ROWS = 256  # peers take long; all are compared on the same records


def run() -> dict[str, Any]:
    cases: dict[str, Case] = {}
    for title, (*_, goal) in SETTINGS.items():
        task, state, rows = world(title)
        sent = updates(task, state, rows, 1)
        cases[f"{title}, epochs"] = interleaved(
            partial(statistics, task, state, sent, rows), partial(train, task, state, rows), goal
        )
    task, state, rows = world("MLP 1.3M")
    rows = rows.take(np.arange(PEER_ROWS))
    sent = updates(task, state, rows, 1)
    for peer, (way, goal) in PEERS.items():
        theirs = tuned(partial(way, task, state, sent[0], rows))
        cases[f"MLP 1.3M, of {peer}"] = interleaved(partial(statistics, task, state, sent, rows), theirs, goal, times=3)
    return verdict("ghost", "lower", cases, threads=torch.get_num_threads())


def world(title: str) -> tuple[TorchTask, State, Records]:
    name, options, shape, classes, n, _ = SETTINGS[title]
    rng = np.random.default_rng(0)
    sparse = (rng.random((n, *shape)) < 0.1).astype(np.float32)
    x = sparse if len(shape) == 1 else rng.random((n, *shape), np.float32)
    rows = Records(x, rng.integers(0, classes, n), np.arange(n).astype(np.str_))
    task = build_task(name, shape, classes, options)
    return task, task.initial(0), rows


def train(task: TorchTask, state: State, rows: Records, seed: int = 0) -> State:
    return task.train(state, rows, Training("adam", 1e-3, 1, 64), np.random.default_rng(seed)).state


def updates(task: TorchTask, state: State, rows: Records, count: int) -> list[State]:
    few = rows.take(np.arange(64))
    return [train(task, state, few, seed) for seed in range(count)]


# ------------------------------------------------------------------ peers: every record's gradient, then sums


def tuned(way: Callable[[int], None]) -> Callable[[], None]:
    """With the batch size that is fastest here."""

    def seconds(size: int) -> float:
        started = time.perf_counter()
        way(size)
        return time.perf_counter() - started

    way(32)  # warm
    best = min((16, 32, 64, 128), key=seconds)
    return lambda: way(best)


def loop(task: TorchTask, state: State, sent: State, rows: Records, size: int) -> None:
    """One backward pass per record."""
    module, direction = _module(task, state, sent)
    for x, y in _batches(rows, 1):
        gradients = torch.autograd.grad(task.losses(module(x), y).sum(), list(module.parameters()))
        _sums([g[None] for g in gradients], direction)


def vmapped(task: TorchTask, state: State, sent: State, rows: Records, size: int) -> None:
    """vmap(grad) of torch.func, a batch at a time."""
    module, direction = _module(task, state, sent)
    parameters = {name: p.detach() for name, p in module.named_parameters()}

    def loss(p: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return task.losses(functional_call(module, p, (x[None],)), y[None]).sum()

    each = vmap(grad(loss), (None, 0, 0))
    for x, y in _batches(rows, size):
        _sums(list(each(parameters, x, y).values()), direction)


def opacus(task: TorchTask, state: State, sent: State, rows: Records, size: int) -> None:
    """The grad_sample of Opacus, a batch at a time."""
    from opacus.grad_sample import GradSampleModule

    module, direction = _module(task, state, sent)
    wrapped = GradSampleModule(module.train(), loss_reduction="sum")  # it takes no notes in evaluation mode
    for x, y in _batches(rows, size):
        torch.autograd.backward(task.losses(wrapped(x), y).sum())
        _sums([p.grad_sample for p in module.parameters()], direction)  # type: ignore[attr-defined]
        for p in module.parameters():
            p.grad = p.grad_sample = None  # type: ignore[attr-defined]


PEERS = {"Opacus": (opacus, 1 / 15), "one backward per record": (loop, 1 / 20), "vmap(grad)": (vmapped, 1.0)}


def _module(task: TorchTask, state: State, sent: State) -> tuple[nn.Module, list[Tensor]]:
    module = task.fresh(state).eval()
    return module, [torch.from_numpy(state[name] - sent[name]) for name, _ in module.named_parameters()]


def _batches(rows: Records, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    for i in range(0, len(rows), size):
        yield torch.from_numpy(rows.x[i : i + size]), torch.from_numpy(rows.y[i : i + size])


def _sums(gradients: list[Tensor], direction: list[Tensor]) -> tuple[Tensor, Tensor]:
    flat = [g.flatten(1) for g in gradients]
    norm2 = sum(torch.einsum("np,np->n", g, g) for g in flat)
    inner = sum(g @ u.flatten() for g, u in zip(flat, direction, strict=True))
    return torch.as_tensor(norm2), torch.as_tensor(inner)
