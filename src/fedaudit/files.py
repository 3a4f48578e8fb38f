"""Atomic file writes, a lock that gives a directory a single writer, and what a file is by its first bytes.

Only regular files are written. What is a link, a device, a pipe or a folder is refused, and nothing happens to it: a
run that somebody sent may hold a link to a file of yours.
"""

import contextlib
import errno
import os
import stat
import sys
import threading
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from fedaudit.errors import FedauditError

_TEMPORARY = ".tmp-"
PRIVATE = 0o600  # results and traces name members: they are for their owner alone
LOCK = "lock"
HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # what a system says of a lock that somebody has


@contextlib.contextmanager
def atomic(path: Path, mode: int = PRIVATE) -> Iterator[Path]:
    """Write to the temporary path that this yields; afterwards `path` holds either all of it or what it held before.

    The file is synced to disk, renamed, and then the directory is synced.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        _check_regular(path, path.lstat().st_mode)
    temporary = path.with_name(f"{_TEMPORARY}{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        temporary.unlink(missing_ok=True)  # from an earlier process of the same number
        os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_EXCL, mode))
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


IRREGULAR = "it is a link, a device, a pipe or a folder, and only regular files are written"


def _check_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(errno.EPERM, IRREGULAR, str(path))


def open_regular(path: Path, flags: int, mode: int = PRIVATE) -> int:
    """A descriptor, for a file that is or becomes a regular one. No link is followed, and no pipe is waited for."""
    cautious = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags | cautious, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise OSError(errno.EPERM, IRREGULAR, str(path)) from None
        raise
    try:
        _check_regular(path, os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def refuse_links(top: Path, path: Path) -> None:
    """Refuses a path on which something below `top` is a link. What leads to `top` may be links of the user's own."""
    for place in (path, *path.parents):
        if place == top:
            return
        if place.is_symlink():
            raise OSError(errno.EPERM, f"{place.name} is a link, and nothing is written through links", str(place))


def sync_directory(directory: Path) -> None:
    """A renamed file survives a power cut only if its directory has been synced as well."""
    if sys.platform == "win32":
        return  # Windows cannot open a directory
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_foreign(directory: Path, ours: Iterable[str]) -> None:
    """Refuses a folder that holds something, but none of the files that one of ours has."""
    if directory.exists() and not directory.is_dir():
        raise FedauditError("not-a-folder", f"{directory} is a file", "Choose a folder with --out (out= in Python).")
    if not directory.is_dir() or any((directory / name).exists() for name in ours):
        return
    others = [path.name for path in directory.iterdir() if path.name != LOCK and not path.name.startswith(_TEMPORARY)]
    if others:
        what = f"{directory} is not empty and not a run of fedaudit (it holds {sorted(others)[0]!r})"
        raise FedauditError("not-empty", what, "Choose another folder with --out (out= in Python).")


def sweep(directory: Path) -> None:
    """Remove temporary files that a killed process left behind."""
    for path in directory.rglob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            path.unlink()


class Lock:
    """Lets one process at a time write to a directory. The system releases it when that process ends."""

    def __init__(self, directory: Path):
        self.path = directory / LOCK
        descriptor = open_regular(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        self.file: IO[str] = os.fdopen(descriptor, "a+", encoding="utf-8")
        try:
            _acquire(self.file)
        except OSError as error:
            self.file.seek(0)
            holder = self.file.read(20).strip()
            self.file.close()
            if error.errno not in HELD:
                what = f"{directory} cannot be locked: {error.strerror}"
                todo = "Some network file systems have no locks: choose a folder on another one with --out."
                raise FedauditError("not-writable", what, todo) from None
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

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.release()


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Makes the directory if it is not there, and lets nobody else write to it in the meantime."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = Lock(directory)
    except OSError as error:
        what = f"cannot write to {directory}: {error.strerror}"
        raise FedauditError("not-writable", what, "Choose another folder with --out.") from None
    with lock:
        yield


if sys.platform == "win32":
    import msvcrt

    def _acquire(file: IO[str]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _acquire(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# ------------------------------------------------------------------ what a file is

ZIP, TEXT = b"PK\x03\x04", "text"
FIRST_BYTES = {
    b"PAR1": "parquet",
    ZIP: "zip",
    b"\x93NUMPY": "npy",
    b"\xd0\xcf\x11\xe0": "xls",
    b"\x1f\x8b": "gzip",
    b"SQLite format 3": "sqlite",
    b"ARROW1": "arrow",
    b"\x89HDF": "hdf5",
    b"\x89PNG": "picture",
    b"\xff\xd8\xff": "picture",
    b"\x80": "pickle",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}


def kind_of(path: Path) -> str:
    """What a file is, whatever its name says: one of the words above, or npz, xlsx, json, folder, text, binary."""
    if path.is_dir():
        return "folder"
    with path.open("rb") as file:
        start = file.read(4096)
    found = next((kind for first, kind in FIRST_BYTES.items() if start.startswith(first)), "")
    if found == "zip":
        return _packed(path)
    if found or b"\0" in start:
        return found or "binary"
    return "json" if start.lstrip()[:1] in (b"{", b"[") else TEXT


def _packed(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):  # damaged, or of a version to come
        return "zip"
    if any(name.startswith("xl/") for name in names):
        return "xlsx"
    return "npz" if names and all(name.endswith(".npy") for name in names) else "zip"
