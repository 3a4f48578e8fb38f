"""`fedaudit study`: audits every cell of a grid, on all cores or on Ray, and goes on where it was stopped.

Cells whose federations are small and alike are trained together, as one piece of work; every other cell is a piece of
its own. A piece of one cell goes on from its last complete round after a kill; one of several begins again, because the
last bits of its training depend on who is trained together. The groups are fixed when a study is begun, and stored. A
cell that is complete is trained again with the others of its group if one of them is not, but it is not watched, and
nothing of it is touched.
"""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedaudit.config import code
from fedaudit.config.schema import Config
from fedaudit.config.study import Cell, Study
from fedaudit.errors import FedauditError
from fedaudit.files import refuse_foreign, refuse_links, write_atomically, writing
from fedaudit.results import study as results
from fedaudit.results.document import ERRORS, REDACTED, REPORT, RESULTS, SCORES
from fedaudit.results.exposure import SALT
from fedaudit.results.schema import SCHEMA
from fedaudit.results.study import CELLS, COMPLETE, ListedCell, Outcome, StudyFile
from fedaudit.session.prepare import Prepared, prepare, refuse_unauthorised
from fedaudit.session.recording import differing
from fedaudit.session.run import Progress, as_sent, ended, opened, run
from fedaudit.session.session import Session
from fedaudit.session.workers import News, Tell, reason, work
from fedaudit.trace import journal
from fedaudit.trace.segments import checksum
from fedaudit.trace.store import RUN, clear

if TYPE_CHECKING:
    from fedaudit.federation.simulate import World


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
    for cell in study.cells:
        refuse_unauthorised(cell.config)
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
    file = StudyFile(schema=SCHEMA, base=study.base.as_dict(), grid=study.grid, cells=cells, groups=groups)
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
            prepared = prepare(config)
        except Exception as error:
            tell("failed", name, reason(error))
            continue
        waiting.append((name, config, prepared))
        size += prepared.dataset.records.x.nbytes
        if size > MOST_BYTES:
            _audit_waiting(waiting, piece, tell)
            waiting, size = [], 0
    _audit_waiting(waiting, piece, tell)


def _alone(name: str, config: Config, out: Path, tell: Tell) -> None:
    def progress(_: str, steps: int) -> contextlib.AbstractContextManager[Callable[[], None]]:
        return nullcontext((lambda: tell("step", name, "")) if steps else (lambda: None))

    folder = out / CELLS / name
    document, status = results.found_in(out, name)
    if status and document is None:  # damaged results; its rounds may be there still
        for file in (RESULTS, SCORES, ERRORS):
            (folder / file).unlink(missing_ok=True)
    again = document is not None and status != COMPLETE
    run(config, folder, progress, force=again, tell=lambda _: None)


def _audit_waiting(waiting: Sequence[tuple[str, Config, Prepared]], piece: Piece, tell: Tell) -> None:
    """Trains those together that fit together, and the others one after another. What is complete is left alone."""
    from fedaudit.federation.simulate import MIN_PARTIES, World, alike

    kinds: dict[object, list[tuple[str, Config, Prepared, World]]] = {}
    for name, config, prepared in waiting:
        federation = prepared.config.federation
        world = World(prepared.task, prepared.parties, prepared.plans, federation.seed, federation.step)
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


# ------------------------------------------------------------------ on Ray, beyond one machine
#
# A piece of work runs in a temporary folder on whatever node has a free core, and its results come back as bytes: the
# nodes share no file system, only an installed fedaudit and the data that the configurations name. Where a node is
# lost, Ray gives its pieces to another, which begins them again; they end in the same results.

KEPT = (RUN, SCORES, ERRORS, RESULTS)  # of each cell; the results come last: a cell that has them is finished
Files = dict[str, dict[str, bytes]]  # by cell and by name


def on_ray(pieces: Sequence[Piece], address: str | None) -> Generator[News, None, None]:
    """Like `workers.work`, but on a Ray cluster; without an address, on one that is started here and now."""
    if find_spec("ray") is None:
        what = 'engine = "ray" needs Ray, which is not installed'
        raise FedauditError("no-ray", what, 'Install fedaudit with its extra: "fedaudit[flower]".')
    import ray

    with _connected(address):
        # A piece is begun again as often as nodes are lost; an error of its own ends it.
        remote: Any = ray.remote(num_cpus=1, max_retries=-1)(audit_remotely)
        waiting: dict[Any, int] = {
            remote.remote(list(piece.cells), piece.done, code.folders()): i for i, piece in enumerate(pieces)
        }
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            number = waiting.pop(ready[0])
            try:
                files, failed = ray.get(ready[0])
            except ray.exceptions.RayError as error:
                yield News(number, "failed", "", reason(error))
                continue
            for cell, parts in files.items():
                keep(pieces[number].out / CELLS / cell, parts)
            for cell, why in failed.items():
                yield News(number, "failed", cell, why)
            yield News(number, "done")


def keep(folder: Path, parts: dict[str, bytes]) -> None:
    """Writes what came back, with its checksums in a journal. The journal of the run stayed on the node, with the
    rounds that it lists; one that an earlier attempt left here would not vouch for these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (RESULTS, SCORES, ERRORS, REPORT, REDACTED, SALT):
        (folder / name).unlink(missing_ok=True)
    clear(folder)
    journal.append(folder, {name: checksum(content) for name, content in parts.items()})
    for name, content in parts.items():
        write_atomically(folder / name, content)


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[None]:
    import ray

    if ray.is_initialized():  # by whoever called us, who also ends it
        yield
        return
    try:
        if address is None:
            ray.init(include_dashboard=False, log_to_driver=False)
        else:
            ray.init(address=address, log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        what = f"there is no Ray cluster at {address!r}: {str(error).splitlines()[0]}"
        raise FedauditError("ray-address", what, "Start one with `ray start --head`, or correct address.") from None
    try:
        yield
    finally:
        ray.shutdown()


def audit_remotely(
    cells: Sequence[tuple[str, Config]], done: frozenset[str] = frozenset(), folders: Sequence[str] = ()
) -> tuple[Files, dict[str, str]]:
    """On a node: the files of every cell that was audited, and why the others were not. Those that are done already
    are not on the node, and do not come back."""
    import torch

    torch.set_num_threads(1)
    code.found_in(*folders)  # where this node has them
    failed: dict[str, str] = {}

    def tell(kind: str, what: str, why: str) -> None:
        if kind == "failed":
            failed[what] = why

    with tempfile.TemporaryDirectory(prefix="fedaudit-") as folder:
        try:
            audit_piece(Piece(cells, Path(folder), done), tell)
        except Exception as error:  # a piece of one cell raises what went wrong
            failed |= {name: reason(error) for name, _ in cells}
        found: Files = {}
        for name, _ in cells:
            own = Path(folder) / CELLS / name
            if name not in failed and (own / RESULTS).is_file():
                found[name] = {part: (own / part).read_bytes() for part in KEPT if (own / part).is_file()}
    return found, failed
