"""A guard that the site owns: whatever an app does in its own process, nothing leaves that was not audited."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from fedaudit.data.game_file import save_game
from fedaudit.errors import FedauditError
from fedaudit.integrations.flower.guard import Guard, instead, read_site, run
from fedaudit.integrations.party import WITHHELD
from fedaudit.results import document as results
from fedaudit.types import State
from tests.integrations.flower_world import NODES, LocalGrid, as_state, client_app, initial
from tests.integrations.worlds import equal, net, part, train

SITE = """
game = "game.npz"
model = "tests.integrations.worlds:net"
rounds = 3
out = "audits"
attacks = ["loss", "fta-confidence"]
"""
(NORTH, *_) = NODES


def site_file(folder: Path, more: str = "") -> Path:
    save_game(part("north")[1], folder / "game.npz")
    (folder / "site.toml").write_text(SITE + more)
    return folder / "site.toml"


class Wire:
    """The connection to a SuperLink, with messages in place of a network; the store is where an app's replies wait."""

    def __init__(self, guard: Guard, app: ClientApp):
        self.app, self.grid, self.sent, self.kept = app, LocalGrid(app), list[Message](), dict[str, bytes]()
        self.waiting: Message | None = None
        self.pushed: dict[str, bytes] = {}
        connection = (NORTH, self._receive, self._send, None, None, self._pull, self._push, lambda *_: None)
        made = guard.connected(connection, self)
        _, self.receive, self.send, _, _, self.pull, self.push, self.confirm = made

    def get(self, name: str) -> bytes | None:
        return self.kept.get(name)

    def _receive(self) -> Any:
        assert self.waiting is not None
        return self.waiting, get_object_tree(self.waiting)

    def _pull(self, run: int, name: str) -> bytes:
        assert self.waiting is not None
        return get_all_nested_objects(self.waiting)[name].deflate()

    def _send(self, message: Message, tree: Any, seconds: float) -> Any:
        self.sent.append(message)
        return {one.object_id for one in _objects(tree)}, "session"

    def _push(self, run: int, session: str, name: str, content: bytes) -> None:
        self.pushed[name] = content

    def ask(
        self,
        round: int,
        kind: str = "train",
        change: Callable[[Message], Message] = lambda reply: reply,
        stage: str | None = None,
    ) -> Message:
        """One message to the node and what it sends back. `change`: what the app does in place of an honest reply."""
        content = RecordDict({"arrays": initial(), "config": ConfigRecord({"server-round": round})})
        if stage is not None:  # of SecAgg+
            content["secaggplus_configs"] = ConfigRecord({"stage": stage})
        message = Message(content, dst_node_id=NORTH, message_type=kind)
        message.metadata.__dict__.update({"_message_id": message.object_id, "_run_id": 7, "_src_node_id": 1})
        self.waiting = message
        self.receive()
        for one in _objects(get_object_tree(message)):
            self.pull(7, one.object_id)
        self.confirm(7, message.metadata.message_id)
        # As an app gets it: nothing of it is the node's own.
        own = Message(
            RecordDict({"arrays": initial(), "config": content["config"]}), dst_node_id=NORTH, message_type=kind
        )
        own.metadata.__dict__.update(message.metadata.__dict__)
        reply = change(self.app(own, self.grid.contexts[NORTH]))
        objects = get_all_nested_objects(reply)
        self.kept = {name: made.deflate() for name, made in objects.items()}
        ids, session = self.send(reply, get_object_tree(reply), 1.0)
        for name in ids:
            self.push(7, session, name, self.kept[name])
        return self.sent[-1]

    def arrays_sent(self) -> int:
        """How many bytes went out at all."""
        return sum(map(len, self.pushed.values()))


def _objects(tree: Any) -> list[Any]:
    return [tree, *(one for child in tree.children for one in _objects(child))]


def answered(message: Message) -> str | None:
    return message.error.reason if message.has_error() else None


def trained(round: int) -> State:
    """What the app computes."""
    torch.manual_seed(0)
    module = net()
    train(module, part("north")[0], seed=round)
    return {name: value.numpy() for name, value in module.state_dict().items()}


def test_an_honest_update_leaves_as_it_is_and_is_audited(tmp_path: Path) -> None:
    wire = Wire(Guard(read_site(site_file(tmp_path))), client_app())
    for round in (1, 2, 3):
        sent = wire.ask(round)
        assert answered(sent) is None
        assert equal(as_state(sent.content.array_records["arrays"]), trained(round))
        assert set(wire.pushed) >= {one.object_id for one in _objects(get_object_tree(sent))}
    document = results.load(tmp_path / "audits" / "north")
    assert (document.run.rounds, document.run.withheld) == (3, ())


def bigger(reply: Message) -> Message:
    """More digits than the model has: room for records."""
    arrays = {
        name: Array(value.astype(np.float64)) for name, value in as_state(reply.content.array_records["arrays"]).items()
    }
    reply.content["arrays"] = ArrayRecord(arrays)
    return reply


def behind(reply: Message) -> Message:
    """Bytes behind the numbers."""
    for array in reply.content.array_records["arrays"].values():
        array.data = array.data + b"records"
    return reply


def more_arrays(reply: Message) -> Message:
    reply.content["more"] = ArrayRecord({"records": Array(np.zeros(100, np.float32))})
    return reply


def other_names(reply: Message) -> Message:
    reply.content["arrays"] = ArrayRecord({"records": Array(np.zeros(100, np.float32))})
    return reply


