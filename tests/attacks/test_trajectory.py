"""The free-training attacks, against least squares done the slow way."""

import numpy as np
import pytest

from fedaudit.attacks.trajectory import FTA, SIGN, Slope
from fedaudit.types import Floats


def polyfit_slope(series: Floats, rounds: list[int]) -> Floats:
    return np.array([np.polyfit(rounds, row, 1)[0] for row in series])


@pytest.mark.parametrize("metric", ["loss", "confidence", "logit"])
@pytest.mark.parametrize("rounds", [[1, 2], list(range(1, 41)), [3, 4, 9, 17, 18, 40]])
def test_streamed_slope_equals_polyfit(metric: str, rounds: list[int]) -> None:
    series = np.random.default_rng(0).normal(size=(20, len(rounds)))
    attack = FTA(metric)
    reduction = attack.reduce(20)
    for column, round in enumerate(rounds):
        reduction.observe(round, {metric: series[:, column]})
    assert attack.score(reduction.features()) == pytest.approx(SIGN[metric] * polyfit_slope(series, rounds), abs=1e-10)


def test_slope_equals_the_closed_form_without_gaps() -> None:
    t = 25
    series = np.random.default_rng(1).normal(size=(5, t))
    u = np.arange(1, t + 1)
    weights = 6 * (2 * u - t - 1) / (t * (t**2 - 1))
    reduction = Slope("loss", 1.0, 5)
    for round in u:
        reduction.observe(int(round), {"loss": series[:, round - 1]})
    assert reduction.features()[:, 0] == pytest.approx(series @ weights, abs=1e-12)


def test_ranks_hold_over_a_thousand_rounds() -> None:
    """Series that differ by little: sums in float32 would confuse their order."""
    slopes = 1e-7 * np.arange(50, dtype=np.float64)
    reduction = Slope("loss", 1.0, 50)
    for round in range(1, 1001):
        reduction.observe(round, {"loss": 100 + slopes * round})
    assert np.all(np.diff(reduction.features()[:, 0]) > 0)


def test_one_round_has_no_slope() -> None:
    reduction = FTA("loss").reduce(3)
    reduction.observe(1, {"loss": np.ones(3)})
    assert np.isnan(reduction.features()).all()


def test_a_constant_series_has_slope_zero() -> None:
    reduction = FTA("confidence").reduce(1)
    for round in range(1, 30):
        reduction.observe(round, {"confidence": np.array([0.7])})
    assert reduction.features()[0, 0] == pytest.approx(0, abs=1e-15)
