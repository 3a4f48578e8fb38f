"""The columns of a CSV or parquet file, as written: text and, where every cell is a number, numbers.

Errors name the file, the column and the row, and never what stands there.
"""

import csv
import io
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.data.records import MISSING
from fedaudit.errors import REFUSED, FedauditError, suggest
from fedaudit.files import TEXT, kind_of
from fedaudit.types import Bools, Floats, Strings

MAX_BYTES = 2**31
CELLS_A_BYTE = 100  # of parquet; a file that claims more is refused,
FEW_CELLS = 5_000_000  # unless it claims no more than this
EXPANDS_AT_MOST, MAX_SMALL = 50, 64 * 2**20  # the same for bytes
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
ABSENT = {word.lower() for word in (*MISSING, "NA", "N/A", "n.a.", "null", "#N/A", "?", ".")}
MOSTLY = 0.9  # from this share of numbers on, a column is one of numbers with mistakes in it
DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")  # 1,234 may be that, or a little more than one


@dataclass(frozen=True)
class Column:
    """One cell for each row, without spaces around it; "" where there is nothing."""

    where: str  # file and column, for errors
    cells: Strings
    stored: Floats | None = None  # numbers that the file holds as numbers; NaN where there is nothing
    commas: bool = False  # is any comma in a number a decimal one? it is where the separator is something else

    @cached_property
    def missing(self) -> Bools:
        return np.asarray(self.cells == "")

    @cached_property
    def read(self) -> Floats:
        """Every cell as a number; NaN where it is none."""
        if self.stored is not None:
            return self.stored
        number = _number_with_comma if self.has_decimal_commas else _number
        return np.array([np.nan if (value := number(cell)) is None else value for cell in self.cells], np.float64)

    @cached_property
    def numbers(self) -> Floats | None:
        """NaN where there is nothing; None: these are words. A column with few words among its numbers is refused."""
        wrong = np.flatnonzero(np.isnan(self.read) & ~self.missing)
        few = (1 - MOSTLY) * np.count_nonzero(~self.missing)
        if len(wrong) > few and sum(THOUSANDS.fullmatch(cell) is None for cell in self.cells[wrong]) <= few:
            what = f"{self.where} holds commas that may separate thousands or decimals, as 1,234 does"
            raise FedauditError("table-cell", what, "Write these numbers without commas, or with a decimal point.")
        if len(wrong) > few or self.missing.all():
            return None
        if len(wrong):
            what = f"{self.where} holds numbers, but not in {rows(wrong)}"
            raise FedauditError("table-cell", what, "Correct these cells, or empty them and set data.impute.")
        return self.read

    @cached_property
    def has_decimal_commas(self) -> bool:
        """Whether more of the cells are numbers with a decimal comma than with a decimal point. Where commas also
        separate the cells (a number with one then stands in quotes), one at least must show that it is decimal."""
        if not self.commas and not any(map(_is_decimal, self.cells[np.char.find(self.cells, ",") >= 0])):
            return False
        return _readable(self.cells, _number_with_comma) > _readable(self.cells, _number)

    def take(self, kept: Bools) -> "Column":
        stored = None if self.stored is None else self.stored[kept]
        return Column(self.where, self.cells[kept], stored, self.commas)


def _readable(cells: Strings, number: Callable[[str], float | None]) -> int:
    return sum(number(cell) is not None for cell in cells)


def _is_decimal(cell: str) -> bool:
    """Is it a number with a decimal comma, and cannot be one with a thousands separator?"""
    return DECIMAL_COMMA.fullmatch(cell) is not None and THOUSANDS.fullmatch(cell) is None


def rows(wrong: Sequence[int] | NDArray[Any]) -> str:
    """Which rows, counted from 1 below the header."""
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"row {int(wrong[0]) + 1}{more}"


def read_columns(path: Path, without: Collection[str] = (), only: Collection[str] | None = None) -> dict[str, Column]:
    """The columns by name. A file that is no table is named for what it is, with what to write instead. Where `only`
    some columns are wanted, the others may be of any type and without names; from parquet they come back empty."""
    if not path.exists():
        raise FedauditError("data-missing", f"there is no file {path}", "Check data.path.")
    if not path.is_file() and not path.is_dir():
        raise FedauditError("table-kind", f"{path} is a device or a pipe", "Save the table to a file first.")
    kind = kind_of(path)
    if kind not in (TEXT, "parquet"):
        raise not_a_table(path, kind)
    if path.stat().st_size > MAX_BYTES:
        what = f"{path} is larger than {MAX_BYTES >> 30} GiB"
        raise FedauditError("table-size", what, "Give a smaller file, with part of the rows.")
    found = _parquet(path, without, only) if kind == "parquet" else _csv(path, only)
    for name in without:
        named(found, path, name, "drop")
    found = {name: column for name, column in found.items() if name not in without}
    if not found or not len(next(iter(found.values())).cells):
        raise FedauditError("no-records", f"{path} has no rows below its header", "Give a file with rows in it.")
    return found