def many_metrics(reply: Message) -> Message:
    reply.content["records"] = MetricRecord({"x": [0.5] * 1000})
    return reply


def long_text(reply: Message) -> Message:
    reply.content["note"] = ConfigRecord({"records": "x" * 5000})
    return reply


def elsewhere(reply: Message) -> Message:
    reply.metadata.__dict__["_group_id"] = "records"
    return reply


def claims_to_be_masked(reply: Message) -> Message:
    reply.content["secaggplus_configs"] = ConfigRecord({"stage": "masked"})
    return many_metrics(reply)


@pytest.mark.parametrize(
    "change", [bigger, behind, more_arrays, other_names, many_metrics, long_text, elsewhere, claims_to_be_masked]
)
def test_what_is_not_the_model_does_not_leave(tmp_path: Path, change: Callable[[Message], Message]) -> None:
    wire = Wire(Guard(read_site(site_file(tmp_path))), client_app())
    reason = answered(wire.ask(1, change=change))
    assert reason is not None
    assert reason.startswith(WITHHELD)
    assert wire.arrays_sent() < 500  # an error alone


def test_other_replies_carry_no_arrays_and_errors_no_text(tmp_path: Path) -> None:
    wire = Wire(Guard(read_site(site_file(tmp_path))), client_app())
    assert answered(wire.ask(1, "evaluate")) is None
    assert answered(wire.ask(1, "evaluate", more_arrays)) == f"{WITHHELD} [arrays-beside]"

    def fails(reply: Message) -> Message:
        assert wire.waiting is not None
        return Message(Error(3, "record 17 is 61, 72, north"), reply_to=wire.waiting)

    assert answered(wire.ask(1, change=fails)) == "fedaudit: the app failed"
    assert "north" not in str(wire.pushed)


def masked(reply: Message) -> Message:
    """As Flower's mod does it: a record of bytes, and the model's own record left empty."""
    reply.content["secaggplus_configs"] = ConfigRecord({"vector": b"x" * 5000})
    for record in reply.content.array_records.values():
        record.clear()
    return reply


def masked_and_plain(reply: Message) -> Message:
    reply.content["secaggplus_configs"] = ConfigRecord({"vector": b"x" * 5000})
    return reply


def test_no_plain_arrays_leave_beside_masked_ones(tmp_path: Path) -> None:
    wire = Wire(Guard(read_site(site_file(tmp_path, "secagg = true\n"))), client_app())
    refused = f"{WITHHELD} [arrays-beside]"
    for stage in ("setup", "share_keys", "unmask"):
        assert answered(wire.ask(1, stage=stage)) == refused  # the app's own arrays
        assert answered(wire.ask(1, stage=stage, change=masked)) is None
    assert answered(wire.ask(1, stage="collect_masked_vectors", change=masked_and_plain)) == refused
    assert answered(wire.ask(1, "evaluate", more_arrays, stage="setup")) == refused
    too_much = f"{WITHHELD} [too-much-beside]"
    assert answered(wire.ask(1, "evaluate", masked, stage="setup")) == too_much
    assert answered(wire.ask(1, stage="setup", change=lambda reply: many_metrics(masked(reply)))) == too_much
    assert answered(wire.ask(1, stage="collect_masked_vectors", change=masked)) is None


def test_a_reply_that_nobody_asked_for_is_not_sent_at_all(tmp_path: Path) -> None:
    wire = Wire(Guard(read_site(site_file(tmp_path))), client_app())

    def unasked(reply: Message) -> Message:
        reply.metadata.__dict__["_reply_to_message_id"] = "f" * 64
        return reply

    with pytest.raises(RuntimeError, match="a reply to no message"):
        wire.ask(1, change=unasked)
    with pytest.raises(RuntimeError, match="not looked at"):
        wire.push(7, "session", "0" * 64, b"records")
    assert (wire.sent, wire.pushed) == ([], {})


def test_limits_are_the_sites_and_a_halt_outlives_the_node(tmp_path: Path) -> None:
    path = site_file(tmp_path, 'halt_if = "auc > 0.2"\n')
    for round in (1, 2):  # another guard each time: the node was restarted
        assert answered(Wire(Guard(read_site(path)), client_app()).ask(round)) == WITHHELD
    (update,) = results.load(tmp_path / "audits" / "north").run.withheld
    assert (update.round, update.onwards) == (1, True)


@pytest.mark.parametrize(("more", "leaves"), [("", False), ('unaudited = "send"\n', True)])
def test_without_an_audit_nothing_leaves_unless_the_site_says_so(tmp_path: Path, more: str, leaves: bool) -> None:
    guard = Guard(read_site(site_file(tmp_path, more)))
    guard.audit.model = "nowhere:net"  # what was there when the node started is gone
    assert (answered(Wire(guard, client_app()).ask(1)) is None) is leaves


def test_a_site_file_that_cannot_work_stops_the_node_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="Did you mean 'halt_if'"):
        read_site(site_file(tmp_path, 'halt = "auc > 0.2"\n'))
    path = site_file(tmp_path)
    path.write_text(path.read_text().replace("tests.integrations.worlds:net", "nowhere:net"))
    with pytest.raises(FedauditError, match="nowhere"):
        Guard(read_site(path))
    with pytest.raises(FedauditError, match="is no node of Flower"):
        run(site_file(tmp_path), ["python", "evil.py"])
    import flwr.supernode.start_client_internal as loop

    with pytest.raises(FedauditError, match="where the guard stands"), instead(loop, "_another_name", None):
        pass
