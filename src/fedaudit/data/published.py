"""Benchmarks of the field, read from the user's own copies as they are published.

- `leaf` (Caldas et al. 2018): JSON files with users, and what each of them has. FEMNIST (pictures of 28 x 28 pixels),
  Shakespeare (80 characters and the one that follows), Sent140 (tweets), CelebA (names of pictures in a folder).
  Users are the subjects.
- `purchase100`, `texas100` (Shokri et al. 2017): npz with features and one-hot labels, or the original archives.

Nothing pickled is opened, and nothing is unpacked beyond a limit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.config.registry import DATA, DataOptions
from fedaudit.data import archive, npz
from fedaudit.data.records import as_images, dataset
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.types import Dataset

# ------------------------------------------------------------------ LEAF

MAX_JSON = 2**31  # bytes of one file
MNIST_PIXELS = 28 * 28
TEXT_OF_TWEET = 4  # a tweet is its number, time, query, user and text
WORDS, TWEET = 10_000, 25  # the commonest words of tweets, and how many of a tweet count
PAD, UNKNOWN = 0, 1
MAX_COLUMNS = 20_000  # Texas has 6,169
LEAST_SHARED = 8  # characters that end one window and begin the next one of its user: more than chance
ALIKE = 16  # characters that begin or end one window and are in another, of anybody: more than a common phrase


class LeafOptions(DataOptions):
    path: Path = Field(description="your copy, relative to this file: a JSON file of LEAF, or a folder of them")
    images: Path | None = Field(None, description="CelebA: the folder with the pictures that the JSON names")
    size: Annotated[int, Field(ge=4, le=1024)] | None = Field(
        None, description="CelebA: pixels in width and height to which pictures are scaled; not set: 84"
    )
    words: Annotated[int, Field(ge=2)] | None = Field(
        None, description=f"Sent140: how many of the commonest words are told apart; not set: {WORDS}"
    )


@DATA.register(
    "leaf",
    "your copy of a LEAF benchmark (FEMNIST, Shakespeare, Sent140, CelebA): path = its JSON file, or their folder",
    LeafOptions,
)
def leaf(options: LeafOptions) -> Dataset:
    x: list[Any] = []
    y: list[Any] = []
    users: list[str] = []
    for user, inputs, labels in _of_users(options.path):
        x += _compact(inputs)
        y += labels
        users += [user] * len(inputs)
    if not x:
        raise FedauditError("no-records", f"{options.path}: no user has a record", "Give files with records in them.")
    whose = np.array(users)
    if all(isinstance(each, str) for each in x):
        if options.images is not None or x[0].lower().endswith((".jpg", ".png")):
            return _faces(options, x, y, whose)
        return _characters(options, x, y, whose)
    if all(isinstance(each, list) and len(each) > TEXT_OF_TWEET and isinstance(each[TEXT_OF_TWEET], str) for each in x):
        return _tweets(options, [each[TEXT_OF_TWEET] for each in x], y, whose)
    try:
        numbers, classes = np.array(x, np.float32), np.array(y)
    except (ValueError, TypeError, OverflowError):
        raise _not_leaf(options.path, "the records are neither numbers of one length nor text") from None
    of_femnist = numbers.shape[1:] in ((MNIST_PIXELS,), (28, 28))
    pixels = numbers.reshape(-1, 1, 28, 28) if of_femnist else numbers
    return dataset(options.path.stem, pixels, classes, subject=whose)


def _compact(inputs: list[Any]) -> list[Any]:
    """Records of numbers as arrays, which take an eighth of what lists of them take; others as they are."""
    if not inputs or not isinstance(inputs[0], list) or any(isinstance(value, str) for value in inputs[0]):
        return inputs
    try:
        return list(np.array(inputs, np.float32))
    except (ValueError, TypeError, OverflowError):
        return inputs


def _of_users(path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    if not path.exists():
        raise FedauditError("data-missing", f"there is no {path}", "Check data.path.")
    files = [file for folder in _folders(path) for file in sorted(folder.glob("*.json"))] if path.is_dir() else [path]
    if not files:
        raise _not_leaf(path, "the folder has no JSON file in it")
    for file in files:
        if not file.is_file() or file.stat().st_size > MAX_JSON:
            raise _not_leaf(file, f"it is no file, or one of more than {MAX_JSON >> 30} GiB")
        try:
            of = json.loads(file.read_bytes())["user_data"]
            found = [(str(user), of[user]["x"], of[user]["y"]) for user in sorted(of)]
        except (ValueError, LookupError, TypeError, RecursionError):
            raise _not_leaf(file, "it does not hold user_data with x and y for each user") from None
        for user, x, y in found:
            if not (isinstance(x, list) and isinstance(y, list) and len(x) == len(y)):
                raise _not_leaf(file, "a user has another number of x than of y")
            yield user, x, y


def _folders(path: Path) -> list[Path]:
    """The folder, or `train` and `test` in it. LEAF keeps the same records in several others (all_data, sampled_data):
    read together, a record would be member and outsider at once."""
    parts = [path / part for part in ("train", "test") if (path / part).is_dir()]
    return parts if parts and not any(path.glob("*.json")) else [path]


def _characters(options: LeafOptions, x: list[str], y: list[str], users: NDArray[np.str_]) -> Dataset:
    """Each window with the character that follows it. LEAF's windows move on by one character, or by more where it has
    sampled them, and with `--iid` it deals them out to users of its own. Those that share text are left out, so that no
    record holds that of another one: within a user whatever they share, between users from ALIKE characters on."""
    length = len(x[0])
    if not length or any(len(each) != length for each in x) or any(not isinstance(c, str) or len(c) != 1 for c in y):
        raise _not_leaf(options.path, "the texts differ in length, or a label is no single character")
    text = [window + following for window, following in zip(x, y, strict=True)]
    kept: list[int] = []
    said = set[int]()  # all runs of ALIKE characters in what was kept, by hash
    alike = min(ALIKE, length + 1)
    offset = 0  # from the last window of this user that was kept
    for i, each in enumerate(text):
        if not kept or users[kept[-1]] != users[i]:
            offset = length + 1
        elif each[:-1] == text[i - 1][1:]:
            offset += 1
        else:
            shared = (n for n in range(length, LEAST_SHARED - 1, -1) if text[kept[-1]].endswith(each[:n]))
            offset = length + 1 - next(shared, 0)
        if offset > length and said.isdisjoint((hash(each[:alike]), hash(each[-alike:]))):
            kept.append(i)
            said.update(hash(each[start : start + alike]) for start in range(length + 2 - alike))
            offset = 0
    text = [text[i] for i in kept]
    known, tokens = np.unique([list(each) for each in text], return_inverse=True)
    tokens = tokens.reshape(len(text), length + 1)
    found = dataset(options.path.stem, tokens[:, :-1], tokens[:, 1:], subject=users[kept], tokens=True)
    return replace(found, vocabulary=tuple(known.tolist()))


def _tweets(options: LeafOptions, texts: list[str], y: list[Any], users: NDArray[np.str_]) -> Dataset:
    """The first words of each tweet, by their number; what is short is filled up."""
    split = [re.findall(r"[\w@#']+|[^\w\s]", text.lower())[:TWEET] for text in texts]
    words, counts = np.unique([word for each in split for word in each] or [""], return_counts=True)
    order = np.lexsort((words, -counts))[: options.words or WORDS]
    known = {str(words[i]): number for number, i in enumerate(order, start=UNKNOWN + 1)}
    tokens = np.full((len(split), TWEET), PAD, np.int64)
    for row, each in enumerate(split):
        tokens[row, : len(each)] = [known.get(word, UNKNOWN) for word in each]
    found = dataset(options.path.stem, tokens, np.array([_class(label) for label in y]), subject=users, tokens=True)
    return replace(found, vocabulary=("", "?", *known))


def _class(label: Any) -> str:
    """0, 0.0 and "0" are one class."""
    try:
        return f"{float(label):g}"
    except (TypeError, ValueError):
        return str(label)


def _faces(options: LeafOptions, names: list[str], y: list[Any], users: NDArray[np.str_]) -> Dataset:
    from fedaudit.data.image_folder import pictures

    if options.images is None:
        todo = 'Add images = "img_align_celeba", the folder that holds the pictures.'
        raise FedauditError("leaf-images", f"{options.path} names pictures, and not where they are", todo)
    wrong = [name for name in names if Path(name).name != name]
    if wrong:
        raise _not_leaf(options.path, "a picture is named with a folder")
    files = [options.images / name for name in names]
    absent = [file for file in files if not file.is_file()]
    if absent:
        what = f"{len(absent)} of {len(files)} pictures are not in {options.images}"
        raise FedauditError("leaf-images", what, "Check data.images.")
    size = options.size or 84
    x = as_images(np.stack(pictures(files, size, "rgb")))
    return dataset(options.path.stem, x, np.array(y), subject=users, id=np.array(names))


def _not_leaf(path: Path, what: str) -> FedauditError:
    todo = 'Give JSON as LEAF makes it: {"users": [...], "user_data": {user: {"x": [...], "y": [...]}}}.'
    return FedauditError("leaf-file", f"{path}: {what}", todo, exit_code=REFUSED)


# ------------------------------------------------------------------ Purchase100 and Texas100

ARRAYS = ("features", "labels")
MAX_TABLE = 2**32  # bytes of a file inside an archive


class ShokriOptions(DataOptions):
    path: Path = Field(
        description="your copy, relative to this file: npz with features and one-hot labels, or the .tgz archive"
    )


@DATA.register("texas100", "the same: texas100.npz, or dataset_texas.tgz", ShokriOptions)
@DATA.register(
    "purchase100",
    "your copy of Purchase100 (600 bits, 100 classes): path = purchase100.npz, or dataset_purchase.tgz",
    ShokriOptions,
)
def shokri(options: ShokriOptions) -> Dataset:
    path = options.path
    if not path.is_file():
        todo = "Name the file itself: npz with features and one-hot labels, or the archive as it was published."
        raise FedauditError("data-missing", f"there is no file {path}", todo)
    x, y = _from_npz(path) if path.suffix == ".npz" else _from_archive(options.name, path)
    return dataset(options.name, x, y)


def _from_npz(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    stored = npz.read(path, ARRAYS, ARRAYS)
    x, y = stored["features"], stored["labels"]
    if y.ndim == 2:
        hot = (y != 0).sum(axis=1)
        if (hot != 1).any():
            raise _not_shokri(path, f"{int((hot != 1).sum())} rows of `labels` do not have exactly one class")
        y = y.argmax(axis=1)
    return x, y


def _from_archive(name: str, path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Purchase: lines with the class, then the bits. Texas: a file of features and one of classes beside it."""
    try:
        found = archive.parts(path, partial(_part, name), MAX_TABLE, partial(_table, path))
    except archive.ArchiveRefused as error:
        raise _not_shokri(path, str(error)) from None
    if "table" in found:
        return found["table"][:, 1:], found["table"][:, 0].astype(np.int64)
    if set(found) != {"features", "labels"}:
        raise _not_shokri(path, "the tables are not in it")
    if len(found["features"]) != len(found["labels"]):
        raise _not_shokri(path, "there are more features than labels, or the other way round")
    return found["features"], found["labels"][:, 0].astype(np.int64)


