"""Charts that compare the parties: one row for each if there are few, sorted by rank if there are many."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from fedaudit.questions import of_membership
from fedaudit.report import figures, words
from fedaudit.report.adversaries import adversary
from fedaudit.report.charts import Line, metric_of, named, point, value_axis
from fedaudit.report.figures import Point
from fedaudit.report.sections import level
from fedaudit.report.shapes import Figure, Table
from fedaudit.report.values import Results
from fedaudit.report.words import Finding
from fedaudit.results.document import PartyInfo
from fedaudit.stats.wording import count, fpr_of, full_text, number_text, value_of
from fedaudit.types import AuditResult

MOST_NAMED = 30  # parties that get a row each; more are drawn by rank


def _of_party(results: Results, finding: Finding) -> dict[str, AuditResult]:
    """The same attack from the same place on the same kind of model, by party."""
    place = (finding.attack, finding.vantage, finding.model)
    same = [r for r in results.results if (r.attack, r.vantage, r.model) == place]
    return {r.party: r for r in same if r.party is not None}


def side_by_side(results: Results, found: Sequence[Finding], name: str | None) -> list[Figure]:
    chosen = [(line, entries) for line in named(found) if (entries := _of_party(results, line.finding))]
    if not chosen:
        return []
    sizes = {party.name: party for party in results.run.parties}
    seen = {party for _, entries in chosen for party in entries}
    order = [p for p in sizes if p in seen] + sorted(seen - set(sizes))
    metric = metric_of([e for _, entries in chosen for e in entries.values()], name)
    table = _party_table(order, sizes, chosen, name)
    if len(order) > MOST_NAMED:
        return [_ranked(line, entries, metric, table) for line, entries in chosen]
    rows = [
        (
            party,
            [
                point(party, line.name, line.colour, metric, entries[party].estimates.get(metric))
                for line, entries in chosen
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
    legend = [(line.colour, line.name) for line, _ in chosen] + [("chance", "chance")]
    return [Figure(svg, legend, _party_caption(len(order)), table)]


def _party_caption(parties: int) -> str:
    misses = f" With {parties} parties, expect about {max(1, round(parties / 20))} to miss." if parties >= 10 else ""
    return f"Each interval holds for its own party, not for all at once.{misses}"


def _party_table(
    order: Sequence[str],
    sizes: Mapping[str, PartyInfo],
    chosen: Sequence[tuple[Line, Mapping[str, AuditResult]]],
    name: str | None,
) -> Table:
    names = [n for n in (name, "auc") if n]
    head = ["party", "members", "outsiders", "calibration"]
    head += [f"{line.name}, {'AUC' if n == 'auc' else 'TPR'}" for line, _ in chosen for n in names]
    rows = []
    for party in order:
        info = sizes.get(party)
        counts = (info.members, info.evaluation, info.calibration) if info else (None, None, None)
        own = [entries.get(party) for _, entries in chosen]
        cells = [full_text(n, entry.estimates.get(n) if entry else None) for entry in own for n in names]
        rows.append([party, *map(count, counts), *cells])
    return Table(head, rows)


def _ranked(line: Line, entries: Mapping[str, AuditResult], metric: str, table: Table) -> Figure:
    """Many parties: sorted by value, names under the pointer and in the table."""
    points = [point(p, line.name, line.colour, metric, e.estimates.get(metric)) for p, e in entries.items()]
    valued = sorted((p for p in points if p.x is not None), key=lambda p: p.x or 0)
    across = value_axis(points, metric)
    placed = [Point("", p.colour, float(i), p.x, p.low, p.high, p.tip) for i, p in enumerate(valued, 1)]
    x = figures.round_axis([0.0, float(len(valued) + 1)], "parties, from the least to the most exposed")
    x = figures.Axis(x.low, x.high, ((1.0, "1"), (float(len(valued)), count(len(valued)))), x.label)
    svg = figures.scatter(
        f"Parties by rank, seen by {line.name}",
        "A dot with its interval per party.",
        placed,
        x,
        across,
        fpr_of(metric) or 0.5,
    )
    lost = len(points) - len(valued)
    without = f" {count(lost)} without a value; the table has the reasons." if lost else ""
    return Figure(
        svg, [(line.colour, line.name), ("chance", "chance")], _party_caption(len(points)) + without, table, line.name
    )


def spread(results: Results, found: Sequence[Finding], name: str | None) -> list[Figure]:
    """Histograms of the parties' results, for federations too large to show every party."""
    shown = []
    for finding in found:
        entries = list(_of_party(results, finding).values())
        metric = metric_of(entries, name)
        values = sorted(v for e in entries if (v := value_of(e.estimates.get(metric))) is not None)
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
        span = f"{number_text(metric, a)} to {number_text(metric, b)}"
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
    whole = [r for r in results.results if of_membership(r)]
    entries = [(r, r.party) for r in whole if r.party is not None]
    for vantage, model in dict.fromkeys((e.vantage, e.model) for e, _ in entries):
        here = [(e, party) for e, party in entries if (e.vantage, e.model) == (vantage, model)]
        attacks = list(dict.fromkeys(e.attack for e, _ in here))
        columns = list(dict.fromkeys(party for _, party in here))
        if len(attacks) < 2 or len(columns) < 2:
            continue
        who, metric = adversary(vantage), metric_of([e for e, _ in here], name)
        at = {(e.attack, party): e.estimates.get(metric) for e, party in here}
        cells = [[at.get((a, p)) for p in columns] for a in attacks]
        levels = [[level(metric, est) for est in row] for row in cells]
        tips = [
            [f"{a} · {p}: {full_text(metric, est)}" for p, est in zip(columns, row, strict=True)]
            for a, row in zip(attacks, cells, strict=True)
        ]
        title = f"Every attack on every party, seen by {who.title}"
        svg = figures.heatmap(
            title, "Darker: the interval's lower end lies further above chance.", attacks, columns, levels, tips
        )
        rows = [[p, *(full_text(metric, at.get((a, p))) for a in attacks)] for p in columns]
        measure = words.measure(metric)
        caption = f"{measure}; the intervals are under the pointer and in the table."
        shown.append(Figure(svg, [], caption, Table(["party", *attacks], rows), f"{who.title}, {model} models"))
    return shown
