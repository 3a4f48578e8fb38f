"""What a party prepares from its records in one round serves the next one, as long as its process and its records stay
the same; what it finds is what a process of its own for every round finds."""

import copy
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from fedaudit.adversary.signals import matched
from fedaudit.integrations.party import Admitted, OwnShelf, Seat, SelfAudit, alike
from fedaudit.types import Game, State, Vantage
from tests.integrations.worlds import net, part, train

ROUNDS = 2
ATTACKS = ["round-gain", "matched-filter", "unmix"]


def exchanged() -> list[tuple[State, State]]:
    torch.manual_seed(0)
    module = net()
    made: list[tuple[State, State]] = []
    for index in range(ROUNDS):
        before = {name: value.numpy().copy() for name, value in module.state_dict().items()}
        train(module, part("north")[0], index)
        made.append((before, {name: value.numpy().copy() for name, value in module.state_dict().items()}))
    return made


def party() -> SelfAudit:
    return SelfAudit(net, logging.getLogger("tests"), rounds=ROUNDS, attacks=ATTACKS)


def audited(folder: Path, who: Callable[[int], SelfAudit], game: Callable[[int], Game]) -> Any:
    shelf = OwnShelf()
    for index, (before, after) in enumerate(exchanged(), start=1):
        audit, mine = who(index), game(index)
        seat = Seat(run="run", node="1", shelf=shelf, game=lambda mine=mine: mine, home=folder, folder=folder)  # type: ignore[misc]
        admitted = audit.admit(seat, Vantage.SERVER, index, lambda watch, before=before: before)  # type: ignore[misc]
        assert isinstance(admitted, Admitted)
        assert audit.release(seat, admitted, index, lambda watch, after=after: after, elapsed=1.0) is None  # type: ignore[misc]
    table = pq.read_table(folder / "north/scores.parquet").to_pydict()
    return table | {"score": [repr(score) for score in table["score"]]}  # NaN is NaN


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which preparations were made."""
    made: list[str] = []
    prepare = matched.prepare

    def counted(*given: Any) -> Any:
        if len(given[2]) > 2:  # not a signal that is tried
            made.append("filter")
        return prepare(*given)

    monkeypatch.setattr(matched, "prepare", counted)
    return made


def test_a_process_that_stays_prepares_once_and_finds_the_same(tmp_path: Path, prepared: list[str]) -> None:
    one, game = party(), part("north")[1]
    stays = audited(tmp_path / "stays", lambda index: one, lambda index: copy.deepcopy(game))
    assert prepared == ["filter"]
    changes = audited(tmp_path / "changes", lambda index: party(), lambda index: game)
    assert prepared == ["filter"] * 3
    assert stays == changes
    assert set(ATTACKS) <= set(stays["attack"])


def test_other_records_are_prepared_anew(tmp_path: Path, prepared: list[str]) -> None:
    def game(index: int) -> Game:
        given = part("north")[1]
        rows = given.candidates.rows
        x = rows.x if index < ROUNDS else np.roll(rows.x, 1, axis=1)
        return replace(given, candidates=replace(given.candidates, rows=replace(rows, x=x)))

    one = party()
    found = audited(tmp_path / "stays", lambda index: one, game)
    assert prepared == ["filter"] * 2
    assert found == audited(tmp_path / "changes", lambda index: party(), game)
    assert alike(game(0), game(1))
    assert not alike(game(1), game(ROUNDS))
