"""Canary parties: who is present when, that they leave no mark on the training, and random ones that are refused."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from fedaudit.data.records import dataset
from fedaudit.defences.dp_fedavg import Clip, NoisySum, difference, norm
from fedaudit.defences.shared import Defence
from fedaudit.errors import FedauditError
from fedaudit.federation import START, plans
from fedaudit.federation.simulate import Trainer, federate
from fedaudit.learn.tasks import TorchTask, Training, build_task
from fedaudit.questions.canary import parties as canary
from fedaudit.questions.canary.crafting import CraftingRecipe, flat
from fedaudit.questions.canary.parties import (
    DIRECTION_STREAM,
    Canaries,
    CanaryParty,
    Design,
    Probing,
    RandomParty,
    check_directions,
    deal,
    directions,
    running,
    with_probes,
    with_random,
)
from fedaudit.questions.canary.plan import INCLUDED_STREAM
from fedaudit.types import Moment, Party, Plan, Records, Round

CLIP, LR = 0.5, 0.1
HOW = Training("sgd", LR, 1, 64)


def task() -> TorchTask:
    return build_task("mlp", (5,), 3, {"hidden": (8,)})


def records(seed: int, n: int) -> Records:
    rng = np.random.default_rng(seed)
    return dataset("a", rng.normal(size=(n, 5)), rng.integers(0, 3, n), id=np.arange(n)).records


def honest(count: int) -> list[Party]:
    return [Trainer(f"p{i}", records(i, 6), HOW) for i in range(count)]


def canaries(count: int = 2, steps: int = 30) -> Canaries:
    return Canaries(
        Design(
            pool=records(99, 60), mocks=8, size=6, training=HOW, clip=CLIP, recipe=CraftingRecipe(count, steps), seed=0
        )
    )


def defence(noise: float, parties: int) -> Defence:
    return Defence("noisy", update=Clip(CLIP), aggregate=NoisySum(CLIP, noise, parties))


# ------------------------------------------------------------------ who is present when


def test_half_of_the_probes_after_each_stop_have_the_canary() -> None:
    names = ["p0", "p1", "p2"]
    rounds = plans(names, 6, 1.0, "uniform", 0)
    made = with_probes(rounds, ["canary-0", "canary-1"], 10, 2, Probing(names, 1.0, "uniform", 0))
    assert [plan.commit for plan in made.plans] == ([True] * 2 + [False] * 10) * 3
    assert [plan for plan in made.plans if plan.commit] == rounds
    for stop in (2, 4, 6):
        there = np.array([made.present[Moment(stop, probe)] for probe in range(1, 11)])
        assert there.sum(axis=0).tolist() == [5, 5]
    assert len(made.present) == 30
    probes = [plan for plan in made.plans if not plan.commit]
    for plan, row in zip(probes, made.present.values(), strict=True):
        assert ["canary-0" in plan.parties, "canary-1" in plan.parties] == row.tolist()


@pytest.mark.parametrize("parties", [3, 9])  # one after the other, and nine small MLPs at once
def test_running_canaries_are_seen_and_leave_the_training_as_it_was(parties: int) -> None:
    names = [f"p{i}" for i in range(parties)]
    rounds = plans(names, 4, 1.0, "uniform", 0)
    made, noisy = canaries(), defence(0.3, parties)
    schedule = running(rounds, made.names, seed=5)
    own: list[Party] = [CanaryParty(name, i, made) for i, name in enumerate(made.names)]
    plain = list(federate(task(), honest(parties), rounds, 0, defence=noisy))
    seen = list(federate(task(), [*honest(parties), *own], schedule.plans, 0, defence=noisy))
    assert [r.moment for r in seen] == [Moment(i // 2, 1) if i % 2 == 0 else Moment(i // 2 + 1) for i in range(8)]
    kept = [round for round in seen if round.commit]
    for one, other in zip(plain, kept, strict=True):
        assert all(np.array_equal(one.aggregate[k], other.aggregate[k]) for k in one.aggregate)
    for probe, committed in zip(seen[::2], kept, strict=True):
        there = [name for name, here in zip(made.names, schedule.present[probe.moment], strict=True) if here]
        assert sorted(probe.sent) == sorted([*names, *there])
        planted = made.at(task(), probe.broadcast)
        gap = parties * flat(difference(probe.aggregate, committed.aggregate), task().architecture)
        wanted = sum((planted.updates[made.names.index(name)] for name in there), np.zeros(len(gap)))
        assert gap == pytest.approx(wanted, abs=1e-5)  # the canaries, and the same noise


def test_a_run_that_goes_on_between_probe_and_round_makes_the_same_ones() -> None:
    made, names = canaries(), ["p0", "p1", "p2"]
    schedule = running(plans(names, 3, 1.0, "uniform", 0), made.names, seed=1)
    parties = [*honest(3), *(CanaryParty(name, i, made) for i, name in enumerate(made.names))]
    whole = list(federate(task(), parties, schedule.plans, 0, START, None, defence(0.3, 3)))
    again = list(federate(task(), parties, schedule.plans, 0, Moment(1, 1), whole[1].aggregate, defence(0.3, 3)))
    assert [r.moment for r in again] == [r.moment for r in whole[3:]]
    for one, other in zip(whole[3:], again, strict=True):
        assert all(np.array_equal(one.aggregate[k], other.aggregate[k]) for k in one.aggregate)


# ------------------------------------------------------------------ crafted canaries


def test_a_canary_sends_what_the_auditor_expects() -> None:
    made, model = canaries(), task().initial(0)
    planted = made.at(task(), model)
    assert planted.norm == pytest.approx(np.ones(2), abs=1e-6)
    for number, name in enumerate(made.names):
        trained = CanaryParty(name, number, made).update(task(), model, np.random.default_rng(7))
        sent = Clip(CLIP)(model, trained, np.random.default_rng(0))
        change = -flat(difference(model, sent.state), task().architecture)
        assert change == pytest.approx(planted.updates[number], abs=1e-6)


def test_mock_updates_in_a_file_make_the_same_canaries(monkeypatch: pytest.MonkeyPatch) -> None:
    here = canaries().at(task(), task().initial(0))
    monkeypatch.setattr(canary, "IN_MEMORY", 0)
    there = canaries().at(task(), task().initial(0))
    assert np.array_equal(here.records.x, there.records.x)
    assert np.array_equal(here.updates, there.updates)
    assert np.array_equal(here.spread, there.spread)


def test_mock_parties_share_records_only_when_there_are_too_few() -> None:
    enough = deal(12, 3, 4, np.random.default_rng(0))
    assert sorted(enough.ravel().tolist()) == list(range(12))
    short = deal(7, 3, 5, np.random.default_rng(0))
    assert short.shape == (5, 3)
    assert all(len(set(hand)) == 3 for hand in short.tolist())  # never twice in one party
    assert np.bincount(short.ravel(), minlength=7).max() <= 3


def test_the_same_model_has_the_same_canaries_in_every_process() -> None:
    model = task().initial(3)
    first, second = canaries().at(task(), model), canaries().at(task(), model)
    assert np.array_equal(first.records.x, second.records.x)
    other = canaries().at(task(), task().initial(4))
    assert not np.array_equal(first.records.x, other.records.x)


def test_its_sum_gives_the_canary_away_without_noise() -> None:
    made, names = canaries(1, 200), [f"p{i}" for i in range(4)]
    parties = [*honest(4), CanaryParty("canary-0", 0, made)]
    probes = [Plan(tuple(names), commit=False), Plan((*names, "canary-0"), commit=False)]
    without, with_it = federate(task(), parties, probes, 0, defence=defence(0.0, 4))

    def score(round: Round) -> float:
        planted = made.at(task(), round.broadcast)
        total = -4 * flat(difference(round.broadcast, round.aggregate), task().architecture)
        return float(planted.updates[0] @ total / CLIP**2)

    assert score(with_it) - score(without) == pytest.approx(1, abs=0.01)


# ------------------------------------------------------------------ random canaries


def test_random_canaries_have_the_clip_norm_and_their_direction() -> None:
    model = task().initial(0)
    party = RandomParty("random-canary-0", 11, CLIP)
    sent = party.update(task(), model, np.random.default_rng(0))
    change = difference(model, sent.state)
    assert norm(change) == pytest.approx(CLIP, rel=1e-5)
    whole = np.concatenate([change[name].ravel() for name in sorted(change)])
    assert -whole / CLIP == pytest.approx(party.direction(model), abs=1e-6)


def test_they_take_part_in_rounds_and_not_in_probes() -> None:
    rounds = [Plan(("p0",)), Plan(("p0",), commit=False), Plan(("p0",))]
    made = with_random(rounds, ["random-canary-0"], Probing(["p0"], 1.0, "uniform", 0))
    assert [plan.parties for plan in made] == [("p0", "random-canary-0"), ("p0",), ("p0", "random-canary-0")]


def twice() -> object:
    return directions([1, 2, 1], 50)


def long() -> None:
    check_directions(2 * directions([1, 2], 50))


@pytest.mark.parametrize("size", [1, 7, 128, 129, 5000, 100_003])
def test_directions_have_the_bits_of_all_at_once_and_need_no_second_array(size: int) -> None:
    seeds = list(range(40))
    drawn = np.stack([np.random.default_rng([DIRECTION_STREAM, seed]).standard_normal(size) for seed in seeds])
    expected = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    tracemalloc.start()
    units = directions(seeds, size)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert units.tobytes() == expected.tobytes()
    assert most < 1.2 * units.nbytes + 100_000
    assert directions(seeds[3:4], size).tobytes() == units[3].tobytes()  # as a party sends it


def alike() -> None:
    units = directions([1, 2], 5000)
    check_directions(np.stack([units[0], units[1], units[0]]))


@pytest.mark.parametrize(("wrong", "code"), [(twice, "canary-seed"), (long, "canary-norm"), (alike, "canary-seed")])
def test_random_canaries_that_are_not_independent_units_are_refused(wrong: Callable[[], object], code: str) -> None:
    with pytest.raises(FedauditError) as refused:
        wrong()
    assert refused.value.code == code


def test_seeds_of_their_own_are_accepted() -> None:
    check_directions(directions(range(40), 3000))


def test_every_use_of_random_numbers_has_a_stream_of_its_own() -> None:
    """Coins that also decide who else takes part would be no fair coins."""
    streams = [
        *(canary.PROBE_STREAM, canary.COIN_STREAM, canary.DIRECTION_STREAM, canary.JOINING_STREAM),
        INCLUDED_STREAM,
    ]
    assert len(set(streams)) == len(streams)
