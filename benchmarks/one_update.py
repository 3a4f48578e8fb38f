"""What a server reads off the updates of a round (what nobody or one record has, labels of one step, the model that was
sent out), in units of one local epoch over the records behind them."""

from typing import Any

import numpy as np
import torch

from benchmarks.measuring import Case, interleaved, verdict
from fedaudit.learn.tasks import Training, build_task
from fedaudit.questions.update import UpdateSection
from fedaudit.questions.update.parts import Known, OneUpdate, parts
from fedaudit.types import Records

PARTIES, RECORDS, GOAL = 5, 1538, 0.1  # as in the demo
LOOKED = ("presence", "labels", "incoming")


def run() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    often = 0.3 / (1 + np.arange(600) / 2)  # a few values are so rare that some party has none of them
    x = (rng.random(((PARTIES + 2) * RECORDS, 600)) < often).astype(np.float32)
    rows = Records(x, rng.integers(0, 100, len(x)), np.arange(len(x)).astype(np.str_))
    mine = [rows.take(np.arange(at * RECORDS, (at + 1) * RECORDS)) for at in range(PARTIES)]
    outsiders = rows.take(np.arange(PARTIES * RECORDS, len(rows)))
    task = build_task("mlp", (600,), 100, {})
    # Labels are random, so that a usual step would be lost in rounding.
    state, whole = task.initial(0), Training("sgd", 10.0, 1, RECORDS)
    sent = [task.train(state, own, whole, rng).state for own in mine]

    def compared(names: tuple[str, ...], parties: int) -> Case:
        def look() -> None:
            known = Known(outsiders=outsiders, classes=100, training=whole.__dict__)
            for one in sent[:parties]:
                update = OneUpdate(received=state, sent=one, task=task, examples=RECORDS)
                for name in names:
                    parts()[name].look(update, known, UpdateSection())

        def epoch() -> None:
            for own in mine[:parties]:
                task.train(state, own, Training("sgd", 0.1, 1, 64), np.random.default_rng(0))

        return interleaved(look, epoch, GOAL)

    cases = {f"{name}, {PARTIES} parties": compared((name,), PARTIES) for name in LOOKED}
    cases |= {f"together, {many} of them": compared(LOOKED, many) for many in (1, PARTIES)}
    return verdict("one-update", "lower", cases, threads=torch.get_num_threads())
