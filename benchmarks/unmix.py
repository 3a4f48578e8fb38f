"""Unmixing an update of one round, all layers, all candidates, in units of one local epoch over the same records."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.ghost import train, updates
from benchmarks.matched import records
from benchmarks.measuring import Case, interleaved, verdict
from fedaudit.adversary.signals import unmix
from fedaudit.learn.tasks import TorchTask, build_task
from fedaudit.types import State


class Adapted(nn.Module):
    """A linear layer that stays as it is, beside a product of two narrow ones that is trained (LoRA)."""

    def __init__(self, width: int, out: int, rank: int = 8):
        super().__init__()
        self.frozen = nn.Linear(width, out).requires_grad_(False)
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.frozen(x) + self.up(self.down(x))
        return found


class Sequences(nn.Module):
    """Tokens to the class of the text through four adapted layers: an embedding and a head that are not trained."""

    def __init__(self, width: int = 96):
        super().__init__()
        self.embedding = nn.Embedding(500, width).requires_grad_(False)
        self.layers = nn.ModuleList(Adapted(width, width) for _ in range(4))
        self.head = nn.Linear(width, 100).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x.long())
        for layer in self.layers:
            h = h + torch.tanh(layer(h))
        found: Tensor = self.head(h.mean(1))
        return found


# model -> task, shape, records, goal in epochs
SETTINGS: dict[str, tuple[TorchTask, tuple[int, ...], int, float]] = {
    "MLP": (build_task("mlp", (600,), 100, {}), (600,), 4096, 1.5),
    "MLP, solved directly": (build_task("mlp", (600,), 100, {}), (600,), 2048, 1.5),
    "LoRA, 32 positions": (TorchTask(Sequences, 100), (32,), 2048, 1.5),
    "ResNet-20": (build_task("resnet20", (3, 32, 32), 100, {}), (3, 32, 32), 1024, 2.5),
}


def run() -> dict[str, Any]:
    cases: dict[str, Case] = {}
    for title, (task, shape, n, goal) in SETTINGS.items():
        rows = records(shape, n)
        state = task.initial(0)
        sent = updates(task, state, rows, 1)[0]
        module = task.fresh(state)
        trained = [name for name, p in module.named_parameters() if p.requires_grad]
        update = {name: torch.from_numpy(state[name] - sent[name]) for name in trained}
        x, y = torch.from_numpy(rows.x), torch.from_numpy(rows.y)
        setup = unmix.prepare(module, task.losses, x, y, damping=1.0, ridge=0.1, sketch=80, adaptive=True)
        way = partial(of_a_round, task, state, setup, update)
        cases[title] = interleaved(way, partial(train, task, state, rows), goal)
    return verdict("unmix", "lower", cases, threads=torch.get_num_threads())


def of_a_round(task: TorchTask, state: State, setup: unmix.UnmixSetup, update: dict[str, Tensor]) -> Tensor:
    return unmix.unmix(setup, task.fresh(state), update).score
