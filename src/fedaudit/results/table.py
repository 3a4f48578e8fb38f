"""A table of attacks and runs, as a paper has it: means, with intervals, over runs that differ in their seed alone."""

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedaudit.config.attack_registry import BLIND
from fedaudit.questions import main_figure, of_membership
from fedaudit.results.document import Document
from fedaudit.results.repeats import MEASURED, every_attack
from fedaudit.results.run_errors import RunErrors, errors_of_run
from fedaudit.stats.strongest import quoted_figures
from fedaudit.stats.wording import behind, main_tpr, without
from fedaudit.types import AuditResult, Estimate

COLUMNS = (
    *("attack", "vantage", "model", "measure", "configuration", "runs", "value", "low", "high", "confidence"),
    *("smallest", "largest", "method", "reason", "missing", "quoted"),
)


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One measure of one attack, of one configuration: of its only run, or the mean over its runs."""

    attack: str
    vantage: str
    model: str
    configuration: str  # the name of its first run, or of the only one that counts
    runs: int
    estimate: Estimate
    smallest: float | None
    largest: float | None
    quoted: bool = False  # as the verdict quotes it: its interval pays for the choice


def rows(
    runs: Mapping[str, Document], measures: Sequence[str] = (), folders: Mapping[str, Path] | None = None
) -> list[TableRow]:
    """`runs` by name, and the folders in which they keep their scores. `measures`: AUC, and the TPR that the first run
    quotes, unless others are named; of attacks that ask another question than membership, the figure that sums it
    up."""
    wanted = Wanted(tuple(measures), tuple(_usual(runs)))
    found: list[TableRow] = []
    for alike in _alike(runs):
        pooled = {name: [e for e in run.results if e.party is None] for name, run in alike.items()}
        if len(pooled) > 1:
            errors = {name: errors_of_run(folders[name], own) for name, own in pooled.items()} if folders else {}
            found += _means(pooled, wanted, list(errors.values()))
        found += [row for name, run in alike.items() for row in _single(name, run, wanted, len(pooled) > 1)]
    return sorted(found, key=lambda row: (row.vantage, row.model, row.attack, wanted.place(row.estimate.name)))


@dataclass(frozen=True)
class Wanted:
    """Which figures of a result are shown: those that were named, or what is usual for its question."""

    named: tuple[str, ...]
    usual: tuple[str, ...]

    def of(self, entry: AuditResult) -> list[str]:
        if self.named or of_membership(entry) or entry.attack == BLIND:
            return [name for name in self.named or self.usual if name in entry.estimates]
        main = main_figure(entry)
        return [main] if main else []

    def place(self, name: str) -> int:
        order = self.named or self.usual
        return order.index(name) if name in order else len(order)


def _usual(runs: Mapping[str, Document]) -> list[str]:
    rates = [main_tpr([headline.estimates for headline in run.headlines]) for run in runs.values()]
    rates += [one.name for run in runs.values() for one in quoted_figures(run.headlines)]
    return [*dict.fromkeys(name for name in rates if name and name != "auc"), "auc"]


def _alike(runs: Mapping[str, Document]) -> list[dict[str, Document]]:
    """By name: runs whose configurations differ in the seed alone. Without one, a run is alone. A copy of a run is no
    second one."""
    found: dict[str, dict[str, Document]] = {}
    for name, run in runs.items():
        key = json.dumps(_without_seed(run.run.config), sort_keys=True) if run.run.config else f"alone: {name}"
        alike = found.setdefault(key, {})
        if all((run.run.config, run.results) != (other.run.config, other.results) for other in alike.values()):
            alike[name] = run
    return list(found.values())


def _without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: section for key, section in config.items() if key != "report"}
    federation = kept.get("federation")
    if isinstance(federation, Mapping):
        kept["federation"] = {key: value for key, value in federation.items() if key != "seed"}
    return kept


def _single(name: str, run: Document, wanted: Wanted, among_others: bool) -> list[TableRow]:
    """The figures of one run, what its verdict quotes as it quotes it. Among others of its configuration, those that
    are not measured: the mean of what each run proves is no bound, so that each keeps its own."""
    both = [(one, entry) for one in quoted_figures(run.headlines) if (entry := behind(run.results, one.whose))]
    both.sort(key=lambda pair: pair[0].whose.vantage == pair[1].vantage)  # whose own row it is has the last word
    quoted = {(entry.attack, entry.vantage, str(entry.model), one.name): one.estimate for one, entry in both}
    found = [
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
        for entry in run.results
        if entry.party is None
        for measure in wanted.of(entry)
        if not among_others or entry.estimates[measure].kind != MEASURED
    ]
    of_verdict = [(row, quoted.get((row.attack, row.vantage, row.model, row.estimate.name))) for row in found]
    return [replace(row, estimate=told, quoted=True) if told else row for row, told in of_verdict]


def _means(runs: Mapping[str, Sequence[AuditResult]], wanted: Wanted, errors: Sequence[RunErrors]) -> list[TableRow]:
    """Of the figures that are measured, the mean over these runs."""
    shown: dict[tuple[str, str, str], dict[str, None]] = {}
    valued = Counter[tuple[str, str, str, str]]()
    for entry in (entry for own in runs.values() for entry in own):
        place = entry.attack, entry.vantage, entry.model
        shown.setdefault(place, {}).update(dict.fromkeys(wanted.of(entry)))
        valued.update((*place, name) for name, e in entry.estimates.items() if None not in (e.value, e.low, e.high))
    return [
        TableRow(
            attack=entry.attack,
            vantage=entry.vantage,
            model=entry.model,
            configuration=next(iter(runs)),
            runs=valued[entry.attack, entry.vantage, entry.model, measure],
            estimate=entry.estimates[measure],
            smallest=entry.smallest.get(measure),
            largest=entry.largest.get(measure),
        )
        for entry in every_attack(list(runs.values()), errors)
        for measure in shown[entry.attack, entry.vantage, entry.model]
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
                *map(inert, (e.method, e.reason or "", without(e), "yes" if row.quoted else "")),
            ]
        )
    return text.getvalue()


def inert(text: str) -> str:
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
