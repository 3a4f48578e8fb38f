"""What the room of the canaries decides in a line or two: its plan and its part of the page."""

import re

import numpy as np
import pytest

from fedaudit.config.schema import parse
from fedaudit.defences.shared import Defence
from fedaudit.questions.canary.panel import _picture, _scores
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
