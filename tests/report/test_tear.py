"""The panel on an adversary who sees only labels."""

from dataclasses import replace
from typing import Any

from fedaudit.questions.record import QUESTION
from fedaudit.report.html import render
from fedaudit.report.panels import labels_only
from fedaudit.report.values import cleaned
from fedaudit.stats.wording import DECISIONS, full_text
from fedaudit.types import Cost, Curve
from tests.report.builder import minimal, read


def with_labels(**curves: Curve) -> Any:
    """The builder's document; its first result cost labels."""
    whole = read(minimal())
    first, *rest = whole.results
    first = replace(first, party=None, cost=Cost(1.0, 512.0), curves={**first.curves, **curves})
    return replace(whole, results=[first, *rest])


def curve(*values: float | None) -> Curve:
    lows = [None if v is None else v - 0.05 for v in values]
    highs = [None if v is None else v + 0.05 for v in values]
    return Curve([float(i + 1) for i in range(len(values))], values, lows, highs, "made up")


def test_without_labels_there_is_no_panel() -> None:
    plain = read(minimal())
    assert labels_only(cleaned(plain)) is None
    assert 'id="labels-only"' not in render(plain)


def test_distances_accuracy_and_queries_are_shown() -> None:
    shown = with_labels(
        **{"distance-members": curve(1.0, 2.0, 3.0), "distance-nonmembers": curve(0.9, None, 1.4)},
        accuracy=curve(0.55, 0.6, 0.7),
        queries=curve(100.0, 200.0, 300.0),
    )
    panel = labels_only(cleaned(shown))
    assert panel is not None
    assert [figure.heading for figure in panel.figures] == [
        "Distance to the decision boundary over the rounds",
        "Accuracy against queries",
    ]
    assert panel.tables[0][1].rows[0][1] == "512"
    assert panel.figures[1].table.rows[-1][0] == "300"
    page = render(shown)
    assert 'id="labels-only"' in page
    assert "labels asked per record" in page


def test_a_single_round_has_no_curve_and_the_table_remains() -> None:
    panel = labels_only(cleaned(with_labels()))
    assert panel is not None
    assert panel.figures == []
    assert len(panel.tables[0][1].rows) == 1


def test_what_an_adversary_decided_is_a_table_of_its_own() -> None:
    whole = read(minimal())
    assert 'id="decisions"' not in render(whole)
    first, *rest = whole.results
    decided = {name: replace(first.estimates["auc"], name=name, value=0.7, low=0.6, high=0.8) for name in DECISIONS}
    first = replace(first, party=None, estimates={**first.estimates, **decided})
    shown = replace(whole, results=[first, *rest])
    assert 'id="decisions"' in render(shown)
    ((_, table),) = QUESTION.sections(cleaned(shown))[0].panels[0].tables
    assert table.head[2:] == ("accuracy", "precision", "recall", "F1")
    assert [row[2:] for row in table.rows] == [[full_text("precision", decided[name]) for name in DECISIONS]]
