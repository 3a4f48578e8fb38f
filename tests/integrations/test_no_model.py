"""A limit cannot be walked around by sending weights in another form: what is no model of the task is not audited as
if it were one, and does not leave a party with a limit. Where changes are meant, they are audited as what they make."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.serverapp.strategy import FedAvg
from nvflare.apis.dxo import DataKind, from_shareable

import fedaudit
from fedaudit.config.schema import parse
from fedaudit.data.game_file import save_game
from fedaudit.integrations.checkpoints import import_checkpoints
from fedaudit.integrations.flower.client import PartyAudit
from fedaudit.integrations.flower.guard import Guard, read_site
from fedaudit.integrations.flower.server import record_strategy, trace_strategy
from fedaudit.integrations.outgoing import NoModelError, check_model
from fedaudit.integrations.party import WITHHELD
from fedaudit.results import document as results
from fedaudit.trace.store import Store
from fedaudit.types import Game, State
from tests.integrations.flower_world import LocalGrid, arrays, as_state, client_app, initial, party_of
from tests.integrations.test_flower_guard import Wire, site_file
from tests.integrations.test_nvflare import Site, as_dxo, figures, pair, rounds_of
from tests.integrations.worlds import PARTIES, games, net, part, train

QUICK = ("loss", "gradient-cosine")
LIMIT = "auc > 0.95"  # which an honest training of this world never crosses
NO_MODEL = f"{WITHHELD} [no-model]"
Transform = Callable[[State, State], dict[str, Any]]


def each(make: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Transform:
    return lambda received, sent: {
        name: np.asarray(make(received[name], value), value.dtype) for name, value in sent.items()
    }


def secret() -> np.random.Generator:
    return np.random.default_rng(7)


def rotated(received: np.ndarray, sent: np.ndarray) -> np.ndarray:
    """By a matrix that the server knows."""
    turn = np.linalg.qr(secret().normal(size=(len(sent), len(sent))))[0]
    return np.asarray(turn @ sent)


def one_layer(received: State, sent: State) -> dict[str, Any]:
    return {**sent, "2.weight": -sent["2.weight"]}


def same_function(received: State, sent: State) -> dict[str, Any]:
    """Hidden units in another order: the same answers, and an update of which nothing is left."""
    order = secret().permutation(48)
    first = {name: sent[name][order] for name in ("0.weight", "0.bias")}
    return {**sent, **first, "2.weight": sent["2.weight"][:, order]}


FORMS: dict[str, Transform] = {
    "changes": each(lambda received, sent: sent - received),
    "negated": each(lambda received, sent: -sent),
    "a thousandth": each(lambda received, sent: sent * 1e-3),
    "tenfold": each(lambda received, sent: sent * 10),
    "rows permuted": each(lambda received, sent: sent[secret().permutation(len(sent))]),
    "all permuted": each(lambda received, sent: secret().permutation(sent.ravel()).reshape(sent.shape)),
    "units permuted": same_function,
    "signs encoded": each(lambda received, sent: sent * secret().choice([-1, 1], sent.shape)),
    "rotated": each(rotated),
    "under a pad": each(lambda received, sent: sent + 9 * secret().normal(size=sent.shape)),
    "one layer negated": one_layer,
    "NaN": each(lambda received, sent: np.where(np.arange(sent.size).reshape(sent.shape) == 0, np.nan, sent)),
}
every_form = pytest.mark.parametrize("form", FORMS)


def game_of(context: Context) -> Game:
    return part(PARTIES[int(context.node_config["partition-id"])])[1]


def sending(form: str) -> Mod:
    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        if message.metadata.message_type == "train":
            came, own = (as_state(one.content.array_records["arrays"]) for one in (message, reply))
            reply.content["arrays"] = arrays(FORMS[form](came, own))
        return reply

    return mod


class Adding(FedAvg):
    """A server that is sent changes: it adds their mean to the model that it sent out."""

    def configure_train(self, server_round: int, given: Any, *others: Any) -> Any:
        self.start_from = as_state(given)
        return super().configure_train(server_round, given, *others)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        mean, metrics = super().aggregate_train(server_round, replies)
        if mean is None:
            return None, metrics
        return arrays({name: self.start_from[name] + value for name, value in as_state(mean).items()}), metrics


def train_with(mods: list[Mod], strategy: Any = None, rounds: int = 2) -> LocalGrid:
    grid = LocalGrid(client_app(mods))
    (strategy or Adding(fraction_evaluate=0.0)).start(grid=grid, initial_arrays=initial(), num_rounds=rounds)
    return grid


def asked(app: Any, rounds: int = 2) -> list[Message]:
    """What one party answers, to rounds that go on from its own honest training."""
    grid, replies, model = LocalGrid(app), [], initial()
    honest = LocalGrid(client_app())
    for number in range(1, rounds + 1):
        sent_out = FedAvg().configure_train(number, copy.deepcopy(model), ConfigRecord(), grid)
        (message,) = [one for one in sent_out if one.metadata.dst_node_id == 101]
        replies.append(grid.deliver(message))
        model = honest.deliver(message).content.array_records["arrays"]
    return replies


# ------------------------------------------------------------------ a party in Flower


@every_form
def test_the_mod_of_a_party_with_a_limit_withholds_it(tmp_path: Path, form: str) -> None:
    audit = PartyAudit(net, game_of, rounds=2, out=tmp_path, attacks=QUICK, halt_if=LIMIT)
    for reply in asked(client_app([audit, sending(form)])):
        assert reply.has_error()
        assert reply.error.reason == NO_MODEL
    run = results.load(tmp_path / "north").run
    assert [(one.round, one.because) for one in run.withheld] == [(1, "not audited"), (2, "not audited")]


def test_an_honest_update_leaves_a_party_with_a_limit(tmp_path: Path) -> None:
    audit = PartyAudit(net, game_of, rounds=3, out=tmp_path, attacks=QUICK, halt_if=LIMIT)
    assert all(reply.has_content() for reply in asked(client_app([audit]), 3))
    document = results.load(tmp_path / "north")
    assert (document.run.status, document.run.withheld, document.degraded) == ("complete", (), ())
    assert "update-no-better" not in {one.code for one in document.told}


def test_without_a_limit_it_leaves_and_the_report_does_not_call_it_harmless(tmp_path: Path) -> None:
    audit = PartyAudit(net, game_of, rounds=2, out=tmp_path, attacks=QUICK)
    assert all(reply.has_content() for reply in asked(client_app([audit, sending("changes")])))
    document = results.load(tmp_path / "north")
    assert not [one for one in document.results if one.model == "local" and one.attack in QUICK]
    assert not [one for one in document.headlines if one.tone == "none"]
    assert {one.data["error"] for one in document.told if one.code == "not-audited"} == {"no-model"}


def test_changes_are_audited_where_they_are_meant(tmp_path: Path) -> None:
    """The same training, whether its weights are sent or their changes: the same figures."""
    options: dict[str, Any] = {"rounds": 2, "attacks": QUICK, "halt_if": LIMIT}
    train_with([PartyAudit(net, game_of, out=tmp_path / "weights", **options)], FedAvg(fraction_evaluate=0.0))
    train_with([PartyAudit(net, game_of, out=tmp_path / "changes", sends="changes", **options), sending("changes")])
    for party in PARTIES:
        one, other = (figures(tmp_path / kind / party) for kind in ("weights", "changes"))
        assert one.keys() == other.keys()
        for key, values in one.items():
            assert other[key]["auc"] == pytest.approx(values["auc"], abs=2e-3)  # of float32


@pytest.mark.parametrize("spoil", ["names", "shapes", "records"])
def test_what_cannot_be_read_as_the_model_does_not_leave_either(tmp_path: Path, spoil: str) -> None:
    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        own = as_state(reply.content.array_records["arrays"])
        if spoil == "names":
            own = {f"x.{name}": value for name, value in own.items()}
        elif spoil == "shapes":
            own = dict(zip(own, reversed(own.values()), strict=True))
        else:
            reply.content["more"] = arrays(own)
        reply.content["arrays"] = arrays(own)
        return reply

    audit = PartyAudit(net, game_of, rounds=2, out=tmp_path, attacks=QUICK, halt_if=LIMIT)
    assert all(reply.has_error() for reply in asked(client_app([audit, mod])))


@pytest.mark.parametrize("sends", ["weight", None, 1])
def test_another_word_for_what_is_sent_is_refused(sends: Any) -> None:
    with pytest.raises(fedaudit.errors.FedauditError, match="weights, changes"):
        PartyAudit(net, game_of, sends=sends, strict=True)


HIDDEN: dict[str, Transform] = {
    "changes negated": each(lambda received, sent: 2 * received - sent),
    "changes under a pad": each(lambda received, sent: sent + 0.3 * secret().normal(size=sent.shape)),
}


@pytest.mark.parametrize("form", HIDDEN)
def test_a_change_that_is_hidden_in_weights_looks_like_noise_and_is_told(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can tell it from a defence, so it leaves; but nobody is told that it is harmless."""
    monkeypatch.setitem(FORMS, form, HIDDEN[form])
    audit = PartyAudit(net, game_of, rounds=2, out=tmp_path, attacks=QUICK, halt_if=LIMIT)
    for reply in asked(client_app([audit, sending(form)])):
        assert reply.has_content() or reply.error.reason == NO_MODEL
    told = [one for one in results.load(tmp_path / "north").told if one.code in ("update-no-better", "not-audited")]
    assert told


