"""A federated round of 100 small MLP parties: the stacked path against deepcopy and a torch training loop."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.measuring import interleaved, verdict
from fedaudit.federation.simulate import Trainer, federate, stackable
from fedaudit.learn.tasks import TorchTask, Training, build_task
from fedaudit.types import Plan, Records

PARTIES, RECORDS, BATCH, LR = 100, 200, 10, 0.05
SETTINGS: dict[str, tuple[tuple[int, ...], float]] = {
    "7k parameters": ((32, 64, 64, 10), 25.0),
    "90k parameters": ((600, 128, 100), 6.0),
}


def run() -> dict[str, Any]:
    cases = {}
    for title, (widths, goal) in SETTINGS.items():
        rng = np.random.default_rng(0)
        task = build_task("mlp", widths[:1], widths[-1], {"hidden": widths[1:-1]})
        trainers = [
            Trainer(
                f"party-{i}",
                Records(
                    rng.random((RECORDS, widths[0]), np.float32),
                    rng.integers(0, widths[-1], RECORDS),
                    np.arange(RECORDS).astype(np.str_),
                ),
                Training("sgd", LR, 1, BATCH),
            )
            for i in range(PARTIES)
        ]
        assert stackable(task, trainers)
        naive, ours = ways(task, trainers)
        cases[title] = interleaved(naive, ours, goal, times=3)
    detail = {"records_a_party": RECORDS, "batch": BATCH, "optimizer": "sgd", "threads": torch.get_num_threads()}
    return verdict("round", "higher", cases, **detail)


def ways(task: TorchTask, trainers: list[Trainer]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Both a whole round: everybody trains from the same model, and the mean is taken."""
    plan = Plan(tuple(t.name for t in trainers))
    data = [(torch.from_numpy(t.records.x), torch.from_numpy(t.records.y)) for t in trainers]
    loss = nn.CrossEntropyLoss()

    def naive() -> Any:
        states = []
        for x, y in data:
            model = deepcopy(task.architecture)
            optimizer = torch.optim.SGD(model.parameters(), lr=LR)
            for batch in torch.split(torch.randperm(len(x)), BATCH):
                optimizer.zero_grad()
                loss(model(x[batch]), y[batch]).backward()
                optimizer.step()
            states.append(model.state_dict())
        return {key: torch.stack([state[key] for state in states]).mean(0) for key in states[0]}

    return naive, lambda: next(federate(task, trainers, [plan], 0))
