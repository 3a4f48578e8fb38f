"""Flower, the server's side: a wrapper around any strategy that records what each round exchanged.

    strategy = record_strategy(FedAvg(), out="runs/mine", model=Net, game=games, rounds=10, party=name_of)
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)

Put it outermost, around Flower's differential-privacy wrappers, too: it then sees what arrives, as the server does.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedaudit.federation.segments import digest
from fedaudit.integrations.aside import joined
from fedaudit.integrations.recorder import Keep, Recorder, open_trace
from fedaudit.integrations.states import matched
from fedaudit.integrations.torch_loop import Model, make_auditor
from fedaudit.types import Game, Round, State, Trained, Vantage

EXAMPLES, EPOCH_SECONDS = "num-examples", "epoch-seconds"
MASKED = "secaggplus_configs"  # the record that Flower's SecAgg+ puts into every reply


def record_strategy(
    strategy: Strategy,
    *,
    out: str | Path,
    rounds: int,
    model: Model,
    game: Game | Sequence[Game],
    party: Callable[[Message], str] | None = None,
    vantages: Iterable[str] = (Vantage.CLIENT, Vantage.SERVER),
    attacks: Iterable[str] | None = None,
    fpr: Sequence[float] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    keep: Keep = "signals",
    strict: bool = False,
) -> "RecordedStrategy":
    """The same strategy, recorded and audited. `party` says whose reply a message is (default: `node-ID`).

    A server that is started again with the same folder goes on with the same trace and audit.
    """
    whole = game if isinstance(game, Game) else joined(*game)

    def open_recorder() -> Recorder:
        auditor = make_auditor(model, whole, rounds, vantages, attacks, fpr, confidence, seed)
        return Recorder(auditor, open_trace(Path(out), auditor, keep), strict=strict)

    return RecordedStrategy(strategy, open_recorder, party, Path(out))


def trace_strategy(
    strategy: Strategy, *, out: str | Path, party: Callable[[Message], str] | None = None, strict: bool = False
) -> "RecordedStrategy":
    """Recorded only, with all models, for whoever has no records to audit with: attack the trace elsewhere, later."""
    return RecordedStrategy(
        strategy, lambda: Recorder(None, open_trace(Path(out), None, "snapshots"), strict=strict), party, Path(out)
    )


class RecordedStrategy(Strategy):
    """Delegates everything; looks at broadcast and replies before the strategy may consume them."""

    def __init__(
        self,
        strategy: Strategy,
        open_recorder: Callable[[], Recorder],
        party: Callable[[Message], str] | None = None,
        out: Path | None = None,
    ):
        self.strategy, self.out, self._open = strategy, out, open_recorder
        self.recorder = open_recorder()  # now, so that wrong use is refused before training
        auditor = self.recorder.auditor
        self._like = auditor.task.initial(0) if auditor and auditor.task else None
        self._party = party or (lambda message: f"node-{message.metadata.src_node_id}")
        self._broadcast: State | None = None
        self._asked: set[int] = set()
        self._clock = time.perf_counter()
        self._offset = 0  # a restarted server counts from 1 again

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        with self.recorder.guard(f"round {server_round}: the broadcast is missing"):
            self._broadcast = None
            self._broadcast = self._state(arrays, f"round {server_round}, broadcast")
            self._asked = {message.metadata.dst_node_id for message in messages}
            self._note_restart(server_round, self._broadcast)
        self._clock = time.perf_counter()
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        elapsed = time.perf_counter() - self._clock
        messages = list(replies)
        index = self._offset + server_round
        sent: dict[str, Trained] | None = None
        with self.recorder.guard(f"round {index} is missing"):
            sent = self._replies(index, messages, elapsed)
        arrays, metrics = self.strategy.aggregate_train(server_round, messages)
        if sent is not None:
            with self.recorder.guard(f"round {index} is missing"):
                self._record(index, sent, arrays)
        return arrays, metrics

    def start(self, *arguments: Any, **options: Any) -> Result:
        """Flower's own loop; results and report when it ends, however it ends."""
        if self.recorder.closed:
            self.recorder = self._open()
        try:
            return super().start(*arguments, **options)
        except BaseException as error:
            self.recorder.broke_off(type(error))
            raise
        finally:
            self.recorder.finish(self.out.name if self.out else "recorded", self.out)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        self.strategy.summary()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["strategy"], name)

    # ------------------------------------------------------------------ one round

    def _replies(self, index: int, messages: Sequence[Message], elapsed: float) -> dict[str, Trained]:
        """Copies of what arrived, by party. Failures, drop-outs and duplicates are told, not guessed."""
        sent: dict[str, Trained] = {}
        failed = masked = 0
        for message in messages:
            if message.has_error():
                failed += 1
            elif MASKED in message.content.config_records:
                masked += 1
            else:
                self._take(index, message, elapsed, sent)
        silent = self._asked - {message.metadata.src_node_id for message in messages}
        for count, what in ((failed, "failed"), (len(silent), "did not answer")):
            if count:
                self.recorder.gap(f"round {index}: {count} of {len(self._asked)} parties {what}")
        if masked:
            self.recorder.note(
                f"round {index}: {masked} replies are masked by secure aggregation, only their sum is seen"
            )
        return dict(sorted(sent.items()))  # not in the order of arrival

    def _take(self, index: int, message: Message, elapsed: float, sent: dict[str, Trained]) -> None:
        name = self._party(message)
        records = list(message.content.array_records.values())
        if len(records) != 1:
            self.recorder.gap(f"round {index}, {name}: {len(records)} array records in place of one, left out")
            return
        state = self._state(records[0], f"round {index}, {name}")
        if name in sent:
            same = digest(sent[name].state) == digest(state)
            told = self.recorder.note if same else self.recorder.gap
            how = "the same both times" if same else "and differently"
            told(f"round {index}: {name} answered twice, {how}: the first is kept")
            return
        metrics = {key: value for record in message.content.metric_records.values() for key, value in record.items()}
        examples, seconds = metrics.get(EXAMPLES, 1), metrics.get(EPOCH_SECONDS, elapsed)
        sent[name] = Trained(state, int(_number(examples, 1)), max(_number(seconds, elapsed), 1e-9))

    def _record(self, index: int, sent: Mapping[str, Trained], arrays: ArrayRecord | None) -> None:
        if self._broadcast is None:
            self.recorder.gap(f"round {index} is missing: what was broadcast is not known")
        elif not sent and arrays is None:
            self.recorder.gap(f"round {index} is empty: nobody sent a model")
            self.recorder.observe(Round(index, self._broadcast, {}, self._broadcast, commit=False))
        else:
            if arrays is None:
                self.recorder.note(f"round {index}: models arrived, and the strategy kept the old one")
            made = self._broadcast if arrays is None else self._state(arrays, f"round {index}, aggregate")
            self.recorder.observe(Round(index, self._broadcast, sent, made))

    def _note_restart(self, server_round: int, broadcast: State) -> None:
        """A server that is started again counts from 1: its rounds go on from the model that it starts with."""
        if server_round != 1 or self.recorder.trace is None:
            return
        current = self.recorder.trace.store.lineage.current
        start = digest(broadcast)
        self._offset = max((r for r, entry in current.items() if entry.commit and entry.aggregate == start), default=0)
        if self._offset:
            self.recorder.note(
                f"the server started again from the model of round {self._offset} and counts on from there"
            )

    def _state(self, arrays: ArrayRecord, where: str) -> State:
        state = {name: array.numpy() for name, array in arrays.items()}
        return state if self._like is None else matched(state, self._like, where)


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise
