"""A trace on disk: one directory, append-only, and intact after a kill at any byte.

    run.json              schema, configuration and its hash, package versions, seed, guarantee
    journal.jsonl         one line for each event, with a checksum; a round exists when its line does,
                          which also says when it was recorded and what had been found by then
    signals/00017.parquet record id, round, party (null: the global model), one column for each signal
    rounds/00017/         broadcast, party-NAME, aggregate as safetensors (`keep = "snapshots"` only)
    model-00017.safetensors  the newest aggregate, from which an unfinished run goes on (`keep = "signals"` only)

Rounds may come from any runtime: `append` accepts them late, twice or again, and returns what it did with them.
"""

import base64
import hashlib
import json
import math
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.files import Lock, refuse_links, sweep, write_atomically
from fedaudit.trace import journal
from fedaudit.trace.journal import JOURNAL
from fedaudit.trace.lineage import NO_EVENT, Delivered, Lineage, RecordedRound
from fedaudit.trace.segments import (
    UNSEEN_DIGEST,
    DamagedError,
    Key,
    checksum,
    digest,
    digest_of_seen,
    pack_signals,
    pack_state,
    read_bytes,
    unpack_signals,
    unpack_state,
)
from fedaudit.types import (
    UNSEEN,
    Bools,
    Level,
    Measured,
    Notice,
    Observation,
    Round,
    RoundRisk,
    State,
    Trained,
    gap,
    warning,
)

SCHEMA = 1
RUN = "run.json"
HOST_CLAIM = "claim.toml"  # what the host of a training claims about its noise
MAX_BYTES = 64 * 2**20  # of run.json

Manifest = Mapping[str, Any]


class _Told(BaseModel, strict=True):
    code: str
    level: Level
    data: dict[str, Any]


class _Kinds(BaseModel, strict=True):
    """The kinds of what is read from run.json, wherever it is there."""

    number: Annotated[int, Field(alias="schema", ge=1)]
    config: dict[str, Any] = {}
    keep: str = ""
    attacks: list[str] = []
    notices: list[str] = []
    told: list[_Told] = []
    guarantee: list[dict[str, Any]] | None = None
    data: str = ""
    start: str = ""
    weights_per_member: dict[str, float] = {}
    filter_share: float = 1.0
    parties: list[str] = []
    rounds: int = 0  # planned; a former version did not say
    confidence: Annotated[float | None, Field(gt=0, lt=1)] = None  # of intervals and bands; neither did it say this


SIGNALS, ROUNDS = "signals", "rounds"

Outcome = Literal["new", "repeated", "changed", "branch"]


