"""Rules of a line or two that larger tests run through without noticing what they decide."""

import numpy as np
import pytest

from fedaudit.adversary.attacks import made
from fedaudit.audit import Settings
from fedaudit.audit.case import OverRounds
from fedaudit.audit.controls import share_right
from fedaudit.audit.score import usual_of
from fedaudit.privacy.statement import Process
from fedaudit.questions import MINUS, metric
from fedaudit.questions.attribute.judge import _finding
from fedaudit.questions.canary.judge import _accountant
from fedaudit.questions.canary.watch import Mechanism
from fedaudit.stats.gaussian import gaussian_epsilon
from fedaudit.types import Candidates, Estimate, Game, Records, Role, Truth, Vantage


def test_with_too_few_people_none_is_known() -> None:
    assert usual_of(1, 1) == 0
    assert usual_of(1_000, 0) == 0


def test_the_error_is_shared_among_rounds_and_then_among_attacks() -> None:
    settings = Settings(vantages=(Vantage.CLIENT,), attacks=[made("loss")], rounds=10, confidence=0.9)
    alone, several = settings.shares(1, 0), settings.shares(5, 1)
    assert alone.primary == pytest.approx(1 - 0.1 / 10)
    assert several.primary == pytest.approx(1 - 0.1 / 10 / 2)
    assert several.other == pytest.approx(1 - 0.1 / 10 / 2 / 4)
    assert settings.shares(5, 2).primary == pytest.approx(1 - 0.1 / 10 / 2 / 2)  # two limits, two leading attacks
    assert settings.shares(3, 9).primary == pytest.approx(1 - 0.1 / 10 / 3)  # never more than there are


def test_a_band_counts_people_where_there_are_people_and_records_otherwise() -> None:
    ids = np.array(["a", "b", "c", "d"])
    party, owner = np.array(["p"] * 4), np.arange(4)
    truth = Truth(ids, np.array([Role.MEMBER.value] * 4))
    for subject, units in ((None, 4), (np.array(["x", "x", "y", "z"]), 3)):
        rows = Records(np.zeros((4, 2), np.float32), np.zeros(4, np.int64), ids, subject)
        game = Game(Candidates("record", ids, party, rows, owner, subject=subject), truth)
        assert OverRounds(game, 2, 0.95, ["auc"]).units == units


def test_a_record_with_one_label_counts_once() -> None:
    found = share_right(np.array([True, False, True, True]), np.arange(4), "record", 0.95)
    assert found.value == 0.75
    assert "positions" not in found.method
    several = share_right(np.array([[True, False], [True, True]]), np.arange(2), "record", 0.95)
    assert several.value == 0.75
    assert "2 positions a record" in several.method


def estimate(low: float | None, high: float | None) -> Estimate:
    return Estimate("accuracy", 0.5, low, high, 0.95, "", "measured", 10, 10)


@pytest.mark.parametrize(
    ("excess", "gap", "attack", "finding"),
    [
        ((0.1, 0.2), (None, None), 0.6, "no-comparison"),
        ((0.1, 0.2), (0.1, 0.2), None, "at-chance"),
        ((0.1, 0.2), (0.1, 0.2), 0.5, "at-chance"),  # at chance exactly is no better than chance
        ((0.1, 0.2), (0.1, 0.2), 0.51, "revealed"),
        ((0.0, 0.2), (0.1, 0.2), 0.51, "trace"),
        ((-0.2, -0.1), (0.0, 0.2), 0.51, "blind-is-better"),
        ((-0.2, 0.0), (0.0, 0.2), 0.51, "neither"),
        ((0.0, 0.2), (0.0, 0.2), 0.51, "neither"),
        ((0.1, 0.2), (0.0, 0.2), 0.51, "of-everybody"),
    ],
)
def test_what_is_said_of_an_attribute(
    excess: tuple[float, float], gap: tuple[float | None, float | None], attack: float | None, finding: str
) -> None:
    assert _finding(estimate(*excess), estimate(*gap), estimate(attack, 0.9)) == finding


def test_a_difference_lies_between_minus_one_and_one() -> None:
    of_difference = metric("auc" + MINUS)
    assert (of_difference.least, of_difference.most, of_difference.chance) == (-1.0, 1.0, 0.0)
    assert not of_difference.gated


def test_the_claim_of_one_round_is_that_of_its_noise() -> None:
    claim = Mechanism(1e-5, process=Process("user", 2.0, 1, "poisson", 0.5))
    found = _accountant(claim, 3, 0.95)
    assert found["epsilon-accountant-round"].value == pytest.approx(gaussian_epsilon(0.5, 1e-5))
    assert _accountant(claim, 0, 0.95) == {}
