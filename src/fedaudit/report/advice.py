"""The page of an advice: what to change, what it brings and costs, and everything that was tried. Needs no torch."""

from collections.abc import Sequence
from pathlib import Path

from fedaudit.files import write_atomically
from fedaudit.report import figures
from fedaudit.report.figures import Point
from fedaudit.report.html import page
from fedaudit.report.shapes import Figure, Table
from fedaudit.report.values import clean
from fedaudit.results.advice import PAGE, Advice, Confirmed, Risk, Tried, frontier, in_points
from fedaudit.stats.wording import NONE, fpr_of, full_text, point_text
from fedaudit.types import Estimate

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
    "All changes were trained for a quarter of the rounds. Those whose lower end was then above the limit were left; "
    "at most half of all went on to the half, and at most half of those to the end. "
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
        "verdict": "below the limit" if one.meets else clean(f"not confirmed{why}", LONG),
        "largest risk": _whose(one.risk, metric),
        "the same attack without the change": _risk(one.risk_before, metric),
        "difference in risk": _signed(metric, one.risk_difference),
        "largest risk without the change": _whose(one.largest_before, metric),
        "most by any attack": _whose(one.strongest, metric),
        "accuracy": full_text("accuracy", one.accuracy),
        "accuracy without the change": full_text("accuracy", one.accuracy_before),
        "difference in accuracy": _signed("accuracy", one.accuracy_difference),
    }


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
        ended = one.rounds == one.of
        colour = "s1" if one.name in best else "s2" if ended else "s3"
        tip = f"{one.name}, {one.rounds} rounds: accuracy {full_text('accuracy', accuracy)}, risk {_risk(risk, metric)}"
        label = clean(one.name) if ended else ""
        points.append(Point(label, colour, accuracy.value, risk.value, risk.low, risk.high, clean(tip)))
        shown = (full_text("accuracy", accuracy), _risk(risk, metric), "yes" if one.name in best else "")
        rows.append([clean(one.name), f"{one.rounds} of {one.of}", *shown])
    if len(points) < 2:
        return []
    percent = fpr_of(metric) is not None
    chance = fpr_of(metric) or 0.5
    x = figures.linear_axis([p.x for p in points], "accuracy on outsiders", percent=True, include=(), most=1.0)
    ends = [end for p in points for end in (p.y, p.low, p.high)]
    y = figures.linear_axis(ends, clean(metric), percent=percent, include=(chance,), most=1.0)
    svg = figures.scatter("Accuracy against risk", "One dot with its interval per change.", points, x, y, chance)
    colours = [("s1", "on the frontier"), ("s2", "another is better in both"), ("s3", "left before its end")]
    caption = (
        "Lower right is better. The frontier is drawn among changes that were trained to their end, by their values; "
        "intervals may overlap. Point at an unlabelled dot to see its name."
    )
    legend = [*colours, ("chance", "chance")]
    table = Table(("change", "rounds", "accuracy", "risk", "on the frontier"), rows)
    return [Figure(svg, legend, caption, table)]
