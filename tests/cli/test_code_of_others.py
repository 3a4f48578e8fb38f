"""What lies in the current folder is not run, and neither is what a recorded run names, unless the user says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedaudit.config import code
from fedaudit.errors import FedauditError
from tests.command import fedaudit

ROOT = Path(__file__).parents[2]
NET = """
import pathlib
import beside
from torch import nn
pathlib.Path(__file__).with_name("ran").touch()

def net(input_shape, classes):
    return nn.Linear(input_shape[0], classes)
"""
ATTACK = """
from dataclasses import dataclass
from fedaudit.adversary.attacks.trajectory import FTA
from fedaudit.config.attack_registry import option

@dataclass(frozen=True)
class Mine(FTA):
    unused: int = option(0, "nothing")
"""
CONFIG = """
[data]
name = "breast-cancer"
[federation]
parties = 2
rounds = 2
[model]
name = "mine:net"
[audit]
attacks = ["loss"]
keep = "snapshots"
"""


def started(*arguments: str, cwd: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """A process of its own. `path`: what PYTHONPATH begins with."""
    found = f"{path}{ROOT / 'src'}{os.pathsep}{ROOT}"
    environment = os.environ | {"COLUMNS": "200", "PYTHONPATH": found}
    command = [sys.executable, "-m", "fedaudit", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with modules that are named like what fedaudit imports, and tell when they are run."""
    folder = tmp_path / "received"
    folder.mkdir()
    for name in ("jinja2", "numpy", "torch", "rich", "typer", "difflib", "pyarrow", "tomllib"):
        (folder / f"{name}.py").write_text("open('ran', 'w').close()\nraise SystemExit(77)\n")
    (folder / "scores.csv").write_text("id,member,score\n" + "".join(f"{i},{i % 2},{i * 7 % 10}\n" for i in range(40)))
    return folder


@pytest.mark.parametrize(
    ("arguments", "exit_code", "path"),
    [
        (["list", "attacks"], 0, ""),
        (["score", "scores.csv", "--fpr", "0.5"], 0, ""),
        (["report", "."], 2, ""),
        (["gate", ".", "--fail-if", "auc > 0.9"], 2, ""),
        (["compare", ".", "."], 2, ""),
        (["score", "scores.csv", "--fpr", "0.5"], 0, os.pathsep),  # PYTHONPATH has an empty part
    ],
)
def test_S6_the_current_folder_cannot_be_imported_from(
    elsewhere: Path, arguments: list[str], exit_code: int, path: str
) -> None:
    done = started(*arguments, cwd=elsewhere, path=path)
    assert not (elsewhere / "ran").exists(), arguments
    assert done.returncode == exit_code, done.stdout + done.stderr


def test_a_module_beside_the_configuration_is_found_from_anywhere_and_nothing_else_is_replaced(
    tmp_path: Path, elsewhere: Path
) -> None:
    """`beside` is imported by it; the current folder has a torch.py, which would come first in a script."""
    (tmp_path / "mine.py").write_text(NET)
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "my.toml").write_text(CONFIG)
    done = started("run", "../my.toml", cwd=elsewhere)
    assert (done.returncode, (tmp_path / "ran").exists()) == (0, True), done.stdout + done.stderr
    assert not (elsewhere / "ran").exists()


def test_S6_what_a_recorded_run_names_is_run_on_request_alone(tmp_path: Path) -> None:
    for name, text in (("mine.py", NET), ("beside.py", ""), ("my.toml", CONFIG)):
        (tmp_path / name).write_text(text)
    assert fedaudit("run", "my.toml", cwd=tmp_path).returncode == 0
    (tmp_path / "ran").unlink()
    again = fedaudit("audit", "runs/my", "--attack", "fta-confidence", "--attack", "gradient-cosine", cwd=tmp_path)
    assert (again.returncode, "mine:net" in again.stderr, "--trust-code" in again.stderr) == (2, True, True), again
    assert not (tmp_path / "ran").exists()
    stored = fedaudit("audit", "runs/my", cwd=tmp_path)  # its stored signals need no model
    assert (stored.returncode, (tmp_path / "ran").exists()) == (0, False), stored.stdout + stored.stderr
    (tmp_path / "own.py").write_text(ATTACK)  # what the user names is run
    named = fedaudit("audit", "runs/my", "--attack", "own:Mine+signal=loss+unused=1", cwd=tmp_path)
    assert (named.returncode, "mine+signal=loss+unused=1" in named.stdout) == (0, True), named.stderr
    trusted = fedaudit("audit", "runs/my", "--attack", "gradient-cosine", "--trust-code", cwd=tmp_path)
    assert (trusted.returncode, (tmp_path / "ran").exists()) == (0, True), trusted.stdout + trusted.stderr


def test_S6_a_recorded_attack_of_ones_own_is_run_if_it_is_named_or_trusted(tmp_path: Path) -> None:
    """docs/plugins.md says so. Whatever else is asked for, its data were set aside as that attack wants it."""
    (tmp_path / "own.py").write_text(ATTACK)
    text = CONFIG.replace('name = "mine:net"', "hidden = [8]").replace('["loss"]', '["own:Mine", "loss"]')
    (tmp_path / "my.toml").write_text(text)
    assert fedaudit("run", "my.toml", cwd=tmp_path).returncode == 0
    for arguments, expected in (
        ([], 2),
        (["--attack", "loss"], 2),
        (["--attack", "own:Mine"], 0),
        (["--trust-code"], 0),
    ):
        done = fedaudit("audit", "runs/my", *arguments, cwd=tmp_path)
        assert (done.returncode, "untrusted-code" in done.stderr) == (expected, expected == 2), (arguments, done.stderr)


def test_the_path_is_as_before_once_a_name_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(code, "_folders", [])
    (tmp_path / "only_here.py").write_text("here = 1\n")
    before = list(sys.path)
    assert code.imported("only_here:here", "test") == 1
    assert sys.path == before
    with code.received(tmp_path, trusted=False, named=["only_here:here"]):
        assert code.imported("only_here:here", "test") == 1
        with pytest.raises(FedauditError, match="untrusted-code"):
            code.imported("os:getcwd", "test")
    assert code.imported("os:getcwd", "test") is os.getcwd
