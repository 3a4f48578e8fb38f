"""Repeated runs: the mean over them stands beside the first run's figure, and it is said which is quoted."""

import re
from dataclasses import replace
from typing import Any

import pytest

from fedaudit.report import words
from fedaudit.report.charts import repeats as chart
from fedaudit.report.html import render
from fedaudit.report.sections import repeated
from fedaudit.results.document import Document, Repeat
from fedaudit.results.repeats import every_attack, spread_over
from fedaudit.stats import over_runs
from fedaudit.types import AuditResult, Cost, Estimate, Headline, ModelKind
from tests.report.builder import quotable, results

KINDS: tuple[ModelKind, ...] = ("local", "global")


def headline(vantage: Any, value: float) -> Headline:
    found = Estimate("auc", value, value - 0.03, value + 0.03, 0.95, "how", "measured", 100, 200)
    return Headline(vantage, "loss", "global", {"auc": found}, 1)


def test_every_vantage_has_its_mean_with_the_spread_over_runs() -> None:
    runs = [Repeat(s, [headline("client", 0.6 + 0.02 * s), headline("server", 0.7)]) for s in range(3)]
    found = {own.vantage: own.estimates["auc"] for own in spread_over(runs)}
    assert found["client"] == over_runs([run.headlines[0].estimates["auc"] for run in runs])
    assert found["client"].value == pytest.approx(0.62)
    widths = {vantage: (e.high or 0) - (e.low or 0) for vantage, e in found.items()}
    assert widths["server"] == pytest.approx(0.06)  # runs that do not differ add nothing
    assert widths["client"] > 0.08
    assert spread_over(runs[:1]) == []


def test_a_proved_bound_has_no_mean_over_runs() -> None:
    """Both runs have a bound; it must not be said that they have no value."""
    bound = Estimate("epsilon-one-run", 1.5, 1.5, None, 0.95, "coins", "proved", 50, 50, ceiling=3.0)
    one = headline("client", 0.6)
    runs = [Repeat(seed, [replace(one, estimates={**one.estimates, bound.name: bound})]) for seed in range(2)]
    assert [list(own.estimates) for own in spread_over(runs)] == [["auc"]]


def test_it_is_said_where_runs_quote_different_kinds_of_models() -> None:
    """A server quotes the stronger kind in each run: the mean is then over both, and must not pass for one of them."""
    runs = [Repeat(seed, [replace(headline("server", 0.6), model=model)]) for seed, model in enumerate(KINDS)]
    (found,) = spread_over(runs)
    told = "each run by what it quotes: loss on local models, loss on global models"
    assert found.estimates["auc"].method.endswith(told)
    document = Document.from_json(results())
    shown = replace(document, headlines=runs[0].headlines, run=replace(document.run, repeats=runs, over_runs=[found]))
    assert told in words.spread(quotable(shown.to_json()))[0]
    (alike,) = spread_over([runs[0], runs[0]])
    assert "quotes" not in alike.estimates["auc"].method


def test_page_and_terminal_say_which_run_is_quoted() -> None:
    document = Document.from_json(results())
    whole = replace(document, run=replace(document.run, over_runs=spread_over(document.run.repeats)))
    shown = quotable(whole.to_json())
    lines = words.spread(shown)
    assert "mean over runs" in lines[0]
    assert lines[-1].startswith("The sentences quote the run with seed 0 alone")
    figure = chart(shown, words.main_tpr(shown))
    assert figure is not None
    assert [row[0] for row in figure.table.rows].count("mean over runs") == len(whole.run.over_runs)
    assert "quote the run with seed 0 alone" in render(whole)
    assert Document.from_json(whole.to_json()).to_json() == whole.to_json()


# ------------------------------------------------------------------ every attack


def figure(name: str, value: float | None) -> Estimate:
    low, high = (None, None) if value is None else (value - 0.05, value + 0.05)
    return Estimate(name, value, low, high, 0.95, "how", "measured", 100, 200, reason=None if value else "why")


def entry(attack: str, figures: dict[str, float | None], party: str | None = None) -> AuditResult:
    found = {name: figure(name, value) for name, value in figures.items()}
    return AuditResult(attack, "client", "global", "record", party, round=3, estimates=found, cost=Cost(1.0))


