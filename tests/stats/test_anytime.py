"""The e-process: looking every round must not raise false alarms, and a false claim must fall."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from fedaudit.errors import FedauditError
from fedaudit.stats.canary import (
    BANDS,
    SHARES,
    Probes,
    RoundClaim,
    anytime_curve,
    anytime_epsilon,
    chance_allowed,
    guesses,
    log_capital,
)
from fedaudit.stats.gaussian import gaussian_delta, gaussian_epsilon
from fedaudit.types import Bools, Floats
from tests.stats.simulated import simulation

ALPHA = 0.05
Mechanism = Callable[[Bools, np.random.Generator], Floats]


def probes(present: Bools, mechanism: Mechanism, rng: np.random.Generator, each: int = 1) -> Probes:
    return Probes(mechanism(present, rng), present, np.arange(len(present)) // each + 1)


def randomised_response(epsilon: float, delta: float) -> Mechanism:
    """The worst mechanism of all: tells the truth with probability delta, and with the odds e^epsilon otherwise."""

    def mechanism(present: Bools, rng: np.random.Generator) -> Floats:
        told = rng.random(len(present)) < delta + (1 - delta) / (1 + math.exp(-epsilon))
        return np.where(told, present, ~present) * 1.0

    return mechanism


def rare_truth(delta: float) -> Mechanism:
    """(0, delta)-DP by saying nothing most of the time: the corner at which a right guess is never paid for by wrong
    ones."""

    def mechanism(present: Bools, rng: np.random.Generator) -> Floats:
        return np.where(rng.random(len(present)) < delta, present * 200.0 - 100.0, 0.5)

    return mechanism


def gaussian(mu: float) -> Mechanism:
    return lambda present, rng: present + rng.normal(size=len(present)) / mu


def same_for_all(mechanism: Mechanism, each: int) -> Mechanism:
    """Canaries of one round whose errors are all the same: as dependent as they can be."""

    def shared(present: Bools, rng: np.random.Generator) -> Floats:
        one = np.ones(len(present) // each, bool)
        wrong = np.repeat(mechanism(one, rng) != 1.0, each)
        return np.asarray(present ^ wrong, float)

    return shared


TRUE_CLAIMS: dict[str, tuple[Mechanism, float, float, int]] = {
    "randomised response": (randomised_response(1.0, 0.0), 1.0, 0.0, 1),
    "randomised response with delta": (randomised_response(0.5, 0.1), 0.5, 0.1, 1),
    "rare truth": (rare_truth(0.02), 0.0, 0.02, 1),
    "gaussian": (gaussian(1.0), gaussian_epsilon(1.0, 1e-5), 1e-5, 1),
    "gaussian, mostly delta": (gaussian(1.0), 0.2, gaussian_delta(0.2, 1.0), 1),
    "four dependent canaries a round": (same_for_all(randomised_response(1.0, 0.05), 4), 1.0, 0.05, 4),
}


ALWAYS = ("randomised response with delta", "four dependent canaries a round")


@pytest.mark.parametrize("name", [name if name in ALWAYS else simulation(name) for name in TRUE_CLAIMS])
def test_K26_a_true_claim_is_ever_refuted_with_probability_alpha_at_most(name: str) -> None:
    mechanism, epsilon, delta, each = TRUE_CLAIMS[name]
    rng = np.random.default_rng(0)
    crossed = 0
    for _ in range(2_000):
        played = probes(rng.random(200) < 0.5, mechanism, rng, each)
        crossed += RoundClaim(epsilon, delta).watch(played, 1 - ALPHA).refuted_at is not None
    assert crossed <= 127  # of 2,000 at 5 %: a right test exceeds it once in 300 times at most


def test_the_error_is_not_wasted() -> None:
    """Against the worst mechanism the test does err: otherwise the tests above could not fail."""
    rng = np.random.default_rng(5)
    played = [probes(rng.random(300) < 0.5, randomised_response(1.0, 0.1), rng) for _ in range(1_000)]
    assert sum(RoundClaim(1.0, 0.1).watch(p).refuted_at is not None for p in played) > 5
    assert sum(RoundClaim(0.5, 0.0).watch(p).refuted_at is not None for p in played) > 950


@pytest.mark.simulation
def test_abstaining_is_not_free_under_delta() -> None:
    """A guess made only when the truth is told would win forever if abstentions cost nothing."""
    rng = np.random.default_rng(6)
    ends = []
    for _ in range(4_000):
        present = rng.random(50) < 0.5
        told = rng.random(50) < 0.1
        guess = np.where(told, np.where(present, 1, -1), 0)[:, None].repeat(len(BANDS), axis=1)
        ends.append(math.exp(log_capital(guess, Probes(np.zeros(50), present, np.arange(50)), 0.0, 0.1)[-1]))
    assert np.mean(ends) == pytest.approx(
        1, abs=4 * float(np.std(ends)) / math.sqrt(len(ends))
    )  # the corner is met exactly


def test_a_fixed_test_looked_at_every_round_would_not_hold() -> None:
    """What the e-process is for: a binomial test repeated after every round."""
    from scipy import stats

    rng = np.random.default_rng(1)
    hits = np.cumsum(rng.random((1_000, 300)) < 0.5, axis=1)
    p_values = np.asarray(stats.binom.sf(hits - 1, np.arange(1, 301), 0.5))
    assert (p_values <= ALPHA).any(axis=1).mean() > 0.2


def test_a_false_claim_falls() -> None:
    rng = np.random.default_rng(2)
    played = probes(rng.random(400) < 0.5, gaussian(3.0), rng)
    found = RoundClaim(0.5, 1e-5).watch(played)
    assert found.refuted_at is not None
    assert found.refuted_at < 100
    assert max(found.e_value) >= 20
    assert RoundClaim(gaussian_epsilon(3.0, 1e-5), 1e-5).watch(played).refuted_at is None


def test_power_grows_with_probes_and_abstaining_helps() -> None:
    rng = np.random.default_rng(3)
    bounds = {
        n: np.mean([anytime_epsilon(probes(rng.random(n) < 0.5, gaussian(2.0), rng), 1e-5).value for _ in range(8)])
        for n in (50, 200, 800)
    }
    assert 0 < bounds[50] < bounds[200] < bounds[800] < gaussian_epsilon(2.0, 1e-5)
    # No rule that guesses every time can get beyond log(Phi(1) / Phi(-1)).
    assert bounds[800] > math.log(0.8413 / 0.1587)


def test_guesses_and_capital_against_plain_loops() -> None:
    rng = np.random.default_rng(4)
    played = Probes(rng.normal(size=30), rng.random(30) < 0.5, np.sort(rng.integers(1, 12, 30)))
    played.score[[3, 17]] = math.nan, math.inf
    epsilon, delta = 0.7, 0.03
    q = (math.exp(epsilon) + delta) / (1 + math.exp(epsilon))
    capital = {(band, share): 1.0 for band in BANDS for share in SHARES}
    expected = []
    for number in sorted(set(played.round.tolist())):
        now, before = played.round == number, (played.round < number) & np.isfinite(played.score)
        out = [*played.score[before & ~played.present], 0.0]
        inside = [*played.score[before & played.present], 1.0]
        middle = (np.mean(out) + np.mean(inside)) / 2
        squares = sum((s - np.mean(out)) ** 2 for s in out[:-1]) + sum((s - np.mean(inside)) ** 2 for s in inside[:-1])
        spread = math.sqrt((squares + 0.25**2) / (len(out) + len(inside) - 1))
        for band, share in capital:
            factors = []
            for score, present in zip(played.score[now], played.present[now], strict=True):
                if score > middle + band * spread:
                    factors.append(1 + share * (1 / q - 1) if present else 1 - share)
                elif score < middle - band * spread:
                    factors.append(1 - share if present else 1 + share * (1 / q - 1))
                else:
                    factors.append(1 - share * delta / (1 + delta))
            capital[band, share] *= float(np.mean(factors))
        expected.append(math.log(np.mean(list(capital.values()))))
    assert log_capital(guesses(played), played, epsilon, delta) == pytest.approx(expected)


def test_a_guess_does_not_see_its_own_round_or_later_ones() -> None:
    rng = np.random.default_rng(7)
    played = probes(rng.random(40) < 0.5, gaussian(1.0), rng, each=4)
    whole = guesses(played)
    for cut in (4, 20, 36):
        flipped = played.present.copy()
        flipped[cut:] ^= True
        later = guesses(Probes(played.score, flipped, played.round))
        assert np.array_equal(later[: cut + 4], whole[: cut + 4])


def test_the_bound_never_falls_and_the_curve_follows_it() -> None:
    rng = np.random.default_rng(8)
    played = probes(rng.random(120) < 0.5, gaussian(4.0), rng)
    curve = anytime_curve(played, 1e-5)
    for n in (0, 10, 60, 120):
        part = Probes(played.score[:n], played.present[:n], played.round[:n])
        bound = anytime_epsilon(part, 1e-5).value
        assert bound is not None
        at = curve.value[n - 1] if n else 0.0
        assert at is not None
        assert at <= bound <= at + 0.0101
    assert list(curve.value) == sorted(v for v in curve.value if v is not None)


def test_perfect_probes_come_near_the_ceiling() -> None:
    present = np.random.default_rng(9).random(100) < 0.5
    found = anytime_epsilon(Probes(present.astype(float), present, np.arange(100)), 1e-5)
    assert found.kind == "proved"
    assert found.value is not None
    assert found.ceiling is not None
    assert 2.5 < found.value <= found.ceiling < 4


def test_chance_allowed() -> None:
    assert chance_allowed(0.0, 0.0) == 0.5
    assert chance_allowed(math.log(3), 0.0) == pytest.approx(0.75)
    assert chance_allowed(0.0, 0.5) == pytest.approx(0.75)
    with pytest.raises(FedauditError):
        chance_allowed(math.nan, 0.0)
    with pytest.raises(FedauditError, match="order of time"):
        Probes(np.zeros(2), np.zeros(2, bool), np.array([2, 1]))


def test_K17_cosines_with_a_random_canary_that_never_takes_part_prove_nothing() -> None:
    """(1 + cos) / 2 ~ Beta((d - 1) / 2, (d - 1) / 2): whatever coins are flipped beside it, nothing is guessed."""
    rng = np.random.default_rng(10)
    bounds = []
    for _ in range(100):
        cosine = 2 * rng.beta(499.5, 499.5, 100) - 1
        played = Probes(cosine * math.sqrt(1000), rng.random(100) < 0.5, np.arange(100))
        bounds.append(anytime_epsilon(played, 1e-5).value)
    assert sum(bound != 0 for bound in bounds) <= 12  # of 100 at 5 %: once in a thousand times


def test_K18_z_scores_of_a_gaussian_canary_stay_below_its_epsilon() -> None:
    """Scores N(0, sigma) without the canary and N(1, sigma) with it: mu = 1 / sigma."""
    rng = np.random.default_rng(11)
    for sigma in (0.423, 1.0, 2.0):
        truth = gaussian_epsilon(1 / sigma, 1e-5)
        bounds = [
            anytime_epsilon(probes(rng.random(100) < 0.5, gaussian(1 / sigma), rng), 1e-5).value for _ in range(10)
        ]
        assert all(bound is not None and bound < truth for bound in bounds)


def test_K19_without_noise_nothing_breaks_and_the_bound_is_limited_by_the_probes() -> None:
    present = np.random.default_rng(12).random(60) < 0.5
    for scores in (present.astype(float), np.where(present, math.inf, -math.inf)):
        found = anytime_epsilon(Probes(scores, present, np.arange(60)), 1e-5)
        assert found.value is not None
        assert found.ceiling is not None
        assert 2 < found.value <= found.ceiling < 3
    constant = anytime_epsilon(Probes(np.full(60, 0.5), present, np.arange(60)), 1e-5)
    assert constant.value == 0
