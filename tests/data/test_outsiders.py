"""Records that are in and out at once: counted and said, in a run and beside a loop."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.data.partition import game as split
from fedaudit.data.partition import split_people, twins
from fedaudit.data.records import dataset
from fedaudit.session.run import run
from fedaudit.types import Game, Role, Truth
from fedaudit.words import all_words
from tests.worlds import config, silent


def records(copies: int, n: int = 40) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, 3)), rng.integers(0, 2, n)
    x[:copies], y[:copies] = x[n - copies :], y[n - copies :]
    return {"x": x, "y": y}


@pytest.mark.parametrize("copies", [0, 3, 20])
def test_B4_members_with_the_content_of_a_nonmember_are_counted(copies: int) -> None:
    given = dataset("mine", **records(copies), id=np.arange(40)).records
    made = split(given, {"party-0": np.arange(40)}, 0.3, 0.3, np.random.default_rng(0))
    member = made.truth.role == "member"
    rows = made.candidates.rows
    outside = {rows.x[i].tobytes() for i in np.flatnonzero(~member)}
    expected = sum(rows.x[i].tobytes() in outside for i in np.flatnonzero(member))
    assert bool(expected) == bool(copies)
    warnings = all_words(twins(made))
    assert [line.split(" have ")[0] for line in warnings] == ([f"{expected} of 12 members"] if copies else [])


def test_B4_the_same_input_with_another_label_is_another_record() -> None:
    given = dataset("mine", np.repeat(np.arange(20.0), 2)[:, None], np.arange(40) % 2).records
    assert twins(split(given, {"party-0": np.arange(40)}, 0.3, 0.3, np.random.default_rng(0))) == []


def test_B4_a_run_on_rows_that_are_all_there_twice_says_so(tmp_path: Path) -> None:
    half = records(0, 150)
    np.savez(tmp_path / "twice.npz", x=np.tile(half["x"], (2, 1)), y=np.tile(half["y"], 2))
    keys: dict[str, Any] = {"data": {"name": "npz", "path": tmp_path / "twice.npz"}, "audit": {"attacks": ["loss"]}}
    document = run(config(**keys, federation={"rounds": 2}), tmp_path / "out", silent)
    assert any("have the same content as a non-member" in line for line in document.warnings)


def test_non_members_of_people_who_were_trained_on_are_counted() -> None:
    """They halve the risk that is found, and nobody was told."""
    people = np.repeat(np.arange(20), 5)
    given = dataset("a", np.arange(100.0)[:, None], np.arange(100) % 2, id=np.arange(100), subject=people).records
    made = split(given, {"party-0": np.arange(100)}, 0.3, 0.3, np.random.default_rng(0))
    subject, member = made.candidates.subject, made.truth.mask(Role.MEMBER)
    assert subject is not None
    known = set(subject[member].tolist())
    count = sum(name in known for name in subject[~member].tolist())
    (said,) = all_words(split_people(made))
    assert said.startswith(f"{count} of 70 non-members belong to people who were trained on")
    whole = Game(made.candidates, Truth(made.truth.id, np.where(subject.astype(int) < 6, "member", "calibration")))
    assert split_people(whole) == []
