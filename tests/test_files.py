"""Files that are whole or absent."""

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedaudit.errors import FedauditError
from fedaudit.files import Lock, atomic, refuse_foreign, refuse_links, write_atomically, writing
from fedaudit.trace import journal
from fedaudit.trace.journal import Journal


def test_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    texts = [str(i % 10) * 100_000 for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(write_atomically, path, text) for text in texts]:
            done.result()
    assert path.read_text() in texts
    assert list(path.parent.iterdir()) == [path]


def test_what_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "old")

    def broken_off() -> None:
        with atomic(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken_off()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


# ------------------------------------------------------------------ B23: only regular files are written


def test_B23_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    """`--out /dev/full` made a file of a device. A pipe stands for it: a test that fails must not do the same."""
    pipe, link, folder, mine = (tmp_path / name for name in ("pipe", "link", "folder", "mine"))
    os.mkfifo(pipe)
    mine.write_text("precious")
    link.symlink_to(mine)
    folder.mkdir()
    for path in (pipe, link, folder):
        before = path.lstat().st_mode
        with pytest.raises(PermissionError, match="only regular files are written"):
            write_atomically(path, "x")
        assert path.lstat().st_mode == before
    assert (mine.read_text(), stat.S_ISFIFO(pipe.lstat().st_mode)) == ("precious", True)
    with pytest.raises(FedauditError, match="not-a-folder"):
        refuse_foreign(Path("/dev/full"), [])


def test_a_folder_without_locks_is_not_said_to_be_held_by_somebody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    lock = Lock(tmp_path)
    with pytest.raises(FedauditError, match=f"process {os.getpid()}. is writing"):
        Lock(tmp_path)
    lock.release()
    monkeypatch.setattr("fedaudit.files._acquire", without_locks)
    with pytest.raises(FedauditError, match=r"cannot be locked: No locks available.*on another one with --out"):
        Lock(tmp_path)


def test_B23_S7_neither_lock_nor_journal_is_written_through_a_link(tmp_path: Path) -> None:
    """`lock -> x` emptied x, and `journal.jsonl -> x` did."""
    mine = tmp_path / "bashrc"
    for name in ("lock", "journal.jsonl"):
        mine.write_text("precious\n")
        run = tmp_path / f"run-{name}"
        run.mkdir()
        (run / name).symlink_to(mine)
        with pytest.raises(PermissionError, match="only regular files are written"):
            Lock(run) if name == "lock" else Journal(run / name)
        with pytest.raises((PermissionError, FedauditError), match="only regular files are written"):
            journal.seal(run, {"results.json": "0"})
        assert mine.read_text() == "precious\n", name
        if name == "lock":
            with pytest.raises(FedauditError, match="only regular files are written"), writing(run):
                pass
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PermissionError, match="only regular files are written"):  # and it is not waited for
        Journal(tmp_path / "pipe")


def test_B23_a_temporary_file_that_somebody_else_put_there_is_not_followed(tmp_path: Path) -> None:
    import threading

    mine = tmp_path / "mine"
    mine.write_text("precious")
    (tmp_path / f".tmp-a.{os.getpid()}.{threading.get_ident()}").symlink_to(mine)
    write_atomically(tmp_path / "a", "new")
    assert (mine.read_text(), (tmp_path / "a").read_text()) == ("precious", "new")


def test_B23_S7_a_folder_of_a_run_may_not_be_a_link_but_what_leads_to_it_may(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    refuse_links(link, link / "signals" / "00001.parquet")
    (real / "signals").symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="signals is a link"):
        refuse_links(link, link / "signals" / "00001.parquet")
