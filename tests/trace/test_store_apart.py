"""A trace in a folder that holds links, and one that was written with a clock that went back."""

from pathlib import Path

import pytest

from fedaudit.trace.store import Store
from fedaudit.types import Round, Trained
from tests.trace.test_store import create, model, round_


def test_B23_no_round_is_written_through_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with create(tmp_path / "run") as store:
        (tmp_path / "run" / "rounds").symlink_to(elsewhere)
        with pytest.raises(PermissionError, match="rounds is a link"):
            store.append(round_(1))
    assert list(elsewhere.iterdir()) == []
    with create(tmp_path / "run") as store:  # begun anew, without the link
        store.append(round_(1))
    assert list(elsewhere.iterdir()) == []


def test_a_clock_that_was_set_back_leaves_no_negative_seconds(tmp_path: Path) -> None:
    late = Round(1, model(0), {"A": Trained(model(1), 10, -3.5)}, model(1))
    with create(tmp_path / "run") as store:
        store.append(late)
    (entry,) = Store.read(tmp_path / "run").entries()
    assert entry.parties["A"].epoch_seconds == 0.0
