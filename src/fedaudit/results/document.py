"""Results on disk: `results.json` (published schema) and `scores.parquet`. Neither needs torch to be read."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.files import atomic
from fedaudit.files import write_atomically as write_atomically
from fedaudit.types import Audit, AuditResult, Estimate

SCHEMA = 1
SCHEMA_FILE = Path(__file__).with_name("results.schema.json")
RESULTS, SCORES, REPORT = "results.json", "scores.parquet", "report.html"
MAX_BYTES = 512 * 2**20


def as_document(audit: Audit, run: Mapping[str, Any]) -> dict[str, Any]:
    """What results.json holds."""
    return {
        "schema": SCHEMA,
        "run": {**run, "accuracy": {name: estimate_fields(e) for name, e in audit.accuracy.items()}},
        "headlines": [
            {**_plain(headline), "estimates": {n: estimate_fields(e) for n, e in headline.estimates.items()}}
            for headline in audit.headlines
        ],
        "results": [_result(result) for result in audit.results],
        "warnings": list(audit.warnings),
        "notices": list(audit.notices),
        "failed": [{"attack": name, "reason": why} for name, why in audit.failed.items()],
    }


def _result(result: AuditResult) -> dict[str, Any]:
    plain: dict[str, Any] = _plain(result)
    plain["estimates"] = {name: estimate_fields(e) for name, e in result.estimates.items()}
    plain["cost"] = {"epochs": plain.pop("epochs")}
    if not plain["curves"]:
        del plain["curves"]
    return plain


def estimate_fields(estimate: Estimate) -> dict[str, Any]:
    """Without the name (it is the key), and without what such an estimate never has."""
    plain: dict[str, Any] = _plain(estimate)
    del plain["name"]
    if estimate.n_cal is None:
        for absent in ("n_cal", "threshold", "realised_fpr", "realised_fpr_interval", "guaranteed"):
            del plain[absent]
    if estimate.ceiling is None:
        del plain["ceiling"]
    return plain


def _plain(value: Any) -> Any:
    """Dataclasses as dictionaries, and nothing that JSON cannot say (an infinite threshold becomes null)."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return None
    return value


def save(document: Mapping[str, Any], directory: Path) -> Path:
    path = directory / RESULTS
    write_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return path


def save_scores(parts: Iterable[Mapping[str, Any]], directory: Path) -> None:
    """One row group for each attack and model, written as they come. A text or None stands for a column of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, words = pa.string(), pa.dictionary(pa.int32(), pa.string())
    kinds = {"id": text, "subject": text, "party": words, "role": words, "attack": words, "model": words}
    schema = pa.schema([*kinds.items(), ("score", pa.float64()), ("reference", pa.bool_())])
    with atomic(directory / SCORES) as path, pq.ParquetWriter(path, schema) as writer:
        for part in parts:
            columns = []
            for field in schema:
                value, size = part[field.name], len(part["id"])
                constant = value is None or isinstance(value, str)
                column = pa.repeat(pa.scalar(value), size) if constant else pa.array(value)
                columns.append(column.cast(field.type))
            writer.write_table(pa.table(columns, schema=schema))


def load(directory: Path) -> dict[str, Any]:
    """Read results.json of a run, or say why not. A newer schema is refused, an older one is read."""
    path = directory / RESULTS if directory.is_dir() else directory
    if not path.is_file():
        raise FedauditError(
            "no-results", f"there is no {RESULTS} in {directory}", "Name the folder that `fedaudit run` printed."
        )
    if path.stat().st_size > MAX_BYTES:
        raise FedauditError("results-size", f"{path} is larger than 512 MiB", "Audit again.", exit_code=REFUSED)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        schema = int(document["schema"])
        document["results"], document["run"]
    except (ValueError, KeyError, TypeError):
        raise FedauditError(
            "results-unreadable", f"{path} is not a fedaudit result", "Run the audit again.", exit_code=REFUSED
        ) from None
    if schema > SCHEMA:
        raise FedauditError(
            "schema-newer",
            f"{path} has schema {schema}, this fedaudit reads up to {SCHEMA}",
            "Update fedaudit.",
            exit_code=REFUSED,
        )
    loaded: dict[str, Any] = document
    return loaded
