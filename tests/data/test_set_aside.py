"""Setting records aside: the same record has the same place, whatever else there is."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from fedaudit.data.game_file import load_game, save_game
from fedaudit.data.set_aside import joined, set_aside
from fedaudit.errors import FedauditError
from fedaudit.types import Game, Role


def digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    x, y = load_digits(return_X_y=True)
    return x.astype(np.float32), y


def roles(game: Game) -> dict[str, str]:
    return dict(zip(game.truth.id.tolist(), game.truth.role.tolist(), strict=True))


def test_fractions_and_disjoint_parts() -> None:
    training, game = set_aside(*digits(), evaluation=0.1, calibration=0.3, seed=3)
    shares = {role: float(game.truth.mask(role).mean()) for role in Role}
    assert shares[Role.EVALUATION] == pytest.approx(0.1, abs=0.03)
    assert shares[Role.CALIBRATION] == pytest.approx(0.3, abs=0.04)
    assert set(training.id) == set(game.truth.id[game.truth.mask(Role.MEMBER)])


def test_order_and_additions_change_no_place() -> None:
    x, y = digits()
    _, all_of_them = set_aside(x, y, seed=3)
    order = np.random.default_rng(0).permutation(len(x))[:1200]
    _, some = set_aside(x[order], y[order], seed=3)
    whole = roles(all_of_them)
    assert all(whole[id] == role for id, role in roles(some).items())
    assert roles(set_aside(x, y, seed=4)[1]) != whole


def test_subjects_stay_together() -> None:
    x, y = digits()
    subject = np.array([f"s{i % 90}" for i in range(len(x))])
    _, game = set_aside(x, y, subject=subject, seed=0)
    assert game.candidates.subject is not None
    for name in np.unique(subject):
        assert len(set(game.truth.role[game.candidates.subject == name].tolist())) == 1


def test_labels_are_not_renumbered() -> None:
    """A party that has only the digits 3 and 8 still calls them 3 and 8."""
    x, y = digits()
    some = np.isin(y, (3, 8))
    training, _ = set_aside(x[some], y[some])
    assert set(training.y.tolist()) == {3, 8}
    assert training.y.dtype == np.int64


def test_values_for_regression_stay_values() -> None:
    x, y = digits()
    assert set_aside(x, y + 0.5)[0].y.dtype == np.float32


@pytest.mark.parametrize("fractions", [(0.0, 0.2), (0.5, 0.5), (0.2, float("nan"))])
def test_B2_fractions_that_leave_nothing(fractions: tuple[float, float]) -> None:
    with pytest.raises(FedauditError, match="leave records to train on"):
        set_aside(*digits(), evaluation=fractions[0], calibration=fractions[1])


def test_B5_ids_of_mixed_types_that_read_alike_are_refused() -> None:
    x, y = digits()
    for ids in ([*range(1796), "0"], np.array([*range(1796), "0"], dtype=object)):
        with pytest.raises(FedauditError, match="duplicate-id"):
            set_aside(x, y, id=ids)  # type: ignore[arg-type]


def test_B10_a_loader_that_shuffles_what_it_trains_on_does_not_reach_the_game() -> None:
    x, y = digits()
    training, game = set_aside(x, y, seed=3)
    before = game.candidates.rows.x.copy(), game.candidates.rows.y.copy()
    order = np.random.default_rng(0).permutation(len(training))
    training.x[:], training.y[:] = training.x[order], training.y[order]  # in place, as some loaders do
    x[:], y[:] = x[::-1].copy(), y[::-1].copy()
    assert np.array_equal(game.candidates.rows.x, before[0])
    assert np.array_equal(game.candidates.rows.y, before[1])


def test_too_few_records() -> None:
    x, y = digits()
    with pytest.raises(FedauditError, match="none is left for"):
        set_aside(x[:3], y[:3])
    with pytest.raises(FedauditError, match="labels"):
        set_aside(x, y.astype(str))


def test_games_are_joined_by_party() -> None:
    x, y = digits()
    first, second = set_aside(x[:900], y[:900], party="a")[1], set_aside(x[900:], y[900:], party="b")[1]
    both = joined(first, second)
    assert both.parties == ["a", "b"]
    assert len(both.members("b")) == len(second.members("b"))
    assert list(both.candidates.id) == sorted(both.candidates.id)
    assert roles(both) == roles(first) | roles(second)
    same = joined(first, set_aside(x[:900], y[:900], party="b", seed=1)[1])
    assert len(np.unique(same.candidates.id)) == 1800


def test_T9_parties_with_and_without_subjects_are_not_joined() -> None:
    """The subjects of one party were dropped without a word, and intervals then took its records for independent."""
    x, y = digits()
    people = np.array([f"s{i % 90}" for i in range(900)])
    known = set_aside(x[:900], y[:900], party="a", subject=people)[1]
    with pytest.raises(FedauditError, match=r"known of some parties, but not of b.*`subject`") as caught:
        joined(known, set_aside(x[900:], y[900:], party="b")[1])
    assert caught.value.code == "games-differ"
    assert joined(known, set_aside(x[900:], y[900:], party="b", subject=y[900:])[1]).candidates.subject is not None


def test_tokens_keep_their_type_on_every_way(tmp_path: Path) -> None:
    windows = np.random.default_rng(0).integers(0, 9, (80, 6))
    x, y = windows[:, :-1], windows[:, 1:]
    training, first = set_aside(x[:40], y[:40], party="a")
    assert (str(training.x.dtype), str(training.y.dtype), training.y.shape[1:]) == ("int64", "int64", (5,))
    both = joined(first, set_aside(x[40:], y[40:], party="b")[1])
    save_game(both, tmp_path / "game.npz")
    again = load_game(tmp_path / "game.npz")
    for game in (both, again):
        rows = game.candidates.rows
        assert (str(rows.x.dtype), str(rows.y.dtype)) == ("int64", "int64")
        assert np.array_equal(rows.x[:, 1:], rows.y[:, :-1])
    assert np.array_equal(again.candidates.rows.x, both.candidates.rows.x)
    assert roles(again) == roles(both)
    assert set_aside(x, y[:, 0])[0].x.dtype == np.int64  # one label for a whole text
    assert set_aside(x.astype(np.uint8), y[:, 0])[0].x.dtype == np.float32  # bytes are pictures
    with pytest.raises(FedauditError, match="tokens in one party and features in another"):
        joined(first, set_aside(x[40:].astype(float), y[40:], party="b")[1])
