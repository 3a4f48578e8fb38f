"""A run as it stands on disk, while it is being written or later. `fedaudit serve` and `fedaudit watch` read runs by
this module alone.

    follower = Follower(folder)
    run = follower.look()        # reads only what was added since the last look; call it as often as you like
    run.state                    # "starting", "running", "computing", "quiet", "ended" or "damaged"
    run.rounds[-1].risks         # what the leading attacks had found by then: `types.RoundRisk`, with the band's ends
    run.absent(run.rounds[-1])   # the parties that took no part in it
    spent(run)                   # epsilon over the planned rounds, if a defence promises one
    follower.document()          # the results, once there are any

Nothing is locked, and nothing is written: a run that is being recorded does not notice. Nothing here needs torch.
"""

import os
import stat
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from fedaudit.errors import FedauditError
from fedaudit.files import open_regular
from fedaudit.privacy.statement import Spent
from fedaudit.results import document as results
from fedaudit.results.advice import ADVICE
from fedaudit.results.document import Document
from fedaudit.results.study import CELLS, STUDY
from fedaudit.trace import journal
from fedaudit.trace.journal import JOURNAL, MAX_LINE
from fedaudit.trace.lineage import Lineage
from fedaudit.trace.lineage import RecordedRound as RecordedRound
from fedaudit.trace.store import HOST_CLAIM, RUN, load_manifest

# computing: all planned rounds are recorded, the results are not there yet; quiet: slow, or killed
State = Literal["starting", "running", "computing", "quiet", "ended", "damaged"]
Kind = Literal["run", "study", "advice"]

QUIET = 60.0  # seconds without a sign of life after which a run is called quiet, if its rounds are short
ROUNDS_LONG = 5  # and how many of its longest rounds, if they are not
FIRST = 160  # bytes: the checksum of run.json is among them
DEEPEST, MOST = 5, 2000  # folders below the one that is searched, and entries found


@dataclass(frozen=True, kw_only=True)
class Running:
    """What is known of a run. Names come from outside: whoever shows them escapes them."""

    folder: Path
    state: State
    why: str = ""  # how it ended, or what is damaged
    planned: int = 0  # rounds; 0 where nobody said
    rounds: tuple[RecordedRound, ...] = ()  # those that lead to the newest one
    parties: tuple[str, ...] = ()
    attacks: tuple[str, ...] = ()
    created: str = ""
    heard: float = 0.0  # when it was last written to, in seconds since 1970
    left: float | None = None  # seconds until its last round, if the next ones take as long as those before
    damaged_lines: int = 0  # of the journal; they are left out
    promises: tuple[Mapping[str, Any], ...] = ()

    @property
    def newest(self) -> int:
        return self.rounds[-1].round if self.rounds else 0

    @property
    def over(self) -> bool:
        return self.state in ("ended", "damaged")

    def absent(self, round: RecordedRound) -> list[str]:
        """The parties that took no part in a round; whoever was not drawn is among them."""
        return [party for party in self.parties if party not in round.parties]


