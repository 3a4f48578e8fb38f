"""The newcomers' pages are followed: files are written, and every command is carried out with its exit code."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integrations.test_flower_example import environment as environment  # ends Flower's daemons by their ids

ROOT = Path(__file__).parent.parent


def steps(page: str) -> Iterator[tuple[str, str]]:
    """The blocks in order: files by their name (`# NAME` in the first line), and commands, one a line."""
    for language, body in re.findall(r"^```(\w+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        if language == "sh":
            yield from (("", line) for line in body.splitlines())
        else:
            first, _, rest = body.partition("\n")
            yield first.removeprefix("# "), rest


def follow(name: str, folder: Path, settings: dict[str, str]) -> int:
    done = 0
    for file, text in steps((ROOT / "docs" / name).read_text()):
        if file:
            (folder / file).write_text(text)
            continue
        command, _, wanted = text.partition("  # exits with ")
        ran = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=settings, capture_output=True, text=True, timeout=900
        )
        assert ran.returncode == int(wanted or 0), f"{command}\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}"
        done += 1
    return done


def usual() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "120", "FEDAUDIT": str(ROOT)}


class Sample(NamedTuple):
    round: int
    estimates: dict[str, tuple[float, float, float]]


def sample_of(page: str) -> Sample:
    """What the page shows of a log."""
    shown = re.search(r"fedaudit: round (\d+), what leaves party-0: (.*)", (ROOT / "docs" / page).read_text())
    assert shown is not None
    each = re.findall(r"(\S+) ([\d.]+) \(([\d.]+)-([\d.]+)\)", shown[2])
    return Sample(int(shown[1]), {name: (float(value), float(low), float(high)) for name, value, low, high in each})


@pytest.mark.evidence
def test_a_privacy_officer(tmp_path: Path) -> None:
    assert follow("start-privacy-officer.md", tmp_path, usual()) == 12
    page = (tmp_path / "runs/plain/report-redacted.html").read_text()
    assert "party-0" not in page
    assert "can pick out" in page


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.evidence
def test_an_engineer_with_a_flower_app(tmp_path: Path, environment: dict[str, str]) -> None:
    assert follow("start-flower.md", tmp_path, usual() | environment | {"FEDAUDIT": str(ROOT)}) == 8
    assert (tmp_path / "games.npz").is_file()
    found = json.loads((tmp_path / "app/audit/party-0/results.json").read_text())
    (leading,) = {headline.get("primary") or headline["attack"] for headline in found["headlines"]}
    local = [r for r in found["results"] if (r["model"], r["attack"], r["party"]) == ("local", leading, None)]
    (curves,) = [r["curves"] for r in local]
    sample = sample_of("start-flower.md")
    for name in ("auc", "tpr@0.01"):  # training is not seeded, so the figures differ, but not by more than they may
        at = curves[name]["x"].index(sample.round)
        value, low, high = sample.estimates[name]
        assert low <= curves[name]["high"][at], name
        assert curves[name]["low"][at] <= high, name
        assert low <= value <= high, name
    assert "NOT AUDITED" not in (tmp_path / "app/audit/party-0/report.html").read_text()
