"""A table of attacks and runs, as a paper has it: means, with intervals, over runs that differ in their seed alone."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.questions import of_membership
from fedaudit.results.document import Document
from fedaudit.results.repeats import every_attack
from fedaudit.stats.wording import main_tpr
from fedaudit.types import AuditResult, Estimate

COLUMNS = (
    *("attack", "vantage", "model", "measure", "configuration", "runs", "value", "low", "high", "confidence"),
    *("smallest", "largest", "method", "reason"),
)


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One measure of one attack, of one configuration: of its only run, or the mean over its runs."""

    attack: str
    vantage: str
    model: str
    configuration: str  # the name of its first run
    runs: int
    estimate: Estimate
    smallest: float | None
    largest: float | None


def rows(runs: Mapping[str, Document], measures: Sequence[str] = ()) -> list[TableRow]:
    """`runs` by name. `measures`: AUC, and the TPR that the first run quotes, unless others are named."""
    wanted = list(measures) or _usual(runs)
    found = []
    for name, alike in _alike(runs).items():
        pooled = [[e for e in run.results if e.party is None and _counts(e)] for run in alike]
        found += _one(name, pooled[0], wanted) if len(alike) == 1 else _many(name, pooled, wanted)
    return sorted(found, key=lambda row: (row.vantage, row.model, row.attack, wanted.index(row.estimate.name)))


def _usual(runs: Mapping[str, Document]) -> list[str]:
    quoted = [main_tpr([headline.estimates for headline in run.headlines]) for run in runs.values()]
    return [*dict.fromkeys(name for name in quoted if name), "auc"]


def _counts(entry: AuditResult) -> bool:
    return of_membership(entry) or entry.attack == "blind"


def _alike(runs: Mapping[str, Document]) -> dict[str, list[Document]]:
    """By the name of the first: runs whose configurations differ in the seed alone. Without one, a run is alone."""
    found: dict[str, tuple[str, list[Document]]] = {}
    for name, run in runs.items():
        key = json.dumps(_without_seed(run.run.config), sort_keys=True) if run.run.config else f"alone: {name}"
        found.setdefault(key, (name, []))[1].append(run)
    return dict(found.values())


def _without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: section for key, section in config.items() if key != "report"}
    federation = kept.get("federation")
    if isinstance(federation, Mapping):
        kept["federation"] = {key: value for key, value in federation.items() if key != "seed"}
    return kept


def _one(name: str, entries: Sequence[AuditResult], wanted: Sequence[str]) -> list[TableRow]:
    return [
        TableRow(
            attack=entry.attack,
            vantage=entry.vantage,
            model=entry.model,
            configuration=name,
            runs=1,
            estimate=entry.estimates[measure],
            smallest=entry.estimates[measure].value,
            largest=entry.estimates[measure].value,
        )
        for entry in entries
        for measure in wanted
        if measure in entry.estimates
    ]


def _many(name: str, runs: Sequence[Sequence[AuditResult]], wanted: Sequence[str]) -> list[TableRow]:
    return [
        TableRow(
            attack=entry.attack,
            vantage=entry.vantage,
            model=entry.model,
            configuration=name,
            runs=entry.runs,
            estimate=entry.estimates[measure],
            smallest=entry.smallest.get(measure),
            largest=entry.largest.get(measure),
        )
        for entry in every_attack(runs)
        for measure in wanted
        if measure in entry.estimates
    ]


def as_csv(table: Sequence[TableRow]) -> str:
    """With a line for each row. What begins like a formula gets an apostrophe: tables are opened in spreadsheets."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in table:
        e = row.estimate
        writer.writerow(
            [
                *map(inert, (row.attack, row.vantage, row.model, e.name, row.configuration)),
                *(row.runs, e.value, e.low, e.high, e.confidence, row.smallest, row.largest),
                *map(inert, (e.method, e.reason or "")),
            ]
        )
    return text.getvalue()


def inert(text: str) -> str:
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
