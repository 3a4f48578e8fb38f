"""`fedaudit verify`: is a claim of differential privacy kept? Checked on a configuration (by probing its mechanism and
by a few rounds of training) or on a recorded trace, fedaudit's own or somebody else's."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.config.schema import Config, load_config
from fedaudit.errors import FedauditError
from fedaudit.privacy.accounting import promise_from, stated
from fedaudit.privacy.statement import Promise, Statement
from fedaudit.results import document as results
from fedaudit.session.recording import config_of
from fedaudit.session.verify.checks import Check, check
from fedaudit.session.verify.claim import Claim, Declared, claimed_by, read_claim
from fedaudit.session.verify.evidence import Observations, from_branches, from_probe, from_trace
from fedaudit.trace.journal import vouched
from fedaudit.trace.segments import DamagedError
from fedaudit.trace.store import RUN, Store
from fedaudit.types import Notice, Round, State, gap
from fedaudit.words import all_words

__all__ = ["Check", "Claim", "CountingTask", "Declared", "check", "from_trace", "verify", "verify_rounds"]

PROBED = 64  # records of one party on which the mechanism is tried
TRAINED = 3  # rounds trained to look at a configuration


def verify(path: Path, declared: Path | None, overrides: Iterable[str] = ()) -> list[Check]:
    """A folder holds a trace, anything else is a configuration. Every claim that is made is checked."""
    if path.is_dir() and not (path / RUN).is_file():
        raise FedauditError("no-trace", f"there is no {RUN} in {path}", "Give a folder that `fedaudit run` wrote.")
    if path.is_dir() and list(overrides):
        raise FedauditError("verify-set", f"{path} is a recorded run: its settings cannot be changed", "Remove --set.")
    if path.is_dir():
        return _verify_run(path, declared)
    if declared:
        raise FedauditError(
            "verify-claim",
            f"{path} is a configuration: its claim is what its defences promise, not what {declared} says",
            'Remove --claim, or run it with audit.keep = "snapshots" and give the folder of that run.',
        )
    return _verify_config(load_config(path, overrides))


def verify_rounds(declared: Declared, rounds: Iterable[Round]) -> list[Check]:
    """Any trace: rounds as they were exchanged, and what is said about them."""
    seen = from_trace(Claim(declared, 0), rounds)
    return check(Claim(declared, seen.rounds), seen)


def _verify_run(path: Path, declared: Path | None) -> list[Check]:
    """All released rounds count, also those on abandoned branches."""
    store = Store.read(path)
    entries = [entry for _, entry in sorted(store.lineage.entries.items())]
    done = sum(1 for entry in entries if entry.commit)
    if not done:
        what = f"{path} has no recorded rounds, so nothing can be said about what they spent"
        raise FedauditError("no-rounds", what, "Give a run that was trained, with its journal.")
    newest, lost = store.entries(), all_words(lacking(store))
    left = [f"round {e.round} of branch {e.branch}" for e in entries if e.commit and e not in newest]

    def rounds() -> Iterator[tuple[int, Round]]:
        for entry in entries:
            if entry.kept:
                try:
                    found = store.round(entry)
                except DamagedError as error:
                    lost.append(f"Round {entry.round}: {error}.")
                else:
                    yield entry.branch, found

    claims = [read_claim(declared, done)] if declared else _own_claims(store, path, done)
    found = []
    for claim in claims:
        seen = from_branches(claim, rounds())
        found += check(claim, replace(seen, abandoned=left, lost=list(dict.fromkeys(lost))))
    return found


def lacking(store: Store) -> list[Notice]:
    """Why the trace may not hold every round that was done. The first version sealed no files."""
    found, results_file = store.incomplete(), store.directory / results.RESULTS
    if results_file.is_file() and vouched(store.directory / RUN) and not vouched(results_file):
        found.append(gap("results-unlisted"))
    return found


def _own_claims(store: Store, path: Path, done: int) -> list[Claim]:
    """What results.json states about the noise in run.json; before there are results, what they would state."""
    promises = tuple(promise_from(plain) for plain in store.manifest.get("guarantee") or ())
    said = results.load(path).run.guarantee if (path / results.RESULTS).is_file() else None
    return _claims(config_of(store.manifest, path), promises, said or stated(promises, done), done)


def _claims(config: Config, promises: tuple[Promise, ...], said: Statement | None, done: int) -> list[Claim]:
    if not promises or said is None:
        what = "no defence of this configuration promises differential privacy" if not promises else "no round was done"
        raise FedauditError(
            "no-claim", what, "Add a defence that does, such as dp-sgd, or give --claim with a recorded run."
        )
    statements = {one.defence: one for one in (said, *said.further)}
    return [claimed_by(config, promise, statements.get(promise.defence), done) for promise in promises]


def _verify_config(config: Config) -> list[Check]:
    """A few rounds are trained, and a mechanism inside the party is tried on a few records."""
    from fedaudit.session.engines import rounds
    from fedaudit.session.prepare import prepare

    prepared = prepare(config)
    planned = config.federation.rounds
    claims = _claims(config, prepared.promises, stated(prepared.promises, planned), planned)
    trained = list(islice(rounds(prepared), TRAINED))
    found = []
    for claim in claims:
        seen = from_trace(claim, trained)
        found += check(claim, replace_noise(seen, _probe(claim, prepared)) if claim.said.where == "gradient" else seen)
    return found


def replace_noise(seen: Observations, probe: Observations) -> Observations:
    """What the probe shows of noise and clipping, what the trace shows of everything else."""
    return replace(probe, uncovered=seen.uncovered, present=seen.present, rounds=seen.rounds, fits=seen.fits)


def _probe(claim: Claim, prepared: Any) -> Observations:
    from fedaudit.learn.tasks import Training

    party, gradient = prepared.parties[0], prepared.defence.gradient
    records = party.source()
    few = records.take(np.arange(min(PROBED, len(records))))
    units = few.id if claim.said.unit == "record" or few.subject is None else few.subject
    state, step = prepared.task.initial(0), Training("sgd", 1.0, 1, len(few))
    found = from_probe(
        claim, state, few, lambda rows, rng: gradient(prepared.task, state, rows, step, rng), units, step.lr
    )
    watched, quarter = CountingTask(prepared.task), Training("sgd", 1e-6, 10, max(1, len(few) // 4))
    gradient(watched, state, few, quarter, np.random.default_rng(0))
    return replace(found, batches=watched.sizes, drawn_from=(len(few), quarter.batch_size / len(few)))


class CountingTask:
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
