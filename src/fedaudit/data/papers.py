"""Data sets that the papers use, read from the user's own copies in their published formats.

- `mnist` (LeCun et al. 1998): training and test images together, with their writers if known.
- `cifar10`, `cifar100` (Krizhevsky 2009): training and test images together.
- `adult` (Kohavi 1996): the census of income. Who earns more than 50,000 dollars a year?
- `hapt` (Reyes-Ortiz et al. 2016): smartphone sensors worn by 30 people. What is the person doing?
- `shakespeare`: what the roles of the plays say. Which character comes next?

Nothing that is pickled is run, and nothing is unpacked beyond a limit.
"""

import csv
import gzip
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.config.registry import DATA, DataOptions
from fedaudit.data import archive, npz
from fedaudit.data.pickled import PickleRefused, plain_values
from fedaudit.data.records import as_images, dataset, standardised
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.types import Dataset, Ints

PARTS = ("x_train", "y_train", "x_test", "y_test")  # of MNIST and CIFAR in npz files


def _both_parts(kind: str, stored: dict[str, NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([stored[f"{kind}_train"], stored[f"{kind}_test"]])


# ------------------------------------------------------------------ MNIST

WRITERS = ("writer_train", "writer_test")  # who wrote each digit, as QMNIST (Yadav and Bottou 2019) found out: subjects


class MnistOptions(DataOptions):
    path: Path = Field(
        description="your copy, relative to this file: npz with x_train, y_train, ... (writer_train, ...)"
    )


@DATA.register(
    "mnist",
    "your copy of MNIST: path = npz with x_train, y_train, x_test, y_test; writer_train, writer_test name the subjects",
    MnistOptions,
)
def mnist(options: MnistOptions) -> Dataset:
    stored = npz.read(options.path, PARTS, [*PARTS, *WRITERS])
    if len({name in stored for name in WRITERS}) > 1:
        what = f"{options.path} names the writers of one part of the images only"
        raise FedauditError("mnist-writers", what, f"Give both {' and '.join(WRITERS)}, or neither.")
    writer = _both_parts("writer", stored) if WRITERS[0] in stored else None
    return dataset(options.name, as_images(_both_parts("x", stored)), _both_parts("y", stored), subject=writer)


# ------------------------------------------------------------------ CIFAR
# The original archives, packed or unpacked, in the binary or in the Python version, or npz. The Python version is
# pickled: what is in it is read by `pickled`, and nothing of it is run.

PIXELS = 3 * 32 * 32
MAX_RECORDS = 50_000  # in one file
LABEL_BYTES = {"cifar10": 1, "cifar100": 2}  # before the pixels; the last is the class
CIFAR_FILES = {
    "cifar10": [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"],
    "cifar100": ["train.bin", "test.bin"],
}
CIFAR_ARCHIVE = {
    "cifar10": ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
    "cifar100": ("cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"),
}


class CifarOptions(DataOptions):
    path: Path | None = Field(
        None, description="your copy, relative to this file: the original archive, its folder, or an npz file"
    )


@DATA.register("cifar100", "the same with 100 classes: cifar-100-binary.tar.gz, ...", CifarOptions)
@DATA.register(
    "cifar10",
    'your copy of CIFAR-10: path = "cifar-10-binary.tar.gz" or "cifar-10-python.tar.gz", its folder, or npz',
    CifarOptions,
)
def cifar(options: CifarOptions) -> Dataset:
    name, path = options.name, options.path
    if path is None:
        raise _wrong_cifar(name, "cifar-path", f"data.name = {name!r} needs data.path")
    if not path.exists():
        raise FedauditError("data-missing", f"there is no {path}", "Check data.path.")
    if path.suffix == ".npz":
        stored = npz.read(path, PARTS, PARTS)
        return dataset(name, as_images(_both_parts("x", stored)), _both_parts("y", stored))
    files = _from_folder(name, path) if path.is_dir() else _from_archive(name, path)
    names = _pickled_names(name) if files and not set(files) & set(CIFAR_FILES[name]) else CIFAR_FILES[name]
    missing = [file for file in names if file not in files]
    if missing:
        raise _wrong_cifar(name, "cifar-files", f"{path} does not hold {missing[0]}")
    parts = [(_cifar_records if file.endswith(".bin") else _from_pickle)(name, file, files[file]) for file in names]
    return dataset(name, as_images(np.concatenate([x for x, _ in parts])), np.concatenate([y for _, y in parts]))


def _cifar_records(name: str, file: str, content: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    size = LABEL_BYTES[name] + PIXELS
    if not content or len(content) % size:
        what = f"{file} has {len(content)} bytes, which are not records of {size} bytes"
        raise _wrong_cifar(name, "cifar-size", what)
    rows = np.frombuffer(content, np.uint8).reshape(-1, size)
    return rows[:, LABEL_BYTES[name] :].reshape(-1, 3, 32, 32), rows[:, LABEL_BYTES[name] - 1]


def _pickled_names(name: str) -> list[str]:
    return [file.removesuffix(".bin") for file in CIFAR_FILES[name]]


def _from_pickle(name: str, file: str, content: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        found = plain_values(content)
        x, labels = found["data"], found["labels" if name == "cifar10" else "fine_labels"]
        plain = isinstance(labels, list) and all(type(one) is int and 0 <= one < 256 for one in labels)
        if not isinstance(x, np.ndarray) or not plain:
            raise PickleRefused("data is no array, or labels are no list of classes")
        y = np.array(labels, np.int64)
    except (PickleRefused, KeyError, TypeError, ValueError, IndexError) as error:
        why = str(error) if isinstance(error, PickleRefused) else "data or labels are missing"
        raise _wrong_cifar(name, "cifar-pickled", f"{file} is no batch of the Python version: {why}") from None
    if x.dtype != np.uint8 or x.shape != (len(y), PIXELS):
        raise _wrong_cifar(name, "cifar-pickled", f"{file} is no batch of the Python version: data {x.shape}")
    return x.reshape(-1, 3, 32, 32), y


def _from_folder(name: str, path: Path) -> dict[str, bytes]:
    found = [path / file for file in [*CIFAR_FILES[name], *_pickled_names(name)] if (path / file).is_file()]
    for file in found:
        if (size := file.stat().st_size) > _most(name):
            raise _wrong_cifar(name, "cifar-size", f"{file.name} has {size} bytes, more than {MAX_RECORDS} images")
    return {file.name: file.read_bytes() for file in found}


def _from_archive(name: str, path: Path) -> dict[str, bytes]:
    wanted = {*CIFAR_FILES[name], *_pickled_names(name)}

    def part(file: str) -> str:
        last = file.rsplit("/", 1)[-1]
        return last if last in wanted else ""

    try:
        return archive.parts(path, part, _most(name), lambda content: content.read())
    except archive.ArchiveRefused as error:
        raise _wrong_cifar(name, "cifar-archive", f"{path}: {error}") from None


def _most(name: str) -> int:
    """Bytes of a file; the Python version also has names of files."""
    return MAX_RECORDS * (LABEL_BYTES[name] + PIXELS + 64)


def _wrong_cifar(name: str, code: str, what: str) -> FedauditError:
    arrays = ", ".join(PARTS)
    todo = f"Give the original archive ({' or '.join(CIFAR_ARCHIVE[name])}), or an npz file with {arrays}."
    return FedauditError(code, what, todo, exit_code=2 if code == "cifar-path" else REFUSED)


# ------------------------------------------------------------------ Adult
# The file adult.data as published, or npz, in which `categories` is JSON text: the names that the codes in
# `categorical` stand for, column by column. Numbers are standardised, categories become one column for each value ("?"
# is a value). Sex, which has two values, is one column of zeros and ones right behind the numbers, and an attribute.

COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
)  # fmt: skip
NUMERIC = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
CATEGORICAL = tuple(name for name in COLUMNS if name not in NUMERIC)
ADULT_ARRAYS = ("numeric", "categorical", "y", "categories")
MAX_ADULT_BYTES = 2**28  # of the text file
MAX_CATEGORIES = 1000  # of one column


class AdultOptions(DataOptions):
    path: Path = Field(
        description=f"your copy, relative to this file: adult.data, or npz with {', '.join(ADULT_ARRAYS)}"
    )
    scale: bool = Field(True, description="numbers get mean 0 and standard deviation 1")


@DATA.register(
    "adult",
    f"your copy of Adult (census, 2 classes, attribute sex in column {len(NUMERIC)}): path = adult.data, or npz",
    AdultOptions,
)
def adult(options: AdultOptions) -> Dataset:
    path = options.path
    numeric, codes, names, y = adult_from_npz(path) if path.suffix == ".npz" else _adult_from_text(path)
    if len(numeric) == 0:
        raise FedauditError("no-records", f"{path}: there are no records", "Give a file with rows in it.")
    sex = codes["sex"]
    wide = [np.eye(len(names[name]))[codes[name]] for name in CATEGORICAL if name != "sex"]
    x = np.column_stack([standardised(numeric) if options.scale else numeric, sex, *wide])
    found = dataset(options.name, x, y, attributes={"sex": sex})
    values = [f"{name} = {value}" for name in CATEGORICAL if name != "sex" for value in names[name]]
    columns = (*NUMERIC, "sex", *values)
    return replace(found, values={**found.values, "sex": tuple(names["sex"])}, columns=columns)


Adult = tuple[NDArray[Any], dict[str, Ints], dict[str, list[str]], NDArray[Any]]


def adult_from_npz(path: Path) -> Adult:
    stored = npz.read(path, ADULT_ARRAYS, ADULT_ARRAYS)
    numeric, categorical, y = (stored[name] for name in ADULT_ARRAYS[:3])
    try:
        names = {name: [str(value) for value in json.loads(str(stored["categories"]))[name]] for name in CATEGORICAL}
    except (ValueError, KeyError, TypeError):
        what = f"`categories` is not JSON text with a list for each of {', '.join(CATEGORICAL)}"
        raise _wrong_adult(path, what) from None
    shapes = [(len(y), len(NUMERIC)), (len(y), len(CATEGORICAL))] if y.ndim == 1 else []
    if [numeric.shape, categorical.shape] != shapes or categorical.dtype.kind not in "iu":
        raise _wrong_adult(path, f"numeric has shape {numeric.shape}, categorical {categorical.shape}, y {y.shape}")
    codes = {name: categorical[:, i].astype(np.int64) for i, name in enumerate(CATEGORICAL)}
    for name, values in codes.items():
        if len(values) and not 0 <= values.min() <= values.max() < len(names[name]) <= MAX_CATEGORIES:
            raise _wrong_adult(path, f"`categorical` holds codes of {name} that `categories` does not name")
    return numeric, codes, names, y


def _adult_from_text(path: Path) -> Adult:
    """Lines that begin with "|" are comments; the test part ends its labels with a dot."""
    try:
        if path.exists() and not path.is_file():
            raise _wrong_adult(path, "it is no file")
        if path.stat().st_size > MAX_ADULT_BYTES:
            raise _wrong_adult(path, f"it has more than {MAX_ADULT_BYTES >> 20} MiB")
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file, skipinitialspace=True) if row and not row[0].startswith("|")]
    except FileNotFoundError:
        raise FedauditError("data-missing", f"there is no file {path}", "Check data.path.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _wrong_adult(path, f"it cannot be read as text ({type(error).__name__})") from None
    odd = [number for number, row in enumerate(rows, 1) if len(row) != len(COLUMNS) + 1]
    if odd:
        raise _wrong_adult(path, f"record {odd[0]} does not have {len(COLUMNS) + 1} fields")
    text = {name: np.array([row[i] for row in rows], dtype=np.str_) for i, name in enumerate(COLUMNS)}
    try:
        numeric = np.stack([text[name].astype(np.float64) for name in NUMERIC], axis=1)
    except ValueError:
        raise _wrong_adult(path, f"one of {', '.join(NUMERIC)} is not a number in some record") from None
    coded = {name: np.unique(text[name], return_inverse=True) for name in CATEGORICAL}
    if many := [name for name, (values, _) in coded.items() if len(values) > MAX_CATEGORIES]:
        raise _wrong_adult(path, f"{many[0]} has more than {MAX_CATEGORIES} values")
    y = np.array([row[-1].rstrip(".") for row in rows], dtype=np.str_)
    names = {name: values.tolist() for name, (values, _) in coded.items()}
    return numeric, {name: codes.astype(np.int64) for name, (_, codes) in coded.items()}, names, y


def _wrong_adult(path: Path, what: str) -> FedauditError:
    todo = f"Give adult.data as it is published, or an npz file with {', '.join(ADULT_ARRAYS)}."
    return FedauditError("adult-file", f"{path}: {what}", todo, exit_code=REFUSED)


# ------------------------------------------------------------------ HAPT
# A record is a window of 128 samples of six channels (acceleration and rotation along three axes). People are the
# subjects. The attribute `experiment` numbers the sessions that were recorded: windows of one session overlap, so that
# a record has neighbours that are nearly the same. In a game about people, windows of one session are never both
# trained on and held by the adversary.

HAPT_ARRAYS = ("x", "activity", "subject", "experiment")


class HaptOptions(DataOptions):
    path: Path = Field(description=f"your copy, relative to this file: npz with {', '.join(HAPT_ARRAYS)}")


@DATA.register(
    "hapt",
    f"your copy of HAPT, sensor windows of 30 people, 6 activities: path = npz with {', '.join(HAPT_ARRAYS)}",
    HaptOptions,
)
def hapt(options: HaptOptions) -> Dataset:
    stored = npz.read(options.path, HAPT_ARRAYS, HAPT_ARRAYS)
    person, experiment = stored["subject"], stored["experiment"]
    if person.shape != experiment.shape or person.ndim != 1:
        what = f"{options.path}: subject has shape {person.shape}, experiment {experiment.shape}"
        raise FedauditError("shape", what, "Give one of each for every window.")
    # Experiments are numbered anew for every person.
    pairs = np.stack([person.astype(np.str_), experiment.astype(np.str_)], axis=1)
    session = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    attributes = {"experiment": session}
    found = dataset(options.name, stored["x"], stored["activity"], subject=person, attributes=attributes)
    return replace(found, session="experiment")


# ------------------------------------------------------------------ Shakespeare
# JSON, plain or gzipped: {"play|ROLE": [speech, ...], ...}. The speeches of a role, one a line, are cut into windows
# that share no character; what is left at the end is dropped. A record is a window without its last character, its
# label at every position the character that follows there. Roles are the subjects; the classes are the characters that
# occur, in the order of their code points.

LENGTH = 80  # as in LEAF
MAX_TEXT = 2**30  # unpacked; no more than that is read


class ShakespeareOptions(DataOptions):
    path: Path = Field(
        description='your copy, relative to this file: JSON (.json, .json.gz) {"play|ROLE": [speech, ...]}'
    )
    length: Annotated[int, Field(ge=2)] | None = Field(None, description=f"characters of a record; not set: {LENGTH}")


@DATA.register(
    "shakespeare",
    f'your copy of the plays, next character: path = JSON {{"play|ROLE": [speech, ...]}}; length = {LENGTH} unless set',
    ShakespeareOptions,
)
def shakespeare(options: ShakespeareOptions) -> Dataset:
    length = options.length or LENGTH
    windows: list[str] = []
    roles: list[str] = []
    for role, speeches in sorted(_plays(options.path).items()):
        text = "\n".join(speeches)
        own = [text[i : i + length + 1] for i in range(0, len(text) - length, length + 1)]
        windows += own
        roles += [role] * len(own)
    if not windows:
        what = f"{options.path}: no role says more than {length} characters"
        raise FedauditError("no-records", what, "Set a smaller data.length.")
    points = np.frombuffer("".join(windows).encode("utf-32-le"), np.uint32).reshape(len(windows), length + 1)
    known, inverse = np.unique(points, return_inverse=True)
    tokens = inverse.reshape(points.shape)
    found = dataset(options.name, tokens[:, :-1], tokens[:, 1:], subject=np.array(roles), tokens=True)
    return replace(found, vocabulary=tuple(map(chr, known.tolist())))


def _plays(path: Path) -> dict[str, list[str]]:
    if not path.is_file():
        raise FedauditError("data-missing", f"there is no file {path}", "Check data.path.")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MAX_TEXT + 1)
        if len(content) > MAX_TEXT:
            raise _wrong_plays(path, "it unpacks to more than 1 GiB")
        plays = json.loads(content)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise _wrong_plays(path, f"it is not such a file ({type(error).__name__})") from None
    if not isinstance(plays, dict) or not all(map(_are_speeches, plays.values())):
        raise _wrong_plays(path, "it does not hold a list of speeches for each role")
    try:
        "".join([*plays, *(speech for speeches in plays.values() for speech in speeches)]).encode()
    except UnicodeEncodeError:
        raise _wrong_plays(path, "some of it is not valid text") from None
    return plays


def _are_speeches(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(speech, str) for speech in value)


def _wrong_plays(path: Path, what: str) -> FedauditError:
    todo = 'Give a JSON file {"play|ROLE": [speech, ...], ...}, plain or gzipped.'
    return FedauditError("shakespeare-file", f"{path}: {what}", todo, exit_code=REFUSED)
