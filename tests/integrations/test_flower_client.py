"""The party's mod in a ClientApp: audits what leaves, remembers in the context, and withholds when told to."""

import copy
import json
import logging
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest
from flwr.app import Array, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp.strategy import FedAvg, Result

from fedaudit.adversary.attacks import choose
from fedaudit.audit import Auditor, Settings
from fedaudit.audit.controls import blind_scores
from fedaudit.errors import FedauditError
from fedaudit.integrations.flower.client import PartyAudit
from fedaudit.integrations.flower.server import RecordedStrategy
from fedaudit.integrations.options import as_task
from fedaudit.integrations.party import HALTED, WITHHELD
from fedaudit.results import document as results
from fedaudit.results.document import SCHEMA_FILE
from fedaudit.session.session import Session
from fedaudit.types import Game, Observation, Round, State, Vantage
from tests.integrations.flower_world import LocalGrid, as_state, client_app, initial, party_of
from tests.integrations.worlds import PARTIES, equal, net, part

QUICK = ("fta-confidence", "loss")


def game_of(context: Context) -> Game:
    return part(PARTIES[int(context.node_config["partition-id"])])[1]


def federation(app: ClientApp, rounds: int = 3) -> tuple[Result, LocalGrid]:
    grid = LocalGrid(app)
    return FedAvg(min_train_nodes=1).start(grid=grid, initial_arrays=initial(), num_rounds=rounds), grid


def same_models(one: Result, other: Result) -> bool:
    assert one.arrays is not None
    assert other.arrays is not None
    return equal(as_state(one.arrays), as_state(other.arrays))


def test_training_is_not_changed_and_results_are_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="flwr")
    plain, _ = federation(client_app(), 2)
    audited, grid = federation(client_app([PartyAudit(net, game_of, rounds=2, out=tmp_path)]), 2)
    assert same_models(plain, audited)
    assert "fedaudit: round 2, what leaves north: auc 0." in caplog.text
    for party in PARTIES:
        document = json.loads((tmp_path / party / "results.json").read_text())
        jsonschema.validate(document, json.loads(SCHEMA_FILE.read_text()))
        assert document["run"]["status"] == "complete"
        assert {e["model"] for e in document["results"]} == {"local", "global"}
        assert {e["attack"] for e in document["results"]} >= {"fta-confidence", "gradient-norm", "blind"}
        assert [p["name"] for p in document["run"]["parties"]] == [party]
        assert (tmp_path / party / "report.html").is_file()
    for context in grid.contexts.values():  # arrays and text, nothing executable
        assert not context.state.metric_records
        assert {a.stype for record in context.state.array_records.values() for a in record.values()} == {
            "numpy.ndarray"
        }


def test_memory_in_the_context_equals_an_audit_in_one_piece(tmp_path: Path) -> None:
    """The obvious twin: the same models, shown to one Auditor that lives through all rounds."""
    seen: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def spy(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        received = as_state(next(iter(message.content.array_records.values()))) if message.content.array_records else {}
        reply = call_next(message, context)
        if message.metadata.message_type == "train" and context.node_id == 101:
            seen.append((received, as_state(next(iter(reply.content.array_records.values())))))
        return reply

    names = (
        "fta-confidence",
        "loss",
        "fed-loss",
        "back-front-diff",
        "delta-ratio",
        "gradient-norm",
        "fta-loss-degree2",
    )
    audit = PartyAudit(net, game_of, rounds=4, out=tmp_path, attacks=names)
    federation(client_app([spy, audit]), 4)
    game = part("north")[1]
    task = as_task(net, game)
    twin = Auditor(task, game, Settings((Vantage.SERVER,), choose(names), 4))
    for index, (received, sent) in enumerate(seen, start=1):
        from fedaudit.types import Trained

        twin.observe(Round(index, received, {"north": Trained(sent, 1, 1.0)}, received))
    table = pq.read_table(tmp_path / "north/scores.parquet")
    assert table["score"].to_pylist() == twin.score_table()["score"]
    assert table["id"].to_pylist() == twin.score_table()["id"]


class WithoutTorch:
    """The network of `worlds` in plain numpy."""

    classes = 10

    def initial(self, seed: int) -> dict[str, Any]:
        shapes = {"0.weight": (48, 64), "0.bias": (48,), "2.weight": (10, 48), "2.bias": (10,)}
        return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}

    def outputs(self, state: State, x: Any) -> Any:
        hidden = np.maximum(x @ state["0.weight"].T + state["0.bias"], 0)
        return hidden @ state["2.weight"].T + state["2.bias"]


