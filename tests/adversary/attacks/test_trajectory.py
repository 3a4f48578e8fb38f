"""The free-training attacks, against least squares done the slow way."""

from collections.abc import Iterable

import numpy as np
import pytest

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.attacks.trajectory import FTA, SIGN, BackFront, Delta, FedLoss, Followed, LastLoss, Slope
from fedaudit.types import Floats, Moment


def polyfit_slope(series: Floats, rounds: list[int], degree: int = 1) -> Floats:
    return np.array([np.polyfit(rounds, row, degree)[0] for row in series])


def observed(attack: BaseAttack, series: Floats, rounds: Iterable[int], signal: str = "loss") -> Floats:
    reduction = attack.reduce(len(series))
    for column, round in enumerate(rounds):
        reduction.observe(Moment(round), {signal: series[:, column]})
    return attack.score(reduction.features())


@pytest.mark.parametrize("metric", ["loss", "confidence", "logit"])
@pytest.mark.parametrize("rounds", [[1, 2], list(range(1, 41)), [3, 4, 9, 17, 18, 40]])
def test_streamed_slope_equals_polyfit(metric: Followed, rounds: list[int]) -> None:
    series = np.random.default_rng(0).normal(size=(20, len(rounds)))
    found = observed(FTA(metric), series, rounds, metric)
    assert found == pytest.approx(SIGN[metric] * polyfit_slope(series, rounds), abs=1e-10)


@pytest.mark.parametrize("degree", [2, 3, 4])
@pytest.mark.parametrize("rounds", [[1, 2, 3, 4, 5], list(range(1, 41)), [3, 4, 9, 17, 18, 40]])
def test_higher_degrees_equal_polyfit(degree: int, rounds: list[int]) -> None:
    series = np.random.default_rng(0).normal(size=(20, len(rounds)))
    expected = (-1) ** (degree - 1) * polyfit_slope(series, rounds, degree)
    assert observed(FTA("logit", degree), series, rounds, "logit") == pytest.approx(expected, rel=1e-9)


def test_a_quartic_survives_a_thousand_rounds() -> None:
    """The normal equations hold numbers up to 1e27; solved exactly, the coefficient still comes out."""
    u = np.arange(1, 1001, dtype=np.float64)
    truth = np.array([1e-9, 2e-9, -3e-9])
    series = truth[:, None] * (u - 400) ** 4 + 5 * u + 7
    assert observed(FTA("logit", 4), series, range(1, 1001), "logit") == pytest.approx(-truth, rel=1e-9)


def test_the_printed_weights_are_an_option() -> None:
    series = np.random.default_rng(1).uniform(size=(5, 30))
    t, u = 30, np.arange(1, 31)
    weights = 6 * (2 * t * u - t**2 + 1) / (t**4 - t**2)
    found = observed(FTA("confidence", weights="printed"), series, u.tolist(), "confidence")
    assert found == pytest.approx(series @ weights, abs=1e-13)


def test_printed_weights_and_least_squares_agree_as_rounds_grow() -> None:
    """They differ by 6 mean(c) / (t (t - 1)): a constant series has a slope at first, and almost none in the end."""
    series = np.random.default_rng(1).uniform(size=(5, 1000))
    apart = []
    for t in (10, 100, 1000):
        printed = observed(FTA("confidence", weights="printed"), series[:, :t], range(1, t + 1), "confidence")
        plain = observed(FTA("confidence"), series[:, :t], range(1, t + 1), "confidence")
        assert printed - plain == pytest.approx(6 * series[:, :t].mean(axis=1) / (t * (t - 1)), abs=1e-12)
        apart.append(np.abs(printed - plain).max())
    assert apart[0] > 50 * apart[1] > 2500 * apart[2]


def test_slope_equals_the_closed_form_without_gaps() -> None:
    t = 25
    series = np.random.default_rng(1).normal(size=(5, t))
    u = np.arange(1, t + 1)
    weights = 6 * (2 * u - t - 1) / (t * (t**2 - 1))
    reduction = Slope("loss", 1.0, 5)
    for round in u:
        reduction.observe(Moment(int(round)), {"loss": series[:, round - 1]})
    assert reduction.features()[:, 0] == pytest.approx(series @ weights, abs=1e-12)


def test_ranks_hold_over_a_thousand_rounds() -> None:
    """Series that differ by little: sums in float32 would confuse their order."""
    slopes = 1e-7 * np.arange(50, dtype=np.float64)
    reduction = Slope("loss", 1.0, 50)
    for round in range(1, 1001):
        reduction.observe(Moment(round), {"loss": 100 + slopes * round})
    assert np.all(np.diff(reduction.features()[:, 0]) > 0)


@pytest.mark.parametrize("attack", [FTA("loss"), FTA("loss", weights="printed"), BackFront("diff"), Delta("ratio")])
def test_one_round_has_no_slope(attack: BaseAttack) -> None:
    assert np.isnan(observed(attack, np.ones((3, 1)), [1])).all()
    assert np.isfinite(observed(attack, np.ones((3, 2)), [1, 5])).all()


def test_two_rounds_have_no_curvature() -> None:
    assert np.isnan(observed(FTA("loss", 2), np.ones((3, 2)), [1, 2])).all()


def test_loss_baselines_equal_their_definitions() -> None:
    series = np.random.default_rng(2).exponential(size=(40, 12))
    rounds = [1, 2, 5, 6, 7, 9, 10, 14, 15, 16, 18, 20]  # with gaps
    drops, ratios = series[:, :-1] - series[:, 1:], series[:, :-1] / series[:, 1:]
    expected = {
        FedLoss(): -series.mean(axis=1),
        LastLoss(): -series[:, -1],
        BackFront("diff"): series[:, 0] - series[:, -1],
        BackFront("ratio"): np.log(series[:, 0] / series[:, -1]),
        Delta("diff"): drops.max(axis=1),
        Delta("ratio"): np.log(ratios.max(axis=1)),
    }
    for attack, scores in expected.items():
        assert observed(attack, series, rounds) == pytest.approx(scores, abs=1e-12), attack.name


@pytest.mark.parametrize("attack", [BackFront("ratio"), Delta("ratio")])
def test_a_ratio_with_a_loss_of_zero_is_a_number(attack: BaseAttack) -> None:
    series = np.array([[1.0, 0.5, 0.0], [1.0, 0.5, 1e-30], [0.0, 0.0, 0.0]])
    found = observed(attack, series, [1, 2, 3])
    assert np.isfinite(found).all()
    assert found[0] > found[1] > found[2] == 0


def test_a_constant_series_has_slope_zero() -> None:
    reduction = FTA("confidence").reduce(1)
    for round in range(1, 30):
        reduction.observe(Moment(round), {"confidence": np.array([0.7])})
    assert reduction.features()[0, 0] == pytest.approx(0, abs=1e-15)
