"""The server's learning rate: the step that it takes, what it leaves alone, and that attacks take it back."""

from typing import Any

import numpy as np
import pytest
from torch import nn

from fedaudit.config.schema import parse
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.federation.simulate import Trainer, World, average, federate, federate_together
from fedaudit.learn.tasks import TorchTask, Training, build_task
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.types import Observation, Plan, Records

SGD = Training("sgd", 0.1, 1, 8)


def records(seed: int) -> Records:
    rng = np.random.default_rng(seed)
    return dataset("a", rng.normal(size=(40, 5)), rng.integers(0, 3, 40), id=np.arange(40)).records


@pytest.mark.parametrize("server_lr", [0.5, 3.0])
def test_the_server_goes_part_of_the_way_or_beyond(server_lr: float) -> None:
    task = TorchTask(lambda: nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)), 3)
    parties = [Trainer(name, records(i), SGD) for i, name in enumerate("ab")]
    first, second = federate(task, parties, [Plan(("a", "b"))] * 2, 7, server_lr=server_lr)
    mean = average(first.sent)
    for name, value in first.aggregate.items():
        if "running" in name or "tracked" in name:  # a variance must not become negative
            assert np.array_equal(value, mean[name])
        else:
            before = first.broadcast[name].astype(np.float64)
            assert np.allclose(value, before + server_lr * (mean[name] - before), atol=1e-6)
    assert all(np.array_equal(second.broadcast[name], value) for name, value in first.aggregate.items())


def test_federations_side_by_side_take_each_its_own_step() -> None:
    task = build_task("mlp", (5,), 3, {"hidden": (8,)})
    parties = [Trainer(name, records(i), SGD) for i, name in enumerate("abcdefgh")]
    plans = [Plan(tuple("abcdefgh"))] * 2
    steps = (1.0, 0.5)
    together = list(zip(*federate_together([World(task, parties, plans, 3, step) for step in steps]), strict=True))
    for step, made in zip(steps, together, strict=True):
        alone = list(federate(task, parties, plans, 3, server_lr=step))
        for name, value in alone[-1].aggregate.items():
            assert np.allclose(made[-1].aggregate[name], value, atol=1e-5)


def of_first_round(**federation: Any) -> Observation:
    prepared = prepare(parse({
        "data": {"name": "breast-cancer"},
        "federation": {"parties": 2, "rounds": 2, "members": 0.4, "nonmembers": 0.3, **federation},
        "model": {"name": "mlp", "hidden": [16]},
        "audit": {"attacks": ["matched-filter", "matched-filter-peer", "unmix", "gradient-diff", "loss"]},
    }))  # fmt: skip
    seen = prepared.auditor.measure(next(iter(rounds(prepared))))
    assert seen is not None
    return seen


def test_attacks_on_global_models_take_the_step_back() -> None:
    """The same sum of updates, whatever part of it the server added: the same scores after one round."""
    whole, half = of_first_round(), of_first_round(server_lr=0.5)
    whole_values, half_values = whole.of[None].values, half.of[None].values
    looked_at = [name for name in whole_values if name != "loss"]
    assert {"matched-filter", "matched-filter-peer", "unmix", "gradient-diff"} <= set(looked_at)
    for name in looked_at:
        scale = np.nanstd(whole_values[name]) or 1.0
        assert np.allclose(half_values[name], whole_values[name], atol=2e-3 * scale, rtol=2e-3, equal_nan=True), name
    assert not np.allclose(half_values["loss"], whole_values["loss"])  # another model was released


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"defences": [{"name": "dp-fedavg", "noise": 1.0, "clip": 1.0}]}, "a defence acts at the server"),
        ({"audit": {"adversary": "agg-mal"}}, "does not average"),
        ({"audit": {"attacks": ["loss", "canife"]}}, "canaries or probes"),
    ],
)
def test_refused_where_the_server_takes_no_such_step(given: dict[str, Any], says: str) -> None:
    config = {"data": {"name": "breast-cancer"}, "model": {"hidden": [8]}, **given}
    federation = {"parties": 2, "rounds": 3, "members": 0.4, "nonmembers": 0.3}
    with pytest.raises(FedauditError, match=says) as caught:
        prepare(parse({**config, "federation": {**federation, "server_lr": 0.5}}))
    assert caught.value.code == "server-lr"
    prepare(parse({**config, "federation": {**federation, "server_lr": 1.0}}))


def test_the_usual_step_is_not_written_down_and_fedsgd_has_its_own() -> None:
    assert parse({"federation": {"server_lr": 1.0}}).hash() == parse({}).hash()
    assert parse({"federation": {"server_lr": 0.5}}).hash() != parse({}).hash()
    for wrong in ({"algorithm": "fedsgd", "server_lr": 0.5}, {"server_lr": 0.0}, {"server_lr": 1e9}):
        with pytest.raises(FedauditError, match="server_lr"):
            parse({"federation": wrong})
