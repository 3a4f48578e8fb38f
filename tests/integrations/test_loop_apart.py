"""What an audit does beside a training stays there: nothing of it is to be noticed, and there is always a document."""

import json
import logging
import os
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.audit import Auditor
from fedaudit.audit.patience import patience
from fedaudit.integrations.loop import Recording
from fedaudit.session.recording import TraceWriter
from tests.integrations.test_loop import loop, recorded, scores, seeded, text

REAL = Auditor.measure


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Lets something happen whenever a round is measured."""

    def install(happens: Callable[[], None]) -> None:
        def measure(auditor: Auditor, round: Any) -> Any:
            happens()
            return REAL(auditor, round)

        monkeypatch.setattr(Auditor, "measure", measure)

    return install


def surroundings() -> list[Any]:
    """What a training may rest on, beside its model."""
    numbers = random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_num_threads(), np.geterr()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
    root = logging.getLogger()
    return [numbers, modes, handlers, warnings.filters[:], root.level, root.handlers[:], logging.raiseExceptions]


def started(seed: int = 3) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


def test_an_audit_leaves_everything_as_it_was(tmp_path: Path, measuring: Callable[..., None]) -> None:
    """Though an attack, somebody's own perhaps, draws numbers, switches gradients off, and sets what it likes."""

    def untidy() -> None:
        random.random(), np.random.rand(), torch.rand(3)  # noqa: NPY002
        np.seterr(all="raise")
        torch.set_grad_enabled(False)
        torch.set_num_threads(2)
        warnings.simplefilter("error")
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    measuring(untidy)
    loop(None, seeded(), range(1, 2))  # the first step of an optimizer imports what changes the filters of warnings
    model = seeded()
    model.train()
    model[0].weight.requires_grad_(False)  # type: ignore[index]
    modes = [module.training for module in model.modules()]
    started()
    expected = surroundings()
    started()
    with recorded(tmp_path, model) as audit:
        assert surroundings() == expected
        loop(audit, model, range(1, 4))
        started()
        audit.observe(4, model)
        assert surroundings() == expected
        started()
    assert surroundings() == expected
    assert modes == [module.training for module in model.modules()]
    assert [p.requires_grad for p in model.parameters()] == [False, True, True, True]
    assert audit.document.headlines


@contextmanager
def strict_surroundings() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="raise"), torch.inference_mode():
        warnings.simplefilter("error")
        yield


def test_the_audit_is_the_same_however_the_training_has_set_things(
    tmp_path: Path, measuring: Callable[..., None]
) -> None:
    """Warnings as errors, numpy that raises, gradients switched off: all that made the audit fail."""

    def warns() -> None:
        warnings.warn("an old way of calling", DeprecationWarning, stacklevel=1)
        np.float32(1) / np.float32(0)
        (torch.ones(1, requires_grad=True) ** 2).backward()  # type: ignore[no-untyped-call]

    measuring(warns)
    found = []
    for name in ("plain", "strict"):
        model = seeded()
        with recorded(tmp_path / name, model) as audit:
            for round in range(1, 5):
                loop(None, model, range(round, round + 1))
                with strict_surroundings() if name == "strict" else warnings.catch_warnings():
                    audit.observe(round, model)
        assert "is missing" not in text(audit.document)
        found.append(scores(audit))
    assert found[0] == found[1]


def test_F4_not_even_an_exit_reaches_the_training(tmp_path: Path, measuring: Callable[..., None]) -> None:
    measuring(lambda: sys.exit(3))
    model = seeded()
    with recorded(tmp_path, model) as audit:
        loop(audit, model, range(1, 3))
    assert "Round 1 is missing: SystemExit" in text(audit.document)


