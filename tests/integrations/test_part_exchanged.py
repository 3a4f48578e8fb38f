"""Only a part of the model is exchanged: an adapter of PEFT, or the head on a frozen backbone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import save_file
from torch import nn

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedaudit
from fedaudit.config.schema import Config, parse
from fedaudit.data.game_file import save_game
from fedaudit.data.set_aside import joined
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.integrations.checkpoints import import_checkpoints
from fedaudit.integrations.flower.client import PartyAudit
from fedaudit.integrations.flower.server import record_strategy
from fedaudit.integrations.options import as_task, checked, make_auditor
from fedaudit.integrations.party import HALTED
from fedaudit.integrations.plain import matched
from fedaudit.learn.tasks import Exchanged, TorchTask, exchanged_part
from fedaudit.results.document import Document
from fedaudit.session.prepare import prepare
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.trace.store import Store
from fedaudit.types import Game, Round, State, Trained, Vantage
from tests.integrations.flower_world import LocalGrid, party_of
from tests.integrations.worlds import PARTIES, equal, games, mean, net, part, train
from tests.worlds import silent

ATTACKS = ["loss", "gradient-cosine", "matched-filter", "round-gain"]
ROUNDS = 2
ADAPTER = [f"base_model.model.{layer}.lora_{ab}.weight" for layer in (0, 2) for ab in "AB"]  # as PEFT saves it


def adapted(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return get_peft_model(net(), LoraConfig(r=4, target_modules=["0", "2"]))


def headed(seed: int = 0) -> nn.Module:
    """A frozen backbone with a head that is trained."""
    torch.manual_seed(seed)
    made = net()
    made[0].requires_grad_(False)  # type: ignore[index]
    return made


def a_round(model: nn.Module, seed: int, sent: Any) -> dict[str, Any]:
    """What each party sends after training from the model."""
    updates = {}
    for party in PARTIES:
        trained = adapted() if hasattr(model, "peft_config") else headed()
        trained.load_state_dict(model.state_dict())
        train(trained, part(party)[0], seed)
        updates[party] = {name: value.clone() for name, value in sent(trained).items()}
    return updates


def of_head(model: nn.Module) -> Mapping[str, Any]:
    return {name: value for name, value in model.state_dict().items() if name.startswith("2.")}


def looped(model: Any, out: Path, sent: Any, **options: Any) -> Document:
    """Two rounds of a loop in which nothing but what `sent` gives leaves a party."""
    with fedaudit.record(model, games(), out=out, rounds=ROUNDS, attacks=ATTACKS, strict=True, **options) as audit:
        for round in range(1, ROUNDS + 1):
            updates = a_round(model, round, sent)
            made = mean(updates)
            if hasattr(model, "peft_config"):
                set_peft_model_state_dict(model, made)
            else:
                model.load_state_dict(made, strict=False)
            audit.observe(round, made, updates=updates)
    found: Document = audit.document
    return found


def figures(document: Document) -> list[Any]:
    return [[one.attack, one.vantage, one.party, one.estimates["auc"].value] for one in document.results]


@pytest.mark.parametrize(("model", "sent", "exchanged"), [
    (adapted, get_peft_model_state_dict, None), (headed, of_head, "trainable"), (headed, of_head, ["2"]),
])  # fmt: skip
def test_a_part_is_audited_as_the_whole_would_be(
    model: Any, sent: Any, exchanged: Exchanged | None, tmp_path: Path
) -> None:
    given = model()
    found = looped(given, tmp_path / "part", sent, exchanged=exchanged, keep="snapshots")
    # The slow way: the whole model in every round, of which the audit is not told that a part never changes.
    whole = model()
    with fedaudit.record(
        TorchTask(lambda: Whole(model()), 10), games(), out=tmp_path / "whole", rounds=ROUNDS, attacks=ATTACKS
    ) as audit:
        audit.observe(0, whole.state_dict())
        for round in range(1, ROUNDS + 1):
            updates = a_round(whole, round, lambda trained: trained.state_dict())
            whole.load_state_dict(mean(updates))
            audit.observe(round, whole.state_dict(), updates=updates)
    assert figures(found) == figures(audit.document)
    assert {one.attack for one in found.results} >= set(ATTACKS)
    assert equal(
        {name: value.numpy() for name, value in given.state_dict().items()},
        {name: value.numpy() for name, value in whole.state_dict().items()},
    )

    # The trace holds what was exchanged, and knows the rest by its hash.
    kept = Store.read(tmp_path / "part")
    trained = [name for name, p in model().named_parameters() if p.requires_grad]
    assert list(kept.round(kept.entries()[0]).aggregate) == trained
    assert len(kept.manifest["base"]) == 64
    assert "base" not in Store.read(tmp_path / "whole").manifest
    (told,) = [one for one in found.notices if "A part of the model is exchanged" in one]
    weights = sum(p.numel() for p in model().parameters() if p.requires_grad)
    assert f"{weights:,} of {sum(p.numel() for p in model().parameters()):,} weights" in told


class Whole(nn.Module):
    """The same model under the same names, which does not say that PEFT made it."""

    def __init__(self, model: nn.Module):
        super().__init__()
        for name, child in model.named_children():
            self.add_module(name, child)
        self.__dict__["asked"] = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.__dict__["asked"](x)
        return made


# ------------------------------------------------------------------ names


def test_names_as_peft_saves_them_are_the_models() -> None:
    model = adapted()
    task = as_task(model, joined(*games()))
    like = task.initial(0)
    saved = {name: value.numpy() for name, value in get_peft_model_state_dict(model).items()}
    assert sorted(saved) == ADAPTER
    assert equal(matched(saved, like, "here"), like)
    bare = {name.removeprefix("base_model.model."): value for name, value in saved.items()}
    assert equal(matched(bare, like, "here"), like)
    # Another adapter's name, and a module that is trained beside it.
    config = LoraConfig(r=4, target_modules=["0"], modules_to_save=["2"])
    other = get_peft_model(net(), config, adapter_name="ward")
    named = {name: value.numpy() for name, value in get_peft_model_state_dict(other, adapter_name="ward").items()}
    own = as_task(other, joined(*games())).initial(0)
    assert any("modules_to_save" in name for name in own)
    assert equal(matched(named, own, "here"), own)


def test_a_frozen_base_that_comes_along_is_compared_and_left_out() -> None:
    task = as_task(headed(), joined(*games()), exchanged="trainable")
    like = task.initial(0)
    whole = {name: value.numpy() for name, value in headed().state_dict().items()}
    assert list(task.base) == ["0.weight", "0.bias"]
    assert equal(matched(whole, like, "here", task.base), like)
    with pytest.raises(FedauditError, match=r"\[other-base\] '0.weight'.*differs from the frozen part.*round 3"):
        matched({**whole, "0.weight": whole["0.weight"] + 1e-6}, like, "round 3", task.base)
    with pytest.raises(FedauditError, match=r"missing: 0.weight, 0.bias; none unknown.*exchanged="):
        matched(like, whole, "here")  # whoever did not say so is told how to


def test_what_is_exchanged_is_named_or_trained() -> None:
    assert exchanged_part(net(), None) is None
    assert exchanged_part(headed(), "trainable") == frozenset({"2.weight", "2.bias"})
    assert exchanged_part(net(), ["2.bias"]) == frozenset({"2.bias"})
    with_statistics = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).requires_grad_(False)
    with_statistics[1].requires_grad_(True)
    assert {"1.running_mean", "1.num_batches_tracked"} < (exchanged_part(with_statistics, "trainable") or set())
    with pytest.raises(FedauditError, match="no parameter of the model requires gradients"):
        exchanged_part(net().requires_grad_(False), "trainable")
    with pytest.raises(FedauditError, match="no parameter or module 'head'"):
        exchanged_part(net(), ["head"])


def test_one_base_serves_all_models_of_a_task() -> None:
    """Of a model that is built with random weights, too; and no state can reach it."""
    task = TorchTask(headed_at_random, 10, exchanged="trainable")
    one, two = task.fresh(task.initial(1)), task.fresh(task.initial(2))
    assert one.get_parameter("0.weight") is two.get_parameter("0.weight")
    assert not torch.equal(one.get_parameter("2.weight"), two.get_parameter("2.weight"))
    assert np.array_equal(task.base["0.weight"], TorchTask(headed_at_random, 10, exchanged=["2"]).base["0.weight"])
    with pytest.raises(FedauditError, match="parameter-names"):
        task.fresh({**task.initial(0), "0.weight": np.zeros((48, 64), np.float32)})


def headed_at_random() -> nn.Module:
    made = net()
    made[0].requires_grad_(False)  # type: ignore[index]
    return made


# ------------------------------------------------------------------ every way in


def test_an_app_of_flower_that_exchanges_an_adapter(tmp_path: Path) -> None:
    """Mod and server see PEFT's names alone, and find what a loop finds that has the same rounds."""
    start = adapted().state_dict()
    app = adapting(PartyAudit(adapted, game_of, rounds=2, out=tmp_path / "parties", attacks=["loss"]))
    strategy = record_strategy(
        FedAvg(fraction_evaluate=0.0), out=tmp_path / "server", rounds=2, model=adapted(), game=games(),
        party=party_of, attacks=ATTACKS,
    )  # fmt: skip
    begun = ArrayRecord(get_peft_model_state_dict(adapted()))
    result = strategy.start(grid=LocalGrid(app), initial_arrays=begun, num_rounds=2)
    assert result.arrays is not None
    assert sorted(result.arrays) == ADAPTER
    document = strategy.session.document
    assert document is not None
    assert (document.run.status, [*document.degraded]) == ("complete", [])
    assert {one.attack for one in document.results} >= set(ATTACKS)
    assert all(np.array_equal(value, start[name]) for name, value in adapted().state_dict().items())
    for party in PARTIES:
        found = json.loads((tmp_path / "parties" / party / "results.json").read_text())
        mine = [one for one in found["results"] if (one["attack"], one["model"]) == ("loss", "local")]
        (of_server,) = [
            one for one in document.results if (one.attack, one.model, one.party) == ("loss", "local", party)
        ]
        assert mine[0]["estimates"]["auc"]["value"] == of_server.estimates["auc"].value