def _part(name: str, file: str) -> str:
    last = file.rsplit("/", 1)[-1]
    if name == "purchase100":
        return "table" if last == "dataset_purchase" else ""
    return {"feats": "features", "labels": "labels"}.get(last, "") if "/100/" in f"/{file}" else ""


def _table(path: Path, file: IO[bytes]) -> NDArray[Any]:
    """Comma-separated numbers, all lines of one length, with quotes or without them."""
    import pyarrow as pa
    from pyarrow import csv

    columns = file.readline(2**24).count(b",") + 1
    if columns > MAX_COLUMNS:
        raise _not_shokri(path, f"a table in it has {columns:,} columns or more")
    names = [f"f{number}" for number in range(columns)]
    file.seek(0)
    kinds = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.float32()))  # half of what int64 would take
    try:
        read = csv.read_csv(file, csv.ReadOptions(column_names=names, block_size=2**24), convert_options=kinds)
        values = [column.to_numpy(zero_copy_only=False) for column in read.columns]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        raise _not_shokri(path, "a table in it has other cells than numbers, or lines of different length") from None
    table = np.stack(values, axis=1)
    if not np.isfinite(table).all() or np.abs(table[:, 0]).max(initial=0) > 2**24:  # beyond it float32 skips integers
        raise _not_shokri(path, "a table in it has numbers that are no bits, counts or classes")
    return table


def _not_shokri(path: Path, what: str) -> FedauditError:
    todo = "Give npz with features and one-hot labels, or the archive as it was published."
    return FedauditError("shokri-file", f"{path}: {what}", todo, exit_code=REFUSED)
