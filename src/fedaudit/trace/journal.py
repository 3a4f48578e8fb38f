"""The journal: one line of JSON for each event, each with its number and checksum, on disk before `append` returns.

It also vouches for the files beside it: a flipped bit in one of them is found before it is believed. The checksum of a
file is written *before* the file is put in its place: whoever is killed between the two leaves the earlier file, which
an earlier line vouches for. A file is as written if any line vouches for it. This finds damage, not forgery: whoever
can change a file can also change the journal.
"""

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.files import Lock, open_regular
from fedaudit.types import Notice, notice

JOURNAL = "journal.jsonl"
MAX_BYTES = 4 * 2**30
MAX_LINE = 256 * 2**20

Event = dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """The content of a journal: its intact events, the numbers of the damaged lines, and where to append."""

    events: list[Event]
    damaged: list[int]
    good_bytes: int
    torn: bool  # the last line was being written when the writer died

    @property
    def removed(self) -> int:
        """How many lines were taken out. Lines are numbered, so that their numbers are missing."""
        numbers = {event["n"] for event in self.events}
        return max(0, max(numbers, default=0) - len(numbers) - len(self.damaged))


def encode(number: int, event: Event) -> bytes:
    body = json.dumps({**event, "n": number}, allow_nan=False, ensure_ascii=True)
    return f'{body[:-1]}, "check": "{_check(body)}"}}\n'.encode()


def decode(line: bytes) -> Event | None:
    """The event, or None for a line that is not what was written."""
    head, separator, tail = line.rstrip(b"\n").rpartition(b', "check": "')
    if not separator or not tail.endswith(b'"}') or tail[:-2].decode("ascii", "replace") != _check(head + b"}"):
        return None
    try:
        event = json.loads(head + b"}")
    except (ValueError, RecursionError):
        return None
    known = isinstance(event, dict) and isinstance(event.get("n"), int) and isinstance(event.get("event"), str)
    return event if known else None


def _check(body: str | bytes) -> str:
    return hashlib.sha256(body.encode() if isinstance(body, str) else body).hexdigest()[:16]


def read(path: Path) -> Reading:
    """Reads all intact lines. A damaged last line is an unfinished write; damaged lines before it are skipped and
    listed."""
    if not path.is_file():  # a pipe would be waited for
        return Reading([], [], 0, False)
    if path.stat().st_size > MAX_BYTES:
        raise FedauditError(
            "journal-size", f"{path} is larger than 4 GiB", "Run again with --force.", exit_code=REFUSED
        )
    events: list[Event] = []
    bad: list[int] = []
    position = good = good_lines = number = 0
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE):
            number, position = number + 1, position + len(line)
            event = decode(line) if line.endswith(b"\n") else None
            if event is None:
                bad.append(number)
                continue
            events.append(event)
            good, good_lines = position, number
    return Reading(events, [n for n in bad if n < good_lines], good, position > good)


class Journal:
    """Appends to a journal. Opening it removes an unfinished last line that a killed process left."""

    def __init__(self, path: Path):
        self.reading = read(path)
        self.next = max((event["n"] for event in self.reading.events), default=0) + 1
        self.file = _private(path)
        if self.reading.torn:
            self.file.truncate(self.reading.good_bytes)
            self._flush()

    def append(self, event: Event) -> None:
        """Appends an event, which is on disk when this returns. A write that fails halfway is undone."""
        line = encode(self.next, event)
        if self.file.closed:  # an audit that is finished once more
            self.file = _private(Path(self.file.name))
        self.check()
        before = self.file.seek(0, os.SEEK_END)
        try:
            self.file.write(line)
            self._flush()
        except OSError:
            self._take_back(before)
            raise
        self.next += 1

    def check(self) -> None:
        """Refuses to go on when the file that is open is not the one of that name any more."""
        if self.file.closed:
            return
        mine = os.fstat(self.file.fileno())
        try:
            there = os.lstat(self.file.name)
        except FileNotFoundError:
            there = None
        if there is None or not os.path.samestat(mine, there):
            raise OSError(errno.ESTALE, "the folder was deleted or replaced in the meantime", self.file.name)

    def close(self) -> None:
        self.file.close()

    def _flush(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())

    def _take_back(self, size: int) -> None:
        """Unbuffered, because a buffered file would try to write the rest again."""
        path = Path(self.file.name)
        with contextlib.suppress(OSError):
            self.file.close()
        self.file = _private(path)
        self.file.truncate(size)


def _private(path: Path) -> IO[bytes]:
    """Opened for appending; a new journal is for its owner alone, like the files beside it."""
    return open(path, "ab", opener=lambda name, flags: open_regular(Path(name), flags))


# ------------------------------------------------------------------ checksums of the files beside a journal

EVENT = "files"

Checksums = Mapping[str, str]  # by the name of the file
Seal = Callable[[Checksums], None]  # writes them to a journal


def event(checksums: Checksums) -> Event:
    return {"event": EVENT, "checksums": dict(checksums)}


def seal(directory: Path, checksums: Checksums) -> None:
    """Writes checksums to the journal of a folder, which is created if there is none. The folder must not be locked."""
    record(directory, event(checksums))


def record(directory: Path, happened: Event) -> None:
    """Writes one event to the journal of a folder that has no trace, such as that of a party that audits itself."""
    directory.mkdir(parents=True, exist_ok=True)
    with Lock(directory), contextlib.closing(Journal(directory / JOURNAL)) as written:
        written.append(happened)


def append(directory: Path, checksums: Checksums) -> None:
    """The same for whoever holds the lock."""
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(Journal(directory / JOURNAL)) as written:
        written.append(event(checksums))


def checksum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


AGAIN = (
    "make it again: `fedaudit audit` needs the recorded rounds alone, and `fedaudit run` with the same configuration "
    "goes on once the damaged results are deleted."
)


def verify(path: Path, found: str, remedy: str = AGAIN) -> bool:
    """Is the file with this checksum as it was written? False where no journal says so, refused if it differs."""
    recorded = _recorded(path)
    if recorded and found not in recorded:
        raise FedauditError(
            "file-changed",
            f"{path} is not as it was written: its checksum differs from the one in {JOURNAL}",
            f"Restore {path.name} from a copy, or {remedy}",
            exit_code=REFUSED,
        )
    return bool(recorded)


def vouched(path: Path) -> bool:
    """Does a journal have a checksum of this file?"""
    return bool(_recorded(path))


def unchecked(path: Path) -> list[Notice]:
    """What is to be said of a file that nothing vouches for; nothing if a journal does."""
    if _recorded(path):
        return []
    return [notice("no-checksum", file=path.name, damaged=len(read(path.with_name(JOURNAL)).damaged))]


def _recorded(path: Path) -> set[str]:
    events = read(path.with_name(JOURNAL)).events
    lists = [e["checksums"] for e in events if e["event"] == EVENT and isinstance(e.get("checksums"), dict)]
    return {str(checksums[path.name]) for checksums in lists if path.name in checksums}
