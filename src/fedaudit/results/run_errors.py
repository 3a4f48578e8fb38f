"""What each record, or person, adds to the errors of a run's figures: which part of their measuring error several runs
have in common follows from it. Of AUCs and TPRs it is read off the scores; of other figures a run stores it beside
them, in errors.parquet."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedaudit.data.cells import refuse_swollen
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.files import atomic
from fedaudit.results.compare import blocks_giving
from fedaudit.results.document import ERRORS
from fedaudit.results.scores import MAX_BYTES, blocks_of, load_scores
from fedaudit.stats.paired import errors_behind
from fedaudit.stats.wording import fpr_of
from fedaudit.trace.journal import Seal, checksum_of, verify
from fedaudit.trace.journal import seal as seal_in
from fedaudit.types import AuditResult, Estimate, UnitErrors

if TYPE_CHECKING:
    import pyarrow as pa

Place = tuple[str, str, str]  # attack, kind of model, figure


@dataclass(frozen=True)
class RunErrors:
    """Of figures over all parties: the value, and who adds what to its error."""

    known: Mapping[Place, tuple[float, UnitErrors]] = field(default_factory=dict)

    def of(self, attack: str, model: str, figure: Estimate) -> UnitErrors | None:
        """None where the scores do not give this very figure, as behind a defence that bends answers for outsiders."""
        value, errors = self.known.get((attack, model, figure.name), (None, None))
        return errors if value == figure.value else None

    def among(self, people: str) -> "RunErrors":
        """With names that others do not have, where other records or people go by the same ones."""
        known = {
            key: (value, UnitErrors(np.array([f"{name} of {people}" for name in own.names.tolist()]), own.values))
            for key, (value, own) in self.known.items()
        }
        return RunErrors(known)


NOT_KNOWN = RunErrors()


def errors_of_run(folder: Path, results: Iterable[AuditResult], names: Container[str] | None = None) -> RunErrors:
    """`names`: of these figures alone."""
    known: dict[Place, tuple[float, UnitErrors]] = {}
    scores, stored = load_scores(folder), load_errors(folder)
    blocks_of_place = cache(lambda attack, model: [] if scores is None else blocks_of(scores, attack, model))
    for entry in (entry for entry in results if entry.party is None):
        for name, figure in entry.estimates.items():
            key = entry.attack, entry.model, name
            if figure.value is None or key in known or (names is not None and name not in names):
                continue
            errors = stored.get(key)
            if errors is None and (name == "auc" or fpr_of(name)):
                blocks = blocks_giving(figure, blocks_of_place(entry.attack, entry.model))
                errors = errors_behind(name, blocks) if blocks else None
            if errors is not None:
                known[key] = figure.value, errors
    return RunErrors(known)


# ------------------------------------------------------------------ errors.parquet


def _columns() -> "pa.Schema":
    import pyarrow as pa

    words = pa.dictionary(pa.int32(), pa.string())
    kinds = {"attack": words, "model": words, "figure": words, "unit": pa.string(), "error": pa.float64()}
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])


def save_errors(errors: Mapping[Place, UnitErrors], directory: Path, seal: Seal | None = None) -> None:
    """Beside the scores; without errors there is no file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (directory / ERRORS).unlink(missing_ok=True)
    if not errors:
        return
    with atomic(directory / ERRORS) as path:
        with pq.ParquetWriter(path, _columns()) as writer:
            for place, own in errors.items():
                parts = [pa.array([part] * len(own.names)) for part in place]
                parts += [pa.array([str(name) for name in own.names.tolist()]), pa.array(own.values)]
                found = [part.cast(column.type) for part, column in zip(parts, _columns(), strict=True)]
                writer.write_table(pa.table(found, schema=_columns()))
        (seal or partial(seal_in, directory))({ERRORS: checksum_of(path)})


def load_errors(run: Path) -> dict[Place, UnitErrors]:
    """As `save_errors` wrote them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = (run if run.is_dir() else run.parent) / ERRORS
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError("larger than 4 GiB")
        verify(path, checksum_of(path))
        refuse_swollen(path, MAX_BYTES)
        table = pq.read_table(path, columns=_columns().names)
        table.validate(full=True)  # text may be no UTF-8
        columns = {name: table.cast(_columns())[name].to_numpy() for name in _columns().names}
        if not np.isfinite(columns["error"]).all():
            raise ValueError("an error is no number")
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise FedauditError(
            "scores-unreadable",
            f"{path} cannot be read: {error}",
            "Run `fedaudit run` or `fedaudit audit` again.",
            exit_code=REFUSED,
        ) from None
    places = list(zip(columns["attack"], columns["model"], columns["figure"], strict=True))
    starts = [i for i, place in enumerate(places) if not i or place != places[i - 1]]
    return {
        places[start]: UnitErrors(columns["unit"][start:end], columns["error"][start:end])
        for start, end in zip(starts, [*starts[1:], len(places)], strict=True)
    }
