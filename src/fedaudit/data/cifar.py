"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) from the user's own copy: training and test images together.

It reads the *binary* version of the original archives, packed or unpacked, or an npz file with x_train, y_train, x_test
and y_test. The Python version of the archives is pickled, and fedaudit never opens pickled files.
"""

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.config.registry import DATA, Options
from fedaudit.data import npz
from fedaudit.data.images import as_images
from fedaudit.data.records import dataset
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.types import Dataset

PIXELS = 3 * 32 * 32
MAX_RECORDS = 50_000  # in one file
MAX_FILES = 100
LABELS = {"cifar10": 1, "cifar100": 2}  # bytes before the pixels; the last of them is the class
FILES = {
    "cifar10": [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"],
    "cifar100": ["train.bin", "test.bin"],
}
ARCHIVE = {"cifar10": "cifar-10-binary.tar.gz", "cifar100": "cifar-100-binary.tar.gz"}
NPZ = ("x_train", "y_train", "x_test", "y_test")


class CifarOptions(Options):
    path: Path | None = Field(
        None, description="your copy, relative to this file: the binary archive, its folder, or an npz file"
    )


@DATA.register("cifar100", "the same with 100 classes: cifar-100-binary.tar.gz", CifarOptions)
@DATA.register(
    "cifar10",
    'your copy of CIFAR-10: path = "cifar-10-binary.tar.gz", its folder, or npz with x_train, y_train, ...',
    CifarOptions,
)
def load(options: CifarOptions) -> Dataset:
    name, path = options.name, options.path
    if path is None:
        raise _wrong(name, "cifar-path", f"data.name = {name!r} needs data.path")
    if not path.exists():
        raise FedauditError("data-missing", f"there is no {path}", "Check data.path.")
    if path.suffix == ".npz":
        stored = npz.read(path, NPZ, NPZ)
        x, y = (np.concatenate([stored[f"{kind}_train"], stored[f"{kind}_test"]]) for kind in "xy")
        return dataset(name, as_images(x), y)
    files = _from_folder(name, path) if path.is_dir() else _from_archive(name, path)
    missing = [file for file in FILES[name] if file not in files]
    if missing:
        raise _wrong(name, "cifar-files", f"{path} does not hold {missing[0]}")
    parts = [_records(name, file, files[file]) for file in FILES[name]]
    return dataset(name, as_images(np.concatenate([x for x, _ in parts])), np.concatenate([y for _, y in parts]))


def _records(name: str, file: str, content: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    size = LABELS[name] + PIXELS
    if not content or len(content) % size:
        raise _wrong(name, "cifar-size", f"{file} has {len(content)} bytes, which are not records of {size} bytes")
    rows = np.frombuffer(content, np.uint8).reshape(-1, size)
    return rows[:, LABELS[name] :].reshape(-1, 3, 32, 32), rows[:, LABELS[name] - 1]


def _from_folder(name: str, path: Path) -> dict[str, bytes]:
    found = [path / file for file in FILES[name] if (path / file).is_file()]
    for file in found:
        _check_size(name, file.name, file.stat().st_size)
    return {file.name: file.read_bytes() for file in found}


def _from_archive(name: str, path: Path) -> dict[str, bytes]:
    """Only files of the expected names are read, in memory: no path of the archive is ever written to."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for number, entry in enumerate(archive):
                _check_size(name, "a file", entry.size)
                if number >= MAX_FILES:
                    raise _wrong(name, "cifar-archive", f"{path} holds more than {MAX_FILES} files")
                file = entry.name.rsplit("/", 1)[-1]
                if f"{file}.bin" in FILES[name]:
                    raise _wrong(name, "cifar-pickled", f"{path} is the Python version, whose files are pickled")
                content = archive.extractfile(entry) if entry.isfile() and file in FILES[name] else None
                if content is not None:
                    found[file] = content.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise _wrong(name, "cifar-archive", f"{path} cannot be read as a tar archive: {error}") from None
    return found


def _check_size(name: str, file: str, size: int) -> None:
    if size > MAX_RECORDS * (LABELS[name] + PIXELS):
        raise _wrong(name, "cifar-size", f"{file} has {size} bytes, more than {MAX_RECORDS} images")


def _wrong(name: str, code: str, what: str) -> FedauditError:
    arrays = ", ".join(NPZ)
    todo = f"Give the binary version of the original archive ({ARCHIVE[name]}), or an npz file with {arrays}."
    return FedauditError(code, what, todo, exit_code=2 if code == "cifar-path" else REFUSED)
