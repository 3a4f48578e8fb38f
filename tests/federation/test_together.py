"""Federations that are trained together against each of them alone, in float64, where the two must agree."""

import numpy as np
import pytest
import torch

from fedaudit.federation import simulate
from fedaudit.federation.simulate import Trainer, World, alike, federate, federate_together
from fedaudit.learn.models.images import cnn
from fedaudit.learn.models.mlp import mlp
from fedaudit.learn.tasks import TorchTask, Training, freeze
from fedaudit.types import Party, Plan, Records

TRAINING = Training("adam", 1e-2, 2, 16)


def world(seed: int, sizes: tuple[int, ...], plans: list[Plan] | None = None, training: Training = TRAINING) -> World:
    rng = np.random.default_rng(seed)
    task = TorchTask(lambda: mlp((5,), 3, (8, 6)).to(torch.float64), 3)
    parties: list[Party] = []
    for i, n in enumerate(sizes):
        rows = Records(rng.normal(size=(n, 5)), rng.integers(0, 3, n), np.arange(n).astype(np.str_))
        parties.append(Trainer(f"p{i}", rows, training))
    return World(task, parties, plans or [Plan(tuple(p.name for p in parties))] * 3, seed)


@pytest.mark.parametrize("chunk", [2**22, 4000])
def test_equals_each_alone(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unequal sizes, other seeds, other parties in a round, nobody in one; in one stack and in several."""
    monkeypatch.setattr(simulate, "CHUNK_BYTES", chunk)
    some = [Plan(("p0", "p2")), Plan(()), Plan(("p1",))]
    worlds = [world(0, (40, 7, 64)), world(1, (33, 16, 9), some), world(2, (5,))]
    together = list(zip(*federate_together(worlds), strict=True))
    monkeypatch.setattr(simulate, "MIN_PARTIES", 100)  # alone: the plain loop
    for own, rounds in zip(worlds, together, strict=True):
        plain = list(federate(own.task, own.parties, own.plans, own.seed))
        assert [r.index for r in rounds] == [r.index for r in plain]
        for ours, theirs in zip(rounds, plain, strict=True):
            assert list(ours.sent) == list(theirs.sent)
            assert ours.commit == theirs.commit
            for key, value in theirs.aggregate.items():
                assert np.abs(ours.aggregate[key] - value).max() < 1e-10
    moved = [
        float(np.abs(rounds[-1].aggregate["1.weight"] - rounds[0].broadcast["1.weight"]).max()) for rounds in together
    ]
    assert min(moved) > 1e-3


def test_only_what_fits_together_is_put_together() -> None:
    first = world(0, (40, 7))
    assert alike(first) == alike(world(1, (9, 9, 9)))
    assert alike(first) != alike(world(0, (40, 7), training=Training("adam", 1e-2, 1, 16)))
    assert alike(first) != alike(world(0, (40, 7), [Plan(("p0",))]))
    other = World(TorchTask(lambda: cnn((1, 8, 8), 3, 8), 3), first.parties, first.plans, 0)
    assert alike(other) is None
    decaying = world(0, (40,), training=Training(weight_decay=0.1))
    assert alike(decaying) is None
    frozen = World(TorchTask(lambda: freeze(mlp((5,), 3, (8,)), 1), 3), first.parties, first.plans, 0)
    assert alike(frozen) is None
