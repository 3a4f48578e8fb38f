"""The federations of a scaled study, one round of all: stacked, against one party after another.

Federations of ten parties as in the study of subject membership. Small: 50 features and one hidden layer of 32, parties
of 50 records in batches of 10. Medium: 250 features, 256-64-16. Ours is what a study does: all federations of a group
are one stack of models. The peer trains each party with the plain loop of `fedaudit run`, one thread, as ours has; on
two cores a study runs a group on each, which this does not count.

Training only: what the audits cost is the same either way.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.measuring import interleaved, verdict
from fedaudit.federation.simulate import Trainer, average, party_rng
from fedaudit.federation.together import World, federate_together
from fedaudit.learn.models.mlp import mlp
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.types import Moment, Party, Plan, Records

FEDERATIONS, PARTIES = 16, 10
CASES: dict[str, tuple[int, tuple[int, ...], int, int, float]] = {
    "small": (50, (32,), 50, 10, 10.0),
    "medium": (250, (256, 64, 16), 50, 10, 6.0),
}


def run() -> dict[str, Any]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    cases = {title: interleaved(*ways(*case[:4]), goal=case[4]) for title, case in CASES.items()}
    torch.set_num_threads(before)
    return verdict("study", "higher", cases, federations=FEDERATIONS, parties=PARTIES)


def ways(
    features: int, hidden: tuple[int, ...], records: int, batch: int
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    worlds = [world(features, hidden, records, batch, seed) for seed in range(FEDERATIONS)]

    def one_after_another() -> None:
        for each in worlds:
            model = each.task.initial(each.seed)
            trainers = each.trainers()
            moment = Moment(1)
            average({n: p.update(each.task, model, party_rng(each.seed, moment, n)) for n, p in trainers.items()})

    return one_after_another, lambda: list(federate_together(worlds))


def world(features: int, hidden: tuple[int, ...], records: int, batch: int, seed: int) -> World:
    rng = np.random.default_rng(seed)
    training = Training("adam", 1e-3, 1, batch)
    parties: list[Party] = []
    for number in range(PARTIES):
        x = rng.normal(size=(records, features)).astype(np.float32)
        y = np.count_nonzero(x >= 0, axis=1) % 2
        parties.append(Trainer(f"p{number}", Records(x, y, np.arange(records).astype(np.str_)), training))
    task = TorchTask(lambda: mlp((features,), 2, hidden), 2)
    return World(task, parties, [Plan(tuple(party.name for party in parties))], seed)
