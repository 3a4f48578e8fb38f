"""A study on disk: study.json says what its cells are, study.parquet holds every estimate of every cell.

DIR/study.json       the base, the grid, the cells with their overrides, which of them failed and why
DIR/cells/NAME/      a run for each cell, named by the hash of its configuration
DIR/study.parquet    one row for each cell, result and estimate; a cell without results has one row, with its status
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.files import atomic
from fedaudit.results import document as results
from fedaudit.results.compare import ComparedRun, hides_risk, pareto, risk_difference, row_of
from fedaudit.results.document import Document
from fedaudit.results.run_errors import NOT_KNOWN, RunErrors, errors_of_run
from fedaudit.results.schema import read_file, save_as
from fedaudit.stats import over_runs
from fedaudit.stats.intervals import of_sum
from fedaudit.stats.strongest import quoted_figures
from fedaudit.stats.wording import several_kinds, value_of
from fedaudit.trace import journal
from fedaudit.types import AuditResult, Estimate, Headline, UnitErrors
from fedaudit.types.stored import Many, Whole

if TYPE_CHECKING:
    import pyarrow as pa

STUDY, TABLE, CELLS = "study.json", "study.parquet", "cells"
COMPLETE = "complete"  # the status of a cell in which everything was audited that was asked for
DAMAGED = ("file-changed", "results-unreadable", "results-size")  # codes of errors about files that are made again
ACCURACY = "accuracy-"  # rows without an attack: how often the released model is right, on members and on outsiders
RISKS = ("tpr@0.01", "auc")
SEEDS = ("seed", "data_seed")  # how the keys end that only repeat a federation


@dataclass(frozen=True)
class ListedCell:
    """A cell as study.json lists it."""

    cell: str
    overrides: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
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
    folder: Path | None = None

    @property
    def complete(self) -> bool:
        return self.status == COMPLETE

    @cached_property
    def errors(self) -> RunErrors:
        """Of what its headlines quote."""
        if self.document is None or self.folder is None:
            return NOT_KNOWN
        quoted = {(headline.attack, headline.model) for headline in self.document.headlines}
        results = [entry for entry in self.document.results if (entry.attack, entry.model) in quoted]
        return errors_of_run(self.folder, results, RISKS)


def save_file(file: StudyFile, directory: Path) -> None:
    """Whoever calls this holds the folder, or nobody does."""
    save_as(file, directory / STUDY, partial(journal.append, directory))


def is_study(directory: Path) -> bool:
    return (directory / STUDY).is_file()


def load_file(directory: Path) -> StudyFile:
    path = directory / STUDY
    try:
        file = read_file(StudyFile, path, "run the study again, in another folder.")
        if any(not entry.cell.isalnum() for entry in file.cells):  # each is the name of a folder
            raise ValueError
        return file
    except (ValueError, RecursionError, OSError):
        what, todo = f"{path} cannot be read as a study", "Run the study again, in another folder."
        raise FedauditError("study-unreadable", what, todo, exit_code=REFUSED) from None


def found_in(directory: Path, cell: str) -> tuple[Document | None, str]:
    """The results of a cell that was trained to its end, and their status; an empty one if there are none yet."""
    folder = directory / CELLS / cell
    if not (folder / results.RESULTS).is_file():
        return None, ""
    try:
        found = results.load(folder)
        for file in (folder / results.SCORES, folder / results.ERRORS):
            if file.is_file():
                journal.verify(file, journal.checksum_of(file))
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
        found.append(
            Outcome(entry.cell, entry.overrides, document, status or "not run", directory / CELLS / entry.cell)
        )
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


# ------------------------------------------------------------------ the effect of each key
# Cells differ in several keys at once. The effect of one key is read off pairs of cells that are equal in all others,
# and within such a pair off the same records, where both have them: both err on these, and mostly together. The mean
# over pairs has the interval of `stats.over_runs`: how much the pairs differ, and what their errors have in common.


@dataclass(frozen=True)
class Level:
    """One value of a factor."""

    value: Any
    cells: int  # with a number
    risk: Estimate | None  # the mean over its cells
    pairs: int  # of cells that differ from one at the first level in this factor alone
    difference: Estimate | None  # from the first level: the mean over these pairs


@dataclass(frozen=True)
class Factor:
    key: str
    vantage: str
    metric: str
    levels: Sequence[Level]


def metric_of(found: Sequence[Outcome]) -> str:
    """TPR at 1 % FPR if every headline has one, else the AUC: cells can only be compared by what all of them have.
    Headlines that have neither (a canary's) are not asked."""
    headlines = [headline for outcome in found if outcome.document for headline in outcome.document.headlines]
    valued = [{name for name in RISKS if _valued(headline.estimates.get(name))} for headline in headlines]
    return RISKS[0] if any(valued) and all(RISKS[0] in names for names in valued if names) else RISKS[1]


def factors(found: Sequence[Outcome], directory: Path) -> list[Factor]:
    """Every key that has several values, from every vantage."""
    metric = metric_of(found)
    keys = [key for key in (found[0].overrides if found else {}) if len(_levels(found, key)) > 1]
    vantages = dict.fromkeys(h.vantage for o in found if o.document for h in o.document.headlines)
    return [
        Factor(key, vantage, metric, list(_each(found, key, vantage, metric, directory)))
        for key in keys
        for vantage in vantages
    ]


@dataclass(frozen=True)
class Configuration:
    """Cells that differ in their seeds alone: repeats of one federation, which together are one point."""

    overrides: Mapping[str, Any]  # without the seeds
    cells: int  # with a risk
    row: ComparedRun  # of the means over these


def frontier(found: Sequence[Outcome]) -> list[Configuration]:
    """Accuracy and risk, by the same metric as the factors, of every configuration with results; `best`: no other is
    better in both. The luckiest of several seeds is not: it is chosen by its own error."""
    metric = metric_of(found)
    groups: dict[str, list[tuple[Outcome, Document]]] = {}
    for outcome in found:
        if outcome.document:
            groups.setdefault(json.dumps(_unseeded(outcome.overrides)), []).append((outcome, outcome.document))
    means = [_over_seeds(of[0][0].cell, of, metric) for of in groups.values()]
    members = zip(groups.values(), means, pareto([row for _, row in means]), strict=True)
    return [Configuration(_unseeded(of[0][0].overrides), cells, row) for of, (cells, _), row in members]


def _unseeded(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Keys that always have the same value are written as one, with commas between them."""
    return {
        keys: value
        for keys, value in overrides.items()
        if not all(key.strip().rpartition(".")[2] in SEEDS for key in keys.split(","))
    }


def _over_seeds(name: str, runs: Sequence[tuple[Outcome, Document]], metric: str) -> tuple[int, ComparedRun]:
    """How many of these runs have a risk, and the row of the one that has, or of the means over several: of every
    vantage, and of the accuracy."""
    each = [row_of(document, name, metric) for _, document in runs]
    valued = [run for run, row in zip(runs, each, strict=True) if row.risk]
    if len(valued) < 2:
        return len(valued), next((row for row in each if row.risk), each[0])
    first, headlines, mixed = valued[0][1], [], {}
    for headline in first.headlines:
        quoted = [(outcome, h) for outcome, document in valued if (h := _headline(document, headline.vantage))]
        known = [(o, h, e) for o, h in quoted if (e := h.estimates.get(metric)) is not None and e.value is not None]
        risk = _mean([e for _, _, e in known], errors=[o.errors.of(h.attack, h.model, e) for o, h, e in known])
        if risk is not None:
            headlines.append(replace(headline, estimates={metric: risk}, figure=metric, grade=None, lent_by=""))
            mixed[headline.vantage] = several_kinds([h for _, h in quoted])
    rights = [e for _, document in valued if (e := document.accuracy) and e.value is not None]
    right = _mean(rights)
    run = replace(first.run, accuracy={} if right is None else {"evaluation": right})
    row = row_of(replace(first, run=run, headlines=headlines), name, metric)
    worst = max(row.risks, key=lambda vantage: row.risks[vantage].value, default="")
    return len(valued), replace(row, whose=f"{worst}, {mixed[worst]}") if mixed.get(worst) else row


def _levels(found: Sequence[Outcome], key: str) -> dict[str, Any]:
    return {json.dumps(outcome.overrides[key]): outcome.overrides[key] for outcome in found}


def _each(found: Sequence[Outcome], key: str, vantage: str, metric: str, directory: Path) -> Iterator[Level]:
    levels = _levels(found, key)
    first = next(iter(levels))
    for text, value in levels.items():
        mine = [outcome for outcome in found if json.dumps(outcome.overrides[key]) == text]
        risks = [(o, e) for o in mine if (e := _risk(o, vantage, metric)) is not None and _valued(e)]
        risk = _mean([e for _, e in risks], errors=[_errors(o, vantage, e) for o, e in risks])
        pairs = [] if text == first else list(_differences(mine, found, key, first, vantage, metric, directory))
        gap = _mean([e for e, _ in pairs], least=-1.0, errors=[errors for _, errors in pairs])
        yield Level(value, len(risks), risk, len(pairs), gap)


def _risk(outcome: Outcome, vantage: str, metric: str) -> Estimate | None:
    own = next((h for h in outcome.document.headlines if h.vantage == vantage), None) if outcome.document else None
    quoted = _headline(outcome.document, vantage)
    if outcome.document is None or own is None or quoted is None or hides_risk(outcome.document, own, metric):
        return None
    return quoted.estimates.get(metric)


def _errors(outcome: Outcome, vantage: str, risk: Estimate) -> UnitErrors | None:
    headline = _headline(outcome.document, vantage)
    return outcome.errors.of(headline.attack, headline.model, risk) if headline else None


def _valued(estimate: Estimate | None) -> bool:
    """Has it a value that may be compared? One by a doubted threshold is a value at another rate."""
    return value_of(estimate) is not None and estimate is not None and estimate.doubt is None


def _mean(
    estimates: Sequence[Estimate], least: float = 0.0, errors: Sequence[UnitErrors | None] = ()
) -> Estimate | None:
    if len(estimates) < 2:
        return estimates[0] if estimates else None
    return over_runs(estimates, least, errors=errors)


def _differences(
    mine: Sequence[Outcome],
    found: Sequence[Outcome],
    key: str,
    first: str,
    vantage: str,
    metric: str,
    directory: Path,
) -> Iterator[tuple[Estimate, UnitErrors | None]]:
    """Each with what every record, or person, adds to its error."""
    partners = {_others(o.overrides, key): o for o in found if json.dumps(o.overrides[key]) == first}
    for outcome in mine:
        partner = partners.get(_others(outcome.overrides, key))
        pair = [(o, entry) for o in (outcome, partner) if o and (entry := _quoted(o.document, vantage, metric))]
        if len(pair) == 2:
            places = [(directory / CELLS / o.cell, entry) for o, entry in pair]
            difference = risk_difference(places[0], places[1], metric)
            if difference is not None and difference.value is not None:
                one, two = (o.errors.of(entry.attack, entry.model, entry.estimates[metric]) for o, entry in pair)
                yield difference, of_sum(one, two, -1.0) if one and two else None


def _others(overrides: Mapping[str, Any], key: str) -> str:
    return json.dumps({name: value for name, value in overrides.items() if name != key}, sort_keys=True)


def _headline(document: Document | None, vantage: str) -> Headline | None:
    """The one whose figure is quoted for this vantage."""
    quoted = quoted_figures(document.headlines) if document else []
    return next((one.whose for one in quoted if one.headline.vantage == vantage), None)


def _quoted(document: Document | None, vantage: str, metric: str) -> AuditResult | None:
    """The pooled result behind a headline. A server's headline may be about the global models."""
    headline = _headline(document, vantage)
    if document is None or headline is None:
        return None
    for result in document.results:
        place = (result.attack, result.model, result.party)
        if place == (headline.attack, headline.model, None) and metric in result.estimates:
            return result
    return None
