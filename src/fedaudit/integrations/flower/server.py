"""Flower, the server's side: a wrapper around any strategy that records what each round exchanged.

    strategy = record_strategy(FedAvg(), out="runs/mine", model=Net, game=games, rounds=10, party=name_of)
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)

Put it outermost, around Flower's differential-privacy wrappers, too: it then sees what arrives, as the server does.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, Result, Strategy
from flwr.serverapp.strategy.dp_fixed_clipping import DifferentialPrivacyFixedClippingBase

from fedaudit.errors import FedauditError
from fedaudit.integrations.claims import write_claim
from fedaudit.integrations.options import AuditOptions, Model, audited, open_session
from fedaudit.integrations.outgoing import Sends, checked_sends
from fedaudit.integrations.recorder import Recorder, Reply
from fedaudit.privacy.statement import Process, Promise
from fedaudit.session.session import Session
from fedaudit.types import Game, Moment, State, notice, once

log = logging.getLogger("flwr")  # an app's own log, so that it appears where its owner looks
EXAMPLES, EPOCH_SECONDS, LOCAL_EPOCHS = "num-examples", "epoch-seconds", "local-epochs"
BANNER = "fedaudit"  # the record in which a canary says what it is
MASKED = "secaggplus_configs"  # the record that Flower's SecAgg+ puts into every reply


def record_strategy(
    strategy: Strategy,
    *,
    out: str | Path,
    rounds: int,
    model: Model,
    game: Game | Sequence[Game],
    party: Callable[[Message], str] | None = None,
    **options: Unpack[AuditOptions],
) -> "RecordedStrategy":
    """The same strategy, recorded and audited. `party` says whose reply a message is: it is given the message and
    returns the name that this party has in its game (default: `node-ID`, which is nobody's name in a game).

    A server that is restarted with the same folder continues the same trace and audit. Unless `strict` is set, wrong
    use does not stop the training: log and report say from the first round on that nothing is audited. The other
    arguments are those of `AuditOptions`.
    """
    refuse_legacy(strategy)
    opened = partial(audited, model, game, out=out, rounds=rounds, promises=promises_of(strategy), **options)
    strict, sends = options.get("strict", False), options.get("sends", "weights")
    return RecordedStrategy(strategy, opened, party=party, out=Path(out), strict=strict, sends=sends)


def trace_strategy(
    strategy: Strategy,
    *,
    out: str | Path,
    party: Callable[[Message], str] | None = None,
    strict: bool = False,
    sends: Sends = "weights",
) -> "RecordedStrategy":
    """The same strategy, recorded with all models but not audited. The trace can be audited later, where records
    are."""
    refuse_legacy(strategy)
    opened = partial(open_session, Path(out), None, strict=strict)
    return RecordedStrategy(strategy, opened, party=party, out=Path(out), strict=strict, sends=checked_sends(sends))


def refuse_legacy(strategy: object) -> None:
    """A strategy of Flower's older API has other methods: wrapped, it would end the training in round 1."""
    if not hasattr(strategy, "configure_train"):
        kind = type(strategy)
        what = f"{kind.__module__}.{kind.__name__} is no strategy of flwr.serverapp.strategy"
        if hasattr(strategy, "configure_fit"):
            what += ", but one of Flower's legacy API, whose rounds cannot be recorded"
        todo = (
            "Use the strategy of that name from flwr.serverapp.strategy. A legacy server can keep its strategy if the "
            "clients audit themselves: ClientApp(client_fn=..., mods=[PartyAudit(...)]) works with NumPyClient. For "
            "legacy SecAgg+ there is record_sum."
        )
        raise FedauditError("legacy-strategy", what, todo)


class RecordedStrategy(Strategy):
    """Delegates everything; looks at broadcast and replies before the strategy may consume them.

    Nobody changes the bytes of Flower's arrays, so keeping them needs no copy.
    """

    def __init__(
        self,
        strategy: Strategy,
        opened: Callable[[], Session],
        *,
        party: Callable[[Message], str] | None = None,
        out: Path | None = None,
        when: Callable[[int], Moment] | None = None,
        strict: bool = True,
        sends: Sends = "weights",
    ):
        self.strategy, self.out, self.sends = strategy, out, sends
        self.recorder = Recorder(opened, log, out=out, strict=strict, read=as_state, when=when)
        self._party = party or (lambda message: f"node-{message.metadata.src_node_id}")
        self._broadcast: dict[str, Array] = {}
        self._asked: frozenset[int] = frozenset()
        self._clock = time.perf_counter()

    @property
    def session(self) -> Session:
        return self.recorder.session

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.recorder.warn(server_round)
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        sent_out = next((record for m in messages for record in m.content.array_records.values()), arrays)
        self._broadcast = dict(sent_out.items())
        self._asked = frozenset(message.metadata.dst_node_id for message in messages)
        if server_round == 1:
            self.recorder.begin(self._broadcast)
        self._clock = time.perf_counter()
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        elapsed = time.perf_counter() - self._clock
        messages = list(replies)
        when = self.recorder.when(server_round)
        seen: list[Reply] | None = None
        with self.session.guard("round-missing", round=when.round):
            seen = [self._copied(message) for message in messages]
            banners = once(notice("line", text=text) for text in filter(None, map(_banner, messages)))
            for banner in (one for one in banners if one not in self.session.notes):
                self.session.note(banner)
        arrays, metrics = self.strategy.aggregate_train(server_round, messages)
        if self.out is not None and (claim := claim_of(self.strategy)):
            with self.session.guard("claim-unwritten", round=when.round):
                write_claim(self.out, claim, when.round)
        if seen is not None:
            made = None if arrays is None else dict(arrays.items())
            self.recorder.record(when, self._broadcast, self._asked, seen, made, elapsed)
        return None if when.probe else arrays, metrics  # without new arrays Flower keeps the model it has

    def start(self, *arguments: Any, **options: Any) -> Result:
        """Runs Flower's own loop, and writes results and report when it ends, also after an error."""
        if self.session.closed:
            self.recorder.open()
        try:
            result = super().start(*arguments, **options)
            self.recorder.settle()
            return result
        except BaseException as error:
            self.session.broke_off(type(error), self.recorder.settle)
            raise
        finally:
            self.session.finish(self.out)

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

    def _copied(self, message: Message) -> Reply:
        node = message.metadata.src_node_id
        if message.has_error():
            return Reply(node, failed=True)
        if MASKED in message.content.config_records:
            return Reply(node, masked=True)
        records = tuple(dict(record.items()) for record in message.content.array_records.values())
        metrics = {key: value for record in message.content.metric_records.values() for key, value in record.items()}
        examples, seconds = (metrics.get(key) for key in (EXAMPLES, EPOCH_SECONDS))
        return Reply(
            node,
            self._party(message),
            models=records,
            is_change=self.sends == "changes",
            examples=examples,
            epoch_seconds=seconds,
            metrics=tuple(sorted({*metrics} - {EXAMPLES, EPOCH_SECONDS})),
        )


def private(strategy: Any) -> DifferentialPrivacyFixedClippingBase | None:
    """Flower's own wrapper with an accountant, somewhere in this strategy. Without one it claims no epsilon."""
    while strategy is not None and not isinstance(strategy, DifferentialPrivacyFixedClippingBase):
        strategy = getattr(strategy, "strategy", None)
    return strategy if strategy is not None and strategy.accountant is not None else None


def claim_of(strategy: Strategy) -> dict[str, Any] | None:
    """What the wrapper's accountant has counted so far."""
    wrapper = private(strategy)
    spent = wrapper.privacy_spent() if wrapper else None
    if wrapper is None or spent is None or not spent.num_releases:
        return None
    return {
        "epsilon": spent.epsilon,
        "delta": spent.delta,
        "clip": wrapper.clipping_norm,
        "noise": wrapper.noise_multiplier,
        "where": "aggregate",
        "unit": "user",
        "adjacency": "add-remove",  # the only one that the wrapper accounts for
        "rounds": spent.num_releases,
        "parties": wrapper.num_sampled_clients,
        "denominator": float(wrapper.num_sampled_clients),
        "clipped": "server" if isinstance(wrapper, DifferentialPrivacyServerSideFixedClipping) else "party",
    }


def promises_of(strategy: Strategy) -> tuple[Promise, ...]:
    """The same for the report, which has epsilon for every round by an accountant of its own."""
    wrapper = private(strategy)
    if wrapper is None or wrapper.accountant is None:
        return ()
    process, asked = Process("user", wrapper.noise_multiplier, 1, "full"), wrapper.accountant.config
    who = "whoever sees the models that the server releases"
    promise = Promise(
        defence=type(wrapper).__name__,
        process=process,
        delta=asked.target_delta,
        units=asked.population_size,
        against=who,
    )
    return (promise,)


def as_state(arrays: Mapping[str, Array]) -> State:
    return {name: array.numpy() for name, array in arrays.items()}


def _banner(message: Message) -> str:
    """What a canary of fedaudit says of itself, so that it stands in the results of whoever records the run."""
    if message.has_error() or BANNER not in message.content.config_records:
        return ""
    return str(message.content.config_records[BANNER].get("banner", ""))
