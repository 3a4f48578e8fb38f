"""A user's own npz file. Nothing in it is executed: pickled objects are refused."""

import math
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.config.registry import DATA, DataOptions
from fedaudit.data.records import as_images, dataset
from fedaudit.errors import REFUSED, FedauditError, suggest
from fedaudit.files import TEXT, kind_of
from fedaudit.types import Dataset, Ints

MAX_BYTES = 16 * 2**30  # unpacked; checked before anything is allocated
MAX_HEADER = 10_000  # characters of an array's header
# What damaged or hostile archives make zipfile and numpy raise; RuntimeError: it is encrypted, or packed in a way that
# zipfile does not know; MemoryError: a header claims more than there is.
UNREADABLE = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, KeyError, RuntimeError, MemoryError)
WIDTH = "n_features"  # beside an array of packed bits: how many of them count


class NpzOptions(DataOptions):
    path: Path | None = Field(None, description="the file, relative to this one")
    task: Literal["classification", "regression"] = Field(
        "classification", description="whether y is a class or a value"
    )
    x_key: str = Field("x", description="the array of records")
    y_key: str = Field("y", description="the array of labels (one a record, or one at each position), or of values")
    id_key: str = Field("id", description="stable names of the records; without them the content is the name")
    subject_key: str = Field("subject", description="whose record it is; records of one subject are not independent")
    attribute_key: str = Field("attribute", description="an attribute that an adversary may want to guess")
    session_key: str | None = Field(
        None, description="which session a record is of (a number or a name); a session of a subject is never split"
    )
    tokens: bool | None = Field(
        None, description="x holds numbers of characters or words, for a model that looks them up; not set: features"
    )


@DATA.register(
    "npz",
    'your own file: path = "...", keys x, y, optional id, subject, attribute (renameable with x_key, ...); '
    'task = "regression" where y holds values; tokens = true where x holds tokens; y may have a class at each position',
    NpzOptions,
)
def load(options: NpzOptions) -> Dataset:
    path = options.path
    if path is None:
        raise FedauditError("npz-path", 'data.name = "npz" needs data.path', 'Add path = "my-data.npz".')
    roles = ("x", "y", "id", "subject", "attribute")
    keys = {role: str(getattr(options, f"{role}_key")) for role in roles}
    if options.session_key is not None:
        keys["session"] = options.session_key
    # A key that was renamed is meant to be there; id, subject and attribute may be missing under their own names.
    required = [key for role, key in keys.items() if role in ("x", "y") or key != role]
    arrays = read(path, required, [*keys.values(), WIDTH])
    given = {role: arrays[key] for role, key in keys.items() if key in arrays}
    tokens = bool(options.tokens)
    x = given["x"] if tokens else as_images(_unpacked(given["x"], arrays.get(WIDTH)))
    attributes = _columns(options.attribute_key, given["attribute"]) if "attribute" in given else {}
    if options.session_key is not None:
        attributes |= _session(options.session_key, given["session"])
    found = dataset(
        path.stem,
        x,
        given["y"],
        id=given.get("id"),
        subject=given.get("subject"),
        attributes=attributes,
        regression=options.task == "regression",
        tokens=tokens,
    )
    return replace(found, session=options.session_key)


def read(path: Path, required: Iterable[str], wanted: Iterable[str]) -> dict[str, NDArray[Any]]:
    """The wanted arrays that are there, the required ones for certain."""
    if not path.is_file():
        raise FedauditError("data-missing", f"there is no file {path}", "Check data.path.")
    try:
        check_size(path, "npz-size")
        with np.load(path, allow_pickle=False) as file:
            missing = [key for key in required if key not in file]
            if missing:
                held = ", ".join(file.files) or "nothing"
                todo = (
                    f'Read it with name = "npz", whose x_key, y_key, ... name arrays. {suggest(missing[0], file.files)}'
                )
                raise FedauditError("npz-key", f"{path} has no array {missing[0]!r}; it holds {held}", todo)
            return plain_arrays({key: file[key] for key in dict.fromkeys(wanted) if key in file})
    except (*UNREADABLE, OSError) as error:
        is_table = kind_of(path) in (TEXT, "parquet")
        raise FedauditError(
            "npz-unreadable",
            f"{path} is not an npz file of plain arrays: {error}",
            'It looks like a table: write name = "table" and label = "...", the column that is predicted.'
            if is_table
            else "Write it with np.savez and without object arrays.",
            exit_code=REFUSED,
        ) from None


def plain_arrays(members: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The same, if each is an array: of a member that is none, numpy hands out the bytes."""
    for name, member in members.items():
        if not isinstance(member, np.ndarray):
            raise ValueError(f"{name[:40]!r} is not stored as an array")
    return dict(members)


def check_size(path: Path, code: str) -> None:
    """Refuse, with this code, an archive that unpacks to more than is ever read, or an array that claims to."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        unpacked = sum(entry.file_size for entry in entries)
        if unpacked > MAX_BYTES:
            what = f"{path} unpacks to {unpacked / 2**30:.0f} GiB"
            raise FedauditError(code, what, "Give a smaller file, with part of the records.", exit_code=REFUSED)
        for entry in entries:
            if entry.filename.endswith(".npy"):
                with archive.open(entry) as file:
                    claimed = _claimed(file)
                if claimed > entry.file_size:
                    what = f"{path}: {entry.filename[:40]!r} claims {claimed:,} bytes and has {entry.file_size:,}"
                    raise FedauditError(code, what, "Write it again with numpy.savez.", exit_code=REFUSED)


def _claimed(file: IO[bytes]) -> int:
    """How many bytes the header of an array says that it has. Nothing of that size is allocated."""
    version = npy.read_magic(file)
    reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = reader(file, max_header_size=MAX_HEADER)
    return int(math.prod(shape)) * int(dtype.itemsize)


def _unpacked(x: NDArray[Any], width: NDArray[Any] | None) -> NDArray[Any]:
    """Packed bits become one feature each, when the file says how many there are."""
    if width is None or width.size != 1 or x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != -(-int(width) // 8):
        return x
    return np.unpackbits(x, axis=1, count=int(width))


def _session(name: str, values: NDArray[Any]) -> dict[str, Ints]:
    """Numbers that are the same where the session is; names of sessions are numbered."""
    if values.ndim != 1 or values.dtype.kind not in "iubUS":
        what = f"session {name!r} is {values.dtype} of shape {values.shape}"
        raise FedauditError("session", what, "Store one whole number, or one name, for each record.")
    return {name: np.unique(values, return_inverse=True)[1].astype(np.int64)}


def _columns(name: str, values: NDArray[Any]) -> dict[str, Ints]:
    """One attribute, or several side by side: `name.0`, `name.1`, ..."""
    if values.dtype.kind not in "iub" or values.ndim not in (1, 2):
        raise FedauditError(
            "attribute",
            f"attribute {name!r} is {values.dtype} of shape {values.shape}",
            "Store whole numbers, with -1 for unknown values.",
        )
    if values.ndim == 1:
        return {name: values.astype(np.int64)}
    return {f"{name}.{i}": values[:, i].astype(np.int64) for i in range(values.shape[1])}
