"""A run as it stands on disk, while it is being written or later. `fedaudit serve` and `fedaudit watch` read runs by
this module alone.

    follower = Follower(folder)
    run = follower.look()        # reads only what was added since the last look; call it as often as you like
    run.state                    # "starting", "running", "computing", "quiet", "ended" or "damaged"
    run.rounds[-1].risks         # what the leading attacks had found by then: `types.RoundRisk`, with the band's ends
    run.absent(run.rounds[-1])   # the parties that took no part in it
    spent(run)                   # epsilon over the planned rounds, if a defence promises one
    epsilons(run, [17])          # and after these rounds
    added(run, before)           # the rounds that were recorded since an earlier look, also those done again
    follower.document()          # the results, once there are any

Nothing is locked, and nothing is written: a run that is being recorded does not notice. Nothing here needs torch.
"""

import math
import os
import stat
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from fedaudit.errors import FedauditError
from fedaudit.files import open_regular
from fedaudit.privacy.statement import Promise, Spent
from fedaudit.results import document as results
from fedaudit.results.advice import ADVICE
from fedaudit.results.document import Document
from fedaudit.results.study import CELLS, STUDY
from fedaudit.trace import journal
from fedaudit.trace.journal import JOURNAL, MAX_LINE
from fedaudit.trace.lineage import MOST_ROUNDS, NO_EVENT, Lineage
from fedaudit.trace.lineage import RecordedRound as RecordedRound
from fedaudit.trace.store import HOST_CLAIM, RUN, load_manifest

# computing: all planned rounds are recorded, the results are not there yet; quiet: slow, or killed
State = Literal["starting", "running", "computing", "quiet", "ended", "damaged"]
Kind = Literal["run", "study", "advice"]

QUIET = 60.0  # seconds without a sign of life after which a run is called quiet, if its rounds are short
ROUNDS_LONG = 5  # and how many of its longest rounds, if they are not
FIRST = 160  # bytes: the checksum of run.json is among them
DEEPEST, MOST = 5, 2000  # folders below the one that is searched, and entries found
MOST_CLAIMED = 16 * 2**20  # bytes of a host's claim
MOST_COUNTED = 200  # rounds whose epsilon is computed at once, beside those of the curve


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
    confidence: float | None = None  # of each band; a former version did not say

    @property
    def newest(self) -> int:
        return self.rounds[-1].round if self.rounds else 0

    @property
    def over(self) -> bool:
        return self.state in ("ended", "damaged")

    def absent(self, round: RecordedRound) -> list[str]:
        """The parties that took no part in a round; whoever was not drawn is among them."""
        return [party for party in self.parties if party not in round.parties]


def added(run: Running, before: Running) -> list[RecordedRound]:
    """The rounds that were not there at an earlier look. One that was done again, from an older model or in a run that
    replaced the other, is another round."""
    known = {(round.branch, round.round, round.at) for round in before.rounds}
    return [round for round in run.rounds if (round.branch, round.round, round.at) not in known]


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
        self.told: Mapping[str, Any] = {}  # by the rounds of a party, whose folder has no run.json

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
        about = self.manifest or self.told
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
            confidence=about.get("confidence"),
        )
        if self.status or (has_results and not rounds):  # results of a run whose rounds are elsewhere
            return replace(run, why=self.status)
        return replace(run, **_going(run, time.time() if now is None else now))

    def document(self) -> Document:
        """The results. Raises the error of `results.document.load` where there are none, or damaged ones."""
        path = self.folder / results.RESULTS
        found = mark(path)
        if self._document is None or self._document[0] != found:
            self._document = found, results.load(self.folder)
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
        except NO_EVENT:
            self.damaged_lines += 1
            return
        kind = event["event"] if event else ""
        if kind == "ended":
            self.status = str(event.get("status") or "ended") if event else ""
        elif kind in ("round", "resuming", "resumed"):
            self.status = ""
        if event and kind == "round":
            self.told = {"rounds": event.get("planned"), "confidence": _share(event.get("confidence"))}