# ------------------------------------------------------------------ a site's guard, and NVIDIA FLARE's filter


@every_form
def test_the_guard_of_a_site_withholds_it(tmp_path: Path, form: str) -> None:
    wire = Wire(Guard(read_site(site_file(tmp_path, f'halt_if = "{LIMIT}"\n'))), client_app([sending(form)]))
    for round in (1, 2):
        assert wire.ask(round).error.reason == NO_MODEL
    assert wire.arrays_sent() < 2000  # errors, and no model


def test_the_guard_lets_changes_out_where_its_site_says_so(tmp_path: Path) -> None:
    wire = Wire(Guard(read_site(site_file(tmp_path, 'sends = "changes"\n'))), client_app([sending("changes")]))
    assert all(wire.ask(round).has_content() for round in (1, 2, 3))
    assert results.load(tmp_path / "audits" / "north").run.withheld == ()


@every_form
def test_the_filter_of_nvidia_flare_withholds_it(tmp_path: Path, form: str) -> None:
    site, filters = Site(tmp_path), pair(out=str(tmp_path / "audit"), halt_if=LIMIT)
    for index, (before, after) in enumerate(rounds_of("north"), start=1):
        sent = as_dxo(DataKind.WEIGHTS, before, FORMS[form](before, after))
        assert from_shareable(site.pass_through(filters, index, before, sent)).data == {}
    assert len(results.load(tmp_path / "audit" / "north").run.withheld) == 3


