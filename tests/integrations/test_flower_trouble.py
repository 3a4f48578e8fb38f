"""When the audit of a Flower app cannot work: the training goes on and says so, and nothing about records leaves."""

import json
import logging
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable
from flwr.server.superlink.linkstate.utils import create_message_error_unavailable_res_message
from flwr.serverapp.strategy import FedAvg, Strategy

from fedaudit.data.set_aside import set_aside
from fedaudit.integrations.flower.client import PartyAudit
from fedaudit.integrations.flower.server import record_strategy, trace_strategy
from fedaudit.integrations.party import WITHHELD
from fedaudit.types import Game
from fedaudit.words import all_words
from tests.integrations.flower_world import NODES, LocalGrid, as_state, client_app, initial, party_of
from tests.integrations.test_flower_client import federation, game_of, same_models, send
from tests.integrations.worlds import equal, games, net, part

QUICK = ("fta-confidence", "loss")


def no_game(context: Context) -> Game:
    raise FileNotFoundError(2, "No such file or directory", "/data/patients-of-ward-7.npz")


def other_labels(context: Context) -> Game:
    """Labels that the model has no output for."""
    x, y = part("north")[0].x, part("north")[0].y
    return set_aside(x, y + 17, party="north")[1]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "how many rounds are planned"),
    ({"rounds": 3, "attacks": ["ftа"]}, "unknown attack"),
    ({"rounds": 3, "fpr": [1e-4]}, "calibration non-members"),
    ({"rounds": 3, "attacks": ["kta-confidence"]}, "'kta-confidence' needs reference models"),
    ({"rounds": 3, "attacks": ["gradient-series"]}, "'gradient-series' needs an adversary with a shadow model"),
    ({"rounds": 3, "warn_if": "tpr@0.01 > 0.05"}, "could never be crossed"),
    ({"rounds": 3, "warn_if": "eval()"}, "must compare one metric"),
    ({"rounds": 3, "confidence": 1.5}, "confidence"),
    ({"rounds": 1}, "rounds"),
    ({"rounds": 3, "game": no_game}, "No such file"),
    ({"rounds": 3, "game": other_labels}, "labels run from 17 to 26"),
]


@pytest.mark.parametrize(("options", "says"), WRONG, ids=[says for _, says in WRONG])
def test_wrong_use_does_not_stop_a_party(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any], says: str
) -> None:
    """The update leaves as without the audit; log and report say from the first round on that nothing is audited."""
    game = options.pop("game", game_of) if "game" in options else game_of
    audit = PartyAudit(net, game, out=tmp_path, **{k: v for k, v in options.items() if k != "game"})
    (plain,), (reply,) = send(client_app(), [1]), send(client_app([audit]), [1])
    assert equal(*(as_state(next(iter(r.content.array_records.values()))) for r in (plain, reply)))
    assert re.search("(round 1|this run) is NOT AUDITED", caplog.text)
    assert says in caplog.text
    (folder,) = tmp_path.iterdir()
    assert folder.name == ("node-101" if game is no_game else "north")
    document = json.loads((folder / "results.json").read_text())
    assert document["run"]["status"] == "not audited"
    assert says in " ".join(document["degraded"])
    assert "This run was not audited" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    "options",
    [
        {"halt_if": "tpr@0.01 > 0.05"},  # too few calibration records
        {"halt_if": "eval()"},
        {"halt_if": "auc > 0.6", "attacks": ["lira"]},
        {"halt_if": "auc > 0.6", "game": no_game},
        {"strict": True, "game": other_labels},
        {"strict": True, "attacks": ["lira"]},
    ],
)
def test_a_party_that_asked_for_protection_sends_nothing_and_says_nothing_about_its_records(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    trained: list[int] = []

    def count(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        trained.append(1)
        return call_next(message, context)

    game = options.get("game", game_of)
    audit = PartyAudit(net, game, rounds=3, **{k: v for k, v in options.items() if k != "game"})
    for reply in send(client_app([audit, count]), [1, 2]):
        assert re.fullmatch(re.escape(WITHHELD) + r" \[[a-z-]+\]", str(reply.error.reason))
    assert trained == []
    assert "NOT AUDITED" in caplog.text


def test_a_round_that_was_not_audited_is_in_the_report_of_the_others(tmp_path: Path) -> None:
    calls: list[int] = []

    def late(context: Context) -> Game:
        calls.append(1)
        return no_game(context) if len(calls) <= 2 else game_of(context)  # once for the audit, once for its report

    audit = PartyAudit(net, late, rounds=3, out=tmp_path, attacks=QUICK)
    replies = send(client_app([audit]), [1, 2, 3])
    assert all(reply.has_content() for reply in replies)
    document = json.loads((tmp_path / "north/results.json").read_text())
    assert document["run"]["status"] == "recorded with gaps"
    assert document["degraded"][0].startswith("Round 1 is NOT AUDITED: No such file or directory")
    assert "patients-of-ward-7" not in json.dumps(document)


def start(strategy: Strategy, rounds: int = 2) -> dict[str, Any]:
    found = strategy.start(grid=LocalGrid(client_app()), initial_arrays=initial(), num_rounds=rounds)
    assert found.arrays is not None
    return as_state(found.arrays)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"attacks": ["lira"]}, "needs reference models"),
        ({"game": []}, "a game is wanted"),
        ({"rounds": 0}, "rounds"),
        ({"out": Path("/proc/nowhere/run")}, "cannot write to"),
    ],
)
def test_wrong_use_does_not_stop_a_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any], says: str
) -> None:
    usual: dict[str, Any] = {"out": tmp_path / "run", "rounds": 2, "model": net, "game": games(), "party": party_of}
    given = usual | options
    assert equal(start(record_strategy(FedAvg(), **given)), start(FedAvg()))
    assert caplog.text.count("this run is NOT AUDITED") >= 3  # before training, and in each of the two rounds
    assert says in caplog.text
    if given["out"] == usual["out"]:
        document = json.loads((tmp_path / "run/results.json").read_text())
        assert document["run"]["status"] == "not audited"
        assert says in document["degraded"][0]
        start(record_strategy(FedAvg(), attacks=QUICK, **usual))  # once the mistake is mended, the same folder will do
        assert json.loads((tmp_path / "run/results.json").read_text())["run"]["status"] == "complete"
    with pytest.raises(Exception, match=says):
        record_strategy(FedAvg(), strict=True, **given | {"out": options.get("out", tmp_path / "strict")})


