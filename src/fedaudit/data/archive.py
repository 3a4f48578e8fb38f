"""Files of a tar archive, read in memory: nothing is written to a path that it names, and headers take little."""

import lzma
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar

MAX_FILES = 1000
MAX_HEADER = 2**20  # bytes of a header beside the first: tarfile reads it whole
BESIDE = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip
# What damaged or hostile archives make tarfile raise; RecursionError: a header beside a header beside a header ...
UNREADABLE = (tarfile.TarError, OSError, EOFError, ValueError, RecursionError, zlib.error, lzma.LZMAError)
T = TypeVar("T")


class ArchiveRefused(ValueError):
    """It is no tar archive, or claims more than is ever read."""


class _Entry(tarfile.TarInfo):
    """An entry whose header takes little memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Entry":
        entry = super().frombuf(buf, encoding, errors)
        if entry.size < 0:  # tarfile would read all that follows
            raise tarfile.ReadError("an entry has a negative size")
        if entry.type in BESIDE and entry.size > MAX_HEADER:
            raise tarfile.ReadError(f"a header has more than {MAX_HEADER >> 20} MiB")
        if entry.type == tarfile.GNUTYPE_SPARSE:
            _refuse_sparse()
        return entry

    def _proc_gnusparse_10(self, *_: Any) -> NoReturn:
        _refuse_sparse()


def _refuse_sparse() -> NoReturn:
    """The map of such a file is a list in Python, of any length."""
    raise tarfile.ReadError("a file in it is sparse")


def parts(path: Path, part: Callable[[str], str], most: int, read: Callable[[IO[bytes]], T]) -> dict[str, T]:
    """What `read` makes of each file that is a part: `part` says which one, by the file's name, or "" for none.

    No file may have more than `most` bytes. Raises ArchiveRefused.
    """
    found: dict[str, T] = {}
    try:
        with tarfile.open(path, tarinfo=_Entry) as archive:
            number = 0
            while entry := archive.next():
                archive.members.clear()  # type: ignore[attr-defined]  # else tarfile keeps all entries,
                archive.pax_headers.clear()  # type: ignore[attr-defined]  # and what a header says for all that follow
                number += 1
                if number > MAX_FILES:
                    raise ArchiveRefused(f"it holds more than {MAX_FILES} files")
                if not 0 <= entry.size <= most:
                    raise ArchiveRefused(f"a file in it has {entry.size:,} bytes, and at most {most:,} are read")
                name = part(entry.name) if entry.isfile() else ""
                content = archive.extractfile(entry) if name else None
                if content is None:
                    continue
                if name in found:
                    raise ArchiveRefused(f"{entry.name[:100]!r} is in it twice, or another file of that name")
                found[name] = read(content)
    except ArchiveRefused:
        raise
    except PermissionError:
        raise
    except UNREADABLE as error:
        raise ArchiveRefused(f"it cannot be read as a tar archive ({type(error).__name__})") from None
    return found
