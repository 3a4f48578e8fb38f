"""Flower's SecAgg+, recorded: the server adds masked vectors, so that only their sum can be read.

In this version of Flower the protocol is a workflow around a strategy of the older kind (`flwr.server.strategy`); the
wrapper here is for those. What it is given as "results" is the sum, handed out once for each party: it records who took
part and the sum, and no party's model.

    with record_sum(FedAvg(...), out="runs/mine", model=Net, game=games, rounds=10, party=name_of) as strategy:
        legacy = LegacyContext(context, config=ServerConfig(num_rounds=10), strategy=strategy)
        DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2))(grid, legacy)

When the block ends, results and report are in `out`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import (
    Code,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    Parameters,
    Scalar,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.compat.common.recorddict_compat import fitres_to_recorddict
from flwr.server import LegacyContext, ServerConfig
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAvg, Strategy
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid

from fedaudit.audit.costs import an_epoch
from fedaudit.errors import FedauditError
from fedaudit.integrations.flower.server import log
from fedaudit.integrations.options import AuditOptions, Model, audited
from fedaudit.integrations.recorder import report_unaudited, tell_unaudited
from fedaudit.session.session import Session
from fedaudit.types import Game, Notice, Plan, Round, State, Trained, Vantage, gap
from fedaudit.words import line


def _by_number(proxy: ClientProxy) -> str:
    return f"node-{proxy.node_id}"


def record_sum(
    strategy: Strategy,
    *,
    out: str | Path,
    rounds: int,
    model: Model,
    game: Game | Sequence[Game],
    party: Callable[[ClientProxy], str] = _by_number,
    **options: Unpack[AuditOptions],
) -> "RecordedSum":
    """The same strategy, its sums recorded and audited. `party` says whose a proxy is (default: `node-ID`). The other
    words are those of `AuditOptions`; who looks is by default a participant and the server as it is left with the sum.
    Unless `strict` is set, wrong use does not stop the training: log and report say that nothing is audited."""
    strict = options.get("strict", False)
    try:
        given = AuditOptions(vantages=(Vantage.CLIENT, Vantage.SECAGG_SERVER)) | options
        session = audited(model, game, out=out, rounds=rounds, **given)
        assert session.auditor is not None
        assert session.auditor.task is not None
        return RecordedSum(strategy, session, list(session.auditor.task.initial(0)), party=party, out=Path(out))
    except Exception as error:
        if strict:
            raise
        wrong = tell_unaudited(log, None, error)
        return RecordedSum(strategy, Session(None), (), party=party, out=Path(out), wrong=wrong)


class RecordedSum(Strategy):
    """`names`: the parameters' names, in order (`list(model.state_dict())`), which older strategies do not carry."""

    def __init__(
        self,
        strategy: Strategy,
        session: Session,
        names: Sequence[str],
        *,
        party: Callable[[ClientProxy], str] = _by_number,
        after: int = 0,
        out: Path | None = None,
        wrong: Notice | None = None,
    ):
        self.strategy, self.session, self.names, self._party = strategy, session, tuple(names), party
        self.out, self._wrong = out, wrong  # why nothing is audited
        self._broadcast: State | None = None
        self._clock = time.perf_counter()
        self._after = after  # a run that goes on counts from 1 again
        self._waiting = 0  # the round that was begun and has no sum yet

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            self.session.broke_off(kind)
        self.tell_if_halted()
        self.session.finish(self.out)

    def tell_if_halted(self) -> None:
        """When a round begins, and after the last: did the one before come to an end?"""
        if self._waiting:
            self.session.gap(gap("round-halted", round=self._waiting))

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        if self._wrong:
            log.error("fedaudit: round %d: %s", server_round, line(self._wrong))
            report_unaudited(self.out, self.out.name if self.out else "", [self._wrong], server_round)
            return self.strategy.configure_fit(server_round, parameters, client_manager)
        self.tell_if_halted()
        self._waiting = self._after + server_round
        with self.session.guard("broadcast-missing", round=self._waiting):
            self._broadcast = None
            self._broadcast = self._state(parameters)
        self._clock = time.perf_counter()
        return self.strategy.configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        elapsed, index, self._waiting = time.perf_counter() - self._clock, self._after + server_round, 0
        parameters, metrics = self.strategy.aggregate_fit(server_round, results, failures)
        with self.session.guard("round-missing", round=index):
            if failures:
                self.session.gap(gap("parties-failed", round=index, parties=len(failures), of=None))
            if self._broadcast is not None and parameters is not None:
                auditor = self.session.auditor
                seconds = an_epoch(elapsed, auditor.settings.local_epochs if auditor else 1)
                sent = {self._party(proxy): Trained({}, reply.num_examples, seconds) for proxy, reply in results}
                made = self._state(parameters)
                self.session.observe(Round(index, self._broadcast, dict(sorted(sent.items())), made))
        return parameters, metrics

    def _state(self, parameters: Parameters) -> State:
        return dict(zip(self.names, parameters_to_ndarrays(parameters), strict=True))

    # ------------------------------------------------------------------ the rest is the strategy's own

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        return self.strategy.initialize_parameters(client_manager)

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        return self.strategy.configure_evaluate(server_round, parameters, client_manager)

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        return self.strategy.aggregate_evaluate(server_round, results, failures)

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        return self.strategy.evaluate(server_round, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["strategy"], name)


