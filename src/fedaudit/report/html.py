"""The page: one HTML string with nothing to fetch. What it shows is decided in `sections`, `panels` and `charts`."""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from fedaudit.files import write_atomically
from fedaudit.report import charts, helps, panels, sections, trajectories, words
from fedaudit.report.answers import answers
from fedaudit.report.values import Results, cleaned
from fedaudit.results.document import Document
from fedaudit.words.headlines import quoted_rate

if TYPE_CHECKING:
    from fedaudit.results.advice import Advice  # which needs scipy


def render(document: Document, brief: bool = False, advice: "Advice | None" = None) -> str:
    """The report of one audit. Strings from outside are cleaned here and escaped by the template engine. `brief`: two
    printed pages, with the verdict, one chart, and what an assessment asks. `advice`: what was tried to lower the risk.
    """
    results = cleaned(document)
    return page("template.html", brief=brief, **(_brief(results, advice) if brief else _view(results, advice)))


SCRIPTS = ("tooltip.js", "sorting.js")
LIVE = (*SCRIPTS, "live.js")  # of a page that `fedaudit serve` keeps up to date


def page(template: str, scripts: Sequence[str] = SCRIPTS, **view: Any) -> str:
    """A page with our style, our scripts and a policy that allows nothing else."""
    style, script = _asset("style.css"), _joined(scripts)
    return _template(template).render(
        style=Markup(style), script=Markup(script), policy=policy(scripts), **view
    )  # fmt: skip


def fragment(template: str, **view: Any) -> str:
    """A part of a page."""
    return _template(template).render(**view).strip()


def _joined(scripts: Sequence[str]) -> str:
    return "".join(map(_asset, scripts))


def write(document: Document, path: Path, brief: bool = False, advice: "Advice | None" = None) -> None:
    """Writes the report to a file, atomically: a reader sees the old page or the new one."""
    write_atomically(path, render(document, brief, advice))


def _view(results: Results, advice: "Advice | None") -> dict[str, Any]:
    found, name = words.findings(results), words.main_tpr(results)
    drawn = words.drawn(results, found)
    asked = sections.of_questions(results)
    titles = {f.vantage: words.adversary(f.vantage) for f in found}
    return {
        "name": results.run.name or "federation",
        "facts": sections.facts(results),
        "tone": sections.tone(results, found),
        "preface": words.preface(results),
        "understates": results.understates,
        "beside_findings": words.beside_findings(results),
        "summed_up": words.summed_up(results),
        "findings": [(titles[f.vantage], f, sections.tiles(f, quoted_rate(f.headline, name))) for f in found],
        "adversaries": sections.who_looks(results, found),
        "people": sections.holds(results),
        "matrix": sections.matrix(results, name),
        "beside": sections.beside(results, name),
        "glossary": sections.glossary(results),
        "grades": sections.grades() if found else None,
        "roc": charts.roc(drawn, results),
        "rounds": charts.over_rounds(drawn, name),
        "trajectories": trajectories.section(results),
        "parties": [*charts.side_by_side(results, drawn, name), *charts.spread(results, drawn, name)],
        "heat": charts.heat(results, name),
        "first": [section for section in asked if section.first],
        "sections": [*(s for s in asked if not s.first), *panels.lower_half(results, found, name)],
        "helps": [*helps.tried(advice), *helps.helps(results, found, name)],
        "answers": answers(results, found),
        "limits": sections.limits(results, found),
        "recipe": sections.recipe(results),
        "warnings": words.warnings(results),
        "notices": sections.other_notices(results),
    }


# What the summary leaves to the report: by the name of the view, what stands there instead.
LEFT_OUT: dict[str, Any] = {
    **dict.fromkeys(("adversaries", "rounds", "trajectories", "parties", "heat", "sections", "notices", "limits"), ()),
    **dict.fromkeys(("matrix", "beside", "glossary", "grades", "recipe"), None),
}


def _brief(results: Results, advice: "Advice | None") -> dict[str, Any]:
    """The headlines without their details; of what would help, the first three."""
    view = _view(results, advice) | LEFT_OUT
    bare = [
        (who, replace(found, headline=replace(found.headline, details=())), tiles)
        for who, found, tiles in view["findings"]
    ]
    return view | {"findings": bare, "helps": view["helps"][:3]}


def policy(scripts: Sequence[str] = SCRIPTS) -> str:
    """The content security policy: only this page's own style and script are allowed, and nothing is fetched; by a live
    page, from where it came."""
    style, script = _digest(_asset("style.css")), _digest(_joined(scripts))
    allowed = f"default-src 'none'; style-src '{style}'; script-src '{script}'; base-uri 'none'; "
    return allowed + ("connect-src 'self'; form-action 'self'" if "live.js" in scripts else "form-action 'none'")


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _tight(sentence: str) -> Markup:
    """Keeps a number and its unit together, and an interval on one line."""
    safe = str(escape(sentence)).replace(" %", "\u00a0%")
    return Markup(re.sub(r"[\d.]+–[\d.]+", r'<span class="whole">\g<0></span>', safe))


def _whole(cell: str) -> Markup:
    """The same for a cell of a table, whose text is not changed: it may be copied."""
    return Markup(re.sub(r"[\d.]+ %|[\d.]+–[\d.]+", r'<span class="whole">\g<0></span>', str(escape(cell))))


@cache
def _asset(name: str) -> str:
    return files("fedaudit.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _template(name: str) -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(tight=_tight, whole=_whole)
    return environment.from_string(_asset("macros.html") + _asset(name))
