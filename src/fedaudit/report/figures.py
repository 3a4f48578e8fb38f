"""Charts as inline SVG: no style attributes, colours by class, every mark with its numbers under the pointer.

Nothing here knows what is drawn. Values on a log axis are clamped to its floor, so that zero never leaves the frame.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise

from markupsafe import Markup, escape

WIDTH, HEIGHT = 760, 360
LEFT, RIGHT, TOP, BOTTOM = 72, 28, 14, 50
CHAR = 7.6  # width of a character at the size of the labels
MOST_POINTS, MOST_HITS = 400, 120

Number = float | None


@dataclass(frozen=True)
class Axis:
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    label: str
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value lies between the ends, 0 to 1; what is outside is drawn at the edge."""
        if self.log:
            value = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            value = (value - self.low) / ((self.high - self.low) or 1.0)
        return min(max(value, 0.0), 1.0)


@dataclass(frozen=True)
class PlottedSeries:
    name: str
    colour: str
    _: KW_ONLY
    x: Sequence[float]
    value: Sequence[Number]
    low: Sequence[Number]
    high: Sequence[Number]
    tips: Sequence[str]
    since: float | None = None


@dataclass(frozen=True)
class Point:
    """A dot with its interval. `label` is written beside it where there is room, `tip` is under the pointer."""

    label: str
    colour: str
    _: KW_ONLY
    x: Number
    y: Number
    low: Number
    high: Number
    tip: str


# ------------------------------------------------------------------ axes


def linear_axis(
    values: Iterable[Number], label: str, *, percent: bool, include: Sequence[float], most: float, least: float = 0.0
) -> Axis:
    """A round-numbered axis over the values, never beyond `least` and `most`."""
    known = [*include, *(v for v in values if v is not None)]
    low, high = min(known), max(known)
    pad = 0.06 * (high - low) or 0.05
    low, high = max(least, low - pad), min(most, high + pad)
    step = _step((high - low) / 5)
    low, high = math.floor(low / step + 1e-9) * step, min(most, math.ceil(high / step - 1e-9) * step)
    ticks = [low + i * step for i in range(round((high - low) / step) + 1)]
    digits = max(0, -math.floor(math.log10(step * (100 if percent else 1)) + 1e-9))
    texts = (f"{100 * t:.{digits}f} %" if percent else f"{t:,.{digits}f}" for t in ticks)
    return Axis(low, high, tuple(zip(ticks, texts, strict=True)), label)


def round_axis(rounds: Sequence[float], label: str) -> Axis:
    low, high = min(rounds), max(rounds)
    step = max(1, round(_step((high - low) / 8 or 1)))
    inner = [t for t in range(math.ceil(low / step) * step, int(high) + 1, step) if t > low + 0.4 * step]
    ticks = [low, *(t for t in inner if t < high - 0.4 * step), high] if high > low else [low]
    return Axis(low, high, tuple((float(t), f"{t:,.0f}") for t in ticks), label)


def log_axis(floor: float, high: float, label: str, *, percent: bool, clamped: bool = False) -> Axis:
    """Whole decades. Where something lies at or under the floor, the floor says so."""
    first, last = math.floor(math.log10(floor) + 1e-9), max(math.ceil(math.log10(high) - 1e-9), 0 if percent else -9)
    last = max(last, first + 1)
    ticks = [(10.0**k, f"{10.0 ** (k + 2):.6g} %" if percent else f"{10.0**k:.6g}") for k in range(first, last + 1)]
    if clamped:
        ticks[0] = (ticks[0][0], f"≤ {ticks[0][1]}")
    return Axis(10.0**first, 10.0**last, tuple(ticks), label, log=True)


def _step(rough: float) -> float:
    base = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next(base * m for m in (1, 2, 5, 10) if base * m >= rough - 1e-12)


# ------------------------------------------------------------------ charts


