"""Members and others over the rounds: where the middle half of each lies, and how far apart they are."""

from collections.abc import Sequence

from fedaudit.report import figures
from fedaudit.report.figures import PlottedSeries
from fedaudit.report.shapes import Figure, PageSection, Panel, Table
from fedaudit.report.values import Results
from fedaudit.stats.wording import NONE, count
from fedaudit.types import Curve, Trajectory

WHOSE = {
    "global": "Global models, which every party receives",
    "local": "The parties' own models, as the server sees them",
}
COLOURS = {"global": "s1", "local": "s2"}
LEAD = (
    "How sure the model is of the right label, from 0 to 1: of records that were trained on, and of others that were "
    "not. It gets surer of both, but sooner and further of what it is trained on. Many attacks look at that gap."
)
PEOPLE = (
    "How sure the model is of the right label, from 0 to 1: of what the adversary has of people who are in the "
    "training data, and of others who are not. Many attacks look at the gap between the two."
)


def section(results: Results) -> list[PageSection]:
    """Left out where fewer than two rounds were followed."""
    if not results.trajectories:
        return []
    people = any(entry.unit == "subject" for entry in results.results)
    drawn = [*map(_sides, results.trajectories), _apart(results.trajectories)]
    panel = Panel(PEOPLE if people else LEAD, figures=drawn, sentences=[_said(one) for one in results.trajectories])
    return [PageSection("trajectories", "What training does to members and to others", "Members and others", [panel])]


def _said(one: Trajectory) -> str:
    """What the last round says, by the interval of the difference."""
    value, low, high = one.apart.value[-1], one.apart.low[-1], one.apart.high[-1]
    if value is None or low is None or high is None:
        return ""
    span = f"{value:+.3f}, between {low:+.3f} and {high:+.3f} with {100 * one.confidence:.4g} % for all rounds together"
    whose = WHOSE[one.model].partition(",")[0]
    last = f"after round {one.apart.x[-1]:.0f}"
    if low <= 0 <= high:
        return f"{whose}: {last} it is not settled that members and others differ on average ({span})."
    side = "surer of members than of others" if low > 0 else "less sure of members than of others"
    return f"{whose}: {last} they are {side} on average ({span})."


def _series(name: str, colour: str, curve: Curve, tip: str) -> PlottedSeries:
    points = zip(curve.x, curve.value, curve.low, curve.high, strict=True)
    tips = [f"round {x:.0f} · {name}: {tip.format(*map(_number, ends))}" for x, *ends in points]
    return PlottedSeries(
        name, colour, x=curve.x, value=curve.value, low=curve.low, high=curve.high, tips=tips, since=None
    )


def _sides(one: Trajectory) -> Figure:
    how = "median {}, middle half {} to {}"
    series = [_series("members", "s1", one.members, how), _series("others", "s2", one.others, how)]
    values = [v for s in series for v in (*s.value, *s.low, *s.high)]
    x = figures.round_axis(one.members.x, "round")
    y = figures.linear_axis(values, "confidence in the right label", percent=False, include=[0.0, 1.0], most=1.0)
    title = f"Confidence over the rounds: {WHOSE[one.model].partition(',')[0].lower()}"
    svg = figures.lines(title, "Medians, and the middle half of members and of others.", series, x, y, [])
    smallest = f"{count(one.fewest_members)} members, {count(one.fewest_others)} others"
    caption = (
        "Lines: medians. Shaded: the middle half of them, between the quartiles. It shows how they differ among one "
        f"another and is no interval. In every round at least {smallest}."
    )
    rows = [
        [count(round(at)), s.name, _number(v), f"{_number(lo)}–{_number(hi)}"]
        for s in series
        for at, v, lo, hi in zip(s.x, s.value, s.low, s.high, strict=True)
    ]
    table = Table(("round", "records", "median", "middle half"), rows)
    return Figure(svg, [("s1", "members"), ("s2", "others")], caption, table, WHOSE[one.model])


def _apart(found: Sequence[Trajectory]) -> Figure:
    series = [
        _series(f"{one.model} models", COLOURS[one.model], one.apart, "{} (interval {} to {})") for one in found
    ]  # fmt: skip
    values = [v for s in series for v in (*s.value, *s.low, *s.high)]
    x = figures.round_axis([at for s in series for at in s.x], "round")
    y = figures.linear_axis(values, "members minus others", percent=False, include=[0.0], most=1.0, least=-1.0)
    title = "How far members and others lie apart"
    svg = figures.lines(
        title, "Mean confidence of members minus that of others.", series, x, y, [(x.low, 0.0), (x.high, 0.0)]
    )
    rows = [
        [count(round(at)), s.name, _number(v), f"{_number(lo)} to {_number(hi)}"]
        for s in series
        for at, v, lo, hi in zip(s.x, s.value, s.low, s.high, strict=True)
    ]
    caption = f"Mean confidence of members minus that of others. Band: {found[0].apart.method}."
    table = Table(("round", "models", "difference", "interval"), rows)
    return Figure(svg, [*((s.colour, s.name) for s in series), ("chance", "no difference")], caption, table, title)


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"
