"""Empirical epsilon: known answers, ceilings, and that no proved bound is wrong more often than it may be."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from fedaudit.errors import FedauditError
from fedaudit.stats import auc
from fedaudit.stats.blocks import Block
from fedaudit.stats.epsilon import (
    LIMITED,
    Explicit,
    Ranks,
    Split,
    ceiling,
    gdp_epsilon,
    guess_counts,
    maximised_epsilon,
    one_run_bound,
    one_run_epsilon,
    one_run_p_value,
    proved_epsilon,
)
from fedaudit.stats.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu
from tests.stats.simulated import simulation

RUNS = 10_000
ALLOWED = 610  # of 10,000 simulated audits at alpha .05


# ------------------------------------------------------------------ exact formulas


@pytest.mark.parametrize(("mu", "epsilon"), [(0.5, 1.993), (1, 4.377), (2, 9.997), (3, 16.675)])
def test_K1_K2_gaussian_mechanism(mu: float, epsilon: float) -> None:
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(epsilon, abs=5e-4)
    assert gaussian_mu(gaussian_epsilon(mu, 1e-5), 1e-5) == pytest.approx(mu, rel=1e-9)


def test_gaussian_delta_against_numerical_integration() -> None:
    for mu, epsilon in [(0.3, 0.1), (1.0, 0.0), (1.0, 2.5), (2.5, 6.0)]:
        x = np.linspace(-12, 14, 2_000_001)
        gap = stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x)
        assert gaussian_delta(epsilon, mu) == pytest.approx(np.trapezoid(np.maximum(gap, 0), x), rel=1e-6)
    assert gaussian_epsilon(0.0, 1e-5) == 0.0


def test_D2_the_classic_formula_would_promise_too_much_above_epsilon_one() -> None:
    """sqrt(2 log(1.25 / delta)) / epsilon is too little noise for large epsilon."""
    epsilon, delta = 16.0, 1e-5
    classic_sigma = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    assert gaussian_epsilon(1 / classic_sigma, delta) > epsilon
    assert gaussian_epsilon(gaussian_mu(epsilon, delta), delta) == pytest.approx(epsilon)


def test_K3_laplace_mechanism() -> None:
    """AUC of Laplace(0, 1/e) against Laplace(1, 1/e), by integration and by scores."""
    epsilon, rng = 1.5, np.random.default_rng(0)
    expected = 1 - (1 + epsilon / 2) * math.exp(-epsilon) / 2
    x = np.linspace(-40, 41, 1_000_001)
    member = stats.laplace(1, 1 / epsilon)
    assert np.trapezoid(member.pdf(x) * stats.laplace(0, 1 / epsilon).cdf(x), x) == pytest.approx(expected, abs=1e-7)
    inside, outside = (rng.laplace(centre, 1 / epsilon, 20_000) for centre in (1, 0))
    found = auc([Block(inside, outside, outside)])
    assert found.low is not None
    assert found.high is not None
    assert found.low < expected < found.high


def test_K4_randomised_response() -> None:
    epsilon, rng = 1.0, np.random.default_rng(1)
    success = math.exp(epsilon) / (1 + math.exp(epsilon))
    inside, outside = (rng.random(40_000) < p for p in (success, 1 - success))
    found = proved_epsilon(inside.astype(np.float64), outside.astype(np.float64), 0.0, Explicit(0.5))
    assert found.value is not None
    assert 0.9 < found.value < epsilon


def test_K5_ten_randomised_responses() -> None:
    """delta(5) of ten answers at epsilon 1: sum over the outcomes of what exceeds e^5 times the other."""
    k = np.arange(11)
    p = math.e / (1 + math.e)
    delta = np.maximum(stats.binom.pmf(k, 10, p) - math.exp(5) * stats.binom.pmf(k, 10, 1 - p), 0).sum()
    assert delta == pytest.approx(0.36359, abs=5e-6)
    # Scored by the number of yeses, many trials at that delta must not prove more than epsilon 5, and come near.
    rng = np.random.default_rng(2)
    inside, outside = (rng.binomial(10, chance, 200_000).astype(float) for chance in (p, 1 - p))
    found = proved_epsilon(inside, outside, float(delta), Explicit(7.5))
    assert found.value is not None
    assert 4.5 < found.value <= 5.0


def test_K6_composition_and_K7_groups() -> None:
    """Rounds of separation mu_i are one of sqrt(sum mu_i^2); a subject of s records is s times as far away."""
    rng = np.random.default_rng(3)
    mus = np.array([0.3, 0.4, 1.2])
    trials = 40_000
    inside, outside = (rng.normal(centre, 1.0, (trials, 3)) @ mus for centre in (mus, 0 * mus))
    found = gdp_epsilon(inside, outside, 1e-5)
    assert found.value == pytest.approx(gaussian_epsilon(math.sqrt(float(mus @ mus)), 1e-5), rel=0.05)
    records = 3
    inside, outside = rng.normal(records * 0.5, 1.0, trials), rng.normal(0.0, 1.0, trials)
    assert gdp_epsilon(inside, outside, 1e-5).value == pytest.approx(gaussian_epsilon(records * 0.5, 1e-5), rel=0.05)


# ------------------------------------------------------------------ what trials can prove


@pytest.mark.parametrize(("trials", "most"), [(100, 3.28), (1_000, 5.60), (10_000, 7.90)])
def test_T14_ceiling(trials: int, most: float) -> None:
    assert ceiling(trials, trials, 0.0, 0.05) == pytest.approx(most, abs=5e-3)
    found = proved_epsilon(np.ones(trials), np.zeros(trials), 0.0, Explicit(0.5))
    assert found.value == found.ceiling == pytest.approx(most, abs=5e-3)
    assert (found.kind, found.reason) == ("proved", LIMITED)


def test_K10_a_lookup_table_reaches_the_ceiling_of_every_bound() -> None:
    scores = np.arange(200.0)
    for bound in (Explicit(99.5), Split(), Ranks()):
        found = proved_epsilon(scores[100:], scores[:100], 1e-5, bound)
        assert found.value == pytest.approx(found.ceiling)
    one_run = one_run_epsilon(scores, scores >= 100, 1e-5)
    assert one_run.value == one_run.ceiling
    assert one_run.value is not None
    assert one_run.value > 2


def test_K8_K9_no_leak_proves_nothing() -> None:
    rng = np.random.default_rng(5)
    inside, outside = rng.normal(size=300), rng.normal(size=400)
    for bound in (Explicit(0.0), Split(), Ranks()):
        assert proved_epsilon(inside, outside, 1e-5, bound).value == 0.0
        assert proved_epsilon(np.ones(300), np.ones(400), 1e-5, bound).value == 0.0
    coins = rng.random(700) < 0.5
    assert one_run_epsilon(np.concatenate([inside, outside]), coins, 1e-5).value == 0.0
    # Constant scores, members stored first: ties must not be broken by storage order.
    assert one_run_epsilon(np.zeros(700), np.arange(700) < 350, 1e-5).value == 0.0


def test_the_papers_figure_has_a_cap_that_is_named() -> None:
    """50 + 50 trials without an error: about 3.9, of which 2.56 can be proved."""
    found = maximised_epsilon(np.ones(50), np.zeros(50), 0.01)
    assert found.value == found.ceiling == pytest.approx(3.90, abs=0.005)
    assert (found.kind, found.reason) == ("heuristic", LIMITED)
    assert found.low == pytest.approx(2.56, abs=0.01)
    errors = maximised_epsilon(np.array([0.0, 1, 1, 1]), np.array([0.0, 0, 0, 0, 1]), 0.0)
    assert errors.value == pytest.approx(math.log((3 / 4) / (1 / 5)))
    assert errors.reason is None


# ------------------------------------------------------------------ validity


def laplace(rng: np.random.Generator, n: int) -> tuple[Any, Any, float, float]:
    return rng.laplace(1.0, 1.0, n), rng.laplace(0.0, 1.0, n), 1.0, 0.0


def gaussian(rng: np.random.Generator, n: int) -> tuple[Any, Any, float, float]:
    return rng.normal(1.0, 1.0, n), rng.normal(0.0, 1.0, n), gaussian_epsilon(1.0, 0.2), 0.2


def responses(rng: np.random.Generator, n: int) -> tuple[Any, Any, float, float]:
    p = math.e / (1 + math.e)
    return (rng.random(20 * n) < p) * 1.0, (rng.random(n) < 1 - p) * 1.0, 1.0, 0.0  # unequal sizes: no swapped counts


@pytest.mark.parametrize(
    ("mechanism", "choice"),
    [
        (responses, Explicit(0.5)),
        simulation(gaussian, Explicit(0.5)),
        simulation(laplace, Split()),
        simulation(gaussian, Split()),
    ],
)
def test_no_proved_bound_exceeds_the_truth_more_often_than_it_may(mechanism: Any, choice: Any) -> None:
    rng = np.random.default_rng(6)
    wrong = 0
    for _ in range(RUNS):
        inside, outside, epsilon, delta = mechanism(rng, 100)
        found = proved_epsilon(inside, outside, delta, choice)
        wrong += found.value is not None and found.value > epsilon + 1e-9
    assert wrong <= ALLOWED


def test_the_maximised_figure_does_exceed_the_truth() -> None:
    """Why it is called a heuristic, and why the test above can fail."""
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(500):
        inside, outside, epsilon, delta = laplace(rng, 100)
        wrong += (maximised_epsilon(inside, outside, delta).value or 0.0) > epsilon
    assert wrong > 250


@pytest.mark.simulation
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_one_run_bound_holds(delta: float) -> None:
    """Randomised response for every unit, each coin shown outright with chance delta."""
    rng, epsilon, m = np.random.default_rng(8), 1.0, 64
    p = math.e / (1 + math.e)
    wrong = close = 0
    for _ in range(RUNS):
        coins = rng.random(m) < 0.5
        told = np.where(rng.random(m) < p, coins, ~coins)
        scores = np.where(rng.random(m) < delta, 2.0 * coins - 0.5, told * 1.0) + rng.random(m) / 100
        found = one_run_epsilon(scores, coins, delta).value
        wrong += found is not None and found > epsilon
        close += found is not None and found > 0.3
    assert wrong <= ALLOWED
    assert close > RUNS // 10  # it proves something, too


def test_one_run_p_value_against_enumeration() -> None:
    """Pure DP: a binomial tail. With delta: the definition, term by term."""
    m, r, v, epsilon, delta = 12, 9, 7, 0.7, 1e-3
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    tail = [sum(math.comb(r, k) * p**k * (1 - p) ** (r - k) for k in range(max(at, 0), r + 1)) for at in range(r + 2)]
    assert one_run_p_value(m, r, v, epsilon, 0.0) == pytest.approx(tail[v])
    worst = max((tail[v - i] - tail[v]) / i for i in range(1, v + 1))
    assert one_run_p_value(m, r, v, epsilon, delta) == pytest.approx(tail[v] + 2 * m * delta * worst)
    assert one_run_bound(100, 100, 50, 0.0, 0.05) == 0.0
    assert [pair for pair in guess_counts(64) if sum(pair) > 64] == []


def test_one_run_survives_a_mechanism_that_sometimes_tells_everything() -> None:
    """With chance m delta all coins are shown: (0, delta')-DP for every unit needs delta' of that size, no less."""
    rng, m, reveal = np.random.default_rng(9), 50, 0.2
    wrong = 0
    for _ in range(1_000):
        coins = rng.random(m) < 0.5
        scores = coins.astype(np.float64) if rng.random() < reveal else rng.random(m)
        wrong += (one_run_epsilon(scores, coins, reveal).value or 0.0) > 0
    assert wrong <= 0.05 * 1_000


def test_one_run_needs_fair_coins() -> None:
    found = one_run_epsilon(np.arange(100.0), np.arange(100) < 90, 0.0)
    assert found.value is None
    assert "fair coins" in (found.reason or "")


# ------------------------------------------------------------------ the Gaussian fit


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0, 3.0])
def test_gdp_fit_is_within_five_per_cent_at_10_000_trials(mu: float) -> None:
    truth = gaussian_epsilon(mu, 1e-5)
    rng = np.random.default_rng(10)
    found = [gdp_epsilon(rng.normal(mu, 2, 10_000), rng.normal(0, 2 / 1, 10_000), 1e-5) for _ in range(20)]
    values = [e.value for e in found if e.value is not None]
    expected = gaussian_epsilon(mu / 2, 1e-5)  # the separation counts in standard deviations
    assert len(values) >= 18
    assert np.mean(values) == pytest.approx(expected, rel=0.02)
    assert expected < truth
    standard = gdp_epsilon(rng.normal(mu, 1, 10_000), rng.normal(0, 1, 10_000), 1e-5)
    assert standard.value == pytest.approx(truth, rel=0.05)
    assert standard.kind == "model-based"


def test_gdp_interval_covers() -> None:
    rng, mu, truth = np.random.default_rng(11), 1.5, gaussian_epsilon(1.5, 1e-5)
    missed = kept = 0
    for _ in range(300):
        found = gdp_epsilon(rng.normal(mu, 1, 60), rng.normal(0, 1, 40), 1e-5)
        if found.low is not None and found.high is not None:
            kept += 1
            missed += not found.low <= truth <= found.high
    assert kept > 285
    assert missed <= 0.085 * kept


@pytest.mark.simulation
def test_gdp_low_end_holds_with_few_trials() -> None:
    """The noncentral t is lopsided where there are few trials: a score interval lies above the truth in 6 %."""
    rng, truth = np.random.default_rng(0), gaussian_epsilon(3.0, 1e-5)
    found = [gdp_epsilon(rng.normal(3, 1, 8), rng.normal(0, 1, 8), 1e-5).low for _ in range(800)]
    assert sum(low > truth for low in found if low is not None) <= 33  # 2.5 %, plus three standard deviations


def test_T16_a_rejected_fit_has_no_value() -> None:
    rng = np.random.default_rng(12)
    skewed = gdp_epsilon(rng.exponential(1, 500) + 1, rng.normal(0, 1, 500), 1e-5)
    assert skewed.value is None
    assert "not normal" in (skewed.reason or "")
    wider = gdp_epsilon(rng.normal(1, 2, 500), rng.normal(0, 1, 500), 1e-5)
    assert wider.value is None
    assert "variances differ" in (wider.reason or "")
    assert "constant" in (gdp_epsilon(np.ones(50), rng.normal(0, 1, 50), 1e-5).reason or "")
    assert "infinite" in (gdp_epsilon(np.append(np.zeros(50), -np.inf), rng.normal(0, 1, 50), 1e-5).reason or "")


@pytest.mark.parametrize(("p", "fits"), [(0.0040, True), (0.0030, False)])
def test_each_of_three_checks_of_the_gaussian_fit_has_a_third_of_one_per_cent(p: float, fits: bool) -> None:
    scores = stats.norm.ppf((np.arange(40) + 0.5) / 40)
    wider = optimize.brentq(lambda s: stats.levene(s * scores, scores, center="median").pvalue - p, 1, 9)
    assert (gdp_epsilon(wider * scores, scores, 1e-5).value is not None) == fits


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize("delta", [math.nan, -0.1, 1.0, math.inf])
def test_B2_deltas_out_of_range(delta: float) -> None:
    with pytest.raises(FedauditError, match="delta"):
        proved_epsilon(np.ones(9), np.zeros(9), delta, Explicit(0.5))
    with pytest.raises(FedauditError, match="delta"):
        gaussian_mu(1.0, delta)


def test_B1_B3_scores_that_are_none() -> None:
    with pytest.raises(FedauditError, match="nan-scores"):
        proved_epsilon(np.array([1.0, np.nan]), np.zeros(9), 0.0, Explicit(0.5))
    with pytest.raises(FedauditError, match="empty-set"):
        maximised_epsilon(np.array([]), np.zeros(9), 0.0)
    with pytest.raises(FedauditError, match="trials"):
        proved_epsilon(np.ones(1), np.zeros(9), 0.0, Split())
    with pytest.raises(FedauditError, match="epsilon"):
        gaussian_mu(math.nan, 1e-5)
