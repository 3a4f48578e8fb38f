"""Federated averaging in one process. Rounds come out as they happen; nothing is kept here.

Parties train one after the other, or, where they are many and their model is a small fully connected one, at once.
Which of the two follows from the configuration alone (docs/decisions/0002-speed.md), so a resumed run takes the same
one. A study's cells go further: the parties of several federations are one stack.
"""

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from fedaudit.defences.shared import NONE, Defence
from fedaudit.federation import START, scheduled
from fedaudit.learn.many import Batch, Stacked, linear_layers
from fedaudit.learn.tasks import TorchTask, Training, tensor, tensors
from fedaudit.types import Moment, Party, Plan, Records, Round, ServerStep, State, Trained


@dataclass(frozen=True)
class Trainer:
    """An honest party: trains on its own records and sends its model.

    If the records are given as a function, they are fetched when the party takes part and not kept, to save memory.
    """

    name: str
    source: Records | Callable[[], Records]
    training: Training

    @property
    def records(self) -> Records:
        return self.source() if callable(self.source) else self.source

    def update(self, task: TorchTask, model: State, rng: np.random.Generator) -> Trained:
        return task.train(model, self.records, self.training, rng)


def federate(
    task: TorchTask,
    parties: Sequence[Party],
    plans: Sequence[Plan],
    seed: int,
    after: Moment = START,
    model: State | None = None,
    defence: Defence = NONE,
    server_lr: float = 1.0,
) -> Iterator[Round]:
    """Broadcast, train, average: one `Round` for each plan, from round 1, or from `model` as it was `after` a moment.

    A round holds what was sent, after defences. A round without parties commits nothing, unless the server adds noise,
    which it does in every round. A probe is trained like a round, but the model stays as it was. A round with canaries
    is yielded twice: first as a probe with them, then without them, as the round that is kept. `server_lr`: how much of
    the mean update is added to the model.
    """
    step = ServerStep(server_lr, task.exchanged)
    work = _Work(task, {party.name: party for party in parties}, stackable(task, parties), seed)
    model = task.initial(seed) if model is None else model
    for moment, plan in scheduled(plans, after):
        sent_out = plan.sent_out(model)
        sent = work.train(sent_out, plan.parties, moment)
        if plan.canaries is not None and (probe := Moment(moment.round - 1, 1)) > after:
            everybody = sent | work.train(sent_out, plan.canaries, probe)
            if everybody or defence.aggregate:  # with the noise of the round that is kept
                seen = exchanged(moment, plan, sent_out, everybody, seed, defence, step)
                yield replace(seen, index=probe.round, commit=False, probe=probe.probe)
        if not plan.parties and not defence.aggregate:
            yield Round(moment.round, sent_out, {}, sent_out, commit=False, probe=moment.probe)
            continue
        round = exchanged(moment, plan, sent_out, sent, seed, defence, step)
        yield round
        model = round.aggregate if plan.commit else model


def exchanged(
    moment: Moment,
    plan: Plan,
    sent_out: State,
    sent: Mapping[str, Trained],
    seed: int,
    defence: Defence,
    step: ServerStep,
) -> Round:
    """The round that follows from what the parties trained: defences act, and the server takes a step to the mean."""
    if leave := defence.update:
        sent = {n: leave(sent_out, one, party_rng(seed, moment, f"{n}/update")) for n, one in sent.items()}
    at_server = party_rng(seed, moment, "/aggregate")
    aggregate = defence.aggregate(sent_out, sent, at_server) if defence.aggregate else average(sent)
    aggregate = step.towards(aggregate, sent_out)
    return Round(moment.round, sent_out, dict(sent), aggregate, commit=plan.commit, probe=moment.probe)


@dataclass(frozen=True)
class _Work:
    """Parties train. The same moment gives the same result."""

    task: TorchTask
    parties: Mapping[str, Party]
    together: Mapping[str, Trainer]
    seed: int

    def train(self, model: State, names: Sequence[str], moment: Moment) -> dict[str, Trained]:
        rngs = {name: party_rng(self.seed, moment, name) for name in names}
        jobs = [Job(n, self.together[n].records, rng, model) for n, rng in rngs.items() if n in self.together]
        done: dict[str, Trained] = {}
        if jobs:
            made = train_at_once(self.task, jobs, self.together[jobs[0].name].training)
            done = {job.name: one for job, one in zip(jobs, made, strict=True)}
        return {
            name: done[name] if name in done else self.parties[name].update(self.task, model, rng)
            for name, rng in rngs.items()
        }


