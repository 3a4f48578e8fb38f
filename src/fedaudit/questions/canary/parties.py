"""Canaries: parties that an auditor adds to a federation to find out what the noisy sum tells about one party.

Two kinds. A *crafted* canary (CANIFE) holds one record, made for the model that it receives, and trains on it as
everybody does. A *random* canary (one-shot; Andrew et al., ICLR 2024) sends a random direction of the clip norm.

A crafted canary is present at half of the probes, at random. A probe is thrown away by the server, so the training is
the same as without canaries. In *running* mode there are no separate probes: in every round a fair coin decides for
each canary whether it takes part, the sum is looked at, and the round is committed without the canaries.

Everything here follows from seeds, so that a run that goes on makes the same canaries and the same coins again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from tempfile import TemporaryFile
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedaudit.defences.dp_fedavg import clipped, difference
from fedaudit.defences.shared import Gradient
from fedaudit.errors import FedauditError
from fedaudit.federation import Sampling, scheduled
from fedaudit.federation import plans as sampled
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.questions.canary.crafting import CraftingRecipe, craft, flat
from fedaudit.questions.canary.vectors import float_names, parameter_count
from fedaudit.types import Bools, Floats, Ints, Moment, Plan, Records, State, Trained

Singles = NDArray[np.float32]

# Streams of random numbers, besides those of the training. (34 decides which random canaries are included.)
PROBE_STREAM, COIN_STREAM, DIRECTION_STREAM, JOINING_STREAM = 31, 32, 33, 35
GOOD = 0.01  # the loss of a canary that needs no crafting: a cosine of 0.1 with what others send
OUTSIDE = 32  # mock parties that no canary was crafted against, to see how far it stands out from others
IN_MEMORY = 2**29  # bytes of mock updates; more are kept in a file
ALIKE = 6.0  # two random directions have a cosine beyond so many standard deviations once in a billion times


# ------------------------------------------------------------------ crafted canaries


@dataclass(frozen=True, kw_only=True)
class Design:
    """What the auditor needs to craft canaries: public data, and how parties train.

    `mocks` mock parties of `size` records each. `clip`: the norm to which updates are clipped; None: they are not.
    """

    pool: Records
    mocks: int
    size: int
    training: Training
    clip: float | None
    recipe: CraftingRecipe
    seed: int
    gradient: Gradient | None = None  # a defence inside the parties, which then also trains the mock parties

    def trained(self, task: TorchTask, model: State, records: Records, rng: np.random.Generator) -> State:
        if self.gradient is not None:
            return self.gradient(task, model, records, self.training, rng).state
        return task.train(model, records, self.training, rng).state

    def sent(self, task: TorchTask, model: State, records: Records, rng: np.random.Generator) -> Floats:
        """What a party with these records sends: the clipped change, as a descent direction."""
        change = difference(model, self.trained(task, model, records, rng))
        return -flat(clipped(change, self.clip) if self.clip else change, task.architecture)

    def reach(self, scale: float) -> float:
        """How long a gradient must be: as asked, or so that the update reaches the clip norm. Adam's steps do not
        depend on it."""
        if self.recipe.reach is not None:
            return self.recipe.reach
        steps = self.training.lr * self.training.epochs
        return scale / steps if self.training.optimizer == "sgd" else scale


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Canaries for one model: their records, what each sends, and how good they are.

    `norm`: in units of the clip norm or, where nothing is clipped, of the median mock update. `spread`: the standard
    deviation of <u_i, u_c> / unit^2 over mock parties that the canary was not crafted against. `health`: how much of
    the canary's loss crafting removed, 1 - loss after / before.
    """

    records: Records
    updates: Floats  # canaries x parameters: descent directions
    unit: Floats  # the clip norm, or each canary's own norm
    norm: Floats
    health: Floats
    spread: Floats
    seconds: float  # that crafting took


