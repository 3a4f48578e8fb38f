"""A SuperLink and two SuperNodes as processes of their own. Both SuperNodes are killed after two rounds and started
again, so that what Flower keeps in their memory is gone."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fedaudit.integrations.party import WITHHELD
from tests.integrations.test_flower_example import environment as environment  # ends all that was started, by its id
from tests.integrations.test_flower_example import free_port

APP = Path(__file__).parent / "two_wards"
CONNECTION = '[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\n{trust}\n'

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 600
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def answers(port: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


class Deployment:
    """Every process has a log in `folder`, and a group of its own, so that it is killed with its children.

    `certificates`: a folder with those of a server on this machine, if it is to be spoken to by TLS. `lasting`: the
    SuperLink keeps its state on disk, and the processes of server apps are not below it, so that both outlive it.
    """

    def __init__(
        self, folder: Path, environment: dict[str, str], certificates: Path | None = None, lasting: bool = False
    ):
        self.folder, self.environment, self.port, self.lasting = folder, environment, free_port(), lasting
        self.started: list[subprocess.Popen[bytes]] = []
        self.server: tuple[str, ...] = ("--insecure",)
        self.client: tuple[str, ...] = ("--insecure",)
        trust = "insecure = true"
        if certificates is not None:
            files = {"ca-certfile": "ca.pem", "certfile": "server.pem", "keyfile": "server.key"}
            self.server = tuple(f"--ssl-{key}={certificates / name}" for key, name in files.items())
            self.client = (f"--root-certificates={certificates / 'ca.pem'}",)
            trust = f'root-certificates = "{certificates / "ca.pem"}"'
        (folder / "flwr-home").mkdir()
        (folder / "flwr-home/config.toml").write_text(CONNECTION.format(port=self.port, trust=trust))
        self.start_link()
        if lasting:
            self.start("superexec", "flower-superexec", *self.client, "--runtime-api-address", f"127.0.0.1:{self.port}")

    def start_link(self) -> subprocess.Popen[bytes]:
        options = ["--port", self.port, "--disable-runtime-dependency-installation"]
        if self.lasting:
            options += ["--isolation", "process", "--database", str(self.folder / "link.db")]
        made = self.start("superlink", "flower-superlink", *self.server, *options)
        wait_until(lambda: answers(self.port), "the SuperLink does not answer")
        return made

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            made = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        self.started.append(made)
        return made

    def start_node(self, number: int, *guard: str) -> subprocess.Popen[bytes]:
        """`guard`: the command before that of the node."""
        options = (*self.client, "--superlink", f"127.0.0.1:{self.port}", "--port", free_port())
        config = ("--node-config", f"partition-id={number} num-partitions=2")
        return self.start(f"node-{number}", *guard, "flower-supernode", *options, *config)

    def run(self, app: str, settings: str) -> subprocess.Popen[bytes]:
        return self.start("run", "flwr", "run", app, "here", "--stream", "--run-config", settings)

    def close(self) -> None:
        for process in self.started:
            kill(process)

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))


def kill(process: subprocess.Popen[bytes]) -> None:
    """As when a machine loses its power: nobody has time to say good-bye."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def deployment(tmp_path: Path, environment: dict[str, str]) -> Iterator[Deployment]:
    made = Deployment(tmp_path, environment | {"PYTHONPATH": os.pathsep.join(sys.path)})
    yield made
    made.close()


@pytest.mark.evidence
def test_killed_nodes_that_come_back_are_who_they_were(tmp_path: Path, deployment: Deployment) -> None:
    found = tmp_path / "found"
    found.mkdir()
    shutil.copytree(APP, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    nodes = [deployment.start_node(number) for number in (0, 1)]
    run = deployment.run("app", f'folder="{found}"')
    wait_until((found / "restart").exists, "the third round does not begin")
    for number, node in enumerate(nodes):
        kill(node)
        deployment.start_node(number)
    wait_until(lambda: run.poll() is not None, "the run does not end")
    assert (found / "seen.json").exists(), deployment.logs()[-6000:]
    seen = json.loads((found / "seen.json").read_text())

    halted_stays_halted(seen, deployment.logs())
    dead_nodes_are_counted_once(seen)
    the_audit_goes_on(found / "south")


def halted_stays_halted(seen: dict[str, Any], logs: str) -> None:
    """North halted in the first round. Under its new number it still sends nothing but one sentence without details."""
    for reasons in ([reason for _, reason in round] for round in seen["came"]):
        assert (reasons.count(None), reasons.count(WITHHELD)) == (1, 1)  # south, north
    (north,) = [node for node, reason in seen["came"][3] if reason == WITHHELD]
    assert north not in seen["asked"][0]
    assert "this party halted in round 1; nothing is sent" in logs


def dead_nodes_are_counted_once(seen: dict[str, Any]) -> None:
    """Both old numbers were asked once more; the SuperLink answered for them, under its own number."""
    dead = set(seen["asked"][2]) & set(seen["asked"][0])
    assert len(seen["asked"][2]) == 2 + len(dead)
    silent = [gap for gap in seen["gaps"] if gap.startswith("round 3") and "did not answer" in gap]
    assert silent == ([f"round 3: {len(dead)} of {len(seen['asked'][2])} parties did not answer"] if dead else [])
    failed = [gap for gap in seen["gaps"] if gap.startswith("round 3") and "failed" in gap]
    assert failed == [f"round 3: 1 of {len(seen['asked'][2])} parties failed"]  # north, which withholds


def the_audit_goes_on(folder: Path) -> None:
    document = json.loads((folder / "results.json").read_text())
    assert (document["run"]["status"], document["run"]["rounds"]) == ("complete", 4)
    assert "This node was restarted after round 2: its audit goes on from what is on disk." in document["notices"]