class Store:
    """Opened by `create` or `resume` (one writer, locked) or by `read` (anybody, at any time)."""

    def __init__(self, directory: Path, manifest: Manifest, lock: Lock | None = None):
        self.directory, self.manifest, self._lock = directory, manifest, lock
        self.snapshots = manifest.get("keep") == "snapshots"
        self._journal = journal.Journal(directory / JOURNAL) if lock else None
        reading = self._journal.reading if self._journal else journal.read(directory / JOURNAL)
        self.torn, self.removed = reading.torn, reading.removed
        self.lineage = Lineage()
        self.damaged_lines = list(reading.damaged)
        for event in reading.events:
            try:
                self.lineage.apply(event)
            except NO_EVENT:
                self.damaged_lines.append(event["n"])

    # ------------------------------------------------------------------ opening and closing

    @classmethod
    def create(cls, directory: Path, manifest: Manifest) -> Self:
        """A new, empty trace. `manifest` needs `keep`: "signals" or "snapshots"."""
        directory.mkdir(parents=True, exist_ok=True)
        lock = Lock(directory)
        clear(directory)
        manifest = {"schema": SCHEMA, **manifest}
        blob = (json.dumps(manifest, indent=1) + "\n").encode()
        journal.append(directory, {RUN: checksum(blob)})  # before the file: whoever finds it can check it
        write_atomically(directory / RUN, blob)
        return cls(directory, manifest, lock)

    @classmethod
    def resume(cls, directory: Path) -> Self:
        """Go on writing where the last writer stopped."""
        manifest = load_manifest(directory)
        lock = Lock(directory)
        sweep(directory)
        store = cls(directory, manifest, lock)
        if store._journal and store._journal.next == 1:  # killed before the first line was whole
            store.seal({RUN: checksum((directory / RUN).read_bytes())})
        return store

    @classmethod
    def read(cls, directory: Path) -> Self:
        return cls(directory, load_manifest(directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._journal:
            self._journal.close()
        if self._lock:
            self._lock.release()

    # ------------------------------------------------------------------ writing

    def append(self, round: Round, seen: Observation | None = None, found: Sequence[RoundRisk] = ()) -> Outcome:
        """Records a round, what was measured in it, and for those who watch the run what was `found` by then. After
        `branch`, an audit in progress must be rebuilt."""
        sent = delivered(round)
        broadcast, aggregate = digest_of_seen(round.broadcast), digest_of_seen(round.aggregate)
        place = self.lineage.place(round.moment, broadcast, aggregate)
        if place.known:
            return self._again(place.known, round, sent)
        of = seen.of if seen else {}
        blob = pack_signals(round.index, of) if of else None
        unobserved = {key or "": sorted(one.unobserved) for key, one in of.items() if one.unobserved}
        layers = {key or "": dict(one.layers) for key, one in of.items() if one.layers}
        spent = divided(of)
        event = {
            "event": "round", "round": round.index, "branch": self.lineage.branch + place.opens, "opens": place.opens,
            "origin": place.origin, "commit": round.commit, "broadcast": broadcast, "aggregate": aggregate,
            "parties": {name: vars(one) for name, one in sent.items()}, "kept": self.snapshots,
            "signals": None if blob is None else checksum(blob),
            "names": sorted({name for one in of.values() for name in one.values}),
            "parts": [[k, len(one.id), *map(_finite, (one.seconds, one.epoch_seconds))] for k, one in of.items()],
            "at": time.time(),
            **({"risks": [_defined(risk) for risk in found]} if found else {}),
            **({"probe": round.probe} if round.probe else {}),
            **({"unobserved": unobserved} if unobserved else {}),
            **({"layers": layers} if layers else {}),
            **({"spent": spent} if spent else {}),
        }  # fmt: skip
        entry = RecordedRound.of(event)
        if blob is not None:
            self._write(self._signals_file(entry), blob)
        self._write_models(entry, round)
        self._record(event)
        self._drop_older_models()
        return "branch" if place.opens else "new"

    def resuming(self) -> None:
        """Before the recorded rounds are replayed, which may take long: whoever watches the run waits for it."""
        self._record({"event": "resuming"})

    def resumed(self) -> None:
        self._record({"event": "resumed", "round": self.lineage.newest})

    def end(self, status: str, right: Bools | None) -> None:
        """The run is over or interrupted; `right`: which labels the released model gives rightly."""
        packed = None if right is None else base64.b64encode(np.packbits(right).tobytes()).decode()
        self._record({"event": "ended", "round": self.lineage.newest, "status": status, "right": packed})

    def _again(self, known: RecordedRound, round: Round, sent: Mapping[str, Delivered]) -> Outcome:
        """The same round again: what is the same is ignored, what is new is added, what differs is kept separately."""
        outcome: Outcome = "repeated"
        for name, delivered in sent.items():
            before = known.parties.get(name)
            where = {"round": known.round, "branch": known.branch, "party": name}
            where |= {"probe": known.probe} if known.probe else {}
            if before is None:
                if known.kept:
                    self._write(self._model_file(known, name), pack_state(round.sent[name].state))
                self._record({"event": "late", **where, "sent": vars(delivered)})
                outcome = "changed"
            elif (
                before.state != delivered.state
                and (known.branch, known.moment, name, delivered.state) not in self.lineage.conflicts
            ):
                if known.kept:
                    path = self._model_file(known, name)
                    beside = path.with_name(f"{path.stem}~conflict-{delivered.state[:16]}.safetensors")
                    self._write(beside, pack_state(round.sent[name].state))
                self._record({"event": "conflict", **where, "state": delivered.state})
                outcome = "changed"
        return outcome

    def _write_models(self, entry: RecordedRound, round: Round) -> None:
        if not self.snapshots:
            if round.commit and round.aggregate:
                self._write(self._newest_file(entry), pack_state(round.aggregate))
            return
        for name, trained in round.sent.items():
            self._write(self._model_file(entry, name), pack_state(trained.state))
        if round.aggregate:
            self._write(self._round_file(entry, "aggregate"), pack_state(round.aggregate))
        if self._holder_of(entry.broadcast) is None:  # else it lies there as an earlier round's aggregate
            self._write(self._round_file(entry, "broadcast"), pack_state(round.broadcast))

    def _write(self, path: Path, blob: bytes) -> None:
        if self._journal:
            self._journal.check()
        refuse_links(self.directory, path)
        write_atomically(path, blob)

    def _record(self, event: journal.Event) -> None:
        if self._journal is None:
            raise FedauditError("read-only", f"{self.directory} was opened for reading", "Open it with Store.resume.")
        self._journal.append(event)
        self.lineage.apply(event)

    def _drop_older_models(self) -> None:
        released = self.lineage.released
        keep = self._newest_file(released) if released else None
        for path in self.directory.glob("model-*.safetensors"):
            if path != keep:
                path.unlink()

    # ------------------------------------------------------------------ reading

    def entries(self) -> list[RecordedRound]:
        """The rounds that lead to the newest one, and their probes, in order."""
        found = [*self.lineage.current.values(), *self.lineage.probes.values()]
        return sorted(found, key=lambda entry: entry.moment)

    def observation(self, entry: RecordedRound) -> Observation | None:
        """What was measured in a round, bit for bit. Raises DamagedError if the file is not what was written."""
        if entry.signals is None:
            return None
        path = self._signals_file(entry)
        with _named(path):
            found = unpack_signals(read_bytes(path), entry.signals, entry.parts)
        of: dict[Key, Measured] = {}
        for key, measured in found.items():
            name = key or ""
            unobserved, layers = frozenset(entry.unobserved.get(name, ())), entry.layers.get(name, {})
            of[key] = replace(measured, unobserved=unobserved, layers=layers, spent=entry.spent.get(name, {}))
        return Observation(entry.round, of, entry.probe)

    def round(self, entry: RecordedRound) -> Round:
        """A round as it was exchanged. Needs snapshots; raises DamagedError when they are not what was written."""
        sent = {
            name: Trained(
                self._load(self._model_file(entry, name), of.state), of.examples, of.epoch_seconds, is_model=of.is_model
            )
            for name, of in entry.parties.items()
        }
        holder = self._holder_of(entry.broadcast)
        path = self._round_file(holder, "aggregate") if holder else self._round_file(entry, "broadcast")
        broadcast = self._load(path, entry.broadcast) if entry.broadcast != UNSEEN_DIGEST else UNSEEN
        made = self._round_file(entry, "aggregate")
        aggregate = self._load(made, entry.aggregate) if entry.aggregate != UNSEEN_DIGEST else UNSEEN
        return Round(entry.round, broadcast, sent, aggregate, commit=entry.commit, probe=entry.probe)

    def rounds(self) -> Iterator[Round]:
        """The trace, as far as its models were kept."""
        return (self.round(entry) for entry in self.entries() if entry.kept)

    def released(self) -> State | None:
        """The newest aggregate, from which an unfinished run continues."""
        entry = self.lineage.released
        if entry is None:
            return None
        path = self._round_file(entry, "aggregate") if entry.kept else self._newest_file(entry)
        return self._load(path, entry.aggregate)

    @property
    def finished(self) -> bool:
        ended = self.lineage.ended
        return bool(ended and ended["status"] == "complete" and ended["round"] == self.lineage.newest)

    def right(self, shape: tuple[int, ...]) -> Bools | None:
        """Which of so many labels the released model gives rightly, if the run came to that."""
        ended = self.lineage.ended
        if not ended or ended["round"] != self.lineage.newest or not ended["right"]:
            return None
        bits = np.unpackbits(np.frombuffer(base64.b64decode(ended["right"]), np.uint8))
        n = math.prod(shape)
        return bits[:n].astype(bool).reshape(shape) if n <= len(bits) < n + 8 else None

    def seal(self, found: journal.Checksums) -> None:
        """Keeps the checksums of files that are about to be written beside the trace."""
        self._record(journal.event(found))

    def damage(self) -> list[Notice]:
        """Lines of the journal that are not as they were written. An audit without them is degraded."""
        found = [gap("line-damaged", line=n) for n in sorted(self.damaged_lines)]
        if self.removed:
            found.append(gap("lines-removed", lines=self.removed))
        return found

    def incomplete(self) -> list[Notice]:
        """Why not all rounds that were done may be recorded; empty if nothing speaks for that."""
        found, later = self.damage(), self._unlisted()
        if self.torn:
            found.append(gap("line-torn"))
        if missing := self.lineage.missing():
            found.append(gap("rounds-lacking", rounds=missing))
        if later:
            found.append(gap("files-unlisted", rounds=later))
        return found

    def _unlisted(self) -> list[int]:
        """Rounds after the newest one that left files, but no line."""
        names = [*(self.directory / SIGNALS).glob("*.parquet"), *(self.directory / ROUNDS).glob("*")]
        found = {int(name.name[:5]) for name in names if re.match(r"\d{5}\b", name.name)}
        return sorted(number for number in found if number > self.lineage.newest)

    def warnings(self) -> list[Notice]:
        """Warnings about the rounds: damaged lines, gaps, conflicts, branches."""
        missing = self.lineage.missing()
        gaps = [warning("no-record", rounds=missing)] if missing else []
        return [*self.damage(), *gaps, *self.lineage.notes]

    def _load(self, path: Path, expected: str) -> State:
        with _named(path):
            return unpack_state(read_bytes(path), expected)

    # ------------------------------------------------------------------ names of files: never taken from the journal

    def _name(self, entry: RecordedRound) -> str:
        probe = f"-probe{int(entry.probe):05d}" if entry.probe else ""
        return f"{int(entry.round):05d}{probe}" + (f".{int(entry.branch)}" if entry.branch else "")

    def _signals_file(self, entry: RecordedRound) -> Path:
        return self.directory / SIGNALS / f"{self._name(entry)}.parquet"

    def _newest_file(self, entry: RecordedRound) -> Path:
        return self.directory / f"model-{self._name(entry)}.safetensors"

    def _round_file(self, entry: RecordedRound, what: str) -> Path:
        return self.directory / ROUNDS / self._name(entry) / f"{what}.safetensors"

    def _model_file(self, entry: RecordedRound, party: str) -> Path:
        return self._round_file(entry, f"party-{safe_name(party)}")

    def _holder_of(self, model: str) -> RecordedRound | None:
        """A kept round whose aggregate is this model."""
        kept = (e for e in self.lineage.entries.values() if e.kept and model != UNSEEN_DIGEST)
        return next((e for e in kept if e.aggregate == model), None)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Adds the file's name to a DamagedError."""
    try:
        yield
    except DamagedError as error:
        raise DamagedError(f"{path.parent.name}/{path.name} {error}") from None


def safe_name(name: str) -> str:
    """A safe file name for any string: the string itself if it is safe, else its safe characters and a hash."""
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,39}", name):
        return name
    harmless = re.sub("[^A-Za-z0-9_-]", "", name)[:24]
    return f"{harmless}~{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}"


def clear(directory: Path) -> None:
    """Removes a trace, and nothing else in its directory."""
    sweep(directory)
    for path in (directory / RUN, directory / JOURNAL, *directory.glob("model-*.safetensors")):
        path.unlink(missing_ok=True)
    for folder in (directory / SIGNALS, directory / ROUNDS):
        if folder.is_symlink():
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)


