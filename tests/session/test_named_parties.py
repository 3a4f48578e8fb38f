"""Parties that a column forms: called by its values wherever a party is named, and by nothing in what is passed on."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedaudit import report
from fedaudit.config.schema import Config, parse
from fedaudit.results import document as results
from fedaudit.results.gate import judge, parse_rules
from fedaudit.results.redaction import redacted
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.trace.store import RUN
from tests.data.test_ids import visits, written
from tests.worlds import silent

CLINICS = ["Mercy and Grace", "Nord-Klinik", "St. Mary's, Upper"]


def settings(folder: Path, **data: Any) -> Config:
    table = visits(0)
    clinic = np.array(CLINICS)[table["nr"] % 3]
    path = folder / "visits.csv"
    if not path.exists():
        written(path, table | {"clinic": clinic})
    named = {"name": "table", "path": str(path), "label": "outcome", "subject": "nr", "attributes": ["clinic"]}
    return parse(
        {
            "data": {key: value for key, value in (named | data).items() if value is not None},
            "federation": {"parties": 3, "partition": "column", "column": "clinic", "rounds": 2},
            "model": {"hidden": [16]},
            "audit": {"attacks": ["loss", "source"], "keep": "snapshots", "fpr": [0.05]},
        }
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three clinics. Nobody writes here."""
    folder = tmp_path_factory.mktemp("clinics")
    run(settings(folder), folder / "run", silent, tell=lambda _: None)
    return folder / "run"


def test_all_files_and_pages_call_them_by_name(finished: Path, tmp_path: Path) -> None:
    document = results.load(finished)
    assert [party.name for party in document.run.parties] == CLINICS
    assert {entry.party for entry in document.results if entry.attack == "loss"} == {None, *CLINICS}
    assert {unit.party for unit in document.exposed.records} <= set(CLINICS)  # type: ignore[union-attr]
    assert set(pq.read_table(finished / "scores.parquet")["party"].to_pylist()) == set(CLINICS)
    journal = [json.loads(line) for line in (finished / "journal.jsonl").read_text().splitlines()]
    assert [list(line["parties"]) for line in journal if line["event"] == "round"] == [CLINICS] * 2
    assert json.loads((finished / RUN).read_text())["parties"] == CLINICS
    page = report.render(document)
    assert "Nord-Klinik" in page
    for file in (page, *(path.read_text() for path in finished.glob("*.json*"))):
        assert "party-0" not in file
    models = sorted(path.name for path in (finished / "rounds/00001").glob("party-*"))
    assert len(models) == 3
    assert models[1].startswith("party-Nord-Klinik~")
    again = replay(finished, ["loss"], tmp_path / "again", silent)
    first, second = (
        {(e.vantage, e.model, e.party): e.estimates["auc"] for e in found.results if e.attack == "loss"}
        for found in (document, again)
    )
    assert first == second


def test_what_is_passed_on_names_nobody(finished: Path) -> None:
    document = results.load(finished)
    page = report.render(redacted(document))
    same = [(h.sentence, h.tone, h.grade) for h in document.headlines]
    assert [(h.sentence, h.tone, h.grade) for h in redacted(document).headlines] == same
    for secret in ("Mercy", "Grace", "Nord", "Klinik", "Mary", "clinic"):
        assert secret not in page, secret
    assert "party 2" in page


@pytest.mark.parametrize("clinic", CLINICS)
def test_a_gate_asks_about_one_of_them(finished: Path, clinic: str) -> None:
    """Names that held `and` or a comma were taken for two conditions, or for two selectors."""
    rules = parse_rules(f"auc[party={clinic}, attack=loss] > 0.99 and accuracy < 0.01")
    assert [(rule.party, rule.attack) for rule in rules] == [(clinic, "loss"), (None, None)]
    assert {finding.party for finding in judge(finished, rules).findings} == {clinic, None}
