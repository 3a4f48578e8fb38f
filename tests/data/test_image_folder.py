"""A folder of pictures, one folder for each class."""

import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.config.schema import parse
from fedaudit.data import load
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset

Image = pytest.importorskip("PIL.Image")


def read(path: Path, **options: Any) -> Dataset:
    return load(parse({"data": {"name": "images", "path": str(path)} | options}).data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eight grey pictures of 6 x 5 pixels, of two classes and four people."""
    rng = np.random.default_rng(0)
    for label in ("ill", "well"):
        for i in range(4):
            path = tmp_path / "scans" / label / f"p{i % 2}{label}_{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (5, 6), np.uint8)).save(path)
    return tmp_path / "scans"


def test_pictures_are_read_pixel_by_pixel(folder: Path) -> None:
    found = read(folder)
    assert (found.classes, found.input_shape, len(found.records)) == (2, (1, 5, 6), 8)
    assert found.records.id[0] == "ill/p0ill_0.png"
    assert found.records.y.tolist() == [0] * 4 + [1] * 4
    with Image.open(folder / "well" / "p1well_3.png") as picture:
        assert np.array_equal(found.records.x[7, 0] * 255, np.asarray(picture))


def test_people_colour_size_and_jpeg(folder: Path) -> None:
    found = read(folder, subject_before="_")
    assert found.records.subject is not None
    assert sorted(set(found.records.subject.tolist())) == ["p0ill", "p0well", "p1ill", "p1well"]
    Image.fromarray(np.full((40, 40, 3), (250, 0, 0), np.uint8)).save(folder / "ill" / "x_1.jpg")
    with pytest.raises(FedauditError, match=r"pictures of 2 sizes.*Set data.size"):
        read(folder)
    scaled = read(folder, size=8)
    assert scaled.input_shape == (3, 8, 8)  # one is in colour, so all have three channels
    red = scaled.records.x[scaled.records.id.tolist().index("ill/x_1.jpg")]
    assert red[0].min() > 0.9
    assert red[1:].max() < 0.1
    assert read(folder, size=8, colour="grey").input_shape == (1, 8, 8)
    with pytest.raises(FedauditError, match="file names do not have '-'"):
        read(folder, size=8, subject_before="-")


def test_what_is_no_folder_of_pictures(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(FedauditError, match='Write name = "table"'):
        read(tmp_path / "a.csv")
    with pytest.raises(FedauditError, match="no folder with PNG or JPEG"):
        read(folder / "ill")
    (folder / "ill" / "torn_1.png").write_bytes(b"\x89PNG\r\n\x1a\n torn")
    with pytest.raises(FedauditError, match=r"torn_1.png is not a PNG or JPEG"):
        read(folder)
    with pytest.raises(FedauditError, match="there is no folder"):
        read(tmp_path / "none")


@pytest.mark.parametrize("side", [10_000, 60_000])  # Pillow warns of the first, and raises an error of its own
def test_B17_a_picture_that_unpacks_to_gigabytes_is_refused(folder: Path, side: int) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    whole = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    (folder / "ill" / "bomb_1.png").write_bytes(whole)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(FedauditError, match=r"bomb_1.png is not a PNG or JPEG picture of at most 64 million"):
            read(folder, size=8)
