"""The columns of a CSV or parquet file, as written: text and, where every cell is a number, numbers.

Errors name the file, the column and the row, and never what stands there.
"""

import csv
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
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
from fedaudit.types import Bools, Floats, Ints, Strings

MAX_BYTES = 2**31
BLOCK = 2**24  # bytes of CSV that are read at a time; no row may be longer
LONGEST = 131_072  # characters of a cell; where a quote is not closed, a cell takes in the rest of the file
CELLS_A_BYTE = 100  # of parquet; a file that claims more is refused,
FEW_CELLS = 5_000_000  # unless it claims no more than this
MAX_CELLS = 1_000_000_000  # however large the file: eight bytes each in the end
MAX_ROWS = 20_000_000  # of a table: a cell takes a hundred bytes while its column is read
EXPANDS_AT_MOST, MAX_SMALL = 50, 64 * 2**20  # the same for bytes
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
ABSENT = sorted({word.lower() for word in (*MISSING, "NA", "N/A", "n.a.", "null", "#N/A", "?", ".")})
MOSTLY = 0.9  # from this share of numbers on, a column is one of numbers with mistakes in it
DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")  # 1,234 may be that, or a little more than one


@dataclass(frozen=True)
class Column:
    """One cell for each row, without spaces around it; "" where there is nothing."""

    where: str  # file and column, for errors
    text: Any  # the cells, as an Arrow array of text
    stored: Floats | None = None  # numbers that the file holds as numbers; NaN where there is nothing
    commas: bool = False  # is any comma in a number a decimal one? it is where the separator is something else

    def __len__(self) -> int:
        return len(self.text)

    @cached_property
    def cells(self) -> Strings:
        return np.array(self.text.to_pylist(), dtype=np.str_)

    @cached_property
    def missing(self) -> Bools:
        import pyarrow.compute as pc

        return np.asarray(pc.equal(self.text, ""))

    @cached_property
    def coded(self) -> tuple[Any, Ints]:
        """The different cells in order, as an Arrow array, and the place of each row's among them."""
        import pyarrow.compute as pc

        found = self.text.dictionary_encode()
        order = np.asarray(pc.array_sort_indices(found.dictionary))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return found.dictionary.take(order), place[np.asarray(found.indices)]

    @cached_property
    def different(self) -> int:
        """How many different cells there are, "" among them. Not counted from `coded`, which sorts them."""
        import pyarrow.compute as pc

        return int(pc.count_distinct(self.text).as_py())

    @cached_property
    def read(self) -> Floats:
        """Every cell as a number; NaN where it is none."""
        if self.stored is not None:
            return self.stored
        return self._each(_number_with_comma) if self.has_decimal_commas else self._with_point

    @cached_property
    def _with_point(self) -> Floats:
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            numbers = pc.if_else(pc.equal(self.text, ""), None, self.text).cast(pa.float64())
        except pa.ArrowInvalid:  # some are none, or such as Python alone can read
            return self._each(_number)
        return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)

    def _each(self, function: Callable[[str], float]) -> NDArray[Any]:
        """What it says of every cell; cells that are the same are looked at once."""
        values, places = self.coded
        return np.array([function(value) for value in values.to_pylist()])[places]

    @cached_property
    def numbers(self) -> Floats | None:
        """NaN where there is nothing; None: these are words. A column with few words among its numbers is refused."""
        wrong = np.flatnonzero(np.isnan(self.read) & ~self.missing)
        few = (1 - MOSTLY) * np.count_nonzero(~self.missing)
        if len(wrong) > few and len(wrong) - np.count_nonzero(self._each(_may_be_thousands)[wrong]) <= few:
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
        import pyarrow.compute as pc

        with_commas = self.text.filter(pc.match_substring(self.text, ",")).unique().to_pylist()
        decimal = (cell for cell in with_commas if DECIMAL_COMMA.fullmatch(cell) and not _may_be_thousands(cell))
        if not with_commas or not (self.commas or any(decimal)):
            return False
        unread = [np.count_nonzero(np.isnan(each)) for each in (self._each(_number_with_comma), self._with_point)]
        return bool(unread[0] < unread[1])

    def take(self, kept: Bools) -> "Column":
        stored = None if self.stored is None else self.stored[kept]
        return Column(self.where, self.text.filter(kept), stored, self.commas)


def _number(cell: str) -> float:
    try:
        return math.nan if "_" in cell else float(cell)  # Python reads 1_000 as a number; in a table it is a name
    except ValueError:
        return math.nan