class Canaries:
    """Crafts canaries for a model, and remembers those of the last one: many probes start from the same model."""

    def __init__(self, design: Design):
        self.design = design
        self._last: tuple[str, Planted] | None = None

    @property
    def names(self) -> list[str]:
        return [f"canary-{number}" for number in range(self.design.recipe.count)]

    def at(self, task: TorchTask, model: State) -> Planted:
        key = _digest(model)
        if self._last is None or self._last[0] != key:
            self._last = key, self._plant(task, model, np.random.default_rng([self.design.seed, int(key[:15], 16)]))
        return self._last[1]

    def _plant(self, task: TorchTask, model: State, rng: np.random.Generator) -> Planted:
        design, started = self.design, time.perf_counter()
        rows = rng.permutation(len(design.pool))
        cut = max(1, len(rows) * 2 // 3)
        known, others = design.pool.take(rows[:cut]), design.pool.take(rows[cut:])
        mocks = _mock_updates(task, model, design, known, design.mocks, rng)
        scale = design.clip or float(np.median([np.linalg.norm(mock) for mock in mocks]))
        mocks /= scale
        made = craft(task, model, mocks, design.reach(scale), known, design.recipe, rng)
        each = [made.records.take(np.array([i])) for i in range(len(made.records))]
        updates = np.stack([design.sent(task, model, one, rng) for one in each])
        norms = np.linalg.norm(updates, axis=1)
        unit = np.full(len(each), design.clip) if design.clip else np.maximum(norms, 1e-12)
        outside = _mock_updates(task, model, design, others if len(others) else known, OUTSIDE, rng)
        spread = (np.stack([updates @ mock for mock in outside]) / unit**2).std(axis=0)
        health = 1 - made.after / np.maximum(made.before, GOOD)
        seconds = time.perf_counter() - started
        return Planted(
            records=made.records,
            updates=updates,
            unit=unit,
            norm=norms / scale,
            health=health,
            spread=spread,
            seconds=seconds,
        )


def _mock_updates(
    task: TorchTask, model: State, design: Design, pool: Records, count: int, rng: np.random.Generator
) -> Singles:
    dealt = deal(len(pool), min(design.size, len(pool)), count, rng)
    found = room(len(dealt), sum(task.architecture.get_parameter(name).numel() for name in task.exchanged))
    for mock, rows in zip(found, dealt, strict=True):
        mock[:] = design.sent(task, model, pool.take(np.sort(rows)), rng)
    return found


def room(rows: int, size: int) -> Singles:
    """For mock updates: in memory, or in a file where they are many and long. A step of crafting looks at a few."""
    if 4 * rows * size <= IN_MEMORY:
        return np.empty((rows, size), np.float32)
    with TemporaryFile() as file:  # it goes when the array does
        return np.memmap(file, np.float32, "w+", shape=(rows, size))


def deal(records: int, size: int, count: int, rng: np.random.Generator) -> Ints:
    """Which records each of `count` mock parties gets. They are dealt like cards: as long as a deck of all records
    lasts, no record comes twice; then a new deck is shuffled."""
    hands = records // size
    decks = [rng.permutation(records)[: hands * size].reshape(hands, size) for _ in range(-(-count // hands))]
    return np.concatenate(decks)[:count]


@dataclass(frozen=True)
class CanaryParty:
    """A party with one crafted record, which is made for the model that arrives."""

    name: str
    number: int
    canaries: Canaries
    planted: ClassVar[bool] = True  # by the auditor: the others train as without it

    def update(self, task: TorchTask, model: State, rng: np.random.Generator) -> Trained:
        planted, design = self.canaries.at(task, model), self.canaries.design
        state = design.trained(task, model, planted.records.take(np.array([self.number])), rng)
        return Trained(state, 1, 0.0)


# ------------------------------------------------------------------ random canaries


def directions(seeds: Sequence[int], size: int) -> Floats:
    """One unit vector for each seed; canaries must differ, so no seed may occur twice."""
    if len(set(seeds)) < len(seeds):
        what = f"{len(seeds)} random canaries have only {len(set(seeds))} seeds"
        raise FedauditError("canary-seed", what, "Give every canary a seed of its own.")
    drawn = np.empty((len(seeds), size))  # one array of this size and no second: canaries times parameters are many
    for row, seed in zip(drawn, seeds, strict=True):
        np.random.default_rng([DIRECTION_STREAM, seed]).standard_normal(out=row)
        row /= np.linalg.norm(row[None], axis=1)  # a vector alone is summed in another order
    return drawn


def check_directions(units: Floats) -> None:
    """Random canaries have norm 1, and in high dimension they are nearly orthogonal."""
    norms = np.array([np.linalg.norm(unit) for unit in units])
    wrong = np.flatnonzero(~(np.abs(norms - 1) < 1e-4))
    if len(wrong):
        what = f"random canary {wrong[0]} has norm {norms[wrong[0]]:.4g} where 1 is needed"
        raise FedauditError("canary-norm", what, "Divide each canary by its norm.")
    cosine = units @ units.T
    np.fill_diagonal(cosine, 0.0)
    if np.abs(cosine).max(initial=0.0) > ALIKE / np.sqrt(units.shape[1]):
        first, second = np.unravel_index(np.abs(cosine).argmax(), cosine.shape)
        what = f"random canaries {first} and {second} have cosine {cosine[first, second]:.3g}: they are not independent"
        raise FedauditError("canary-seed", what, "Draw each from a seed of its own; a seed was used twice.")


@dataclass(frozen=True)
class RandomParty:
    """A party that sends one fixed direction of the clip norm, whatever arrives."""

    name: str
    seed: int
    clip: float
    planted: ClassVar[bool] = True

    def direction(self, model: State) -> Floats:
        return np.asarray(directions([self.seed], parameter_count(model))[0])

    def update(self, task: Any, model: State, rng: np.random.Generator) -> Trained:
        unit, sent, begin = self.direction(model), dict(model), 0
        for name in float_names(model):
            part = unit[begin : begin + model[name].size].reshape(model[name].shape)
            sent[name] = (model[name] - self.clip * part).astype(model[name].dtype)
            begin += model[name].size
        return Trained(sent, 1, 0.0)


def _digest(model: State) -> str:
    found = hashlib.sha256()
    for name in sorted(model):
        found.update(name.encode())
        found.update(np.ascontiguousarray(model[name]).tobytes())
    return found.hexdigest()


# ------------------------------------------------------------------ who is present when


@dataclass(frozen=True)
class Schedule:
    """Plans with canaries in them, and the truth: which canaries are present at each moment that is looked at."""

    plans: list[Plan]
    present: Mapping[Moment, Bools]


@dataclass(frozen=True)
class Probing:
    """How the parties of a probe are drawn: as for a round."""

    parties: Sequence[str]
    participation: float
    sampling: Sampling
    seed: int


def with_probes(rounds: Sequence[Plan], canaries: Sequence[str], probes: int, every: int, how: Probing) -> Schedule:
    """After each `every` rounds, `probes` probes of the model as it is then; each canary is present at half of them."""
    stops = len(rounds) // every
    drawn = sampled(how.parties, stops * probes, how.participation, how.sampling, how.seed, PROBE_STREAM)
    rng = np.random.default_rng([how.seed, COIN_STREAM])
    half = np.arange(probes) % 2 == 0
    made: list[Plan] = []
    coins: list[Bools] = []
    for number, plan in enumerate(rounds, start=1):
        made.append(plan)
        if number % every:
            continue
        present = np.stack([rng.permutation(half) for _ in canaries], axis=1)
        for row in present:
            joined = (*drawn[len(coins)].parties, *np.array(canaries)[row].tolist())
            made.append(Plan(joined, commit=False))
            coins.append(row)
    probed = [moment for moment, plan in scheduled(made) if not plan.commit]
    return Schedule(made, dict(zip(probed, coins, strict=True)))


def running(rounds: Sequence[Plan], canaries: Sequence[str], seed: int) -> Schedule:
    """In every round a fair coin decides about each canary. What they do is seen as a probe, before the round is
    committed without them."""
    rng = np.random.default_rng([seed, COIN_STREAM])
    present = rng.random((len(rounds), len(canaries))) < 0.5
    plans = [
        replace(plan, canaries=tuple(np.array(canaries)[row].tolist()))
        for plan, row in zip(rounds, present, strict=True)
    ]
    return Schedule(plans, {Moment(number, 1): row for number, row in enumerate(present)})


def with_random(rounds: Sequence[Plan], canaries: Sequence[str], how: Probing) -> list[Plan]:
    """Random canaries that were included take part in the rounds as often as parties do."""
    if not canaries:
        return list(rounds)
    joining = sampled(canaries, len(rounds), how.participation, "poisson", how.seed, JOINING_STREAM)
    return [
        replace(plan, parties=(*plan.parties, *more.parties)) if plan.commit else plan
        for plan, more in zip(rounds, joining, strict=True)
    ]
