"""The census of income (Adult, Kohavi 1996) from the user's own copy: who earns more than 50,000 dollars a year?

It reads the file `adult.data` as published, or an npz file with numeric, categorical, y and, as JSON text,
`categories`: the names that the codes in `categorical` stand for, column by column.

Numbers are standardised, categories become one column for each value ("?" is a value). Sex, which has two values, is
one column of zeros and ones right behind the numbers, and an attribute that an adversary may want to guess.
"""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.config.registry import DATA, Options
from fedaudit.data import npz
from fedaudit.data.records import dataset, standardised
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.types import Dataset, Ints

COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
)  # fmt: skip
NUMERIC = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
CATEGORICAL = tuple(name for name in COLUMNS if name not in NUMERIC)
NPZ = ("numeric", "categorical", "y", "categories")
MAX_BYTES = 2**28  # of the text file
MAX_CATEGORIES = 1000  # of one column


class AdultOptions(Options):
    path: Path = Field(description=f"your copy, relative to this file: adult.data, or npz with {', '.join(NPZ)}")


@DATA.register(
    "adult",
    f"your copy of Adult (census, 2 classes, attribute sex in column {len(NUMERIC)}): path = adult.data, or npz",
    AdultOptions,
)
def load(options: AdultOptions) -> Dataset:
    path = options.path
    numeric, codes, names, y = _from_npz(path) if path.suffix == ".npz" else _from_text(path)
    if len(numeric) == 0:
        raise FedauditError("no-records", f"{path}: there are no records", "Give a file with rows in it.")
    sex = codes["sex"]
    wide = [np.eye(len(names[name]))[codes[name]] for name in CATEGORICAL if name != "sex"]
    x = np.column_stack([standardised(numeric), sex, *wide])
    found = dataset(options.name, x, y, attributes={"sex": sex})
    return replace(found, values={**found.values, "sex": tuple(names["sex"])})


Table = tuple[NDArray[Any], dict[str, Ints], dict[str, list[str]], NDArray[Any]]


def _from_npz(path: Path) -> Table:
    stored = npz.read(path, NPZ, NPZ)
    numeric, categorical, y = (stored[name] for name in NPZ[:3])
    try:
        names = {name: [str(value) for value in json.loads(str(stored["categories"]))[name]] for name in CATEGORICAL}
    except (ValueError, KeyError, TypeError):
        raise _wrong(path, f"`categories` is not JSON text with a list for each of {', '.join(CATEGORICAL)}") from None
    shapes = [(len(y), len(NUMERIC)), (len(y), len(CATEGORICAL))] if y.ndim == 1 else []
    if [numeric.shape, categorical.shape] != shapes or categorical.dtype.kind not in "iu":
        raise _wrong(path, f"numeric has shape {numeric.shape}, categorical {categorical.shape}, y {y.shape}")
    codes = {name: categorical[:, i].astype(np.int64) for i, name in enumerate(CATEGORICAL)}
    for name, values in codes.items():
        if len(values) and not 0 <= values.min() <= values.max() < len(names[name]) <= MAX_CATEGORIES:
            raise _wrong(path, f"`categorical` holds codes of {name} that `categories` does not name")
    return numeric, codes, names, y


def _from_text(path: Path) -> Table:
    """Lines that begin with "|" are comments; the test part ends its labels with a dot."""
    try:
        if path.exists() and not path.is_file():
            raise _wrong(path, "it is no file")
        if path.stat().st_size > MAX_BYTES:
            raise _wrong(path, f"it has more than {MAX_BYTES >> 20} MiB")
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file, skipinitialspace=True) if row and not row[0].startswith("|")]
    except FileNotFoundError:
        raise FedauditError("data-missing", f"there is no file {path}", "Check data.path.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _wrong(path, f"it cannot be read as text ({type(error).__name__})") from None
    odd = [number for number, row in enumerate(rows, 1) if len(row) != len(COLUMNS) + 1]
    if odd:
        raise _wrong(path, f"record {odd[0]} does not have {len(COLUMNS) + 1} fields")
    text = {name: np.array([row[i] for row in rows], dtype=np.str_) for i, name in enumerate(COLUMNS)}
    try:
        numeric = np.stack([text[name].astype(np.float64) for name in NUMERIC], axis=1)
    except ValueError:
        raise _wrong(path, f"one of {', '.join(NUMERIC)} is not a number in some record") from None
    coded = {name: np.unique(text[name], return_inverse=True) for name in CATEGORICAL}
    if many := [name for name, (values, _) in coded.items() if len(values) > MAX_CATEGORIES]:
        raise _wrong(path, f"{many[0]} has more than {MAX_CATEGORIES} values")
    y = np.array([row[-1].rstrip(".") for row in rows], dtype=np.str_)
    names = {name: values.tolist() for name, (values, _) in coded.items()}
    return numeric, {name: codes.astype(np.int64) for name, (_, codes) in coded.items()}, names, y


def _wrong(path: Path, what: str) -> FedauditError:
    todo = f"Give adult.data as it is published, or an npz file with {', '.join(NPZ)}."
    return FedauditError("adult-file", f"{path}: {what}", todo, exit_code=REFUSED)
