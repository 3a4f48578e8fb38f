"""Flower, the server's side: a wrapper around any strategy that records what each round exchanged.

    strategy = record_strategy(FedAvg(), out="runs/mine", model=Net, game=games, rounds=10, party=name_of)
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)

Put it outermost, around Flower's differential-privacy wrappers, too: it then sees what arrives, as the server does.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any, Unpack

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedaudit.errors import FedauditError
from fedaudit.integrations.options import AuditOptions, Model, audited, not_audited, open_session
from fedaudit.integrations.plain import matched
from fedaudit.results import document as results
from fedaudit.results.document import Withheld
from fedaudit.session.session import Session, code_of, in_words
from fedaudit.trace.segments import digest
from fedaudit.types import Game, Moment, Notice, Round, State, Trained, gap, notice, once
from fedaudit.words import line

EXAMPLES, EPOCH_SECONDS = "num-examples", "epoch-seconds"
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
    opened = partial(audited, model, game, out=out, rounds=rounds, **options)
    return RecordedStrategy(strategy, opened, party=party, out=Path(out), strict=options.get("strict", False))


def trace_strategy(
    strategy: Strategy, *, out: str | Path, party: Callable[[Message], str] | None = None, strict: bool = False
) -> "RecordedStrategy":
    """The same strategy, recorded with all models but not audited. The trace can be audited later, where records
    are."""
    opened = partial(open_session, Path(out), None, strict=strict)
    return RecordedStrategy(strategy, opened, party=party, out=Path(out), strict=strict)


@dataclass(frozen=True)
class _Reply:
    """A reply from one node. Nobody changes the bytes of Flower's arrays, so keeping them needs no copy."""

    node: int
    name: str = ""
    _: KW_ONLY
    failed: bool = False
    masked: bool = False
    records: tuple[dict[str, Array], ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)