def _number_with_comma(cell: str) -> float:
    return float(cell.replace(",", ".")) if DECIMAL_COMMA.fullmatch(cell) else math.nan


def _may_be_thousands(cell: str) -> bool:
    return THOUSANDS.fullmatch(cell) is not None


def rows(wrong: Sequence[int] | NDArray[Any]) -> str:
    """Which rows, counted from 1 below the header."""
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"row {int(wrong[0]) + 1}{more}"


def read_columns(
    path: Path, without: Collection[str] = (), only: Collection[str] | None = None, header: bool = True
) -> dict[str, Column]:
    """The columns by name. A file that is no table is named for what it is, with what to write instead. Where `only`
    some columns are wanted, the others may be of any type and without names; from parquet they come back empty. Without
    a header, the columns of a CSV file are called column-1, column-2, ..."""
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
    found = _parquet(path, without, only) if kind == "parquet" else _csv(path, only, header)
    for name in without:
        named(found, path, name, "drop")
    found = {name: column for name, column in found.items() if name not in without}
    if not found or not len(next(iter(found.values()))):
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


def _csv(path: Path, only: Collection[str] | None, has_header: bool) -> dict[str, Column]:
    """Arrow reads the cells as they are written. What it cannot read is looked at again, for the row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    separator, header = _beginning(path)
    written = [name.strip() for name in header] if has_header else [f"column-{i}" for i in range(1, len(header) + 1)]
    names = _checked_names(path, written, only)
    try:
        table = _rows(path, separator, len(names))
    except pa.ArrowInvalid:
        raise _unreadable(path, separator, len(names)) from None
    blank = np.ones(len(table), bool)
    for column in table.columns:
        blank &= np.asarray(pc.equal(column, ""))
    table = table.filter(~blank) if blank.any() else table
    found = {}
    for name in names:  # each is let go when it has been cleaned, because they may fill half of the memory
        if pc.max(pc.utf8_length(table.column(0))).as_py() > LONGEST:
            raise _endless(path)
        text = _cleaned(_line_ends(table.column(0)[1 if has_header else 0 :]))
        found[name] = Column(f"{path}, column {name!r}", text, commas=separator != ",")
        table = table.remove_column(0)
    return found


def _beginning(path: Path) -> tuple[str, list[str]]:
    """The separator, and the header: the first line on which something stands."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            if not any(line.strip() for line in file):
                todo = "Give a file with a header and one line for each record."
                raise FedauditError("no-records", f"{path} is empty", todo)
            file.seek(0)
            separator = separator_of(path, list(islice(file, 50)))
            file.seek(0)
            header = next((row for row in csv.reader(file, delimiter=separator) if any(row)), [])
            if not header:
                todo = "Give a file with a header and one line for each record."
                raise FedauditError("no-records", f"all cells of {path} are empty", todo)
            return separator, header
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except csv.Error:
        raise _endless(path) from None


def _rows(path: Path, separator: str, width: int) -> Any:
    """All rows, the header among them, as an Arrow table of text."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    def of_another_width(row: Any) -> str:
        return "error" if any(next(csv.reader([row.text], delimiter=separator))) else "skip"

    places = [str(place) for place in range(width)]
    with pa.OSFile(str(path)) as file:  # not by its name, which may promise something packed
        return arrow_csv.read_csv(
            file,
            arrow_csv.ReadOptions(column_names=places, block_size=BLOCK),
            arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=of_another_width),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(places, pa.large_string()), strings_can_be_null=False),
        )


def _unreadable(path: Path, separator: str, width: int) -> FedauditError:
    """Why Arrow did not read it, found row by row."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            full = (row for row in csv.reader(file, delimiter=separator) if any(row))
            odd = [number for number, row in enumerate(full, start=-1) if len(row) != width]
    except UnicodeDecodeError:
        return _not_utf8(path)
    except csv.Error:
        return _endless(path)
    if not odd:
        return _endless(path)
    what = f"{path} has {width} columns, separated by {SEPARATORS[separator]}, and another number in {rows(odd)}"
    return FedauditError("table-row", what, 'Put quotes (") around text that holds the separator.')


def _not_utf8(path: Path) -> FedauditError:
    todo = f"Convert it: iconv -f WINDOWS-1252 -t UTF-8 {path.name} > new.csv (in Excel: Save As, CSV UTF-8)."
    return FedauditError("table-encoding", f"{path} is not text in UTF-8", todo)