class Follower:
    """Of one folder. What was read is kept, so that a look costs two system calls where nothing has changed."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._forget()
        self._document: tuple[object, Document] | None = None

    def _forget(self) -> None:
        self.begins = b""  # the first bytes of the journal: those of another run differ
        self.offset = self.damaged_lines = 0
        self.heard = 0.0
        self.lineage, self.status = Lineage(), ""
        self.manifest: Mapping[str, Any] | None = None

    def look(self, now: float | None = None) -> Running:
        """The run as it stands. Never raises for what is wrong with it: it is then `damaged`, and `why` says how."""
        try:
            heard = self._read()
            has_results = (self.folder / results.RESULTS).is_file()
            if self.manifest is None and (self.folder / RUN).is_file():
                self.manifest = load_manifest(self.folder)
        except FedauditError as error:
            return Running(folder=self.folder, state="damaged", why=error.what)
        except OSError as error:
            return Running(folder=self.folder, state="damaged", why=f"it cannot be read: {error.strerror}")
        rounds = tuple(self.lineage.current.values())
        about = self.manifest or {}
        run = Running(
            folder=self.folder,
            state="ended",
            planned=_planned(about),
            rounds=rounds,
            parties=tuple(about.get("parties", ())),
            attacks=tuple(about.get("attacks", ())),
            created=str(about.get("created", "")),
            heard=heard,
            damaged_lines=self.damaged_lines,
            promises=tuple(about.get("guarantee") or ()),
        )
        if self.status or (has_results and not rounds):  # results of a run whose rounds are elsewhere
            return replace(run, why=self.status)
        return replace(run, **_going(run, time.time() if now is None else now))

    def document(self) -> Document:
        """The results. Raises the error of `results.document.load` where there are none, or damaged ones."""
        path = self.folder / results.RESULTS
        mark = _mark(path)
        if self._document is None or self._document[0] != mark:
            self._document = mark, results.load(self.folder)
        return self._document[1]

    def _read(self) -> float:
        """Takes in the lines that were added. Returns when the journal was last written to."""
        path = self.folder / JOURNAL
        try:
            found = path.lstat()
        except FileNotFoundError:
            self._forget()
            return 0.0
        if found.st_size != self.offset or found.st_mtime != self.heard:
            with open(open_regular(path, os.O_RDONLY), "rb") as file:
                begins = file.read(FIRST)
                if found.st_size < self.offset or not begins.startswith(self.begins):  # another run in its place
                    self._forget()
                self.begins, self.heard = begins, found.st_mtime
                file.seek(self.offset)
                while (line := file.readline(MAX_LINE)).endswith(b"\n"):  # an unfinished one is read when it is whole
                    self.offset += len(line)
                    self._take(journal.decode(line))
        return found.st_mtime

    def _take(self, event: journal.Event | None) -> None:
        try:
            self.lineage.apply(event or {})
        except (KeyError, TypeError, ValueError, AttributeError):
            self.damaged_lines += 1
            return
        kind = event["event"] if event else ""
        if kind == "ended":
            self.status = str(event.get("status") or "ended") if event else ""
        elif kind in ("round", "resumed"):
            self.status = ""


def _planned(about: Mapping[str, Any]) -> int:
    """What run.json says; that of a former version in its configuration alone."""
    rounds = about.get("rounds") or about.get("config", {}).get("federation", {}).get("rounds", 0)
    return rounds if isinstance(rounds, int) and rounds > 0 else 0


def _going(run: Running, now: float) -> dict[str, Any]:
    """The state of a run that did not end, and the time left."""
    if not run.rounds:
        return {"state": "quiet" if now - run.heard > QUIET and run.heard else "starting"}
    times = [round.at for round in run.rounds if round.at is not None]
    gaps = [after - before for before, after in pairwise(times) if after > before]
    state: State = "computing" if 0 < run.planned <= run.newest else "running"
    if now - run.heard > max(QUIET, ROUNDS_LONG * max(gaps, default=0.0)):
        state = "quiet"
    recent = sorted(gaps[-9:])
    usual = recent[len(recent) // 2] if recent else None
    left = usual * (run.planned - run.newest) if usual and run.planned and state == "running" else None
    return {"state": state, "left": left}


def _mark(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


# ------------------------------------------------------------------ epsilon


def spent(run: Running) -> Spent | None:
    """Epsilon over the planned rounds, of the first promise; else as the host of the training has counted it so far;
    None if nobody promises anything."""
    rounds = run.planned or run.newest
    if not run.promises or not rounds:
        return _counted(run.folder)
    from fedaudit.privacy.accounting import promise_from

    try:
        return _spent(promise_from(run.promises[0]), rounds)
    except FedauditError:  # a file that somebody wrote by hand
        return None


def _counted(folder: Path) -> Spent | None:
    """What a host's own accountant says after each round, if there is one."""
    try:
        with (folder / HOST_CLAIM).open("rb") as file:
            said = [(int(one["round"]), float(one["epsilon"])) for one in tomllib.load(file)["spent"]]
    except (OSError, ValueError, KeyError, TypeError):  # there is none, or somebody wrote it by hand
        return None
    return Spent(*(tuple(column) for column in zip(*sorted(said), strict=True))) if said else None


@lru_cache(maxsize=64)
def _spent(promise: Any, rounds: int) -> Spent:
    from fedaudit.privacy.accounting import statement

    return statement(promise, rounds).curve


# ------------------------------------------------------------------ which runs there are


def kind_of(folder: Path) -> Kind | None:
    """What a folder holds, by the names of its files; None: neither a run, nor a study, nor an advice."""
    if (folder / STUDY).is_file():
        return "study"
    if (folder / ADVICE).is_file():
        return "advice"
    return "run" if any((folder / name).is_file() for name in (RUN, results.RESULTS)) else None


def under(top: Path) -> Iterator[tuple[Path, Kind]]:
    """The runs, studies and advices in a folder and below it, in the order of their names. The cells of a study are its
    own. Links are not followed: they may lead anywhere."""
    found, waiting = 0, [(top, 0)]
    while waiting and found < MOST:
        folder, depth = waiting.pop()
        kind = kind_of(folder)
        if kind:
            found += 1
            yield folder, kind
        elif depth < DEEPEST:
            waiting += [(inner, depth + 1) for inner in reversed(_folders(folder))]


def cells(study: Path) -> list[Path]:
    return [folder for folder in _folders(study / CELLS) if kind_of(folder)]


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            inner = [entry for entry in entries if stat.S_ISDIR(entry.stat(follow_symlinks=False).st_mode)]
    except OSError:  # not ours to read, or gone in the meantime
        return []
    return sorted((Path(entry.path) for entry in inner if not entry.name.startswith(".")), key=lambda path: path.name)
