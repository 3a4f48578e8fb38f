"""Ctrl-C, once and again, while the last model is searched: the first ends the training, the second the search."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from fedaudit.adversary.signals import boundary
from fedaudit.audit import Auditor
from fedaudit.results.document import Document, load
from fedaudit.session.run import run
from tests.audit.test_tear import asking
from tests.worlds import silent

pytestmark = pytest.mark.usefixtures("few_trees")
SETTINGS = asking(["boundary", "tear-last", "gap"], {"queries": 600}, federation={"rounds": 3})


def interrupted(out: Path, patched: pytest.MonkeyPatch, presses: tuple[int, ...]) -> tuple[Document, list[str], int]:
    """Presses Ctrl-C at these calls of the search that the third round begins. Returns how many calls there were."""
    measure, look, third, calls, told = Auditor.measure, boundary.Search.ask, [False], [0], list[str]()

    def measuring(auditor: Auditor, round: Any) -> Any:
        third[0] |= round.index == 3
        return measure(auditor, round)

    def pressing(search: boundary.Search, *given: Any) -> Any:
        calls[0] += third[0]
        if third[0] and calls[0] in presses:
            os.kill(os.getpid(), signal.SIGINT)
        return look(search, *given)

    patched.setattr(Auditor, "measure", measuring)
    patched.setattr(boundary.Search, "ask", pressing)
    return run(SETTINGS, out, silent, tell=told.append), told, calls[0]


def attacks(document: Document) -> set[str]:
    return {result.attack for result in document.results} - {"blind"}


def test_the_first_ctrl_c_says_what_is_still_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document, told, _ = interrupted(tmp_path, monkeypatch, (5,))
    assert told[-1:] == [  # after what is trained on, and how long the search takes
        "Interrupted after round 2. boundary, gap, tear-last now look at the last model; press Ctrl-C again to leave "
        "out the one that is at work."
    ]
    assert document.run.status == "interrupted at round 2"
    assert attacks(document) == {"boundary", "tear-last", "gap"}


def test_the_second_leaves_out_what_is_searched_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        _, _, calls = interrupted(tmp_path, patched, (5, 10))
    assert calls == 10  # no search is begun again, for another attack or for the scores
    document = load(tmp_path)
    assert attacks(document) == {"gap"}
    assert any("boundary failed" in line and "Ctrl-C" in line for line in document.warnings)
    on = run(SETTINGS, tmp_path, silent, tell=lambda line: None)
    assert on.run.status == "complete"
    assert attacks(on) == {"boundary", "tear-last", "gap"}
