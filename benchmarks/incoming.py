"""A party's look at the model that comes in, and the server's search for whole records, in units of one local epoch."""

from typing import Any

import numpy as np
import torch

from benchmarks.measuring import interleaved, verdict
from fedaudit.learn.tasks import Training, build_task
from fedaudit.questions.update.incoming import Incoming, layers_of
from fedaudit.questions.update.inputs import read_off
from fedaudit.questions.update.recovery import MovedLayer
from fedaudit.types import Records

RECORDS, GOAL = 1538, 0.1  # as many as a party of the demo has


def run() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x, y = (rng.random((2 * RECORDS, 600)) < 0.1).astype(np.float32), rng.integers(0, 100, 2 * RECORDS)
    rows = Records(x, y, np.arange(2 * RECORDS).astype(np.str_))
    mine, outsiders = rows.take(np.arange(RECORDS)), rows.take(np.arange(RECORDS, 2 * RECORDS))
    task = build_task("mlp", (600,), 100, {})
    state = task.initial(0)
    how = Training("adam", 1e-3, 1, 64)
    sent = task.train(state, mine, how, rng).state
    w, b = (np.asarray(state[f"1.{name}"], np.float64) for name in ("weight", "bias"))
    layer, before = MovedLayer(w, b, sent["1.weight"] - w, sent["1.bias"] - b), Incoming().look(state)[1]

    def epoch() -> None:
        task.train(state, mine, how, np.random.default_rng(0))

    def incoming() -> None:
        before.look(sent, layers_of(task, sent, mine.x))

    def inputs() -> None:  # there are too many records, which has to be seen at once
        read_off(layer, outsiders, np.random.default_rng(0), RECORDS)

    cases = {
        "the model that comes in": interleaved(incoming, epoch, GOAL),
        f"whole records of an update of {RECORDS}": interleaved(inputs, epoch, GOAL),
    }
    return verdict("incoming", "lower", cases, threads=torch.get_num_threads())
