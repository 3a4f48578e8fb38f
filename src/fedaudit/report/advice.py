"""The page of an advice: what to change, what it brings and costs, and everything that was tried. Needs no torch."""

from collections.abc import Sequence
from pathlib import Path

from fedaudit.files import write_atomically
from fedaudit.report import figures
from fedaudit.report.charts import Figure
from fedaudit.report.figures import Point
from fedaudit.report.html import page
from fedaudit.report.shapes import Table
from fedaudit.report.values import clean
from fedaudit.results.advice import PAGE, Advice, Confirmed, Risk, Tried
from fedaudit.stats.wording import NONE, fpr_of, full_text, point_text

LONG = 600


def write(advice: Advice, directory: Path) -> Path:
    write_atomically(directory / PAGE, render(advice, directory.resolve().name))
    return directory / PAGE


def render(advice: Advice, name: str) -> str:
    metric = advice.limit.partition("<")[0].partition("[")[0].strip()
    parts = [
        ("confirmed", "With another seed", CONFIRMED, [], [_confirmed(advice.confirmed, metric)]),
        ("tried", "What was tried", TRIED, _frontier(advice, metric), [_tried(advice.tried, metric)]),
    ]
    cost = NONE if advice.cost is None else f"{advice.cost:.3g} audits of the federation as it is"
    facts = [("limit", clean(advice.limit)), ("cost of the search", cost)]
    verdict = "Advice" if advice.recommended else "No change was confirmed to meet the limit"
    sentences = [clean(line, LONG) for line in advice.sentences]
    return page(
        "study.html", title="advice", name=clean(name), facts=facts, verdict=verdict, sentences=sentences, parts=parts
    )


CONFIRMED = (
    "Trained again with another seed and attacked with everything, beside the unchanged federation with that seed. "
    "These runs were not used for choosing; theirs are the intervals to quote."
)
TRIED = (
    "All changes were trained for a quarter of the rounds; half of them went on to the half, half of those to the end. "
    "These figures were used for choosing, so the best of them look a little better than they are."
)


def _confirmed(found: Sequence[Confirmed], metric: str) -> Table:
    head = ("change", "verdict", "risk", "as it is", "difference, same records", "accuracy", "as it is", "difference")
    rows = []
    for one in found:
        difference = (one.risk_difference, one.accuracy_difference)
        risk, accuracy = (NONE if e is None or e.value is None else _signed(e.value, e.low, e.high) for e in difference)
        meets = "below the limit" if one.meets else f"not confirmed{f': {one.why_not}' if one.why_not else ''}"
        before = (_risk(one.risk_before, metric), full_text("accuracy", one.accuracy_before))
        now = (_risk(one.risk, metric), full_text("accuracy", one.accuracy))
        rows.append([clean(one.name), clean(meets, LONG), now[0], before[0], risk, now[1], before[1], accuracy])
    return Table(head, rows)


def _signed(value: float, low: float | None, high: float | None) -> str:
    return NONE if low is None or high is None else f"{value:+.3f} ({low:+.3f} to {high:+.3f})"


def _risk(risk: Risk | None, metric: str) -> str:
    return NONE if risk is None else point_text(metric, risk.value, risk.low, risk.high)


def _tried(found: Sequence[Tried], metric: str) -> Table:
    head = ("change", "rounds", "risk so far", "of", "accuracy so far", "what became of it")
    rows = [
        [
            clean(one.name),
            f"{one.rounds} of {one.of}",
            _risk(one.risk, metric),
            clean(f"{one.risk.attack}, {one.risk.vantage}") if one.risk else NONE,
            full_text("accuracy", one.accuracy),
            clean(one.status, LONG),
        ]
        for one in found
    ]
    return Table(head, rows)


def _frontier(advice: Advice, metric: str) -> list[Figure]:
    """Accuracy against risk of everything that was trained, each as far as it came."""
    known = [(one, one.risk, one.accuracy) for one in advice.tried if one.risk and one.accuracy]
    points, rows = [], []
    for one, risk, accuracy in known:
        ended = one.rounds == one.of
        tip = f"{one.name}, {one.rounds} rounds: accuracy {full_text('accuracy', accuracy)}, risk {_risk(risk, metric)}"
        label = clean(one.name) if ended else ""
        points.append(
            Point(label, "s1" if ended else "s2", accuracy.value, risk.value, risk.low, risk.high, clean(tip))
        )
        rows.append([clean(one.name), str(one.rounds), full_text("accuracy", accuracy), _risk(risk, metric)])
    if len(points) < 2:
        return []
    percent = fpr_of(metric) is not None
    chance = fpr_of(metric) or 0.5
    x = figures.linear_axis([p.x for p in points], "accuracy on outsiders", percent=True, include=(), most=1.0)
    ends = [end for p in points for end in (p.y, p.low, p.high)]
    y = figures.linear_axis(ends, clean(metric), percent=percent, include=(chance,), most=1.0)
    svg = figures.scatter("Accuracy against risk", "One dot with its interval per change.", points, x, y, chance)
    legend = [("s1", "trained to the end"), ("s2", "left before"), ("chance", "chance")]
    caption = "Lower right is better. Point at an unlabelled dot to see its name."
    table = Table(("change", "rounds", "accuracy", "risk"), rows)
    return [Figure(svg, legend, caption, table)]
