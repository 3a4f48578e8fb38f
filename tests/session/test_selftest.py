"""A self-test says whether an installation is sound, and later runs quote it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedaudit import __version__
from fedaudit.report.html import render
from fedaudit.results.document import load
from fedaudit.results.selftest import Counted, SelfTest, code, keep, kept_for
from fedaudit.session import selftest
from fedaudit.session.prepare import prepare
from fedaudit.session.recording import installed
from fedaudit.session.run import run
from fedaudit.stats import proved_epsilon
from tests.command import fedaudit
from tests.worlds import config, silent, watch

VANTAGES = ["client", "server", "label-only-client"]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(selftest._WORLD, "audit", {"attacks": ["matched-filter", "loss"]})
    for name, count in {"NULLS": 2, "LEAKS": 1, "MECHANISMS": 4}.items():
        monkeypatch.setattr(selftest, name, count)


def outcome(attacks: tuple[str, ...] = ("loss",), **changed: object) -> SelfTest:
    found = SelfTest(
        created="2026-11-17", fedaudit=__version__, code=code(), versions=installed(), attacks=attacks, confidence=0.95,
        false_alarms=Counted(0, 12), found=Counted(3, 3), bounds_above=Counted(1, 60), fits_around=Counted(58, 60),
        sound=True, seconds=30.0,
    )  # fmt: skip
    return replace(found, **changed)  # type: ignore[arg-type]


@pytest.mark.usefixtures("small")
def test_a_sound_installation_is_said_to_be_sound_and_kept(tmp_path: Path) -> None:
    done = fedaudit("selftest", cwd=tmp_path)
    assert done.returncode == 0
    assert "This installation is sound" in done.stdout
    assert "planted leaks found" in done.stdout
    kept = kept_for(__version__, installed(), ["matched-filter"], 0.95)
    assert kept is not None
    assert kept.sound
    assert kept.false_alarms == Counted(0, 2)
    assert "matched-filter" in kept.attacks


@pytest.mark.usefixtures("small")
def test_the_attacks_and_the_confidence_are_those_of_a_configuration() -> None:
    found = selftest.selftest(
        silent, config(audit={"attacks": ["loss", "gap"], "confidence": 0.9, "vantages": VANTAGES})
    )
    assert found.sound
    assert found.found == Counted(1, 1)
    assert found.confidence == 0.9
    assert {"loss", "gap"} <= {*found.attacks}
    assert "fta-loss" not in found.attacks


@pytest.mark.usefixtures("small")
def test_a_leak_that_is_not_found_is_not_sound_and_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "watch", lambda prepared: replace(watch(prepared), headlines=[]))
    done = fedaudit("selftest", cwd=tmp_path)
    assert done.returncode == 6
    assert "NOT sound" in done.stdout
    kept = kept_for(__version__, installed(), ["matched-filter"], 0.95)
    assert kept is not None
    assert not kept.sound
    assert kept.found == Counted(0, 1)


@pytest.mark.usefixtures("small")
def test_alarms_where_there_is_nothing_to_find_are_not_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "NULLS", 4)
    monkeypatch.setattr(selftest, "_NULL", selftest._LEAK)
    monkeypatch.setattr(selftest, "null_world", prepare)
    found = selftest.selftest(silent)
    assert found.false_alarms == Counted(4, 4)
    assert not found.sound


@pytest.mark.usefixtures("small")
def test_a_bound_that_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds three times as large as proved, and intervals that promise less."""
    monkeypatch.setattr(selftest, "MECHANISMS", 8)
    right = selftest.mechanisms(0.95)
    assert right[0] <= 1
    assert right[1] >= right[2] - 2
    assert right[2] >= 7

    def tripled(*given: Any) -> Any:
        found = proved_epsilon(*given)
        return replace(found, value=3 * (found.value or 0.0))

    monkeypatch.setattr(selftest, "proved_epsilon", tripled)
    assert selftest.mechanisms(0.95)[0] > 2
    assert selftest.mechanisms(0.5)[1] < right[1]


def test_the_outcome_that_fits_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept_for(__version__, installed(), ["loss"], 0.95) is None
    file = keep(outcome())
    keep(outcome(("loss", "merlin")))
    keep(outcome(fedaudit="0.0.1"))
    keep(outcome(code="of other sources"))
    keep(outcome(false_alarms=Counted(2, 12)))  # again: the first one is replaced
    assert len(json.loads(file.read_text())) == 4
    found = kept_for(__version__, installed(), ["loss", "merlin"], 0.95)
    assert found == outcome(("loss", "merlin"))
    assert kept_for(__version__, installed(), ["loss"], 0.99) is None
    assert kept_for(__version__, installed() | {"torch": "1.0"}, ["loss"], 0.95) is None
    file.write_text("{")
    assert kept_for(__version__, installed(), ["loss"], 0.95) is None


def test_results_and_report_quote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small = config(federation={"rounds": 2}, audit={"attacks": ["loss", "modified-entropy"]})
    run(small, tmp_path / "before", silent)
    assert "fedaudit selftest takes about a minute" in render(load(tmp_path / "before"))
    keep(outcome())
    run(small, tmp_path / "after", silent)
    after = load(tmp_path / "after")
    assert after.run.selftest == outcome()
    page = render(after)
    assert "passed on 2026-11-17: 0 of 12 audits raised a false alarm" in page
    assert "not tried: modified-entropy" in page
