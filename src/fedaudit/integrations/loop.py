"""An audit beside a training loop of your own, in a few lines.

    with fedaudit.record(model, [game_a, game_b], out="runs/mine", rounds=20) as audit:
        for round in range(1, 21):
            updates = {party: train_locally(party) for party in parties}      # your code
            model.load_state_dict(average(updates))                           # your code
            audit.observe(round, model, updates=updates)

When the block ends, results.json, scores.parquet and report.html are in `out`.
"""

import logging
import os
import random
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self, Unpack

import numpy as np
import torch
from torch import nn

from fedaudit.audit.costs import an_epoch
from fedaudit.errors import FedauditError
from fedaudit.integrations.options import AuditOptions, Model, audited, in_python, not_audited
from fedaudit.integrations.outgoing import Sends, added, is_model
from fedaudit.integrations.plain import matched, numpy_state
from fedaudit.report.html import write
from fedaudit.results.document import REPORT, Document, save
from fedaudit.session.session import Session
from fedaudit.types import UNSEEN, Game, Round, State, Trained, gap


def record(
    model: Model, game: Game | Iterable[Game], *, out: str | Path, rounds: int, **options: Unpack[AuditOptions]
) -> "Recording":
    """Audit `rounds` planned rounds of a loop of your own. Wrong use is refused here, before any training; afterwards
    nothing of the audit reaches it.

    `out` also holds the trace (with all models if `keep="snapshots"`). A loop that is restarted with the same folder,
    from a model that it left there, continues the same audit. Results of other attacks or vantages in `out`
    stay, and the new ones are written to the folder `audit` in it. The other arguments are those of `AuditOptions`.
    """
    forward = options.get("forward")
    if told := crowded():
        logging.getLogger("fedaudit").warning("fedaudit: %s", told)
    with in_python(), apart():
        if not isinstance(out, str | Path):
            raise FedauditError("bad-value", f"out={out!r}: a folder is needed", "Give its path.")
        if forward is not None and not callable(forward):
            raise FedauditError("bad-value", "forward=... cannot be called", "Give a function of (model, x).")
        session = audited(model, game, out=out, rounds=rounds, **options)
        start = model if isinstance(model, nn.Module) else None
        return Recording(session, session.results_in or Path(out), start, options.get("sends", "weights"))