def test_F4_a_log_that_raises_does_not_reach_the_training(tmp_path: Path) -> None:
    class Strict(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no warnings, please")

    handler, log = Strict(), logging.getLogger("fedaudit")
    log.addHandler(handler)
    try:
        model = seeded()
        with recorded(tmp_path, model) as audit:
            audit.observe(1, {})
            loop(audit, model, range(2, 5))
    finally:
        log.removeHandler(handler)
    assert "Round 1 is missing" in text(audit.document)


@pytest.mark.parametrize(("whose", "method"), [(Auditor, "score_parts"), (TraceWriter, "end")])
def test_F4_an_error_at_the_end_does_not_reach_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: Any, method: str
) -> None:
    def broken(*_: Any) -> Any:
        raise TypeError

    monkeypatch.setattr(whose, method, broken)
    model = seeded()
    with recorded(tmp_path, model) as audit:
        loop(audit, model, range(1, 5))
    assert audit.document.headlines
    assert audit.session.gaps
    recorded(tmp_path, model).session.trace.store.close()  # type: ignore[union-attr]  # the folder is free


# ------------------------------------------------------------------ signals belong to the training


def test_the_handlers_of_a_training_are_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that saves a checkpoint when the machine is about to be taken away: it was not called, and the training ended
    with KeyboardInterrupt."""
    called: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: called.append(number))
    real = Auditor.absorb

    def absorbing(auditor: Auditor, *given: Any) -> Any:  # while Ctrl-C is held back
        os.kill(os.getpid(), signal.SIGTERM)
        return real(auditor, *given)

    monkeypatch.setattr(Auditor, "absorb", absorbing)
    try:
        model = seeded()
        with recorded(tmp_path, model) as audit:
            loop(audit, model, range(1, 5))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert called == [signal.SIGTERM] * 4
    assert audit.document.run.status == "complete"


@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_is_not_lost_in_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: type[BaseException]
) -> None:
    """Somebody in the audit catches it; the training hears of it all the same."""

    def handler(*_: Any) -> None:
        raise ends

    def swallowing(auditor: Auditor, round: Any) -> Any:
        with suppress(BaseException):
            os.kill(os.getpid(), signal.SIGINT)
        return REAL(auditor, round)

    before = signal.signal(signal.SIGINT, handler)
    monkeypatch.setattr(Auditor, "measure", swallowing)
    rounds: list[int] = []

    def training() -> None:
        model = seeded()
        with recorded(tmp_path, model) as audit:
            for round in range(1, 5):
                loop(audit, model, range(round, round + 1))
                rounds.append(round)

    try:
        with pytest.raises(ends):
            training()
    finally:
        signal.signal(signal.SIGINT, before)
    assert rounds == []


def test_an_alarm_of_the_training_goes_on() -> None:
    """A clock that rings again and again rang once and never more, and late."""
    rung: list[float] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with patience():
            time.sleep(0.2)
            assert rung == []
        deadline = time.monotonic() + 5
        while len(rung) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(rung) >= 3


# ------------------------------------------------------------------ the document


def test_there_is_a_document_even_where_nothing_was_seen(tmp_path: Path) -> None:
    """The page's own example reads its headlines."""
    model = seeded()
    with recorded(tmp_path, model) as audit:
        assert [*audit.document.headlines] == []
        assert "The audit is not finished" in text(audit.document)
    assert [headline.sentence for headline in audit.document.headlines] == []
    assert "There are no results: no round was observed" in text(audit.document)
    assert written(tmp_path)["run"]["status"] == "not audited"
    assert "This run was not audited" in (tmp_path / "report.html").read_text()
    with again(tmp_path, model) as audit:  # the folder is no obstacle once there is something to see
        loop(audit, model, range(1, 5))
    assert audit.document.run.status == "complete"
    assert written(tmp_path)["run"]["status"] == "complete"


def test_there_is_a_document_even_where_the_audit_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(auditor: Auditor) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(Auditor, "snapshot", broken)
    model = seeded()
    with recorded(tmp_path, model) as audit:
        loop(audit, model, range(1, 5))
    assert "There are no results: ZeroDivisionError" in text(audit.document)
    assert audit.document.run.rounds == 4


def again(out: Path, model: torch.nn.Module) -> Recording:
    return recorded(out, model)


def written(out: Path) -> Any:
    return json.loads((out / "results.json").read_text())
