"""Atomic file writes, and a lock that gives a directory a single writer."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fedaudit.errors import FedauditError

_TEMPORARY = ".tmp-"
PRIVATE = 0o600  # results and traces name members: they are for their owner alone


@contextlib.contextmanager
def atomic(path: Path, mode: int = PRIVATE) -> Iterator[Path]:
    """Write to the temporary path that this yields; afterwards `path` holds either all of it or what it held before.

    The file is synced to disk, renamed, and then the directory is synced.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{_TEMPORARY}{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode))
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_atomically(path: Path, text: str | bytes, mode: int = PRIVATE) -> None:
    with atomic(path, mode) as temporary:
        temporary.write_bytes(text.encode() if isinstance(text, str) else text)


def sync_directory(directory: Path) -> None:
    """A renamed file survives a power cut only if its directory has been synced as well."""
    if sys.platform == "win32":
        return  # Windows cannot open a directory
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(directory: Path) -> None:
    """Remove temporary files that a killed process left behind."""
    for path in directory.rglob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            path.unlink()


class Lock:
    """Lets one process at a time write to a directory. The system releases it when that process ends."""

    def __init__(self, directory: Path):
        self.path = directory / "lock"
        self.file: IO[str] = self.path.open("a+", encoding="utf-8")
        try:
            _acquire(self.file)
        except OSError:
            self.file.seek(0)
            holder = self.file.read(20).strip()
            self.file.close()
            raise FedauditError(
                "locked",
                f"another fedaudit (process {holder if holder.isdecimal() else 'unknown'}) is writing to {directory}",
                "Wait for it, or choose another folder with --out.",
            ) from None
        self.file.truncate(0)
        self.file.write(f"{os.getpid()}\n")
        self.file.flush()

    def release(self) -> None:
        self.file.close()


if sys.platform == "win32":
    import msvcrt

    def _acquire(file: IO[str]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _acquire(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
