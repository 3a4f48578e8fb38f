"""From a configuration to a finished run directory. The one place where all layers meet."""

import platform
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit import __version__, attacks, data, results
from fedaudit.audit import Auditor, Settings
from fedaudit.config import Config
from fedaudit.data import partition
from fedaudit.federation.simulate import Trainer, federate
from fedaudit.tasks import TorchTask, Training, build_task
from fedaudit.types import Dataset, Game, Party, Plan, Role, Round

# (what is being done, how many steps) -> a context that gives a function to call after each step
Progress = Callable[[str, int], AbstractContextManager[Callable[[], None]]]


@dataclass(frozen=True)
class Prepared:
    """Everything that can be refused has been refused; training may start."""

    config: Config
    dataset: Dataset
    game: Game
    task: TorchTask
    parties: list[Party]
    settings: Settings
    auditor: Auditor


def prepare(config: Config) -> Prepared:
    federation, audit = config.federation, config.audit
    data.check_name(config.data.name)
    chosen = attacks.choose(audit.attacks, attacks.fuse(audit.fusion.attacks, audit.fusion.weights))
    settings = Settings(
        audit.vantages, chosen, federation.rounds, audit.fpr, audit.confidence, federation.seed, audit.attacks is None
    )
    settings.check()
    dataset = data.load(config.data)
    rng = np.random.default_rng([federation.seed, 0])
    parts = partition.iid(dataset.records, federation.parties, rng)
    game = partition.game(dataset.records, parts, federation.members, federation.nonmembers, rng)
    options = {"hidden": config.model.hidden} if config.model.name == "mlp" else config.model.options
    task = build_task(config.model.name, dataset.input_shape, dataset.classes, options)
    task.check(task.initial(federation.seed), dataset.records)
    training = Training(federation.optimizer, federation.lr, federation.local_epochs, federation.batch_size)
    parties: list[Party] = [Trainer(name, game.members(name), training) for name in game.parties]
    return Prepared(config, dataset, game, task, parties, settings, Auditor(task, game, settings))


def rounds(prepared: Prepared) -> Iterator[Round]:
    everyone = Plan(tuple(party.name for party in prepared.parties))
    plans = [everyone] * prepared.config.federation.rounds
    return federate(prepared.task, prepared.parties, plans, prepared.config.federation.seed)


def run(config: Config, out: Path, progress: Progress) -> dict[str, Any]:
    """Train, audit while training, and leave results.json and scores.parquet in `out`."""
    started = time.perf_counter()
    with progress("Reading the data", 0):
        prepared = prepare(config)
    with progress("Training and auditing", config.federation.rounds) as step:
        try:
            for round in rounds(prepared):
                prepared.auditor.observe(round)
                step()
        except KeyboardInterrupt:
            if prepared.auditor.last_round < 2:
                raise  # nothing to report yet
    with progress("Computing statistics", 0):
        found = prepared.auditor.finish()
        document = results.as_document(found, describe(prepared, out.name, time.perf_counter() - started))
        results.save(document, out)
        results.save_scores(prepared.auditor.score_table(), out)
    return document


def describe(prepared: Prepared, name: str, seconds: float) -> dict[str, Any]:
    """The `run` part of results.json: what anybody needs to judge and to repeat this audit."""
    config, dataset, game = prepared.config, prepared.dataset, prepared.game
    subjects = dataset.records.subject
    counts = {
        party: {role.value: int((game.truth.mask(role) & (game.candidates.party == party)).sum()) for role in Role}
        for party in game.parties
    }
    return {
        "name": name,
        "fedaudit": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "status": "complete" if prepared.auditor.last_round == config.federation.rounds
        else f"interrupted at round {prepared.auditor.last_round}",
        "config": config.as_dict(),
        "config_hash": config.hash(),
        "seed": config.federation.seed,
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("torch", "numpy", "scipy")}},
        "rounds": prepared.auditor.last_round,
        "seconds": float(f"{seconds:.3g}"),
        "data": {
            "name": dataset.name,
            "records": len(dataset.records),
            "classes": dataset.classes,
            "subjects": None if subjects is None else len(np.unique(subjects)),
            "input_shape": list(dataset.input_shape),
        },
        "parties": [
            {"name": p, "members": c["member"], "evaluation": c["evaluation"], "calibration": c["calibration"]}
            for p, c in counts.items()
        ],
        "guarantee": None,
    }  # fmt: skip
