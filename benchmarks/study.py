"""The federations of a scaled study, one round of all: stacked, against one party after another.

Federations of ten parties as in the study of subject membership. Small: 50 features and one hidden layer of 32, parties
of 50 records in batches of 10. Medium: 250 features, 256-64-16. Ours is what a process of a study does: all federations
of its group are one stack of models. The peer trains one party after another with the plain loop of `fedaudit run`.
Both have one thread. A study also has a process for each core; what that brings is in the detail, not in the verdict.

Training only: what the audits cost is the same either way.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

from benchmarks.measuring import interleaved, verdict
from fedaudit.federation.simulate import Trainer, World, average, federate_together, party_rng
from fedaudit.learn.models.mlp import mlp
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.types import Moment, Party, Plan, Records

FEDERATIONS, PARTIES = 16, 10
Kind = tuple[int, tuple[int, ...], int, int]  # features, hidden layers, records, batch
CASES: dict[str, tuple[Kind, float]] = {
    "small": ((50, (32,), 50, 10), 10.0),
    "medium": ((250, (256, 64, 16), 50, 10), 6.0),
}
WORLDS: dict[str, list[World]] = {}  # of this process


def run() -> dict[str, Any]:
    before, cores = torch.get_num_threads(), os.cpu_count() or 1
    torch.set_num_threads(1)
    cases, on_all = {}, {}
    with ProcessPoolExecutor(cores, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for title, (_, goal) in CASES.items():
            cases[title] = interleaved(partial(one_after_another, title, 1), partial(stacked, title), goal)
            study = partial(in_all, pool, title, cores)
            on_all[title] = round(interleaved(partial(one_after_another, title, cores), study, goal).ratio, 2)
    torch.set_num_threads(before)
    return verdict("study", "higher", cases, federations=FEDERATIONS, parties=PARTIES, cores=cores, on_all_cores=on_all)


def worlds(title: str) -> list[World]:
    """One group of federations, made once in each process."""
    if title not in WORLDS:
        WORLDS[title] = [world(*CASES[title][0], seed) for seed in range(FEDERATIONS)]
    return WORLDS[title]


def in_all(pool: ProcessPoolExecutor, title: str, cores: int) -> None:
    list(pool.map(stacked, [title] * cores))


def stacked(title: str) -> None:
    for _ in federate_together(worlds(title)):
        pass


def one_after_another(title: str, groups: int) -> None:
    for each in worlds(title) * groups:
        model = each.task.initial(each.seed)
        trainers = each.trainers
        moment = Moment(1)
        average({n: p.update(each.task, model, party_rng(each.seed, moment, n)) for n, p in trainers.items()})


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
