"""Who takes part, what an empty round does, and that those who stay away cost nothing."""

import tracemalloc
from functools import partial

import numpy as np
import pytest

from fedaudit.data.partition import game, iid
from fedaudit.data.records import dataset
from fedaudit.federation import plans
from fedaudit.federation.simulate import Trainer, federate
from fedaudit.learn.tasks import Training, build_task
from fedaudit.types import Plan

NAMES = [f"party-{i:02d}" for i in range(40)]


def test_everyone_takes_part_by_default() -> None:
    assert plans(NAMES, 3, 1.0, "uniform", 0) == [Plan(tuple(NAMES))] * 3


def test_uniform_sampling_draws_a_fixed_number_without_favour() -> None:
    drawn = plans(NAMES, 2000, 0.1, "uniform", 0)
    assert {len(set(plan.parties)) for plan in drawn} == {4}
    counts = np.bincount([NAMES.index(name) for plan in drawn for name in plan.parties])
    assert np.abs(counts - 200).max() < 5 * np.sqrt(2000 * 0.1 * 0.9)
    assert all(list(plan.parties) == sorted(plan.parties) for plan in drawn)


def test_poisson_sampling_is_a_coin_for_each_party() -> None:
    sizes = np.array([len(plan.parties) for plan in plans(NAMES, 4000, 0.05, "poisson", 0)])
    assert sizes.mean() == pytest.approx(2.0, abs=0.1)
    assert sizes.var() == pytest.approx(40 * 0.05 * 0.95, rel=0.1)
    assert (sizes == 0).mean() == pytest.approx(0.95**40, abs=0.02)


@pytest.mark.parametrize("sampling", ["uniform", "poisson"])
def test_the_first_rounds_do_not_depend_on_how_many_follow(sampling: str) -> None:
    assert plans(NAMES, 50, 0.2, sampling, 3)[:20] == plans(NAMES[::-1], 20, 0.2, sampling, 3)  # type: ignore[arg-type]
    assert plans(NAMES, 20, 0.2, sampling, 3) != plans(NAMES, 20, 0.2, sampling, 4)  # type: ignore[arg-type]


def test_at_least_one_party_takes_part_in_a_uniform_round() -> None:
    assert all(len(plan.parties) == 1 for plan in plans(["a", "b"], 5, 0.01, "uniform", 0))


def many(parties: int) -> tuple[list[Trainer], int]:
    """Parties of 60 members each, and the bytes of all their members."""
    rng = np.random.default_rng(0)
    n = parties * 200
    data = dataset("a", rng.normal(size=(n, 100)), rng.integers(0, 3, n), id=np.arange(n))
    split = game(data.records, iid(data.records, parties, rng), 0.3, 0.3, rng)
    training = Training(batch_size=16)
    trainers = [Trainer(name, partial(split.members, name), training) for name in split.parties]
    return trainers, sum(t.records.x.nbytes for t in trainers)


def test_F6_an_empty_round_commits_nothing_and_leaves_the_model() -> None:
    trainers, _ = many(3)
    names = tuple(t.name for t in trainers)
    rounds = list(
        federate(build_task("mlp", (100,), 3, {"hidden": (8,)}), trainers, [Plan(names), Plan(()), Plan(names)], 0)
    )
    assert [(r.index, r.commit, len(r.sent)) for r in rounds] == [(1, True, 3), (2, False, 0), (3, True, 3)]
    assert all(np.array_equal(rounds[0].aggregate[k], v) for k, v in rounds[2].broadcast.items())


def test_memory_follows_those_who_take_part() -> None:
    """200 parties of which two take part: the records of two are held at a time, never those of all."""
    trainers, everything = many(200)
    task = build_task("mlp", (100,), 3, {"hidden": (8,)})
    drawn = plans([t.name for t in trainers], 3, 0.01, "uniform", 0)
    for _ in federate(task, trainers, drawn[:1], 0):
        pass  # torch's own first allocations
    tracemalloc.start()
    for _ in federate(task, trainers, drawn, 0):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < everything / 10