def adapting(audit: PartyAudit) -> ClientApp:
    """Parties that train an adapter, and send nothing else."""
    app = ClientApp(mods=[audit])

    @app.train()
    def training(message: Message, context: Context) -> Message:
        model = adapted()
        set_peft_model_state_dict(model, message.content.array_records["arrays"].to_torch_state_dict())
        records, _ = part(PARTIES[int(context.node_config["partition-id"])])
        train(model, records, seed=int(str(message.content.config_records["config"]["server-round"])))
        metrics = MetricRecord({"num-examples": len(records)})
        sent = ArrayRecord(get_peft_model_state_dict(model))
        return Message(RecordDict({"arrays": sent, "metrics": metrics}), reply_to=message)

    return app


def test_a_party_that_sends_an_adapter_halts_at_its_limit(tmp_path: Path) -> None:
    """The limit is one that every audit crosses: what is tried is the way from the adapter to the halt."""
    audit = PartyAudit(adapted, game_of, rounds=3, out=tmp_path, attacks=["loss"], halt_if="auc > 0.2")
    grid = LocalGrid(adapting(audit))
    begun = ArrayRecord(get_peft_model_state_dict(adapted()))
    FedAvg(fraction_evaluate=0.0, min_train_nodes=1).start(grid=grid, initial_arrays=begun, num_rounds=3)
    for party, context in zip(PARTIES, grid.contexts.values(), strict=True):
        assert HALTED in context.state
        (withheld,) = json.loads((tmp_path / party / "results.json").read_text())["run"]["withheld"]
        assert withheld["rule"] == "auc > 0.2"
        assert "withheld" in (tmp_path / party / "report.html").read_text()


