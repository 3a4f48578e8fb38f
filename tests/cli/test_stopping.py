"""A user who presses Ctrl-C, or reads a log, is not left in doubt."""

import hashlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from fedaudit.cli import terminal
from fedaudit.words.times import spoken
from tests.cli.test_cli import SMALL


class Watched(io.StringIO):
    """Notes what had already happened when each line was written."""

    def __init__(self) -> None:
        super().__init__()
        self.over = False
        self.lines: list[tuple[str, bool]] = []

    def write(self, text: str) -> int:
        self.lines += [(line, self.over) for line in text.splitlines() if line.strip()]
        return super().write(text)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """What stands in a log: no terminal."""
    text = Watched()
    console = Console(file=text, width=200)
    monkeypatch.setattr(terminal, "errors", console)
    monkeypatch.setattr(terminal, "errors", console)
    return text


def test_F14_ctrl_c_is_answered_while_the_main_thread_still_computes(log: Watched) -> None:
    """A handler of Python's would be called only after the computation."""

    def press() -> None:
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    def compute() -> None:
        try:
            for _ in range(1000):  # each takes seconds, and nothing of Python runs in it
                hashlib.pbkdf2_hmac("sha256", b"", b"", 4_000_000)
        except KeyboardInterrupt:
            log.over = True
            raise

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt), terminal.heard("Stopping."):
        compute()
    assert log.lines == [("Stopping.", False)]
    assert signal.set_wakeup_fd(-1) == -1  # as it was before


def test_the_second_ctrl_c_is_answered_too(log: Watched) -> None:
    with terminal.heard("Stopping."):
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    assert [line for line, _ in log.lines] == ["Stopping.", "Stopping without waiting for the work in progress."]


ROUNDS, ATTACKS = ("--set", "federation.rounds=5000"), ("--set", 'audit.attacks=["loss"]')
STUDY = 'base = "long.toml"\n[grid]\n"federation.seed" = [0, 1]\n'


@pytest.mark.parametrize(
    ("command", "says", "ends"),
    [
        (["run", "long.toml"], "Stopping. The rounds so far are evaluated now", (4, 130)),
        (["demo", *ROUNDS, *ATTACKS], "Stopping. The rounds so far are evaluated now", (4, 130)),
        (["study", "study.toml", "--workers", "1"], "Stopping. The table and the report of the complete cells", (4,)),
        (["advise", "long.toml", "--limit", "auc < 0.6", "--workers", "1"], "Stopping, without advice.", (130,)),
    ],
)
def test_F14_every_long_command_answers(tmp_path: Path, command: list[str], says: str, ends: tuple[int, ...]) -> None:
    (tmp_path / "long.toml").write_text(SMALL.replace("rounds = 3", "rounds = 5000") + '[audit]\nattacks = ["loss"]\n')
    (tmp_path / "study.toml").write_text(STUDY)
    quick = "import fedaudit.cli.terminal as t; t.EVERY = 0.05; from fedaudit.__main__ import main; main()"
    started = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.argv[0] = 'fedaudit'\nif __name__ == '__main__':\n {quick}", *command],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "200"},
    )  # fmt: skip
    assert started.stderr is not None
    seen = next(line for line in started.stderr if " done in " in line)  # progress, though this is no terminal
    assert "time left not known yet" in seen or " left." in seen
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=120)
    assert says in said, said[-2000:]
    assert started.returncode in ends, said[-2000:]


def test_a_log_says_what_is_done_and_how_long_the_rest_takes(log: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "EVERY", 0.01)
    for what, steps, says in (
        ("Training", 40, "Training: 10 of 40 done in 0 s, about "),
        ("Computing statistics", 0, "Computing statistics: 0 s so far."),
    ):
        with terminal.progress(what, steps) as step:
            for _ in range(10 if steps else 0):
                step()
            for _ in range(1000):
                if any(line.startswith(says) for line, _ in log.lines):
                    break
                time.sleep(0.01)
        assert any(line.startswith(says) for line, _ in log.lines), log.lines
    assert "Training: 10 of 40 done in 0 s." in [line for line, _ in log.lines]


def test_the_time_left() -> None:
    assert terminal.so_far("Trying", 0, 8, 61.0) == "Trying: 0 of 8 done in 1 min 1 s, time left not known yet."
    assert terminal.so_far("Trying", 2, 8, 60.0) == "Trying: 2 of 8 done in 1 min 0 s, about 3 min 0 s left."
    assert spoken(3 * 3600 + 125) == "3 h 2 min"


def test_quick_work_is_not_logged(log: Watched) -> None:
    with terminal.progress("Reading the data", 0):
        pass
    assert log.lines == []