def lines(
    title: str, desc: str, series: Sequence[PlottedSeries], x: Axis, y: Axis, chance: Sequence[tuple[float, float]]
) -> Markup:
    """Lines with bands. A missing value is a gap; a lone value is a dot with its interval."""
    frame = Frame(x, y, WIDTH, HEIGHT)
    thin = [_thin(s, MOST_POINTS) for s in series]
    body = [frame.grid(), *([frame.path("chance", [frame.at(a, b) for a, b in chance])] if chance else [])]
    body += [frame.band(s) for s in thin]
    body += [frame.line(s) for s in thin]
    for s in series:
        if s.since is not None:
            body.append(frame.vertical(s.since, f"since {s.colour}"))
    body.append(frame.strip(thin))
    return _svg("lines", title, desc, WIDTH, HEIGHT, body)


def scatter(title: str, desc: str, points: Sequence[Point], x: Axis, y: Axis, chance: float | None) -> Markup:
    """Dots with vertical intervals; a label appears only where it covers nothing."""
    frame = Frame(x, y, WIDTH, HEIGHT)
    body = [frame.grid()]
    if chance is not None:
        body.append(frame.path("chance", [frame.at(x.low, chance), frame.at(x.high, chance)]))
    placed = [(p, *frame.at(p.x, p.y)) for p in points if p.x is not None and p.y is not None]
    taken = [(px - 6, py - 6, px + 6, py + 6) for _, px, py in placed]
    for point, px, py in placed:
        ends = [frame.at(x.low, e)[1] for e in (point.low, point.high) if e is not None]
        whisker = tag("line", class_="whisker", x1=px, x2=px, y1=ends[0], y2=ends[1]) if len(ends) == 2 else Markup()
        dot = tag("circle", class_="dot", cx=px, cy=py, r=4 if len(placed) <= 60 else 2.5)
        target = tag("circle", tag("title", point.tip), class_="hit", cx=px, cy=py, r=11)
        label = _beside(point.label, px, py, frame, taken) if point.label else Markup()
        body.append(tag("g", whisker, dot, label, target, class_=f"point {point.colour}"))
    return _svg("scatter", title, desc, WIDTH, HEIGHT, body)


def intervals(
    title: str, desc: str, rows: Sequence[tuple[str, Sequence[Point]]], x: Axis, chance: float | None
) -> Markup:
    """One row per name, one dot with its horizontal interval per point; a point without value is a dash."""
    names = [_short(name, 26) for name, _ in rows]
    left = max(60.0, 20 + CHAR * max(map(len, names)))
    tall = [max(24, 8 + 15 * len(points)) for _, points in rows]
    height = TOP + sum(tall) + BOTTOM
    frame = Frame(x, Axis(0, 1, (), ""), WIDTH, height, left)
    body = [frame.grid()]
    if chance is not None:
        body.append(frame.vertical(chance, "chance"))
    top = float(TOP)
    for name, (_, points), row in zip(names, rows, tall, strict=True):
        body.append(tag("text", name, class_="name", x=left - 10, y=top + row / 2 + 4))
        for place, point in enumerate(points):
            middle = top + row / 2 + 15 * (place - (len(points) - 1) / 2)
            body.append(_bar(frame, point, middle))
        tip = "\n".join(p.tip for p in points)
        body.append(tag("rect", tag("title", tip), class_="hit", x=0, y=top, width=WIDTH - RIGHT, height=row))
        top += row
    return _svg("intervals", title, desc, WIDTH, height, body)


def histogram(
    title: str, desc: str, bins: Sequence[tuple[float, float, int, str]], x: Axis, y: Axis, colour: str
) -> Markup:
    """Counts between edges, each with its tip."""
    frame = Frame(x, y, WIDTH, 240)
    body = [frame.grid()]
    floor = frame.at(x.low, y.low)[1]
    for start, end, number, tip in bins:
        (a, top), (b, _) = frame.at(start, number), frame.at(end, number)
        body.append(tag("rect", class_=f"bin {colour}", x=a + 1, y=top, width=max(b - a - 2, 1), height=floor - top))
        body.append(tag("rect", tag("title", tip), class_="hit", x=a, y=TOP, width=b - a, height=floor - TOP))
    return _svg("histogram", title, desc, WIDTH, 240, body)


