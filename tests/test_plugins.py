"""What comes from outside: an installed package with entry points, and a module beside the configuration."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from fedaudit.results.schema import SCHEMA_FILE
from tests.command import with_packages

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


def results(path: Path) -> dict[str, dict[str, float]]:
    document = json.loads((path / "results.json").read_text())
    assert document["degraded"] == []
    return {
        r["attack"]: r["estimates"]["auc"] for r in document["results"] if r["party"] is None and r["model"] == "global"
    }


Said = dict[str, subprocess.CompletedProcess[str]]
NAMES = {
    "attacks": "lowest-loss",
    "data": "half-digits",
    "defences": "rounding",
    "models": "two-towers",
    "questions": "class-shares",
}
OPTIONS = {"skp = 1": "Did you mean 'skip'", "skip = -1": "audit.attacks.0.skip"}


@pytest.fixture(scope="module")
def said(installed: Path) -> Said:
    """What the commands answer, all in one process."""
    config = "source/halves.toml"
    commands = {
        **{name: ["list", what] for what, name in NAMES.items()},
        "init": ["init", "all.toml"],
        "run": ["run", config, "--out", "one"],
        "another run": ["run", config, "--out", "two", "--set", "federation.seed=1"],
        "audit": ["audit", "one"],
        "wrong": ["run", config, "--set", "model.width=0", "--out", "wrong"],
        **{
            option: ["run", config, "--set", f'audit.attacks=[{{ name = "lowest-loss", {option} }}]', "--out", "wrong"]
            for option in OPTIONS
        },
        **{limit: ["gate", "one", "--fail-if", f"rightly-told > {limit}"] for limit in ("0.9999", "0.1", "60")},
        "misspelt": ["gate", "one", "--fail-if", "rightly-tld > 0.5"],
        "compare": ["compare", "one", "two"],
    }
    return dict(zip(commands, with_packages(installed / "site", *commands.values(), cwd=installed), strict=True))


def test_the_installed_plug_in_is_listed_explained_and_run(installed: Path, said: Said) -> None:
    for name in NAMES.values():
        assert re.search(rf"^{name}$", said[name].stdout, re.MULTILINE), name
    written = (installed / "all.toml").read_text()
    assert "the distance between two values that may be sent" in written
    for lines in (
        '# name = "lowest-loss"  # the lowest loss of the record in any round\n'
        "# skip = 0  # rounds at the beginning that do not count; at least 0\n",
        "# A question: of which classes has a party more records than the other parties?\n"
        "# [audit.questions.class-shares]\n"
        "# least = 2  # rounds that a party must have taken part in",
    ):
        assert lines in written
    for part in ("least = 2  # rounds that a party must", "[audit.questions.class-shares]", "gate`: rightly-told"):
        assert part in said["class-shares"].stdout
    assert said["run"].returncode == 0, said["run"]
    found = results(installed / "one")
    assert "rounds at the beginning that do not count" in said["lowest-loss"].stdout
    for name in ("lowest-loss", "lowest-loss+skip=1"):
        assert found[name]["low"] < found[name]["value"] < found[name]["high"]
    assert found["lowest-loss"] != found["lowest-loss+skip=1"]
    assert said["audit"].returncode == 0, said["audit"]
    assert results(installed / "one" / "audit") == found
    assert (said["wrong"].returncode, "model.width" in said["wrong"].stderr) == (2, True)
    for option, says in OPTIONS.items():
        assert (said[option].returncode, says in " ".join(said[option].stderr.split())) == (2, True), option


def test_a_question_from_outside_is_answered_everywhere(installed: Path, said: Said) -> None:
    """One folder and one entry point: nothing in fedaudit names it."""
    ran = said["run"]
    assert (ran.returncode, said["another run"].returncode, said["audit"].returncode) == (0, 0, 0), ran
    found = [json.loads((installed / where / "results.json").read_text()) for where in ("one", "one/audit")]
    entries = [[r for r in document["results"] if r.get("question") == "class-shares"] for document in found]
    assert [entry["unit"] for entry in entries[0]] == ["party"]
    jsonschema.validate(found[0], json.loads(SCHEMA_FILE.read_text()))
    assert entries[0][0]["estimates"] == entries[1][0]["estimates"]  # what was seen is in the trace
    assert re.search(r"classes told rightly +\d", ran.stdout)
    assert "class-shares" in found[0]["glossary"]
    assert re.search(
        r"class-shares, seen from server on local models: classes told rightly \d", " ".join(ran.stdout.split())
    )
    assert [said[limit].returncode for limit in ("0.9999", "0.1", "60")] == [3, 1, 2], said["0.1"]
    assert "lies between 0 and 1" in said["60"].stderr
    assert "Did you mean 'rightly-told'?" in " ".join(said["misspelt"].stderr.split())
    assert "class-shares, server, local models: classes told rightly" in said["compare"].stdout
    assert 'id="question-class-shares"' in (installed / "one" / "report.html").read_text()
    gate = ["gate", "one", "--fail-if", "rightly-told > 0.1"]
    lost, gated = with_packages(None, ["report", "one"], gate, cwd=installed)
    assert (lost.returncode, gated.returncode) == (0, 3)  # nobody knows which way is worse
    assert "rightly-told" in (installed / "one" / "report.html").read_text()


def test_without_the_plug_in_its_names_are_unknown(installed: Path, tmp_path: Path) -> None:
    (done,) = with_packages(None, ["run", str(installed / "source" / "halves.toml")], cwd=tmp_path)
    assert (done.returncode, "unknown data set 'half-digits'" in " ".join(done.stderr.split())) == (2, True)


def test_the_text_of_an_error_is_shown_by_the_script_of_the_page(installed: Path, tmp_path: Path) -> None:
    (script,) = re.findall(r"^```python\n(# debug.py.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "debug.py").write_text(script)
    (tmp_path / "own.py").write_text(
        "from halves.attack import LowestLoss\n"
        "class Fails(LowestLoss):\n"
        "    def score(self, features):\n"
        "        raise KeyError('patient 17')\n"
    )
    (tmp_path / "my.toml").write_text(
        '[data]\nname = "breast-cancer"\n[federation]\nparties = 2\nrounds = 2\n[model]\nhidden = [8]\n'
        '[audit]\nattacks = ["own:Fails", "loss"]\n'
    )
    places = [str(installed / "site"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
    command = [sys.executable, "debug.py", "run", "my.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 4, done.stderr
    assert "KeyError: 'patient 17'" in done.stderr
    assert "patient 17" not in done.stdout
    assert "patient 17" not in (tmp_path / "runs/my/results.json").read_text()


@pytest.mark.evidence
def test_everything_by_name_as_the_page_prints_it(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (printed,) = re.findall(r"^```toml\n(\[data\].*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "my.toml").write_text(printed + "\n[federation]\nparties = 2\nrounds = 3\n")
    wrong = {
        'audit.attacks=["mine:Taken"]': "is called 'loss', like one of ours",
        'audit.attacks=["mine:records"]': "the attack 'mine:records' cannot be made",
        'audit.attacks=["mine:Net"]': "BaseAttack",
        'audit.attacks=["nobody:Net"]': "cannot import 'nobody:Net'",
        "model.forward=mine:Net": "model",
    }
    done, again, *refused = with_packages(
        installed / "site",
        ["run", "my.toml"],
        ["audit", "runs/my", "--trust-code"],
        *(["run", "my.toml", "--out", "refused", "--set", change] for change in wrong),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done
    found = results(tmp_path / "runs" / "my")
    assert set(found) >= {"my-lowest-loss", "loss"}
    assert again.returncode == 0, again
    assert results(tmp_path / "runs" / "my" / "audit") == found
    for one, (change, says) in zip(refused, wrong.items(), strict=True):
        assert one.returncode == 2, change + one.stderr
        assert says in " ".join(one.stderr.split()), change


def test_a_plug_in_that_cannot_be_loaded_stops_nobody_else(installed: Path, tmp_path: Path) -> None:
    broken = tmp_path / "site" / "broken-1.0.dist-info"
    broken.mkdir(parents=True)
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text(
        "[fedaudit.data]\nlost = nowhere:load\nsilent = json:loads\n[fedaudit.attacks]\ngone = nowhere:Attack\n"
    )
    (tmp_path / "lost.toml").write_text('[data]\nname = "lost"\n')
    (tmp_path / "my.toml").write_text('[data]\nname = "digits"\n')
    data, attacks, refused, planned = with_packages(
        tmp_path / "site",
        ["list", "data"],
        ["list", "attacks"],
        ["plan", "lost.toml"],
        ["plan", "my.toml"],
        cwd=tmp_path,
    )
    assert "nowhere:load cannot be loaded (ModuleNotFoundError" in data.stdout
    assert "it registers no data set 'silent'" in data.stdout
    assert "nowhere:Attack cannot be loaded" in attacks.stdout
    assert (refused.returncode, "the plug-in 'lost' cannot be used" in " ".join(refused.stderr.split())) == (2, True)
    assert planned.returncode == 0, planned
