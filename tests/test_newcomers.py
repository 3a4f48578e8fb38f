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


@pytest.mark.evidence
def test_the_owner_of_a_sites_data(tmp_path: Path) -> None:
    said = follow(DOCS / "start-data-owner.md", tmp_path)
    assert len(said) == 8
    pack = tmp_path / "for-the-consortium"
    manifest = json.loads((pack / "manifest.json").read_text())
    assert manifest["kept_back"]
    for name in ("manifest.json", "scores.parquet"):
        assert b"p0001" not in (pack / name).read_bytes()
    assert "p0001" not in (tmp_path / "runs/site/report-redacted.html").read_text()
    assert "Data office of the site" in (tmp_path / "evidence/dpia-annex.html").read_text()


@pytest.mark.evidence
def test_a_researcher_who_compares_attacks(tmp_path: Path) -> None:
    said = follow(DOCS / "start-researcher.md", tmp_path)
    assert len(said) == 8
    results = json.loads((tmp_path / "runs/compare/results.json").read_text())
    assert any(entry.get("beside") for entry in results["results"])
    table = (tmp_path / "table.csv").read_text()
    assert "matched-filter" in table
    mine = json.loads((tmp_path / "runs/mine/results.json").read_text())
    assert "mean-confidence" in {entry["attack"] for entry in mine["results"]}


@pytest.mark.evidence
def test_a_developer_of_a_dp_library(tmp_path: Path) -> None:
    said = follow(DOCS / "start-dp-developer.md", tmp_path)
    assert len(said) == 7
    assert "right: at least 0." in said[3]
    assert "refuted" in said[3].splitlines()[1]
    assert "FAIL" in said[6]