def heatmap(
    title: str,
    desc: str,
    rows: Sequence[str],
    columns: Sequence[str],
    levels: Sequence[Sequence[int]],
    tips: Sequence[Sequence[str]],
) -> Markup:
    """Cells shaded by level (0 to 5, -1 = no value). Column names are written while they fit."""
    left = max(60.0, 20 + CHAR * max(len(_short(r, 24)) for r in rows))
    cell = min((WIDTH - RIGHT - left) / len(columns), 110.0)
    high, gap = (26, 2.0) if cell > 12 else (22, 0.5)
    fits = max(len(c) for c in columns) * CHAR < cell
    height = TOP + high * len(rows) + 34
    body = []
    for i, row in enumerate(rows):
        top = TOP + i * high
        body.append(tag("text", _short(row, 24), class_="name", x=left - 10, y=top + high / 2 + 4))
        for j in range(len(columns)):
            shade = f"cell heat-{levels[i][j]}" if levels[i][j] >= 0 else "cell heat-none"
            place = {"x": left + j * cell, "y": float(top), "width": max(cell - gap, 1.0), "height": high - gap}
            body.append(tag("rect", tag("title", tips[i][j]), class_=f"{shade} hit", **place))
    base = TOP + high * len(rows) + 20
    if fits:
        body += [tag("text", c, class_="tick middle", x=left + (j + 0.5) * cell, y=base) for j, c in enumerate(columns)]
    else:
        body.append(tag("text", f"{columns[0]} to {columns[-1]}", class_="tick start", x=left, y=base))
    return _svg("heatmap", title, desc, WIDTH, height, body)


# ------------------------------------------------------------------ the frame


@dataclass(frozen=True)
class Frame:
    x: Axis
    y: Axis
    width: float
    height: float
    left: float = LEFT

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = self.left + self.x.place(x) * (self.width - RIGHT - self.left)
        return across, self.height - BOTTOM - self.y.place(y) * (self.height - BOTTOM - TOP)

    def grid(self) -> Markup:
        right, bottom = self.width - RIGHT, self.height - BOTTOM
        parts = [tag("line", class_="axis", x1=self.left, x2=right, y1=bottom, y2=bottom)]
        for value, name in self.x.ticks:
            px = self.at(value, self.y.low)[0]
            parts.append(tag("line", class_="grid", x1=px, x2=px, y1=TOP, y2=bottom))
            # A label at the right edge ends with the chart instead of leaving it.
            edge = px + CHAR * len(name) / 2 > self.width
            anchor, x = ("end", self.width) if edge else ("middle", px)
            parts.append(tag("text", name, class_=f"tick {anchor}", x=x, y=bottom + 18))
        for value, name in self.y.ticks:
            py = self.at(self.x.low, value)[1]
            parts.append(tag("line", class_="grid", x1=self.left, x2=right, y1=py, y2=py))
            parts.append(tag("text", name, class_="tick end", x=self.left - 8, y=py + 4))
        parts.append(tag("text", self.x.label, class_="label", x=(self.left + right) / 2, y=self.height - 8))
        middle = (TOP + bottom) / 2
        turned = f"rotate(-90 13 {middle:.1f})"
        parts.append(tag("text", self.y.label, class_="label", x=13, y=middle, transform=turned))
        return Markup().join(parts)

    def path(self, shape: str, points: Sequence[tuple[float, float]]) -> Markup:
        return tag("path", class_=shape, d=_d(points))

    def vertical(self, x: float, shape: str) -> Markup:
        px = self.at(x, self.y.low)[0]
        return tag("line", class_=shape, x1=px, x2=px, y1=TOP, y2=self.height - BOTTOM)

    def band(self, s: PlottedSeries) -> Markup:
        parts = []
        for run in _runs(s):
            upper = [self.at(s.x[i], high) for i in run if (high := s.high[i]) is not None]
            lower = [self.at(s.x[i], low) for i in run if (low := s.low[i]) is not None]
            if len(run) > 1 and upper and lower:
                parts.append(tag("path", class_=f"band {s.colour}", d=_d([*upper, *reversed(lower)]) + "Z"))
            elif upper and lower:
                parts.append(tag("path", class_=f"whisker {s.colour}", d=_d([upper[0], lower[0]])))
        return Markup().join(parts)

    def line(self, s: PlottedSeries) -> Markup:
        parts = []
        for run in _runs(s):
            points = [self.at(s.x[i], value) for i in run if (value := s.value[i]) is not None]
            if len(points) > 1:
                parts.append(self.path(f"line {s.colour}", points))
            else:
                parts.append(tag("circle", class_=f"dot {s.colour}", cx=points[0][0], cy=points[0][1], r=4))
        return Markup().join(parts)

    def strip(self, series: Sequence[PlottedSeries]) -> Markup:
        """Full-height targets, one per place on the x axis, which together cover the frame."""
        tips: dict[float, list[str]] = {}
        for s in series:
            for x, tip in zip(s.x, s.tips, strict=True):
                tips.setdefault(x, []).append(tip)
        places = sorted(tips)
        places = places[:: max(1, math.ceil(len(places) / MOST_HITS))]
        across = [self.at(x, self.y.low)[0] for x in places]
        edges = [self.left, *((a + b) / 2 for a, b in pairwise(across)), self.width - RIGHT]
        tall = self.height - BOTTOM - TOP
        return Markup().join(
            tag("rect", tag("title", "\n".join(tips[x])), class_="hit", x=a, y=TOP, width=max(b - a, 0.1), height=tall)
            for x, a, b in zip(places, edges, edges[1:], strict=False)
        )


