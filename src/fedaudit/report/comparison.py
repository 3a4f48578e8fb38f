"""The page of `fedaudit compare`: the runs, and like beside like. One HTML string with nothing to fetch, no script."""

from fedaudit.report.html import page
from fedaudit.report.shapes import Table
from fedaudit.results.alike import Like
from fedaudit.results.compare import Comparison, Row, Span
from fedaudit.results.differences import Difference
from fedaudit.types import Estimate

ABSENT = "–"
RUNS = ("run", "defences", "accuracy", "TPR at 1 % FPR", "of", "epsilon", "it allows")
STAR = "A star: no other run is better in both accuracy and risk. Intervals are conditional on one training run each."


def render(found: Comparison) -> str:
    """Names come from outside; the template engine escapes them."""
    return page(
        "comparison.html",
        runs=found.rows,
        overview=Table(RUNS, [_cells(row) for row in found.rows], STAR),
        alike=[(f"{like.attack}, {like.vantage}, {like.model} models", _beside(found, like)) for like in found.alike],
        notes=found.notes,
    )


def _beside(found: Comparison, like: Like) -> Table:
    rows = [(run, _risk(estimate), "") for run, estimate in like.risks.items()]
    rows += [
        (f"{gap.first} minus {gap.second}", *_difference(gap))
        for gap in found.differences
        if (gap.vantage, gap.attack, gap.model) == (like.vantage, like.attack, like.model)
    ]
    return Table(("run", "TPR at 1 % FPR", ""), rows)


def _cells(row: Row) -> tuple[str, ...]:
    most = ABSENT if row.allowed is None else f"{row.allowed:.3g}"
    epsilon = ABSENT if row.epsilon is None else f"{row.epsilon:.3g} ({row.unit})"
    epsilon += f"; per person: {row.per_person.text}" if row.per_person else ""
    star = "* " if row.best else ""
    return (star + row.run, row.defences, _span(row.accuracy), _span(row.risk), row.whose, epsilon, most)


def _span(span: Span | None) -> str:
    return span.text() if span else ABSENT


def _risk(e: Estimate) -> str:
    if e.value is None or e.low is None or e.high is None:
        return f"{ABSENT} ({e.reason})"
    return f"{e.value:.2%} ({e.low:.2%} to {e.high:.2%})"


def _difference(gap: Difference) -> tuple[str, str]:
    value = f"{100 * gap.value:+.2f} points ({100 * gap.low:+.2f} to {100 * gap.high:+.2f})"
    said = f"{gap.safer} is safer" if gap.safer else "not settled which is safer"
    return value, f"{said}; {gap.shared:,} of {gap.records:,} records in common"
