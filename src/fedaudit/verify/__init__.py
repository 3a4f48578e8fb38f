"""`fedaudit verify`: is a claim of differential privacy kept? Checked on a configuration (by probing its mechanism and
by a few rounds of training) or on a recorded trace, fedaudit's own or somebody else's."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.accounting import Promise, promise_from, stated
from fedaudit.config import Config, load_config
from fedaudit.errors import FedauditError
from fedaudit.federation.segments import DamagedError
from fedaudit.federation.store import RUN, Store
from fedaudit.recording import config_of
from fedaudit.types import Round, State
from fedaudit.verify.checks import Check, check
from fedaudit.verify.claim import Claim, Declared, claimed_by, read_claim
from fedaudit.verify.evidence import Evidence, from_probe, from_trace

__all__ = ["Check", "Claim", "Declared", "Watched", "check", "from_trace", "verify", "verify_rounds"]

PROBED = 64  # records of one party on which the mechanism is tried
TRAINED = 3  # rounds trained to look at a configuration


def verify(path: Path, declared: Path | None, overrides: Iterable[str] = ()) -> list[Check]:
    """A folder holds a trace, anything else is a configuration."""
    if path.is_dir() and (path / RUN).is_file():
        return _verify_run(path, declared)
    if path.is_dir():
        raise FedauditError("no-trace", f"there is no {RUN} in {path}", "Name a folder that `fedaudit run` left.")
    return _verify_config(load_config(path, overrides))


def verify_rounds(declared: Declared, rounds: Iterable[Round]) -> list[Check]:
    """Any trace: rounds as they were exchanged, and what is said about them."""
    seen = from_trace(Claim(declared, 0), rounds)
    return check(Claim(declared, seen.rounds), seen)


def _verify_run(path: Path, declared: Path | None) -> list[Check]:
    store = Store.read(path)
    done = sum(1 for entry in store.entries() if entry.commit)
    claim = read_claim(declared, done) if declared else _own_claim(store, path, done)
    kept = [entry for entry in store.entries() if entry.kept]

    def rounds() -> Iterator[Round]:
        for entry in kept:
            try:
                yield store.round(entry)
            except DamagedError:
                continue  # a gap

    return check(claim, from_trace(claim, rounds()))


def _own_claim(store: Store, path: Path, done: int) -> Claim:
    promises = tuple(promise_from(plain) for plain in store.manifest.get("guarantee") or ())
    return _claim(config_of(store.manifest, path), promises, done)


def _claim(config: Config, promises: tuple[Promise, ...], done: int) -> Claim:
    return claimed_by(config, promises, stated(promises, done) or {}, done)


def _verify_config(config: Config) -> list[Check]:
    """A few rounds are trained, and a mechanism inside the party is tried on a few records."""
    from fedaudit.run import prepare, rounds

    prepared = prepare(config)
    planned = config.federation.rounds
    claim = _claim(config, prepared.promises, planned)
    seen = from_trace(claim, islice(rounds(prepared), TRAINED))
    if claim.said.where == "gradient":
        probe = _probe(claim, prepared)
        seen = replace_noise(seen, probe)
    return check(claim, seen)


def replace_noise(seen: Evidence, probe: Evidence) -> Evidence:
    """What the probe shows of noise and clipping, what the trace shows of everything else."""
    return replace(probe, uncovered=seen.uncovered, present=seen.present, rounds=seen.rounds)


def _probe(claim: Claim, prepared: Any) -> Evidence:
    from fedaudit.tasks import Training

    party, gradient = prepared.parties[0], prepared.defence.gradient
    records = party.source()
    few = records.take(np.arange(min(PROBED, len(records))))
    units = few.id if claim.said.unit == "record" or few.subject is None else few.subject
    state, step = prepared.task.initial(0), Training("sgd", 1.0, 1, len(few))
    found = from_probe(
        claim, state, few, lambda rows, rng: gradient(prepared.task, state, rows, step, rng), units, step.lr
    )
    watched, quarter = Watched(prepared.task), Training("sgd", 1e-6, 10, max(1, len(few) // 4))
    gradient(watched, state, few, quarter, np.random.default_rng(0))
    return replace(found, batches=watched.sizes, drawn_from=(len(few), quarter.batch_size / len(few)))


class Watched:
    """A task that counts the records of each batch its model is trained on."""

    def __init__(self, task: Any):
        self.task = task
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def fresh(self, state: State) -> Any:
        module = self.task.fresh(state)
        module.register_forward_pre_hook(lambda layer, inputs: self.sizes.append(len(inputs[0])))
        return module
