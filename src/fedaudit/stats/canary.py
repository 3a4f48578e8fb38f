"""Statistics of canaries: scores with and without one, cosines of random ones, and how many probes refute a claim.

Empirical epsilons from trials are in `epsilon`, one that may be looked at in every round in `anytime`.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import special, stats

from fedaudit.errors import FedauditError
from fedaudit.stats.anytime import Probes, RoundClaim
from fedaudit.stats.epsilon import Bonferroni, proved_epsilon
from fedaudit.stats.gaussian import check_delta, gaussian_epsilon
from fedaudit.stats.intervals import clopper_pearson
from fedaudit.types import Estimate, Floats

NULL_RATES = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)  # of directions that were never sent, fixed in advance
POWER = 0.8
_AUDITS = 200
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


def null_tail(cosine: float, size: int) -> float:
    """The chance that a random direction in so many dimensions has at least this cosine: exact."""
    return float(special.betainc((size - 1) / 2, (size - 1) / 2, (1 - min(max(cosine, -1.0), 1.0)) / 2))


def null_threshold(rate: float, size: int) -> float:
    """The cosine that a random direction exceeds with this chance."""
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
    directions nearly are; for a bound that needs no such assumption see `onerun`.
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


def refutes(members: Floats, nonmembers: Floats, claimed: float, delta: float, confidence: float = 0.95) -> bool:
    """Is the claimed epsilon of a round below what is proved?"""
    bound = proved_epsilon(members, nonmembers, delta, Bonferroni(), confidence).value
    return bound is not None and bound > claimed


def probes_needed(
    claimed_noise: float, true_noise: float, delta: float, confidence: float = 0.95, power: float = POWER
) -> int | None:
    """Probes (half of them with the canary) that refute the claim with this power, if the noise is really `true_noise`.

    Ideal canaries are simulated, always the same ones. None: MOST_PROBES are not enough.
    """
    claimed = _claimed(claimed_noise, true_noise, delta)

    def enough(probes: int) -> bool:
        rng = np.random.default_rng(probes)
        caught = sum(
            refutes(1 + true_noise * rng.standard_normal(probes // 2), true_noise * rng.standard_normal(probes // 2),
                    claimed, delta, confidence)
            for _ in range(_AUDITS)
        )  # fmt: skip
        return caught >= power * _AUDITS

    count = 16
    while not enough(count):
        count = 2 * math.ceil(count * 0.7)
        if count > MOST_PROBES:
            return None
    return count


def rounds_needed(
    claimed_noise: float, true_noise: float, delta: float, confidence: float = 0.95, power: float = POWER
) -> int | None:
    """Of canaries that run: rounds until the e-process refutes the claim. None: MOST_ROUNDS are not enough."""
    claim = RoundClaim(_claimed(claimed_noise, true_noise, delta), delta)
    rng, rounds = np.random.default_rng(0), np.arange(MOST_ROUNDS)
    ends = []
    for _ in range(_AUDITS):
        present = rng.random(MOST_ROUNDS) < 0.5
        score = present + true_noise * rng.standard_normal(MOST_ROUNDS)
        refuted = claim.watch(Probes(score, present, rounds), confidence).refuted_at
        ends.append(MOST_ROUNDS if refuted is None else refuted)
    last = sorted(ends)[math.ceil(power * _AUDITS) - 1]
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