INSTEAD = {
    "npz": 'Write name = "npz" for it.',
    "npy": 'Save x and y together with numpy.savez("my-data.npz", x=x, y=y), and write name = "npz".',
    "folder": 'If it holds pictures, one folder for each class, write name = "images".',
    "picture": 'Write name = "images", and give the folder that holds a folder of pictures for each class.',
    "xlsx": "Save the sheet as CSV (in Excel: Save As, CSV UTF-8).",
    "xls": "Save the sheet as CSV (in Excel: Save As, CSV UTF-8).",
    "utf-16": "Save it in UTF-8 (in Excel: Save As, CSV UTF-8).",
    "gzip": "Unpack it with gunzip, and give what comes out.",
    "zip": "Unpack it, and give the table inside.",
    "json": "Save it as CSV or parquet (in pandas: pandas.read_json(...).to_parquet(...)).",
    "sqlite": "Export the table as CSV (sqlite3 -header -csv FILE 'select * from TABLE').",
    "arrow": "Save it as parquet (in pandas: pandas.read_feather(...).to_parquet(...)).",
    "hdf5": "Save it as parquet (in pandas: pandas.read_hdf(...).to_parquet(...)).",
    "pickle": "It may hold code and is not read. Save it as CSV or parquet.",
}
NAMES = {
    "xlsx": "an Excel workbook",
    "xls": "an Excel workbook",
    "folder": "a folder",
    "picture": "a picture",
    "npz": "an npz file of arrays",
    "npy": "a single numpy array",
    "sqlite": "an SQLite database",
    "utf-16": "text in UTF-16",
    "binary": "a binary file",
    "arrow": "an Arrow (feather) file",
    "hdf5": "an HDF5 file",
    "zip": "a zip archive",
    "gzip": "packed with gzip",
    "parquet": "a parquet file",
    "json": "JSON",
    TEXT: "text",
    "pickle": "a pickle",
}


def not_a_table(path: Path, kind: str, instead: Mapping[str, str] = INSTEAD) -> FedauditError:
    what = f"{path} is {NAMES[kind]}, not a table"
    return FedauditError("table-kind", what, instead.get(kind, "Give a CSV or a parquet file."))


# ------------------------------------------------------------------ CSV


def _csv(path: Path, only: Collection[str] | None) -> dict[str, Column]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        todo = f"Convert it: iconv -f WINDOWS-1252 -t UTF-8 {path.name} > new.csv (in Excel: Save As, CSV UTF-8)."
        raise FedauditError("table-encoding", f"{path} is not text in UTF-8", todo) from None
    if not text.strip():
        raise FedauditError("no-records", f"{path} is empty", "Give a file with a header and one line for each record.")
    separator = separator_of(path, text)
    header, *body = _rows(path, text, separator)
    names = _checked_names(path, [name.strip() for name in header], only)
    odd = [row for row, cells in enumerate(body) if len(cells) != len(names)]
    if odd:
        what = f"{path} has {len(names)} columns, separated by {SEPARATORS[separator]}, and another number in "
        raise FedauditError("table-row", what + rows(odd), 'Put quotes (") around text that holds the separator.')
    return {
        name: Column(f"{path}, column {name!r}", cells, commas=separator != ",")
        for name, cells in zip(names, _by_column(body, len(names)), strict=True)
    }


def _by_column(body: Sequence[Sequence[str]], width: int) -> Iterator[Strings]:
    for place in range(width):
        column = (row[place].strip() for row in body)
        yield np.array(["" if cell.lower() in ABSENT else cell for cell in column], dtype=np.str_)


