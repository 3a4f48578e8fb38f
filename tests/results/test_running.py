"""A run is read while it is written: every round as soon as it is recorded, nothing twice, and nothing is disturbed."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fedaudit.privacy import accounting
from fedaudit.privacy.statement import Process, Promise
from fedaudit.report import live
from fedaudit.results import running
from fedaudit.results.running import FIRST, Follower, Running, under
from fedaudit.session import tracking
from fedaudit.session.run import run
from fedaudit.trace.journal import JOURNAL
from fedaudit.trace.store import HOST_CLAIM, RUN, Store
from fedaudit.types import RoundRisk
from tests.trace.test_store import round_, seen
from tests.worlds import config

MANIFEST = {"keep": "signals", "parties": ["A", "B", "C"], "attacks": ["loss"], "rounds": 4, "created": "today"}


def risk(value: float | None, low: float | None = None, high: float | None = None) -> RoundRisk:
    place = {"vantage": "client", "model": "global", "attack": "loss", "metric": "auc"}
    return RoundRisk(**place, value=value, low=low, high=high)


def at(follower: Follower, seconds: float = 1.0) -> Running:
    """So many seconds after it was last written to."""
    return follower.look((follower.folder / JOURNAL).stat().st_mtime + seconds)


def test_each_round_is_seen_when_it_is_recorded_with_what_was_found(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    assert follower.look().state == "starting"
    store = Store.create(tmp_path, MANIFEST)
    assert (at(follower).state, at(follower).parties) == ("starting", ("A", "B", "C"))
    for number in (1, 2, 3):
        store.append(round_(number), seen(number), [risk(0.5 + number / 10, 0.4, 0.9)])
        run = at(follower)
        assert (run.state, run.newest, run.planned) == ("running", number, 4)
        assert run.rounds[-1].risks == (risk(0.5 + number / 10, 0.4, 0.9),)
        assert run.absent(run.rounds[-1]) == ["C"]
    assert at(follower).left is not None
    store.append(round_(4), seen(4), [risk(float("nan"), None, float("inf"))])
    assert at(follower).rounds[-1].risks == (risk(None),)
    assert at(follower).state == "computing"
    store.end("complete", None)
    store.close()
    assert (at(follower).state, at(follower).why) == ("ended", "complete")
    assert Follower(tmp_path).look().rounds == at(follower).rounds  # read at once, or bit by bit


def test_only_what_was_added_is_read_and_half_a_line_is_left_alone(tmp_path: Path) -> None:
    with Store.create(tmp_path, MANIFEST) as store:
        store.append(round_(1), seen(1))
        follower = Follower(tmp_path)
        assert at(follower).newest == 1
        read = follower.offset
        store.append(round_(2), seen(2))
        whole = (tmp_path / JOURNAL).read_bytes()
        former = whole[:FIRST] + b"x" * (read - FIRST)  # is not looked at again
        (tmp_path / JOURNAL).write_bytes(former + whole[read:-7])
        assert (at(follower).newest, follower.offset, at(follower).damaged_lines) == (1, read, 0)
        (tmp_path / JOURNAL).write_bytes(former + whole[read:])
        assert (at(follower).newest, follower.offset) == (2, len(whole))


def test_a_run_that_was_interrupted_and_goes_on_is_running_again(tmp_path: Path) -> None:
    with Store.create(tmp_path, MANIFEST) as store:
        store.append(round_(1), seen(1))
        store.end("interrupted at round 1", None)
    follower = Follower(tmp_path)
    assert (at(follower).state, at(follower).why) == ("ended", "interrupted at round 1")
    with Store.resume(tmp_path) as store:
        store.resumed()
        assert at(follower).state == "running"


def test_a_run_that_is_taken_up_has_not_ended_while_its_data_are_read(tmp_path: Path) -> None:
    settings = config(federation={"rounds": 3}, audit={"attacks": ["loss"]})
    states: list[tuple[str, str, str]] = []

    @contextmanager
    def seen_by_others(what: str, steps: int) -> Iterator[Callable[[], None]]:
        found = Follower(tmp_path / "run").look()
        states.append((what, found.state, found.why))

        def step() -> None:
            if steps == 3:
                raise KeyboardInterrupt

        yield step if len(states) < 3 else lambda: None

    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "run", seen_by_others)
    with Store.resume(tmp_path / "run") as store:
        store.end("interrupted at round 1", None)
    assert Follower(tmp_path / "run").look().why == "interrupted at round 1"
    states[:] = [*states[:2], ("", "", "")]
    run(settings, tmp_path / "run", seen_by_others)
    assert states[3:] == [
        ("Reading the data", "running", ""),
        ("Training and auditing", "running", ""),
        ("Computing statistics", "computing", ""),
    ]


@pytest.mark.parametrize("rounds", [1, 4])
def test_a_run_that_replaces_another_is_read_from_its_beginning(tmp_path: Path, rounds: int) -> None:
    with Store.create(tmp_path, MANIFEST) as store:
        for number in (1, 2, 3):
            store.append(round_(number), seen(number))
    follower = Follower(tmp_path)
    assert at(follower).newest == 3
    with Store.create(tmp_path, MANIFEST | {"rounds": 9}) as store:
        for number in range(1, rounds + 1):  # also when it has become as long meanwhile, under the same number of file
            store.append(round_(number), seen(number))
        assert (at(follower).newest, at(follower).planned) == (rounds, 9)


def test_a_run_that_says_nothing_for_long_is_quiet(tmp_path: Path) -> None:
    with Store.create(tmp_path, MANIFEST) as store:
        store.append(round_(1), seen(1))
    assert at(Follower(tmp_path), running.QUIET - 1).state == "running"
    assert at(Follower(tmp_path), running.QUIET + 1).state == "quiet"


def test_damage_is_told_and_does_not_raise(tmp_path: Path) -> None:
    with Store.create(tmp_path, MANIFEST) as store:
        for number in (1, 2):
            store.append(round_(number), seen(number))
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    (tmp_path / JOURNAL).write_bytes(lines[0] + lines[1].replace(b"true", b"tru3") + lines[2])
    assert (at(Follower(tmp_path)).damaged_lines, at(Follower(tmp_path)).newest) == (1, 2)
    (tmp_path / RUN).write_text("{")
    assert at(Follower(tmp_path)).state == "damaged"
    assert "run.json" in at(Follower(tmp_path)).why
    (tmp_path / JOURNAL).unlink()
    os.mkfifo(tmp_path / JOURNAL)  # would be waited for
    assert Follower(tmp_path).look().state == "damaged"


def test_epsilon_over_the_planned_rounds(tmp_path: Path) -> None:
    promise = Promise(
        defence="dp-fedavg", process=Process("user", 1.0, 1, "full"), delta=1e-5, units=3, against="everybody"
    )
    Store.create(tmp_path, MANIFEST | {"guarantee": [asdict(promise)]}).close()
    found = running.spent(Follower(tmp_path).look())
    assert found is not None
    assert found.round == [1, 2, 3, 4]
    assert all(before < after for before, after in zip(found.epsilon, found.epsilon[1:], strict=False))  # type: ignore[operator]
    Store.create(tmp_path, MANIFEST).close()
    assert running.spent(Follower(tmp_path).look()) is None


def test_epsilon_of_a_long_run_is_that_of_the_round_itself_and_nothing_before_the_first(tmp_path: Path) -> None:
    """The curve has but 200 of its rounds."""
    process = Process("user", 5.0, 1, "full")
    promise = Promise(defence="dp-fedavg", process=process, delta=1e-5, units=3, against="everybody")
    with Store.create(tmp_path, MANIFEST | {"rounds": 1000, "guarantee": [asdict(promise)]}) as store:
        before = live._epsilon(Follower(tmp_path).look())
        for number in (1, 2, 3):
            store.append(round_(number), seen(number))
    run = Follower(tmp_path).look()
    curve = running.spent(run)
    assert curve is not None
    assert 3 not in curve.round
    assert len(curve.round) == 200
    expected = [accounting.epsilon(process, number, 1e-5) for number in (2, 3, 1002)]
    found = running.epsilons(run, [2, 3, 1002])
    assert [found[number] for number in (2, 3, 1002)] == pytest.approx(expected)
    now = live._epsilon(run)
    assert before is not None
    assert now is not None
    assert before.facts[0] == ("spent so far", "nothing yet")
    assert now.facts[0] == ("spent so far", f"{expected[1]:.4g}")
    assert tracking.scalars(run, run.rounds[-1])["epsilon"] == pytest.approx(expected[1])


@pytest.mark.parametrize("said", ["round = inf\nepsilon = 1", "round = 1\nepsilon = []", "round = 1"])
def test_a_claim_that_somebody_wrote_by_hand_is_no_claim(tmp_path: Path, said: str) -> None:
    Store.create(tmp_path, MANIFEST).close()
    claim = tmp_path / HOST_CLAIM
    claim.write_text(f"[[spent]]\n{said}\n")
    assert running.spent(Follower(tmp_path).look()) is None


def test_a_claim_is_a_file_of_bearable_size_and_no_link_or_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.create(tmp_path, MANIFEST).close()
    run, claim = Follower(tmp_path).look(), tmp_path / HOST_CLAIM
    (tmp_path / "else").write_text("[[spent]]\nround = 1\nepsilon = 2\n")
    claim.symlink_to(tmp_path / "else")
    assert running.spent(run) is None
    claim.unlink()
    os.mkfifo(claim)  # would be waited for
    assert running.spent(run) is None
    claim.unlink()
    (tmp_path / "else").rename(claim)
    assert running.spent(run) is not None
    monkeypatch.setattr(running, "MOST_CLAIMED", 10)
    assert running.spent(run) is None


def test_rounds_that_are_done_again_are_added(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    with Store.create(tmp_path, MANIFEST) as store:
        for number in (1, 2, 3):
            store.append(round_(number), seen(number))
        before = at(follower)
        store.append(round_(2, end=7.0), seen(2))
        store.append(round_(3, start=7.0), seen(3))
    run = at(follower)
    assert [round.round for round in running.added(before, replace(before, rounds=()))] == [1, 2, 3]
    assert [(round.round, round.branch) for round in running.added(run, before)] == [(2, 1), (3, 1)]
    assert running.added(run, run) == []


def test_runs_are_found_below_a_folder_and_links_are_not_followed(tmp_path: Path) -> None:
    top, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    for folder in (top / "b", top / "deep" / "a", elsewhere):
        Store.create(folder, MANIFEST).close()
    (top / "link").symlink_to(elsewhere)
    (top / "study" / "cells" / "c1").mkdir(parents=True)
    (top / "study" / "study.json").write_text("{}")
    (top / ".hidden").mkdir()
    assert list(under(top)) == [(top / "b", "run"), (top / "deep" / "a", "run"), (top / "study", "study")]
    assert list(under(top / "b")) == [(top / "b", "run")]
    assert list(under(top / "nothing")) == []


@pytest.mark.parametrize("wrong", [b"{}", b"[]", b'{"risks": 3}'])
def test_a_line_that_is_no_event_is_counted_as_damaged(tmp_path: Path, wrong: bytes) -> None:
    Store.create(tmp_path, MANIFEST).close()
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(wrong + b"\n")
    assert at(Follower(tmp_path)).damaged_lines == 1