def stackable(task: TorchTask, parties: Sequence[Party]) -> dict[str, Trainer]:
    """The parties by name if they are trained at once. Small federations are not, although they would gain a little.
    Canaries are ignored, so that the others train in the same way with and without them."""
    others = [party for party in parties if not getattr(party, "planted", False)]
    return _trainers(task, others) if len(others) >= MIN_PARTIES else {}


def _trainers(task: TorchTask, parties: Sequence[Party]) -> dict[str, Trainer]:
    """The parties by name if they can be stacked: all honest and alike, and a small MLP. Otherwise empty."""
    trainers = {p.name: p for p in parties if type(p) is Trainer and not p.training.weight_decay}
    alike = len(trainers) == len(parties) and len({p.training for p in trainers.values()}) == 1
    known = type(task) is TorchTask and linear_layers(task.architecture) is not None
    small = sum(p.numel() for p in task.architecture.parameters()) <= MAX_PARAMETERS
    return trainers if alike and known and small else {}


def average(sent: Mapping[str, Trained]) -> State:
    """The mean of the models, weighted by examples, in name order and float64, so that delivery order cannot matter."""
    names = sorted(sent)
    total = sum(sent[name].examples for name in names)
    mean: dict[str, np.ndarray] = {}
    for key, first in sent[names[0]].state.items():
        added, part = np.zeros(first.shape), np.empty(first.shape)
        for name in names:
            added += np.multiply(sent[name].state[key], sent[name].examples / total, out=part, dtype=np.float64)
        # Counters are rounded: 4.9999 batches are five.
        mean[key] = np.asarray(added if first.dtype.kind == "f" else np.rint(added), dtype=first.dtype)
    return mean


def party_rng(seed: int, moment: Moment, party: str) -> np.random.Generator:
    """Randomness of one party at one moment: independent of who else takes part."""
    who = zlib.crc32(party.encode())
    return np.random.default_rng([seed, moment.round, who, *([moment.probe] if moment.probe else [])])


# ------------------------------------------------------------------ many small parties at once
#
# 1. Each party draws from its own generator exactly what `TorchTask.train` would draw.
# 2. Parties are ordered by their number of steps. Those still training are then always the first ones and have all made
#    the same number of steps; those who are done are no longer in the batch.
# 3. A party's last batch may be short: it is filled up with one of its own rows, whose gradient is weighted with zero.

MIN_PARTIES = 8
MAX_PARAMETERS = 500_000
# Weights (with Adam also two moments and a gradient) of the parties trained together: the fewer the chunks, the fewer
# the calls, as long as the processor's cache holds one.
CHUNK_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Job:
    """One party in one round, and the model that it begins with."""

    name: str
    records: Records
    rng: np.random.Generator
    model: State


def train_at_once(task: TorchTask, jobs: Sequence[Job], training: Training) -> list[Trained]:
    """What every party sends after training, as `task.train` would have it, in the order of the jobs.

    The parties may be those of several federations, as long as their models have the same shape.
    """
    if not jobs:
        return []
    copies = 4 if training.optimizer == "adam" else 1
    bytes_each = copies * sum(value.nbytes for value in jobs[0].model.values())
    chunks = max(1, round(len(jobs) * bytes_each / CHUNK_BYTES))
    ordered = sorted(range(len(jobs)), key=lambda i: (-_steps(len(jobs[i].records), training), jobs[i].name))
    sent: dict[int, Trained] = {}
    for index in np.array_split(np.array(ordered), min(chunks, len(jobs))):
        sent |= zip(index.tolist(), _train_chunk(task, [jobs[i] for i in index], training), strict=True)
    return [sent[i] for i in range(len(jobs))]


