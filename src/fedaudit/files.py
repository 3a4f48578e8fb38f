"""Files that are whole or absent, and one writer for a directory."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fedaudit.errors import FedauditError

_TEMPORARY = ".tmp-"


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Either the whole file or the old one: write to the path given here; then fsync, rename, fsync the directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{_TEMPORARY}{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_atomically(path: Path, text: str | bytes) -> None:
    with atomic(path) as temporary:
        temporary.write_bytes(text.encode() if isinstance(text, str) else text)


def sync_directory(directory: Path) -> None:
    """A renamed file survives a power cut only when its directory has reached the disk, too."""
    if sys.platform == "win32":
        return  # a directory cannot be opened there
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(directory: Path) -> None:
    """Remove what a killed writer left half-written."""
    for path in directory.rglob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            path.unlink()


class Lock:
    """One writer for a directory. The system lets go of it when the process dies, so a stale one cannot block."""

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
                f"another fedaudit (process {holder or 'unknown'}) is writing to {directory}",
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
