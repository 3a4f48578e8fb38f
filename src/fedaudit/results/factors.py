"""What a study says about its factors: the risk at each value of a key, and how cells differ that differ in it alone.

Cells differ in several keys at once. The effect of one key is read off pairs of cells that are equal in all others,
and within such a pair off the same records, where both have them: both err on these, and mostly together. The mean over
pairs has the interval of `stats.over_runs`: how much the pairs differ, and the error of measuring each.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedaudit.results.between import EVALUATION, risk_difference
from fedaudit.results.compare import ComparedRun, pareto, row_of
from fedaudit.results.document import Document
from fedaudit.results.study import CELLS, Outcome
from fedaudit.stats import over_runs
from fedaudit.stats.wording import several_kinds
from fedaudit.types import AuditResult, Estimate, Headline

RISKS = ("tpr@0.01", "auc")
SEEDS = ("seed", "data_seed")  # how the keys end that only repeat a federation


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
    valued = [{name for name in RISKS if _valued(headline, name)} for headline in headlines]
    return RISKS[0] if any(valued) and all(RISKS[0] in names for names in valued if names) else RISKS[1]


def _valued(headline: Headline, metric: str) -> bool:
    estimate = headline.estimates.get(metric)
    return estimate is not None and estimate.value is not None


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
    cells: int  # with results
    row: ComparedRun  # of the means over these cells


def frontier(found: Sequence[Outcome]) -> list[Configuration]:
    """Accuracy and risk, by the same metric as the factors, of every configuration with results; `best`: no other is
    better in both. The luckiest of several seeds is not: it is chosen by its own error."""
    metric = metric_of(found)
    groups: dict[str, list[tuple[Outcome, Document]]] = {}
    for outcome in found:
        if outcome.document:
            groups.setdefault(json.dumps(_unseeded(outcome.overrides)), []).append((outcome, outcome.document))
    rows = pareto([_over_seeds(of[0][0].cell, [document for _, document in of], metric) for of in groups.values()])
    members = zip(groups.values(), rows, strict=True)
    return [Configuration(_unseeded(of[0][0].overrides), len(of), row) for of, row in members]


def _unseeded(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Keys that always have the same value are written as one, with commas between them."""
    return {
        keys: value
        for keys, value in overrides.items()
        if not all(key.strip().rpartition(".")[2] in SEEDS for key in keys.split(","))
    }


def _over_seeds(name: str, documents: Sequence[Document], metric: str) -> ComparedRun:
    """The row of one run, or of the means over several: of every vantage, and of the accuracy."""
    first = documents[0]
    if len(documents) == 1:
        return row_of(first, name, metric)
    headlines, mixed = [], {}
    for headline in first.headlines:
        quoted = [h for document in documents if (h := _headline(document, headline.vantage))]
        risk = _mean([e for h in quoted if (e := h.estimates.get(metric)) is not None and e.value is not None])
        if risk is not None:
            headlines.append(replace(headline, estimates={metric: risk}))
            mixed[headline.vantage] = several_kinds(quoted)
    rights = [e for document in documents if (e := document.run.accuracy.get(EVALUATION)) and e.value is not None]
    right = _mean(rights)
    run = replace(first.run, accuracy={} if right is None else {EVALUATION: right})
    row = row_of(replace(first, run=run, headlines=headlines), name, metric)
    worst = max(row.risks, key=lambda vantage: row.risks[vantage].value, default="")
    return replace(row, whose=f"{worst}, {mixed[worst]}") if mixed.get(worst) else row


def _levels(found: Sequence[Outcome], key: str) -> dict[str, Any]:
    return {json.dumps(outcome.overrides[key]): outcome.overrides[key] for outcome in found}


def _each(found: Sequence[Outcome], key: str, vantage: str, metric: str, directory: Path) -> Iterator[Level]:
    levels = _levels(found, key)
    first = next(iter(levels))
    for text, value in levels.items():
        mine = [outcome for outcome in found if json.dumps(outcome.overrides[key]) == text]
        risks = [e for o in mine if (e := _risk(o, vantage, metric)) is not None and e.value is not None]
        pairs = [] if text == first else list(_differences(mine, found, key, first, vantage, metric, directory))
        yield Level(value, len(risks), _mean(risks), len(pairs), _mean(pairs, least=-1.0))


def _risk(outcome: Outcome, vantage: str, metric: str) -> Estimate | None:
    headline = _headline(outcome.document, vantage)
    return headline.estimates.get(metric) if headline else None


def _mean(estimates: Sequence[Estimate], least: float = 0.0) -> Estimate | None:
    if len(estimates) < 2:
        return estimates[0] if estimates else None
    return over_runs(estimates, least)


def _differences(
    mine: Sequence[Outcome],
    found: Sequence[Outcome],
    key: str,
    first: str,
    vantage: str,
    metric: str,
    directory: Path,
) -> Iterator[Estimate]:
    partners = {_others(o.overrides, key): o for o in found if json.dumps(o.overrides[key]) == first}
    for outcome in mine:
        partner = partners.get(_others(outcome.overrides, key))
        pair = [(o, _quoted(o.document, vantage, metric)) for o in (outcome, partner) if o]
        places = [(directory / CELLS / o.cell, entry) for o, entry in pair if entry]
        if len(places) == 2:
            difference = risk_difference(places[0], places[1], metric)
            if difference is not None and difference.value is not None:
                yield difference


def _others(overrides: Mapping[str, Any], key: str) -> str:
    return json.dumps({name: value for name, value in overrides.items() if name != key}, sort_keys=True)


def _headline(document: Document | None, vantage: str) -> Headline | None:
    return next((h for h in document.headlines if h.vantage == vantage), None) if document else None


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