def separator_of(path: Path, text: str) -> str:
    """The one that splits the first lines alike, into the most columns."""
    start = list(islice(io.StringIO(text, newline=""), 50))
    best: tuple[float, int, str] = (0.0, 1, "")
    for separator in SEPARATORS:
        widths = [len(row) for row in csv.reader(start, delimiter=separator) if row]
        if widths and widths[0] > 1:
            alike = sum(width == widths[0] for width in widths) / len(widths)
            best = max(best, (round(alike, 2), widths[0], separator))
    if not best[2]:
        known = ", ".join(SEPARATORS.values())
        what = f"{path}: its first line is not a header of several columns, separated by {known}"
        raise FedauditError("table-separator", what, "Give a CSV file with a header and one line for each record.")
    return best[2]


def _rows(path: Path, text: str, separator: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if any(row)]
    except csv.Error:
        what = f"{path} cannot be read as CSV: a cell does not end, or is longer than 131,072 characters"
        raise FedauditError("table-row", what, "Look for a quote that is not closed.") from None


def _checked_names(path: Path, names: list[str], only: Collection[str] | None) -> list[str]:
    for place, name in enumerate(names, start=1):
        if not name and only is not None:
            continue
        if not name:
            what = f"{path}: column {place} has no name"
            raise FedauditError("table-header", what, "Name it, or leave it out (in pandas: to_csv(..., index=False)).")
        if name in names[: place - 1]:
            what = f"{path}: columns {names.index(name) + 1} and {place} have the same name"
            raise FedauditError("table-header", what, "Rename one of them. If there is no header row, add one.")
    return names


def _number(cell: str) -> float | None:
    try:
        return None if "_" in cell else float(cell)  # Python reads 1_000 as a number; in a table it is a name
    except ValueError:
        return None


def _number_with_comma(cell: str) -> float | None:
    return float(cell.replace(",", ".")) if DECIMAL_COMMA.fullmatch(cell) else None


# ------------------------------------------------------------------ parquet


def _parquet(path: Path, without: Collection[str], only: Collection[str] | None) -> dict[str, Column]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        refuse_swollen(path)
        names = _checked_names(path, list(pq.read_schema(path).names), only)
        table = pq.read_table(path)
    except (pa.ArrowException, OSError):
        what = f"{path} is a parquet file that cannot be read"
        raise FedauditError("table-unreadable", what, "Write it again.") from None
    found = {}
    for place, name in enumerate(names):
        unused = name in without or (only is not None and name not in only)
        column = pa.nulls(len(table)) if unused else table.column(place)  # of whatever type it is
        found[name] = _of_arrow(f"{path}, column {name!r}", column, pa.types)
    return found


def refuse_swollen(path: Path) -> None:
    """Refuses a parquet file that claims far more cells, or bytes, than files of its size hold, before it is read."""
    import pyarrow.parquet as pq

    size, about = path.stat().st_size, pq.read_metadata(path)
    unpacked = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    cells = about.num_rows * about.num_columns
    if cells > max(CELLS_A_BYTE * size, FEW_CELLS) or unpacked > max(EXPANDS_AT_MOST * size, MAX_SMALL):
        what = f"{path} has {size:,} bytes and claims {about.num_rows:,} rows of {about.num_columns} columns"
        raise FedauditError("table-size", what, "Give a file with the rows that are needed.", exit_code=REFUSED)


def _of_arrow(where: str, column: Any, types: Any) -> Column:
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    values = column.to_pylist()
    if any(test(kind) for test in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)):
        stored = np.array([np.nan if value is None else float(value) for value in values])
        cells = ["" if value is None or value != value else f"{value}" for value in values]  # NaN is not itself
        return Column(where, np.array(cells, dtype=np.str_), stored)
    if not any(test(kind) for test in (types.is_string, types.is_large_string, types.is_null)):
        todo = "Turn it into numbers or text (a date: into days since another date), or name it in data.drop."
        raise FedauditError("table-type", f"{where} holds {column.type}", todo)
    words = ("" if value is None else value.strip() for value in values)
    return Column(where, np.array(["" if word.lower() in ABSENT else word for word in words], dtype=np.str_))


def named(columns: Mapping[str, Column], path: Path, name: str, key: str) -> Column:
    """The column that a key of [data] names. Where "names" are numbers, the first row may be a record: not quoted."""
    if name in columns:
        return columns[name]
    what, todo = f"{path} has no column {name!r} (data.{key})", suggest(name, columns)
    if any(_number(each) is not None for each in columns):
        todo = "Its first row has numbers where names are expected: add a row with the names of the columns, or " + (
            f"correct data.{key}."
        )
    raise FedauditError("unknown-column", what, todo)