def test_a_model_of_another_framework_is_audited_alike(tmp_path: Path) -> None:
    for name, model in (("torch", net), ("numpy", WithoutTorch())):
        federation(client_app([PartyAudit(model, game_of, rounds=3, out=tmp_path / name, attacks=QUICK)]))
    one, two = (scores_of(tmp_path / name / "north") for name in ("torch", "numpy"))
    assert one["attack"] == two["attack"]
    assert two["score"] == pytest.approx(one["score"], abs=1e-4)  # float32


def scores_of(out: Path) -> Any:
    return pq.read_table(out / "scores.parquet").to_pydict()


def test_a_crossed_limit_withholds_and_the_run_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """auc > 0.0 is crossed as soon as there is an estimate, by the party that set it."""
    limited = PartyAudit(net, game_of, rounds=4, out=tmp_path, attacks=QUICK, halt_if="auc > 0.01")

    def only_north(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        return limited(message, context, call_next) if context.node_id == 101 else call_next(message, context)

    grid = LocalGrid(client_app([only_north]))
    strategy = RecordedStrategy(FedAvg(min_train_nodes=1), lambda: Session(None), party=party_of)
    strategy.start(grid=grid, initial_arrays=initial(), num_rounds=4)
    sent = {when.round: set(json.loads(whole)[1]) for when, whole in strategy.session.seen.items()}
    assert sent == {number: {"south"} for number in (1, 2, 3, 4)}
    assert "withheld" in caplog.text
    assert HALTED in grid.contexts[101].state
    assert HALTED not in grid.contexts[202].state
    document = json.loads((tmp_path / "north/results.json").read_text())
    assert any("limit was crossed in round 1" in notice for notice in document["notices"])


def test_a_limit_on_attacks_with_parts_of_their_own_halts_too(tmp_path: Path) -> None:
    """What fusion keeps between rounds is nested: it goes into the context whole, and the limit holds."""
    audit = PartyAudit(net, game_of, rounds=3, out=tmp_path, attacks=["fusion"], halt_if="auc > 0.01")
    assert [reply.has_error() for reply in send(client_app([audit]), [1, 2, 3])] == [False, True, True]
    document = json.loads((tmp_path / "north/results.json").read_text())
    assert {entry["attack"] for entry in document["results"]} == {"fusion", "blind"}


def test_an_update_that_nobody_saw_is_not_a_zero(tmp_path: Path) -> None:
    """A party does not see what its round came to: attacks on updates look at what it sent, and not at the global
    models, instead of giving an AUC of 0.5 from an update of zero."""
    audit = PartyAudit(net, game_of, rounds=3, out=tmp_path, attacks=["gradient-cosine", "loss"])
    federation(client_app([audit]))
    document = json.loads((tmp_path / "north/results.json").read_text())
    found = {(e["attack"], e["model"]): e["estimates"]["auc"]["value"] for e in document["results"] if not e["party"]}
    assert found["gradient-cosine", "local"] is not None
    assert ("gradient-cosine", "global") not in found
    assert found["loss", "global"] is not None
    assert document["failed"] == []


def test_a_limit_that_is_not_crossed_changes_nothing() -> None:
    plain, _ = federation(client_app())
    audited, grid = federation(client_app([PartyAudit(net, game_of, rounds=3, attacks=QUICK, halt_if="auc > 0.9")]))
    assert same_models(plain, audited)
    assert all(HALTED not in context.state for context in grid.contexts.values())


def test_outside_of_a_defence_what_really_leaves_is_audited(tmp_path: Path) -> None:
    """Local noise: what leaves is nearer to chance, what would have left is what a plain audit finds."""
    options: dict[str, Any] = {"rounds": 2, "attacks": QUICK}
    audit = PartyAudit(net, game_of, out=tmp_path / "noisy", **options)
    noise = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=100.0, delta=1e-5)
    federation(client_app([audit, noise, audit.inside]), 2)
    outer = json.loads((tmp_path / "noisy/north/results.json").read_text())
    inner = json.loads((tmp_path / "noisy/north/without-defences/results.json").read_text())

    def auc_of_local(document: dict[str, Any]) -> float:
        return float(
            next(e for e in document["results"] if (e["attack"], e["model"]) == ("loss", "local"))["estimates"]["auc"][
                "value"
            ]
        )

    assert auc_of_local(outer) != auc_of_local(inner)
    plain = PartyAudit(net, game_of, out=tmp_path / "one", **options)
    federation(client_app([plain, noise]), 2)
    assert not (tmp_path / "one/north/without-defences").exists()