def divided(seen: Mapping[Key, Measured]) -> dict[str, Any]:
    """What the seconds of each part were spent on: the names once, and for each part its seconds in their order."""
    on = sorted({item for of in seen.values() for item in of.spent})
    seconds = {key or "": [_finite(of.spent.get(item, 0.0)) for item in on] for key, of in seen.items() if of.spent}
    return {"on": on, "of": seconds} if on else {}


def delivered(round: Round) -> dict[str, Delivered]:
    return {
        name: Delivered(digest(one.state), one.examples, _finite(one.epoch_seconds), one.is_model)
        for name, one in round.sent.items()
    }


def told_of(round: Round, found: Sequence[RoundRisk], *, first: bool, **about: Any) -> journal.Event:
    """A round of a party that audits itself, for those who watch it: it keeps no trace. `first`: of its run, so that
    rounds of a former run in the same folder are none of this one; `about`: what else a watcher is to know."""
    return {
        "event": "round", "round": round.index, "branch": 0, "opens": first, "origin": 0 if first else None,
        "commit": True, "broadcast": digest_of_seen(round.broadcast), "aggregate": digest_of_seen(round.aggregate),
        "parties": {name: vars(one) for name, one in delivered(round).items()}, "kept": False, "signals": None,
        "names": [], "parts": [], "at": time.time(), "risks": [_defined(risk) for risk in found], **about,
    }  # fmt: skip


