"""Which chart shows which results. Each comes with its legend, its caption and its data as a table."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from fedaudit.questions import of_membership
from fedaudit.report import figures, words
from fedaudit.report.figures import PlottedSeries, Point
from fedaudit.report.sections import level
from fedaudit.report.shapes import Figure, Table
from fedaudit.report.values import Results
from fedaudit.report.words import Finding, adversary
from fedaudit.results.document import PartyInfo
from fedaudit.stats.strongest import allowed
from fedaudit.stats.wording import (
    NONE,
    count,
    fpr_of,
    full_text,
    is_share,
    number_text,
    point_text,
    rate,
    share,
    since_round,
    span_text,
    value_of,
    without,
)
from fedaudit.types import AuditResult, Estimate, Headline

COLOURS = ("s1", "s2", "s3", "s4", "s5", "s6")


@dataclass(frozen=True)
class Line:
    """What is drawn of a finding, under a name and a colour that no other line of the chart has."""

    finding: Finding
    name: str
    colour: str


def named(found: Sequence[Finding]) -> list[Line]:
    """Where one vantage has two lines, they are about different models: the name says about which."""
    lines: list[Line] = []
    vantages = [finding.vantage for finding in found]
    for finding in found:
        who, taken = adversary(finding.vantage), {line.colour for line in lines}
        twice = vantages.count(finding.vantage) > 1
        free = [colour for colour in (who.colour, *COLOURS) if colour not in taken]
        name = f"{who.title}, {finding.model} models" if twice else who.title
        lines.append(Line(finding, name, free[0] if free else who.colour))
    return lines


def _series(line: Line, name: str, where: str, since: int | None = None) -> PlottedSeries | None:
    """A stored curve as a series; `where` names its x in tooltips and is a percentage where it says FPR."""
    curve = line.finding.curves.get("roc" if where == "FPR" else name)
    if curve is None:
        return None
    points = zip(curve.x, zip_longest(curve.value, curve.low, curve.high), strict=False)
    kept = sorted(((x, *point) for x, point in points), key=lambda row: row[0])
    if all(value is None for _, value, _, _ in kept):
        return None
    tips = []
    for x, value, low, high in kept:
        place = f"FPR {share(x)}" if where == "FPR" else f"{where} {x:.0f}"
        tips.append(f"{place} · {line.name}: {point_text(name, value, low, high)}")
    xs, values, lows, highs = zip(*kept, strict=True)
    return PlottedSeries(line.name, line.colour, x=xs, value=values, low=lows, high=highs, tips=tips, since=since)


def _curve_table(series: Sequence[PlottedSeries], name: str, where: str) -> Table:
    rows = []
    for s in series:
        for x, v, lo, hi in zip(s.x, s.value, s.low, s.high, strict=True):
            at = share(x) if where == "FPR" else count(x)
            rows.append([s.name, at, number_text(name, v), NONE if v is None else span_text(name, lo, hi)])
    return Table(("seen by", where, "TPR" if is_share(name) else "AUC", "interval"), rows)


def _legend(series: Sequence[PlottedSeries], chance: str) -> list[tuple[str, str]]:
    shown = [(s.colour, s.name + (f": above chance since round {s.since:.0f}" if s.since else "")) for s in series]
    return [*shown, ("chance", chance)]


def roc(found: Sequence[Finding], results: Results | None = None) -> Figure | None:
    """Where results have a claim of differential privacy, the most that it allows is drawn as well."""
    drawn = [(line, s) for line in named(found) if (s := _series(line, "tpr@", "FPR")) is not None]
    series = [s for _, s in drawn]
    if not series:
        return None
    positive = [v for s in series for v in [*s.x, *s.value] if v is not None and v > 0]
    floor = 10.0 ** math.floor(math.log10(max(1e-5, min([0.01, *positive]))) + 1e-9)
    ends = [v for s in series for v in [*s.value, *s.low] if v is not None]
    x = figures.log_axis(
        floor, 1, "outsiders wrongly accused (FPR)", percent=True, clamped=any(v < floor for s in series for v in s.x)
    )
    y = figures.log_axis(floor, 1, "members picked out (TPR)", percent=True, clamped=min(ends) < floor)
    names = ", ".join(f"{s.name} ({of.finding.attack}, {of.finding.model} models)" for of, s in drawn)
    series += _promised(results, floor)
    svg = figures.lines(
        "Share of members picked out against share of outsiders wrongly accused, both on log scales",
        f"One line per vantage with its interval: {names}. The diagonal is chance.",
        series, x, y, [(x.low, x.low), (1, 1)],
    )  # fmt: skip
    method = _method(found[:1], "roc")
    caption = f"{names}. The far left matters most: hardly any accusation is wrong there. Band: {method}."
    caption += _gone(found, next((name for f in found for name in f.headline.estimates if fpr_of(name)), ""))
    return Figure(svg, _legend(series, "chance"), caption, _curve_table(series, "tpr@", "FPR"))


def _promised(results: Results | None, floor: float) -> list[PlottedSeries]:
    """The largest TPR that the claimed epsilon lets any test reach at each FPR."""
    claim = results.run.guarantee if results else None
    if claim is None or claim.binding is None or math.isinf(claim.binding):
        return []
    epsilon = f"epsilon {claim.binding:.3g}{' of a person' if claim.per_person else ''}"
    xs = [floor ** (1 - i / 60) for i in range(61)]
    most = [allowed(claim.binding, claim.delta, x) for x in xs]
    tips = [f"FPR {share(x)} · allowed by {epsilon}: {share(y)}" for x, y in zip(xs, most, strict=True)]
    none = [None] * len(xs)
    return [PlottedSeries(f"the most that {epsilon} allows", "claim", x=xs, value=most, low=none, high=none, tips=tips)]


def _method(found: Sequence[Finding], key: str) -> str:
    """What a band promises."""
    return next((method for f in found if key in f.curves and (method := f.curves[key].method)), "as stored")


def _gone(found: Sequence[Finding], key: str) -> str:
    """Who is missing from the newest figures of these lines."""
    told = [(line.name, without(line.finding.headline.estimates.get(key))) for line in named(found)]
    return "".join(f" {name}: {missing}." for name, missing in told if missing)


def over_rounds(found: Sequence[Finding], name: str | None) -> list[Figure]:
    shown = []
    for key in [k for k in (name, "auc") if k]:
        fpr = fpr_of(key)
        chance = fpr or 0.5
        series = []
        for line in named(found):
            one = _series(line, key, "round", since_round(line.finding.curves.get(key), chance))
            series += [one] if one is not None else []
        if not series:
            continue
        x = figures.round_axis([v for s in series for v in s.x], "round")
        label = "members picked out (TPR)" if fpr else "AUC"
        values = [v for s in series for v in [*s.value, *s.low, *s.high]]
        y = figures.linear_axis(values, label, percent=bool(fpr), include=[0.0, chance] if fpr else [chance], most=1.0)
        heading = f"Picked out at {rate(fpr)} false accusations" if fpr else "AUC"
        since = "; ".join(f"{s.name}: above chance since round {s.since:.0f}" for s in series if s.since)
        svg = figures.lines(
            f"{heading}, round by round", f"One line per vantage with its band. {since}",
            series, x, y, [(x.low, chance), (x.high, chance)],
        )  # fmt: skip
        caption = f"Band: {_method(found, key)}.{_gone(found, key)}"
        caption += " “Since” marks the round from which its lower end stays above chance." if since else ""
        legend = _legend(series, f"chance ({rate(chance) if fpr else '0.5'})")
        shown.append(Figure(svg, legend, caption, _curve_table(series, key, "round"), heading))
    return shown


# ------------------------------------------------------------------ cost, use, and other runs


def cost(results: Results) -> Figure | None:
    """Strength against cost. There is no chart if all attacks cost the same."""
    found = [(e, auc) for e in words.pooled(results) if (auc := e.estimates.get("auc")) and auc.value is not None]
    entries, costs = [(e, auc) for e, auc in found if e.cost.epochs is not None], list[float]()
    costs += [epochs for e, _ in entries if (epochs := e.cost.epochs) is not None]
    spans = [(min(own), max(own)) for own in words.costs(results).values()]
    if not entries or max(costs) <= 0 or all(low >= 0.9 * high for low, high in spans):
        return None
    points, rows = [], []
    for (entry, auc), epochs in zip(entries, costs, strict=True):
        who, shown = adversary(entry.vantage), words.cost_text(epochs)
        tip = f"{entry.attack} · {who.title}: AUC {full_text('auc', auc)}, {shown} E"
        points.append(Point(entry.attack, who.colour, x=epochs, y=auc.value, low=auc.low, high=auc.high, tip=tip))
        rows.append([entry.attack, who.title, shown, full_text("auc", auc)])
    positive = [c for c in costs if c > 0]
    label = "cost in E per round (1 E = one local epoch)"
    if max(costs) / min(positive) > 20 or min(costs) == 0:
        x = figures.log_axis(min(positive), max(costs), label, percent=False, clamped=min(costs) == 0)
    else:
        x = figures.linear_axis(list(costs), label, percent=False, include=[0.0], most=math.inf)
    y = figures.linear_axis(
        [v for p in points for v in (p.y, p.low, p.high)], "AUC", percent=False, include=[0.5], most=1.0
    )
    svg = figures.scatter(
        "Strength of every attack beside its cost", "One dot with its interval per attack.", points, x, y, 0.5
    )
    seen = dict.fromkeys((p.colour, r[1]) for p, r in zip(points, rows, strict=True))
    caption = "Upper left is cheap and strong. Each dot has its interval; point at an unlabelled dot to see its name."
    table = Table(("attack", "seen by", "cost in E", "AUC"), rows)
    return Figure(svg, [*seen, ("chance", "chance (0.5)")], caption, table)


def utility(results: Results) -> Figure | None:
    of_members = "what the adversary has of members" if words.about_people(results) else "training records"
    names = {"members": of_members, "evaluation": "outsiders"}
    rows, cells = [], []
    for key, est in results.run.accuracy.items():
        name = names.get(key, key)
        rows.append((name, [point(name, "accuracy", "s1", "accuracy", est)]))
        cells.append([name, full_text("accuracy", est), count(est.n_pos + est.n_neg)])
    if not any(p.x is not None for _, row in rows for p in row):
        return None
    classes = results.run.data.classes
    x = value_axis([p for _, row in rows for p in row], "accuracy")
    svg = figures.intervals(
        "How often the final model is right", "A dot with its interval per set of records.", rows, x,
        1 / classes if classes else None,
    )  # fmt: skip
    caption = "A model that does better on what it was trained on than on outsiders remembers something of it."
    legend = [("s1", "accuracy")] + ([("chance", f"guessing among {count(classes)} classes")] if classes else [])
    return Figure(svg, legend, caption, Table(("records", "accuracy", "how many"), cells))


def repeats(results: Results, name: str | None) -> Figure | None:
    """The same audit on other training runs, which an interval of one run does not cover."""
    lines = [(f"seed {count(again.seed)}", again.headlines) for again in results.run.repeats]
    entries = [h for _, found in lines for h in found]
    if len(lines) < 2 or not entries:
        return None
    metric = metric_of(entries, name)
    rows, cells, legend = [], [], {}
    for label, found in lines:
        row = []
        for headline in found:
            who, est = adversary(headline.vantage), headline.estimates.get(metric)
            legend[who.colour] = who.title
            row.append(point(label, who.title, who.colour, metric, est))
            cells.append([label, who.title, headline.attack, full_text(metric, est)])
        rows.append((label, row))
    if results.run.over_runs:
        label, row = "mean over runs", []
        for own in results.run.over_runs:
            who, est = adversary(own.vantage), own.estimates.get(metric)
            row.append(point(label, who.title, who.colour, metric, est))
            cells.append([label, who.title, "", full_text(metric, est)])
        rows.append((label, row))
    x = value_axis([p for _, row in rows for p in row], metric)
    svg = figures.intervals(
        "The same audit on other training runs", "A dot with its interval per run.", rows, x, fpr_of(metric) or 0.5
    )
    caption = (
        "Each interval is about its own run. How far the dots lie apart shows how much another training run changes. "
        "The mean over runs has an interval that includes it."
    )
    measure = "AUC" if metric == "auc" else "picked out"
    return Figure(
        svg, [*legend.items(), ("chance", "chance")], caption, Table(("run", "seen by", "attack", measure), cells)
    )


# ------------------------------------------------------------------ parts of charts


def metric_of(entries: Sequence[AuditResult | Headline], name: str | None) -> str:
    """The TPR where at least half have one, else the AUC."""
    valued = sum(value_of(e.estimates.get(name or "")) is not None for e in entries)
    return name if name and 2 * valued >= len(entries) else "auc"


def point(label: str, who: str, colour: str, name: str, est: Estimate | None) -> Point:
    value, low, high = (est.value, est.low, est.high) if est else (None, None, None)
    return Point(label, colour, x=value, y=None, low=low, high=high, tip=f"{label} · {who}: {full_text(name, est)}")


def value_axis(points: Sequence[Point], name: str) -> figures.Axis:
    fpr = fpr_of(name)
    values = [v for p in points for v in (p.x, p.low, p.high)]
    if is_share(name):
        label = f"picked out at {rate(fpr)} false accusations" if fpr else "accuracy"
        return figures.linear_axis(values, label, percent=True, include=[0.0, fpr or 0.0], most=1.0)
    return figures.linear_axis(values, "AUC", percent=False, include=[0.5], most=1.0)


# ------------------------------------------------------------------ party by party


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
    placed = [
        Point("", p.colour, x=float(i), y=p.x, low=p.low, high=p.high, tip=p.tip) for i, p in enumerate(valued, 1)
    ]
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
    x = value_axis([Point("", "", x=v, y=None, low=v, high=v, tip="") for v in values], metric)
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
