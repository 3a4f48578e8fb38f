"""As `ghost`, with the updates of ten parties at once: what fedmia and source cost a server of ten parties."""

from functools import partial
from typing import Any

import torch

from benchmarks.ghost import train, updates, world
from benchmarks.measuring import Case, interleaved, verdict
from fedaudit.adversary.signals.updates import statistics

GOALS = {"MLP 1.3M": 3.5, "ResNet-20": 1.5}  # in local epochs over the same records


def run() -> dict[str, Any]:
    cases: dict[str, Case] = {}
    for title, goal in GOALS.items():
        task, state, rows = world(title)
        sent = updates(task, state, rows, 10)
        cases[f"{title}, epochs"] = interleaved(
            partial(statistics, task, state, sent, rows), partial(train, task, state, rows), goal
        )
    return verdict("ghost-ten", "lower", cases, updates=10, threads=torch.get_num_threads())
