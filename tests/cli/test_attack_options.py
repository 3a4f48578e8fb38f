"""An attack with an option of its own, from the configuration to the page."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.test_cli import SMALL
from tests.command import fedaudit

ASKED = """
[audit]
keep = "snapshots"
[[audit.attacks]]
name = "fta"
signal = "loss"
degree = 2
[[audit.attacks]]
name = "matched-filter"
damping = 5
[[audit.attacks]]
name = "loss"
"""
LONG = "matched-filter+damping=5"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("options")
    (folder / "small.toml").write_text(SMALL + ASKED)
    done = fedaudit("run", "small.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def pooled(path: Path) -> dict[tuple[str, str], dict[str, float]]:
    document = json.loads((path / "results.json").read_text())
    assert document["degraded"] == []
    return {(r["attack"], r["model"]): r["estimates"]["auc"] for r in document["results"] if r["party"] is None}


def test_results_say_which_options_an_attack_had(folder: Path) -> None:
    document = json.loads((folder / "runs/small/results.json").read_text())
    assert document["run"]["config"]["audit"]["attacks"] == ["fta-loss-degree2", LONG, "loss"]
    assert {headline["attack"] for headline in document["headlines"]} <= {"fta-loss-degree2", LONG, "loss"}
    assert {h.get("primary", h["attack"]) for h in document["headlines"]} == {LONG}  # the filter, however it is set
    assert document["glossary"][LONG].endswith("rounds weighted by its norm (damping = 5)")
    assert LONG in (folder / "runs/small/report.html").read_text()


def test_it_is_attacked_again_alike_and_with_another_option(folder: Path) -> None:
    again = fedaudit("audit", "runs/small", "--out", "again", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert pooled(folder / "again") == pooled(folder / "runs/small")
    other = fedaudit(
        "audit", "runs/small", "--out", "other", "--attack", "matched-filter+damping=0.5", "--attack", LONG, cwd=folder
    )
    assert other.returncode == 0, other.stderr
    found = pooled(folder / "other")
    assert found[LONG, "local"] == pooled(folder / "runs/small")[LONG, "local"]
    assert found["matched-filter+damping=0.5", "local"] != found[LONG, "local"]
    wrong = fedaudit("audit", "runs/small", "--out", "wrong", "--attack", "matched-filter+dampng=1", cwd=folder)
    assert (wrong.returncode, "Did you mean 'damping'" in " ".join(wrong.stderr.split())) == (2, True)


def test_it_can_be_gated_compared_and_reported(folder: Path) -> None:
    for limit, expected in ((0.1, 1), (1, 0)):
        gate = fedaudit("gate", "runs/small", "--fail-if", f"auc[attack={LONG}, vantage=server] >= {limit}", cwd=folder)
        assert (gate.returncode, LONG in gate.stdout) == (expected, True), gate.stdout + gate.stderr
    shutil.copytree(folder / "runs/small", folder / "runs/copy")
    compared = fedaudit("compare", "runs/small", "runs/copy", cwd=folder)
    assert compared.returncode == 0, compared.stderr
    assert f"{LONG}, server, local models" in compared.stdout
    assert fedaudit("report", "runs/small", cwd=folder).returncode == 0


def test_the_short_form_in_its_place_goes_on_with_the_same_run(folder: Path) -> None:
    text = (folder / "small.toml").read_text().partition("[[audit.attacks]]")[0]
    (folder / "short.toml").write_text(text + f'attacks = ["fta-loss-degree2", "{LONG}", "loss"]\n')
    done = fedaudit("run", "short.toml", "--out", "runs/small", cwd=folder)
    assert done.returncode == 0, done.stderr
