"""Statistics of canaries: scores with and without one, cosines of random ones, a claim tested round by round, and
how many probes refute one.

Empirical epsilons from trials are in `epsilon`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from fedaudit.errors import FedauditError
from fedaudit.stats.epsilon import LIMITED, refutes
from fedaudit.stats.gaussian import check_delta, check_epsilon, gaussian_epsilon
from fedaudit.stats.intervals import clopper_pearson
from fedaudit.types import Bools, Curve, Estimate, Floats, Ints

NULL_RATES = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)  # of directions that were never sent, fixed in advance
POWER = 0.8
_AUDITS = 100
MOST_PROBES, MOST_ROUNDS = 100_000, 5_000  # that are simulated


def score_sd(members: Floats, nonmembers: Floats, confidence: float = 0.95) -> Estimate:
    """The standard deviation of scores around the mean of their kind; the interval is exact for normal scores."""
    m, n = len(members), len(nonmembers)
    name, method = "score-sd", "pooled standard deviation around the means with and without; chi-square interval"
    freedom = m + n - 2
    if freedom < 1:
        return Estimate(name, None, None, None, confidence, method, "measured", m, n, reason="too few trials")
    squares = float(np.sum((members - members.mean()) ** 2) + np.sum((nonmembers - nonmembers.mean()) ** 2))
    tail = (1 - confidence) / 2
    low, high = (math.sqrt(squares / float(stats.chi2.ppf(p, freedom))) for p in (1 - tail, tail))
    return Estimate(name, math.sqrt(squares / freedom), low, high, confidence, method, "measured", m, n)


# ------------------------------------------------------------------ random canaries


def null_threshold(rate: float, size: int) -> float:
    """The cosine that a random direction in so many dimensions exceeds with this chance: exact."""
    return float(1 - 2 * special.betaincinv((size - 1) / 2, (size - 1) / 2, rate))


def one_shot_epsilon(cosines: Floats, size: int, delta: float, confidence: float = 0.95) -> Estimate:
    """Epsilon of the Gaussian mechanism that moves the cosines so far. An estimate, not a bound.

    The standard deviation is that of the null, 1/sqrt(size), and is not fitted: fitting it doubles epsilon where there
    are few canaries and much noise. The canaries themselves make the sum longer, which lowers every cosine: of its
    squared length they have the share k cos^2, which is taken out.
    """
    check_delta(delta, zero=False)
    k = len(cosines)
    name, method = (
        "epsilon-one-shot",
        f"mean of {k} cosines against N(0, 1/{size}); Gaussian mechanism at delta {delta:g}",
    )
    if k < 8:
        why = f"needs at least 8 canaries that took part, and there were {k}"
        return Estimate(name, None, None, None, confidence, method, "model-based", k, 0, reason=why)
    mu = float(cosines.mean()) * math.sqrt(size)
    half = float(stats.t.ppf((1 + confidence) / 2, k - 1)) * float(cosines.std(ddof=1)) * math.sqrt(size / k)

    def by_the_rest(t: float) -> float:
        return max(t, 0.0) / math.sqrt(max(1 - k * t**2 / size, 1e-9))

    mu, ends = by_the_rest(mu), (by_the_rest(mu - half), by_the_rest(mu + half))
    low, value, high = (gaussian_epsilon(t, delta) for t in (ends[0], mu, ends[1]))
    return Estimate(name, value, low, high, confidence, f"{method}; mu = {mu:.4g}", "model-based", k, 0)


def one_shot_bound(cosines: Floats, size: int, delta: float, confidence: float = 0.95, looks: int = 1) -> Estimate:
    """A lower bound: how many canaries pass thresholds whose false-positive rate is known exactly.

    The thresholds are fixed in advance and share the error. Where the largest cosine of several rounds counts, its
    null chance is at most `looks` times that of one. The canaries of one run are taken as independent, which the random
    directions nearly are; for a bound that needs no such assumption see `one_run_epsilon`.
    """
    check_delta(delta)
    k = len(cosines)
    alpha, best = (1 - confidence) / len(NULL_RATES), 0.0
    for rate in NULL_RATES:
        hits = int(np.count_nonzero(cosines > null_threshold(rate / looks, size)))
        least = clopper_pearson(hits, k, alpha, 0.0)[0]
        best = max(best, math.log(max((least - delta) / rate, 1.0)))
    most = max(math.log(max((clopper_pearson(k, k, alpha, 0.0)[0] - delta) / rate, 1.0)) for rate in NULL_RATES)
    method = f"Clopper-Pearson of the share of {k} canaries above {len(NULL_RATES)} thresholds with exact null rates"
    return Estimate(
        "epsilon-one-shot-bound", best, best, None, confidence, f"{method}; at delta {delta:g}", "model-based", k, 0,
        ceiling=most,
    )  # fmt: skip


# ------------------------------------------------------------------ how many probes it takes


def probes_needed(claimed_noise: float, true_noise: float, delta: float, confidence: float = 0.95) -> int | None:
    """Probes (half of them with the canary) that refute the claim four times in five, if the noise is `true_noise`.

    Ideal canaries are simulated, always the same ones. None: MOST_PROBES are not enough.
    """
    claimed = _claimed(claimed_noise, true_noise, delta)

    def enough(probes: int) -> bool:
        half = probes // 2
        if not refutes(np.ones(half), np.zeros(half), claimed, delta, confidence):
            return False  # not even if no probe goes wrong
        rng, missed = np.random.default_rng(probes), 0
        for _ in range(_AUDITS):
            inside, outside = 1 + true_noise * rng.standard_normal(half), true_noise * rng.standard_normal(half)
            missed += not refutes(inside, outside, claimed, delta, confidence)
            if missed > (1 - POWER) * _AUDITS:
                return False
        return True

    count = 16
    while not enough(count):
        count = 2 * math.ceil(count * 0.7)
        if count > MOST_PROBES:
            return None
    return count


def rounds_needed(claimed_noise: float, true_noise: float, delta: float, confidence: float = 0.95) -> int | None:
    """Of canaries that run: rounds until the e-process refutes the claim. None: MOST_ROUNDS are not enough."""
    claim = RoundClaim(_claimed(claimed_noise, true_noise, delta), delta)
    rng, rounds = np.random.default_rng(0), np.arange(MOST_ROUNDS)
    ends = []
    for _ in range(_AUDITS):
        present = rng.random(MOST_ROUNDS) < 0.5
        score = present + true_noise * rng.standard_normal(MOST_ROUNDS)
        refuted = claim.watch(Probes(score, present, rounds), confidence).refuted_at
        ends.append(MOST_ROUNDS if refuted is None else refuted)
    last = sorted(ends)[math.ceil(POWER * _AUDITS) - 1]
    return last + 1 if last < MOST_ROUNDS else None


def _claimed(claimed_noise: float, true_noise: float, delta: float) -> float:
    """The epsilon claimed for one round."""
    if not (claimed_noise > 0 and true_noise >= 0):
        raise FedauditError("dp-noise", "noise must be above 0", "Give the noise in units of the clip norm.")
    return gaussian_epsilon(1 / claimed_noise, delta)


def histogram(members: Floats, nonmembers: Floats, bins: int = 24) -> tuple[Sequence[float], Floats, Floats]:
    """The middles of common bins, and how many scores of either kind fall into each."""
    both = np.concatenate([members, nonmembers])
    edges = np.linspace(both.min(), max(both.max(), both.min() + 1e-9), bins + 1)
    counts = [np.histogram(scores, edges)[0].astype(np.float64) for scores in (members, nonmembers)]
    return ((edges[1:] + edges[:-1]) / 2).tolist(), counts[0], counts[1]


# ------------------------------------------------------------------ a claim that may be tested after every round

# "Each round is (epsilon, delta)-DP for one user".
#
# The test needs fresh randomness in every round, which only canaries bring: at each probe an independent fair coin
# decides whether the canary takes part, and the probe gives a score. (A design with equally many probes with and
# without the canary does not qualify, because its last coins follow from the others. Nor do records that are scored
# again in each round; for those see `bands`.)
#
# 1. Before a coin is seen, guess it from the score ("in" or "out") or abstain, by thresholds from earlier rounds alone.
# 2. Write a, b, c for the chances that the guess is right, is wrong, or is not made. DP says, for a fair coin and
#    whatever came before, a <= e^eps b + delta. The corners of this set of (a, b, c) are (0, 0, 1), (0, 1, 0),
#    (delta, 0, 1 - delta) and (q, 1 - q, 0) with q = (e^eps + delta) / (1 + e^eps).
# 3. Stake a share theta of the capital on the guess: a right one multiplies the capital by 1 + theta (1/q - 1), a wrong
#    one by 1 - theta, an abstention by 1 - theta delta / (1 + delta). The expectation is at most 1 at each corner (at
#    the third because q >= (1 + delta) / 2), hence everywhere; so is that of an average over shares, over rules of
#    guessing, and over several canaries in one round, however these depend on each other.
# 4. So the capital is a non-negative supermartingale under the claim, and the probability that it ever reaches 1/alpha
#    is at most alpha (Ville). One may look, and stop, at any time.
# 5. Of these factors only the one for a right guess depends on epsilon, and it falls as epsilon grows. So the claims
#    refuted so far are all those below some epsilon: a lower bound that holds at every round at once.
#
# The claim compares one round with the user and one without. It is not about the whole training.


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


def guesses(probes: Probes) -> Ints:
    """Probes x rules: 1 for "in", -1 for "out", 0 where the rule abstains (as all do on a score that is NaN).

    The middle lies between the mean scores with and without the canary in earlier rounds, and the band is so many of
    their standard deviations wide on either side. The expected scores count as one earlier probe of each kind.
    """
    _, starts, round = np.unique(probes.round, return_index=True, return_inverse=True)
    seen = np.where(np.isfinite(probes.score), probes.score, 0.0)
    means, squares, count = [], np.zeros(len(seen)), np.ones(len(seen))
    for prior, here in zip(EXPECTED, (~probes.present, probes.present), strict=True):
        # Sums over the rounds before: those over all probes up to the start of the own round.
        n, total, square = (
            np.append(0.0, np.cumsum(np.where(here & np.isfinite(probes.score), values, 0.0)))[starts][round]
            for values in (np.ones(len(seen)), seen, seen**2)
        )
        mean = (total + prior) / (n + 1)
        means.append(mean)
        squares, count = squares + np.maximum(square - 2 * mean * total + n * mean**2, 0.0), count + n
    centre, first_guess = (means[0] + means[1]) / 2, (EXPECTED[1] - EXPECTED[0]) / 4
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


@dataclass(frozen=True)
class RoundClaim:
    """What is claimed of each round: it is (epsilon, delta)-DP for the user whose coin is guessed."""

    epsilon: float
    delta: float

    def watch(self, probes: Probes, confidence: float = 0.95) -> Watched:
        """To be called after any round with all probes so far; calling it often costs nothing."""
        logs = log_capital(guesses(probes), probes, self.epsilon, self.delta)
        crossed = np.flatnonzero(logs >= -math.log(1 - confidence))
        rounds = np.unique(probes.round)
        return Watched(np.exp(logs).tolist(), int(rounds[crossed[0]]) if len(crossed) else None)


# ------------------------------------------------------------------ the bound


def anytime_epsilon(probes: Probes, delta: float, confidence: float = 0.95) -> Estimate:
    """Lower bound of the epsilon of one round, valid at every round at once: looking early costs nothing."""
    check_delta(delta)
    if not 0 < confidence < 1:
        raise FedauditError("confidence", f"confidence must lie between 0 and 1, got {confidence}", "Give, say, 0.95.")
    inside, rounds = int(np.count_nonzero(probes.present)), len(np.unique(probes.round))
    bound = _largest_refuted(guesses(probes), probes, delta, confidence)
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


def anytime_curve(probes: Probes, delta: float, confidence: float = 0.95) -> Curve:
    """The bound as it stood after each round, to the step of a grid; it never falls."""
    rounds = np.unique(probes.round)
    bound, guess, epsilon = np.zeros(len(rounds)), guesses(probes), 0.0
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