def test_every_attack_has_its_mean_and_its_ends() -> None:
    runs = [
        [entry("loss", {"auc": a}), entry("loss", {"auc": 0.9}, "north"), entry("gap", {"auc": 0.5})]
        for a in (0.6, 0.7, 0.56)
    ]
    found = {one.attack: one for one in every_attack(runs)}
    assert found.keys() == {"loss", "gap"}  # and nothing for single parties
    loss = found["loss"]
    assert loss.estimates["auc"] == over_runs([run[0].estimates["auc"] for run in runs])
    assert (loss.runs, loss.smallest, loss.largest) == (3, {"auc": 0.56}, {"auc": 0.7})
    assert every_attack(runs[:1]) == []


def test_an_attack_that_lacks_a_run_says_so() -> None:
    runs = [
        [entry("loss", {"auc": 0.6}), entry("gap", {"auc": 0.5})],
        [entry("loss", {"auc": None})],
        [entry("loss", {"auc": 0.7})],
    ]
    loss, gap = every_attack(runs)
    assert loss.estimates["auc"].value == pytest.approx(0.65)
    assert "mean over 2 training runs" in loss.estimates["auc"].method
    assert (gap.runs, gap.estimates["auc"].value, gap.largest) == (1, None, {"auc": 0.5})
    assert gap.estimates["auc"].reason == "needs two runs that have a value, and there are 1"


def test_differences_may_be_negative_and_lengths_large() -> None:
    """What is no share is not cut at 0 or 1; what a run proves has no mean."""
    figures = {"excess-over-blind": (-0.2, 0.1), "canary-norm": (2.0, 5.0), "auc": (0.97, 0.99)}
    runs = [[entry("mixed", {name: pair[i] for name, pair in figures.items()})] for i in (0, 1)]
    bound = Estimate("epsilon-one-run", 1.5, 1.5, None, 0.95, "coins", "proved", 50, 50)
    runs = [[replace(one, estimates={**one.estimates, bound.name: bound})] for (one,) in runs]
    (found,) = every_attack(runs)
    assert bound.name not in found.estimates
    assert -1 <= (found.estimates["excess-over-blind"].low or 0) < -0.2
    assert (found.estimates["canary-norm"].high or 0) > 5
    assert found.estimates["auc"].high == 1
    assert every_attack([[replace(one, estimates={bound.name: bound})] for (one,) in runs]) == []


def test_the_page_lists_every_attack_over_the_runs() -> None:
    document = Document.from_json(results())
    runs = [document.results, [replace(one, round=9) for one in document.results]]
    whole = replace(document, run=replace(document.run, attacks_over_runs=every_attack(runs)))
    assert Document.from_json(whole.to_json()).to_json() == whole.to_json()
    shown = list(repeated(quotable(whole.to_json())))
    pooled = [one for one in document.results if one.party is None]
    assert [(row.attack, row.measure) for row in shown if row.main] == [
        (one.attack, "TPR at 1 % FPR" if "tpr@0.01" in one.estimates else "AUC") for one in pooled
    ]
    page = render(whole)
    assert "Every attack over the runs" in page
    told = re.sub("<[^>]+>", "", page).replace("\u00a0", " ")
    assert all(str(row.mean) in told for row in shown)
    assert "Every attack over the runs" not in render(document)


def test_a_mean_over_runs_has_no_corrected_confidence() -> None:
    """A run that quotes another attack than the primary one has a wider interval, by how many were run."""
    e = Estimate("auc", 0.6, 0.5, 0.7, 0.9996, "", "measured", 100, 100)
    plain = replace(e, low=0.55, high=0.65, confidence=0.95)
    other = Headline("client", "loss", "global", {"auc": e}, 34, primary="matched-filter")
    primary = Headline("client", "matched-filter", "global", {"auc": plain}, 1)
    for quoted in ([other, primary, primary], [primary, other, other], [other, other, other]):
        (found,) = spread_over([Repeat(seed, [headline]) for seed, headline in enumerate(quoted)])
        assert found.estimates["auc"].confidence == 0.95
        assert 0.5 < (found.estimates["auc"].low or 0.0) < 0.58
