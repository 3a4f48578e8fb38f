"""A user's own npz file. Nothing in it is executed: pickled objects are refused."""

import zipfile

import numpy as np

from fedaudit.config import Data
from fedaudit.data.records import dataset
from fedaudit.errors import REFUSED, FedauditError, suggest
from fedaudit.types import Dataset

MAX_BYTES = 16 * 2**30  # unpacked; checked before anything is allocated


def load(settings: Data) -> Dataset:
    path = settings.path
    if path is None:
        raise FedauditError("npz-path", 'data.name = "npz" needs data.path', 'Add path = "my-data.npz".')
    if not path.is_file():
        raise FedauditError("data-missing", f"there is no file {path}", "Check data.path.")
    wanted = {
        "x": settings.x_key,
        "y": settings.y_key,
        "id": settings.id_key,
        "subject": settings.subject_key,
        "attribute": settings.attribute_key,
    }
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > MAX_BYTES:
            raise FedauditError(
                "npz-size", f"{path} unpacks to {unpacked / 2**30:.0f} GiB", "Audit a part of it.", exit_code=REFUSED
            )
        with np.load(path, allow_pickle=False) as file:
            missing = [key for role, key in wanted.items() if role in ("x", "y") and key not in file]
            if missing:
                raise FedauditError(
                    "npz-key",
                    f"{path} has no array {missing[0]!r}",
                    f"Name it with x_key or y_key. {suggest(missing[0], file.files)}",
                )
            arrays = {role: file[key] for role, key in wanted.items() if key in file}
    except (zipfile.BadZipFile, ValueError, OSError, EOFError) as error:
        raise FedauditError(
            "npz-unreadable",
            f"{path} is not an npz file of plain arrays: {error}",
            "Write it with np.savez and without object arrays.",
            exit_code=REFUSED,
        ) from None
    attribute = arrays.pop("attribute", None)
    attributes = {} if attribute is None else {settings.attribute_key: attribute.astype(np.int64)}
    return dataset(path.stem, attributes=attributes, **arrays)