def game_of(context: Context) -> Game:
    return part(PARTIES[int(context.node_config["partition-id"])])[1]


def adapter_of(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A factory, as a configuration names it."""
    made: nn.Module = adapted()
    return made


def headed_of(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(input_shape[0], 8), nn.ReLU(), nn.Linear(8, classes))
    made[0].requires_grad_(False).bias.data.fill_(LOCAL)  # type: ignore[operator]
    return made


LOCAL = 0.0  # of the base that is at hand


def test_checkpoints_of_an_adapter_are_imported(tmp_path: Path) -> None:
    model, checkpoints = adapted(), tmp_path / "checkpoints"
    auditor = make_auditor(adapted(), joined(*games()), checked(2, attacks=["loss"]))
    assert auditor.task is not None
    like, before = auditor.task.initial(0), get_peft_model_state_dict(model)
    for round in (0, 1, 2):
        folder = checkpoints / f"round-{round}"
        folder.mkdir(parents=True)
        updates = a_round(model, round, get_peft_model_state_dict) if round else {}
        made = mean(updates) if round else before
        set_peft_model_state_dict(model, made)
        for name, state in {"global": made, **updates}.items():
            save_file({key: value.contiguous() for key, value in state.items()}, folder / f"{name}.safetensors")
        if round:
            states = {party: as_numpy(state, like) for party, state in updates.items()}
            sent = {party: Trained(state, 1, 0.0) for party, state in states.items()}
            auditor.observe(Round(round, as_numpy(before, like), sent, as_numpy(made, like)))
        before = made
    save_game(joined(*games()), tmp_path / "game.npz")
    config = parse({"model": {"name": f"{__name__}:adapter_of"}, "audit": {"attacks": ["loss"]}})
    found = import_checkpoints(
        checkpoints, tmp_path / "run", silent, game=tmp_path / "game.npz", config=config, torch=False, deltas=False
    )
    assert found is not None
    assert figures(found) == [
        [one.attack, one.vantage, one.party, one.estimates["auc"].value] for one in auditor.snapshot().results
    ]


def as_numpy(state: Mapping[str, Any], like: State) -> State:
    return matched({name: value.numpy().copy() for name, value in state.items()}, like, "here")


def configured(**sections: Any) -> Config:
    return parse({
        "data": {"name": "breast-cancer"},
        "model": {"name": f"{__name__}:headed_of", "exchanged": "trainable"},
        "federation": {"parties": 2, "rounds": 2},
        "audit": {"attacks": ["loss", "gradient-cosine"], "fpr": [0.1], "keep": "snapshots"},
        **sections,
    })  # fmt: skip


def test_a_configured_federation_exchanges_the_head_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = run(configured(), tmp_path / "run", silent, tell=lambda line: None)
    store = Store.read(tmp_path / "run")
    round = store.round(store.entries()[1])
    for state in (round.broadcast, round.aggregate, *(sent.state for sent in round.sent.values())):
        assert list(state) == ["2.weight", "2.bias"]
    again = replay(tmp_path / "run", ["loss", "gradient-cosine"], tmp_path / "again", silent, trust_code=True)
    assert figures(again) == figures(document)
    # Whoever has another base cannot look at it, and cannot continue it.
    monkeypatch.setattr("tests.integrations.test_part_exchanged.LOCAL", 1.0)
    with pytest.raises(FedauditError, match=r"\[other-base\].*another frozen part.*is now") as refused:
        replay(tmp_path / "run", ["matched-filter"], tmp_path / "never", silent, trust_code=True)
    assert refused.value.exit_code == REFUSED
    with pytest.raises(FedauditError, match="another frozen part"):
        run(configured(), tmp_path / "run", silent, tell=lambda line: None)


def test_unmix_runs_and_leads_although_nobody_named_it() -> None:
    """The head is all that is trained: the filter's layer is no small part of it."""
    settings = prepare(configured(audit={})).settings
    assert settings.filter_share > 0.8
    leading = settings.primary(Vantage.SERVER)
    assert leading is not None
    assert leading.name == "unmix"


@pytest.mark.parametrize("sections", [
    {"defences": [{"name": "dp-fedavg", "noise": 1.0, "clip": 1.0}]},
    {"defences": [{"name": "dp-sgd", "noise": 1.0, "clip": 1.0}]},
    {
        "defences": [{"name": "dp-fedavg", "noise": 1.0, "clip": 1e-3}],
        "audit": {"attacks": ["canife", "one-shot"], "canary": {"pool": 4, "steps": 4, "probes": 16}},
    },
])  # fmt: skip
def test_defences_and_canaries_take_a_part(sections: dict[str, Any], tmp_path: Path) -> None:
    document = run(configured(**sections), tmp_path / "run", silent, tell=lambda line: None)
    assert not document.degraded
    assert document.results


def test_a_recording_goes_on_with_the_same_base_only(tmp_path: Path) -> None:
    looped(headed(), tmp_path / "run", of_head, exchanged="trainable")
    with fedaudit.record(headed(), games(), out=tmp_path / "run", rounds=2, attacks=ATTACKS, exchanged="trainable"):
        pass
    with pytest.raises(FedauditError, match="another frozen part of the model"):
        fedaudit.record(headed(1), games(), out=tmp_path / "run", rounds=2, attacks=ATTACKS, exchanged="trainable")
    with pytest.raises(FedauditError, match=r"another frozen part of the model.*is now none"):
        fedaudit.record(headed(), games(), out=tmp_path / "run", rounds=2, attacks=ATTACKS)