class Recording:
    """Call `observe` at the end of every round. Errors of the audit do not reach the loop, unless `strict` is set."""

    def __init__(self, session: Session, out: Path, start: nn.Module | None, sends: Sends = "weights"):
        assert session.auditor is not None
        assert session.auditor.task is not None
        self.session, self.game, self.out, self.sends = session, session.auditor.game, out, sends
        self.like, self.base = session.auditor.task.initial(0), session.auditor.task.base
        # The global model that the next round starts from.
        self.model = None if start is None else self._matched(start, "the model")
        self.lost: int | None = None  # the last round, if its model could not be read
        self.latest: tuple[int, State | None] = (0, None)  # the last round, and what it started from
        self.clock = time.perf_counter()

    def observe(
        self,
        round: int,
        model: nn.Module | Mapping[str, Any],
        updates: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """The global model after the round, and each party's model as it was sent: its weights, or, where `record` was
        given sends="changes", their change.

        Round 0 is the model that the first round starts from or, after a restart, the next one. It need not be given
        when `record` was given a module with these weights.
        """
        elapsed = time.perf_counter() - self.clock
        with apart(), self.session.guard("round-missing", round=round):
            lost, self.lost = self.lost, round
            made = self._matched(model, f"round {round}, global model")
            self.lost = None
            before = self.model if lost is None or lost == round else None  # of a model nobody could read
            before = self.latest[1] if round == self.latest[0] else before  # told again: it started there, too
            self.latest, self.model = (round, before), made
            if round > 0:
                self._observe(round, before, made, updates or {}, elapsed)
        self.clock = time.perf_counter()

    def _observe(
        self, round: int, before: State | None, made: State, updates: Mapping[str, Mapping[str, Any]], elapsed: float
    ) -> None:
        unknown = sorted(set(updates) - set(self.game.parties))
        if unknown:
            raise FedauditError(
                "unknown-party",
                f"{', '.join(unknown)} is not a party of the game",
                f"The parties of the game are: {', '.join(self.game.parties)}.",
                where=f"round {round}",
            )
        states = {party: self._matched(update, f"round {round}, {party}") for party, update in updates.items()}
        if before is None:
            if states:
                self.session.gap(gap("start-unknown", round=round))
            before, states = UNSEEN, {}
        assert self.session.auditor is not None
        seconds = an_epoch(elapsed, self.session.auditor.settings.local_epochs) / max(len(updates), 1)
        sent: dict[str, Trained] = {}
        for party, state in states.items():
            members, model = self.game.members(party), added(before, state) if self.sends == "changes" else state
            known = is_model(self.session, round, party, before, model, members=members, sends=self.sends)
            sent[party] = Trained(model, len(members), seconds, is_model=known)
        self.session.observe(Round(round, before, sent, made))

    def _matched(self, model: nn.Module | Mapping[str, Any], where: str) -> State:
        state = model.state_dict() if isinstance(model, nn.Module) else model
        return matched(numpy_state(state), self.like, where, self.base)

    def __enter__(self) -> Self:
        self.clock = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with apart():
            if kind is not None:
                self.session.broke_off(kind)
            if self.session.finish(self.out) is None:
                with self.session.guard("lack-unwritten"):
                    save(self.document, self.out)
                    write(self.document, self.out / REPORT)

    @property
    def document(self) -> Document:
        """What results.json holds, once the block has ended. Where there are no results, it says why."""
        session = self.session
        told = session.gaps if session.closed else [gap("unfinished")]
        return session.document or not_audited(self.out.name, told, session.last)


CROWDED = 1.5  # processes that want to run, for each processor


def crowded() -> str:
    """What is to be said where torch's threads wait for each other on processors that do other work. Nothing is set:
    the threads are the training's own, and their number may change the last digit of a sum."""
    try:
        load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # of systems that do not say
        return ""
    threads = torch.get_num_threads()
    if threads < 2 or load <= CROWDED * cores:
        return ""
    return (
        f"{load:.0f} processes share {cores} processors, and torch uses {threads} threads, which wait for each other: "
        "training and audit may take many times as long as with one. Set OMP_NUM_THREADS=1 before Python starts, or "
        "call torch.set_num_threads(1)."
    )


# ------------------------------------------------------------------ leaving everything as it was found


@contextmanager
def apart() -> Iterator[None]:
    """An audit beside somebody's training, in the same process, leaves everything as it found it.

    - Random numbers (Python's, numpy's, torch's) go on as if nothing had been drawn, and torch has as many threads.
    - Warnings, floating-point settings and modes of torch are the audit's own: a training that turns warnings into
      errors, or calls the audit where gradients are switched off, neither breaks it nor hears of it.
    - Signals belong to the training. Its handlers are called, and what they raise leaves the block, even if somebody in
      the audit caught it.
    """
    with _randomness(), _signals(), _modes():
        yield


@contextmanager
def _randomness() -> Iterator[None]:
    plain, tensors, threads = random.getstate(), torch.get_rng_state(), torch.get_num_threads()
    arrays = np.random.get_state()  # noqa: NPY002 (the training's generator, not ours)
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(arrays)  # noqa: NPY002
        torch.set_rng_state(tensors)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


@contextmanager
def _modes() -> Iterator[None]:
    usual = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
    with warnings.catch_warnings(), usual, torch.inference_mode(False), torch.enable_grad():
        warnings.simplefilter("ignore")
        with torch.autocast("cpu", enabled=False):
            yield


@contextmanager
def _signals() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    raised: list[BaseException] = []
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heard = {number: _noted(handler, raised) for number, handler in former.items() if callable(handler)}
    for number, handler in heard.items():
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, former[number])
    if raised:  # somebody caught it on its way out
        raise raised[0]


def _noted(handler: Callable[[int, FrameType | None], Any], raised: list[BaseException]) -> Callable[..., None]:
    def noting(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as error:
            raised.append(error)
            raise

    return noting
