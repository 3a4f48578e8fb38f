"""A test of a live claim that may be looked at after every round: "each round is (epsilon, delta)-DP for one user".

It needs fresh randomness in every round, which only canaries bring: at each probe an independent fair coin decides
whether the canary takes part, and the probe gives a score. (A design with equally many probes with and without the
canary does not qualify, because its last coins follow from the others. Nor do records that are scored again in each
round; for those see `bands`.)

1. Before a coin is seen, guess it from the score ("in" or "out") or abstain, by thresholds from earlier rounds alone.
2. Write a, b, c for the chances that the guess is right, is wrong, or is not made. DP says, for a fair coin and
   whatever came before, a <= e^eps b + delta. The corners of this set of (a, b, c) are (0, 0, 1), (0, 1, 0),
   (delta, 0, 1 - delta) and (q, 1 - q, 0) with q = (e^eps + delta) / (1 + e^eps).
3. Stake a share theta of the capital on the guess: a right one multiplies the capital by 1 + theta (1/q - 1), a wrong
   one by 1 - theta, an abstention by 1 - theta delta / (1 + delta). The expectation is at most 1 at each corner (at
   the third because q >= (1 + delta) / 2), hence everywhere; so is that of an average over shares, over rules of
   guessing, and over several canaries in one round, however these depend on each other.
4. So the capital is a non-negative supermartingale under the claim, and the probability that it ever reaches 1/alpha is
   at most alpha (Ville). One may look, and stop, at any time.
5. Of these factors only the one for a right guess depends on epsilon, and it falls as epsilon grows. So the claims
   refuted so far are all those below some epsilon: a lower bound that holds at every round at once.

The claim compares one round with the user and one without. It is not about the whole training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from fedaudit.errors import FedauditError
from fedaudit.stats.epsilon import LIMITED
from fedaudit.stats.gaussian import check_delta, check_epsilon
from fedaudit.types import Bools, Curve, Estimate, Floats, Ints

SHARES = np.concatenate([np.geomspace(0.02, 0.8, 8), [0.9, 0.97, 0.99, 1.0]])
BANDS = np.array([0.0, 1.0, 2.0])  # abstain so many standard deviations around the middle
MAX_EPSILON = 60.0
STEP = 0.01  # of epsilon, on the grid of the curve
EXPECTED = (0.0, 1.0)  # a canary's score without it and with it, before any was seen


@dataclass(frozen=True)
class Probes:
    """Scores with the coins that decided who was present, in the order of time. Probes of the same round come from
    one run of the mechanism: their guesses are made before any of their coins is seen."""

    score: Floats
    present: Bools
    round: Ints

    def __post_init__(self) -> None:
        if not len(self.score) == len(self.present) == len(self.round) or (np.diff(self.round) < 0).any():
            what = "scores, coins and rounds differ in number, or the rounds are not in order"
            raise FedauditError("probes", what, "Give one of each for every probe, in the order of time.")


def chance_allowed(epsilon: float, delta: float) -> float:
    """How often a guess about a fair coin may be right under (epsilon, delta)-DP."""
    check_epsilon(epsilon)
    check_delta(delta)
    return float((1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))


# ------------------------------------------------------------------ guess


def guesses(probes: Probes, expected: tuple[float, float] = EXPECTED) -> Ints:
    """Probes x rules: 1 for "in", -1 for "out", 0 where the rule abstains (as all do on a score that is NaN).

    The middle lies between the mean scores with and without the canary in earlier rounds, and the band is so many of
    their standard deviations wide on either side. The expected scores count as one earlier probe of each kind.
    """
    _, starts, round = np.unique(probes.round, return_index=True, return_inverse=True)
    seen = np.where(np.isfinite(probes.score), probes.score, 0.0)
    means, squares, count = [], np.zeros(len(seen)), np.ones(len(seen))
    for prior, here in zip(expected, (~probes.present, probes.present), strict=True):
        # Sums over the rounds before: those over all probes up to the start of the own round.
        n, total, square = (
            np.append(0.0, np.cumsum(np.where(here & np.isfinite(probes.score), values, 0.0)))[starts][round]
            for values in (np.ones(len(seen)), seen, seen**2)
        )
        mean = (total + prior) / (n + 1)
        means.append(mean)
        squares, count = squares + np.maximum(square - 2 * mean * total + n * mean**2, 0.0), count + n
    centre, first_guess = (means[0] + means[1]) / 2, (expected[1] - expected[0]) / 4
    spread = np.sqrt((squares + first_guess**2) / count)
    away = (probes.score - centre)[:, None]
    band = BANDS * spread[:, None]
    return np.asarray((away > band).astype(np.int64) - (away < -band))


# ------------------------------------------------------------------ bet


def log_capital(guess: Ints, probes: Probes, epsilon: float, delta: float) -> Floats:
    """The logarithm of the capital against a claim after each round, starting from a capital of 1."""
    gain, tax = 1 / chance_allowed(epsilon, delta) - 1, delta / (1 + delta)
    coin = np.where(probes.present, 1, -1)[:, None]
    won = np.where(guess == 0, -tax, np.where(guess == coin, gain, -1.0))  # by a stake of 1
    starts = np.unique(probes.round, return_index=True)[1]
    if not len(starts):
        return np.empty(0)
    mean = np.add.reduceat(won, starts) / np.diff([*starts, len(won)])[:, None]
    with np.errstate(divide="ignore"):  # everything staked and lost: this share of the capital stays 0
        logs = np.cumsum(np.log1p(mean[:, :, None] * SHARES), axis=0)
    return np.asarray(special.logsumexp(logs, axis=(1, 2)) - math.log(len(BANDS) * len(SHARES)))


@dataclass(frozen=True)
class Watched:
    """The evidence against a claim so far. An e-value of 1/alpha or more, at any time, refutes it at level alpha."""

    e_value: Sequence[float]  # after each round
    refuted_at: int | None  # the first round that refutes the claim

    @property
    def largest(self) -> float:
        return max(self.e_value, default=1.0)


@dataclass(frozen=True)
class RoundClaim:
    """What is claimed of each round: it is (epsilon, delta)-DP for the user whose coin is guessed."""

    epsilon: float
    delta: float

    def watch(self, probes: Probes, confidence: float = 0.95, expected: tuple[float, float] = EXPECTED) -> Watched:
        """To be called after any round with all probes so far; calling it often costs nothing."""
        logs = log_capital(guesses(probes, expected), probes, self.epsilon, self.delta)
        crossed = np.flatnonzero(logs >= -math.log(1 - confidence))
        rounds = np.unique(probes.round)
        return Watched(np.exp(logs).tolist(), int(rounds[crossed[0]]) if len(crossed) else None)


# ------------------------------------------------------------------ the bound


def anytime_epsilon(
    probes: Probes, delta: float, confidence: float = 0.95, expected: tuple[float, float] = EXPECTED
) -> Estimate:
    """Lower bound of the epsilon of one round, valid at every round at once: looking early costs nothing."""
    check_delta(delta)
    if not 0 < confidence < 1:
        raise FedauditError("confidence", f"confidence must lie between 0 and 1, got {confidence}", "Give, say, 0.95.")
    inside, rounds = int(np.count_nonzero(probes.present)), len(np.unique(probes.round))
    bound = _largest_refuted(guesses(probes, expected), probes, delta, confidence)
    always_right = np.where(probes.present, 1, -1)[:, None] * np.ones(len(BANDS), np.int64)
    most = _largest_refuted(always_right, probes, delta, confidence)
    method = (
        f"e-process over {len(probes.score)} fair coins in {rounds} rounds, valid at every round at once; one-sided "
        f"lower bound of the epsilon of one round at delta {delta:g}"
    )
    return Estimate(
        "epsilon-anytime", bound, bound, None, confidence, method, "proved", inside, len(probes.score) - inside,
        reason=LIMITED if bound >= most else None, ceiling=most,
    )  # fmt: skip


def anytime_curve(
    probes: Probes, delta: float, confidence: float = 0.95, expected: tuple[float, float] = EXPECTED
) -> Curve:
    """The bound as it stood after each round, to the step of a grid; it never falls."""
    rounds = np.unique(probes.round)
    bound, guess, epsilon = np.zeros(len(rounds)), guesses(probes, expected), 0.0
    while len(crossed := _crossings(guess, probes, epsilon, delta, confidence)):
        bound[crossed[0] :] = epsilon
        epsilon += STEP
    values = bound.tolist()
    method = f"e-process: the lower bounds hold at all rounds at once, with {confidence:.0%} confidence"
    return Curve(rounds.astype(float).tolist(), values, values, [None] * len(values), method)


def _crossings(guess: Ints, probes: Probes, epsilon: float, delta: float, confidence: float) -> Ints:
    return np.flatnonzero(log_capital(guess, probes, epsilon, delta) >= -math.log(1 - confidence))


def _largest_refuted(guess: Ints, probes: Probes, delta: float, confidence: float) -> float:
    if not len(_crossings(guess, probes, 0.0, delta, confidence)):
        return 0.0
    low, high = 0.0, MAX_EPSILON
    while high - low > 1e-6:
        middle = (low + high) / 2
        refuted = len(_crossings(guess, probes, middle, delta, confidence)) > 0
        low, high = (middle, high) if refuted else (low, middle)
    return low
