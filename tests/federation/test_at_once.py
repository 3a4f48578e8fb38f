"""Parties trained at once against the plain loop, in float64, where the two must agree."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.federation import simulate
from fedaudit.federation.simulate import Trainer, average, federate, party_rng, stackable
from fedaudit.learn.models.mlp import mlp
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.types import Moment, Plan, Records, Trained

SIZES = (40, 7, 64, 1, 33, 16, 0, 100, 17)


def task(classes: int = 3, hidden: tuple[int, ...] = (8, 6), dtype: torch.dtype = torch.float64) -> TorchTask:
    return TorchTask(lambda: mlp((2, 5), classes, hidden).to(dtype), classes)


def parties(classes: int, training: Training, dtype: Any = np.float64) -> list[Trainer]:
    rng = np.random.default_rng(0)
    found = []
    for i, n in enumerate(SIZES):
        y = rng.integers(0, classes, n) if classes else rng.normal(size=n).astype(dtype)
        rows = Records(rng.normal(size=(n, 2, 5)).astype(dtype), y, np.arange(n).astype(np.str_))
        found.append(Trainer(f"p{i}", rows, training))
    return found


def difference(a: Trained, b: Trained) -> float:
    assert list(a.state) == list(b.state)
    assert a.examples == b.examples
    assert all(a.state[key].shape == b.state[key].shape for key in a.state)
    return max(float(np.abs(a.state[key] - b.state[key]).max()) for key in a.state)


@pytest.mark.parametrize("classes", [3, 0])
@pytest.mark.parametrize("hidden", [(8, 6), ()])
@pytest.mark.parametrize(
    "training",
    [
        Training("adam", 1e-2, 1, 16),
        Training("adam", 1e-2, 3, 16),
        Training("sgd", 0.1, 3, 16),
        Training("sgd", 0.1, 2, 10_000),
        Training("adam", 1e-2, 1, 3),
    ],
)
@pytest.mark.parametrize("chunk", [2**22, 4000])
def test_equals_the_plain_loop(
    training: Training, classes: int, hidden: tuple[int, ...], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unequal sizes, short last batches, one record, none; several epochs; in one chunk and in several."""
    monkeypatch.setattr(simulate, "CHUNK_BYTES", chunk)
    ours = task(classes, hidden)
    model = ours.initial(1)
    members = parties(classes, training)
    plain = {p.name: p.update(ours, model, party_rng(5, Moment(1), p.name)) for p in members}
    jobs = [simulate.Job(p.name, p.records, party_rng(5, Moment(1), p.name), model) for p in members]
    found = dict(zip(plain, simulate.train_at_once(ours, jobs, training), strict=True))
    for name, expected in plain.items():
        moved = max(float(np.abs(expected.state[key] - model[key]).max()) for key in model)
        assert moved > 1e-3 if expected.examples else moved == 0
        assert difference(found[name], expected) < 1e-10
        assert (found[name].epoch_seconds > 0) == (expected.examples > 0)


def test_federate_takes_it_and_changes_nothing_but_the_last_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training("adam", 1e-2, 2, 16)
    members = parties(3, training)
    assert list(stackable(task(), members)) == [p.name for p in members]
    plans = [Plan(tuple(p.name for p in members)), Plan(("p3", "p1"), commit=False), Plan(("p7", "p0"))]
    together = list(federate(task(), members, plans, 0))
    monkeypatch.setattr(simulate, "MIN_PARTIES", 100)
    assert not stackable(task(), members)
    for fast, slow in zip(together, federate(task(), members, plans, 0), strict=True):
        assert list(fast.sent) == list(slow.sent)
        for key, value in slow.aggregate.items():
            assert fast.aggregate[key] == pytest.approx(value, abs=1e-10)


def test_same_seed_same_bits_and_a_party_trains_the_same_whoever_else_takes_part() -> None:
    training = Training("adam", 1e-2, 2, 16)
    members = parties(3, training, np.float32)
    ours = task(dtype=torch.float32)
    everyone = Plan(tuple(p.name for p in members))
    first, again = (next(federate(ours, members, [everyone], 0)) for _ in range(2))
    (alone,) = federate(ours, members, [Plan(("p2",))], 0)
    for key, value in first.sent["p2"].state.items():
        assert value.dtype == np.float32
        assert np.array_equal(value, again.sent["p2"].state[key])
        assert alone.sent["p2"].state[key] == pytest.approx(value, abs=1e-6)


class Rogue(Trainer):
    """Not an honest trainer, though it looks like one."""


def tied() -> nn.Module:
    layer = nn.Linear(10, 10)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer)


OTHER_MODELS: dict[str, Callable[[], nn.Module]] = {
    "tanh": lambda: nn.Sequential(nn.Flatten(), nn.Linear(10, 4), nn.Tanh(), nn.Linear(4, 3)),
    "dropout": lambda: nn.Sequential(nn.Flatten(), nn.Linear(10, 4), nn.Dropout(), nn.Linear(4, 3)),
    "no bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(10, 3, bias=False)),
    "not flattened": lambda: nn.Sequential(nn.Linear(10, 4), nn.ReLU(), nn.Linear(4, 3)),
    "flattened otherwise": lambda: nn.Sequential(nn.Flatten(2), nn.Linear(5, 3)),
    "shared": tied,
    "ends in ReLU": lambda: nn.Sequential(nn.Flatten(), nn.Linear(10, 3), nn.ReLU()),
}


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_other_models_take_the_plain_loop(name: str) -> None:
    assert not stackable(TorchTask(OTHER_MODELS[name], 3), parties(3, Training()))


def test_other_parties_take_the_plain_loop() -> None:
    members = parties(3, Training())
    assert stackable(task(), members)
    assert not stackable(task(), members[:7])  # too few
    odd = members[0]
    for replacement in (
        Rogue(odd.name, odd.records, odd.training),
        Trainer(odd.name, odd.records, Training(lr=0.5)),
        Trainer(odd.name, odd.records, Training(weight_decay=0.1)),
    ):
        assert not stackable(task(), [replacement, *members[1:]])
    assert not stackable(task(hidden=(6000, 100)), members)  # too large


def test_average_is_bit_equal_to_the_obvious_sum() -> None:
    rng = np.random.default_rng(0)
    sent = {
        f"p{i}": Trained({"w": rng.normal(size=(5, 3)).astype(np.float32)}, int(n), 0.0)
        for i, n in enumerate(rng.integers(1, 99, 20))
    }
    total = sum(t.examples for t in sent.values())
    parts = [sent[name].state["w"].astype(np.float64) * (sent[name].examples / total) for name in sorted(sent)]
    assert np.array_equal(average(sent)["w"], np.sum(parts, axis=0).astype(np.float32))
