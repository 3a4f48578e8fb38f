"""What a server reads off the updates of a round (what nobody or one record has, labels of one step, the model that was
sent out), in units of one local epoch over the records behind them."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.measuring import Case, interleaved, verdict
from fedaudit.learn.tasks import Training, build_task
from fedaudit.questions.update import UpdateSection
from fedaudit.questions.update.parts import Known, OneUpdate, parts
from fedaudit.types import Records

PARTIES, ROUNDS, RECORDS, GOAL = 5, 10, 1538, 0.1  # as many records as a party of the demo has
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
    state, step = task.initial(0), Training("sgd", 10.0, 1, RECORDS)
    sent = [task.train(state, own, step, rng).state for own in mine]

    def compared(names: tuple[str, ...], parties: int) -> Case:
        def look() -> None:
            known = Known(outsiders=outsiders, classes=100, training=step.__dict__)
            for one in sent[:parties]:
                update = OneUpdate(received=state, sent=one, task=task, examples=RECORDS)
                for name in names:
                    parts()[name].look(update, known, UpdateSection())

        def epoch() -> None:
            for own in mine[:parties]:
                task.train(state, own, Training("sgd", 0.1, 1, 64), np.random.default_rng(0))

        return interleaved(look, epoch, GOAL)

    looked = {f"{name}, {PARTIES} parties": compared((name,), PARTIES) for name in LOOKED}
    looked |= {f"together, {many} of them": compared(LOOKED, many) for many in (1, PARTIES)}
    whole = looked[f"together, {PARTIES} of them"]
    # An audit looks at three rounds: the first, the middle and the last.
    cases = {f"{PARTIES} parties, for each of {ROUNDS} rounds": replace(whole, ratio=whole.ratio * 3 / ROUNDS)}
    shown = {name: round(one.ratio, 3) for name, one in looked.items()}
    return verdict("one-update", "lower", cases, of_a_round_that_is_looked_at=shown, threads=torch.get_num_threads())
