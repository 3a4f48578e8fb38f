"""What an adversary who sees only labels went through: distances over the rounds, accuracy against queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedaudit.report import figures
from fedaudit.report.figures import PlottedSeries
from fedaudit.report.shapes import Figure, Table
from fedaudit.report.values import Results
from fedaudit.stats.wording import NONE, count, full_text
from fedaudit.types import AuditResult

SIDES = {"distance-members": ("members", "s1"), "distance-nonmembers": ("non-members", "s2")}


@dataclass(frozen=True)
class LabelsOnly:
    lead: str
    figures: Sequence[Figure]
    table: Table


def labels_only(results: Results) -> LabelsOnly | None:
    """None where nobody was limited to labels."""
    entries = [e for e in results.results if e.party is None and e.cost.queries is not None]
    if not entries:
        return None
    lead = (
        "This adversary is a party that may ask each round's model for predicted labels, and sees nothing else. It "
        "learns from its own records, on which it is not judged. A distance is how far a record must be moved, in "
        "units of the inputs, before its label changes; one that is labelled wrongly has distance 0."
    )
    searched = next((e for e in entries if "distance-members" in e.curves), None)
    drawn = [f for f in (_distances(searched), _accuracy(searched)) if f] if searched else []
    rows = [
        [
            e.attack,
            *map(_labels, (e.cost.queries, e.cost.most_queries)),
            *(full_text(n, e.estimates.get(n)) for n in ("accuracy", "auc")),
        ]
        for e in entries
    ]
    head = ("attack", "labels asked per record", "at most", "accuracy, balanced", "AUC")
    return LabelsOnly(lead, drawn, Table(head, rows, "The threshold of the accuracy was fixed on its own records."))


def _distances(entry: AuditResult) -> Figure | None:
    series, rows = [], []
    for name, (title, colour) in SIDES.items():
        curve = entry.curves[name]
        tips = [f"round {x:.0f} · {title}: {_number(v)}" for x, v in zip(curve.x, curve.value, strict=True)]
        series.append(PlottedSeries(title, colour, curve.x, curve.value, curve.low, curve.high, tips, None))
        for x, value, low, high in zip(curve.x, curve.value, curve.low, curve.high, strict=True):
            rows.append([count(round(x)), title, _number(value), f"{_number(low)}–{_number(high)}"])
    values = [v for s in series for v in (*s.value, *s.low, *s.high)]
    if all(value is None for value in values):
        return None
    across = figures.round_axis(entry.curves["distance-members"].x, "round")
    y = figures.linear_axis(values, "distance to the boundary", percent=False, include=[0.0], most=float("inf"))
    title = "Distance to the decision boundary over the rounds"
    svg = figures.lines(title, "Medians with intervals, for members and non-members.", series, across, y, [])
    caption = f"{entry.attack}: {entry.curves['distance-members'].method}."
    table = Table(("round", "records", "distance", "interval"), rows)
    return Figure(svg, [(s.colour, s.name) for s in series], caption, table, title)


def _accuracy(entry: AuditResult) -> Figure | None:
    """The accuracy after each round over the labels that were asked for until then."""
    accuracy, queries = entry.curves.get("accuracy"), entry.curves.get("queries")
    if accuracy is None or queries is None:
        return None
    spent = dict(zip(queries.x, queries.value, strict=True))
    points = [
        (float(spent[x] or 0.0), v, low, high)
        for x, v, low, high in zip(accuracy.x, accuracy.value, accuracy.low, accuracy.high, strict=True)
        if x in spent
    ]
    if len(points) < 2 or all(v is None for _, v, _, _ in points):
        return None
    xs, values, lows, highs = zip(*points, strict=True)
    tips = [f"{x:,.0f} labels a record: accuracy {_number(v)}" for x, v in zip(xs, values, strict=True)]
    series = [PlottedSeries(entry.attack, "s1", xs, values, lows, highs, tips, None)]
    x_axis = figures.linear_axis(list(xs), "labels asked per record", percent=False, include=[0.0], most=float("inf"))
    y_axis = figures.linear_axis([*values, *lows, *highs], "accuracy, balanced", percent=True, include=[0.5], most=1.0)
    chance = [(x_axis.low, 0.5), (x_axis.high, 0.5)]
    title = "Accuracy against queries"
    svg = figures.lines(title, "One point for each round, with its interval.", series, x_axis, y_axis, chance)
    rows = [[f"{x:,.0f}", _number(v), f"{_number(a)}–{_number(b)}"] for x, v, a, b in points]
    caption = f"After each round; {accuracy.method}. Later points have seen more rounds as well as more labels."
    return Figure(
        svg, [("s1", entry.attack), ("chance", "guessing")], caption,
        Table(("labels a record", "accuracy", "interval"), rows), title,
    )  # fmt: skip


def _labels(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3g}"
