"""Runs up to a round, in other processes: what `fedaudit advise` tries. A trial that is resumed trains no round twice,
and what was seen after a round, or why there is nothing to see, is kept, so that a search that is begun again takes the
same way.

What no configuration caused is not kept. Data that cannot be read and folders that cannot be used end the search; a
package that is not installed, a full disk, too little memory or a process that died fail this time alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedaudit.config.schema import Config
from fedaudit.errors import REFUSED, FedauditError, not_installed, out_of_memory
from fedaudit.files import write_atomically
from fedaudit.results.advice import Tried
from fedaudit.results.document import load
from fedaudit.results.gate import Rule
from fedaudit.results.schema import as_text, read
from fedaudit.session.prepare import Prepared
from fedaudit.session.run import rounds, run
from fedaudit.session.workers import News, Tell, reason, work
from fedaudit.types import Moment, Round, State
from fedaudit.types.stored import Flag

TRIALS = "trials"  # a run for each, in the advice's folder
SECONDS = ".seconds"  # beside each run: the processor time that it took, in all the times it was begun
# Codes of errors that no configuration caused. The last ones go when the trial's folder is deleted.
OF_THE_DATA = ("data-missing", "data-import", "data-function", "data-size")
OF_THE_PLACE = ("locked", "not-writable")
OF_THE_FOLDER = ("not-a-folder", "not-empty", "orphaned", "file-changed")
OF_OTHER_DATA = "other-run"
ANOTHER_FOLDER = "Advise in another folder."
# What is said of a trial that failed; nothing, if it was the machine.
ENDING = "ending"  # it ends the search
UNFIT, NOT_INSTALLED = "unfit", "not-installed"  # refused before anything was trained
FAILED = "failed"  # while it was trained
WITHOUT_A_PLACE = (UNFIT, NOT_INSTALLED)
LASTING = (UNFIT, FAILED)  # the same again whenever it is tried


@dataclass(frozen=True)
class Trial:
    """A run up to a round, in its folder."""

    folder: Path
    config: Config
    until: int


@dataclass(frozen=True)
class Bench:
    """Where trials are run: the folder, the processes, the progress so far, and which runs were needed."""

    out: Path
    workers: int
    step: Callable[[], None]
    tell: Callable[[str], None]
    needed: set[Path] = field(default_factory=set)

    def folder(self, config: Config) -> Path:
        return self.out / TRIALS / config.hash()

    def run(self, trials: Sequence[Trial]) -> dict[Path, News]:
        """Runs them all. Returns those that failed, with what is said of them and why."""
        failed: dict[Path, News] = {}
        self.needed.update(trial.folder for trial in trials)
        with contextlib.closing(work(trials, train_until, self.workers)) as news:
            for one in news:
                if one.kind == "failed" and one.what == ENDING:
                    raise FedauditError(**json.loads(one.why))
                if one.kind == "failed":
                    failed[trials[one.piece].folder] = one
                elif one.kind == "step":
                    self.step()
        return failed

    def cost(self, own: Path) -> float | None:
        """Of all runs, in units of one of them. None if the time that one took is not known."""
        spent, unit = sum(seconds(folder) for folder in self.needed), seconds(own)
        return spent / unit if math.isfinite(spent) and unit > 0 else None  # what is not known is NaN


def train_until(trial: Trial, tell: Tell) -> None:
    """In a process of its own. A run that has come this far is left as it is."""
    if _rounds(trial.folder) >= trial.until:
        return
    begun, reading = list[Moment](), [False]
    before, started = seconds(trial.folder) if trial.folder.exists() else 0.0, time.process_time()

    def spent() -> None:
        write_atomically(trial.folder.with_suffix(SECONDS), f"{before + time.process_time() - started:.3f}\n")

    def step() -> None:
        spent()  # after every round: a search that is killed and begun again still knows what it cost
        tell("step", "", "")

    def engine(prepared: Prepared, after: Moment, model: State | None) -> Iterator[Round]:
        begun.append(after)
        return rounds(prepared, after, model, trial.until)

    @contextlib.contextmanager
    def progress(_: str, steps: int) -> Iterator[Callable[[], None]]:
        reading[0] = not steps  # before training, nothing but reading the data has no steps
        yield step if steps else (lambda: None)
        reading[0] = False

    spent()  # from now on the time is known, whenever it is killed
    try:
        quiet = trial.config.model_copy(update={"track": None})  # trials are not the federation that is tracked
        run(quiet, trial.folder, progress, tell=lambda _: None, engine=engine)
    except Exception as error:
        if ends := _ending(error, trial.folder, reading[0] and not begun):
            tell("failed", ENDING, json.dumps(vars(ends)))
        elif isinstance(error, ImportError):
            tell("failed", NOT_INSTALLED, reason(not_installed(error.name or "") or error))
        elif isinstance(error, FedauditError) and not begun:
            tell("failed", UNFIT, reason(error))
        elif begun and not isinstance(error, OSError) and not out_of_memory(error):
            tell("failed", FAILED, reason(error))
        else:
            raise
    spent()


def _ending(error: Exception, folder: Path, reading: bool) -> FedauditError | None:
    """What to end the search with, if neither the configuration nor the machine is to blame."""
    if not isinstance(error, FedauditError):
        return None
    if error.code in (*OF_THE_DATA, *OF_THE_PLACE) or (reading and error.exit_code == REFUSED):
        return error
    if error.code == OF_OTHER_DATA:
        return unusable(folder, error.what, ANOTHER_FOLDER)
    return unusable(folder, error.what) if error.code in OF_THE_FOLDER or error.exit_code == REFUSED else None


def unusable(folder: Path, why: str, todo: str | None = None) -> FedauditError:
    what = f"the trial in {folder} cannot be used: {why}"
    anew = f"Begin again. If it says the same, delete {folder}: it is then trained anew."
    return FedauditError("trial-unusable", what, todo or anew, exit_code=REFUSED)


def seconds(folder: Path) -> float:
    """Of processor time that a run took; NaN if nobody wrote it down."""
    try:
        return float(folder.with_suffix(SECONDS).read_text())
    except (OSError, ValueError):
        return math.nan


def _rounds(folder: Path) -> int:
    try:
        return load(folder).run.rounds
    except FedauditError:
        return 0


# ------------------------------------------------------------------ what was seen after a round


@dataclass(frozen=True, kw_only=True)
class FailedTrial:
    """Why there is nothing to see; `unfit`: nothing was trained."""

    why: str
    unfit: Flag


def keep(seen: Tried | FailedTrial, folder: Path, rounds: int, limit: Rule) -> None:
    """The run goes on from here, and its results will be those of later rounds."""
    write_atomically(kept_in(folder, rounds, limit), as_text(seen))


def kept(folder: Path, rounds: int, limit: Rule) -> Tried | FailedTrial | None:
    """None if nobody looked, or if the file is not one of ours: whoever looks again finds the same, or that the run has
    gone on."""
    with contextlib.suppress(OSError, ValueError):
        values = json.loads(kept_in(folder, rounds, limit).read_text(encoding="utf-8"))
        with contextlib.suppress(ValueError):
            return read(FailedTrial, values)
        return read(Tried, values)
    return None


def kept_in(folder: Path, rounds: int, limit: Rule) -> Path:
    """What was seen does not depend on how strict a limit is, but on what it speaks of."""
    about = repr((limit.metric, limit.attack, limit.vantage, limit.party))
    return folder.with_suffix(f".{rounds}.{hashlib.sha256(about.encode()).hexdigest()[:8]}.json")
