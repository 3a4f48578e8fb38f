"""`fedaudit study`: audits every cell of a grid, on all cores or on Ray, and goes on where it was stopped.

Cells whose federations are small and alike are trained together, as one piece of work; every other cell is
a piece of its own. A piece of one cell goes on from its last complete round after a kill; one of several
begins again, because the last bits of its training depend on who is trained together. The groups are fixed when
a study is begun, and stored. A cell that is complete is trained again with the others of its group if one of them is
not, but it is not watched, and nothing of it is touched.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedaudit.config.schema import Config
from fedaudit.config.study import Cell, Study
from fedaudit.errors import FedauditError
from fedaudit.files import refuse_foreign, refuse_links, writing
from fedaudit.results import study as results
from fedaudit.results.document import RESULTS, SCORES
from fedaudit.results.schema import SCHEMA
from fedaudit.results.study import CELLS, COMPLETE, ListedCell, Outcome, StudyFile
from fedaudit.session.recording import differing
from fedaudit.session.run import Progress, ended, opened, run
from fedaudit.session.workers import News, Tell, reason, work

if TYPE_CHECKING:
    from fedaudit.federation.simulate import World
    from fedaudit.session.prepare import Prepared
    from fedaudit.session.session import Session

TOGETHER = 16  # cells in a group at most
MOST_BYTES = 2**30  # records of the federations that are held in memory together

Pieces = Callable[[Sequence["Piece"]], Generator[News, None, None]]  # does them all, wherever


@dataclass(frozen=True)
class Piece:
    """Cells that one process takes, the folder that holds the study, and which of the cells are complete."""

    cells: Sequence[tuple[str, Config]]
    out: Path
    done: frozenset[str] = frozenset()


def run_study(study: Study, out: Path, workers: int, progress: Progress, tell: Callable[[str], None]) -> list[Outcome]:
    """Audits all cells that have no results yet, and writes the table of all. Ctrl-C ends it with what is done."""
    refuse_foreign(out, [results.STUDY, CELLS])
    with writing(out):
        for cell in study.cells:
            refuse_links(out, out / CELLS / cell.name)
        (out / CELLS).mkdir(exist_ok=True)
        file = begun(study, out)
        failed = _audit(study, file, out, _engine(study, workers), progress, tell)
        results.save_file(StudyFile(**{**vars(file), "failed": failed}), out)
        found = results.outcomes(out)
        results.save_table(found, out)
        return found


def begun(study: Study, out: Path) -> StudyFile:
    """Writes study.json. A study that goes on keeps its groups; it may have a larger grid, but not another base."""
    groups: list[Sequence[str]] = []
    if results.is_study(out):
        before = results.load_file(out)
        for field, there, here in differing(before.base, study.base.as_dict()):
            what = f"{out} holds a study with another base: {field} was {there!r} and is now {here!r}"
            raise FedauditError("other-study", what, "Choose another folder with --out.")
        groups = list(before.groups)
    known = {name for group in groups for name in group}
    groups += grouped([cell for cell in study.cells if cell.name not in known])
    cells = [ListedCell(cell.name, cell.overrides) for cell in study.cells]
    file = StudyFile(SCHEMA, study.base.as_dict(), study.grid, cells, groups)
    results.save_file(file, out)
    return file


def grouped(cells: Sequence[Cell]) -> list[list[str]]:
    """Groups of cells that might be trained together. Whether they can is only known when they are prepared."""
    alike: dict[str, list[str]] = {}
    for cell in cells:
        alike.setdefault(_kind(cell), []).append(cell.name)
    groups = []
    for names in alike.values():
        parts = math.ceil(len(names) / TOGETHER)
        groups += [names[len(names) * i // parts : len(names) * (i + 1) // parts] for i in range(parts)]
    return groups


def _kind(cell: Cell) -> str:
    """Equal for cells that might be trained together; the cell's own name if it must be trained alone."""
    config, federation = cell.config, cell.config.federation
    alone = config.model.name not in ("mlp", "linear") or federation.algorithm != "fedavg"
    if alone or config.defences or config.audit.adversary == "agg-mal":
        return cell.name
    how = (federation.rounds, federation.local_epochs, federation.batch_size, federation.optimizer, federation.lr)
    return json.dumps([config.model.model_dump(mode="json"), config.data.name, *how])


def _engine(study: Study, workers: int) -> Pieces:
    if study.engine == "ray":
        from fedaudit.session.study_ray import on_ray

        return lambda pieces: on_ray(pieces, study.address)
    return lambda pieces: work(pieces, audit_piece, workers)


