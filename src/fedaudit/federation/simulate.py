"""Federated averaging in one process: the plain loop. Rounds come out as they happen; nothing is kept here."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedaudit.tasks import TorchTask, Training
from fedaudit.types import Party, Plan, Records, Round, State, Trained


@dataclass(frozen=True)
class Trainer:
    """An honest party: trains on its own records and sends its model.

    Given as a function, the records are fetched when it takes part and not kept, so that a federation of which few take
    part holds the records of few.
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
    after: int = 0,
    model: State | None = None,
) -> Iterator[Round]:
    """Broadcast, train, average: one `Round` for each plan, from round 1, or from `model` as it was `after` a round.

    A round without parties commits nothing.
    """
    by_name = {party.name: party for party in parties}
    model = task.initial(seed) if model is None else model
    for index, plan in enumerate(plans[after:], start=after + 1):
        if not plan.parties:
            yield Round(index, model, {}, model, commit=False)
            continue
        sent = {name: by_name[name].update(task, model, party_rng(seed, index, name)) for name in plan.parties}
        aggregate = average(sent)
        yield Round(index, model, sent, aggregate, plan.commit)
        model = aggregate if plan.commit else model


def average(sent: Mapping[str, Trained]) -> State:
    """The mean of the models, weighted by examples, in name order and float64, so that delivery order cannot matter."""
    names = sorted(sent)
    total = sum(sent[name].examples for name in names)
    mean: dict[str, np.ndarray] = {}
    for key, first in sent[names[0]].state.items():
        value = np.zeros(first.shape)
        for name in names:
            value += sent[name].state[key].astype(np.float64) * (sent[name].examples / total)
        # A counter must not lose one to rounding: 0.99999 of five batches are five.
        mean[key] = np.asarray(value if first.dtype.kind == "f" else np.rint(value), dtype=first.dtype)
    return mean


def party_rng(seed: int, round: int, party: str) -> np.random.Generator:
    """Randomness of one party in one round: independent of who else takes part."""
    return np.random.default_rng([seed, round, zlib.crc32(party.encode())])