def _endless(path: Path) -> FedauditError:
    what = f"{path} cannot be read as CSV: a cell does not end, or is longer than {LONGEST:,} characters"
    return FedauditError("table-row", what, "Look for a quote that is not closed.")


def _line_ends(column: Any) -> Any:
    """Those inside cells, whatever system wrote them."""
    import pyarrow.compute as pc

    if not pc.any(pc.match_substring(column, "\r")).as_py():
        return column
    return pc.replace_substring_regex(column, "\r\n?", "\n")


def _cleaned(column: Any) -> Any:
    """Without spaces around, and "" for what says that there is nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column.combine_chunks())
    absent = pc.is_in(pc.ascii_lower(text), pa.array(ABSENT, pa.large_string()))
    return pc.if_else(absent, "", text)


def separator_of(path: Path, start: Sequence[str]) -> str:
    """The one that splits the first lines alike, into the most columns."""
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


# ------------------------------------------------------------------ parquet


def _parquet(path: Path, without: Collection[str], only: Collection[str] | None) -> dict[str, Column]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        refuse_swollen(path)
        names = _checked_names(path, list(pq.read_schema(path).names), only)
        table = pq.read_table(path)
        table.validate(full=True)  # text may be no UTF-8
    except (pa.ArrowException, OSError, ValueError):  # the last: a name that is no UTF-8
        what = f"{path} is a parquet file that cannot be read"
        raise FedauditError("table-unreadable", what, "Write it again.") from None
    found = {}
    for place, name in enumerate(names):
        unused = name in without or (only is not None and name not in only)
        column = pa.chunked_array([pa.nulls(len(table))]) if unused else table.column(place)  # of whatever type it is
        found[name] = _of_arrow(f"{path}, column {name!r}", column, pa.types)
    return found


def refuse_swollen(path: Path, rows: int = MAX_ROWS) -> None:
    """Refuses a parquet file that claims too many rows or cells, or far more of them, or of bytes, than files of its
    size hold, before it is read."""
    import pyarrow.parquet as pq

    size, about = path.stat().st_size, pq.read_metadata(path)
    unpacked = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    cells = about.num_rows * about.num_columns
    if cells > MAX_CELLS or about.num_rows > rows:
        most = f"{MAX_CELLS:,} cells" if cells > MAX_CELLS else f"{rows:,} rows"
        what = f"{path} has {about.num_rows:,} rows of {about.num_columns} columns: more than {most}"
        todo = "Save a part of the rows, or only the columns that are needed, to a file of their own."
        raise FedauditError("table-size", what, todo, exit_code=REFUSED)
    if cells > max(CELLS_A_BYTE * size, FEW_CELLS) or unpacked > max(EXPANDS_AT_MOST * size, MAX_SMALL):
        what = f"{path} has {size:,} bytes and claims {about.num_rows:,} rows of {about.num_columns} columns"
        raise FedauditError("table-size", what, "Give a file with the rows that are needed.", exit_code=REFUSED)


def _of_arrow(where: str, column: Any, types: Any) -> Column:
    import pyarrow as pa

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if any(test(kind) for test in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)):
        values = column.to_pylist()
        stored = np.array([np.nan if value is None else float(value) for value in values])
        cells = ["" if value is None or value != value else f"{value}" for value in values]  # NaN is not itself
        return Column(where, pa.array(cells, pa.large_string()), stored)
    if not any(test(kind) for test in (types.is_string, types.is_large_string, types.is_null)):
        todo = "Turn it into numbers or text (a date: into days since another date), or name it in data.drop."
        raise FedauditError("table-type", f"{where} holds {column.type}", todo)
    return Column(where, _cleaned(column.cast(pa.large_string()).fill_null("")))


def named(columns: Mapping[str, Column], path: Path, name: str, key: str) -> Column:
    """The column that a key of [data] names. Where "names" are numbers, the first row may be a record: not quoted."""
    if name in columns:
        return columns[name]
    what, todo = f"{path} has no column {name!r} (data.{key})", suggest(name, columns)
    if not all(math.isnan(_number(each)) for each in columns):
        todo = (
            "Its first row has numbers where names are expected. If that is a record, write data.header = false, and "
            f"columns are called column-1, column-2, ...; otherwise correct data.{key}."
        )
    raise FedauditError("unknown-column", what, todo)
