"""A SuperLink and three SuperNodes over TLS, as processes. Two nodes have a guard, and the app of the third a mod."""

import datetime
import ipaddress
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedaudit.data.game_file import save_game
from fedaudit.integrations.flower.guard import FAILED
from fedaudit.integrations.party import WITHHELD
from fedaudit.results import document as results
from fedaudit.trace.store import RUN, Store
from tests.integrations.test_flower_example import environment as environment  # ends all that was started, by its id
from tests.integrations.test_flower_nodes import Deployment, kill, wait_until
from tests.integrations.worlds import part

APP = Path(__file__).parent / "three_wards"
SECRET = "the-records-of-south"  # as the app has it

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


def write_certificates(folder: Path) -> Path:
    """An authority of our own, and a server on this machine that it knows."""
    folder.mkdir()
    now = datetime.datetime.now(datetime.UTC)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "server")}
    names = {name: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in keys}
    for name, key in keys.items():
        made = (
            x509.CertificateBuilder()
            .subject_name(names[name])
            .issuer_name(names["ca"])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
        )
        if name == "server":
            hosts = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
            made = made.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        signed = made.sign(keys["ca"], hashes.SHA256())
        (folder / f"{name}.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (folder / f"{name}.key").write_bytes(key.private_bytes(*plain))
    return folder


class Wards:
    """The three nodes, the app, and a folder for what is found."""

    def __init__(self, folder: Path, environment: dict[str, str], lasting: bool = False):
        self.folder, self.found = folder, folder / "found"
        self.found.mkdir()
        shutil.copytree(APP, folder / "app", ignore=shutil.ignore_patterns("__pycache__"))
        self.deployment = Deployment(folder, environment, write_certificates(folder / "certificates"), lasting)
        self.sites = {}
        for party in ("north", "south"):
            site = folder / f"site-{party}"
            site.mkdir()
            save_game(part(party)[1], site / "game.npz")
            (site / "site.toml").write_text(
                'game = "game.npz"\nmodel = "tests.integrations.worlds:net"\nrounds = 4\nout = "audits"\n'
                'attacks = ["loss"]\nsecagg = true\n'
            )
            self.sites[party] = site
        self.nodes = [self.start_node(number) for number in range(3)]

    def start_node(self, number: int) -> Any:
        guard = () if number == 2 else ("fedaudit", "guard", str(list(self.sites.values())[number] / "site.toml"), "--")
        return self.deployment.start_node(number, *guard)

    def run(self, more: str) -> Any:
        return self.deployment.run("app", f'folder="{self.found}" {more}')

    def rounds(self) -> list[Any]:
        path = self.found / "came.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def audit(self, party: str) -> Any:
        return results.load(self.sites[party] / "audits" / party)


@pytest.fixture
def wards(tmp_path: Path, environment: dict[str, str], request: pytest.FixtureRequest) -> Iterator[Wards]:
    own = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    made = Wards(tmp_path, environment | own, lasting=getattr(request, "param", False))
    yield made
    made.deployment.close()


def reached(round: int, wards: Wards) -> None:
    wait_until(lambda: len(wards.rounds()) >= round, f"round {round} does not end: {wards.deployment.logs()[-4000:]}")


def ended(run: Any, wards: Wards) -> None:
    wait_until(lambda: run.poll() is not None, f"the run does not end: {wards.deployment.logs()[-4000:]}")


def test_an_app_that_will_not_be_audited_sends_nothing_through_a_guarded_node(wards: Wards) -> None:
    """Round by round it sends records in place of a model, after changing all of fedaudit that it can reach, hides them
    in metrics, and writes them into an error."""
    ended(wards.run('num-server-rounds=3 hostile="patch hide raise"'), wards)
    refusals = [f"{WITHHELD} [parameter-names]", f"{WITHHELD} [too-much-beside]", FAILED]
    assert [round for round, _ in wards.rounds()] == [1, 2, 3], wards.deployment.logs()[-6000:]
    seen = set()
    for (_, came), refusal in zip(wards.rounds(), refusals, strict=True):
        # A machine that is too busy loses nodes, as Flower says itself, and their apps.
        said = {one for one in came if isinstance(one, str) and not one.startswith("Error: Node Unavailable")}
        assert said <= {refusal, FAILED}, came
        assert sum(not isinstance(one, str) for one in came) <= 2
        seen |= said
    assert seen & {*refusals[:2]}, wards.rounds()
    hidden = np.frombuffer(SECRET.encode(), np.uint8).astype(np.float32).tobytes()
    for path in wards.found.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
            assert hidden not in path.read_bytes(), path
    assert wards.audit("north").run.withheld == ()
    assert all(len(entry.parties) <= 2 for entry in Store.read(wards.found / "server").entries())


@pytest.mark.evidence
@pytest.mark.parametrize("wards", [True], ids=["lasting"], indirect=True)
def test_a_node_and_the_superlink_die_and_the_run_and_its_audits_go_on(wards: Wards) -> None:
    """The third node is slow. North is killed after the first round, and the SuperLink after the second; both are
    started again. The reports say who was missing when."""
    wards.run("num-server-rounds=4 slow=3")
    reached(1, wards)
    kill(wards.nodes[0])
    wards.start_node(0)
    reached(2, wards)
    kill(wards.deployment.started[0])  # the SuperLink
    wards.deployment.start_link()
    wait_until(
        (wards.found / "server" / results.RESULTS).exists, f"the run does not end: {wards.deployment.logs()[-4000:]}"
    )

    assert [round for round, _ in wards.rounds()] == [1, 2, 3, 4]
    entries = Store.read(wards.found / "server").entries()
    assert [(entry.round, len(entry.parties)) for entry in entries][:2] == [(1, 3), (2, 2)]
    assert len(entries[3].parties) == 3  # all are back
    server, north, south = results.load(wards.found / "server"), wards.audit("north"), wards.audit("south")
    assert (server.run.rounds, server.run.status) == (4, "recorded with gaps")
    told = {one.code: one.data for one in server.told}
    assert (told["parties-silent"]["round"], told["parties-silent"]["parties"]) == (2, 1), server.told
    assert (south.run.rounds, south.run.ending) == (4, "complete")
    assert north.run.rounds == 4
    assert "node-restarted" in {one.code for one in north.told}, north.told


@pytest.mark.evidence
def test_a_superlink_that_keeps_nothing_ends_the_run_and_a_new_run_goes_on_in_the_same_folder(wards: Wards) -> None:
    """So it is by default: the run, its nodes and the process of the server's app die with the SuperLink."""
    run = wards.run("num-server-rounds=4 planned=4")
    kept = wards.found / "server"
    wait_until(lambda: (kept / RUN).exists() and len(Store.read(kept).entries()) >= 2, "two rounds are not recorded")
    for process in (wards.deployment.started[0], run, *wards.nodes):
        kill(process)
    assert [len(entry.parties) for entry in Store.read(kept).entries()][:2] == [3, 3]
    wards.deployment.start_link()
    for number in range(3):
        wards.start_node(number)
    ended(wards.run("num-server-rounds=2 planned=4"), wards)
    server = results.load(kept)
    assert [entry.round for entry in Store.read(kept).entries()][-1] == server.run.rounds >= 4
    assert "server-restarted" in {one.code for one in server.told}, server.told


@pytest.mark.evidence
def test_under_secagg_a_guard_audits_the_sum(wards: Wards) -> None:
    ended(wards.run("num-server-rounds=2 secagg=true"), wards)
    for party in ("north", "south"):
        found = wards.audit(party)
        assert found.run.rounds == 2, wards.deployment.logs()[-6000:]
        assert {one.model for one in found.results} == {"global"}
    assert results.load(wards.found / "server").run.rounds == 2
