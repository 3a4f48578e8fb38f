"""The example that fine-tunes with LoRA: nothing but the adapter is exchanged; audited, halted, and shown as text."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg

from fedaudit.results.exposure import CUT, LEFT_OUT
from tests.integrations.flower_world import LocalGrid
from tests.integrations.test_flower_example import environment as environment

EXAMPLE = Path(__file__).parents[2] / "examples/flower-lora"
NAME = re.compile(r"[A-Z][a-z]+(son|ler|rick|ton|berg|dine|mond|ville|ster|win)\b")


@pytest.mark.filterwarnings("ignore::FutureWarning")  # between PEFT and transformers
def test_its_parties_audit_what_leaves_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one process, with fewer notes: the client app of the example, its model, and Flower's own strategy."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    monkeypatch.syspath_prepend(EXAMPLE)
    from notes import client_app, task  # type: ignore[import-not-found]

    monkeypatch.setattr(task, "PRIVATE", 300)
    monkeypatch.setattr(task, "PUBLIC", 200)
    begun = ArrayRecord(client_app.get_peft_model_state_dict(task.adapted()))
    grid = LocalGrid(client_app.app)
    for context in grid.contexts.values():
        context.node_config["num-partitions"] = 2
        context.run_config |= {"num-server-rounds": 2, "local-epochs": 1, "lr": 0.002, "audit-out": str(tmp_path / "a")}
    result = FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=begun, num_rounds=2)
    assert result.arrays is not None
    assert all("lora_" in name for name in result.arrays)
    document = json.loads((tmp_path / "a/party-0/results.json").read_text())
    assert document["run"]["status"] == "complete"
    assert any("A part of the model is exchanged" in line for line in document["notices"])
    assert_shown(document, (tmp_path / "a/party-0/report.html").read_text())


def assert_shown(document: Any, page: str) -> None:
    """Beginnings of notes, without names."""
    texts = [one["text"] for one in document["exposed"]["records"]]
    assert len(texts) == 20
    for text in texts:
        assert LEFT_OUT in text
        assert "has" in text
        assert NAME.search(text) is None
        assert len(text) <= CUT + 1
        assert text in page


@pytest.mark.evidence
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_the_example_runs_from_its_readme_and_halts(tmp_path: Path, environment: dict[str, str]) -> None:
    app = tmp_path / "app"
    shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("__pycache__", "audit"))
    settings = f'audit-out="{tmp_path / "audit"}"'
    for _ in range(2):  # Flower gives its SuperLink 15 s to start, which a busy machine may not keep
        done = subprocess.run(
            ["flwr", "run", ".", "--stream", "--run-config", settings],
            cwd=app, env=environment, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        if "Failed to start local SuperLink" not in done.stdout + done.stderr:
            break
    said = done.stdout + done.stderr
    assert "what leaves party-1: auc" in said, said[-4000:]
    assert "crosses the limit 'auc > 0.7'" in said
    for party in ("party-0", "party-1"):
        document = json.loads((tmp_path / "audit" / party / "results.json").read_text())
        assert [one["because"] for one in document["run"]["withheld"]] == ["limit crossed"]
        assert any("A part of the model is exchanged" in line for line in document["notices"])
        found = {(one["attack"], one["model"], one["party"]): one["estimates"] for one in document["results"]}
        assert found["unmix", "local", None]["auc"]["low"] > 0.7
        assert_shown(document, (tmp_path / "audit" / party / "report.html").read_text())


def test_the_readme_shows_the_line_of_the_app() -> None:
    (line,) = [text for text in (EXAMPLE / "notes/client_app.py").read_text().splitlines() if "PartyAudit(" in text]
    assert line in (EXAMPLE / "README.md").read_text()
