"""A study on disk: study.json says what its cells are, study.parquet holds every estimate of every cell.

DIR/study.json       the base, the grid, the cells with their overrides, which of them failed and why
DIR/cells/NAME/      a run for each cell, named by the hash of its configuration
DIR/study.parquet    one row for each cell, result and estimate; a cell without results has one row, with its status
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.files import atomic, write_atomically
from fedaudit.results import document as results
from fedaudit.results.document import Document
from fedaudit.results.schema import UnreadableError, as_text, read
from fedaudit.trace import journal
from fedaudit.trace.segments import checksum
from fedaudit.types import Estimate
from fedaudit.types.stored import Many, Whole

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = 1
STUDY, TABLE, CELLS = "study.json", "study.parquet", "cells"
COMPLETE = "complete"  # the status of a cell in which everything was audited that was asked for
DAMAGED = ("file-changed", "results-unreadable", "results-size")  # codes of errors about files that are made again
ACCURACY = "accuracy-"  # rows without an attack: how often the released model is right, on members and on outsiders


@dataclass(frozen=True)
class ListedCell:
    """A cell as study.json lists it."""

    cell: str
    overrides: Mapping[str, Any]


@dataclass(frozen=True)
class StudyFile:
    """study.json."""

    schema: Whole
    base: Mapping[str, Any]
    grid: Mapping[str, Many[Any]]
    cells: Many[ListedCell]
    groups: Many[Many[str]]  # cells that are trained together
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """A cell and what was found in it."""

    cell: str
    overrides: Mapping[str, Any]
    document: Document | None
    status: str

    @property
    def complete(self) -> bool:
        return self.status == COMPLETE


def save_file(file: StudyFile, directory: Path) -> None:
    """Whoever calls this holds the folder, or nobody does."""
    blob = as_text(file).encode()
    journal.append(directory, {STUDY: checksum(blob)})
    write_atomically(directory / STUDY, blob)


def is_study(directory: Path) -> bool:
    return (directory / STUDY).is_file()


def load_file(directory: Path) -> StudyFile:
    path = directory / STUDY
    try:
        if path.stat().st_size > results.MAX_BYTES:
            raise ValueError
        blob = path.read_bytes()
        journal.verify(path, checksum(blob), "run the study again, in another folder.")
        values = json.loads(blob)
        if isinstance(values, dict) and isinstance(values.get("schema"), int) and values["schema"] > SCHEMA:
            what = f"{path} has schema {values['schema']}, this fedaudit reads up to {SCHEMA}"
            raise FedauditError("schema-newer", what, "Install a newer fedaudit.", exit_code=REFUSED)
        file = read(StudyFile, values)
        if any(not entry.cell.isalnum() for entry in file.cells):  # each is the name of a folder
            raise ValueError
        return file
    except (UnreadableError, ValueError, RecursionError, OSError):
        what = f"{path} cannot be read as a study"
        raise FedauditError(
            "study-unreadable", what, "Run the study again, in another folder.", exit_code=REFUSED
        ) from None


def found_in(directory: Path, cell: str) -> tuple[Document | None, str]:
    """The results of a cell that was trained to its end, and their status; an empty one if there are none yet."""
    folder = directory / CELLS / cell
    if not (folder / results.RESULTS).is_file():
        return None, ""
    try:
        found, scores = results.load(folder), folder / results.SCORES
        if scores.is_file():
            journal.verify(scores, journal.checksum_of(scores))
    except FedauditError as error:
        if error.code not in DAMAGED:
            raise
        return None, f"damaged: {error.what}"
    if found.run.ending == "interrupted":
        return None, ""
    missing = next(iter(found.degraded), found.run.status)
    return found, COMPLETE if found.complete else f"part of the audit is missing: {missing}"


def outcomes(directory: Path) -> list[Outcome]:
    """Every cell of the study, in the order of the grid."""
    file = load_file(directory)
    found = []
    for entry in file.cells:
        document, status = found_in(directory, entry.cell)
        if document is None and entry.cell in file.failed:
            status = f"failed: {file.failed[entry.cell]}"
        found.append(Outcome(entry.cell, entry.overrides, document, status or "not run"))
    return found


# ------------------------------------------------------------------ the table


def columns() -> "pa.Schema":
    import pyarrow as pa

    text, number = pa.string(), pa.float64()
    named = ("cell", "overrides", "vantage", "attack", "unit", "party", "estimate")
    kinds = [*((name, text) for name in named), ("value", number), ("low", number), ("high", number)]
    return pa.schema([*kinds, ("status", text), ("model", text)])


def rows(found: Outcome) -> Iterator[dict[str, Any]]:
    """The rows of one cell, in the order of its results. What does not apply is null."""
    cell = {"cell": found.cell, "overrides": json.dumps(found.overrides, sort_keys=True), "status": found.status}
    if found.document is None:
        yield cell
        return
    for result in found.document.results:
        place = {"vantage": result.vantage, "attack": result.attack, "unit": result.unit, "party": result.party}
        for name, estimate in result.estimates.items():
            yield cell | place | {"model": result.model, "estimate": name} | _ends(estimate)
    for name, estimate in found.document.run.accuracy.items():
        yield cell | {"estimate": ACCURACY + name} | _ends(estimate)


def _ends(estimate: Estimate) -> dict[str, float | None]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def save_table(found: Sequence[Outcome], directory: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist([row for outcome in found for row in rows(outcome)], columns())
    with atomic(directory / TABLE) as path:
        pq.write_table(table, path)
        journal.append(directory, {TABLE: journal.checksum_of(path)})
    return directory / TABLE