def test_noise_that_leaves_no_model_is_told_and_what_it_hides_is_audited(tmp_path: Path) -> None:
    """Nobody can tell weights under so much noise from weights that the server knows how to read."""
    audit = PartyAudit(net, game_of, out=tmp_path, rounds=2, attacks=QUICK)
    noise = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=0.5, delta=1e-5)
    federation(client_app([audit, noise, audit.inside]), 2)
    outer, inner = (results.load(tmp_path / "north" / folder) for folder in ("", "without-defences"))
    assert {one.code for one in outer.told if one.data.get("error") == "no-model"} == {"not-audited"}
    assert not [one for one in outer.headlines if one.tone == "none"]
    assert (inner.run.rounds, inner.degraded) == (2, ())


def test_a_party_that_misses_the_last_round_has_results_all_the_same(tmp_path: Path) -> None:
    class NorthAlone(FedAvg):
        def configure_train(self, server_round: int, *others: Any) -> list[Message]:
            asked = list(super().configure_train(server_round, *others))
            return [m for m in asked if server_round < 4 or m.metadata.dst_node_id == 101]

    audit = PartyAudit(net, game_of, rounds=4, out=tmp_path, attacks=QUICK)
    NorthAlone(min_train_nodes=1).start(grid=LocalGrid(client_app([audit])), initial_arrays=initial(), num_rounds=4)
    north, south = (json.loads((tmp_path / party / "results.json").read_text()) for party in PARTIES)
    assert north["run"]["status"] == "complete"
    assert south["run"]["status"] == "recorded up to round 3 of 4"
    assert south["degraded"] == ["Seen up to round 3 of 4 planned rounds."]  # so that no gate passes on it
    assert all(entry["round"] == 3 for entry in south["results"])
    assert "recorded up to round 3 of 4" in (tmp_path / "south/report.html").read_text()


def test_results_on_the_way_are_few_and_blind_is_fitted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    fitted: list[int] = []

    def finish(self: Session, out: Path | None, incomplete: str | None = None) -> None:
        written.append(self.last)
        Session._document(self, incomplete, out)

    def blind(game: Game, seed: int) -> Any:
        fitted.append(1)
        return blind_scores(game, seed)

    monkeypatch.setattr(Session, "finish", finish)
    monkeypatch.setattr("fedaudit.audit.controls.blind_scores", blind)
    reply = next(iter(send(client_app(), [1])))
    app = client_app([PartyAudit(net, game_of, rounds=32, out=tmp_path, attacks=("loss",)), lambda *_: reply])
    seldom = [1, 2, 3, 4, 5, 6, 7, 9, 17, 18, 19, 30]
    send(app, seldom)
    assert written == [2, 6, 17, 30]  # every fourth round at most, in which it takes part
    assert fitted == [1]


def send(app: ClientApp, numbers: list[int], node: int = 101) -> list[Message]:
    """The answers of one party to these rounds, all from the same model."""
    grid, replies = LocalGrid(app), []
    for number in numbers:
        asked = FedAvg().configure_train(number, initial(), ConfigRecord(), grid)
        (message,) = [m for m in asked if m.metadata.dst_node_id == node]
        replies.append(grid.deliver(message))
    return replies


