"""An e-process: a test that may be looked at after every round, for games in which each round has fresh randomness.

Only canaries and coins qualify: in every round a fresh fair coin decides whether the unit takes part, and the
adversary guesses. (Records that are re-scored each round have no fresh randomness; the auditor computes their band.)

Under (epsilon, delta)-DP per round a guess is right with chance at most q = (e^eps + delta) / (1 + e^eps), whatever
happened before. Betting a share theta of the capital on "right" at the fair odds for q multiplies it by
1 + theta (right / q - 1), whose expectation is at most 1; so is that of the average over several theta. Ville: the
capital ever reaches 1/alpha with probability at most alpha. So one may look, and stop, at any time.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from fedaudit.stats.gaussian import check_delta, check_epsilon
from fedaudit.types import Bools, Estimate, Floats

SHARES = np.concatenate([np.geomspace(0.01, 0.8, 12), [0.9, 0.97, 0.99, 1.0]])


def chance_allowed(epsilon: float, delta: float) -> float:
    """How often a guess about a fair coin may be right under (epsilon, delta)-DP."""
    check_epsilon(epsilon)
    check_delta(delta)
    return float((1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))


def log_capital(right: Bools, chance: float) -> Floats:
    """The logarithm of the capital after each guess, starting from 1; `right` is rounds, or games x rounds."""
    hits = np.cumsum(right, axis=-1)[..., None]
    misses = np.arange(1, right.shape[-1] + 1)[:, None] - hits
    gain = np.log1p(SHARES * (1 / chance - 1))
    with np.errstate(divide="ignore", invalid="ignore"):  # everything on one guess: lost at the first miss
        terms = hits * gain + np.where(misses > 0, misses * np.log1p(-SHARES), 0.0)
    return np.asarray(special.logsumexp(terms, axis=-1) - math.log(len(SHARES)))


@dataclass(frozen=True)
class Claim:
    """The claim about each round: it is (epsilon, delta)-DP for the unit whose coin is guessed."""

    epsilon: float
    delta: float

    def refuted_at(self, right: Bools, alpha: float = 0.05) -> int | None:
        """The first round (from 1) whose evidence refutes the claim at level alpha; None if none does."""
        crossed = log_capital(right, chance_allowed(self.epsilon, self.delta)) >= math.log(1 / alpha)
        return int(np.argmax(crossed)) + 1 if crossed.any() else None


def anytime_epsilon(right: Bools, delta: float, confidence: float = 0.95) -> Estimate:
    """Lower bound of the per-round epsilon that holds at every round at once, so that looking early costs nothing."""
    alpha, rounds = 1 - confidence, len(right)

    def refuted(epsilon: float) -> bool:  # falls with epsilon: every factor does
        return rounds > 0 and float(log_capital(right, chance_allowed(epsilon, delta)).max()) >= math.log(1 / alpha)

    low, high = 0.0, 60.0
    while refuted(0.0) and high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    hits = int(np.count_nonzero(right))
    method = f"e-process over {rounds} fresh coins, valid at every round; per round, at delta {delta:g}"
    return Estimate("epsilon-anytime", low, low, None, confidence, method, "proved", hits, rounds - hits)
