"""Archives that claim more than there is, or hold a part twice: refused before anything is read whole."""

import io
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.config.schema import parse
from fedaudit.data import archive, load
from fedaudit.data.archive import MAX_FILES, MAX_HEADER, ArchiveRefused, parts
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset

LIMIT = 10 * MAX_HEADER


def loaded(**data: Any) -> Dataset:
    return load(parse({"data": data}).data)


def entry(name: str, content: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A header of the old kind, and what follows it."""
    made = tarfile.TarInfo(name)
    made.size, made.type = len(content), kind
    return made.tobuf(tarfile.USTAR_FORMAT) + content + b"\0" * (-len(content) % tarfile.BLOCKSIZE)


def with_size(header: bytes, size: int) -> bytes:
    header = header[:124] + size.to_bytes(12, "big", signed=True) + header[136:]
    checksum = sum(header[:148]) + 8 * ord(" ") + sum(header[156:512])
    return header[:148] + b"%06o\0 " % checksum + header[156:]


def pax(**said: str) -> bytes:
    lines = []
    for key, value in said.items():
        rest = f" {key}={value}\n"
        digits = next(digits for digits in range(1, 9) if len(str(len(rest) + digits)) == digits)
        lines.append(f"{len(rest) + digits}{rest}")
    return "".join(lines).encode()


def read(path: Path, content: bytes) -> dict[str, bytes]:
    path.write_bytes(content)
    return parts(
        path, lambda name: name.rsplit("/", 1)[-1] if "wanted" in name else "", LIMIT, lambda file: file.read()
    )


GOOD = entry("a/wanted", b"good")


def test_what_is_wanted_is_read(tmp_path: Path) -> None:
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", format=form) as made:
            for name in ("a/other", f"{'long' * 60}/wanted"):
                one = tarfile.TarInfo(name)
                one.size = 4
                made.addfile(one, io.BytesIO(b"good"))
            folder = tarfile.TarInfo("wanted")
            folder.type = tarfile.DIRTYPE
            made.addfile(folder)
        assert read(tmp_path / "a.tgz", packed.getvalue()) == {"wanted": b"good"}


@pytest.mark.parametrize("kind", archive.BESIDE)
def test_a_header_beside_the_first_is_small(tmp_path: Path, kind: bytes) -> None:
    text = kind in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)

    def beside(size: int) -> bytes:
        return entry("beside", (b"wanted" if text else pax(comment="a")).ljust(size, b"\0"), kind)

    assert read(tmp_path / "a.tar", entry("x", b"") + beside(MAX_HEADER) + GOOD) == {"wanted": b"good"}
    for first in (b"", entry("x", b"")):
        with pytest.raises(ArchiveRefused, match="cannot be read as a tar archive"):
            read(tmp_path / "a.tar", first + beside(MAX_HEADER + 1) + GOOD)


@pytest.mark.parametrize(
    "content",
    [
        GOOD + with_size(entry("x", b""), -512),
        GOOD + with_size(entry("x", b"", tarfile.XHDTYPE), -512) + entry("y", b""),
        GOOD + entry("x", b"\0" * 9, tarfile.GNUTYPE_SPARSE),
        GOOD + entry("x", pax(**{"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}), tarfile.XHDTYPE)
        + entry("y", b"1\n0\n0\n"),
        GOOD + entry("x", pax(a="b"), tarfile.XHDTYPE) * 2000 + entry("y", b""),
        GOOD[:514],
    ],
    ids=["negative", "negative-header", "sparse", "sparse-by-header", "headers-of-headers", "cut"],
)  # fmt: skip
def test_what_takes_memory_or_goes_on_without_end_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ArchiveRefused, match="cannot be read as a tar archive"):
        read(tmp_path / "a.tar", content)


def test_files_are_few_and_small(tmp_path: Path) -> None:
    assert read(tmp_path / "a.tar", entry("x", b"") * (MAX_FILES - 1) + GOOD) == {"wanted": b"good"}
    with pytest.raises(ArchiveRefused, match="more than 1000 files"):
        read(tmp_path / "a.tar", entry("x", b"") * MAX_FILES + GOOD)
    for size in (str(LIMIT + 1), "-5"):
        with pytest.raises(ArchiveRefused, match=re.escape(f"a file in it has {int(size):,} bytes")):
            read(tmp_path / "a.tar", entry("x", pax(size=size), tarfile.XHDTYPE) + GOOD)


def test_headers_of_all_entries_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of a mebibyte each would be a gibibyte; a header for all files adds up."""
    kept = []

    class Watched(tarfile.TarFile):
        def next(self) -> tarfile.TarInfo | None:
            kept.append(len(self.members) + len(self.pax_headers))  # type: ignore[attr-defined]
            return super().next()

    monkeypatch.setattr(tarfile, "open", Watched)
    one_each = b"".join(entry("h", pax(**{f"key{n}": "v"}), tarfile.XGLTYPE) + entry("x", b"") for n in range(20))
    assert read(tmp_path / "a.tar", one_each + GOOD) == {"wanted": b"good"}
    assert max(kept) <= 2


@pytest.mark.parametrize(
    ("name", "file", "code"),
    [
        ("purchase100", "dataset_purchase", "shokri-file"),
        ("texas100", "texas/100/feats", "shokri-file"),
        ("cifar10", "cifar-10-batches-bin/data_batch_1.bin", "cifar-archive"),
    ],
)
def test_a_part_that_is_there_twice_is_refused(tmp_path: Path, name: str, file: str, code: str) -> None:
    rows = np.full((4, 3073), ord("1"), np.uint8)
    rows[:, 1::2] = ord(",")
    rows[:, -2:] = list(b"1\n")
    path = tmp_path / "a.tar"
    path.write_bytes(entry(file, rows.tobytes()) + entry(f"other/{file}", rows.tobytes()) + b"\0" * 1024)
    with pytest.raises(FedauditError, match="is in it twice") as caught:
        loaded(name=name, path=str(path))
    assert (caught.value.code, caught.value.exit_code) == (code, 5)
