"""From the epsilon of rounds to one of the whole training: inversions undo what they invert, rounds compose."""

import pytest

from fedaudit.errors import FedauditError
from fedaudit.privacy.accounting import composed, noise_of, rdp_epsilon
from fedaudit.privacy.statement import Process
from fedaudit.stats.gaussian import gaussian_epsilon

DELTA = 1e-5


@pytest.mark.parametrize("noise", [0.4, 1.0, 5.0])
def test_both_inversions_undo_their_accountant(noise: float) -> None:
    assert noise_of(gaussian_epsilon(1 / noise, DELTA), DELTA) == pytest.approx(noise, rel=1e-6)
    by_renyi = rdp_epsilon(Process("user", noise, 1, "full"), 1, DELTA)
    assert noise_of(by_renyi, DELTA, "renyi") == pytest.approx(noise, rel=1e-3)
    assert noise_of(by_renyi, DELTA) < noise  # the slack of Renyi accounting is not in the exact one


def test_the_true_epsilon_of_every_round_composes_to_the_accountants() -> None:
    noise, rate, rounds = 1.1, 0.05, 60
    one = gaussian_epsilon(1 / noise, DELTA)
    whole = rdp_epsilon(Process("user", noise, 1, "poisson", rate), rounds, DELTA)
    assert composed([one] * 3, [20, 20, 20], rate, DELTA) == pytest.approx(whole, rel=1e-6)
    assert composed([one], [60], rate, DELTA) == pytest.approx(whole, rel=1e-6)
    assert composed([one, 0.0], [30, 30], rate, DELTA) < whole
    assert composed([one], [60], 1.0, DELTA) > whole


def test_nothing_measured_composes_to_nothing() -> None:
    assert composed([0.0, 0.0], [5, 5], 1.0, DELTA) == pytest.approx(0.0, abs=1e-9)


def test_a_wrong_delta_is_refused() -> None:
    for delta in (0.0, 1.0, float("nan"), -1e-5):
        with pytest.raises(FedauditError, match="delta"):
            composed([1.0], [1], 1.0, delta)
