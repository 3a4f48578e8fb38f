"""Processes that take one piece of work after another, and what becomes of a piece whose process dies."""

import os
import threading
import time
from pathlib import Path

import pytest

from fedaudit.session.workers import News, Tell, work


def die_afterwards(piece: tuple[Path, int], tell: Tell) -> None:
    """Does its piece, says so, and dies a moment later, as a process does that the system kills."""
    folder, number = piece
    (folder / f"begun-{number}").touch()

    def die() -> None:
        time.sleep(0.3)
        (folder / f"died-{number}").touch()
        os._exit(1)

    threading.Thread(target=die, daemon=True).start()


def die_at_once(piece: int, tell: Tell) -> None:
    os._exit(3)


def test_a_process_that_dies_between_two_pieces_costs_none(tmp_path: Path) -> None:
    found: list[News] = []
    for one in work([(tmp_path, number) for number in range(2)], die_afterwards, 1):
        found.append(one)
        while not (tmp_path / f"died-{one.piece}").exists():  # whoever reads the news takes this long over it
            time.sleep(0.05)
        time.sleep(0.3)
    assert [(one.piece, one.kind) for one in found] == [(0, "done"), (1, "done")]
    assert len(list(tmp_path.glob("begun-*"))) == 2


def test_a_process_that_dies_in_a_piece_fails_that_piece_once() -> None:
    (found,) = work([0], die_at_once, 1)
    assert (found.piece, found.kind, found.why) == (0, "failed", "its process ended with code 3")


def tell_threads(piece: int, tell: Tell) -> None:
    """How many threads each library takes that has a pool of its own."""
    import sklearn.ensemble  # noqa: F401
    from threadpoolctl import threadpool_info

    for pool in threadpool_info():
        tell("step", pool["internal_api"], str(pool["num_threads"]))


def test_every_library_has_one_thread_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    told = [(one.what, one.why) for one in work([0], tell_threads, 1) if one.kind == "step"]
    assert {"openmp", "openblas"} <= {library for library, _ in told}
    assert {threads for _, threads in told} == {"1"}
    assert os.environ["OMP_NUM_THREADS"] == "2"
