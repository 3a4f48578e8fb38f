"""The page of a study: risk by factor, accuracy against risk, and the cells that are missing. Needs no torch."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedaudit.files import write_atomically
from fedaudit.report import figures
from fedaudit.report.adversaries import adversary
from fedaudit.report.charts import value_axis
from fedaudit.report.figures import Point
from fedaudit.report.html import page
from fedaudit.report.shapes import Figure, Table
from fedaudit.report.values import clean
from fedaudit.results import study as results
from fedaudit.results.compare import Span
from fedaudit.results.document import REPORT
from fedaudit.results.study import Configuration, Factor, Level, Outcome, outcomes
from fedaudit.stats.wording import NONE, count, fpr_of, full_text, is_share, number_text, rate

Part = tuple[str, str, str, Sequence[Figure], Sequence[Table]]  # id, heading, lead, figures, tables


def write(directory: Path) -> Path:
    write_atomically(directory / REPORT, render(directory))
    return directory / REPORT


def render(directory: Path) -> str:
    found = outcomes(directory)
    parts = [_by_factor(results.factors(found, directory)), _frontier(found), _cells(found)]
    done = sum(outcome.complete for outcome in found)
    facts = [("cells", count(len(found))), ("complete", count(done))]
    return page(
        "study.html",
        title="study of federations",
        name=clean(directory.resolve().name),
        facts=facts,
        verdict="",
        sentences=[],
        parts=[part for part in parts if part],
    )


def level_text(value: Any) -> str:
    """A value of the grid, short: defences by their names and numbers."""
    if isinstance(value, list):
        if not value:
            return "none"
        return " | ".join(level_text(item) for item in value)
    if isinstance(value, dict):
        told = [f"{key} {item}" for key, item in value.items() if key != "name"]
        return clean(f"{value.get('name', '')} {', '.join(told)}".strip())
    return clean(value if isinstance(value, str) else json.dumps(value))


def measure(metric: str) -> str:
    fpr = fpr_of(metric)
    return f"picked out at {rate(fpr)} false accusations" if fpr else "AUC"


# ------------------------------------------------------------------ risk by factor


def _by_factor(found: Sequence[Factor]) -> Part | None:
    if not found:
        return None
    lead = (
        "The risk at each value of a factor: the mean over the cells that have it, for the quoted attack of each "
        "vantage. A difference is taken between cells that are equal in everything else, on the same records. The "
        "table has them all, each minus the first value of its factor."
    )
    keys = dict.fromkeys(factor.key for factor in found)
    drawn = [_factor(key, [factor for factor in found if factor.key == key]) for key in keys]
    head = ("factor", "value", "minus", "seen by", "difference in risk", "pairs of cells")
    rows = [
        [clean(f.key), level_text(level.value), level_text(f.levels[0].value), adversary(f.vantage).title, *told]
        for f in found
        for level in f.levels[1:]
        if (told := _difference(f.metric, level))[0] != NONE
    ]
    return "factors", "Risk by factor", lead, drawn, [Table(head, rows)] if rows else []


def _factor(key: str, views: Sequence[Factor]) -> Figure:
    metric, rows, cells = views[0].metric, [], []
    legend = {}
    for number, first in enumerate(views[0].levels):
        label, points = level_text(first.value), []
        for view in views:
            who, level = adversary(view.vantage), view.levels[number]
            legend[who.colour] = who.title
            text = full_text(metric, level.risk)
            tip = f"{label} · {who.title}: {text}, mean of {level.cells} cells"
            e = level.risk
            value, low, high = (e.value, e.low, e.high) if e else (None, None, None)
            points.append(Point(label, who.colour, value, None, low, high, tip))
            cells.append([label, who.title, text, count(level.cells), *_difference(metric, level)])
        rows.append((label, points))
    x = value_axis([point for _, points in rows for point in points], metric)
    title = f"Risk by {clean(key)}"
    svg = figures.intervals(title, "A dot with its interval per value.", rows, x, fpr_of(metric) or 0.5)
    head = (clean(key), "seen by", measure(metric), "cells", "minus the first value, same records", "pairs")
    caption = "Each interval is about the mean over cells, and includes how much these differ."
    return Figure(svg, [*legend.items(), ("chance", "chance")], caption, Table(head, cells), title)


def _difference(metric: str, level: Level) -> tuple[str, str]:
    e = level.difference
    if e is None or e.value is None or e.low is None or e.high is None:
        return NONE, count(level.pairs)
    scale, digits, unit = (1.0, 3, "") if metric == "auc" else (100.0, 1, " points")
    value, low, high = (f"{scale * end:+.{digits}f}" for end in (e.value, e.low, e.high))
    return f"{value}{unit} ({low} to {high})", count(level.pairs)


# ------------------------------------------------------------------ accuracy against risk


def _frontier(found: Sequence[Outcome]) -> Part | None:
    known = [one for one in results.frontier(found) if one.row.accuracy and one.row.risk]
    if len(known) < 2:
        return None
    lead = (
        "Up is more risk, right is a more useful model. A configuration on the frontier has no other that is better in "
        "both. Which ones are on it is read off the values; their intervals may overlap."
    )
    if any(one.cells > 1 for one in known):
        lead += (
            " Cells that differ in their seeds alone are one configuration: it is shown by the means over them, whose "
            "intervals include how much they differ."
        )
    return "frontier", "Usefulness against risk", lead, [scatter(known, results.metric_of(found))], []


def scatter(known: Sequence[Configuration], metric: str) -> Figure:
    """Accuracy across, risk upwards, a dot with its interval for each; the frontier has a colour of its own."""
    points, cells = [], []
    for one in known:
        row, label = one.row, ", ".join(f"{k} {level_text(v)}" for k, v in one.overrides.items())
        assert row.accuracy
        assert row.risk
        risk = row.risk.text(percent=is_share(metric))
        tip = f"{label}: accuracy {row.accuracy.text()}, risk {risk} ({row.whose})"
        points.append(_point(clean(label), row.best, row.accuracy, row.risk, tip))
        told = [row.accuracy.text(), risk, clean(row.whose), count(one.cells)]
        cells.append([clean(label), "yes" if row.best else "", *told])
    x = figures.linear_axis([p.x for p in points], "accuracy on outsiders", percent=True, include=(), most=1.0)
    fpr, ends = fpr_of(metric), [end for p in points for end in (p.y, p.low, p.high)]
    what, chance = (f"picked out at {rate(fpr)} FPR", fpr) if fpr else ("AUC", 0.5)
    include = (0.0, chance) if fpr else (chance,)
    y = figures.linear_axis(ends, what, percent=is_share(metric), include=include, most=1.0)
    svg = figures.scatter("Accuracy against risk", "One dot with its interval per configuration.", points, x, y, chance)
    guess = f"chance ({number_text(metric, chance)})"
    legend = [("s1", "on the frontier"), ("s2", "another is better in both"), ("chance", guess)]
    risk_is = f"risk: TPR at {rate(fpr)} FPR" if fpr else "risk: AUC"
    head = ("configuration", "on the frontier", "accuracy", risk_is, "of", "cells")
    caption = "The risk is that of the strongest quoted adversary. Point at an unlabelled dot to see what it is."
    return Figure(svg, legend, caption, Table(head, cells))


def _point(label: str, best: bool, accuracy: Span, risk: Span, tip: str) -> Point:
    return Point(label if best else "", "s1" if best else "s2", accuracy.value, risk.value, risk.low, risk.high, tip)


# ------------------------------------------------------------------ the cells


def _cells(found: Sequence[Outcome]) -> Part:
    keys = list(found[0].overrides) if found else []
    head = ("cell", *map(clean, keys), "status")
    rows = [[o.cell, *(level_text(o.overrides[key]) for key in keys), clean(o.status, 600)] for o in found]
    lead = "Every cell is a run of its own, in cells/NAME; study.parquet holds all estimates of all of them."
    return "cells", "The cells", lead, [], [Table(head, rows)]
