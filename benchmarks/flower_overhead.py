"""What an audit costs beside a Flower app, on `baskets` with the default MLP and four parties.

The party: its mod, from the message that arrives to the reply that leaves, without the training, for each audited
record; against one local epoch for each trained record. The goal was set before the matched filter and round-gain were
among the default attacks; what the others cost is in the detail.

The server: recording every model of a round, on disk, against the round (four parties train one epoch, FedAvg
averages), in processor time, because the disk is waited for behind the training; and what the round itself waits for.
"""

import itertools
import logging
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from benchmarks.measuring import Case, interleaved, verdict
from fedaudit.adversary.attacks import DEFAULTS, made
from fedaudit.config.registry import Options
from fedaudit.data import load
from fedaudit.data.set_aside import set_aside
from fedaudit.integrations.flower.client import PartyAudit
from fedaudit.integrations.flower.server import trace_strategy
from fedaudit.integrations.party import UNAUDITED
from fedaudit.learn.tasks import Training, build_task
from fedaudit.types import State

PARTIES, PARTY_GOAL, SERVER_GOAL, TIMES = 4, 0.5, 0.05, 7
ADDED = ("matched-filter", "round-gain")  # to the default attacks, since the goal was set


def arrays(state: State) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in state.items()})


class Ready(FedAvg):
    """A strategy that does nothing of its own, so that what is timed around it is the recording."""

    def __init__(self, made: Iterable[ArrayRecord]):
        super().__init__(fraction_evaluate=0.0)
        self.made = iter(made)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        return []

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord, None]:
        return next(self.made), None


class Ward:
    """One of the parties: its records and game, a model as it arrives and as it leaves, and an epoch to compare."""

    def __init__(self) -> None:
        baskets = load(Options(name="baskets"))
        self.rng = np.random.default_rng(0)
        order = self.rng.permutation(len(baskets.records))
        mine = baskets.records.take(order[: len(baskets.records) // PARTIES])
        self.members, self.game = set_aside(mine.x, mine.y, subject=mine.subject)
        self.task = build_task("mlp", baskets.input_shape, baskets.classes, {})
        self.start = self.task.initial(0)
        self.trained = self.task.train(self.start, self.members, Training(epochs=1), self.rng).state

    def epoch(self) -> None:
        self.task.train(self.start, self.members, Training(epochs=1), self.rng)


def moved(state: State, step: int) -> State:
    """Another model every time, as in every round."""
    return {name: value + np.float32(1e-6 * step) for name, value in state.items()}


def run() -> dict[str, Any]:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    ward = Ward()
    members, game, task, start = ward.members, ward.game, ward.task, ward.start
    numbers = itertools.count(1)

    def party(audit: PartyAudit, context: Context) -> None:
        step = next(numbers)
        config = ConfigRecord({"server-round": step})
        content = RecordDict({"arrays": arrays(moved(start, step)), "config": config})
        message = Message(content, dst_node_id=1, message_type="train")
        metrics = MetricRecord({"num-examples": len(members)})
        reply = Message(RecordDict({"arrays": arrays(moved(ward.trained, step)), "metrics": metrics}), reply_to=message)
        audit(message, context, lambda *_: reply)
        assert UNAUDITED not in context.state, context.state[UNAUDITED]

    def per_record(attacks: Sequence[str] | None) -> Case:
        audit = PartyAudit(task, lambda _: game, rounds=1000, attacks=attacks)
        context = Context(1, 1, {}, RecordDict(), {})
        with tempfile.TemporaryDirectory() as home, patch.dict("os.environ", FLWR_HOME=home):  # its memory is new
            case = interleaved(partial(party, audit, context), ward.epoch, PARTY_GOAL)
        return replace(case, ratio=case.ratio * len(members) / len(game.candidates))

    defaults = [name for name in DEFAULTS["record"] if made(name).vantage is None]
    before = [name for name in defaults if name not in ADDED]
    with tempfile.TemporaryDirectory() as folder:
        server = _server(Path(folder), ward)
    detail = {
        "audited": len(game.candidates),
        "trained": len(members),
        "parameters": sum(v.size for v in start.values()),
        f"party, without {' and '.join(ADDED)}": round(per_record(before).ratio, 3),
    }
    return verdict("flower-overhead", "lower", {"party": per_record(None), **server}, **detail)


def _server(folder: Path, ward: Ward) -> dict[str, Case]:
    start, sent, members = ward.start, ward.trained, ward.members
    made = (arrays(moved(start, step)) for step in itertools.count(1))
    strategy = trace_strategy(Ready(made), out=folder)
    grid: Any = None  # `Ready` asks nobody
    numbers = itertools.count(1)

    def replies(step: int) -> list[Message]:
        asked = [Message(RecordDict(), dst_node_id=node, message_type="train") for node in range(2, 2 + PARTIES)]
        metrics = MetricRecord({"num-examples": len(members)})
        return [
            Message(RecordDict({"arrays": arrays(moved(sent, step)), "metrics": metrics}), reply_to=message)
            for message in asked
        ]

    prepared = {step: (arrays(moved(start, step - 1)), replies(step)) for step in range(1, TIMES + 2)}
    waited = []

    def recording() -> None:
        step = next(numbers)
        broadcast, answers = prepared[step]
        begin = time.perf_counter()
        strategy.configure_train(step, broadcast, ConfigRecord(), grid)
        strategy.aggregate_train(step, answers)
        waited.append(time.perf_counter() - begin)
        strategy.recorder.settle()

    def whole_round() -> None:
        for _ in range(PARTIES):
            ward.epoch()
        FedAvg().aggregate_train(1, prepared[1][1])

    pairs = []
    for _ in range(TIMES + 1):
        begin = time.process_time()
        recording()
        middle, wall = time.process_time(), time.perf_counter()
        whole_round()
        pairs.append((middle - begin, time.process_time() - middle, waited[-1] / (time.perf_counter() - wall)))
    pairs = pairs[1:]
    assert strategy.session.gaps == []
    assert strategy.session.last == TIMES + 1
    strategy.session.finish(None)
    seconds = median(a for a, _, _ in pairs), median(b for _, b, _ in pairs)
    recorded = Case(median(a / b for a, b, _ in pairs), SERVER_GOAL, seconds)
    return {"server, processor": recorded, "server, waits": replace(recorded, ratio=median(w for *_, w in pairs))}
