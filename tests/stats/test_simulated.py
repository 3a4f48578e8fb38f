"""Simulations are left out only while everything that they are about is as it was when they passed."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import without_simulations
from tests.stats.simulated import HEAD, ROOT, digest, passed, sources


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The sources, and a stamp of them."""
    for name in {name for name, _ in sources()}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "stamp").write_text(f"{HEAD}{digest(tmp_path)}\n")
    return tmp_path


def test_what_they_are_about() -> None:
    names = {name for name, _ in sources()}
    assert {"src/fedaudit/stats/roc.py", "tests/stats/test_roc.py", "docs/coverage_worlds.py"} <= names
    assert [line.split("==")[0] for name, line in sources() if name == "constraints.txt"] == ["numpy", "scipy"]


@pytest.mark.parametrize("name", ["src/fedaudit/stats/roc.py", "tests/stats/test_roc.py", "docs/coverage_worlds.py"])
def test_any_change_makes_them_run_again(copied: Path, name: str) -> None:
    assert passed(copied, copied / "stamp")
    (copied / name).write_text((copied / name).read_text() + "\n")
    assert not passed(copied, copied / "stamp")


def test_so_does_a_file_that_is_new_or_gone_another_scipy_or_no_stamp(copied: Path) -> None:
    assert digest(copied) == digest(ROOT)
    (copied / "src/fedaudit/stats/new.py").touch()
    assert not passed(copied, copied / "stamp")
    (copied / "src/fedaudit/stats/new.py").unlink()
    assert passed(copied, copied / "stamp")
    pinned = (copied / "constraints.txt").read_text()
    (copied / "constraints.txt").write_text(pinned.replace("scipy==", "scipy==9"))
    assert not passed(copied, copied / "stamp")
    (copied / "constraints.txt").write_text(pinned)
    (copied / "src/fedaudit/stats/roc.py").unlink()
    assert not passed(copied, copied / "stamp")
    assert not passed(ROOT, copied / "no stamp")


class Item:
    def __init__(self, name: str, marked: bool):
        self.name, self.marked = name, marked

    def get_closest_marker(self, name: str) -> object:
        return self if self.marked and name == "simulation" else None


@pytest.mark.parametrize(
    ("marks", "unchanged", "left"),
    [
        ("not evidence", True, ["plain"]),
        ("not evidence", False, ["plain", "simulated"]),
        ("simulation", True, ["plain", "simulated"]),
    ],
)
def test_they_are_left_out_unless_something_changed_or_they_are_asked_for(
    marks: str, unchanged: bool, left: list[str]
) -> None:
    items = [Item("plain", False), Item("simulated", True)]
    kept, _ = without_simulations(items, marks, unchanged)  # type: ignore[arg-type]
    assert [item.name for item in kept] == left
