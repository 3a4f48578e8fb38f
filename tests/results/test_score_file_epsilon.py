"""`fedaudit score --epsilon`: four figures, four labels, and nothing that depends on the order of rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.errors import FedauditError
from fedaudit.results.schema import plain
from fedaudit.results.scores import estimate, save_scores
from fedaudit.stats.gaussian import gaussian_epsilon
from tests.command import fedaudit


def write(path: Path, order: np.ndarray) -> Path:
    rng = np.random.default_rng(0)
    member = rng.random(len(order)) < 0.5
    scores = rng.normal(1.0 * member)
    rows = [f"r{i},{int(member[i])},{scores[i]:.9f}" for i in order]
    path.write_text("id,member,score\n" + "\n".join(rows) + "\n")
    return path


def test_T15_four_figures_side_by_side(tmp_path: Path) -> None:
    found = estimate(write(tmp_path / "a.csv", np.arange(3_000)), None, 0.95, 1e-5)
    assert {name: e.kind for name, e in found.epsilons.items()} == {
        "epsilon-ranks": "proved",
        "epsilon-gdp": "model-based",
        "epsilon-maximised": "heuristic",
        "epsilon-one-run": "proved",
    }
    epsilons = plain(found)["epsilons"]
    truth = gaussian_epsilon(1.0, 1e-5)
    assert epsilons["epsilon-gdp"]["low"] < truth < epsilons["epsilon-gdp"]["high"]
    for name in ("epsilon-ranks", "epsilon-one-run"):
        assert 0 < epsilons[name]["value"] < min(truth, epsilons[name]["ceiling"])
    assert any("Only kind 'proved' is a bound" in line for line in found.notices)


def test_T2_order_of_rows_changes_nothing(tmp_path: Path) -> None:
    order = np.arange(500)
    first = estimate(write(tmp_path / "a.csv", order), None, 0.95, 1e-5)
    second = estimate(write(tmp_path / "a.csv", order[::-1]), None, 0.95, 1e-5)
    assert first == second


def test_T18_a_delta_above_one_in_n_is_warned_of(tmp_path: Path) -> None:
    found = estimate(write(tmp_path / "a.csv", np.arange(400)), None, 0.95, 0.01)
    assert any("above 1/400" in line for line in found.warnings)
    with pytest.raises(FedauditError, match="delta"):
        estimate(tmp_path / "a.csv", None, 0.95, 1.5)


def test_delta_zero_has_no_gaussian_figure_and_all_others(tmp_path: Path) -> None:
    found = estimate(write(tmp_path / "a.csv", np.arange(400)), None, 0.95, 0.0).epsilons
    assert {name for name, e in found.items() if e.value is None} == {"epsilon-gdp"}
    assert "delta 0" in (found["epsilon-gdp"].reason or "")


def test_delta_without_epsilon_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", np.arange(400))
    done = fedaudit("score", "a.csv", "--delta", "1e-6", cwd=tmp_path)
    assert done.returncode == 2
    assert "--epsilon" in done.stdout + done.stderr


def test_epsilon_of_a_runs_own_scores(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(0), 600
    role = np.repeat(["member", "member", "evaluation", "calibration"], n // 4)
    ids = np.array([f"r{i}" for i in range(n)])
    about: dict[str, Any] = {"id": ids, "subject": None, "party": "p", "role": role, "reference": np.arange(n) % 10 < 1}
    parts = [
        about | {"attack": attack, "model": model, "score": rng.normal(size=n) + (role == "member") * strength}
        for attack, model, strength in (("loss", "global", 1.0), ("fta", "global", 0.0), ("loss", "local", 9.0))
    ]
    save_scores(parts, tmp_path)
    found = estimate(tmp_path / "scores.parquet", None, 0.95, 1e-5, "loss")
    assert found.estimates["auc"].n_pos == 270  # without those that helped to fit the attack
    assert 0.7 < (found.estimates["auc"].value or 0) < 0.85
    assert found.epsilons["epsilon-one-run"].value is not None
    assert any("not by fair coins" in line for line in found.notices)
    assert "proved" not in {figure.kind for figure in found.epsilons.values()}  # the notice says that nothing is
    for attack in (None, "canary"):
        with pytest.raises(FedauditError, match="fta, loss"):
            estimate(tmp_path / "scores.parquet", None, 0.95, 1e-5, attack)
    with pytest.raises(FedauditError, match=r"which .* is not"):
        estimate(write(tmp_path / "a.csv", np.arange(400)), None, 0.95, None, "loss")
