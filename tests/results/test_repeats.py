"""Repeated runs: the mean over them stands beside the first run's figure, and it is said which is quoted."""

from dataclasses import replace
from typing import Any

import pytest

from fedaudit.report import words
from fedaudit.report.charts import repeats as chart
from fedaudit.report.html import render
from fedaudit.results.document import Document, Repeat
from fedaudit.results.repeats import spread_over
from fedaudit.stats import over_runs
from fedaudit.types import Estimate, Headline, ModelKind
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
