"""Trains the federation of a configuration with Flower's simulation. It produces the same rounds as the local engine.

The server runs in a thread of this process and waits after each round until it has been audited. Parties run in Ray's
worker processes, each of which prepares the configuration once and then trains as the plain loop does.
"""

import json
import logging
import os
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

# Before Flower and Ray are imported: an auditor does not report to third parties.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from fedaudit.config import code
from fedaudit.config.schema import parse
from fedaudit.errors import FedauditError
from fedaudit.federation import START, scheduled
from fedaudit.federation.simulate import party_rng
from fedaudit.integrations.flower import secagg as flower_secagg
from fedaudit.integrations.flower.server import EPOCH_SECONDS, EXAMPLES, RecordedStrategy
from fedaudit.integrations.plain import matched
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.session import Session, some
from fedaudit.types import Moment, Plan, Round, State, Trained


def rounds(prepared: Prepared, after: Moment = START, model: State | None = None) -> Iterator[Round]:
    """One `Round` for each plan, as it happens. Closing the iterator ends the simulation."""
    funnel = Funnel(after)
    server, client = ServerApp(), client_app(prepared)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        serve(grid, context, prepared, funnel, model)

    def simulate() -> None:
        quiet = logging.getLogger("flwr")
        level = quiet.level
        quiet.setLevel(logging.ERROR)
        try:
            run_simulation(server, client, len(prepared.parties), backend_config=_BACKEND)
            funnel.done.put(None)
        except BaseException as error:
            funnel.done.put(error)
        finally:
            quiet.setLevel(level)

    thread = threading.Thread(target=simulate, name="flower-simulation", daemon=True)
    thread.start()
    try:
        yield from funnel.rounds()
    finally:
        funnel.stopped.set()
        thread.join()


_BACKEND: Any = {
    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    "init_args": {"include_dashboard": False, "log_to_driver": False},
}


# ------------------------------------------------------------------ the server


def serve(grid: Grid, context: Context, prepared: Prepared, funnel: "Funnel", model: State | None) -> None:
    """The server's part: every planned round that is still to come, recorded into the funnel."""
    try:
        _serve(grid, context, prepared, funnel, model)
    finally:
        prepared.gaps.extend(some(funnel.gaps))


def _serve(grid: Grid, context: Context, prepared: Prepared, funnel: "Funnel", model: State | None) -> None:
    plans = list(scheduled(prepared.plans, funnel.after))
    if prepared.config.federation.step != 1:
        what = "federation.server_lr is set, and Flower's averaging takes the whole step"
        raise FedauditError("server-lr", what, "Remove it, or train with the local engine.")
    if any(plan.canaries is not None for _, plan in plans):
        what = "a running canary is taken out of what the server keeps, which Flower's strategies do not do"
        raise FedauditError("canary-running", what, 'Set audit.canary.mode = "probes", or train with the local engine.')
    start = prepared.task.initial(prepared.config.federation.seed) if model is None else model
    names = _who_is_where(grid, len(prepared.parties))
    if prepared.config.federation.secagg:
        if prepared.defence.aggregate is not None:
            what = "a defence at the server needs each party's update, which secure aggregation hides"
            raise FedauditError("secagg-defence", what, "Take one of the two out, or train with the local engine.")
        if prepared.settings.shadow and prepared.settings.shadow.party:
            what = "do-sh needs the model of the party that attacks, and under secure aggregation it never arrives here"
            raise FedauditError("secagg-adversary", what, "Take one of the two out, or train with the local engine.")
        most = max(len(prepared.game.members(party.name)) for party in prepared.parties)
        if any(not plan.commit for _, plan in plans):
            what = "a probe is thrown away by the server, and Flower's secure aggregation keeps every round"
            raise FedauditError("secagg-probe", what, "Take one of the two out, or train with the local engine.")
        kept = [plan for _, plan in plans]
        flower_secagg.run(grid, context, kept, names, start, funnel, most, funnel.after.round)
        return
    strategy = _PlannedAveraging(plans, names, prepared)
    recorded = RecordedStrategy(
        strategy, lambda: funnel, party=lambda reply: names[_sender(reply)], when=lambda round: plans[round - 1][0]
    )
    recorded.start(grid=grid, initial_arrays=_arrays(start), num_rounds=len(plans))


class Funnel(Session):
    """Hands rounds from the server's thread to the audit's, one at a time."""

    def __init__(self, after: Moment):
        super().__init__(None, strict=True)
        self.after = after
        self.made: queue.Queue[Round] = queue.Queue(maxsize=1)
        self.done: queue.Queue[BaseException | None] = queue.Queue()
        self.stopped = threading.Event()

    def observe(self, round: Round) -> None:
        while not self.stopped.is_set():
            try:
                return self.made.put(round, timeout=0.2)
            except queue.Full:
                continue
        raise InterruptedError("the audit was stopped")

    def rounds(self) -> Iterator[Round]:
        while True:
            try:
                yield self.made.get(timeout=0.2)
            except queue.Empty:
                if self.made.empty() and not self.done.empty():
                    error = self.done.get()
                    if error is not None:
                        raise error from None
                    return


