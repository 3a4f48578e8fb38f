"""The bound of epsilon over ranks: against counting every order by hand, and that it is wrong as seldom as it says."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedaudit.stats.epsilon import Ranks, proved_epsilon, refutes, union_bound
from fedaudit.stats.gaussian import gaussian_epsilon
from fedaudit.stats.rank_bound import MOST_TRIALS, _ranks, _Side, rank_bound
from tests.stats.simulated import simulation


def crossing_by_hand(m: int, n: int, epsilon: float, delta: float, boundary: list[int]) -> float:
    """All orders of the extreme members and the non-members, one by one."""
    share, crossed = (1 - delta) * math.exp(-epsilon), 0.0
    for at_zero, within in itertools.product(range(m + 1), range(n + 1)):
        chance = stats.binom.pmf(at_zero, m, delta) * stats.binom.pmf(within, n, share)
        orders = list(itertools.combinations(range(m - at_zero + within), within))  # where the non-members stand
        bad = 0
        for places in orders:
            # Members before the k-th non-member; beyond the members' range there are only non-members.
            above = [at_zero + place - k for k, place in enumerate(places)] + [m] * (n - within)
            bad += any(above[rank - 1] > most for rank, most in zip(_ranks(n), boundary, strict=True))
        crossed += chance * bad / len(orders)
    return crossed


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.7, 0.0), (0.7, 0.2), (2.5, 1e-3)])
@pytest.mark.parametrize("boundary", [[0, 1, 2, 3], [1, 1, 4, 4], [2, 3, 3, 4], [4, 4, 4, 4], [-1, 4, 4, 4]])
def test_the_chance_of_crossing_equals_every_order_counted(epsilon: float, delta: float, boundary: list[int]) -> None:
    m, n = 4, 4
    found = _Side(m, n, np.zeros(4, np.int64))._crossing(epsilon, delta, np.array(boundary), 0.05)
    assert found == pytest.approx(crossing_by_hand(m, n, epsilon, delta, boundary), abs=2e-6)  # rare cases are added


def test_ranks() -> None:
    assert _ranks(40).tolist() == [*range(1, 12), 12, 13, 15, 16, 17, 19, 21, 23, 25, 27, 29, 32, 35, 38, 40]
    assert _ranks(1).tolist() == [1]
    side = _Side.of(np.array([5.0, 3.0, 1.0, 1.0]), np.array([1.0, 4.0, 0.0]))
    assert side.counts.tolist() == [1, 2, 4]  # strictly above the largest, the second and the third non-member


def laplace(rng: np.random.Generator, n: int) -> tuple[Any, Any, float, float]:
    return rng.laplace(1.0, 1.0, n), rng.laplace(0.0, 1.0, n), 1.0, 0.0


def gaussian(rng: np.random.Generator, n: int) -> tuple[Any, Any, float, float]:
    return rng.normal(1.0, 1.0, n), rng.normal(0.0, 1.0, n // 3), gaussian_epsilon(1.0, 0.01), 0.01


def responses(rng: np.random.Generator, n: int) -> tuple[Any, Any, float, float]:
    p = math.e / (1 + math.e)
    return (rng.random(3 * n) < p) * 1.0, (rng.random(n) < 1 - p) * 1.0, 1.0, 0.0


@pytest.mark.parametrize(
    ("mechanism", "runs"),
    [(responses, 60), simulation(responses, 400), simulation(laplace, 400), simulation(gaussian, 400)],
)
def test_the_truth_is_refuted_as_seldom_as_promised(mechanism: Any, runs: int) -> None:
    rng = np.random.default_rng(16)
    wrong = 0
    for _ in range(runs):
        members, nonmembers, epsilon, delta = mechanism(rng, 40)
        wrong += refutes(members, nonmembers, epsilon, delta, 0.9)
    assert wrong <= stats.binom.ppf(0.9999, runs, 0.1)


@pytest.mark.simulation
def test_members_that_lie_as_high_as_allowed_use_up_the_error() -> None:
    rng, runs, epsilon, delta = np.random.default_rng(16), 600, 1.0, 0.02
    wrong = 0
    for _ in range(runs):
        members = np.where(rng.random(40) < delta, 0, rng.random(40) * (1 - delta) * math.exp(-epsilon))
        wrong += _Side.of(-members, -rng.random(40)).refutes(epsilon, delta, 0.1)
    assert stats.binom.ppf(0.0001, runs, 0.08) <= wrong <= stats.binom.ppf(0.9999, runs, 0.1)


def test_refuting_agrees_with_the_bound() -> None:
    rng = np.random.default_rng(17)
    for _ in range(4):
        members, nonmembers = rng.normal(1.5, 1, 40), rng.normal(0, 1, 25)
        bound = rank_bound(members, nonmembers, 1e-4, 0.05)
        assert bound > 0
        assert refutes(members, nonmembers, bound - 2e-3, 1e-4)
        assert not refutes(members, nonmembers, bound + 2e-3, 1e-4)


def test_a_claim_beyond_what_trials_can_prove_is_never_refuted() -> None:
    for claimed in (40.0, 1e3, math.inf):
        assert not refutes(np.ones(50), np.zeros(50), claimed, 1e-5)


def test_it_proves_more_than_a_union_bound_wherever_both_can_be_computed() -> None:
    """True epsilon 1 with 50 + 50 trials: 0.1 by sharing the error among ranks, about 0.4 by testing them at once."""
    rng, by_ranks, by_union = np.random.default_rng(18), [], []
    for _ in range(20):
        members, nonmembers, _, delta = laplace(rng, 50)
        by_ranks.append(proved_epsilon(members, nonmembers, delta, Ranks()).value or 0.0)
        by_union.append(union_bound(members, nonmembers, delta, 0.05)[0])
    assert np.mean(by_ranks) > 0.3
    assert np.mean(by_union) < 0.2


def test_many_trials_are_judged_by_a_union_bound_and_the_method_says_so() -> None:
    scores = np.arange(2.0 * (MOST_TRIALS + 1))
    found = proved_epsilon(scores[MOST_TRIALS + 1 :], scores[: MOST_TRIALS + 1], 1e-5, Ranks())
    assert "union bound" in found.method
    assert found.value == found.ceiling
    assert refutes(scores[MOST_TRIALS + 1 :], scores[: MOST_TRIALS + 1], 5.0, 1e-5)
