"""Checksums of the files beside a journal: a flipped bit in one of them is found before it is believed.

The journal has a line for each file, written *before* the file is put in its place: whoever is killed between the two
leaves the earlier file, which an earlier line vouches for. A file is as written if any line vouches for it. This finds
damage, not forgery: whoever can change a file can also change the journal.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.files import Lock
from fedaudit.trace import journal
from fedaudit.types import Notice, notice

JOURNAL = "journal.jsonl"
EVENT = "files"

Checksums = Mapping[str, str]  # by the name of the file
Seal = Callable[[Checksums], None]  # writes them to a journal


def event(checksums: Checksums) -> journal.Event:
    return {"event": EVENT, "checksums": dict(checksums)}


def seal(directory: Path, checksums: Checksums) -> None:
    """Writes checksums to the journal of a folder, which is created if there is none. The folder must not be locked."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = Lock(directory)
    try:
        append(directory, checksums)
    finally:
        lock.release()


def append(directory: Path, checksums: Checksums) -> None:
    """The same for whoever holds the lock."""
    directory.mkdir(parents=True, exist_ok=True)
    written = journal.Journal(directory / JOURNAL)
    try:
        written.append(event(checksums))
    finally:
        written.close()


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
    return [notice("no-checksum", file=path.name, damaged=len(journal.read(path.with_name(JOURNAL)).damaged))]


def _recorded(path: Path) -> set[str]:
    events = journal.read(path.with_name(JOURNAL)).events
    lists = [e["checksums"] for e in events if e["event"] == EVENT and isinstance(e.get("checksums"), dict)]
    return {str(checksums[path.name]) for checksums in lists if path.name in checksums}
