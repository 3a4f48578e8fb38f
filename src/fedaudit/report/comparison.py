"""The page of `fedaudit compare`: the runs, and like beside like. One HTML string with nothing to fetch, no script."""

import base64
import hashlib
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from fedaudit.results.alike import Difference
from fedaudit.results.compare import Comparison, Row, Span
from fedaudit.types import Estimate

ABSENT = "–"


def render(found: Comparison) -> str:
    """Names come from outside; the template engine escapes them."""
    assets = files("fedaudit.report")
    style = assets.joinpath("style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(assets.joinpath("comparison.html").read_text(encoding="utf-8"))
    return template.render(
        style=Markup(style),
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        runs=[_cells(row) for row in found.rows],
        alike=[
            (
                f"{like.attack}, {like.vantage}, {like.model} models",
                [(run, _risk(estimate)) for run, estimate in like.risks.items()],
                [(f"{each.run} minus {each.minus}", *_difference(each)) for each in like.differences],
            )
            for like in found.alike
        ],
        notes=found.notes,
    )


def _cells(row: Row) -> tuple[str, ...]:
    most = ABSENT if row.allowed is None else f"{row.allowed:.3g}"
    epsilon = ABSENT if row.epsilon is None else f"{row.epsilon:.3g} ({row.unit})"
    star = "* " if row.best else ""
    return (star + row.run, row.defences, _span(row.accuracy), _span(row.risk), row.whose, epsilon, most)


def _span(span: Span | None) -> str:
    return span.text() if span else ABSENT


def _risk(e: Estimate) -> str:
    if e.value is None or e.low is None or e.high is None:
        return f"{ABSENT} ({e.reason})"
    return f"{e.value:.2%} ({e.low:.2%} to {e.high:.2%})"


def _difference(each: Difference) -> tuple[str, str]:
    e = each.estimate
    how = f"{each.shared:,} of {each.of:,} records in common"
    if e is None or e.value is None or e.low is None or e.high is None:
        return f"{ABSENT} ({each.reason})", how
    return f"{100 * e.value:+.3g} points ({100 * e.low:+.3g} to {100 * e.high:+.3g})", how
