"""The report in other forms, its summary, and the page of a comparison."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from fedaudit.report import html
from fedaudit.report.formats import FORMATS, junit, markdown
from fedaudit.report.pages import comparison_page
from fedaudit.results.compare import ComparedRun, Comparison, Difference, Span
from fedaudit.results.document import Failure, save
from fedaudit.stats.strongest import allowed
from tests.command import fedaudit
from tests.report import builder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    save(builder.read(builder.results(parties=3, attacks=5)), tmp_path)
    return tmp_path


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_is_written_and_says_the_verdict(run: Path, form: str) -> None:
    done = fedaudit("report", str(run), "--format", form, cwd=run)
    assert done.returncode == 0, done.stderr
    name, _ = FORMATS[form]
    text = (run / name).read_text()
    document = builder.read(builder.results(parties=3, attacks=5))
    sentence = document.headlines[0].sentence
    if form == "md":
        assert sentence[:40] in text
    if form == "json":
        assert json.loads(text)["findings"][0]["sentence"] == sentence
    if form == "junit":
        suite = Xml.fromstring(text)
        assert [case.get("name") for case in suite] == [h.vantage for h in document.headlines]
        assert suite.get("failures") == str(sum(h.tone in ("found", "weak") for h in document.headlines))
    if form == "csv":
        lines = list(csv.DictReader(text.splitlines()))
        pooled = [e for e in document.results if e.party is None]
        assert len(lines) == sum(len(e.estimates) for e in pooled)


def test_an_unknown_form_is_refused_with_a_suggestion(run: Path) -> None:
    done = fedaudit("report", str(run), "--format", "jsn", cwd=run)
    assert done.returncode == 2
    assert "json" in done.stderr


def test_names_cannot_make_markup() -> None:
    plain = builder.results()
    plain["run"]["name"] = "<img src=x> [a](b) | `c`"
    text = markdown(builder.read(plain))
    assert r"\<img src=x\> \[a\](b) \| \`c\`" in text


def test_what_is_not_settled_does_not_pass_in_a_pipeline() -> None:
    plain = builder.results()
    for headline in plain["headlines"]:
        headline["tone"], headline["sentence"] = "unknown", "It is not settled."
    suite = Xml.fromstring(junit(builder.read(plain)))
    assert suite.get("errors") == suite.get("tests") != "0"


def test_an_audit_that_is_not_whole_is_never_green_in_a_pipeline() -> None:
    plain = builder.results()
    for headline in plain["headlines"]:
        headline["tone"] = "none"
    whole = replace(builder.read(plain), degraded=(), failed=(), understates=())
    whole = replace(whole, run=replace(whole.run, ended="complete"))
    assert Xml.fromstring(junit(whole)).get("errors") == "0"
    for lacking in (
        replace(whole, headlines=(), results=()),
        replace(whole, run=replace(whole.run, ended="interrupted")),
        replace(whole, degraded=("loss",), failed=(Failure("loss", "x"),)),
        replace(whole, understates=("Half of the records are copies.",)),
    ):
        suite = Xml.fromstring(junit(lacking))
        assert (suite.get("errors"), suite.get("tests")) == ("1", str(len(suite)))
        assert [case.get("name") for case in suite if case.find("error") is not None] == ["audit"]


def test_a_pipeline_is_told_that_the_model_has_not_learnt() -> None:
    said = "The model has not learnt, as far as these records show."
    suite = Xml.fromstring(junit(replace(builder.read(builder.results()), useless=said)))
    assert [said in (case.findtext("system-out") or "") for case in suite if case.get("name") != "audit"] == [
        True
    ] * len(builder.read(builder.results()).headlines)


# ------------------------------------------------------------------ the summary


def test_the_summary_has_the_verdict_and_the_answers_and_leaves_out_the_rest() -> None:
    document = builder.read(builder.results(parties=3, attacks=5))
    brief = html.render(document, brief=True)
    for part in ('id="verdict"', 'id="roc"', 'id="answers"'):
        assert part in brief
    for part in ('id="attacks"', 'id="parties"', 'id="reproduce"', "<nav"):
        assert part in html.render(document)
        assert part not in brief


# ------------------------------------------------------------------ what a claim allows, on the ROC curve


def test_the_most_that_epsilon_allows_is_a_line_of_the_chart() -> None:
    document = builder.read(builder.results())
    claim = document.run.guarantee
    assert claim is not None
    assert claim.binding is not None
    page = html.render(document).replace("\u00a0", " ")
    assert f"the most that epsilon {claim.binding:.3g}" in page
    assert 'class="line claim"' in page
    most = allowed(claim.binding, claim.delta, 1.0)
    assert most == 1.0
    plain = builder.results()
    plain["run"]["guarantee"] = None
    assert 'class="line claim"' not in html.render(builder.read(plain))


# ------------------------------------------------------------------ the page of a comparison


def compared(safer: str | None) -> Comparison:
    def row(name: str, risk: float, best: bool) -> ComparedRun:
        span = Span(risk, risk - 0.02, risk + 0.02)
        return ComparedRun(
            run=name, defences="none", accuracy=Span(0.8, 0.7, 0.9), risk=span, whose="client", risks={"client": span},
            unit=None, epsilon=None, delta=None, allowed=None, best=best,
        )  # fmt: skip

    gap = Difference(
        first="plain", second="private", vantage="client", attack="loss", model="global", value=0.2, low=0.15,
        high=0.25, confidence=0.95, method="paired", safer=safer, shared=900, records=1000, metric="tpr@0.01",
    )  # fmt: skip
    rows = [row("plain", 0.3, False), row("private", 0.1, True)]
    return Comparison(schema=1, risk="tpr@0.01", rows=rows, notes=(), differences=[gap])


def test_a_comparison_begins_with_a_verdict_and_a_chart() -> None:
    page = comparison_page(compared("private")).replace("\u00a0", " ")
    assert "private is safer than plain: TPR at 1 % FPR of loss, client, global models differs by" in re.sub(
        "<.*?>", "", page
    )
    assert "No other run is better in both accuracy and risk than private." in page
    assert page.index("is safer than") < page.index("<svg") < page.index("Like beside like")


def test_what_is_not_settled_is_not_called_safer() -> None:
    page = comparison_page(compared(None))
    assert "It is not settled which of these runs is safer." in page
    assert " is safer than" not in page
