"""Federated averaging in one process: the plain loop. Rounds come out as they happen; nothing is kept here."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedaudit.defences.slots import NONE, Defence
from fedaudit.federation import at_once
from fedaudit.federation.canary import CanaryParty, RandomParty
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
    is yielded twice: as a probe with them, and without them, as it is kept.
    """
    work = Work(task, {party.name: party for party in parties}, stackable(task, parties), seed, defence)
    model = task.initial(seed) if model is None else model
    for moment, plan in scheduled(plans, after):
        sent_out = model if plan.broadcast is None else plan.broadcast
        sent = work.train(sent_out, plan.parties, moment)
        seen_before = Moment(moment.round - 1, 1)
        if plan.canaries is not None and seen_before > after:
            beside = work.train(sent_out, plan.canaries, seen_before)
            summed = work.aggregate(sent_out, sent | beside, moment)  # the noise of the round that is kept
            yield Round(seen_before.round, sent_out, sent | beside, summed, commit=False, probe=1)
        if not plan.parties and not defence.aggregate:
            yield Round(moment.round, sent_out, {}, sent_out, commit=False, probe=moment.probe)
            continue
        aggregate = work.aggregate(sent_out, sent, moment)
        yield Round(moment.round, sent_out, sent, aggregate, plan.commit, moment.probe)
        model = aggregate if plan.commit else model


@dataclass(frozen=True)
class Work:
    """What is done at one moment: parties train, and the server aggregates. The same moment gives the same result."""

    task: TorchTask
    parties: Mapping[str, Party]
    together: Mapping[str, Trainer]
    seed: int
    defence: Defence

    def train(self, model: State, names: Sequence[str], moment: Moment) -> dict[str, Trained]:
        rngs = {name: party_rng(self.seed, moment, name) for name in names}
        jobs = [at_once.Job(n, self.together[n].records, rng) for n, rng in rngs.items() if n in self.together]
        done = at_once.train(self.task, model, jobs, self.together[jobs[0].name].training) if jobs else {}
        sent = {
            name: done[name] if name in done else self.parties[name].update(self.task, model, rng)
            for name, rng in rngs.items()
        }
        if leave := self.defence.update:
            sent = {n: leave(model, one, party_rng(self.seed, moment, f"{n}/update")) for n, one in sent.items()}
        return sent

    def aggregate(self, model: State, sent: Mapping[str, Trained], moment: Moment) -> State:
        if self.defence.aggregate:
            return self.defence.aggregate(model, sent, party_rng(self.seed, moment, "/aggregate"))
        return average(sent) if sent else model


def stackable(task: TorchTask, parties: Sequence[Party]) -> dict[str, Trainer]:
    """The parties by name where they can be trained at once: honest, alike, enough of them, on a small MLP; or none.
    Canaries do not count: with them and without them the others train in the same way."""
    others = [p for p in parties if not isinstance(p, CanaryParty | RandomParty)]
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