def _train_chunk(task: TorchTask, jobs: Sequence[Job], training: Training) -> list[Trained]:
    started = time.perf_counter()
    distinct = {id(job.model): tensors(job.model) for job in jobs}  # parties of one federation begin with one model
    stacked = Stacked(task.architecture, [distinct[id(job.model)] for job in jobs], training, task.classes)
    x = torch.cat([tensor(job.records.x).flatten(1) for job in jobs])
    y = torch.cat([tensor(job.records.y) for job in jobs])
    stacked.train(x, y, _batches(jobs, training, x.dtype))
    seconds = (time.perf_counter() - started) / training.epochs
    total = max(1, sum(len(job.records) for job in jobs))
    return [
        Trained(
            {name: value.numpy() for name, value in state.items()}, len(job.records), seconds * len(job.records) / total
        )
        for job, state in zip(jobs, stacked.states(), strict=True)
    ]


def _steps(records: int, training: Training) -> int:
    return training.epochs * -(-records // training.batch_size)


def _batches(jobs: Sequence[Job], training: Training, dtype: torch.dtype) -> Iterator[Batch]:
    """Every step, for the parties that are still training in it."""
    steps = np.array([_steps(len(job.records), training) for job in jobs])
    width = min(training.batch_size, max(len(job.records) for job in jobs))
    rows = np.zeros((steps[0], len(jobs), width), np.int64)
    weights = np.zeros((steps[0], len(jobs), width))
    offset = 0
    for k, job in enumerate(job for job in jobs if len(job.records)):
        n, each = len(job.records), steps[k] // training.epochs
        full = (each - 1) * width  # the last batch begins here
        order = np.empty(training.epochs * each * width, np.int64)
        by_epoch = order.reshape(training.epochs, each * width)
        job.rng.integers(2**63)  # where the plain loop seeds dropout
        for epoch in by_epoch:
            epoch[:n] = job.rng.permutation(n)
            epoch[n:] = epoch[n - 1]
        rows[: steps[k], k] = order.reshape(-1, width) + offset
        weights[: steps[k], k] = 1 / width
        last = slice(each - 1, steps[k], each)
        weights[last, k, : n - full], weights[last, k, n - full :] = 1 / (n - full), 0
        offset += n
    shares = torch.from_numpy(weights).to(dtype)
    for step, (row, share) in enumerate(zip(torch.from_numpy(rows), shares, strict=True)):
        still = int(np.count_nonzero(steps > step))
        yield Batch(row[:still], share[:still])


# ------------------------------------------------------------------ several federations side by side
#
# A study trains hundreds of federations of ten small models each. Each draws from its own generators, so its rounds are
# those of `federate` except for the last bits. These may depend on what is stacked, so the same federations must always
# be put together.


@dataclass(frozen=True)
class World:
    """One of the federations. None of them has a defence: those with one are trained alone."""

    task: TorchTask
    parties: Sequence[Party]
    plans: Sequence[Plan]
    seed: int
    server_lr: float = 1.0

    @cached_property
    def trainers(self) -> dict[str, Trainer]:
        return _trainers(self.task, self.parties)


def alike(world: World) -> tuple[str, int, Training, int] | None:
    """Worlds for which this is equal can be trained together; None: this one must be trained alone."""
    plain = all(plan.commit and plan.broadcast is None for plan in world.plans)
    if not world.trainers or not plain:
        return None
    training = next(iter(world.trainers.values())).training
    return repr(world.task.architecture), world.task.classes, training, len(world.plans)


def federate_together(worlds: Sequence[World]) -> Iterator[list[Round]]:
    """One round of every world, in their order, until all rounds are made."""
    training = next(iter(worlds[0].trainers.values())).training
    models = [world.task.initial(world.seed) for world in worlds]
    schedule = [list(scheduled(world.plans)) for world in worlds]
    for now in zip(*schedule, strict=True):
        jobs = [
            Job(name, world.trainers[name].records, party_rng(world.seed, moment, name), model)
            for world, model, (moment, plan) in zip(worlds, models, now, strict=True)
            for name in plan.parties
        ]
        sent = iter(train_at_once(worlds[0].task, jobs, training))
        rounds = []
        for world, model, (moment, plan) in zip(worlds, models, now, strict=True):
            own = {name: next(sent) for name in plan.parties}
            if own:
                step = ServerStep(world.server_lr, world.task.exchanged)
                rounds.append(exchanged(moment, plan, model, own, world.seed, NONE, step))
            else:  # nobody took part
                rounds.append(Round(moment.round, model, {}, model, commit=False))
        yield rounds
        models = [round.aggregate for round in rounds]
