"""From an empirical epsilon of single rounds to one of the whole training. A heuristic, whatever goes in.

1. The epsilon measured at a round is turned into the noise of a Gaussian mechanism that has it: one step, nobody
   sampled, the same delta. `exact`: the exact Gaussian mechanism; `renyi`: as CANIFE does, by Renyi accounting, whose
   slack makes the noise larger, so that the composed epsilon is smaller.
2. That noise stands for the rounds since the last measurement; the last one also for the rounds after it.
3. All rounds are composed by Renyi accounting, with the true sampling rate.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from scipy import optimize

from fedaudit.privacy.accounting import quiet, rdp_epsilon
from fedaudit.privacy.statement import Process
from fedaudit.stats.gaussian import check_delta, check_epsilon, gaussian_mu

Inversion = Literal["exact", "renyi"]

LEAST, MOST = 0.01, 1e4  # noise: below, epsilon is in the thousands; above, it is nothing


def noise_of(epsilon: float, delta: float, how: Inversion = "exact") -> float:
    """The noise multiplier of a one-step Gaussian mechanism with this epsilon; infinite for an epsilon of 0."""
    check_epsilon(epsilon)
    check_delta(delta, zero=False)
    if epsilon == 0:
        return float("inf")
    if how == "exact":
        return 1 / gaussian_mu(epsilon, delta)
    one = Process("user", 1.0, 1, "full")

    def excess(noise: float) -> float:
        return rdp_epsilon(replace(one, noise=noise), 1, delta) - epsilon

    if excess(MOST) > 0:
        return float("inf")
    return float(optimize.brentq(excess, LEAST, MOST, rtol=1e-6)) if excess(LEAST) > 0 else LEAST


def composed(
    epsilons: Sequence[float], rounds: Sequence[int], rate: float, delta: float, how: Inversion = "exact"
) -> float:
    """`rounds[i]` rounds with the epsilon `epsilons[i]` each, every unit being drawn with chance `rate`."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    with quiet():
        for epsilon, count in zip(epsilons, rounds, strict=True):
            noise = noise_of(epsilon, delta, how)
            if count < 1 or noise == float("inf"):
                continue
            event: Any = dp_accounting.GaussianDpEvent(max(noise, LEAST))
            if rate < 1:
                event = dp_accounting.PoissonSampledDpEvent(rate, event)
            accountant.compose(event, count)
        return float(accountant.get_epsilon(delta))
