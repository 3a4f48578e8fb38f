"""The file of a study: what it may hold, and what is refused before anything is trained."""

import itertools
import json
from pathlib import Path

import pytest

from fedaudit.config.schema import load_config
from fedaudit.config.study import load_study
from fedaudit.errors import FedauditError
from tests.session.test_study import BASE, write


def test_cells_are_all_combinations_in_the_order_of_the_file(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, '"federation.parties" = [2, 4]\n"model.hidden" = [[8], [8, 4], []]'))
    expected = list(itertools.product([2, 4], [[8], [8, 4], []]))
    assert [tuple(cell.overrides.values()) for cell in study.cells] == expected
    for cell, (parties, hidden) in zip(study.cells, expected, strict=True):
        assert cell.config.federation.parties == parties
        assert cell.config.model.arguments()["hidden"] == tuple(hidden)
        assert cell.config.federation.lr == 3e-3
        assert cell.name == cell.config.hash()
    assert json.dumps(study.grid["model.hidden"]) == "[[8], [8, 4], []]"


def test_keys_that_go_together_share_their_values(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, '"federation.parties, federation.rounds" = [3, 5]'))
    assert [(c.config.federation.parties, c.config.federation.rounds) for c in study.cells] == [(3, 3), (5, 5)]


def test_relative_paths_are_beside_the_base(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    path = write(
        tmp_path / "deep", '"data.path" = ["a.npz", "b.npz"]', BASE.replace('"digits"', '"npz"\npath = "x.npz"')
    )
    study = load_study(path)
    assert [getattr(c.config.data, "path", None) for c in study.cells] == [
        (tmp_path / "deep" / name).resolve() for name in ("a.npz", "b.npz")
    ]
    assert study.base == load_config(tmp_path / "deep" / "base.toml")


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ('"federation.partis" = [2, 4]', r"the cell federation.partis = 2.*Did you mean 'parties'"),
        ('"federatoin.parties" = [2]', "Did you mean 'federation'"),
        ('"federation.parties" = [2, "many"]', 'federation.parties = "many".*valid integer'),
        ('"federation.parties" = []', "needs a list of values"),
        ('"federation.parties" = [2, 2]', "lists 2 twice"),
        ('"federation..parties" = [2]', "needs a list of values"),
        ('"federation.parties.more" = [2]', "names a key inside a key"),
        ('"federation.parties" = 2', "grid"),
        ('"federation.lr" = [0.001, 1e-3]', "twice"),
        ('"federation.secagg" = [true]\n"audit.vantages" = [["server"]]', "secagg-server"),
    ],
)
def test_B16_wrong_grids_are_refused_with_the_cell_and_a_remedy(tmp_path: Path, grid: str, said: str) -> None:
    base = BASE.replace("lr = 3e-3", "lr = 3e-3\nparties = 2")
    with pytest.raises(FedauditError, match=f"(?s){said}") as error:
        load_study(write(tmp_path, grid, base))
    assert error.value.exit_code == 2


def test_two_cells_that_are_one_configuration_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="same configuration"):
        load_study(write(tmp_path, 'model = [{ name = "mlp", hidden = [32] }, { hidden = [32] }]'))


def test_unknown_keys_and_a_missing_base_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="Did you mean 'engine'"):
        load_study(write(tmp_path, head='engin = "ray"'))
    path = write(tmp_path)
    (tmp_path / "base.toml").unlink()
    with pytest.raises(FedauditError, match=r"cannot read .*base\.toml"):
        load_study(path)
    with pytest.raises(FedauditError, match="study-missing"):
        load_study(tmp_path / "none.toml")


EXAMPLES = Path(__file__).parents[2] / "examples" / "subject-study"


@pytest.mark.parametrize(("name", "cells"), [("study.toml", 2 * 4 * 3 * 2 * 3 * 3), ("two-cores.toml", 48)])
def test_the_grid_of_the_paper_is_as_printed(name: str, cells: int) -> None:
    study = load_study(EXAMPLES / name)
    assert len(study.cells) == cells
    for cell in study.cells:
        assert cell.config.federation.parties == cell.config.data.arguments()["users"]
