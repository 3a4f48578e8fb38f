"""Statistics of canaries against known answers: the exact null, the Gaussian mechanism in one run, refuted claims."""

import numpy as np
import pytest
from scipy import stats

from fedaudit.stats.canary import (
    Probes,
    RoundClaim,
    null_threshold,
    one_shot_bound,
    one_shot_epsilon,
    probes_needed,
    rounds_needed,
    score_sd,
)
from fedaudit.stats.epsilon import refutes
from fedaudit.stats.gaussian import gaussian_epsilon, gaussian_mu
from tests.stats.simulated import simulation

DELTA = 1e-5


def test_K17_random_cosines_are_beta() -> None:
    rng, size = np.random.default_rng(0), 40
    units = rng.normal(size=(4000, size))
    cosine = units[:, 0] / np.linalg.norm(units, axis=1)
    exact = stats.beta((size - 1) / 2, (size - 1) / 2)
    assert stats.kstest((1 + cosine) / 2, exact.cdf).pvalue > 1e-3
    for rate in (0.3, 0.01, 1e-6):
        assert exact.sf((1 + null_threshold(rate, size)) / 2) == pytest.approx(rate, rel=1e-6)
    assert null_threshold(0.001, 30_000) == pytest.approx(stats.norm.isf(0.001) / np.sqrt(30_000), rel=0.01)


def mechanism(epsilon: float, seed: int, k: int = 500, size: int = 30_000) -> np.ndarray:
    """Cosines of k random unit vectors with their noisy sum."""
    rng = np.random.default_rng(seed)
    units = rng.standard_normal((k, size)).astype(np.float32)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    total = units.sum(axis=0) + rng.normal(0, 1 / gaussian_mu(epsilon, DELTA), size)
    return np.asarray(units @ total / np.linalg.norm(total), np.float64)


@pytest.mark.parametrize(
    ("epsilon", "runs"),
    [
        (10.0, 3),
        simulation(10.0, 10),
        simulation(3.0, 10),
    ],
)
def test_one_shot_finds_the_epsilon_of_a_gaussian_mechanism(epsilon: float, runs: int) -> None:
    found = [mechanism(epsilon, seed) for seed in range(runs)]
    estimates = [one_shot_epsilon(cosines, 30_000, DELTA).value for cosines in found]
    assert np.mean([e for e in estimates if e is not None]) == pytest.approx(epsilon, rel=0.15)
    bounds = [one_shot_bound(cosines, 30_000, DELTA) for cosines in found]
    assert all(bound.value is not None and 0 < bound.value < epsilon for bound in bounds)
    assert {e.kind for e in bounds} == {"model-based"}  # the canaries of one run are not independent trials


def test_one_shot_without_canaries_in_the_sum_finds_nothing() -> None:
    rng, size = np.random.default_rng(1), 3000
    cosines = np.asarray(rng.normal(0, 1 / np.sqrt(size), 400))
    found = one_shot_epsilon(cosines, size, DELTA)
    assert found.low == 0
    assert one_shot_bound(cosines, size, DELTA).value == 0
    largest = rng.normal(0, 1 / np.sqrt(size), (400, 20)).max(axis=1)
    assert one_shot_bound(largest, size, DELTA, looks=20).value == 0
    assert one_shot_bound(largest, size, DELTA).value != 0  # looking twenty times must be paid for


def test_few_canaries_have_no_estimate() -> None:
    found = one_shot_epsilon(np.array([0.1, 0.2]), 100, DELTA)
    assert found.value is None
    assert "8 canaries" in str(found.reason)


def test_K18_scores_spread_by_the_noise() -> None:
    rng, sigma = np.random.default_rng(2), 0.423
    misses = 0
    for _ in range(300):
        found = score_sd(rng.normal(1, sigma, 50), rng.normal(0, sigma, 70))
        assert found.low is not None
        assert found.high is not None
        misses += not found.low <= sigma <= found.high
    assert misses <= stats.binom.ppf(0.999, 300, 0.05)


def test_a_claim_is_refuted_with_the_probes_that_the_plan_says_and_a_true_one_is_not() -> None:
    claimed, delta = 2.0, 0.01
    epsilon = gaussian_epsilon(1 / claimed, delta)
    needed = probes_needed(claimed, claimed / 3, delta)
    assert needed is not None
    rng = np.random.default_rng(3)

    def caught(noise: float) -> int:
        half = needed // 2
        pairs = [(1 + noise * rng.normal(size=half), noise * rng.normal(size=half)) for _ in range(200)]
        return sum(refutes(*pair, epsilon, delta) for pair in pairs)

    assert caught(claimed / 3) >= 140  # eight in ten, with room for chance
    assert caught(claimed) <= 10


def test_more_noise_than_claimed_cannot_be_refuted() -> None:
    rng = np.random.default_rng(4)
    epsilon = gaussian_epsilon(1.0, DELTA)
    assert not any(refutes(1 + 2 * rng.normal(size=100), 2 * rng.normal(size=100), epsilon, DELTA) for _ in range(50))


@pytest.mark.simulation
def test_plan_counts_rounds_for_canaries_that_run() -> None:
    """As many rounds as it says refute the claim about four times in five, on other random numbers than its own."""
    claimed, delta = 1.0, 0.05
    needed = rounds_needed(claimed, claimed / 3, delta)
    assert needed is not None
    claim, rng, caught = RoundClaim(gaussian_epsilon(1 / claimed, delta), delta), np.random.default_rng(5), 0
    for _ in range(300):
        present = rng.random(needed) < 0.5
        score = present + claimed / 3 * rng.standard_normal(needed)
        caught += claim.watch(Probes(score, present, np.arange(needed))).refuted_at is not None
    assert 0.7 < caught / 300 < 0.9
    assert rounds_needed(claimed, claimed, delta) is None


def test_the_interval_of_one_shot_holds_what_is_true() -> None:
    """Many canaries for so few dimensions: without taking their own length out, the mean would be 5 % too small."""
    size, k, epsilon, rng = 4000, 120, 10.0, np.random.default_rng(8)
    noise, held, values = 1 / gaussian_mu(epsilon, DELTA), 0, []
    for _ in range(60):
        units = rng.standard_normal((k, size))
        units /= np.linalg.norm(units, axis=1, keepdims=True)
        total = units.sum(axis=0) + rng.normal(0, noise, size)
        found = one_shot_epsilon(units @ total / np.linalg.norm(total), size, DELTA)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= epsilon <= found.high
        values.append(found.value)
    assert held >= 52
    assert np.mean(np.array(values, float)) == pytest.approx(epsilon, rel=0.02)
