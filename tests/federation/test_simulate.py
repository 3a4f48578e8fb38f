"""The loop: averaging, rounds, probe rounds, and that randomness enters by the door."""

from itertools import pairwise

import numpy as np
import pytest

from fedaudit.data.records import dataset
from fedaudit.federation.simulate import Trainer, average, federate
from fedaudit.learn.tasks import TorchTask, Training, build_task
from fedaudit.types import Plan, Records, Round, Trained


def task() -> TorchTask:
    return build_task("mlp", (5,), 3, {"hidden": (8,)})


def records(seed: int, n: int) -> Records:
    rng = np.random.default_rng(seed)
    return dataset("a", rng.normal(size=(n, 5)), rng.integers(0, 3, n), id=np.arange(n)).records


def run(seed: int = 0, plans: list[Plan] | None = None, training: Training | None = None) -> list[Round]:
    parties = [Trainer(f"p{i}", records(i, 40 + 20 * i), training or Training(batch_size=16)) for i in range(3)]
    return list(federate(task(), parties, plans or [Plan(("p0", "p1", "p2"))] * 3, seed))


def test_average_is_weighted_by_examples() -> None:
    a, b = {"w": np.array([1.0, 2.0], np.float32)}, {"w": np.array([4.0, 8.0], np.float32)}
    mean = average({"x": Trained(a, 30, 0.0), "y": Trained(b, 10, 0.0)})
    assert mean["w"] == pytest.approx([1.75, 3.5])
    assert mean["w"].dtype == np.float32


def test_rounds_are_chained() -> None:
    rounds = run()
    assert [r.index for r in rounds] == [1, 2, 3]
    for before, after in pairwise(rounds):
        assert all(np.array_equal(before.aggregate[k], after.broadcast[k]) for k in before.aggregate)
    assert not np.array_equal(rounds[0].aggregate["1.weight"], rounds[1].aggregate["1.weight"])


def test_same_seed_same_bits_other_seed_other_bits() -> None:
    first, again, other = run(0)[-1], run(0)[-1], run(1)[-1]
    assert all(np.array_equal(first.aggregate[k], again.aggregate[k]) for k in first.aggregate)
    assert not np.array_equal(first.aggregate["1.weight"], other.aggregate["1.weight"])


def test_T24_no_two_parties_and_no_two_rounds_share_their_random_numbers() -> None:
    """Three parties with the same records: were their shuffles the same, so would be what they send."""
    names = ("p0", "p1", "p2")
    parties = [Trainer(name, records(0, 60), Training(batch_size=16)) for name in names]
    made = federate(task(), parties, [Plan(names, commit=False)] * 2, seed=0)  # both rounds start from the same model
    sent = [trained.state["1.weight"] for round in made for trained in round.sent.values()]
    assert len({weights.tobytes() for weights in sent}) == 6


def test_a_probe_round_is_rolled_back() -> None:
    everyone = ("p0", "p1", "p2")
    rounds = run(plans=[Plan(everyone), Plan(everyone, commit=False), Plan(everyone)])
    assert np.array_equal(rounds[2].broadcast["1.weight"], rounds[0].aggregate["1.weight"])


def test_a_party_trains_the_same_whoever_else_takes_part() -> None:
    alone, together = run(plans=[Plan(("p1",))])[0], run()[0]
    assert np.array_equal(alone.sent["p1"].state["1.weight"], together.sent["p1"].state["1.weight"])
    assert set(alone.sent) == {"p1"}


def test_K36_fedavg_with_one_full_batch_step_is_fedsgd() -> None:
    """One full-batch SGD step at every party, averaged by examples = one step on all records together."""
    training = Training("sgd", 0.1, 1, 10_000)
    federated = run(plans=[Plan(("p0", "p1", "p2"))], training=training)[0]
    parts = [records(i, 40 + 20 * i) for i in range(3)]
    pooled = Records(
        np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]), np.arange(180).astype(str)
    )
    central = task().train(federated.broadcast, pooled, training, np.random.default_rng(0))
    for key, value in central.state.items():
        assert federated.aggregate[key] == pytest.approx(value, abs=1e-6)
