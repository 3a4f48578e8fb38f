"""Forward signals and the last layer's gradient norm of all records, in units of one local epoch over the same ones."""

from typing import Any

import numpy as np
import torch

from benchmarks.measuring import interleaved, verdict
from fedaudit.adversary.signals import measure
from fedaudit.adversary.vantage import View, view
from fedaudit.learn.tasks import Training, build_task
from fedaudit.types import Bools, Moment, Records, Vantage

SIGNALS = ("logit", "loss", "confidence", "modified-entropy", "gradient-norm")
SETTINGS: dict[str, tuple[str, tuple[int, ...], int, int, float]] = {
    "MLP 600-512-256-128-100": ("mlp", (600,), 100, 6000, 0.25),
    "CNN": ("cnn", (3, 32, 32), 100, 768, 0.5),
    "ResNet-20": ("resnet20", (3, 32, 32), 100, 256, 0.35),
}


def run() -> dict[str, Any]:
    cases = {}
    for title, (model, shape, classes, n, goal) in SETTINGS.items():
        rng = np.random.default_rng(0)
        x = (
            (rng.random((n, *shape)) < 0.1).astype(np.float32)
            if model == "mlp"
            else rng.random((n, *shape), np.float32)
        )
        rows = Records(x, rng.integers(0, classes, n), np.arange(n).astype(np.str_))
        task = build_task(model, shape, classes, {})
        state = task.initial(0)
        seen = view(Vantage.CLIENT, "global", Moment(1), task, state)
        known = np.zeros(n, bool)

        def signals(seen: View = seen, rows: Records = rows, known: Bools = known) -> None:
            measure(SIGNALS, seen, rows, known)

        def epoch(state: Any = state, rows: Records = rows, task: Any = task) -> None:
            task.train(state, rows, Training("adam", 1e-3, 1, 64), np.random.default_rng(0))

        cases[title] = interleaved(signals, epoch, goal)
    return verdict("forward-signals", "lower", cases, signals=SIGNALS, threads=torch.get_num_threads())