class RecordedStrategy(Strategy):
    """Delegates everything; looks at broadcast and replies before the strategy may consume them.

    Recording and audit run in the background, while the parties train for the next round.
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
    ):
        self.strategy, self.out, self._open, self.strict = strategy, out, opened, strict
        self._wrong: list[Notice] = []  # why nothing is audited, in each round so far
        self._told: set[str] = set()  # names that are no party's, once each
        self.session = self._opened()  # now, so that wrong use is told before training
        auditor = self.session.auditor
        task = auditor.task if auditor else None
        self._like: State | None = task.initial(0) if task else None
        self._base: State = task.base if task else {}
        self._party = party or (lambda message: f"node-{message.metadata.src_node_id}")
        self._broadcast: dict[str, Array] = {}
        self._asked: frozenset[int] = frozenset()
        self._clock = time.perf_counter()
        self._offset = 0  # a restarted server counts from 1 again
        self._when = when or (lambda server_round: Moment(self._offset + server_round))
        self._behind = Behind()

    def _opened(self) -> Session:
        try:
            self._wrong = []
            return self._open()
        except Exception as error:
            if self.strict:
                raise
            self._wrong = [tell_unaudited(None, error)]
            return Session(None)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if self._wrong:
            log.error("fedaudit: round %d: %s", server_round, line(self._wrong[0]))
            report_unaudited(self.out, self.out.name if self.out else "", self._wrong, server_round)
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        sent_out = next((record for m in messages for record in m.content.array_records.values()), arrays)
        self._broadcast = dict(sent_out.items())
        self._asked = frozenset(message.metadata.dst_node_id for message in messages)
        if server_round == 1:
            self.settle()
            with self.session.guard("restart-unknown"):
                self._note_restart()
        self._clock = time.perf_counter()
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        elapsed = time.perf_counter() - self._clock
        messages = list(replies)
        when = self._when(server_round)
        index = when.round
        seen: list[_Reply] | None = None
        with self.session.guard("round-missing", round=index):
            seen = [self._copied(message) for message in messages]
            banners = once(notice("line", text=text) for text in filter(None, map(_banner, messages)))
            for banner in (one for one in banners if one not in self.session.notes):
                self.session.note(banner)
        arrays, metrics = self.strategy.aggregate_train(server_round, messages)
        if seen is not None:
            made = None if arrays is None else dict(arrays.items())
            self._behind.do(partial(self._process, when, self._broadcast, self._asked, seen, made, elapsed))
        return None if when.probe else arrays, metrics  # without new arrays Flower keeps the model it has

    def settle(self) -> None:
        """Waits until everything that was seen is recorded."""
        self._behind.wait()

    def start(self, *arguments: Any, **options: Any) -> Result:
        """Runs Flower's own loop, and writes results and report when it ends, also after an error."""
        if self.session.closed:
            self.session = self._opened()
        try:
            result = super().start(*arguments, **options)
            self.settle()
            return result
        except BaseException as error:
            self.session.broke_off(type(error), self.settle)
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

    # ------------------------------------------------------------------ one round

    def _copied(self, message: Message) -> _Reply:
        node = message.metadata.src_node_id
        if message.has_error():
            return _Reply(node, failed=True)
        if MASKED in message.content.config_records:
            return _Reply(node, masked=True)
        records = tuple(dict(record.items()) for record in message.content.array_records.values())
        metrics = {key: value for record in message.content.metric_records.values() for key, value in record.items()}
        return _Reply(node, self._party(message), records=records, metrics=metrics)

    def _process(
        self,
        when: Moment,
        broadcast: Mapping[str, Array],
        asked: frozenset[int],
        replies: Sequence[_Reply],
        made: Mapping[str, Array] | None,
        elapsed: float,
    ) -> None:
        """One round, from Flower's arrays to a `Round`. Failures, drop-outs and duplicates are noted."""
        index, silent = when.round, len(asked - {reply.node for reply in replies})
        # Of a node that died the SuperLink says so, as an error under its own id: that node is among the silent.
        failed = len({reply.node for reply in replies if reply.failed} & asked)
        for count, code in ((failed, "parties-failed"), (silent, "parties-silent")):
            if count:
                self.session.gap(gap(code, round=index, parties=count, of=len(asked)))
        if masked := sum(reply.masked for reply in replies):
            self.session.note(notice("replies-masked", round=index, replies=masked))
        with self.session.guard("round-missing", round=index):
            start = self._state(broadcast, f"round {index}, broadcast")
            sent: dict[str, Trained] = {}
            for reply in sorted(replies, key=lambda reply: reply.name):  # not in the order of arrival
                if not reply.failed and not reply.masked:
                    self._take(index, reply, elapsed, sent)
            if not asked:
                self.session.note(notice("nobody-asked", round=index))
            elif made is None and not sent:
                self.session.gap(gap("round-empty", round=index))
            elif made is None:
                self.session.note(notice("old-model-kept", round=index))
            after = start if made is None else self._state(made, f"round {index}, aggregate")
            commit = not when.probe and (made is not None or bool(sent))
            self.session.observe(Round(index, start, sent, after, commit=commit, probe=when.probe))

    def _take(self, index: int, reply: _Reply, elapsed: float, sent: dict[str, Trained]) -> None:
        if len(reply.records) != 1:
            self.session.gap(gap("array-records", round=index, party=reply.name, records=len(reply.records)))
            return
        self._check_name(reply.name)
        state = self._state(reply.records[0], f"round {index}, {reply.name}")
        if reply.name in sent:
            same = digest(sent[reply.name].state) == digest(state)
            data = {"round": index, "party": reply.name, "same": same}
            if same:
                self.session.note(notice("party-twice", **data))
            else:
                self.session.gap(gap("party-twice", **data))
            return
        examples, seconds = reply.metrics.get(EXAMPLES, 1), reply.metrics.get(EPOCH_SECONDS, elapsed)
        sent[reply.name] = Trained(state, int(_number(examples, 1)), max(_number(seconds, elapsed), 1e-9))

    def _check_name(self, name: str) -> None:
        """An audit finds a party's records by its name: a reply under another one is attacked by nobody."""
        parties = self.session.auditor.game.parties if self.session.auditor else [name]
        if name in parties or name in self._told:
            return
        self._told.add(name)
        self.session.gap(gap("unknown-party", party=name, parties=parties))

    def _note_restart(self) -> None:
        """A restarted server counts from 1 again: its rounds continue from the model that it starts with."""
        if self.session.trace is None:
            return
        current = self.session.trace.store.lineage.current
        start = digest(self._state(self._broadcast, "round 1, broadcast"))
        self._offset = max((r for r, entry in current.items() if entry.commit and entry.aggregate == start), default=0)
        if self._offset:
            self.session.note(notice("server-restarted", round=self._offset))

    def _state(self, arrays: Mapping[str, Array], where: str) -> State:
        state = {name: array.numpy() for name, array in arrays.items()}
        return state if self._like is None else matched(state, self._like, where, self._base)


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise


def _banner(message: Message) -> str:
    """What a canary of fedaudit says of itself, so that it stands in the results of whoever records the run."""
    if message.has_error() or BANNER not in message.content.config_records:
        return ""
    return str(message.content.config_records[BANNER].get("banner", ""))


# ------------------------------------------------------------------ in the background


class Behind:
    """At most one job waits while another runs; adding a third blocks, so that memory stays bounded.

    An exception in a job is raised at the next call, in the caller's thread.
    """

    def __init__(self) -> None:
        self._jobs: Queue[Callable[[], None]] = Queue(maxsize=1)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def do(self, job: Callable[[], None]) -> None:
        self._raise()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="fedaudit-recording", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def wait(self) -> None:
        """Waits until all jobs are done."""
        self._jobs.join()
        self._raise()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                if self._error is None:
                    job()
            except BaseException as error:
                self._error = error
            finally:
                self._jobs.task_done()

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error


# ------------------------------------------------------------------ a training that goes on although its audit cannot


log = logging.getLogger("flwr")  # an app's own log, so that it appears where its owner looks
NOT_AUDITED = "not-audited"  # the code of what is told then


def tell_unaudited(round: int | None, error: Exception, withheld: bool = False, again: bool = False) -> Notice:
    """Tells the owner of this app in one line, and returns what the report is to say. Nothing of it leaves the node.

    `round`: None if it is the whole run, 0 if it is not known which. Only a fault that nobody foresaw has a traceback,
    and only the first time (`again`: it was told before).
    """
    foreseen = isinstance(error, FedauditError | OSError)
    todo = error.todo if isinstance(error, FedauditError) else ""
    told = gap(NOT_AUDITED, round=round, withheld=withheld, error=code_of(error), why=in_words(error), todo=todo)
    log.error("fedaudit: %s", line(told), exc_info=None if foreseen or again else error)
    return told


def is_about(told: Notice, error: Exception) -> bool:
    """Was this error told?"""
    return (told.data.get("error"), told.data.get("why")) == (code_of(error), in_words(error))


def report_unaudited(
    out: Path | None, name: str, told: Sequence[Notice], rounds: int, withheld: Sequence[Withheld] = ()
) -> None:
    """A report that says so. Results of another audit in the same folder are kept under another name: nobody must take
    them for results of this one. A disk that refuses is not the training's business."""
    if out is None:
        return
    with suppress(OSError):
        _set_aside(out / results.RESULTS)
        from fedaudit.report.html import write as write_page

        document = not_audited(name, told, rounds, withheld)
        results.save(document, out)
        write_page(document, out / results.REPORT)


def _set_aside(found: Path) -> None:
    try:
        ours = not found.exists() or results.load(found.parent).run.ending == "not-audited"
    except FedauditError:  # damaged: nobody knows whose they are
        ours = False
    if not ours:
        found.replace(found.with_name("results-before.json"))