def _defined(risk: RoundRisk) -> dict[str, Any]:
    """A number that is not finite has no place in a journal."""
    of = vars(risk)
    return of | {key: of[key] if math.isfinite(of[key] or 0.0) else None for key in ("value", "low", "high")}


def _finite(seconds: float) -> float:
    return max(0.0, float(seconds)) if math.isfinite(seconds) else 0.0  # a clock may have been set back


# ------------------------------------------------------------------ run.json


def load_manifest(directory: Path) -> Manifest:
    """Reads run.json, if it is as it was written. A newer schema is refused, an older one is read."""
    path = directory / RUN
    if not path.is_file():
        raise FedauditError("no-run", f"there is no {RUN} in {directory}", "Give a folder that `fedaudit run` wrote.")
    if path.stat().st_size > MAX_BYTES:
        raise FedauditError("run-size", f"{path} is larger than 64 MiB", "Run again with --force.", exit_code=REFUSED)
    blob = path.read_bytes()
    journal.verify(path, checksum(blob), "train again with --force, which replaces the run and what it recorded.")
    try:
        manifest = json.loads(blob)
    except (ValueError, RecursionError):
        raise _unreadable(path, "it is not JSON") from None
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if type(schema) is int and schema > SCHEMA:  # whatever else it holds
        raise FedauditError(
            "schema-newer", f"{path} has schema {schema}, this fedaudit reads up to {SCHEMA}",
            "Install a newer fedaudit.",
            exit_code=REFUSED,
        )  # fmt: skip
    try:
        _Kinds.model_validate(manifest)
    except ValidationError as error:  # its words would quote what is there
        key = ".".join(str(part) for part in error.errors()[0]["loc"]) or "all of it"
        kind = "not a whole number of at least 1" if key == "schema" else "of another kind than a run has"
        raise _unreadable(path, f"{key} is {kind}") from None
    loaded: Manifest = manifest
    return loaded


def _unreadable(path: Path, why: str) -> FedauditError:
    what = f"{path} was not written by fedaudit, or is damaged: {why}"
    return FedauditError("run-unreadable", what, "Run again with --force.", exit_code=REFUSED)