def _share(value: Any) -> float | None:
    return value if isinstance(value, float) and 0 < value < 1 else None


def _planned(about: Mapping[str, Any]) -> int:
    """What run.json says; that of a former version in its configuration alone."""
    rounds = about.get("rounds") or about.get("config", {}).get("federation", {}).get("rounds", 0)
    return rounds if isinstance(rounds, int) and 0 < rounds <= MOST_ROUNDS else 0


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
    left = usual * (run.planned - run.newest) if usual and run.planned and state == "running" else math.inf
    return {"state": state, "left": left if math.isfinite(left) else None}


def mark(path: Path) -> object:
    """Another one when the file was written again; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def written(path: Path) -> float:
    """When it was, in seconds since 1970; 0 where there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


# ------------------------------------------------------------------ epsilon


def spent(run: Running) -> Spent | None:
    """Epsilon over the planned rounds, of the first promise; else as the host of the training has counted it so far;
    None if nobody promises anything."""
    rounds = run.planned or run.newest
    if not run.promises or not rounds:
        return _counted(run.folder)
    try:
        return _spent(_promise(run), rounds)
    except UNCOUNTABLE:
        return None


def epsilons(run: Running, rounds: Sequence[int]) -> dict[int, float | None]:
    """What had been spent after each of these rounds, and of the curve. The curve of a long run has but some of its
    rounds; the others are computed, which takes a moment for each: of very many, the newest."""
    curve = spent(run)
    if curve is None:
        return {}
    found = dict(zip(curve.round, curve.epsilon, strict=True))
    missing = [round for round in rounds if round > 0 and round not in found]
    if missing and run.promises:
        found |= _between(_promise(run), sorted(missing)[-MOST_COUNTED:])
    return found


def uncounted(run: Running) -> str:
    """Why epsilon is not shown although a defence promises one. Empty where it is, or where nobody promises any."""
    if not run.promises or find_spec("dp_accounting") or spent(run) is not None or not (run.planned or run.newest):
        return ""
    return "Epsilon is not shown: to count it, pip install 'fedaudit[dp]'."


# Of promises that somebody wrote by hand, and of an installation that cannot count them.
UNCOUNTABLE = (FedauditError, *NO_EVENT, ImportError)


def _promise(run: Running) -> Promise:
    from fedaudit.privacy.accounting import promise_from

    return promise_from(run.promises[0])


def _counted(folder: Path) -> Spent | None:
    """What a host's own accountant says after each round, if there is one."""
    try:
        with open(open_regular(folder / HOST_CLAIM, os.O_RDONLY), "rb") as file:
            written = file.read(MOST_CLAIMED + 1)
        if len(written) > MOST_CLAIMED:
            return None
        said = [(int(one["round"]), float(one["epsilon"])) for one in tomllib.loads(written.decode())["spent"]]
    except (OSError, *NO_EVENT, RecursionError):  # there is none, or somebody wrote it by hand
        return None
    return Spent(*(tuple(column) for column in zip(*sorted(said), strict=True))) if said else None


@lru_cache(maxsize=64)
def _spent(promise: Promise, rounds: int) -> Spent:
    from fedaudit.privacy.accounting import over_rounds

    return over_rounds(promise, rounds)


def _between(promise: Promise, rounds: Sequence[int]) -> dict[int, float]:
    from fedaudit.privacy.accounting import curve

    known = _counted_before(promise)
    if new := [round for round in rounds if round not in known]:
        known.update(zip(new, curve(promise.process, new, promise.delta), strict=True))
    return known


@lru_cache(maxsize=64)
def _counted_before(promise: Promise) -> dict[int, float]:
    return {}


# ------------------------------------------------------------------ which runs there are


def kind_of(folder: Path) -> Kind | None:
    """What a folder holds, by the names of its files; None: neither a run, nor a study, nor an advice."""
    kinds: dict[str, Kind] = {STUDY: "study", ADVICE: "advice", RUN: "run", results.RESULTS: "run"}
    try:
        return next((kind for name, kind in kinds.items() if (folder / name).is_file()), None)
    except OSError:  # not ours to read
        return None


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
