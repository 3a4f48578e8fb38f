"""A server's side, whichever framework carries the models: what each round exchanged becomes a `Round` of the session.

A host tells when a round begins (`Recorder.begin`) and what came of it (`Recorder.record`). Failures, drop-outs,
duplicates and restarts are noted here. Recording and audit run in the background, while the parties train for the next
round.
"""

import logging
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

from fedaudit.audit.costs import an_epoch
from fedaudit.errors import FedauditError
from fedaudit.integrations.options import not_audited
from fedaudit.integrations.outgoing import Sends, added, is_model
from fedaudit.integrations.plain import matched, numpy_state
from fedaudit.results import document as results
from fedaudit.results.document import Withheld
from fedaudit.session.session import Session, code_of, in_words
from fedaudit.trace.segments import digest
from fedaudit.types import Moment, Notice, Round, State, Trained, gap, notice
from fedaudit.words import line


@dataclass(frozen=True)
class Reply:
    """From one node. `models`: one in each set of arrays that came, as the host's own objects."""

    node: Hashable
    name: str = ""
    _: KW_ONLY
    failed: bool = False
    masked: bool = False
    models: tuple[Mapping[str, Any], ...] = ()
    is_change: bool = False  # what came is to be added to the broadcast
    examples: object = None
    epoch_seconds: object = None
    metrics: tuple[str, ...] = ()  # the names of other figures that came with it


class Recorder:
    """`opened` makes the session, again for every run; `read` makes arrays of what the host calls a model; `when` says
    which moment of the plan a round of the host is."""

    def __init__(
        self,
        opened: Callable[[], Session],
        log: logging.Logger,
        *,
        out: Path | None = None,
        strict: bool = True,
        read: Callable[[Mapping[str, Any]], State] = numpy_state,
        when: Callable[[int], Moment] | None = None,
    ):
        self.out, self.log, self.strict, self._open, self._read = out, log, strict, opened, read
        self._wrong: list[Notice] = []  # why nothing is audited, in each round so far
        self._told: set[str] = set()  # names that are no party's, once each
        self._offset = 0  # a restarted server counts from 1 again
        self.when = when or (lambda host_round: Moment(self._offset + host_round))
        self._behind = Behind()
        self.open()

    def open(self) -> None:
        """Wrong use is told now, before training."""
        self._wrong = []
        try:
            self.session = self._open()
        except Exception as error:
            if self.strict:
                raise
            self._wrong = [tell_unaudited(self.log, None, error)]
            self.session = Session(None)
        auditor = self.session.auditor
        task = auditor.task if auditor else None
        self._like: State | None = task.initial(0) if task else None
        self._base: State = task.base if task else {}

    def warn(self, round: int) -> None:
        """In every round that is not audited, in the log and in a report."""
        if self._wrong:
            self.log.error("fedaudit: round %d: %s", round, line(self._wrong[0]))
            report_unaudited(self.out, self.out.name if self.out else "", self._wrong, round)

    def begin(self, broadcast: Mapping[str, Any]) -> None:
        """Before the first round. A restarted server counts from 1 again: its rounds continue from the model that it
        starts with."""
        self.settle()
        with self.session.guard("restart-unknown"):
            if self.session.trace is None:
                return
            current = self.session.trace.store.lineage.current
            start = digest(self._state(broadcast, "round 1, broadcast"))
            ours = (r for r, entry in current.items() if entry.commit and entry.aggregate == start)
            self._offset = max(ours, default=0)
            if self._offset:
                self.session.note(notice("server-restarted", round=self._offset))

    def record(
        self,
        when: Moment,
        broadcast: Mapping[str, Any],
        asked: Set[Hashable],
        replies: Sequence[Reply],
        made: Mapping[str, Any] | None,
        elapsed: float,
    ) -> None:
        """One round, in the background. `made`: the model that it came to, if any; `elapsed`: how long it took."""
        self._behind.do(partial(self._process, when, broadcast, asked, replies, made, elapsed))

    def settle(self) -> None:
        """Waits until everything that was seen is recorded."""
        self._behind.wait()

    # ------------------------------------------------------------------ one round

    def _process(
        self,
        when: Moment,
        broadcast: Mapping[str, Any],
        asked: Set[Hashable],
        replies: Sequence[Reply],
        made: Mapping[str, Any] | None,
        elapsed: float,
    ) -> None:
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
                    self._take(index, start, reply, elapsed, sent)
            if not asked:
                self.session.note(notice("nobody-asked", round=index))
            elif made is None and not sent:
                self.session.gap(gap("round-empty", round=index))
            elif made is None:
                self.session.note(notice("old-model-kept", round=index))
            after = start if made is None else self._state(made, f"round {index}, aggregate")
            commit = not when.probe and (made is not None or bool(sent))
            self.session.observe(Round(index, start, sent, after, commit=commit, probe=when.probe))

    def _take(self, index: int, start: State, reply: Reply, elapsed: float, sent: dict[str, Trained]) -> None:
        if len(reply.models) != 1:
            self.session.gap(gap("array-records", round=index, party=reply.name, records=len(reply.models)))
            return
        self._check_name(reply.name)
        state = self._state(reply.models[0], f"round {index}, {reply.name}")
        if reply.is_change:
            state = added(start, state)
        if reply.name in sent:
            same = digest(sent[reply.name].state) == digest(state)
            data = {"round": index, "party": reply.name, "same": same}
            if same:
                self.session.note(notice("party-twice", **data))
            else:
                self.session.gap(gap("party-twice", **data))
            return
        auditor = self.session.auditor
        seconds = max(an_epoch(elapsed, auditor.settings.local_epochs if auditor else 1, reply.epoch_seconds), 1e-9)
        known = self._is_model(index, start, reply, state)
        sent[reply.name] = Trained(state, int(_number(reply.examples, 1)), seconds, reply.metrics, known)

    def _is_model(self, index: int, start: State, reply: Reply, state: State) -> bool:
        """What is no model of the task is recorded and not attacked: nothing that is found in it would hold for who
        undoes it. Without records, only how it started from the broadcast can be seen."""
        auditor = self.session.auditor
        if auditor is None and self.session.trace is None:
            return True
        known = auditor is not None and reply.name in auditor.game.parties
        members = auditor.game.members(reply.name) if auditor is not None and known else None
        sends: Sends = "changes" if reply.is_change else "weights"
        return is_model(self.session, index, reply.name, start, state, members=members, sends=sends)

    def _check_name(self, name: str) -> None:
        """An audit finds a party's records by its name: a reply under another one is attacked by nobody."""
        parties = self.session.auditor.game.parties if self.session.auditor else [name]
        if name in parties or name in self._told:
            return
        self._told.add(name)
        self.session.gap(gap("unknown-party", party=name, parties=parties))

    def _state(self, arrays: Mapping[str, Any], where: str) -> State:
        state = self._read(arrays)
        return state if self._like is None else matched(state, self._like, where, self._base)


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise


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


NOT_AUDITED = "not-audited"  # the code of what is told then


def tell_unaudited(
    log: logging.Logger, round: int | None, error: Exception, withheld: bool = False, again: bool = False
) -> Notice:
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