# ------------------------------------------------------------------ a whole federation under SecAgg+


def run(
    grid: Grid,
    context: Context,
    plans: Sequence[Plan],
    nodes: Mapping[int, str],
    start: State,
    session: Session,
    most_examples: int,
    after: int = 0,
) -> None:
    """Train as planned, with Flower's own protocol between the parties and the server."""
    if any(len(plan.parties) < 2 for plan in plans):
        what = "a sum over fewer than two parties hides nothing, and SecAgg+ refuses it"
        raise FedauditError("secagg-parties", what, "Let two parties or more take part in every round.")
    names = list(start)
    planned = _PlannedSecureAveraging(plans, nodes, start, after)
    strategy = RecordedSum(planned, session, names, party=lambda proxy: nodes[proxy.node_id], after=after)
    legacy = LegacyContext(context, config=ServerConfig(num_rounds=len(plans)), strategy=strategy)
    protocol = SecAggPlusWorkflow(1.0, 0.5, max_weight=float(most_examples))
    DefaultWorkflow(fit_workflow=protocol)(grid, legacy)
    strategy.tell_if_halted()


class _PlannedSecureAveraging(FedAvg):
    """Federated averaging of the parties that the plan names."""

    def __init__(self, plans: Sequence[Plan], nodes: Mapping[int, str], start: State, after: int):
        super().__init__(fraction_evaluate=0.0, initial_parameters=ndarrays_to_parameters(list(start.values())))
        self.plans, self.nodes, self.after = plans, nodes, after

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        client_manager.num_available()  # Flower registers nodes when asked, and otherwise every five seconds
        client_manager.wait_for(len(self.nodes), timeout=600)
        wanted = set(self.plans[server_round - 1].parties)
        given = FitIns(parameters, {"server-round": self.after + server_round})
        return [(proxy, given) for proxy in client_manager.all().values() if self.nodes[proxy.node_id] in wanted]


def translated(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A mod inside SecAgg+'s: an app with records of the newer kind takes part in a protocol of the older kind."""
    if message.metadata.message_type != "train":
        return call_next(message, context)
    arrays = message.content.array_records["fitins.parameters"]
    config = {"server-round": message.content.config_records["fitins.config"]["server-round"]}
    message.content = RecordDict({"arrays": arrays, "config": ConfigRecord(config)})
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    sent = ndarrays_to_parameters([array.numpy() for array in reply.content.array_records["arrays"].values()])
    examples = int(str(reply.content.metric_records["metrics"]["num-examples"]))
    reply.content = fitres_to_recorddict(FitRes(Status(Code.OK, ""), sent, examples, {}), keep_input=False)
    return reply