@pytest.mark.parametrize("form", ["negated", "tenfold", "rows permuted", "rotated"])
def test_the_filter_looks_at_what_a_declared_change_makes(tmp_path: Path, form: str) -> None:
    """The kind of a DXO says that it holds changes: they are added to what arrived, and that must be a model."""
    site, filters = Site(tmp_path), pair(out=str(tmp_path / "audit"), halt_if=LIMIT)
    (before, after), *_ = rounds_of("north")[1:]
    sent = as_dxo(DataKind.WEIGHT_DIFF, before, FORMS[form](before, after))
    assert from_shareable(site.pass_through(filters, 1, before, sent)).data == {}


# ------------------------------------------------------------------ a server, and a loop of one's own


@every_form
def test_the_recorder_of_a_server_does_not_call_it_harmless(tmp_path: Path, form: str) -> None:
    strategy = record_strategy(
        Adding(fraction_evaluate=0.0), out=tmp_path, rounds=2, model=net, game=games(), party=party_of, attacks=QUICK
    )

    def of_south(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        return (sending(form) if context.node_id == 202 else lambda m, c, n: n(m, c))(message, context, call_next)

    honest = LocalGrid(client_app())
    grid = LocalGrid(client_app([of_south]))
    model = initial()
    strategy.recorder.begin(dict(model.items()))
    for number in (1, 2):
        messages = list(strategy.configure_train(number, copy.deepcopy(model), ConfigRecord(), grid))
        strategy.aggregate_train(number, grid.send_and_receive(copy.deepcopy(messages)))
        model = FedAvg().aggregate_train(number, honest.send_and_receive(messages))[0] or model
    strategy.recorder.settle()
    document = strategy.session.finish(tmp_path)
    assert document is not None
    (told,) = [one for one in document.told if one.code == "no-model"]
    assert (told.data["party"], told.data["rounds"]) == ("south", [1, 2])
    found = {one.party for one in document.results if one.model == "local" and one.estimates["auc"].value is not None}
    assert "south" not in found - {"blind"}
    assert document.degraded


def test_a_server_that_is_sent_changes_finds_what_one_finds_that_is_sent_weights(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rounds": 2, "model": net, "game": games(), "party": party_of, "attacks": QUICK}
    train_with([], record_strategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "weights", **options))
    own = Adding(fraction_evaluate=0.0)
    train_with([sending("changes")], record_strategy(own, out=tmp_path / "changes", sends="changes", **options))
    one, other = (figures(tmp_path / kind) for kind in ("weights", "changes"))
    assert one.keys() == other.keys()
    for key, values in one.items():
        assert other[key]["auc"] == pytest.approx(values["auc"], abs=2e-3)


@contextmanager
def nowhere(what: str, steps: int) -> Iterator[Callable[[], None]]:
    yield lambda: None


def test_a_trace_without_records_keeps_it_and_says_so(tmp_path: Path) -> None:
    strategy = trace_strategy(Adding(fraction_evaluate=0.0), out=tmp_path, party=party_of)
    train_with([sending("changes")], strategy)
    assert [one.code for one in strategy.session.gaps] == ["no-model"] * 2  # one for each party
    assert [sorted(one.sent) for one in Store.read(tmp_path).rounds()] == [[*PARTIES]] * 2


def test_a_trace_that_is_attacked_later_says_so_and_finds_nothing_harmless(tmp_path: Path) -> None:
    strategy = trace_strategy(Adding(fraction_evaluate=0.0), out=tmp_path / "trace", party=party_of)
    train_with([sending("changes")], strategy, rounds=3)
    save_game(games(), tmp_path / "game.npz")
    asked = parse({"model": {"name": "tests.integrations.worlds:net"}, "audit": {"attacks": ["loss"]}})
    document = import_checkpoints(
        tmp_path / "trace",
        tmp_path / "out",
        nowhere,
        game=tmp_path / "game.npz",
        config=asked,
        torch=False,
        deltas=False,
    )
    assert document is not None
    assert [one.code for one in document.told if one.code == "no-model"] == ["no-model"] * 6
    assert not [one for one in document.headlines if one.vantage == "server"]


def loop(out: Path, form: str | None, **options: Any) -> Any:
    torch.manual_seed(0)
    model = net()
    with fedaudit.record(model, games(), out=out, rounds=2, attacks=QUICK, **options) as audit:
        for round in (1, 2):
            before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
            trained: dict[str, Mapping[str, Any]] = {}
            for party in PARTIES:
                own = copy.deepcopy(model)
                train(own, part(party)[0], seed=round)
                trained[party] = {name: value.numpy() for name, value in own.state_dict().items()}
            updates = {party: FORMS[form](before, state) if form else state for party, state in trained.items()}
            mean = {name: torch.from_numpy((trained["north"][name] + trained["south"][name]) / 2) for name in before}
            model.load_state_dict(mean)
            audit.observe(round, model, updates=updates)
    return audit.document


def test_a_loop_says_whether_it_hands_over_changes(tmp_path: Path) -> None:
    assert {one.code for one in loop(tmp_path / "wrong", "changes").told} >= {"no-model"}
    loop(tmp_path / "weights", None)
    loop(tmp_path / "changes", "changes", sends="changes")
    assert figures(tmp_path / "weights").keys() == figures(tmp_path / "changes").keys()


# ------------------------------------------------------------------ what an honest training may look like


def test_a_model_from_zeros_has_no_weights_to_keep() -> None:
    """What arrived is all zeros: a change is the weights, then, and the fit alone decides."""
    rng = np.random.default_rng(0)
    received = {"w": np.zeros((3, 4)), "b": np.zeros(3)}
    check_model(received, {"w": rng.normal(size=(3, 4)), "b": np.zeros(3)})


def test_layers_that_are_not_trained_decide_nothing() -> None:
    received = {"w": np.ones((8, 8)), "bn.running_mean": np.zeros(8), "bn.running_var": np.ones(8)}
    sent = {"w": np.ones((8, 8)), "bn.running_mean": np.full(8, 90.0), "bn.running_var": np.full(8, 800.0)}
    check_model(received, sent)
    with pytest.raises(NoModelError, match="reordered or encoded"):
        check_model(received, {**sent, "w": np.full((8, 8), 1e-3)})
