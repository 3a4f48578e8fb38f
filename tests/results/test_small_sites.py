"""T33: four unequal sites, audited together or merged: nobody is left out for being small."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaudit.results.document import Document, load
from fedaudit.results.merge import MANIFEST, hand_over, merge
from fedaudit.results.schema import as_text
from fedaudit.results.scores import blocks_of, load_scores
from fedaudit.types import AuditResult
from tests.command import fedaudit

SITES = {"Aachen": 303, "Bonn": 247, "Celle": 189, "Dessau": 121}
RUN = """
[data]
name = "table"
path = "{table}"
label = "sick"
id = "patient"
impute = "median"
attributes = ["hospital"]
[federation]
partition = "column"
column = "hospital"
parties = {parties}
rounds = 3
members = 0.3
nonmembers = 0.3
local_epochs = 8
lr = 0.01
[model]
hidden = [64]
[audit]
attacks = ["loss", "gradient-norm"]
"""


def table(path: Path, sites: dict[str, int]) -> None:
    """Patients with missing cells, whose sickness does not follow from their values: a model can only memorise it."""
    rng, number = np.random.default_rng(3), 0
    lines = ["patient,hospital,sick," + ",".join(f"value{i}" for i in range(12))]
    for site, size in sites.items():
        for _ in range(size):
            cells = [f"{value:.3f}" if rng.random() > 0.1 else "" for value in rng.normal(size=12)]
            lines.append(f"p{number:05d},{site},{rng.integers(2)},{','.join(cells)}")
            number += 1
    path.write_text("\n".join(lines) + "\n")


def ran(folder: Path, *arguments: str) -> str:
    ended = fedaudit(*arguments, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def local(document: Document, attack: str = "loss") -> AuditResult:
    return next(e for e in document.results if (e.attack, e.model, e.party) == (attack, "local", None))


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sites")
    table(folder / "all.csv", SITES)
    (folder / "my.toml").write_text(RUN.format(table="all.csv", parties=4))
    ran(folder, "run", "my.toml", "--out", "run")
    return folder / "run"


def test_T33_nobody_is_missing_from_the_figures_of_four_unequal_sites(together: Path) -> None:
    scores, found = load_scores(together), local(load(together)).estimates["tpr@0.01"]
    assert scores is not None
    sizes = {block.party[-6:].strip(): len(block.calibration) for block in blocks_of(scores, "loss", "local")}
    assert len(sizes) == 4
    assert sorted(sizes.values())[1] < 99, "two had too few records for a threshold of their own"
    members = sum(len(block.members) for block in blocks_of(scores, "loss", "local"))
    assert found.n_pos == members
    assert found.missing == ()
    assert found.value is not None
    headline = next(one for one in load(together).headlines if one.vantage == "server")
    assert {estimate.missing for estimate in headline.estimates.values()} == {()}


@pytest.mark.parametrize("alone", [False, True])
def test_T33_small_sites_are_merged(alone: bool, tmp_path: Path, together: Path) -> None:
    """A site that audits itself alone may be too small for 1 %, and names no such rate: together they are enough."""
    folders = []
    for party in load(together).run.parties:
        folders.append(tmp_path / party.name)
        manifest = hand_over(together, folders[-1], party.name)
        if alone:
            (folders[-1] / MANIFEST).write_text(as_text(replace(manifest, fprs=())))
    merged, whole = local(merge(folders, "all")[0]), local(load(together))
    assert merged.estimates["tpr@0.01"].n_pos == whole.estimates["tpr@0.01"].n_pos
    assert merged.estimates["tpr@0.01"].value == pytest.approx(whole.estimates["tpr@0.01"].value)
    assert merged.estimates["tpr@0.01"].missing == ()
