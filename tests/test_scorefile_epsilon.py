"""`fedaudit score --epsilon`: four figures, four labels, and nothing that depends on the order of rows."""

from pathlib import Path

import numpy as np
import pytest

from fedaudit.errors import FedauditError
from fedaudit.scorefile import estimate
from fedaudit.stats.gaussian import gaussian_epsilon


def write(path: Path, order: np.ndarray) -> Path:
    rng = np.random.default_rng(0)
    member = rng.random(len(order)) < 0.5
    scores = rng.normal(1.0 * member)
    rows = [f"r{i},{int(member[i])},{scores[i]:.9f}" for i in order]
    path.write_text("id,member,score\n" + "\n".join(rows) + "\n")
    return path


def test_four_figures_side_by_side(tmp_path: Path) -> None:
    found = estimate(write(tmp_path / "a.csv", np.arange(3_000)), None, 0.95, 1e-5)
    assert {name: e["kind"] for name, e in found["epsilons"].items()} == {
        "epsilon-bonferroni": "proved",
        "epsilon-gdp": "model-based",
        "epsilon-maximised": "heuristic",
        "epsilon-one-run": "proved",
    }
    epsilons = found["epsilons"]
    truth = gaussian_epsilon(1.0, 1e-5)
    assert epsilons["epsilon-gdp"]["low"] < truth < epsilons["epsilon-gdp"]["high"]
    for name in ("epsilon-bonferroni", "epsilon-one-run"):
        assert 0 < epsilons[name]["value"] < min(truth, epsilons[name]["ceiling"])
    assert any("Only kind 'proved' is a bound" in line for line in found["notices"])


def test_T2_order_of_rows_changes_nothing(tmp_path: Path) -> None:
    order = np.arange(500)
    first = estimate(write(tmp_path / "a.csv", order), None, 0.95, 1e-5)
    second = estimate(write(tmp_path / "a.csv", order[::-1]), None, 0.95, 1e-5)
    assert first == second


def test_T18_a_delta_above_one_in_n_is_warned_of(tmp_path: Path) -> None:
    found = estimate(write(tmp_path / "a.csv", np.arange(400)), None, 0.95, 0.01)
    assert any("above 1/400" in line for line in found["warnings"])
    with pytest.raises(FedauditError, match="delta"):
        estimate(tmp_path / "a.csv", None, 0.95, 1.5)
