"""The page of `fedaudit compare`: the runs, and like beside like. One HTML string with nothing to fetch, no script."""

from fedaudit.questions import metric
from fedaudit.report.html import page
from fedaudit.report.shapes import Table
from fedaudit.results.compare import ComparedRun, Comparison, Difference, Like, Span
from fedaudit.stats.wording import full_text, is_share
from fedaudit.types import Estimate

ABSENT = "–"
RUNS = ("run", "verdict", "defences", "accuracy", "TPR at 1 % FPR", "by", "epsilon", "most it allows")
STAR = "A star: no other run is better in both accuracy and risk. Intervals are conditional on one training run each."


def render(found: Comparison) -> str:
    """Names come from outside; the template engine escapes them."""
    return page(
        "comparison.html",
        runs=found.rows,
        overview=Table(RUNS, [_cells(row) for row in found.rows], STAR),
        alike=[
            (f"{like.attack}, {like.vantage}, {like.model} models", _beside(found, like))
            for like in sorted(found.alike, key=lambda like: (like.vantage, like.attack, like.model))
        ],
        notes=found.notes,
    )


def _beside(found: Comparison, like: Like) -> Table:
    rows = [(run, _risk(estimate), "") for run, estimate in like.risks.items()]
    rows += [(f"{gap.first} minus {gap.second}", *_difference(gap)) for gap in found.differences if concerns(gap, like)]
    return Table(("run", metric(like.metric).title, ""), rows)


def concerns(gap: Difference, like: Like) -> bool:
    return (gap.vantage, gap.attack, gap.model, gap.metric) == (like.vantage, like.attack, like.model, like.metric)


def _cells(row: ComparedRun) -> tuple[str, ...]:
    most = ABSENT if row.allowed is None else f"{row.allowed:.3g} (TPR)"
    epsilon = ABSENT if row.epsilon is None else f"{row.epsilon:.3g} ({row.unit})"
    epsilon += f"; per person: {row.per_person.text}" if row.per_person else ""
    star = "* " if row.best else ""
    verdict = ", ".join(f"{who}: {grade}" for who, grade in row.grades.items())
    return (star + row.run, verdict, row.defences, _span(row.accuracy), _span(row.risk), row.whose, epsilon, most)


def _span(span: Span | None) -> str:
    return span.text() if span else ABSENT


def _risk(e: Estimate) -> str:
    return full_text(e.name, e)


def _difference(gap: Difference) -> tuple[str, str]:
    return points(gap), f"{safer(gap)}; {gap.shared:,} of {gap.records:,} records in common"


def points(gap: Difference) -> str:
    """A difference of shares in percentage points, of AUCs as it is."""
    scale, unit = (100.0, " points") if is_share(gap.metric) else (1.0, "")
    value, low, high = (f"{scale * end:+.3g}" for end in (gap.value, gap.low, gap.high))
    return f"{value}{unit} ({low} to {high})"


def safer(gap: Difference) -> str:
    return f"{gap.safer} is safer" if gap.safer else "it is not settled which is safer"