class _PlannedAveraging(FedAvg):
    """Federated averaging as Flower does it, of the parties that the plan names."""

    def __init__(self, plans: Sequence[tuple[Moment, Plan]], names: Mapping[int, str], prepared: Prepared):
        super().__init__(fraction_evaluate=0.0)
        self.plans, self.names, self.prepared = plans, names, prepared
        self.broadcast: State = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        moment, plan = self.plans[server_round - 1]
        self.broadcast = plan.sent_out(_state(arrays, self.prepared))
        arrays = arrays if plan.broadcast is None else _arrays(self.broadcast)
        wanted = set(plan.parties)
        nodes = [node for node, name in sorted(self.names.items(), key=lambda pair: pair[1]) if name in wanted]
        when = ConfigRecord({"server-round": server_round, "round": moment.round, "probe": moment.probe})
        content = RecordDict({"arrays": arrays, "config": when})
        return [Message(content, dst_node_id=node, message_type=MessageType.TRAIN) for node in nodes]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Flower's average, unless a defence does the server's part: then the very one of the plain loop."""
        defence = self.prepared.defence.aggregate
        if defence is None:
            return super().aggregate_train(server_round, replies)
        sent = {}
        for reply in sorted(replies, key=lambda reply: self.names[_sender(reply)]):
            if reply.has_error():  # the recording around this strategy tells of it
                continue
            metrics = reply.content.metric_records["metrics"]
            state = _state(reply.content.array_records["arrays"], self.prepared)
            sent[self.names[_sender(reply)]] = Trained(state, int(str(metrics[EXAMPLES])), 0.0)
        rng = party_rng(self.prepared.config.federation.seed, self.plans[server_round - 1][0], "/aggregate")
        return _arrays(defence(self.broadcast, sent, rng)), None


def _who_is_where(grid: Grid, parties: int) -> dict[int, str]:
    """Flower gives nodes numbers of its own: ask each who it is."""
    while len(nodes := list(grid.get_node_ids())) < parties:
        threading.Event().wait(0.2)
    asked = [Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY) for node in nodes]
    replies = list(grid.send_and_receive(asked))
    for reply in replies:
        if reply.has_error():
            raise RuntimeError(f"a party could not prepare: {reply.error.reason}")
    return {_sender(reply): str(reply.content.config_records["who"]["party"]) for reply in replies}


def _sender(message: Message) -> int:
    return message.metadata.src_node_id


# ------------------------------------------------------------------ the parties


def client_app(about: Prepared) -> ClientApp:
    """Only the configuration travels to the workers, as text; what is prepared from it stays there."""
    text, secagg = json.dumps([about.config.as_dict(), code.folders()]), about.config.federation.secagg
    app = ClientApp(mods=[secaggplus_mod, flower_secagg.translated] if secagg else [])

    @app.query()
    def who(message: Message, context: Context) -> Message:
        party = _prepared(text).parties[int(context.node_config["partition-id"])]
        return Message(RecordDict({"who": ConfigRecord({"party": party.name})}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        prepared = _prepared(text)
        seed = prepared.config.federation.seed
        party = prepared.parties[int(context.node_config["partition-id"])]
        when = _moment(message.content.config_records["config"])
        received = _state(message.content.array_records["arrays"], prepared)
        trained = party.update(prepared.task, received, party_rng(seed, when, party.name))
        if leave := prepared.defence.update:
            trained = leave(received, trained, party_rng(seed, when, f"{party.name}/update"))
        metrics = MetricRecord({EXAMPLES: trained.examples, EPOCH_SECONDS: trained.epoch_seconds})
        return Message(RecordDict({"arrays": _arrays(trained.state), "metrics": metrics}), reply_to=message)

    return app


def _moment(config: ConfigRecord) -> Moment:
    """Flower's secure aggregation tells the server's round alone; it makes no probes."""
    round = config["round"] if "round" in config else config["server-round"]
    return Moment(int(str(round)), int(str(config.get("probe", 0))))


@lru_cache(maxsize=1)
def _prepared(text: str) -> Prepared:
    config, folders = json.loads(text)
    code.found_in(*folders)
    return prepare(parse(config), authorised=True)  # whoever started the simulation was asked


def _state(arrays: ArrayRecord, prepared: Prepared) -> State:
    like = prepared.task.initial(prepared.config.federation.seed)
    return matched({name: array.numpy() for name, array in arrays.items()}, like, "a message")


def _arrays(state: State) -> ArrayRecord:
    return ArrayRecord({name: Array(value) for name, value in state.items()})
