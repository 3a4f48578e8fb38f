"""The e-process: looking every round must not raise false alarms, and a false claim must fall."""

import math

import numpy as np
import pytest

from fedaudit.errors import FedauditError
from fedaudit.stats.sequential import SHARES, Claim, anytime_epsilon, chance_allowed, log_capital

ALPHA = 0.05


def test_K26_a_true_claim_is_ever_refuted_with_probability_alpha_at_most() -> None:
    rng = np.random.default_rng(0)
    chance = chance_allowed(1.0, 1e-3)
    crossed = 0
    for _ in range(20):
        right = rng.random((500, 300)) < chance
        crossed += int((log_capital(right, chance).max(axis=1) >= math.log(1 / ALPHA)).sum())
    assert 0 < crossed <= 610  # of 10,000 at alpha .05; above 0, or the test could not fail


def test_a_fixed_test_looked_at_every_round_would_not_hold() -> None:
    """What the e-process is for: a binomial test repeated after every round."""
    from scipy import stats

    rng = np.random.default_rng(1)
    hits = np.cumsum(rng.random((1_000, 300)) < 0.5, axis=1)
    rounds = np.arange(1, 301)
    p_values = np.asarray(stats.binom.sf(hits - 1, rounds, 0.5))
    alarms = (p_values <= ALPHA).any(axis=1).mean()
    assert alarms > 0.2


def test_a_false_claim_falls() -> None:
    rng = np.random.default_rng(2)
    right = rng.random(400) < chance_allowed(2.0, 0.0)
    found = Claim(0.5, 1e-5).refuted_at(right)
    assert found is not None
    assert found < 200
    assert Claim(2.0, 1e-5).refuted_at(right) is None
    bound = anytime_epsilon(right, 1e-5)
    assert bound.value is not None
    assert 1.0 < bound.value < 2.0


def test_capital_against_the_plain_product() -> None:
    rng = np.random.default_rng(3)
    right = rng.random(30) < 0.8
    chance, capital = 0.7, np.ones(len(SHARES))
    for t, hit in enumerate(right):
        capital = capital * (1 + SHARES * (hit / chance - 1))
        assert log_capital(right, chance)[t] == pytest.approx(math.log(capital.mean()))


def test_the_bound_never_falls_as_rounds_are_added() -> None:
    right = np.random.default_rng(4).random(120) < 0.8
    bounds = [anytime_epsilon(right[:n], 0.0).value or 0.0 for n in range(0, 121, 10)]
    assert bounds == sorted(bounds)
    assert anytime_epsilon(right[:0], 0.0).value == 0.0


def test_chance_allowed() -> None:
    assert chance_allowed(0.0, 0.0) == 0.5
    assert chance_allowed(math.log(3), 0.0) == pytest.approx(0.75)
    assert chance_allowed(0.0, 0.5) == pytest.approx(0.75)
    with pytest.raises(FedauditError):
        chance_allowed(math.nan, 0.0)
