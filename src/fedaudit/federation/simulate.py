"""Federated averaging in one process: the plain loop. Rounds come out as they happen; nothing is kept here."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedaudit.defences.slots import NONE, Defence
from fedaudit.federation import at_once
from fedaudit.federation.sampling import START, scheduled
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.types import Moment, Party, Plan, Records, Round, State, Trained


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
) -> Iterator[Round]:
    """Broadcast, train, average: one `Round` for each plan, from round 1, or from `model` as it was `after` a moment.

    A round holds what was sent, after defences. A round without parties commits nothing, unless the server adds noise,
    which it does in every round. A probe is trained like a round, but the model stays as it was. A round with canaries
    is yielded twice: first as a probe with them, then without them, as the round that is kept.
    """
    work = Work(task, {party.name: party for party in parties}, stackable(task, parties), seed)
    model = task.initial(seed) if model is None else model
    for moment, plan in scheduled(plans, after):
        sent_out = model if plan.broadcast is None else plan.broadcast
        sent = work.train(sent_out, plan.parties, moment)
        if plan.canaries is not None and (probe := Moment(moment.round - 1, 1)) > after:
            everybody = sent | work.train(sent_out, plan.canaries, probe)
            if everybody or defence.aggregate:  # with the noise of the round that is kept
                seen = exchanged(moment, plan, sent_out, everybody, seed, defence)
                yield replace(seen, index=probe.round, commit=False, probe=probe.probe)
        if not plan.parties and not defence.aggregate:
            yield Round(moment.round, sent_out, {}, sent_out, commit=False, probe=moment.probe)
            continue
        round = exchanged(moment, plan, sent_out, sent, seed, defence)
        yield round
        model = round.aggregate if plan.commit else model


def exchanged(
    moment: Moment, plan: Plan, sent_out: State, sent: Mapping[str, Trained], seed: int, defence: Defence
) -> Round:
    """The round that follows from what the parties trained: defences act, and the server takes the mean."""
    if leave := defence.update:
        sent = {n: leave(sent_out, one, party_rng(seed, moment, f"{n}/update")) for n, one in sent.items()}
    at_server = party_rng(seed, moment, "/aggregate")
    aggregate = defence.aggregate(sent_out, sent, at_server) if defence.aggregate else average(sent)
    return Round(moment.round, sent_out, dict(sent), aggregate, plan.commit, moment.probe)


@dataclass(frozen=True)
class Work:
    """Parties train. The same moment gives the same result."""

    task: TorchTask
    parties: Mapping[str, Party]
    together: Mapping[str, Trainer]
    seed: int

    def train(self, model: State, names: Sequence[str], moment: Moment) -> dict[str, Trained]:
        rngs = {name: party_rng(self.seed, moment, name) for name in names}
        jobs = [at_once.Job(n, self.together[n].records, rng, model) for n, rng in rngs.items() if n in self.together]
        done: dict[str, Trained] = {}
        if jobs:
            made = at_once.train(self.task, jobs, self.together[jobs[0].name].training)
            done = {job.name: one for job, one in zip(jobs, made, strict=True)}
        return {
            name: done[name] if name in done else self.parties[name].update(self.task, model, rng)
            for name, rng in rngs.items()
        }


def stackable(task: TorchTask, parties: Sequence[Party]) -> dict[str, Trainer]:
    """The parties by name if they can be trained at once: all honest and alike, enough of them, and a small MLP.
    Otherwise empty. Canaries are ignored, so that the others train in the same way with and without them."""
    others = [p for p in parties if not getattr(p, "planted", False)]
    trainers = {p.name: p for p in others if type(p) is Trainer and not p.training.weight_decay}
    alike = len(trainers) == len(others) and len({p.training for p in trainers.values()}) == 1
    return trainers if alike and at_once.worthwhile(task, len(others)) else {}


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
