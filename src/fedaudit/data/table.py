"""A user's own table, CSV or parquet: one row for each record, one column of which is the label.

Numbers are features as they are, or standardised. Words become one feature for each of their values (two values: one
feature). The columns that name the label, the record, whose it is, and what an adversary may want to guess are no
features. A column that looks like an id and is not declared is refused (`ids` says how it is recognised).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.config.registry import DATA, DataOptions
from fedaudit.data.cells import Column, named, read_columns, rows
from fedaudit.data.ids import MANY, in_every_row, named_like_an_id, says_whose
from fedaudit.data.ids import found as looking_like_ids
from fedaudit.data.records import dataset, standardised
from fedaudit.errors import FedauditError
from fedaudit.toml import toml
from fedaudit.types import Bools, Dataset, Floats, Ints, Notice, Strings, notice, warning

LARGEST = float(np.finfo(np.float32).max)  # of a number that is learnt from
MAX_VALUES = MANY  # of a column of words, too
FAR = 100  # times the range of all others: a number so far off is a mistake


class Kind(Enum):
    """What is wrong with a column: the code of the error, and how it is said of one column and of several."""

    WORDS = ("table-words", "holds words like names", "hold words like names")
    NOTHING = ("table-cell", "is empty", "are empty")
    EMPTY = ("table-cell", "has empty cells", "have empty cells")
    WRONG = ("table-cell", "has cells that are wrong", "have cells that are wrong")
    ID = ("table-id", "looks like an id", "look like ids")


class Unfit(FedauditError):
    """One column that cannot be used. `todo`: what to do about it, where that is not the same for all of its kind."""

    def __init__(self, kind: Kind, what: str, todo: str = ""):
        super().__init__(kind.value[0], what, todo)
        self.kind = kind


class TableOptions(DataOptions):
    path: Path = Field(description="the CSV or parquet file, relative to this one")
    label: str = Field(description="the column that is predicted")
    task: Literal["classification", "regression"] = Field(
        "classification", description="whether the label is a class or a value"
    )
    id: str | None = Field(None, description="the column that names the record; not set: its content names it")
    subject: str | None = Field(None, description="the column that says whose record it is")
    attributes: tuple[str, ...] | None = Field(
        None, description="columns that an adversary may want to guess, or by which parties are formed; not features"
    )
    drop: tuple[str, ...] | None = Field(None, description="columns that are not used at all")
    scale: bool = Field(True, description="numbers get mean 0 and standard deviation 1, a regression's values, too")
    impute: Literal["median", "mean"] | None = Field(
        None, description="what an empty cell becomes (among words: a word of its own); not set: it is refused"
    )
    keep_ids: bool | None = Field(
        None, description="learn from columns that look like ids of people or records; not set: they are refused"
    )
    header: bool | None = Field(
        None,
        description="false: the first line is a record, and columns are called column-1, column-2, ...; not set: true",
    )
    unlabelled: Literal["refuse", "leave-out"] = Field(
        "refuse", description="what becomes of rows without a label; those left out are counted in the report"
    )


@DATA.register("table", "your own CSV or parquet file (path, label; header = false: no header)", TableOptions)
def load(options: TableOptions) -> Dataset:
    columns = read_columns(options.path, options.drop or (), header=options.header is not False)
    notices: list[Notice] = []
    label = named(columns, options.path, options.label, "label")
    if label.missing.any():
        kept = _labelled(options, label)
        notices.append(notice("unlabelled", rows=int((~kept).sum()), of=len(kept), file=options.path.name))
        columns = {name: column.take(kept) for name, column in columns.items()}
    special = _special(options, columns)
    features = {name: column for name, column in columns.items() if name not in special}
    if not features:
        raise FedauditError("no-features", f"{options.path} has no column left to learn from", "Drop fewer columns.")
    ids = looking_like_ids(features, columns, options.subject)
    used = _features(features, options, [] if options.keep_ids else ids)
    notices += _notices(options.path.name, used)
    if ids:
        notices.append(notice("ids-learnt", columns=list(ids)))
    coded = {name: _codes(columns[name]) for name in options.attributes or ()}
    found = dataset(
        options.path.stem,
        np.concatenate([feature.values for feature in used.values()], axis=1),
        _label(options, columns[options.label]),
        id=_names(columns, options.id),
        subject=_names(columns, options.subject),
        attributes={name: codes for name, (_, codes) in coded.items()},
        regression=options.task == "regression",
    )
    values = {**found.values, **{name: texts for name, (texts, _) in coded.items()}}
    called = [name for each, feature in used.items() for name in _called(each, features[each], feature)]
    return replace(found, notices=tuple(notices), values=values, columns=tuple(called))


def _labelled(options: TableOptions, label: Column) -> Bools:
    """Which rows have a label. That some have none must be said, because it is often a mistake."""
    without = np.flatnonzero(label.missing)
    if options.unlabelled == "refuse":
        what = f"{label.where} has no label in {rows(without)}, of {len(label)} rows"
        raise FedauditError("unlabelled", what, 'Label them, or set data.unlabelled = "leave-out".')
    if len(without) == len(label):
        raise FedauditError("unlabelled", f"{label.where} has no label at all", "Name another column as data.label.")
    return np.asarray(~label.missing)


def _special(options: TableOptions, columns: Mapping[str, Column]) -> set[str]:
    """The columns that are no features. Each may have one use."""
    uses = [("label", options.label), ("id", options.id), ("subject", options.subject)]
    uses += [("attributes", name) for name in options.attributes or ()]
    found: dict[str, str] = {}
    for key, name in uses:
        if name is None:
            continue
        named(columns, options.path, name, key)
        if name in found:
            what = f"the column {name!r} is named as data.{found[name]} and as data.{key}"
            raise FedauditError("table-column", what, "Name it once.")
        found[name] = key
    return set(found)


def _names(columns: Mapping[str, Column], name: str | None) -> Strings | None:
    if name is None:
        return None
    column = columns[name]
    if column.missing.any():
        what = f"{column.where} is empty in {rows(np.flatnonzero(column.missing))}"
        raise FedauditError("table-name", what, "Fill it in: every record needs its own.")
    return column.cells


def _codes(column: Column) -> tuple[tuple[str, ...], Ints]:
    """The values in order, and the number of each row's among them; -1 where there is none."""
    values, codes = column.take(~column.missing).coded
    if not 2 <= len(values) <= MAX_VALUES:
        what = f"{column.where} has {len(values)} values, and an attribute has 2 to {MAX_VALUES}"
        raise FedauditError("attribute", what, "Group its values, or take it out of data.attributes.")
    found = np.full(len(column), -1, dtype=np.int64)
    found[~column.missing] = codes
    return tuple(values.to_pylist()), found