def test_a_trace_that_cannot_be_written_does_not_stop_a_server(caplog: pytest.LogCaptureFixture) -> None:
    assert equal(start(trace_strategy(FedAvg(), out="/proc/nowhere/run")), start(FedAvg()))
    assert "NOT AUDITED: cannot write to" in caplog.text


def test_F5_a_dead_node_is_counted_once(tmp_path: Path) -> None:
    """As the SuperLink tells it: an error under its own id, in place of the node's answer."""

    class OneDies(LocalGrid):
        def deliver(self, message: Message) -> Message:
            if message.metadata.dst_node_id == 202:
                return create_message_error_unavailable_res_message(message.metadata, "node_unavail")
            return super().deliver(message)

    strategy = record_strategy(
        FedAvg(min_train_nodes=1), out=tmp_path, rounds=2, model=net, game=games(), party=party_of, attacks=QUICK
    )
    strategy.start(grid=OneDies(client_app()), initial_arrays=initial(), num_rounds=2)
    told = [gap for gap in all_words(strategy.session.gaps) if "of 2 parties" in gap]
    assert told == ["Round 1: 1 of 2 parties did not answer.", "Round 2: 1 of 2 parties did not answer."]


def test_a_reply_under_a_name_that_is_nobodys_is_told(tmp_path: Path) -> None:
    strategy = record_strategy(FedAvg(), out=tmp_path, rounds=2, model=net, game=games(), attacks=QUICK)
    start(strategy)
    told = [gap for gap in all_words(strategy.session.gaps) if "is no party of the game" in gap]
    assert len(told) == len(NODES)  # once each
    assert told[0].startswith("'node-101' is no party of the game (north, south)")
    assert "give party=" in told[0]


# ------------------------------------------------------------------ a node that is restarted


def restarted(grid: LocalGrid) -> None:
    """The SuperNode forgot its contexts; the run is the same."""
    from flwr.app import RecordDict

    grid.contexts = {
        node + 1000: Context(old.run_id, node + 1000, old.node_config, RecordDict(), old.run_config)
        for node, old in grid.contexts.items()
    }


def deliver(grid: LocalGrid, number: int, place: int = 0) -> Message:
    asked = FedAvg().configure_train(number, initial(), ConfigRecord(), grid)
    node = list(grid.contexts)[place]
    return grid.deliver(next(m for m in asked if m.metadata.dst_node_id == node))


@pytest.mark.parametrize("out", [True, False])
def test_a_halted_party_stays_halted_when_its_node_is_restarted(
    tmp_path: Path, flower_home: Path, out: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"out": tmp_path} if out else {}
    audit = PartyAudit(net, game_of, rounds=4, attacks=QUICK, halt_if="auc > 0.01", **options)
    grid = LocalGrid(client_app([audit]))
    assert deliver(grid, 1).has_error()
    restarted(grid)
    assert deliver(grid, 2).has_error()
    assert "this party halted in round 1; nothing is sent" in caplog.text
    kept = tmp_path if out else flower_home / "fedaudit"
    assert {path.name.partition("-")[0] for path in (kept / "north").iterdir()} >= {"memory", "halted"}
    other = LocalGrid(client_app([PartyAudit(net, game_of, rounds=4, attacks=QUICK, **options)]))  # another run
    assert deliver(other, 1).has_content()


