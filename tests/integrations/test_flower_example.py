"""The example, started with `flwr run` as its README says, and its daemons ended by their ids."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/flower-quickstart"


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def ours(home: str) -> list[int]:
    """Processes that were started with this Flower home, whoever is their parent now."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            settings = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if f"FLWR_HOME={home}".encode() in settings:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    home = str(tmp_path / "flwr-home")
    yield os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": home,
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": free_port(),
        "FLWR_LOCAL_CONTROL_API_PORT": free_port(),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # 15 unless told: on a busy machine the parties would not get to train
    }
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in ours(home):
            os.kill(pid, number)
        deadline = time.monotonic() + 20
        while ours(home) and time.monotonic() < deadline:
            time.sleep(0.2)
    assert ours(home) == []


@pytest.mark.evidence
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_the_example_runs_from_its_readme(tmp_path: Path, environment: dict[str, str]) -> None:
    app = tmp_path / "app"
    shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("__pycache__", "audit"))
    settings = f'num-server-rounds=3 local-epochs=1 audit-out="{tmp_path / "audit"}"'
    for _ in range(2):  # Flower gives its SuperLink 15 s to start, which a busy machine may not keep
        done = subprocess.run(
            ["flwr", "run", ".", "--stream", "--run-config", settings],
            cwd=app, env=environment, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        if "Failed to start local SuperLink" not in done.stdout + done.stderr:
            break
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4000:]
    assert "what leaves party-1: auc" in said
    assert "aggregate_train: Received 2 results and 0 failures" in said
    for party in ("party-0", "party-1"):
        document = json.loads((tmp_path / "audit" / party / "results.json").read_text())
        assert document["run"]["status"] == "complete"
        assert document["run"]["rounds"] == 3
        assert document["run"]["data"]["subjects"] > 1000
        assert (tmp_path / "audit" / party / "report.html").is_file()


def test_the_readme_shows_the_line_of_the_app() -> None:
    (line,) = [text for text in (EXAMPLE / "quickstart/client_app.py").read_text().splitlines() if "mods=" in text]
    assert line in (EXAMPLE / "README.md").read_text()
