"""`fedaudit import`: checkpoints into a trace, and an audit of it where the game is known."""

from functools import partial
from pathlib import Path
from typing import Any

from fedaudit import attacks
from fedaudit.audit import Auditor, Settings
from fedaudit.config import Config
from fedaudit.errors import FedauditError
from fedaudit.federation.store import RUN, Store
from fedaudit.integrations import checkpoints
from fedaudit.integrations.gamefile import load_game
from fedaudit.integrations.recorder import Recorder, open_trace
from fedaudit.tasks import build_task
from fedaudit.types import Game

COSTS = "costs are in seconds a round, not in epochs: how long an epoch took is not in a checkpoint"


def import_checkpoints(
    directory: Path, out: Path, *, game: Path | None, config: Config, torch: bool, deltas: bool
) -> dict[str, Any] | None:
    """The trace goes to `out`; with a game also results and report. What is wrong is refused before that."""
    auditor = None if game is None else _auditor(directory, load_game(game), config, torch)
    task = auditor.task if auditor else None
    like = task.initial(0) if task else None
    made = partial(checkpoints.rounds, directory, like=like, torch=torch, deltas=deltas)
    for _ in made():  # read once without a trace: a wrong file is refused before anything is written
        pass
    recorder = Recorder(auditor, open_trace(out, auditor, "snapshots"), strict=True)
    if recorder.last:
        recorder.trace.store.close() if recorder.trace else None
        what = f"{out} already holds a trace, up to round {recorder.last}"
        raise FedauditError("not-empty", what, "Choose another folder with --out.")
    for round in made():
        recorder.observe(round)
    recorder.note(COSTS)
    return recorder.finish(out.name, out)


def _auditor(directory: Path, game: Game, config: Config, torch: bool) -> Auditor:
    rows, audit = game.candidates.rows, config.audit
    classes = 0 if rows.y.dtype.kind == "f" else int(rows.y.max()) + 1
    task = build_task(config.model.name, rows.x.shape[1:], classes, config.model.arguments())
    initial = task.initial(0)
    task.check(initial, rows)
    planned = _count(directory, torch)
    settings = Settings(
        audit.vantages, attacks.choose(audit.attacks), planned, audit.fpr, audit.confidence, config.federation.seed
    )
    settings.check()
    settings = settings.suited_to(task, initial, rows, asked=audit.attacks is not None)
    return Auditor(task, game, settings)


def _count(directory: Path, torch: bool) -> int:
    if (directory / RUN).is_file():
        return max(Store.read(directory).lineage.newest, 2)
    return max(checkpoints.find(directory, torch))