def test_a_restarted_node_goes_on_with_its_audit(tmp_path: Path) -> None:
    found = []
    for restart_after in (None, 2):
        out = tmp_path / str(restart_after)
        grid = LocalGrid(client_app([PartyAudit(net, game_of, rounds=4, out=out, attacks=QUICK)]))
        for number in (1, 2, 3, 4):
            assert deliver(grid, number).has_content()
            if number == restart_after:
                restarted(grid)
        found.append(json.loads((out / "north/results.json").read_text()))
    whole, again = found
    assert [e["estimates"] for e in whole["results"]] == [e["estimates"] for e in again["results"]]
    assert again["run"]["status"] == "complete"
    said = "This node was restarted after round 2: its audit goes on from what is on disk."
    assert said in again["notices"]
    assert said not in whole["notices"]


def test_what_a_restart_lost_is_said(tmp_path: Path) -> None:
    for how, says in (("removed", "is the first that this audit saw"), ("damaged", "is lost")):
        out = tmp_path / how
        grid = LocalGrid(client_app([PartyAudit(net, game_of, rounds=4, out=out, attacks=QUICK)]))
        for number in (1, 2):
            deliver(grid, number)
        (memory,) = (out / "north").glob("memory-*")
        if how == "removed":
            memory.unlink()
        else:
            memory.write_bytes(memory.read_bytes()[:-7] + b"changed")
        restarted(grid)
        for number in (3, 4):
            assert deliver(grid, number).has_content()
        document = json.loads((out / "north/results.json").read_text())
        assert any(says in line for line in [*document["notices"], *document["degraded"]]), document["notices"]
        assert (document["run"]["status"] == "complete") == (how == "removed")


def test_memory_is_private_and_holds_nothing_executable(tmp_path: Path) -> None:
    send(client_app([PartyAudit(net, game_of, rounds=3, out=tmp_path, attacks=["fusion", "loss"])]), [1, 2])
    (memory,) = (tmp_path / "north").glob("memory-*")
    assert memory.stat().st_mode & 0o777 == 0o600
    (tmp_path / "rest.npz").write_bytes(memory.read_bytes()[64:])
    with np.load(tmp_path / "rest.npz", allow_pickle=False) as arrays:
        assert len([arrays[name] for name in arrays.files]) > 2


# ------------------------------------------------------------------ what a party is told


def test_a_party_finds_what_its_server_finds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same attacks by default, on the same models: a party that runs weaker ones would be misled."""
    caplog.set_level(logging.INFO, logger="flwr")
    app = client_app([PartyAudit(net, game_of, rounds=2, out=tmp_path)])
    strategy = record_strategy(FedAvg(), out=tmp_path / "server", rounds=2, model=net, game=games(), party=party_of)
    strategy.start(grid=LocalGrid(app), initial_arrays=initial(), num_rounds=2)
    server = json.loads((tmp_path / "server/results.json").read_text())
    own = json.loads((tmp_path / "north/results.json").read_text())
    theirs = {
        e["attack"]: e["estimates"]["auc"]["value"]
        for e in server["results"]
        if e["party"] == "north" and e["model"] == "local"
    }
    mine = {
        e["attack"]: e["estimates"]["auc"]["value"]
        for e in own["results"]
        if e["party"] == "north" and e["model"] == "local"
    }
    assert {"matched-filter", "fusion", "fta-confidence"} <= set(mine)
    assert mine == pytest.approx({name: theirs[name] for name in mine})
    assert set(theirs) == set(mine)


def test_its_report_names_its_two_lines_apart(tmp_path: Path) -> None:
    federation(client_app([PartyAudit(net, game_of, rounds=3, out=tmp_path, attacks=QUICK)]))
    page = (tmp_path / "north/report.html").read_text()
    legends = re.findall(r'<ul class="legend">(.*?)</ul>', page, re.DOTALL)
    for legend in legends:
        names = [re.sub(r": above chance.*", "", name) for name in re.findall(r"</span>([^<]*)</li>", legend)]
        keys = re.findall(r'class="key ([^"]*)"', legend)
        assert len(set(names)) == len(names), names
        assert len(set(keys)) == len(keys), keys
    assert any("local models" in legend and "global models" in legend for legend in legends)


def test_training_is_the_same_with_all_attacks() -> None:
    plain, _ = federation(client_app(), 2)
    audited, _ = federation(client_app([PartyAudit(net, game_of, rounds=2)]), 2)
    assert same_models(plain, audited)


def given(game: Game, context: Context) -> Game:
    return game


def test_a_name_that_no_disk_takes_is_still_a_party(tmp_path: Path) -> None:
    x, y = part("north")[0].x, part("north")[0].y
    for name in ("../../escape", "n" * 300, "ward\x1b[2J7"):
        game = set_aside(x, y, party=name)[1]
        audit = PartyAudit(net, partial(given, game), rounds=2, out=tmp_path / "out", attacks=QUICK)
        send(client_app([audit]), [1, 2])
    folders = list((tmp_path / "out").iterdir())
    assert len(folders) == 3
    assert all((folder / "results.json").is_file() and len(folder.name) < 80 for folder in folders)
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
