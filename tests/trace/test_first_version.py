"""Runs that version 0.1.0 left behind, before the second drawing: they are read, shown, attacked again and resumed."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fedaudit.report.html import render
from fedaudit.results.document import Document, load
from fedaudit.session.recording import config_of
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.trace.store import Store, load_manifest
from tests.worlds import silent

MADE = Path(__file__).with_name("made_by_first_version")
ATTACKS = {"fta-confidence", "loss", "gradient-cosine", "fusion"}


def scores(directory: Path) -> dict[tuple[str, ...], float]:
    """Compared with room for another processor's last bits."""
    table = pq.read_table(directory / "scores.parquet")
    keys = zip(*(table[name].to_pylist() for name in ("attack", "model", "party", "id")), strict=True)
    return dict(zip(keys, table["score"].to_pylist(), strict=True))


def costs(document: Document) -> dict[tuple[str, ...], float]:
    """Of attacks that fit nothing: what the run itself said."""
    unfitted = (r for r in document.results if r.attack in ("loss", "fta-confidence"))
    return {(r.attack, r.model, r.party or ""): r.cost.epochs for r in unfitted}


@pytest.mark.parametrize("kept", ["signals", "snapshots"])
def test_results_are_read_and_shown(kept: str) -> None:
    document = load(MADE / kept)
    stored = json.loads((MADE / kept / "results.json").read_text())
    assert len(document.results) == len(stored["results"])
    worded = document.to_json()["headlines"]
    assert [{key: of[key] for key in old} for of, old in zip(worded, stored["headlines"], strict=True)] == stored[
        "headlines"
    ]
    assert all(headline["sentence"] for headline in worded)
    assert "fta-confidence" in render(document)


@pytest.mark.parametrize("kept", ["signals", "snapshots"])
def test_a_trace_is_attacked_again_to_the_same_scores(tmp_path: Path, kept: str) -> None:
    document = replay(MADE / kept, [], tmp_path, silent)
    assert {result.attack for result in document.results} == ATTACKS | {"blind"}
    assert scores(tmp_path) == pytest.approx(scores(MADE / kept), rel=1e-6, abs=1e-9)
    assert document.run.status == "complete"
    assert costs(document) == pytest.approx(costs(load(MADE / kept)), rel=1e-9)


def test_models_that_were_kept_are_attacked_with_what_is_new(tmp_path: Path) -> None:
    document = replay(MADE / "snapshots", ["modified-entropy"], tmp_path, silent)
    assert {result.attack for result in document.results} == {"modified-entropy", "blind"}


def test_an_unfinished_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    """It was killed after its second round of four."""
    directory = tmp_path / "cut"
    shutil.copytree(MADE / "cut", directory)
    assert Store.read(directory).lineage.newest == 2
    told: list[str] = []
    document = run(config_of(load_manifest(directory), directory), directory, silent, tell=told.append)
    assert told == ["Resuming after round 2."]
    assert document.run.status == "complete"
    assert scores(directory) == pytest.approx(scores(MADE / "signals"), rel=1e-3, abs=1e-6)
