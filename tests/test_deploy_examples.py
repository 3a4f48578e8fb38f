"""examples/deploy: the Action's steps are run by a shell, the images' entry points are started, and the assertion for
test suites is used by pytest. There is no Docker here: `make evidence` runs what the images install."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # flwr brings it

ROOT = Path(__file__).parent.parent
DEPLOY, STORED = ROOT / "examples" / "deploy", ROOT / "tests" / "results" / "stored"
RULE = "auc[vantage=client] > 0.3"
PATHS = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    run = tmp_path / "runs" / "release"
    run.mkdir(parents=True)
    shutil.copy(STORED / "subjects.json", run / "results.json")
    return run


def steps(inputs: dict[str, str], folder: Path, but: tuple[str, ...] = ("Install",)) -> list[tuple[str, int]]:
    """By name and exit code, until one fails, as GitHub runs them. What is to be installed is there already."""
    action = yaml.safe_load((DEPLOY / "action.yml").read_text())
    given = {name: str(about.get("default", "")) for name, about in action["inputs"].items()} | inputs
    done: list[tuple[str, int]] = []
    for step in action["runs"]["steps"]:
        own = {key: _filled(value, given) for key, value in step["env"].items()}
        if step["name"] in but:
            continue
        environment = os.environ | PATHS | own | {"GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done.append((step["name"], subprocess.run(shell, cwd=folder, env=environment, check=False).returncode))
        if done[-1][1]:
            break
    return done


def _filled(text: str, inputs: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], text)


def test_the_action_fails_the_job_as_the_gate_does_and_leaves_a_summary(tmp_path: Path, release: Path) -> None:
    assert steps({"run": "runs/release", "fail-if": RULE}, tmp_path) == [("Report", 0), ("Gate", 1)]
    assert "# " in (tmp_path / "summary.md").read_text()
    assert (release / "gate.xml").is_file()
    hostile = f'{RULE}"; touch stolen; echo "'  # an input is data, never a part of the script
    assert steps({"run": "runs/release", "fail-if": hostile}, tmp_path, ("Install", "Report")) == [("Gate", 2)]
    assert not (tmp_path / "stolen").exists()


def instructions(name: str) -> list[tuple[str, str]]:
    text = (DEPLOY / name).read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


@pytest.mark.parametrize("name", ["site.Dockerfile", "ci.Dockerfile"])
def test_the_images_begin_with_a_command_that_starts(name: str, tmp_path: Path, release: Path) -> None:
    found = instructions(name)
    assert [
        word for word, _ in found if word not in ("FROM", "ARG", "RUN", "USER", "ENV", "WORKDIR", "ENTRYPOINT")
    ] == []
    (user,) = [value for word, value in found if word == "USER"]
    assert user.partition(":")[0] not in ("", "root", "0")
    entry: list[str] = json.loads(dict(found)["ENTRYPOINT"])
    site = tmp_path / "site.toml"
    site.write_text('game = "game.npz"\nmodel = "ours:net"\nrounds = 2\n')
    entry = [str(site) if word == "/site/site.toml" else word for word in entry]
    more = ["gate", "runs/release", "--fail-if", RULE] if entry == ["fedaudit"] else ["--insecure"]
    done = subprocess.run(
        [*entry, *more], cwd=tmp_path, env=os.environ | PATHS, capture_output=True, text=True, check=False
    )
    said = "violated" if entry == ["fedaudit"] else "[game-missing]"  # no node starts without the site's records
    assert said in done.stdout + done.stderr
    assert done.returncode == (1 if entry == ["fedaudit"] else 2), done.stderr


@pytest.mark.evidence
@pytest.mark.parametrize("name", ["site.Dockerfile", "ci.Dockerfile"])
def test_what_the_images_install_can_be_installed(name: str, tmp_path: Path) -> None:
    """In an environment of its own in place of the image; its user and the index for CPUs are left to Docker."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "image")], check=True)
    python = str(tmp_path / "image" / "bin" / "python")
    found = dict(instructions(name))
    (wanted,) = shlex.split(found["ARG"].partition("=")[2])
    (install,) = [text for word, text in instructions(name) if word == "RUN" and "pip install" in text]
    command = shlex.split(install.replace("$FEDAUDIT", wanted.replace("fedaudit", str(ROOT))))
    pinned = ["-c", str(ROOT / "constraints.txt")]
    own = [word for word in command[1:] if not word.startswith("http") and word != "--extra-index-url"]
    subprocess.run([python, *own, *pinned], check=True)
    entry: list[str] = json.loads(found["ENTRYPOINT"])
    for tool in {entry[0], entry[-1]}:
        subprocess.run([str(Path(python).parent / tool), "--help"], check=True, stdout=subprocess.DEVNULL)


SUITE = """
from fedaudit.testing import assert_private

def test_safe():
    assert_private("runs/release", "auc > 0.999")

def test_not_safe():
    assert_private("runs/release", "auc[vantage=client] > 0.3")
"""


def test_an_audit_is_a_test_in_somebodys_own_suite(tmp_path: Path, release: Path) -> None:
    (tmp_path / "test_ours.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_ours.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = done.stdout
    assert f"violated: not allowed: {RULE}" in said, said
    assert "test_ours.py:8: AssertionError" in said  # the line of the test, not of fedaudit
    assert "runs/release is not shown to be private" in said
    assert "1 failed, 1 passed" in said
