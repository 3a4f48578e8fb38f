"""Canaries on the page: what their scores show, epsilon over the rounds against the accountant, and one of them."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from fedaudit.questions.canary import NAMES
from fedaudit.report import figures
from fedaudit.report.figures import PlottedSeries, tag
from fedaudit.report.shapes import Figure, PageSection, Panel, Table
from fedaudit.report.values import Results
from fedaudit.stats.wording import NONE, count
from fedaudit.types import AuditResult, Curve, Estimate, Exhibit

KINDS = {
    "proved": "proved: a lower bound, wrong at most as often as its confidence says",
    "model-based": "model-based: right if the scores are Gaussian",
    "heuristic": "heuristic: neither a bound nor an estimate of anything",
    "claimed": "claimed: what the accountant says; nothing was measured for it",
}
OVER_ROUNDS = (
    ("epsilon-gdp", "Gaussian fit", "s1"),
    ("epsilon-maximised", "maximised (heuristic)", "s3"),
    ("epsilon-ranks", "proved", "s2"),
    ("epsilon-anytime", "proved at all rounds at once", "s4"),
    ("epsilon-accountant-round", "claimed for one round", "s5"),
)
PIXEL = 8.0
MOST_FEATURES = 20  # of a crafted row of a table


def sections(results: Results) -> list[PageSection]:
    found = [_panel(entry) for entry in results.results if entry.attack in NAMES]
    return [PageSection("canaries", "Canaries: what the sum tells about one party", "Canaries", found)] if found else []


def _panel(entry: AuditResult) -> Panel:
    crafted = entry.attack == "canife"
    lead = (
        "A party of the auditor's own, whose record was crafted so that its update stands out, takes part or not. The "
        "scores say whether the noisy sum gives that away. Epsilon is of one round in which the party is known to be "
        "there or not, except where the row says whole training."
        if crafted
        else "Parties of the auditor's own send random directions. How far the model moves their way, compared with "
        "directions that were never sent, says what one run gives away about a party."
    )
    rows = [_row(name, estimate) for name, estimate in entry.estimates.items()]
    kinds = dict.fromkeys(KINDS[e.kind] for e in entry.estimates.values() if e.kind in KINDS)
    note = f"{'. '.join(f'{kind[0].upper()}{kind[1:]}' for kind in kinds)}."
    table = Table(("figure", "value", "interval", "kind", "with", "without", "method", "remark"), rows, note)
    shown = entry.canary
    values = _crafted_row(shown) if shown else None
    charts = [chart for chart in (_scores(entry), _epsilons(entry)) if chart is not None]
    picture = _picture(shown) if shown and shown.kind == "image" else None
    drawn = f"The canary, labelled {shown.label}, as it was crafted last. " if shown else ""
    stretched = "Its values may lie outside what a camera gives; they are stretched to be shown."
    return Panel(
        lead,
        tables=[("", table), *([(f"A canary, labelled {shown.label}", values)] if shown and values else [])],
        heading=entry.attack,
        figures=charts,
        picture=picture,
        caption=f"{drawn}{stretched}",
        text=shown.text if shown else "",
    )


def _crafted_row(shown: Exhibit) -> Table | None:
    """A canary that is a row of a table: its most unusual values first."""
    unusual = sorted(range(len(shown.deviations)), key=lambda at: -abs(shown.deviations[at]))
    rows = [
        [shown.names[at] if at < len(shown.names) else f"feature {at + 1}", f"{shown.values[at]:.4g}",
         f"{shown.deviations[at]:+.3g}"]
        for at in unusual[:MOST_FEATURES]
    ]  # fmt: skip
    if not rows:
        return None
    left = math.prod(shown.shape) - len(rows)
    rest = f" {count(left)} more {'is' if left == 1 else 'are'} not shown." if left else ""
    note = f"As it was crafted last, the most unusual values first: standard deviations from the column's mean.{rest}"
    return Table(("feature", "value", "deviation"), rows, note)


def _row(name: str, one: Estimate) -> list[str]:
    value = NONE if one.value is None else f"{one.value:.4g}"
    low, high = ("…" if end is None else f"{end:.4g}" for end in (one.low, one.high))
    span = NONE if one.low is None and one.high is None else f"{low} to {high}"
    most = "" if one.ceiling is None else f"at most {one.ceiling:.3g} with so many"
    remark = "; ".join(part for part in (one.reason, most) if part)
    return [name, value, span, one.kind, count(one.n_pos), count(one.n_neg), one.method, remark]


def _scores(entry: AuditResult) -> Figure | None:
    """How often each score occurred, with the canary and without it."""
    shown = []
    for name, title, colour in (("scores-with", "with the canary", "s2"), ("scores-without", "without it", "s1")):
        curve = entry.curves.get(name)
        if curve is not None:
            shown.append(_series(curve, title, colour, "score"))
    if len(shown) < 2:
        return None
    xs = [x for s in shown for x in s.x]
    x = figures.Axis(min(xs), max(xs), tuple((t, f"{t:.3g}") for t in (min(xs), max(xs))), "score")
    y = figures.linear_axis([v for s in shown for v in s.value], "probes", percent=False, include=[0.0], most=1e9)
    title = f"{entry.attack}: scores with and without the canary"
    svg = figures.lines(title, "Two histograms, drawn as lines.", shown, x, y, [])
    caption = "How often each score occurred. The further apart the two are, the more the sum gives away."
    return Figure(svg, [(s.colour, s.name) for s in shown], caption, _table(shown, "score", "probes"), "Scores")


def _epsilons(entry: AuditResult) -> Figure | None:
    shown = [_series(entry.curves[n], t, c, "round") for n, t, c in OVER_ROUNDS if n in entry.curves]
    shown = [s for s in shown if any(v is not None for v in s.value)]
    if not shown:
        return None
    x = figures.round_axis([x for s in shown for x in s.x], "round")
    values = [v for s in shown for v in (*s.value, *s.high) if v is not None]
    y = figures.linear_axis(values, "epsilon of one round", percent=False, include=[0.0], most=1e9)
    svg = figures.lines(
        f"{entry.attack}: epsilon over the rounds", "Measured figures beside the claim.", shown, x, y, []
    )
    caption = (
        "Epsilon of one round in which the canary is known to take part or not. Each interval holds for its round."
    )
    legend = [(s.colour, s.name) for s in shown]
    return Figure(svg, legend, caption, _table(shown, "round", "epsilon"), "Epsilon over the rounds")


def _series(curve: Curve, name: str, colour: str, where: str) -> PlottedSeries:
    tips = [
        f"{where} {x:.3g} · {name}: {NONE if v is None else f'{v:.3g}'}"
        for x, v in zip(curve.x, curve.value, strict=True)
    ]
    return PlottedSeries(name, colour, x=curve.x, value=curve.value, low=curve.low, high=curve.high, tips=tips)


def _table(series: Sequence[PlottedSeries], where: str, what: str) -> Table:
    rows = [
        [s.name, f"{x:.4g}", *("" if v is None else f"{v:.4g}" for v in values)]
        for s in series
        for x, *values in zip(s.x, s.value, s.low, s.high, strict=True)
    ]
    return Table(("series", where, what, "low", "high"), rows)


def _picture(shown: Exhibit) -> Markup | None:
    """The canary's pixels, stretched to the range that can be shown."""
    if len(shown.shape) != 3 or shown.shape[0] not in (1, 3):
        return None
    channels, height, width = shown.shape
    if len(shown.values) != channels * height * width:
        return None
    low, high = min(shown.values), max(shown.values)
    scaled = [round(255 * (v - low) / ((high - low) or 1.0)) for v in shown.values]
    plane = height * width
    body = []
    for place in range(plane):
        red, green, blue = (scaled[(c % channels) * plane + place] for c in range(3))
        at = {"x": PIXEL * (place % width), "y": PIXEL * (place // width), "width": PIXEL, "height": PIXEL}
        body.append(tag("rect", fill=f"#{red:02x}{green:02x}{blue:02x}", **at))
    named = tag("title", "The canary as it was crafted last"), tag("desc", f"{width} x {height} pixels")
    box = f"0 0 {PIXEL * width:.6g} {PIXEL * height:.6g}"
    return tag("svg", *named, *body, class_="chart canary", viewBox=box, role="img", width=256, height=256)
