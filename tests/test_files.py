"""Files that are whole or absent."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedaudit.files import atomic, write_atomically


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
