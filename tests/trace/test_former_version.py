"""Runs that the version before this one left behind: they are read, shown, judged, attacked again and resumed.

Its results told everything in words alone: how a run ended, what was noted, which bands hold for all rounds."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fedaudit.report.html import render
from fedaudit.results.compare import compare
from fedaudit.results.document import Document, load
from fedaudit.results.gate import judge, parse_rules
from fedaudit.session.recording import config_of
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.trace.store import Store, load_manifest
from tests.worlds import silent

MADE = Path(__file__).with_name("made_by_former_version")
KEPT = MADE / "signals"  # the only one of the three with results; `snapshots` is the same federation
ATTACKS = {"fta-confidence", "loss", "gradient-cosine", "fusion"}


@pytest.fixture(autouse=True)
def beside_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(MADE)  # their configurations name people.npz


def scores(directory: Path) -> dict[tuple[str, ...], float]:
    """Compared with room for another processor's last bits."""
    table = pq.read_table(directory / "scores.parquet")
    keys = zip(*(table[name].to_pylist() for name in ("attack", "model", "party", "id")), strict=True)
    return dict(zip(keys, table["score"].to_pylist(), strict=True))


def costs(document: Document) -> dict[tuple[str, ...], float]:
    """Of attacks that fit nothing: what the run itself said."""
    unfitted = (r for r in document.results if r.attack in ("loss", "fta-confidence"))
    return {(r.attack, r.model, r.party or ""): r.cost.epochs or 0.0 for r in unfitted}


def test_results_are_read_and_shown() -> None:
    document = load(KEPT)
    stored = json.loads((KEPT / "results.json").read_text())
    assert document.run.ended == "complete"
    assert len(document.results) == len(stored["results"])
    assert document.to_json()["headlines"] == stored["headlines"]
    curves = [curve for entry in document.results for curve in entry.curves.values()]
    assert [curve.simultaneous for curve in curves] == ["simultaneous" in curve.method for curve in curves]
    assert any(curve.simultaneous for curve in curves)
    page = render(document)
    assert "fta-confidence" in page
    assert stored["headlines"][0]["sentence"].split(":")[0] in page


def test_results_are_judged_and_compared(tmp_path: Path) -> None:
    assert judge(KEPT, parse_rules("auc[attack=loss, vantage=client] > 0.999")).exit_code == 0
    assert judge(KEPT, parse_rules("auc[attack=loss, vantage=client] > 0.01")).exit_code == 1
    replay(KEPT, [], tmp_path / "again", silent)
    found = compare([KEPT, tmp_path / "again"])
    assert found.rows[0].risk == found.rows[1].risk
    assert {(gap.value, gap.safer) for gap in found.differences} == {(0.0, None)}


@pytest.mark.parametrize("kept", ["signals", "snapshots"])
def test_a_trace_is_attacked_again_to_the_same_scores(tmp_path: Path, kept: str) -> None:
    document = replay(MADE / kept, [], tmp_path, silent)
    assert {result.attack for result in document.results} == ATTACKS | {"blind"}
    assert scores(tmp_path) == pytest.approx(scores(KEPT), rel=1e-6, abs=1e-9)
    assert document.run.status == "complete"
    if kept == "signals":
        assert costs(document) == pytest.approx(costs(load(KEPT)), rel=1e-9)
        assert {*load(KEPT).notices} <= {*document.notices}


def test_models_that_were_kept_are_attacked_with_what_is_new(tmp_path: Path) -> None:
    document = replay(MADE / "snapshots", ["modified-entropy"], tmp_path, silent)
    assert {result.attack for result in document.results} == {"modified-entropy", "blind"}


def test_an_unfinished_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    """It was killed after its second round of three."""
    directory = tmp_path / "cut"
    shutil.copytree(MADE / "cut", directory)
    assert Store.read(directory).lineage.newest == 2
    told: list[str] = []
    document = run(config_of(load_manifest(directory), directory), directory, silent, tell=told.append)
    assert told == ["Resuming after round 2."]
    assert document.run.status == "complete"
    assert scores(directory) == pytest.approx(scores(KEPT), rel=1e-3, abs=1e-6)
