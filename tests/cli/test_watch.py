"""A run that goes on elsewhere is followed to its end: on a screen that changes, or line by line."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fedaudit.cli import terminal
from fedaudit.results.advice import ADVICE
from fedaudit.results.document import RESULTS
from fedaudit.results.study import STUDY
from fedaudit.trace.journal import JOURNAL
from fedaudit.trace.store import HOST_CLAIM, RUN, Store
from fedaudit.types import RoundRisk
from tests.command import fedaudit
from tests.trace.test_store import round_, seen

MANIFEST = {"keep": "signals", "parties": ["A", "B", "C"], "attacks": ["loss"], "rounds": 3, "created": "today"}


def risk(value: float) -> RoundRisk:
    place = {"vantage": "client", "model": "global", "attack": "loss", "metric": "auc"}
    return RoundRisk(**place, value=value, low=value - 0.1, high=value + 0.1)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], bool]], None]:
    """Time goes on by what is done between two looks: `step(n)`, before the n-th."""

    def begin(step: Callable[[int], bool]) -> None:
        looks = iter(range(1, 1000))
        monkeypatch.setattr("fedaudit.cli.watching.time.sleep", lambda _: step(next(looks)))

    return begin


def recording(folder: Path, looked: int) -> bool:
    """A run that is not there at first; its third round ends it."""
    if looked == 1:
        Store.create(folder, MANIFEST).close()
    elif 2 <= looked <= 4:
        with Store.resume(folder) as store:
            store.append(round_(looked - 1), seen(looked - 1), [risk(0.4 + looked / 10)])
        spent = "".join(f"[[spent]]\nround = {n}\nepsilon = {n / 2}\n" for n in range(1, looked))
        (folder / HOST_CLAIM).write_text(spent)
    else:
        with Store.resume(folder) as store:
            store.end("complete", None)
    return looked < 6


def test_rounds_are_told_one_by_one_from_before_the_first_to_the_end(
    tmp_path: Path, hurried: Callable[[Callable[[int], bool]], None]
) -> None:
    folder = tmp_path / "later"
    hurried(lambda looked: recording(folder, looked))
    done = fedaudit("watch", "later", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "later: before its first round, there is no such folder yet; waiting",
        "round 1 of 3: client, global: loss auc 0.600 (0.500–0.700); epsilon 0.5; absent: C",
        "round 2 of 3: client, global: loss auc 0.700 (0.600–0.800); epsilon 1; absent: C",
        "round 3 of 3: client, global: loss auc 0.800 (0.700–0.900); epsilon 1.5; absent: C",
        "later: round 3 of 3, all rounds are recorded; the results are being computed",
        "later: round 3 of 3, ended: complete",
        "It has no results.",
    ]


def test_a_terminal_has_one_screen_with_the_newest_rounds(
    tmp_path: Path, hurried: Callable[[Callable[[int], bool]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "later"
    hurried(lambda looked: recording(folder, looked))
    monkeypatch.setattr(terminal.console, "_force_terminal", True)
    monkeypatch.setattr(terminal.console, "_environ", {"TERM": "xterm"})
    monkeypatch.setattr(terminal.console, "is_interactive", True)
    monkeypatch.setattr(terminal.console, "_height", 40)
    done = fedaudit("watch", "later", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    last = done.stdout[done.stdout.rindex("round  client") :]
    assert [line.split("  ")[0] for line in last.splitlines() if line.strip()][:4] == ["round", "1", "2", "3"]
    assert "0.800 (0.700–0.900)" in last
    assert last.splitlines()[1].rstrip().endswith("C")
    assert done.stdout.count("before its first round") >= 1


def test_a_run_that_ended_is_told_at_once_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    with Store.create(tmp_path / "done", MANIFEST) as store:
        store.append(round_(1), seen(1), [risk(0.6)])
        store.end("interrupted at round 1", None)
    done = fedaudit("watch", "done", cwd=tmp_path)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3)
    assert "ended: interrupted at round 1" in done.stdout
    assert "fedaudit report" not in done.stdout  # there is nothing yet
    (tmp_path / "done" / RESULTS).write_text("{}")  # not as anybody wrote it
    refused = fedaudit("watch", "done", cwd=tmp_path)
    assert refused.returncode == 5
    assert "says what was found" not in refused.stdout
    (tmp_path / "done" / RUN).write_text("{")
    damaged = fedaudit("watch", "done", cwd=tmp_path)
    assert damaged.returncode == 5
    assert "[watch-damaged]" in damaged.stderr


def test_ctrl_c_ends_the_watching_and_says_that_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedaudit.cli.watching.time.sleep", interrupted)
    done = fedaudit("watch", "later", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "Stopped watching. The run goes on by itself."


def test_a_folder_of_runs_and_a_file_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("fedaudit.cli.watching.time.sleep")
    Store.create(tmp_path / "runs" / "mine", MANIFEST).close()
    several = fedaudit("watch", "runs", cwd=tmp_path)
    assert (several.returncode, "runs/mine" in several.stderr) == (2, True)
    (tmp_path / "my.csv").write_text("a,b\n")
    assert "is no folder" in fedaudit("watch", "my.csv", cwd=tmp_path).stderr


@pytest.mark.parametrize("name", [STUDY, ADVICE])
def test_a_study_or_an_advice_is_not_waited_for(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("fedaudit.cli.watching.time.sleep")
    (tmp_path / name).write_text("{}")
    done = fedaudit("watch", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 2
    assert "[not-a-run]" in done.stderr
    assert "fedaudit serve" in done.stderr


def test_rounds_that_are_done_again_between_two_looks_are_told_again(
    tmp_path: Path, hurried: Callable[[Callable[[int], bool]], None]
) -> None:
    def step(looked: int) -> bool:
        with Store.resume(tmp_path / "back") as store:
            if looked == 1:
                store.append(round_(2, end=7.0), seen(2), [risk(0.7)])
                store.append(round_(3, start=7.0), seen(3), [risk(0.8)])
            else:
                store.end("complete", None)
        return True

    with Store.create(tmp_path / "back", MANIFEST) as store:
        for number in (1, 2, 3):
            store.append(round_(number), seen(number), [risk(0.6)])
    hurried(step)
    said = [line for line in fedaudit("watch", "back", cwd=tmp_path).stdout.splitlines() if line.startswith("round")]
    assert [line[6] for line in said] == ["1", "2", "3", "2", "3"]
    assert "0.800" in said[-1]


def test_a_run_in_another_thread_is_followed_while_it_is_written(tmp_path: Path) -> None:
    """Nothing is locked: the store is open all the time."""

    def write() -> None:
        with Store.create(tmp_path / "live", MANIFEST) as store:
            for number in (1, 2, 3):
                store.append(round_(number), seen(number), [risk(0.5)])
                time.sleep(0.3)
            with (tmp_path / "live" / JOURNAL).open("a") as file:
                file.write("no event\n")
            store.end("complete", None)

    writer = threading.Thread(target=write)
    writer.start()
    done = fedaudit("watch", "live", cwd=tmp_path)
    writer.join()
    assert done.returncode == 0, done.stderr
    assert [line[:7] for line in done.stdout.splitlines() if line.startswith("round")] == [
        "round 1",
        "round 2",
        "round 3",
    ]
    assert "1 lines of its journal are damaged" in done.stdout
