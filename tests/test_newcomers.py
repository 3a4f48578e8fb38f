"""The newcomers' paths in docs/: each command is executed as printed, and leaves what the page says."""

import json
from pathlib import Path

import pytest

from tests.pages import follow

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.evidence
def test_a_data_scientist_with_a_csv_file(tmp_path: Path) -> None:
    said = follow(DOCS / "start-csv.md", tmp_path)
    assert len(said) == 6
    patients = json.loads((tmp_path / "runs/patients/results.json").read_text())["run"]
    assert patients["data"] | {"input_shape": None} == {
        "name": "patients", "records": 569, "classes": 2, "subjects": 569, "input_shape": None
    }  # fmt: skip
    private = json.loads((tmp_path / "runs/private/results.json").read_text())["run"]
    assert private["guarantee"]["epsilon"] <= 4
    assert (tmp_path / "runs/patients/report.html").is_file()
    assert "patients minus private" in (tmp_path / "compared.html").read_text()
    assert "of 569 records in common" in " ".join(said[4].split())


def test_a_researcher_with_a_loop(tmp_path: Path) -> None:
    said = follow(DOCS / "start-loop.md", tmp_path)
    assert len(said) == 4
    verdicts = ("can pick out", "Nothing beyond chance", "not settled", "better than guessing")
    assert any(words in said[0] for words in verdicts)
    assert (tmp_path / "runs/loop/report.html").is_file()
    results = json.loads((tmp_path / "runs/loop/results.json").read_text())
    assert results["degraded"] == []
    assert {entry["model"] for entry in results["results"]} == {"global", "local"}
    assert json.loads(said[3])["estimates"]["auc"]["n_pos"] > 0


def test_a_statistician_with_scores(tmp_path: Path) -> None:
    said = follow(DOCS / "start-scores.md", tmp_path)
    assert len(said) == 6
    assert "tpr@0.01" in said[1]
    assert json.loads(said[2])["estimates"]["tpr@0.05"]["confidence"] == 0.9
    kinds = {e["kind"] for e in json.loads((tmp_path / "scores.json").read_text())["epsilons"].values()}
    assert {"proved", "model-based", "heuristic"} <= kinds
    assert "auc: 0." in said[5]
