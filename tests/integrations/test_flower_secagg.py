"""Flower's SecAgg+ for real: the server reads only the sum, and the audit says no more than that allows."""

import json
import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

from fedaudit.config.schema import parse
from fedaudit.data.set_aside import joined
from fedaudit.errors import FedauditError
from fedaudit.integrations.flower import record_sum
from fedaudit.integrations.flower import secagg as flower_secagg
from fedaudit.integrations.flower.client import PartyAudit
from fedaudit.integrations.options import checked, make_auditor, open_session
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.session.session import Session
from fedaudit.types import Game, Plan
from fedaudit.words import all_words
from tests.integrations.flower_world import NODES, LocalGrid, as_state, client_app, initial
from tests.integrations.worlds import PARTIES, games, net, part


def game_of(context: Context) -> Game:
    return part(PARTIES[int(context.node_config["partition-id"])])[1]


def test_the_sum_is_recorded_and_no_update(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="flwr")
    audit = PartyAudit(net, game_of, rounds=3, out=tmp_path / "parties", attacks=["fta-confidence", "loss"])
    app = client_app([audit, secaggplus_mod, audit.inside, flower_secagg.translated])
    asked = checked(3, vantages=["client", "secagg-server"], attacks=["loss", "fta-loss"])
    session = open_session(tmp_path / "server", make_auditor(net, joined(*games()), asked), strict=True)
    context = Context(1, 0, {}, RecordDict(), {})
    plans = [Plan(PARTIES)] * 3
    start = as_state(initial())
    flower_secagg.run(LocalGrid(app), context, plans, NODES, start, session, 600)
    assert session.trace is not None
    stored = list(session.trace.store.rounds())
    assert [set(round.sent) for round in stored] == [set(PARTIES)] * 3
    assert all(trained.state == {} for round in stored for trained in round.sent.values())
    found = session.finish(tmp_path / "server")
    assert found is not None
    assert {entry.vantage for entry in found.results} == {"client", "secagg-server"}
    # The parties: what leaves is masked, what would have left without SecAgg+ is not.
    assert "north is masked, so only the global model is seen" in caplog.text
    outer = json.loads((tmp_path / "parties/north/results.json").read_text())
    inner = json.loads((tmp_path / "parties/north/without-defences/results.json").read_text())
    assert {entry["vantage"] for entry in outer["results"]} == {"secagg-server"}
    assert {entry["model"] for entry in inner["results"]} == {"local", "global"}


def test_sums_of_an_app_of_ones_own_are_recorded_and_audited(tmp_path: Path) -> None:
    """As docs/flower.md shows it. The second time the server breaks off: what there was is reported."""
    for out, breaks in (("whole", False), ("broken", True)):
        given: dict[str, Any] = {"rounds": 2, "model": net, "game": games(), "attacks": ["loss", "fta-loss"]}
        start = ndarrays_to_parameters(list(as_state(initial()).values()))
        own = FedAvg(
            fraction_evaluate=0.0, initial_parameters=start, on_fit_config_fn=lambda number: {"server-round": number}
        )
        app = client_app([secaggplus_mod, flower_secagg.translated])
        expected = pytest.raises(KeyboardInterrupt) if breaks else nullcontext()
        with (
            expected,
            record_sum(own, out=tmp_path / out, party=lambda proxy: NODES[proxy.node_id], **given) as strategy,
        ):
            legacy = LegacyContext(
                Context(1, 0, {}, RecordDict(), {}), config=ServerConfig(num_rounds=2), strategy=strategy
            )
            protocol = SecAggPlusWorkflow(1.0, 0.5, max_weight=600.0)
            DefaultWorkflow(fit_workflow=protocol)(LocalGrid(app), legacy)
            if breaks:
                raise KeyboardInterrupt
        document = json.loads((tmp_path / out / "results.json").read_text())
        assert document["run"]["status"] == ("recorded with gaps" if breaks else "complete")
        assert {entry["vantage"] for entry in document["results"]} == {"client", "secagg-server"}
        assert (tmp_path / out / "report.html").is_file()


def test_the_sum_is_the_average_up_to_quantisation(tmp_path: Path) -> None:
    """The obvious twin: the same parties, averaged in the open. One round: training blows small differences up."""
    from flwr.serverapp.strategy import FedAvg as InTheOpen

    session = open_session(tmp_path, None, strict=True)
    app = client_app([secaggplus_mod, flower_secagg.translated])
    context = Context(1, 0, {}, RecordDict(), {})
    flower_secagg.run(LocalGrid(app), context, [Plan(PARTIES)], NODES, as_state(initial()), session, 600)
    plain = InTheOpen(fraction_evaluate=0.0).start(grid=LocalGrid(client_app()), initial_arrays=initial(), num_rounds=1)
    assert plain.arrays is not None
    assert session.trace is not None
    last = list(session.trace.store.rounds())[-1]
    for name, value in as_state(plain.arrays).items():
        assert last.aggregate[name] == pytest.approx(value, abs=5e-5)
    session.finish(None)


def test_F6_a_halted_protocol_is_an_empty_round() -> None:
    """One of two parties fails while masking: SecAgg+ gives up the round, and the next one goes on."""
    calls: list[int] = []

    def fails_once(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("out of memory")
        return call_next(message, context)

    session = Session(None)
    app = client_app([secaggplus_mod, fails_once, flower_secagg.translated])
    context = Context(1, 0, {}, RecordDict(), {})
    flower_secagg.run(LocalGrid(app), context, [Plan(PARTIES)] * 2, NODES, as_state(initial()), session, 600)
    assert all_words(session.gaps) == ["Round 1 is empty: secure aggregation was halted, too few parties answered."]
    assert {when.round for when in session.seen} == {2}


def test_a_single_party_cannot_hide() -> None:
    context = Context(1, 0, {}, RecordDict(), {})
    with pytest.raises(FedauditError, match="fewer than two parties"):
        flower_secagg.run(LocalGrid(client_app()), context, [Plan(("north",))], NODES, {}, Session(None), 1)


# ------------------------------------------------------------------ the same in a configuration

SMALL = {"data": {"name": "digits"}, "model": {"name": "mlp", "hidden": [16]}}


def test_under_secagg_the_server_is_refused_before_training() -> None:
    federation = {"parties": 2, "rounds": 2, "secagg": True}
    with pytest.raises(FedauditError, match="sees only the sum of the updates"):
        parse({**SMALL, "federation": federation, "audit": {"vantages": ["server"]}})
    config = parse({**SMALL, "federation": federation})
    assert [v.value for v in config.audit.vantages] == ["client", "secagg-server"]
    assert parse(config.as_dict()).hash() == config.hash()


def test_under_secagg_training_is_the_same_and_updates_are_not_in_the_trace() -> None:
    federation = {"parties": 2, "rounds": 2, "secagg": True}
    hidden = list(rounds(prepare(parse({**SMALL, "federation": federation}))))
    plain = list(rounds(prepare(parse({**SMALL, "federation": federation | {"secagg": False}}))))
    for one, other in zip(hidden, plain, strict=True):
        assert all((one.aggregate[name] == value).all() for name, value in other.aggregate.items())
        assert list(one.sent) == list(other.sent)
        assert all(trained.state == {} for trained in one.sent.values())
