"""What comes from outside: an installed package with entry points, and a module beside the configuration."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")

MINE = """
import torch
from torch import nn
from sklearn.datasets import load_digits
from halves.attack import LowestLoss as Plugged
from halves.defence import Rounding
from fedaudit.defences import Defence

def records(half):
    x, y = load_digits(return_X_y=True)
    return x[:, :32] / 16, y

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.left, self.right, self.last = nn.Linear(16, width), nn.Linear(16, width), nn.Linear(2 * width, 10)
    def forward(self, left, right):
        return {"logits": self.last(torch.relu(torch.cat([self.left(left), self.right(right)], dim=1)))}

def ask(model, x):
    return model(x[:, :16], x[:, 16:])["logits"]

class LowestLoss(Plugged):
    @property
    def name(self):
        return "my-lowest-loss"

def rounding(setting, step):
    return Defence("my-rounding", update=Rounding(step))

class Taken(Plugged):
    @property
    def name(self):
        return "loss"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, installed by pip into a folder of its own."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(ROOT / "examples" / "plugin", folder / "source")  # pip leaves files beside what it builds
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--disable-pip-version-check", "--no-index", "--target", str(folder / "site"), str(folder / "source")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def fedaudit(installed: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    found = os.pathsep.join(filter(None, [str(installed / "site"), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-m", "fedaudit", *arguments],
        cwd=cwd or installed,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": found, "COLUMNS": "200"},
    )


def results(path: Path) -> dict[str, dict[str, float]]:
    document = json.loads((path / "results.json").read_text())
    assert document["degraded"] == []
    return {
        r["attack"]: r["estimates"]["auc"] for r in document["results"] if r["party"] is None and r["model"] == "global"
    }


def test_the_installed_plug_in_is_listed_explained_and_run(installed: Path) -> None:
    for what, name in (
        ("attacks", "lowest-loss"),
        ("data", "half-digits"),
        ("defences", "rounding"),
        ("models", "two-towers"),
    ):
        assert re.search(rf"^{name}$", fedaudit(installed, "list", what).stdout, re.MULTILINE), what
    fedaudit(installed, "init", "all.toml")
    assert "the distance between two values that may be sent" in (installed / "all.toml").read_text()
    done = fedaudit(installed, "run", "source/halves.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rounds at the beginning that do not count" in fedaudit(installed, "list", "attacks").stdout
    found = results(installed / "runs" / "halves")
    for name in ("lowest-loss", "lowest-loss+skip=1"):
        assert found[name]["low"] < found[name]["value"] < found[name]["high"]
    assert found["lowest-loss"] != found["lowest-loss+skip=1"]
    again = fedaudit(installed, "audit", "runs/halves")
    assert again.returncode == 0, again.stdout + again.stderr
    assert results(installed / "runs" / "halves" / "audit") == found
    wrong = fedaudit(installed, "run", "source/halves.toml", "--set", "model.width=0", "--out", "wrong")
    assert (wrong.returncode, "model.width" in wrong.stderr) == (2, True)
    for options, says in (("skp = 1", "Did you mean 'skip'"), ("skip = -1", "audit.attacks.0.skip")):
        change = f'audit.attacks=[{{ name = "lowest-loss", {options} }}]'
        wrong = fedaudit(installed, "run", "source/halves.toml", "--set", change, "--out", "wrong")
        assert (wrong.returncode, says in " ".join(wrong.stderr.split())) == (2, True), wrong.stderr


def test_without_the_plug_in_its_names_are_unknown(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fedaudit", "run", str(installed / "source" / "halves.toml")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "unknown data set 'half-digits'" in " ".join(done.stderr.split())) == (2, True)


@pytest.mark.evidence
def test_everything_by_name_as_the_page_prints_it(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (printed,) = re.findall(r"^```toml\n(\[data\].*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "my.toml").write_text(printed + "\n[federation]\nparties = 2\nrounds = 3\n")
    done = fedaudit(installed, "run", "my.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = results(tmp_path / "runs" / "my")
    assert set(found) >= {"my-lowest-loss", "loss"}
    again = fedaudit(installed, "audit", "runs/my", cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert results(tmp_path / "runs" / "my" / "audit") == found
    for change, says in (
        ('audit.attacks=["mine:Taken"]', "is called 'loss', like one of ours"),
        ('audit.attacks=["mine:records"]', "the attack 'mine:records' cannot be made"),
        ('audit.attacks=["mine:Net"]', "BaseAttack"),
        ('audit.attacks=["nobody:Net"]', "cannot import 'nobody:Net'"),
        ("model.forward=mine:Net", "model"),
    ):
        refused = fedaudit(installed, "run", "my.toml", "--out", "refused", "--set", change, cwd=tmp_path)
        assert refused.returncode == 2, change + refused.stderr
        assert says in " ".join(refused.stderr.split()), change


def test_a_plug_in_that_cannot_be_loaded_stops_nobody_else(installed: Path, tmp_path: Path) -> None:
    broken = tmp_path / "site" / "broken-1.0.dist-info"
    broken.mkdir(parents=True)
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text(
        "[fedaudit.data]\nlost = nowhere:load\nsilent = json:loads\n[fedaudit.attacks]\ngone = nowhere:Attack\n"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": "200"}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fedaudit", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)

    listed = call("list", "data").stdout
    assert "nowhere:load cannot be loaded (ModuleNotFoundError" in listed
    assert "it registers no data set 'silent'" in listed
    assert "nowhere:Attack cannot be loaded" in call("list", "attacks").stdout
    (tmp_path / "my.toml").write_text('[data]\nname = "lost"\n')
    refused = call("plan", "my.toml")
    assert (refused.returncode, "the plug-in 'lost' cannot be used" in " ".join(refused.stderr.split())) == (2, True)
    (tmp_path / "my.toml").write_text('[data]\nname = "digits"\n')
    assert call("plan", "my.toml").returncode == 0
