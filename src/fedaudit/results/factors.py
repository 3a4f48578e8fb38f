"""What a study says about its factors: the risk at each value of a key, and how cells differ that differ in it alone.

Cells differ in several keys at once. The effect of one key is read off pairs of cells that are equal in all others,
and within such a pair off the same records, where both have them: both err on these, and mostly together. The mean over
pairs has the interval of `stats.over_runs`: how much the pairs differ, and the error of measuring each.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaudit.results.between import risk_difference
from fedaudit.results.compare import Row, pareto, row_of
from fedaudit.results.document import Document
from fedaudit.results.study import CELLS, Outcome
from fedaudit.stats import over_runs
from fedaudit.types import AuditResult, Estimate, Headline

RISKS = ("tpr@0.01", "auc")


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


def frontier(found: Sequence[Outcome]) -> list[Row]:
    """Accuracy and risk, by the same metric as the factors, of every cell with results; `best`: no other is better in
    both."""
    metric = metric_of(found)
    return pareto([row_of(o.document, o.cell, metric) for o in found if o.document])


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