def spoilt(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A training that diverged."""
    reply = call_next(message, context)
    for record in reply.content.array_records.values():
        for name, array in list(record.items()):
            record[name] = Array(np.full_like(array.numpy(), np.nan))
    return reply


def test_a_training_that_diverged_does_not_leave_a_party_with_a_limit(tmp_path: Path) -> None:
    audit = PartyAudit(net, game_of, out=tmp_path, rounds=3, attacks=QUICK, halt_if="auc > 0.9")
    replies = send(client_app([audit, spoilt]), [1, 2, 3])
    assert {reply.error.reason for reply in replies} == {f"{WITHHELD} [no-model]"}  # the rest is the party's own affair


def test_strict_lets_nothing_out_on_which_the_limit_is_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update without a figure, as if it were a model all the same."""
    monkeypatch.setattr("fedaudit.integrations.party.check_model", lambda *_, **__: None)
    options: dict[str, Any] = {"rounds": 3, "attacks": QUICK, "halt_if": "auc > 0.5"}
    strict = PartyAudit(net, game_of, out=tmp_path / "strict", strict=True, **options)
    _, *later = send(client_app([strict, spoilt]), [1, 2, 3])
    assert all(reply.has_error() for reply in later)  # after one round there is no slope to miss
    assert {reply.error.reason for reply in later} == {f"{WITHHELD} [unaudited]"}  # the rest is the party's own affair
    document = json.loads((tmp_path / "strict/north/results.json").read_text())
    assert document["run"]["status"] == "recorded with gaps"
    assert any("Round 2: the limit 'auc > 0.5' is not checked" in gap for gap in document["degraded"])
    lenient = PartyAudit(net, game_of, out=tmp_path / "lenient", **options)
    assert all(reply.has_content() for reply in send(client_app([lenient, spoilt]), [1, 2, 3]))
    document = json.loads((tmp_path / "lenient/north/results.json").read_text())
    assert any("Round 3: the limit 'auc > 0.5' is not checked" in gap for gap in document["degraded"])


def test_strict_withholds_when_every_attack_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    audit = PartyAudit(net, game_of, rounds=3, attacks=QUICK, strict=True)
    monkeypatch.setattr(Settings, "primary", lambda *_: None)
    (reply,) = send(client_app([audit]), [1])
    assert reply.error.reason == f"{WITHHELD} [unaudited]"
    assert "every attack failed" in caplog.text


def test_strict_withholds_another_answer_to_a_round_that_was_answered(caplog: pytest.LogCaptureFixture) -> None:
    """Only the first is audited: a server that repeats a round's number must not get more than that."""
    seeds = iter((0, 0, 0, 7))

    def other_seed(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        return client_app(seeds_from=next(seeds))(message, context)

    audit = PartyAudit(net, game_of, rounds=4, attacks=QUICK, halt_if="auc > 0.9", strict=True)
    replies = send(client_app([audit, other_seed]), [1, 2, 2, 2])
    assert [reply.has_content() for reply in replies] == [True, True, True, False]
    assert replies[-1].error.reason == f"{WITHHELD} [unaudited]"
    assert "round 2 arrived again with other content" in caplog.text


def test_F5_the_last_round_again_leaves_its_results_as_they_were(tmp_path: Path) -> None:
    found, attacks = [], (*QUICK, "merlin")
    for numbers in ([1, 2, 3], [1, 2, 3, 3]):
        send(client_app([PartyAudit(net, game_of, rounds=3, out=tmp_path, attacks=attacks)]), numbers)
        document = json.loads((tmp_path / "north/results.json").read_text())
        results = [(e["attack"], e["model"], e["estimates"]) for e in document["results"]]
        found.append((results, document["run"]["accuracy"], document["failed"]))
    assert found[0] == found[1]
    assert found[0][1]


@pytest.mark.parametrize(
    "text",
    ["tpr > 0.1", "tpr@0.01 < 0.1", "auc > 1.5", "tpr@2 > 0.1", "auc > nan", "eval()", "auc[attack=loss] > 0.6"],
)
def test_strict_refuses_a_limit_that_is_none_at_once(text: str) -> None:
    with pytest.raises(FedauditError, match=r"tpr@0\.01 > 0\.05"):
        PartyAudit(net, game_of, halt_if=text, strict=True)


@pytest.mark.parametrize("wrong", [{"confidence": 1.5}, {"fpr": [float("nan")]}, {"fpr": 2}, {"rounds": 1}])
def test_strict_refuses_an_argument_that_means_nothing_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(FedauditError, match=f"{next(iter(wrong))}.*Correct this argument"):
        PartyAudit(net, game_of, strict=True, **wrong)


def test_rounds_come_from_the_run(tmp_path: Path) -> None:
    grid = LocalGrid(client_app([PartyAudit(net, game_of, out=tmp_path, attacks=QUICK)]))
    for context in grid.contexts.values():
        context.run_config = {"num-server-rounds": 2}
    FedAvg().start(grid=grid, initial_arrays=initial(), num_rounds=2)
    assert (tmp_path / "south/results.json").is_file()


def test_local_epochs_come_from_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty seconds for the five epochs that the app's configuration names, or for those that the party does."""
    monkeypatch.setattr(
        "fedaudit.integrations.flower.client.time", SimpleNamespace(perf_counter=count(step=20.0).__next__)
    )
    seen: list[float] = []
    absorb = Auditor.absorb

    def absorbed(auditor: Auditor, found: Observation | None, round: Round) -> Observation | None:
        seen.append(round.sent["north"].epoch_seconds)
        return absorb(auditor, found, round)

    monkeypatch.setattr(Auditor, "absorb", absorbed)
    given: list[dict[str, Any]] = [{}, {"local_epochs": 2}]
    for own in given:
        app = client_app([PartyAudit(net, game_of, rounds=2, attacks=QUICK, **own)])
        grid = LocalGrid(app)
        context = grid.contexts[101]
        context.run_config = {"local-epochs": 5}
        grid.contexts = {101: context}
        FedAvg(min_train_nodes=1, min_available_nodes=1, min_evaluate_nodes=1).start(
            grid=grid, initial_arrays=initial(), num_rounds=1
        )
    assert seen == [4.0, 10.0]


def test_F4_a_hook_that_raises_never_stops_the_party(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain, _ = federation(client_app())
    calls: list[int] = []

    def fragile(context: Context) -> Game:
        calls.append(1)
        if len(calls) > 2:
            raise RuntimeError("the game's file is gone")
        return game_of(context)

    audited, _ = federation(client_app([PartyAudit(net, fragile, rounds=3, attacks=QUICK)]))
    assert same_models(plain, audited)
    assert "round 2 is NOT AUDITED: RuntimeError" in caplog.text
    calls.clear()
    strict, grid = federation(client_app([PartyAudit(net, fragile, rounds=3, attacks=QUICK, strict=True)]), 1)
    assert strict.arrays is not None
    (message, *_) = FedAvg().configure_train(2, initial(), ConfigRecord(), grid)
    assert grid.app(message, grid.contexts[101]).error.reason == f"{WITHHELD} [fault]"


def test_F5_a_repeated_round_counts_once(tmp_path: Path) -> None:
    app = client_app([PartyAudit(net, game_of, rounds=3, out=tmp_path, attacks=QUICK)])
    grid = LocalGrid(app)
    arrays = initial()
    for number in (1, 2, 2, 3):
        (message,) = [
            m for m in FedAvg().configure_train(number, arrays, ConfigRecord(), grid) if m.metadata.dst_node_id == 101
        ]
        reply = app(copy.deepcopy(message), grid.contexts[101])
        assert reply.has_content()
    document = json.loads((tmp_path / "north/results.json").read_text())
    assert "Round 2 arrived twice, with the same content: it is counted once." in document["notices"]
    assert document["run"]["rounds"] == 3


def test_F2_a_full_disk_costs_the_files_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    plain, _ = federation(client_app(), 2)
    audited, _ = federation(client_app([PartyAudit(net, game_of, rounds=2, out=tmp_path / "file", attacks=QUICK)]), 2)
    assert same_models(plain, audited)


def test_B6_arrays_without_names_are_taken_in_order() -> None:
    from fedaudit.integrations.plain import matched

    like: dict[str, np.ndarray] = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(3, np.float32), "n": np.array(1)}
    given: dict[str, np.ndarray] = {"0": np.ones((2, 3), np.float16), "1": np.ones(3), "2": np.array(7)}
    found = matched(given, like, "here")
    assert list(found) == ["w", "b", "n"]
    assert found["w"].dtype == np.float32  # B8: half precision is widened
    assert found["n"] == 7
    with pytest.raises(FedauditError, match="shape"):
        matched({**like, "b": np.zeros(4, np.float32)}, like, "here")
    with pytest.raises(FedauditError, match="int64"):
        matched({**like, "b": np.zeros(3, np.int64)}, like, "here")
