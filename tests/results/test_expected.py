"""The map as a formula: it is fitted as it says, measured federations lie in its ranges, and it says nothing beyond."""

import numpy as np
import pytest
from scipy.stats import norm

from docs import make_matched_formula as formula
from docs.make_matched_formula import Point
from fedaudit.results import expected as rule
from fedaudit.results.expected import DATA, LIKE, MANY, FederationShape, expected

NINETY_NINE = norm.ppf(0.99)
DEMO = FederationShape(weights=49.0, members=6260, rounds=40)


def test_the_constants_are_those_of_the_fit() -> None:
    constant, *powers = formula.exponents()
    assert powers == pytest.approx([rule.WEIGHTS, rule.MEMBERS, rule.ROUNDS], abs=0.006)
    assert constant == pytest.approx(DATA[LIKE], abs=0.01)
    found = formula.by_data()
    assert {data: found[data] for data in DATA} == pytest.approx(dict(DATA), rel=0.06)


def test_a_share_by_hand() -> None:
    """The formula as its page has it."""
    d = 0.93 * 49**0.37 * 6.26**-0.22 * 40**0.07
    found = expected(DEMO, "baskets")
    assert found.value == pytest.approx(norm.cdf(d - NINETY_NINE))
    assert found.low == pytest.approx(norm.cdf(d * np.exp(-0.3) - NINETY_NINE) - 0.01)
    assert found.high == pytest.approx(norm.cdf(d * np.exp(0.3) - NINETY_NINE) + 0.01)
    assert expected(FederationShape(weights=600.0, members=450, rounds=40), "baskets").high == 1.0


@pytest.mark.parametrize(
    ("points", "share"),
    [
        ([point for point in formula.fitted_on() if point.data in DATA], 0.9),
        (formula.demo(), 1.0),  # not in the fit
        (formula.with_noise(of_demo=True), 1.0),
    ],
    ids=["fitted", "demo", "noise"],
)
def test_federations_that_were_measured_lie_in_the_ranges(points: list[Point], share: float) -> None:
    inside, of = formula.in_interval(points)
    assert inside >= share * of
    assert all(point.shape.outside() is None for point in points)


def test_other_data_are_every_data_set_at_once() -> None:
    anything = expected(DEMO)
    for data in DATA:
        one = expected(DEMO, data)
        assert anything.low <= one.low <= one.high <= anything.high
    few = FederationShape(weights=MANY, members=6260, rounds=40)
    assert expected(DEMO, "mnist").low == expected(few, "mnist").low  # more was not measured; it is not less


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"weights": 2000.0}, "0.08 to 700 weights for each member in the sum were measured, and here are 2e+03"),
        ({"members": 60_000}, "100 to 8,000 members"),
        ({"rounds": 300}, "5 to 40 rounds were measured, and here are 300"),
        ({"noise": 1.0}, "3 to 10 norms of noise"),
        ({"noise": 5.0, "weights": 300.0}, "0.08 to 200 weights"),
    ],
)
def test_beyond_what_was_measured_nothing_is_said(change: dict[str, float], says: str) -> None:
    given = {"weights": 49.0, "members": 6260.0, "rounds": 40} | change
    shape = FederationShape(weights=given["weights"], members=given["members"], rounds=int(given["rounds"]),
                  noise=given.get("noise", 0.0))  # fmt: skip
    assert says in (shape.outside() or "")
    assert DEMO.outside() is None


def test_noise_lowers_what_is_expected() -> None:
    noisy = FederationShape(weights=49.0, members=6260, rounds=40, noise=5.0)
    assert expected(noisy, "baskets").high < expected(DEMO, "baskets").high
    assert expected(noisy, "baskets").low < expected(DEMO, "baskets").low
