"""Before any training: what an audit of a given size will be able to show.

A risk is *visible* when the lower end of its interval lies above what guessing gives: above the FPR for a TPR, above
0.5 for an AUC. The smallest visible risk is the smallest true one that is seen so with a given power.

Before there are scores, their distribution must be assumed: here, members' and outsiders' scores are Gaussian with a
shift between them (the ROC curve of the Gaussian mechanism). The counts matter more: they decide how high a lower end
can be.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from fedaudit.stats.intervals import clopper_pearson, hanley_mcneil_variance, quantile_ranks
from fedaudit.types import Floats

POWER = 0.8
_NODES = 200  # quantiles of the threshold's true FPR over which the power is averaged


@dataclass(frozen=True)
class Sizes:
    """Independent candidates in total; `thresholds` parties of equal size have one each (local models), or 1."""

    members: int
    evaluation: int
    calibration: int
    thresholds: int = 1

    def of_each(self) -> "Sizes":
        """One party alone."""
        k = self.thresholds
        return Sizes(self.members // k, self.evaluation // k, self.calibration // k)


def smallest_visible_tpr(sizes: Sizes, fpr: float, confidence: float = 0.95, power: float = POWER) -> float | None:
    """None: no TPR can be seen; the calibration set is too small for a lower end above 0, or the members too few."""

    def reached(shift: float) -> float:
        return power_of_tpr(sizes, fpr, float(special.ndtr(special.ndtri(fpr) + shift)), confidence) - power

    furthest = 12.0
    if reached(furthest) < 0:
        return None
    return float(special.ndtr(special.ndtri(fpr) + _crossing(reached, furthest)))


def power_of_tpr(sizes: Sizes, fpr: float, tpr: float, confidence: float = 0.95) -> float:
    """Chance that `tpr_at_fpr` gives a lower end above `fpr` when the true TPR at that FPR is `tpr`.

    Its lower end counts the members above an order statistic of the calibration scores, whose own FPR follows a beta
    distribution. The hits of one party are thus a mixture of binomials; parties add up.
    """
    alpha = (1 - confidence) / 4
    each = sizes.of_each()
    above, _ = quantile_ranks(each.calibration, fpr, alpha / sizes.thresholds) if each.calibration else (0, 0)
    if above == 0 or each.members == 0:
        return 0.0
    members = each.members * sizes.thresholds
    enough = _smallest_count(members, fpr, alpha)
    if enough > members:
        return 0.0
    middles = (np.arange(_NODES) + 0.5) / _NODES
    true_fpr = special.betaincinv(above, each.calibration - above + 1, middles)
    shift = special.ndtri(tpr) - special.ndtri(fpr)
    hit = special.ndtr(special.ndtri(true_fpr) + shift)
    if sizes.thresholds == 1:
        return float(np.mean(stats.binom.sf(enough - 1, members, hit)))
    return float(_sum_of_parties(each.members, hit, sizes.thresholds)[enough:].sum())


def _sum_of_parties(members: int, hit: Floats, parties: int) -> Floats:
    """The distribution of the sum of as many independent mixtures of binomials: a power in the Fourier domain."""
    counts = np.arange(members + 1)
    one = np.zeros(members + 1)
    for chance in hit:
        one += stats.binom.pmf(counts, members, chance) / len(hit)
    length = members * parties + 1
    return np.asarray(np.fft.irfft(np.fft.rfft(one, length) ** parties, length))


def _smallest_count(n: int, fpr: float, alpha: float) -> int:
    """The fewest hits among n whose lower end lies above `fpr`; n + 1 where even n are not enough."""
    few, many = 0, n + 1
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if clopper_pearson(middle, n, alpha, alpha)[0] > fpr else (middle, many)
    return many


def smallest_visible_auc(sizes: Sizes, confidence: float = 0.95, power: float = POWER) -> float | None:
    """The AUC that lies `power` of the time beyond where the score interval leaves 0.5 behind."""
    each = sizes.of_each()
    if not each.members or not each.evaluation:
        return None

    def deviation(theta: float) -> float:
        return float(np.sqrt(hanley_mcneil_variance(theta, each.members, each.evaluation) / sizes.thresholds))

    seen = 0.5 + float(stats.norm.isf((1 - confidence) / 2)) * deviation(0.5)

    def reached(theta: float) -> float:
        return float(special.ndtr((theta - seen) / max(deviation(theta), 1e-12))) - power

    return _crossing(reached, 1.0, start=0.5) if seen < 1 else None


def _crossing(reached: Callable[[float], float], furthest: float, start: float = 0.0) -> float:
    return float(optimize.brentq(reached, start, furthest, xtol=1e-6))
