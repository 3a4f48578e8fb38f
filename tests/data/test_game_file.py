"""A game in a file: one party's, or several as one, under a path of either kind."""

from pathlib import Path

import numpy as np

from fedaudit.data.game_file import load_game, save_game
from fedaudit.data.set_aside import joined, set_aside
from fedaudit.types import Game


def game(party: str, seed: int) -> Game:
    rng = np.random.default_rng(seed)
    return set_aside(rng.normal(size=(60, 4)).astype(np.float32), rng.integers(0, 2, 60), party=party)[1]


def test_a_list_and_a_string_are_taken(tmp_path: Path) -> None:
    games = [game("north", 1), game("south", 2)]
    save_game(games, str(tmp_path / "both.npz"))
    found, whole = load_game(tmp_path / "both.npz"), joined(*games)
    assert found.parties == ["north", "south"]
    assert np.array_equal(found.candidates.id, whole.candidates.id)
    assert np.array_equal(found.candidates.party, whole.candidates.party)
    assert np.array_equal(found.truth.role, whole.truth.role)
    assert np.array_equal(found.candidates.rows.x, whole.candidates.rows.x)
    save_game(games[0], tmp_path / "one.npz")
    assert load_game(tmp_path / "one.npz").parties == ["north"]
    assert (tmp_path / "one.npz").stat().st_mode & 0o777 == 0o600
