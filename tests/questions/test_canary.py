"""What the room of the canaries decides in a line or two: its plan and its part of the page."""

import re

import numpy as np
import pytest

from fedaudit.config.schema import parse
from fedaudit.defences.shared import Defence
from fedaudit.questions.canary.panel import MOST_FEATURES, _crafted_row, _picture, _scores
from fedaudit.questions.canary.plan import claim_of
from fedaudit.session.prepare import stage
from fedaudit.types import AuditResult, Cost, Curve, Exhibit


def test_without_an_accountant_delta_is_one_in_a_hundred_thousand() -> None:
    game = stage(parse({"data": {"name": "digits"}, "federation": {"parties": 2}})).game
    claim = claim_of(game, Defence("none"))
    assert (claim.delta, claim.clip, claim.process) == (1e-5, None, None)


def test_the_axis_of_counts_begins_at_none() -> None:
    counted = Curve([0.0, 1.0], [1.0, 1.0], [None, None], [None, None], "counted")
    curves = {"scores-with": counted, "scores-without": counted}
    shown = _scores(
        AuditResult(
            "canife", "secagg-server", "global", "user", None, round=2, estimates={}, cost=Cost(0.0), curves=curves
        )
    )
    assert shown is not None
    assert "0.0" in re.findall(r">([\d.,]+)</text>", str(shown.svg))


@pytest.mark.parametrize(("channels", "drawn"), [(1, True), (2, False), (3, True)])
def test_a_canary_is_drawn_in_grey_or_in_colours(channels: int, drawn: bool) -> None:
    values = np.arange(channels * 4, dtype=float).tolist()
    picture = _picture(Exhibit("image", (channels, 2, 2), values, "", "0"))
    assert (picture is not None) == drawn
    if picture is not None:
        assert str(picture).count("<rect") == 4
        assert ('fill="#555555"' in str(picture)) == (channels == 1)  # a third of the range, alike in all colours


@pytest.mark.parametrize(("features", "rest"), [(3, ""), (20, ""), (21, " 1 more is not shown."), (90, " 70 more are")])
def test_a_crafted_row_of_a_table_is_shown_by_its_most_unusual_values(features: int, rest: str) -> None:
    rng = np.random.default_rng(0)
    values, deviations = rng.normal(size=features).tolist(), rng.permutation(features) - features / 2
    names = ["age", "income"]
    shown = _crafted_row(Exhibit("values", [features], values, "", "1", names=names, deviations=deviations.tolist()))
    assert shown is not None
    first = int(np.argmax(np.abs(deviations)))
    named = names[first] if first < 2 else f"feature {first + 1}"
    assert [*shown.rows[0]] == [named, f"{values[first]:.4g}", f"{deviations[first]:+.3g}"]
    sizes = [abs(float(row[2])) for row in shown.rows]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == min(features, MOST_FEATURES)
    assert (" not shown" in shown.note) == bool(rest)
    assert rest in shown.note
    assert features > 3 or {"age", "income", "feature 3"} == {row[0] for row in shown.rows}


def test_of_other_canaries_no_row_is_shown() -> None:
    assert _crafted_row(Exhibit("image", [1, 1, 2], [0.0, 1.0], "", "1")) is None
