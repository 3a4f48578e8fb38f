"""The pages of a comparison, a study and an advice. Each is one HTML string with nothing to fetch; none needs torch."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fedaudit.files import write_atomically
from fedaudit.questions import metric as described
from fedaudit.report import figures
from fedaudit.report.charts import value_axis
from fedaudit.report.figures import Point
from fedaudit.report.html import page
from fedaudit.report.shapes import Figure, Table
from fedaudit.report.values import LONG, LONGEST, clean
from fedaudit.report.words import adversary
from fedaudit.results import study as results
from fedaudit.results.advice import CHEAP, FREE, LIMIT, PAGE, Advice, Confirmed, Risk, Tried, frontier
from fedaudit.results.compare import ComparedRun, Comparison, Difference, Like, Span, in_points
from fedaudit.results.document import REPORT
from fedaudit.results.study import Configuration, Factor, Level, Outcome, outcomes
from fedaudit.stats.wording import NONE, count, fpr_of, full_text, is_share, number_text, point_text, rate
from fedaudit.types import Estimate

# ------------------------------------------------------------------ a comparison: the runs, and like beside like

RUNS = ("run", "verdict", "defences", "accuracy", "TPR at 1 % FPR", "by", "epsilon", "most it allows")
STAR = "A star: no other run is better in both accuracy and risk. Intervals are conditional on one training run each."


def comparison_page(found: Comparison) -> str:
    """Names come from outside; the template engine escapes them."""
    chart = _risks(found)
    return page(
        "comparison.html",
        runs=found.rows,
        facts=[("Runs", count(len(found.rows))), ("Measure", described(found.risk).title)],
        verdict=_settled(found),
        charts=[chart] if chart else [],
        overview=Table(RUNS, [_run_cells(row) for row in found.rows], STAR),
        alike=[
            (f"{like.attack}, {like.vantage}, {like.model} models", _beside(found, like))
            for like in sorted(found.alike, key=lambda like: (like.vantage, like.attack, like.model))
        ],
        notes=found.notes,
    )


def _settled(found: Comparison) -> list[str]:
    """Which run is safer than which, by the differences that are certain; never by two intervals side by side."""
    beaten: dict[tuple[str, str], list[Difference]] = {}
    for gap in found.differences:
        if gap.safer:
            worse = gap.second if gap.safer == gap.first else gap.first
            beaten.setdefault((gap.safer, worse), []).append(gap)
    told = []
    for (better, worse), gaps in beaten.items():
        if (worse, better) in beaten:
            told.append(f"{better} is safer than {worse} by one figure, and the other way round by another.")
            continue
        most = max(gaps, key=lambda gap: min(abs(gap.low), abs(gap.high)))
        by = f"{described(most.metric).title} of {most.attack}, {most.vantage}, {most.model} models"
        told.append(f"{better} is safer than {worse}: {by} differs by {in_points(most.metric, most)}.")
    best = [row.run for row in found.rows if row.best and row.accuracy and row.risk]
    if not told:
        told.append("It is not settled which of these runs is safer.")
    if best:
        told.append(f"No other run is better in both accuracy and risk than {' or '.join(best)}.")
    return list(dict.fromkeys(told))


def _risks(found: Comparison) -> Figure | None:
    """The risk of each run, by vantage."""
    rows, cells, legend = [], [], {}
    for row in found.rows:
        points = []
        for vantage, span in row.risks.items():
            who = adversary(vantage)
            legend[who.colour] = who.title
            said = f"{row.run} · {who.title}: {span.text()}"
            points.append(Point(row.run, who.colour, x=span.value, y=None, low=span.low, high=span.high, tip=said))
            cells.append([row.run, who.title, span.text()])
        if points:
            rows.append((row.run, points))
    if len(rows) < 2:
        return None
    x = value_axis([point for _, points in rows for point in points], found.risk)
    title = "What each run gives away"
    svg = figures.intervals(title, "A dot with its interval per vantage.", rows, x, fpr_of(found.risk) or 0.5)
    caption = "Each interval is about its own run. Whether two runs differ is said above, from the records in common."
    table = Table(("run", "seen by", described(found.risk).title), cells)
    return Figure(svg, [*legend.items(), ("chance", "chance")], caption, table, title)


def _beside(found: Comparison, like: Like) -> Table:
    rows = [(run, full_text(estimate.name, estimate), "") for run, estimate in like.risks.items()]
    for gap in found.differences:
        if concerns(gap, like):
            common = f"{safer(gap)}; {gap.shared:,} of {gap.records:,} records in common"
            rows.append((f"{gap.first} minus {gap.second}", in_points(gap.metric, gap), common))
    return Table(("run", described(like.metric).title, ""), rows)


def concerns(gap: Difference, like: Like) -> bool:
    return (gap.vantage, gap.attack, gap.model, gap.metric) == (like.vantage, like.attack, like.model, like.metric)


def _run_cells(row: ComparedRun) -> tuple[str, ...]:
    most = NONE if row.allowed is None else f"{row.allowed:.3g} (TPR)"
    epsilon = NONE if row.epsilon is None else f"{row.epsilon:.3g} ({row.unit})"
    epsilon += f"; per person: {row.per_person.text}" if row.per_person else ""
    star = "* " if row.best else ""
    verdict = "; ".join(row.verdict)
    return (star + row.run, verdict, row.defences, _span(row.accuracy), _span(row.risk), row.whose, epsilon, most)


def _span(span: Span | None) -> str:
    return span.text() if span else NONE


def safer(gap: Difference) -> str:
    return f"{gap.safer} is safer" if gap.safer else "it is not settled which is safer"


# ------------------------------------------------------------------ a study


Part = tuple[str, str, str, Sequence[Figure], Sequence[Table]]  # id, heading, lead, figures, tables


def write_study_page(directory: Path) -> Path:
    write_atomically(directory / REPORT, study_page(directory))
    return directory / REPORT


def study_page(directory: Path) -> str:
    found = outcomes(directory)
    return page(
        "study.html",
        title="study of federations",
        name=clean(directory.resolve().name),
        facts=study_facts(found),
        verdict="",
        sentences=[],
        parts=study_parts(found, directory),
    )


def study_facts(found: Sequence[Outcome]) -> list[tuple[str, str]]:
    return [("cells", count(len(found))), ("complete", count(sum(outcome.complete for outcome in found)))]


def study_parts(found: Sequence[Outcome], directory: Path) -> list[Part]:
    parts = [_by_factor(results.factors(found, directory)), _configurations(found), _cells(found)]
    return [part for part in parts if part]


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
        if (told := _level_difference(f.metric, level))[0] != NONE
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
            points.append(Point(label, who.colour, x=value, y=None, low=low, high=high, tip=tip))
            cells.append([label, who.title, text, count(level.cells), *_level_difference(metric, level)])
        rows.append((label, points))
    x = value_axis([point for _, points in rows for point in points], metric)
    title = f"Risk by {clean(key)}"
    svg = figures.intervals(title, "A dot with its interval per value.", rows, x, fpr_of(metric) or 0.5)
    head = (clean(key), "seen by", measure(metric), "cells", "minus the first value, same records", "pairs")
    caption = "Each interval is about the mean over cells, and includes how much these differ."
    return Figure(svg, [*legend.items(), ("chance", "chance")], caption, Table(head, cells), title)


def _level_difference(metric: str, level: Level) -> tuple[str, str]:
    e = level.difference
    if e is None or e.value is None or e.low is None or e.high is None:
        return NONE, count(level.pairs)
    scale, digits, unit = (1.0, 3, "") if metric == "auc" else (100.0, 1, " points")
    value, low, high = (f"{scale * end:+.{digits}f}" for end in (e.value, e.low, e.high))
    return f"{value}{unit} ({low} to {high})", count(level.pairs)


def _configurations(found: Sequence[Outcome]) -> Part | None:
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
        named = (clean(label), "s1") if row.best else ("", "s2")
        points.append(
            Point(*named, x=row.accuracy.value, y=row.risk.value, low=row.risk.low, high=row.risk.high, tip=tip)
        )
        told = [row.accuracy.text(), risk, clean(row.whose), count(one.cells)]
        cells.append([clean(label), "yes" if row.best else "", *told])
    fpr = fpr_of(metric)
    guess = f"chance ({number_text(metric, fpr or 0.5)})"
    legend = [("s1", "on the frontier"), ("s2", "another is better in both"), ("chance", guess)]
    risk_is = f"risk: TPR at {rate(fpr)} FPR" if fpr else "risk: AUC"
    head = ("configuration", "on the frontier", "accuracy", risk_is, "of", "cells")
    caption = "The risk is that of the strongest quoted adversary. Point at an unlabelled dot to see what it is."
    return Figure(_accuracy_against_risk(points, metric, "configuration"), legend, caption, Table(head, cells))


def _accuracy_against_risk(points: Sequence[Point], metric: str, each: str) -> Markup:
    x = figures.linear_axis([p.x for p in points], "accuracy on outsiders", percent=True, include=(), most=1.0)
    fpr, ends = fpr_of(metric), [end for p in points for end in (p.y, p.low, p.high)]
    what, chance = (f"picked out at {rate(fpr)} FPR", fpr) if fpr else (clean(described(metric).title), 0.5)
    include = (0.0, chance) if fpr else (chance,)
    y = figures.linear_axis(ends, what, percent=is_share(metric), include=include, most=1.0)
    return figures.scatter("Accuracy against risk", f"One dot with its interval per {each}.", points, x, y, chance)


def _cells(found: Sequence[Outcome]) -> Part:
    keys = list(found[0].overrides) if found else []
    head = ("cell", *map(clean, keys), "status")
    rows = [[o.cell, *(level_text(o.overrides[key]) for key in keys), clean(o.status, 600)] for o in found]
    lead = "Every cell is a run of its own, in cells/NAME; study.parquet holds all estimates of all of them."
    return "cells", "The cells", lead, [], [Table(head, rows)]


# ------------------------------------------------------------------ an advice


def write_advice_page(advice: Advice, directory: Path) -> Path:
    write_atomically(directory / PAGE, advice_page(advice, directory.resolve().name))
    return directory / PAGE


def advice_page(advice: Advice, name: str) -> str:
    metric = advice.limit.partition("<")[0].partition("[")[0].strip()
    parts = [
        ("confirmed", "With another seed", CONFIRMED, [], [_confirmed(advice.confirmed, metric)]),
        ("tried", "What was tried", TRIED, _frontier(advice, metric), [_tried(advice.tried, metric)]),
    ]
    cost = NONE if advice.cost is None else f"{advice.cost:.3g} audits of the federation as it is"
    facts = [("limit", clean(advice.limit)), ("cost of the search", cost)]
    verdict = "Advice" if advice.recommended else "No change was confirmed to meet the limit"
    sentences = [clean(line, LONGEST) for line in advice.sentences]
    return page(
        "study.html", title="advice", name=clean(name), facts=facts, verdict=verdict, sentences=sentences, parts=parts
    )


CONFIRMED = (
    "Trained again with another seed and attacked with everything, beside the unchanged federation with that seed. "
    "These runs were not used for choosing; theirs are the intervals to quote."
)
TRIED = (
    "First levers by themselves, then what the best of them make together, all for a quarter of the rounds. A quarter "
    "of them went on to the half, half of those to the end; each look is a federation that stops there. "
    "These figures were used for choosing, so the best of them look a little better than they are."
)


def _confirmed(found: Sequence[Confirmed], metric: str) -> Table:
    """A column for each change that was trained again."""
    columns = [_told(one, metric) for one in found]
    rows = [[what, *(column[what] for column in columns)] for what in (columns[0] if columns else ())]
    return Table(("", *(clean(one.name) for one in found)), rows)


def _told(one: Confirmed, metric: str) -> dict[str, str]:
    why = f": {one.why_not}" if one.why_not else ""
    return {
        "what it is": ", ".join(POINTS.get(point, clean(point)) for point in one.points),
        "configuration": clean(_keys(one.overrides), LONG),
        "verdict": "below the limit" if one.meets else clean(f"not confirmed{why}", LONG),
        "largest risk": _whose(one.risk, metric),
        "the same attack without the change": _risk(one.risk_before, metric),
        "difference in risk": _signed(metric, one.risk_difference),
        "largest risk without the change": _whose(one.largest_before, metric),
        "most by any attack": _whose(one.strongest, metric),
        "for a server without secure aggregation": _whose(one.unmasked, metric),
        "accuracy": full_text("accuracy", one.accuracy),
        "accuracy without the change": full_text("accuracy", one.accuracy_before),
        "difference in accuracy": _signed("accuracy", one.accuracy_difference),
    }


POINTS = {
    FREE: "free: no loss of accuracy",
    CHEAP: "cheap: at most two points",
    LIMIT: "the limit: the most accurate below it",
}


def _keys(overrides: Mapping[str, Any]) -> str:
    return "; ".join(f"{key} = {json.dumps(value)}" for key, value in overrides.items()) or "as it is"


def _signed(metric: str, e: Estimate | None) -> str:
    return NONE if e is None or e.value is None or e.low is None else in_points(metric, e)


def _whose(risk: Risk | None, metric: str) -> str:
    return NONE if risk is None else clean(f"{_risk(risk, metric)}, {risk.whose}", LONG)


def _risk(risk: Risk | None, metric: str) -> str:
    return NONE if risk is None else point_text(metric, risk.value, risk.low, risk.high)


def _tried(found: Sequence[Tried], metric: str) -> Table:
    head = ("change", "rounds", "risk so far", "by", "accuracy so far", "what became of it")
    rows = [
        [
            clean(one.name),
            f"{one.rounds} of {one.of}",
            _risk(one.risk, metric),
            clean(one.risk.whose) if one.risk else NONE,
            full_text("accuracy", one.accuracy),
            clean(one.status, LONG),
        ]
        for one in found
    ]
    return Table(head, rows)


def _frontier(advice: Advice, metric: str) -> list[Figure]:
    """Accuracy against risk of everything that was trained, each as far as it came."""
    known = [(one, one.risk, one.accuracy) for one in advice.tried if one.risk and one.accuracy]
    points, rows, best = [], [], frontier(advice.tried)
    for one, risk, accuracy in known:
        colour = "s1" if one.name in best else "s2"
        tip = f"{one.name}, {one.rounds} rounds: accuracy {full_text('accuracy', accuracy)}, risk {_risk(risk, metric)}"
        label = clean(one.name) if one.name in best else ""
        points.append(
            Point(label, colour, x=accuracy.value, y=risk.value, low=risk.low, high=risk.high, tip=clean(tip))
        )
        shown = (full_text("accuracy", accuracy), _risk(risk, metric), "yes" if one.name in best else "")
        rows.append([clean(one.name), f"{one.rounds} of {one.of}", *shown])
    if len(points) < 2:
        return []
    colours = [("s1", "on the frontier"), ("s2", "another is better in both")]
    caption = (
        "Lower right is better. Each dot is a federation that stops after the rounds it was trained for. The frontier "
        "is drawn by values; intervals may overlap. Point at an unlabelled dot to see its name."
    )
    legend = [*colours, ("chance", "chance")]
    table = Table(("change", "rounds", "accuracy", "risk", "on the frontier"), rows)
    return [Figure(_accuracy_against_risk(points, metric, "change"), legend, caption, table)]
