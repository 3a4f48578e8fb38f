"""A server and two sites of NVIDIA FLARE over mutual TLS, as processes. One site owns a filter that no job knows."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

from nvflare.tool.poc.poc_commands import prepare_poc_provision

from fedaudit.data.game_file import save_game
from fedaudit.results import document as results
from fedaudit.trace.store import Store
from tests.integrations.flare_world import EXAMPLE, write_job
from tests.integrations.test_flower_example import free_port
from tests.integrations.test_flower_nodes import answers

SITES, ADMIN, ORGANISATION = ("site-1", "site-2"), "admin@nvidia.com", "nvidia"
APPS = {"server": "server.server_train", "site": "client.client_train"}

# A process of its own, as a researcher's: NVIDIA FLARE's session is a part of its network, one for each process.
RESEARCHER = """
import sys, time
from nvflare.fuel.flare_api.flare_api import new_secure_session

session = new_secure_session("admin@nvidia.com", sys.argv[1], timeout=200.0)
while len(session.get_system_info().client_info) < 2:
    time.sleep(0.5)
job = session.submit_job(sys.argv[2])
while not (status := session.get_job_meta(job)["status"]).startswith("FINISHED"):
    time.sleep(0.5)
print(status)
session.close()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are ended by their groups")


class Consortium:
    """Provisioned by NVIDIA FLARE's own tool. Every process has a log and a group of its own."""

    def __init__(self, folder: Path):
        self.folder, self.started = folder, list[subprocess.Popen[bytes]]()
        self.port = free_port()
        project = _project(self.port)
        (folder / "project.yml").write_text(json.dumps(project))  # JSON is YAML
        prepare_poc_provision([], 0, str(folder / "poc"), "", project_conf_path=str(folder / "project.yml"))
        self.kits = folder / "poc" / project["name"] / "prod_00"

    def start(self, name: str) -> None:
        side = "server" if name == "server" else "site"
        command = ["-u", "-m", f"nvflare.private.fed.app.{APPS[side]}", "-m", str(self.kits / name)]
        command += ["-s", "fed_server.json" if side == "server" else "fed_client.json", "--set", "secure_train=true"]
        command += [f"org={ORGANISATION}", "config_folder=config", *([f"uid={name}"] if side == "site" else [])]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (self.folder / f"{name}.log").open("wb") as log:
            self.started.append(
                subprocess.Popen(
                    [sys.executable, *command],
                    cwd=self.kits / name,
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def own(self, site: str, filter: dict[str, Any]) -> None:
        """The site puts the example's files into its own folder."""
        local = self.kits / site / "local"
        config = json.loads((EXAMPLE / "local" / "privacy.json").read_text())
        for scope in config["scopes"]:
            for chain in ("task_data_filters", "task_result_filters"):
                scope[chain][0]["args"].update(filter)
        (local / "privacy.json").write_text(json.dumps(config))
        shutil.copy(EXAMPLE / "local" / "ours.py", local)
        sys.path.insert(0, str(EXAMPLE / "job" / "app" / "custom"))
        try:
            from digits import game  # type: ignore[import-not-found]

            save_game(game(site), local / "game.npz")
        finally:
            sys.path.pop(0)

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _project(port: str) -> dict[str, Any]:
    people = [{"name": ADMIN, "type": "admin", "org": ORGANISATION, "role": "project_admin"}]
    server = {"name": "server", "type": "server", "org": ORGANISATION, "fed_learn_port": int(port)}
    server["default_host"] = "localhost"
    impl = "nvflare.lighter.impl"
    return {
        "api_version": 3,
        "name": "wards",
        "description": "two sites on one machine",
        "participants": [server, *people, *({"name": s, "type": "client", "org": ORGANISATION} for s in SITES)],
        "builders": [
            {"path": f"{impl}.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
            {"path": f"{impl}.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
            {"path": f"{impl}.cert.CertBuilder"},
            {"path": f"{impl}.signature.SignatureBuilder"},
        ],
    }


@pytest.fixture
def consortium(tmp_path: Path) -> Iterator[Consortium]:
    made = Consortium(tmp_path)
    yield made
    made.close()
    assert all(process.poll() is not None for process in made.started)


def patiently(act: Callable[[], Any], what: str, consortium: Consortium) -> Any:
    deadline = time.monotonic() + 240
    while not (found := act()):
        assert time.monotonic() < deadline, f"{what}\n{consortium.logs()}"
        time.sleep(0.5)
    return found


def test_a_filter_of_the_site_runs_in_a_job_that_knows_nothing_of_it(tmp_path: Path, consortium: Consortium) -> None:
    consortium.own("site-1", {"halt_if": "auc > 0.2", "attacks": ["loss"]})
    for name in ("server", *SITES):
        consortium.start(name)
    job = write_job(tmp_path / "job", {"out": str(tmp_path / "server")}, None)
    patiently(lambda: answers(consortium.port), "the server does not answer", consortium)
    kit = str(consortium.kits / ADMIN)
    done = subprocess.run(
        [sys.executable, "-c", RESEARCHER, kit, str(job)], capture_output=True, text=True, timeout=280
    )
    assert done.stdout.split()[-1:] == ["FINISHED:COMPLETED"], done.stdout + done.stderr + consortium.logs()
    document = results.load(consortium.kits / "site-1" / "local" / "audits" / "site-1")
    (withheld,) = document.run.withheld
    assert (withheld.round, withheld.onwards, withheld.rule) == (1, True, "auc > 0.2")
    recorded = Store.read(tmp_path / "server").entries()
    assert [sorted(entry.parties) for entry in recorded] == [["site-2"]] * 3, consortium.logs()
