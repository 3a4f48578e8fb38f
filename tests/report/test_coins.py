"""The panel of fair coins: what was proved beside what is claimed, and only where both are about the same unit."""

from typing import Any

from fedaudit.questions.coins import QUESTION
from fedaudit.report.html import render
from tests.report.builder import quotable, read, results


def panel_of(found: Any) -> Any:
    (section,) = QUESTION.sections(found)
    (panel,) = section.panels
    return panel


def with_coins(bound: float | None, **federation: Any) -> Any:
    """Results of a run with coins in which every headline proved this bound; its claim is epsilon 4 for a record."""
    found = results()
    found["run"]["config"] = {"federation": {"coins": True, **federation}}
    estimate = {
        "value": bound, "low": bound, "high": None, "confidence": 0.975, "method": "right guesses about 890 fair coins",
        "kind": "proved", "n_pos": 450, "n_neg": 440, "reason": None if bound is not None else "not fair",
        "ceiling": 5.1,
    }  # fmt: skip
    for entry in [*found["headlines"], *(row for row in found["results"] if row["party"] is None)]:
        entry["estimates"] = entry["estimates"] | {"epsilon-one-run": estimate}
    return found


def test_a_run_without_coins_has_no_panel() -> None:
    assert not QUESTION.sections(quotable(results()))
    assert 'id="coins"' not in render(read(results()))


def test_the_bound_stands_beside_the_claim() -> None:
    panel = panel_of(quotable(with_coins(1.25)))
    assert panel is not None
    ((_, table),) = panel.tables
    assert [row[3:8] for row in table.rows] == [["1.25", "5.10", "4 at delta 1e-05", "890", "97.5 %"]] * 2
    assert "It lies below what is claimed" in panel.lead
    assert panel.tone == ""
    page = render(read(with_coins(1.25)))
    assert '<section id="coins">' in page
    assert "1.250 or more" in page  # in the table of all estimates it has an interval, too


def test_a_refuted_claim_is_said_to_be_refuted() -> None:
    panel = panel_of(quotable(with_coins(4.5)))
    assert panel is not None
    assert "is refuted" in panel.lead
    assert panel.tone == "warn"


def test_a_claim_about_another_unit_is_not_compared() -> None:
    panel = panel_of(quotable(with_coins(4.5, partition="subjects")))
    assert panel is not None
    assert "There is no claim about one person" in panel.lead
    assert {row[5] for row in panel.tables[0][1].rows} == {"–"}


def test_no_value_is_a_dash_with_its_reason() -> None:
    panel = panel_of(quotable(with_coins(None)))
    assert panel is not None
    assert {row[3] for row in panel.tables[0][1].rows} == {"– (not fair)"}
