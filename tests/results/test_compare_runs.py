"""Comparing runs: dominance, what is noted, and that nothing heavy is needed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedaudit.errors import FedauditError
from fedaudit.results.compare import compare
from fedaudit.stats.strongest import allowed
from tests import sealed
from tests.report.builder import bare_run, entry, estimate, guarantee


def save(folder: Path, accuracy: float, risks: dict[str, float], epsilon: float | None = None, **change: Any) -> Path:
    headlines = [
        {"vantage": v, "attack": "fta-confidence", "model": "global", "compared": 1}
        | {"estimates": {"tpr@0.01": estimate(r, 0.001)}}
        for v, r in risks.items()
    ]
    config = {
        "federation": {"rounds": 3} | change,
        "defences": [{"name": "dp-sgd", "epsilon": epsilon}] if epsilon else [],
    }
    claim = None if epsilon is None else guarantee(epsilon)
    run = bare_run() | {"config": config, "accuracy": {"evaluation": estimate(accuracy)}, "guarantee": claim}
    folder.mkdir()
    document = {"schema": 1, "run": run, "headlines": headlines, "results": []}
    sealed.write(folder / "results.json", json.dumps(document))
    return folder


def test_the_strongest_headline_counts_and_dominated_runs_are_told(tmp_path: Path) -> None:
    runs = [
        save(tmp_path / "bare", 0.30, {"client": 0.05, "server": 0.20}),
        save(tmp_path / "eps8", 0.25, {"client": 0.01, "server": 0.02}, 8.0),
        save(tmp_path / "eps4", 0.20, {"client": 0.03, "server": 0.01}, 4.0),
    ]
    found = compare(runs)
    rows = {row.run: row for row in found.rows}
    assert rows["bare"].risk is not None
    assert rows["bare"].risk.value == 0.20
    assert rows["bare"].whose.startswith("server")
    assert {name: row.best for name, row in rows.items()} == {"bare": True, "eps8": True, "eps4": False}
    assert rows["eps8"].defences == "dp-sgd(epsilon 8)"
    assert rows["eps8"].allowed == pytest.approx(1 - 0.99 * 0.000335, abs=1e-4)
    assert found.notes == []


def test_equal_runs_do_not_dominate_each_other_and_overlaps_are_said(tmp_path: Path) -> None:
    runs = [save(tmp_path / name, 0.3, {"client": 0.05}) for name in "ab"]
    found = compare(runs)
    assert [row.best for row in found.rows] == [True, True]
    assert "overlap" in found.notes[0]


def test_other_settings_that_differ_are_named(tmp_path: Path) -> None:
    runs = [save(tmp_path / "a", 0.3, {"client": 0.05}), save(tmp_path / "b", 0.3, {"client": 0.09}, lr=0.1)]
    assert "federation.lr" in compare(runs).notes[0]


def test_runs_without_accuracy_or_risk_are_said_not_to_be_ranked(tmp_path: Path) -> None:
    runs = [save(tmp_path / name, 0.3, risks) for name, risks in (("a", {"client": 0.05}), ("b", {}))]
    document = json.loads((runs[0] / "results.json").read_text())
    document["run"]["accuracy"] = {}
    sealed.write(runs[0] / "results.json", json.dumps(document))
    found = compare(runs)
    assert [row.best for row in found.rows] == [False, False]
    assert "accuracy (a regression has none): a." in found.notes[0]
    assert found.notes[1].endswith(": b.")


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(("doubt", "rate"), [("more", 0.01), ("fewer", 0.01), ("fewer", 0.1)])
def test_a_run_with_a_figure_that_is_doubted_is_not_ranked(
    doubt: str, rate: float, beside: bool, tmp_path: Path
) -> None:
    """It was ranked by what else it had, or by a value at another rate, and seemed the best. The same records set the
    thresholds of all rates."""
    runs = [save(tmp_path / "a", 0.3, {"client": 0.05}), save(tmp_path / "b", 0.3, {"client": 0.01, "server": 0.02})]
    document = json.loads((runs[1] / "results.json").read_text())
    none = {"value": None, "low": None, "high": None} if doubt == "more" else {"high": 1.0}
    doubted = {f"tpr@{rate}": estimate(0.001, 0.0) | none | {"doubt": doubt}}
    if beside:
        document["results"] = [entry("loss", "server", 0.0, 0.5, model="local") | {"estimates": doubted}]
    else:
        document["headlines"][1]["estimates"] = doubted
    sealed.write(runs[1] / "results.json", json.dumps(document))
    found = compare(runs)
    assert [(row.risk is None, row.best) for row in found.rows] == [(False, True), (True, False)]
    assert found.rows[1].risks.keys() == {"client"}
    assert "Not ranked, because there is no risk at 1 % FPR: b." in found.notes


def test_allowed() -> None:
    assert allowed(0.0, 0.0, 0.01) == pytest.approx(0.01)
    assert allowed(100.0, 0.0, 0.01) == pytest.approx(1.0)
    assert allowed(1.0, 0.0, 0.01) == pytest.approx(0.0272, abs=1e-4)


def test_one_run_is_no_comparison(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="compare"):
        compare([save(tmp_path / "a", 0.3, {"client": 0.05})])


def test_compare_needs_no_torch(tmp_path: Path) -> None:
    for name, risk in (("a", 0.05), ("b", 0.09)):
        save(tmp_path / name, 0.3, {"client": risk})
    code = (
        "import sys; sys.argv = ['fedaudit', 'compare', 'a', 'b', '--out', 'c.json']\n"
        "import fedaudit.cli.commands\n"
        "try: fedaudit.cli.commands.main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not {'torch', 'sklearn'} & set(sys.modules), 'heavy'"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "dominated" not in done.stdout
    assert json.loads((tmp_path / "c.json").read_text())["rows"][0]["best"]
