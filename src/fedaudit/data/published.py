"""Benchmarks of the field, read from the user's own copies as they are published.

- `leaf` (Caldas et al. 2018): JSON files with users, and what each of them has. FEMNIST (pictures of 28 x 28 pixels),
  Shakespeare (80 characters and the one that follows), Sent140 (tweets), CelebA (names of pictures in a folder).
  Users are the subjects.
- `purchase100`, `texas100` (Shokri et al. 2017): npz with features and one-hot labels, or the original archives.

Nothing pickled is opened, and nothing is unpacked beyond a limit.
"""

from __future__ import annotations

import json
import math
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
MAX_LEAF = 24 * 2**30  # of all files: FEMNIST has 805,263 pictures of 784 numbers, and 20 bytes a number are 12 GiB
MNIST_PIXELS = 28 * 28
TEXT_OF_TWEET = 4  # a tweet is its number, time, query, user and text
WORDS, TWEET = 10_000, 25  # the commonest words of tweets, and how many of a tweet count
PAD, UNKNOWN = 0, 1
MAX_COLUMNS = 20_000  # Texas has 6,169
NO_USERS = "it does not hold user_data with x and y for each user"
NEITHER = "the records are neither numbers of one length nor text"
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
    parts: list[Any] = []  # of each user: an array, if the records are numbers
    y: list[Any] = []
    users: list[str] = []
    for user, inputs, labels in _of_users(options.path):
        parts += [inputs] if len(inputs) else []
        y += labels
        users += [user] * len(inputs)
    if not parts:
        raise FedauditError("no-records", f"{options.path}: no user has a record", "Give files with records in them.")
    whose = np.array(users)
    if all(isinstance(part, np.ndarray) for part in parts):
        return _numbers(options, parts, y, whose)
    x = [each for part in parts for each in part]
    if all(isinstance(each, str) for each in x):
        if options.images is not None or x[0].lower().endswith((".jpg", ".png")):
            return _faces(options, x, y, whose)
        return _characters(options, x, y, whose)
    if all(isinstance(each, list) and len(each) > TEXT_OF_TWEET and isinstance(each[TEXT_OF_TWEET], str) for each in x):
        return _tweets(options, [each[TEXT_OF_TWEET] for each in x], y, whose)
    raise _not_leaf(options.path, NEITHER)


def _numbers(options: LeafOptions, parts: list[NDArray[Any]], y: list[Any], users: NDArray[np.str_]) -> Dataset:
    try:
        x = np.concatenate(parts)
    except ValueError:
        raise _not_leaf(options.path, NEITHER) from None
    parts.clear()  # they take as much as all records together
    of_femnist = x.shape[1:] in ((MNIST_PIXELS,), (28, 28))
    return dataset(options.path.stem, x.reshape(-1, 1, 28, 28) if of_femnist else x, _labels(options, y), subject=users)


def _labels(options: LeafOptions, y: list[Any]) -> NDArray[Any]:
    try:
        return np.array(y)
    except ValueError:
        raise _not_leaf(options.path, "a label is a list") from None


def _compact(inputs: list[Any]) -> list[Any] | NDArray[Any]:
    """Records of numbers as an array, which takes an eighth of what lists of them take; others as they are."""
    if not inputs or not isinstance(inputs[0], list) or any(isinstance(value, str) for value in inputs[0]):
        return inputs
    try:
        return np.array(inputs, np.float32)
    except (ValueError, TypeError, OverflowError):
        return inputs


