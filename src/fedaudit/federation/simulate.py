"""Federated averaging in one process: the plain loop. Rounds come out as they happen; nothing is kept here."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    which it does in every round. A probe is trained like a round, but the model stays as it was.
    """
    by_name = {party.name: party for party in parties}
    together = stackable(task, parties)
    model = task.initial(seed) if model is None else model
    for moment, plan in scheduled(plans, after):
        sent_out = model if plan.broadcast is None else plan.broadcast
        if not plan.parties and not defence.aggregate:
            yield Round(moment.round, sent_out, {}, sent_out, commit=False, probe=moment.probe)
            continue
        rngs = {name: party_rng(seed, moment, name) for name in plan.parties}
        if together:
            jobs = [at_once.Job(name, together[name].records, rng, sent_out) for name, rng in rngs.items()]
            sent = dict(zip(rngs, at_once.train(task, jobs, next(iter(together.values())).training), strict=True))
        else:
            sent = {name: by_name[name].update(task, sent_out, rng) for name, rng in rngs.items()}
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


def stackable(task: TorchTask, parties: Sequence[Party]) -> dict[str, Trainer]:
    """The parties by name where they can be trained at once: honest, alike, enough of them, on a small MLP; or none."""
    trainers = {p.name: p for p in parties if type(p) is Trainer and not p.training.weight_decay}
    alike = len(trainers) == len(parties) and len({p.training for p in trainers.values()}) == 1
    return trainers if alike and at_once.worthwhile(task, len(parties)) else {}


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
