"""`fedaudit import`: turns checkpoints into a trace, and audits it if the game is known."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from fedaudit.audit import Auditor
from fedaudit.config.schema import Config
from fedaudit.data.game_file import load_game
from fedaudit.data.records import classes_of
from fedaudit.errors import FedauditError
from fedaudit.integrations import checkpoints
from fedaudit.integrations.options import open_session, refuse_ours
from fedaudit.learn.models.own import forward_of
from fedaudit.learn.tasks import build_task
from fedaudit.results.document import Document
from fedaudit.session.assemble import Request, assemble
from fedaudit.session.run import Progress
from fedaudit.trace.manifest import RUN
from fedaudit.trace.store import Store
from fedaudit.types import Game, Round, State


def import_checkpoints(
    directory: Path, out: Path, progress: Progress, *, game: Path | None, config: Config, torch: bool, deltas: bool
) -> Document | None:
    """Writes the trace to `out`, and, with a game, results and report. Wrong files are refused before that."""
    stored = partial(checkpoints.rounds, directory, torch=torch, deltas=deltas)
    auditor = None
    with progress("Reading the checkpoints", 0):
        if game is not None:
            first = next(stored(), None)
            auditor = _auditor(directory, load_game(game), config, torch, first.aggregate if first else {})
        task = auditor.task if auditor else None
        made = partial(stored, like=task.initial(0) if task else None)
        many = sum(1 for _ in made())  # read once without a trace: a wrong file is refused before anything is written
    session = open_session(out, auditor, strict=True)
    if session.last:
        session.trace.store.close() if session.trace else None
        what = f"{out} already holds a trace, up to round {session.last}"
        raise FedauditError("not-empty", what, "Choose another folder with --out.")
    lost: list[str] = []
    with progress("Auditing the checkpoints" if auditor else "Recording the checkpoints", many) as step:
        session.watch(_counted(made(lost=lost.append), step))
    for what in lost:
        session.gap(what)
    with progress("Computing statistics", 0):
        return session.finish(out)


def _counted(rounds: Iterable[Round], step: Callable[[], None]) -> Iterator[Round]:
    for round in rounds:
        yield round
        step()


def _auditor(directory: Path, game: Game, config: Config, torch: bool, first: State) -> Auditor:
    refuse_ours(config.audit)
    rows = game.candidates.rows
    labels = 0 if rows.y.dtype.kind == "f" else classes_of(rows)
    model = config.model
    build = partial(build_task, model.name, rows.x.shape[1:], options=model.arguments(), forward=forward_of(model))
    task = build(classes=labels)
    if labels and (classes := _outputs(first, task.initial(0))) > labels:
        task = build(classes=classes)
    return assemble(Request.beside(config, game, rounds=_count(directory, torch)), task)


def _outputs(model: State, like: State) -> int:
    """The number of classes of the checkpoint's last layer: the game may not have records of every class."""
    name, last = str(len(like) - 1), list(like)[-1]  # without names, parameters are numbered
    found = model.get(last, model.get(name, like[last]))
    return int(found.shape[0]) if found.ndim == like[last].ndim > 0 else 0


def _count(directory: Path, torch: bool) -> int:
    if (directory / RUN).is_file():
        return max(Store.read(directory).lineage.newest, 2)
    return max(checkpoints.find(directory, torch))