def _of_users(path: Path) -> Iterator[tuple[str, list[Any] | NDArray[Any], list[Any]]]:
    """Of every user the name, the records and the labels. What was read of a user is let go before the next one is
    handed out: a file takes many times its size."""
    if not path.exists():
        raise FedauditError("data-missing", f"there is no {path}", "Check data.path.")
    files = [file for folder in _folders(path) for file in sorted(folder.glob("*.json"))] if path.is_dir() else [path]
    if not files:
        raise _not_leaf(path, "the folder has no JSON file in it")
    for file in files:
        if not file.is_file() or file.stat().st_size > MAX_JSON:
            raise _not_leaf(file, f"it is no file, or one of more than {MAX_JSON >> 30} GiB")
    if (size := sum(file.stat().st_size for file in files)) > MAX_LEAF:
        what = f"{path} holds {size / 2**30:.1f} GiB, and at most {MAX_LEAF >> 30} are read"
        raise FedauditError("leaf-size", what, "Give some of its files, in a folder of their own.")
    for file in files:
        try:
            of = json.loads(file.read_text(encoding="utf-8-sig"))["user_data"]
            names = sorted(of.keys())
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise _not_leaf(file, NO_USERS) from None
        for name in names:
            yield name, *_of_one(file, name, of.pop(name))


def _of_one(file: Path, name: str, found: Any) -> tuple[list[Any] | NDArray[Any], list[Any]]:
    """The records and the labels of this user."""
    try:
        x, y = found["x"], found["y"]
    except (LookupError, TypeError):
        raise _not_leaf(file, NO_USERS) from None
    if not (isinstance(x, list) and isinstance(y, list) and len(x) == len(y)):
        raise _not_leaf(file, "a user has another number of x than of y")
    compact = _compact(x)
    try:  # JSON may have half a character in it, which nothing could write down
        json.dumps([name, y, compact if isinstance(compact, list) else None], ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        raise _not_leaf(file, "some of it is not valid text") from None
    return compact, y


def _folders(path: Path) -> list[Path]:
    """The folder, or `train` and `test` in it. LEAF keeps the same records in several others (all_data, sampled_data):
    read together, a record would be member and outsider at once."""
    parts = [path / part for part in ("train", "test") if (path / part).is_dir()]
    return parts if parts and not any(path.glob("*.json")) else [path]


def _characters(options: LeafOptions, x: list[str], y: list[str], users: NDArray[np.str_]) -> Dataset:
    """Each window with the character that follows it. LEAF's windows move on by one character, or by more where it has
    sampled them, and with `--iid` it deals them out to users of its own. Those that share text are left out, so that no
    record holds that of another one: LEAST_SHARED characters with the user's last one that was kept (a single one where
    windows move on by one), or ALIKE with anybody's."""
    length = len(x[0])
    if not length or any(len(each) != length for each in x) or any(not isinstance(c, str) or len(c) != 1 for c in y):
        raise _not_leaf(options.path, "the texts differ in length, or a label is no single character")
    text = [window + following for window, following in zip(x, y, strict=True)]
    kept: list[int] = []
    said = set[int]()  # all runs of ALIKE characters in what was kept, by hash
    alike = min(ALIKE, length + 1)
    last: dict[str, str] = {}  # the window of each user that was kept last; one has windows in several files
    offset = 0  # from there
    for i, each in enumerate(text):
        user = str(users[i])
        if user not in last:
            offset = length + 1
        elif users[i - 1] == user and each[:-1] == text[i - 1][1:]:
            offset += 1
        else:
            shared = (n for n in range(length, LEAST_SHARED - 1, -1) if last[user].endswith(each[:n]))
            offset = length + 1 - next(shared, 0)
        if offset > length and said.isdisjoint((hash(each[:alike]), hash(each[-alike:]))):
            kept.append(i)
            last[user] = each
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
    """0, 0.0 and "0" are one class; numbers that differ are told apart, however long they are."""
    text = str(int(label)) if isinstance(label, bool) else str(label)
    if "_" in text:  # which Python reads as 1000 where it says 1_000
        return text
    try:
        return str(int(text))
    except ValueError:  # no whole number, or not written as one
        pass
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number):
        return text
    return str(int(number)) if number.is_integer() else repr(number)


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
    return dataset(options.path.stem, x, _labels(options, y), subject=users, id=np.array(names))


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
