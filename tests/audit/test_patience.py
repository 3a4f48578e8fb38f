"""What takes too long is given up once, and not tried again; what was said to take long gets the time it needs."""

import signal
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from fedaudit.adversary.signals import Family, searching
from fedaudit.audit import patience
from fedaudit.audit.collect import Attempt
from fedaudit.audit.patience import TooLongError, limit
from fedaudit.session.assemble import SEARCH_TIME
from fedaudit.session.prepare import prepare
from fedaudit.words import words
from tests.adversary.signals.nets import rounds_of_training, seen
from tests.audit.test_tear import LABEL_ONLY, asking
from tests.worlds import watch


def test_a_search_that_takes_too_long_is_tried_once_and_costs_only_the_attacks_that_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither signal by signal, nor in later rounds, nor for the deferred attacks in the last one or when scoring."""
    tried: list[int] = []

    def endless(*given: Any) -> Any:
        tried.append(len(tried))
        raise TooLongError(3600)

    prepared = prepare(asking(LABEL_ONLY))
    monkeypatch.setattr(searching, "search", endless)
    audit = watch(prepared)
    assert len(tried) == 1
    assert set(audit.failed) == {"boundary", "tear", "tear-last"}
    assert all("took longer than 3600 s" in why for why in audit.failed.values())
    assert {result.attack for result in audit.results} == {"gap", "gap-rounds", "blind"}


def test_a_family_that_takes_too_long_is_measured_once_and_so_is_every_other() -> None:
    nets, rows = rounds_of_training(2, (4,), 2, seed=0, rounds=1)
    called: list[list[str]] = []

    def endless(names: Iterable[str], *_: Any) -> Any:
        called.append(list(names))
        raise TooLongError(3600)

    def quick(names: Iterable[str], *_: Any) -> Any:
        called.append(list(names))
        return {name: np.ones(len(rows)) for name in names}

    slow = Family({"long": frozenset(), "longer": frozenset()}, endless)
    found = Attempt(seen(nets[0], 1), rows, np.zeros(len(rows), bool), [slow, Family({"short": frozenset()}, quick)])
    found.measure(["long", "longer", "short"])
    assert called == [["long", "longer"], ["short"]]
    assert list(found.values) == ["short"]
    assert set(found.failed) == {"long", "longer"}


def test_the_limit_follows_from_the_time_that_was_told() -> None:
    assert limit() == limit(60) == 3600
    assert limit(10_000) == 20_000
    prepared = prepare(asking(["tear"]))
    (told,) = [one for one in prepared.settings.notices if one.code == SEARCH_TIME]
    assert told.data["given_up"] == limit(prepared.settings.search.seconds) == 3600
    assert "given up after 60 minutes" in words(told)
    assert prepared.settings.search.seconds > 0
    (family,) = [f for f in prepared.auditor.outlooks.sights["(label-only-client)"].families if "boundary" in f.needs]
    assert family.expected == prepared.settings.search.seconds


def test_while_an_inner_block_runs_the_outer_clock_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SECONDS", 1.0)

    def outer(rest: float) -> None:
        with patience.patience():
            with patience.patience(expected=5):
                time.sleep(1.5)
            time.sleep(rest)

    outer(0.01)
    with pytest.raises(TooLongError, match="longer than 1 s"):
        outer(5)


def test_the_clock_of_somebody_else_goes_on() -> None:
    before = signal.signal(signal.SIGALRM, lambda number, frame: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 60)
        with patience.patience():
            time.sleep(0.2)
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert 0 < left <= 59.8
