"""The Gaussian mechanism, exactly: from the separation mu = sensitivity / sigma to (epsilon, delta).

Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018; Dong, Roth and Su, "Gaussian
differential privacy", JRSSB 2022. The classic formula sigma = sqrt(2 log(1.25/delta)) / epsilon is wrong above
epsilon 1 and appears nowhere here.
"""

import math
from collections.abc import Callable

from scipy import special

from fedaudit.errors import FedauditError


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Smallest delta for which N(0, 1) against N(mu, 1) is (epsilon, delta)-indistinguishable."""
    if mu == 0:
        return 0.0
    # Phi(a) - e^eps Phi(b) cancels almost wholly in the tail: subtract the logarithms first.
    first, second = special.log_ndtr(mu / 2 - epsilon / mu), epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
    return float(math.exp(first) * -math.expm1(min(second - first, 0.0)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon of a Gaussian mechanism of separation mu at this delta."""
    check_delta(delta, zero=False)
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    return _root(lambda epsilon: gaussian_delta(epsilon, mu) - delta)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest separation that (epsilon, delta) allows; the noise multiplier is its inverse."""
    check_epsilon(epsilon)
    check_delta(delta, zero=False)
    return _root(lambda mu: delta - gaussian_delta(epsilon, mu))


def check_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise FedauditError("epsilon", f"epsilon must be a finite number of at least 0, got {epsilon}", "Give one.")


def check_delta(delta: float, zero: bool = True) -> None:
    if not (math.isfinite(delta) and delta < 1 and (delta > 0 or (zero and delta == 0))):
        least = "at least 0" if zero else "above 0"
        raise FedauditError("delta", f"delta must be {least} and below 1, got {delta}", "Give, for example, 1e-5.")


def _root(falling: Callable[[float], float]) -> float:
    """Where a falling function of a non-negative argument crosses zero, by bisection to the last bits."""
    low, high = 0.0, 1.0
    while falling(high) > 0:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high) and high - low > 1e-14 * high:
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return high