def _label(options: TableOptions, column: Column) -> NDArray[Any]:
    numbers = column.numbers
    if options.task == "classification":
        return column.cells if numbers is None else numbers
    if numbers is None:
        todo = 'Name a column of numbers as data.label, or set data.task = "classification".'
        raise FedauditError("table-label", f"{column.where} holds words, and a regression predicts numbers", todo)
    if len(endless := np.flatnonzero(np.abs(numbers) > LARGEST)):
        what = f"{column.where} is infinite, or too large to learn from, in {rows(endless)}"
        raise FedauditError("table-label", what, "Correct these cells.")
    return standardised(numbers) if options.scale else numbers


# ------------------------------------------------------------------ features


@dataclass(frozen=True)
class _Feature:
    """One column of the file as one feature or more, and what must be said about it."""

    values: Floats
    filled: int = 0  # cells that were empty
    commas: bool = False  # were they read as decimal points?
    flattened: int = 0  # rows, counted from 1, of the cells beside which all others become alike


def _called(name: str, column: Column, feature: _Feature) -> list[str]:
    """What the features that a column became are called."""
    if column.numbers is not None:
        return [name]
    values = [str(value) or "(empty)" for value in column.coded[0]]
    if len(values) == 2:
        return [f"{name} = {values[1]}, not {values[0]}"]
    return [f"{name} = {value}" for value in values]


def _notices(file: str, features: Mapping[str, _Feature]) -> list[Notice]:
    """One for all columns that share it."""
    found = []
    if filled := {name: feature.filled for name, feature in features.items() if feature.filled}:
        found.append(notice("cells-filled", file=file, cells=filled))
    if commas := [name for name, feature in features.items() if feature.commas]:
        found.append(notice("decimal-commas", file=file, columns=commas))
    if flattened := {name: feature.flattened for name, feature in features.items() if feature.flattened}:
        found.append(warning("cell-flattens", file=file, rows=flattened))
    return found


def _features(columns: Mapping[str, Column], options: TableOptions, ids: Collection[str]) -> dict[str, _Feature]:
    """All of them; `ids` may not be used."""
    found, wrong = {}, {}
    for name, column in columns.items():
        try:
            if name in ids:
                raise _undeclared(name, column, options)
            found[name] = _feature(column, options)
        except Unfit as error:
            wrong[name] = error
        except FedauditError as error:
            wrong[name] = Unfit(Kind.WRONG, error.what, error.todo)
    if wrong:
        raise _told(wrong, options.drop or ())
    return found