def _audit(
    study: Study, file: StudyFile, out: Path, engine: Pieces, progress: Progress, tell: Callable[[str], None]
) -> dict[str, str]:
    """Does what is left to do. Returns which cells failed, and why."""
    cells = {cell.name: cell for cell in study.cells}
    done = set()
    for name, cell in cells.items():
        _, status = results.found_in(out, name)
        if status == COMPLETE:
            done.add(name)
        elif status:
            tell(f"Cell {name} ({cell.title}) is audited again; {status}")
    groups = [[name for name in group if name in cells] for group in file.groups]
    pieces = [
        Piece([(name, cells[name].config) for name in names], out, frozenset(done.intersection(names)))
        for names in groups
        if not done >= set(names)
    ]
    left = Counter({name: cells[name].config.federation.rounds for name in cells if name not in done})
    if done:
        tell(f"{len(done)} of {len(cells)} cells are already there.")
    failed: dict[str, str] = {}
    with (
        progress(f"Auditing {len(left)} cells", left.total()) as step,
        contextlib.suppress(KeyboardInterrupt),
        contextlib.closing(engine(pieces)) as news,  # ended at once: nobody writes to cells while the table is made
    ):
        for one in news:
            names = [one.what] if one.what else [name for name, _ in pieces[one.piece].cells]
            if one.kind == "step":
                step()
                left[one.what] -= 1
                continue
            for name in names:
                for _ in range(left[name]):  # rounds that were recorded before, or never will be
                    step()
                left[name] = 0
                if one.kind == "failed" and name not in failed and results.found_in(out, name)[1] != COMPLETE:
                    failed[name] = one.why
                    tell(f"Cell {name} ({cells[name].title}) failed: {one.why}")
    return failed


# ------------------------------------------------------------------ in the process that does a piece


def audit_piece(piece: Piece, tell: Tell) -> None:
    """Audits the cells of a piece, together where that is possible."""
    if len(piece.cells) == 1:
        _alone(*piece.cells[0], piece.out, tell)
        return
    waiting: list[tuple[str, Config, Prepared]] = []
    size = 0
    for name, config in piece.cells:
        try:
            prepared = _prepared(config)
        except Exception as error:
            tell("failed", name, reason(error))
            continue
        waiting.append((name, config, prepared))
        size += prepared.dataset.records.x.nbytes
        if size > MOST_BYTES:
            _audit_waiting(waiting, piece, tell)
            waiting, size = [], 0
    _audit_waiting(waiting, piece, tell)


def _prepared(config: Config) -> Prepared:
    from fedaudit.session.prepare import prepare

    return prepare(config)


def _alone(name: str, config: Config, out: Path, tell: Tell) -> None:
    def progress(_: str, steps: int) -> contextlib.AbstractContextManager[Callable[[], None]]:
        return nullcontext((lambda: tell("step", name, "")) if steps else (lambda: None))

    folder = out / CELLS / name
    document, status = results.found_in(out, name)
    if status and document is None:  # damaged results; its rounds may be there still
        for file in (RESULTS, SCORES):
            (folder / file).unlink(missing_ok=True)
    again = document is not None and status != COMPLETE
    run(config, folder, progress, force=again, tell=lambda _: None)


def _audit_waiting(waiting: Sequence[tuple[str, Config, Prepared]], piece: Piece, tell: Tell) -> None:
    """Trains those together that fit together, and the others one after another. What is complete is left alone."""
    from fedaudit.federation.simulate import MIN_PARTIES, World, alike
    from fedaudit.session.prepare import planned

    kinds: dict[object, list[tuple[str, Config, Prepared, World]]] = {}
    for name, config, prepared in waiting:
        seed = prepared.config.federation.seed
        world = World(prepared.task, prepared.parties, planned(prepared), seed)
        kinds.setdefault(alike(world) or name, []).append((name, config, prepared, world))
    for members in kinds.values():
        if piece.done.issuperset(name for name, *_ in members):
            continue
        if len(members) > 1 and sum(len(world.parties) for *_, world in members) >= MIN_PARTIES:
            _in_step([(name, prepared, world) for name, _, prepared, world in members], piece, tell)
            continue
        for name, config in ((name, config) for name, config, *_ in members if name not in piece.done):
            try:
                _alone(name, config, piece.out, tell)
            except Exception as error:
                tell("failed", name, reason(error))


def _in_step(members: Sequence[tuple[str, Prepared, World]], piece: Piece, tell: Tell) -> None:
    """Several federations, one round of all at a time, each watched by a session of its own, unless it is complete."""
    from fedaudit.federation.simulate import federate_together
    from fedaudit.session.engines import as_sent

    unwatched = set(piece.done)
    watched = {name: prepared for name, prepared, _ in members if name not in piece.done}

    @contextlib.contextmanager
    def guard(name: str) -> Iterator[None]:
        """A cell that fails is still trained, as one that is complete is: without it, the stack would be another."""
        try:
            yield
        except Exception as error:
            unwatched.add(name)
            tell("failed", name, reason(error))

    with ExitStack() as stack:
        sessions: dict[str, Session] = {}
        for name, prepared in watched.items():
            with guard(name):
                sessions[name] = stack.enter_context(opened(prepared, piece.out / CELLS / name, force=True))
        for rounds in federate_together([world for *_, world in members]):
            for (name, prepared, _), round in zip(members, rounds, strict=True):
                if name not in unwatched:
                    with guard(name):
                        sessions[name].observe(as_sent(prepared, round))
                    tell("step", name, "")
        for name, session in sessions.items():
            if name not in unwatched:
                with guard(name):
                    ended(watched[name], session, piece.out / CELLS / name, lambda *_: nullcontext(lambda: None))
