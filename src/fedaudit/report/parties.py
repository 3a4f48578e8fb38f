"""Parties beside one another: one row each while they can be named, by rank when there are many."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedaudit.report import figures, words
from fedaudit.report.adversaries import adversary
from fedaudit.report.charts import Figure, metric_of, point, value_axis
from fedaudit.report.figures import Point
from fedaudit.report.sections import Table, level
from fedaudit.report.values import count, estimate, full_text, mapping, mappings, number, text, value_text
from fedaudit.report.words import Finding, Results, fpr_of

MOST_NAMED = 30  # parties that get a row each; more are drawn by rank


def _of_party(results: Results, finding: Finding) -> dict[str, Mapping[str, Any]]:
    """The same attack from the same place on the same kind of model, by party."""
    place = (finding.attack, finding.vantage, finding.model)
    rows = [r for r in mappings(results.get("results")) if r.get("party") is not None]
    same = [r for r in rows if tuple(text(r.get(k)) for k in ("attack", "vantage", "model")) == place]
    return {text(r.get("party")): r for r in same}


def side_by_side(results: Results, found: Sequence[Finding], name: str | None) -> list[Figure]:
    chosen = [(f, entries) for f in found if (entries := _of_party(results, f))]
    if not chosen:
        return []
    sizes = {text(p.get("name")): p for p in mappings(mapping(results.get("run")).get("parties"))}
    seen = {party for _, entries in chosen for party in entries}
    order = [p for p in sizes if p in seen] + sorted(seen - set(sizes))
    metric = metric_of([e for _, entries in chosen for e in entries.values()], name)
    table = _party_table(order, sizes, chosen, name)
    if len(order) > MOST_NAMED:
        return [_ranked(f, entries, metric, table) for f, entries in chosen]
    rows = [
        (
            party,
            [
                point(
                    party,
                    adversary(f.vantage).title,
                    adversary(f.vantage).colour,
                    metric,
                    estimate(entries[party], metric),
                )
                for f, entries in chosen
                if party in entries
            ],
        )
        for party in order
    ]
    points = [p for _, row in rows for p in row]
    x, chance = value_axis(points, metric), fpr_of(metric) or 0.5
    svg = figures.intervals(
        "What is given away about each party's records",
        "A dot with its interval per party and vantage.",
        rows,
        x,
        chance,
    )
    legend = [(adversary(f.vantage).colour, adversary(f.vantage).title) for f, _ in chosen] + [("chance", "chance")]
    return [Figure(svg, legend, _party_caption(len(order)), table)]


def _party_caption(parties: int) -> str:
    misses = f" With {parties} parties, expect about {max(1, round(parties / 20))} to miss." if parties >= 10 else ""
    return f"Each interval holds for its own party, not for all at once.{misses}"


def _party_table(
    order: Sequence[str],
    sizes: Mapping[str, Any],
    chosen: Sequence[tuple[Finding, Mapping[str, Any]]],
    name: str | None,
) -> Table:
    names = [n for n in (name, "auc") if n]
    head = ["party", "members", "outsiders", "calibration"]
    head += [f"{adversary(f.vantage).title}, {'AUC' if n == 'auc' else 'TPR'}" for f, _ in chosen for n in names]
    rows = [
        [
            party,
            *(count(number(mapping(sizes.get(party)).get(k))) for k in ("members", "evaluation", "calibration")),
            *(full_text(n, estimate(mapping(entries.get(party)), n)) for _, entries in chosen for n in names),
        ]
        for party in order
    ]
    return Table(head, rows)


def _ranked(finding: Finding, entries: Mapping[str, Mapping[str, Any]], metric: str, table: Table) -> Figure:
    """Many parties: sorted by value, names under the pointer and in the table."""
    who = adversary(finding.vantage)
    points = [point(p, who.title, who.colour, metric, estimate(e, metric)) for p, e in entries.items()]
    valued = sorted((p for p in points if p.x is not None), key=lambda p: p.x or 0)
    across = value_axis(points, metric)
    placed = [Point("", p.colour, float(i), p.x, p.low, p.high, p.tip) for i, p in enumerate(valued, 1)]
    x = figures.round_axis([0.0, float(len(valued) + 1)], "parties, from the least to the most exposed")
    x = figures.Axis(x.low, x.high, ((1.0, "1"), (float(len(valued)), count(len(valued)))), x.label)
    svg = figures.scatter(
        f"Parties by rank, seen by {who.title}",
        "A dot with its interval per party.",
        placed,
        x,
        across,
        fpr_of(metric) or 0.5,
    )
    lost = len(points) - len(valued)
    without = f" {count(lost)} without a value; the table has the reasons." if lost else ""
    return Figure(
        svg, [(who.colour, who.title), ("chance", "chance")], _party_caption(len(points)) + without, table, who.title
    )


def spread(results: Results, found: Sequence[Finding], name: str | None) -> list[Figure]:
    """How many parties lie where; only for federations too large to name every party."""
    shown = []
    for finding in found:
        entries = list(_of_party(results, finding).values())
        metric = metric_of(entries, name)
        values = sorted(v for e in entries if (v := number(estimate(e, metric).get("value"))) is not None)
        if len(entries) <= MOST_NAMED or len(values) < MOST_NAMED or values[0] == values[-1]:
            continue
        shown.append(_histogram(values, metric, finding))
    return shown


def _histogram(values: Sequence[float], metric: str, finding: Finding, most: int = 16) -> Figure:
    who, start, wide = adversary(finding.vantage), values[0], (values[-1] - values[0]) / most
    counts = Counter(min(int((v - start) / wide), most - 1) for v in values)
    bins, rows = [], []
    for i in range(most):
        a, b = start + i * wide, start + (i + 1) * wide
        span = f"{value_text(metric, {'value': a})} to {value_text(metric, {'value': b})}"
        bins.append((a, b, counts[i], f"{span}: {counts[i]} parties"))
        rows.append([span, str(counts[i])])
    x = value_axis([Point("", "", v, None, v, v, "") for v in values], metric)
    y = figures.linear_axis(map(float, counts.values()), "parties", percent=False, include=[0.0], most=math.inf)
    title, desc = f"How many parties lie where, seen by {who.title}", "Point values only; their intervals are above."
    svg = figures.histogram(title, desc, bins, x, y, who.colour)
    heading = f"{who.title}: how many parties where"
    return Figure(svg, [], desc, Table(("between", "parties"), rows), heading)


def heat(results: Results, name: str | None) -> list[Figure]:
    """Every attack on every party, shaded by how far the interval lies above chance."""
    shown = []
    whole = [r for r in mappings(results.get("results")) if not words.guesses_attribute(r)]
    entries = [r for r in whole if r.get("party") is not None and r.get("attack") != "blind"]
    for vantage, model in dict.fromkeys((text(e.get("vantage")), text(e.get("model"))) for e in entries):
        here = [e for e in entries if text(e.get("vantage")) == vantage and text(e.get("model")) == model]
        attacks = list(dict.fromkeys(text(e.get("attack")) for e in here))
        columns = list(dict.fromkeys(text(e.get("party")) for e in here))
        if len(attacks) < 2 or len(columns) < 2:
            continue
        who, metric = adversary(vantage), metric_of(here, name)
        at = {(text(e.get("attack")), text(e.get("party"))): estimate(e, metric) for e in here}
        cells = [[at.get((a, p), {}) for p in columns] for a in attacks]
        levels = [[level(metric, est) for est in row] for row in cells]
        tips = [
            [f"{a} · {p}: {full_text(metric, est)}" for p, est in zip(columns, row, strict=True)]
            for a, row in zip(attacks, cells, strict=True)
        ]
        title = f"Every attack on every party, seen by {who.title}"
        svg = figures.heatmap(
            title, "Darker: the interval's lower end lies further above chance.", attacks, columns, levels, tips
        )
        rows = [[p, *(full_text(metric, at.get((a, p), {})) for a in attacks)] for p in columns]
        measure = words.measure(metric)
        caption = f"{measure}; the intervals are under the pointer and in the table."
        shown.append(Figure(svg, [], caption, Table(["party", *attacks], rows), f"{who.title}, {model} models"))
    return shown