# ------------------------------------------------------------------ small parts


def tag(name: str, *children: str | Markup, **attributes: str | float) -> Markup:
    """The one place where SVG is written: everything is escaped unless it was written here."""
    pairs = (
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), f"{v:.6g}" if isinstance(v, int | float) else v)
        for key, v in attributes.items()
    )
    inside = Markup().join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), Markup().join(pairs), inside)


def _svg(kind: str, title: str, desc: str, width: float, height: float, body: Iterable[Markup]) -> Markup:
    box = f"0 0 {width:.6g} {height:.6g}"
    inside = (tag("title", title), tag("desc", desc), *body)
    return tag("svg", *inside, class_=f"chart {kind}", viewBox=box, role="img")


def _d(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _runs(s: PlottedSeries) -> list[list[int]]:
    """Unbroken stretches of indices that have a value."""
    runs: list[list[int]] = [[]]
    for i, value in enumerate(s.value):
        if value is None:
            runs.append([])
        else:
            runs[-1].append(i)
    return [run for run in runs if run]


def _thin(s: PlottedSeries, most: int) -> PlottedSeries:
    every = math.ceil(len(s.x) / most)
    if every <= 1:
        return s
    keep = sorted({*range(0, len(s.x), every), len(s.x) - 1})
    fields = ([column[i] for i in keep] for column in (s.x, s.value, s.low, s.high))
    x, value, low, high = fields
    return PlottedSeries(
        s.name,
        s.colour,
        x=[v for v in x if v is not None],
        value=value,
        low=low,
        high=high,
        tips=[s.tips[i] for i in keep],
        since=s.since,
    )


def _bar(frame: Frame, point: Point, y: float) -> Markup:
    if point.x is None:
        return tag("text", "–", class_="name start", x=frame.left + 4, y=y + 4)
    dot = tag("circle", class_="dot", cx=frame.at(point.x, 0)[0], cy=y, r=4)
    if point.low is None or point.high is None:
        return tag("g", dot, class_=f"point {point.colour}")
    ends = {"x1": frame.at(point.low, 0)[0], "x2": frame.at(point.high, 0)[0]}
    return tag("g", tag("line", class_="whisker", y1=y, y2=y, **ends), dot, class_=f"point {point.colour}")


def _beside(label: str, x: float, y: float, frame: Frame, taken: list[tuple[float, float, float, float]]) -> Markup:
    """Right or left of its dot, at the same height, so that no label can be read as another dot's."""
    wide, base = CHAR * len(label), y + 4
    for left, side in ((x + 9, "start"), (x - 9 - wide, "end")):
        box = (left, base - 11, left + wide, base + 3)
        inside = frame.left < box[0] and box[2] < frame.width
        if inside and not any(box[0] < t[2] and t[0] < box[2] and box[1] < t[3] and t[1] < box[3] for t in taken):
            taken.append(box)
            return tag("text", label, class_=f"near {side}", x=left if side == "start" else x - 9, y=base)
    return Markup()


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