def _undeclared(name: str, column: Column, options: TableOptions) -> Unfit:
    """An id; `todo` is the line that declares it, unless another column is declared already."""
    each_another = column.different == len(column)
    by_value = "has another whole number in every row" if in_every_row(column) else "repeats like an id"
    how = "is named like an id" if named_like_an_id(name, column) else by_value
    what = f"{column.where} {how}, and nothing says what it is: people would be known by it, and stand on both sides"
    if each_another and not says_whose(name):
        return Unfit(Kind.ID, what, "" if options.id else f"id = {toml(name)} (it names the row)")
    return Unfit(Kind.ID, what, "" if options.subject else f"subject = {toml(name)} (it says whose record it is)")


def _feature(column: Column, options: TableOptions) -> _Feature:
    empty = np.flatnonzero(column.missing)
    if len(empty) == len(column):
        raise Unfit(Kind.NOTHING, f"{column.where} is empty")
    if len(empty) and options.impute is None:
        raise Unfit(Kind.EMPTY, f"{column.where} is empty in {rows(empty)}")
    numbers = column.numbers
    if numbers is None:
        return _Feature(_one_hot(column), len(empty))
    if len(endless := np.flatnonzero(np.abs(numbers) > LARGEST)):
        what = f"{column.where} is infinite, or too large to learn from, in {rows(endless)}"
        raise Unfit(Kind.WRONG, what, "Correct these cells, or empty them and set data.impute.")
    if len(empty):
        middle = np.nanmedian(numbers) if options.impute == "median" else np.nanmean(numbers)
        numbers = np.where(column.missing, middle, numbers)
    values = (standardised(numbers) if options.scale else numbers)[:, None]
    return _Feature(values, len(empty), column.has_decimal_commas, _flattens(numbers))


def _flattens(numbers: Floats) -> int:
    """The row, counted from 1, of a number so far off that all others become alike when it is scaled; 0: none is."""
    far = int(np.argmax(np.abs(numbers - np.median(numbers))))
    others = np.delete(numbers, far)
    spread = float(np.ptp(others)) if len(others) else 0.0
    return far + 1 if spread > 0 and abs(numbers[far] - np.median(numbers)) > FAR * spread else 0


def _one_hot(column: Column) -> Floats:
    """Where cells are empty, that is a value of its own."""
    if column.different > MAX_VALUES:
        what = f"{column.where} holds words, {column.different} different ones: "
        raise Unfit(Kind.WORDS, what + "that looks like names, dates or free text")
    spread = np.eye(column.different)[column.coded[1]]
    return spread[:, 1:] if column.different == 2 else spread


def _told(wrong: Mapping[str, Unfit], dropped: Sequence[str]) -> FedauditError:
    """All columns that cannot be used are told at once: the first explained, the others named by what is wrong with
    them, and what to write about all of them. `dropped`: the columns that data.drop names already."""
    first, *others = wrong
    what = wrong[first].what
    for kind in Kind:
        if names := [repr(name) for name in others if wrong[name].kind is kind]:
            what += f"; {', '.join(names)} {kind.value[1 if len(names) == 1 else 2]}"
            what += " as well" if kind is wrong[first].kind else ""
    return FedauditError(wrong[first].code, what, " ".join(_remedies(wrong, dropped)))


def _remedies(wrong: Mapping[str, Unfit], dropped: Sequence[str]) -> Iterator[str]:
    by_kind = {kind: [name for name, each in wrong.items() if each.kind is kind] for kind in Kind}
    useless = [name for name, each in wrong.items() if each.kind in (Kind.WORDS, Kind.NOTHING)]
    lines = [f"drop = {toml([*dropped, *useless])}"] if useless else []
    lines += ['impute = "median"'] if by_kind[Kind.EMPTY] else []
    if lines:
        instead = ["name a column of words as id or subject"] if by_kind[Kind.WORDS] else []
        instead += ["fill in what is empty"] if by_kind[Kind.EMPTY] else []
        yield f"Under [data] write {' and '.join(lines)}{''.join(f', or {other}' for other in instead)}."
    if ids := by_kind[Kind.ID]:
        declared = ", ".join(dict.fromkeys(filter(None, (wrong[name].todo for name in ids))))
        rest = f"drop = {toml([*dropped, *useless, *ids])} (it is of no use), or keep_ids = true (learn from it)"
        yield f"Under [data] write what is true of it: {declared}{', ' * bool(declared)}{rest}."
    yield from dict.fromkeys(wrong[name].todo for name in by_kind[Kind.WRONG])
