"""Before any training: what an audit of a given size will be able to show.

A risk is *visible* when the lower end of its interval lies above what guessing gives: above the FPR for a TPR, above
0.5 for an AUC. The smallest visible risk is the smallest true risk that is visible four times in five (`POWER`).

Before there are scores, their distribution must be assumed: here, members' and outsiders' scores are Gaussian with a
shift between them (the ROC curve of the Gaussian mechanism). The counts matter more: they decide how high a lower end
can be.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize, special

from fedaudit.stats.blocks import needed_for_value
from fedaudit.stats.intervals import hanley_mcneil_variance
from fedaudit.stats.roc import rank_chances
from fedaudit.types import Floats, Ints

POWER = 0.8
_CELLS = 64


@dataclass(frozen=True)
class Sizes:
    """Numbers of independent candidates, over all parties. `thresholds`: how many parties have a threshold each (local
    models); 1 if there is one for all. They are equal, unless `parties` has the sizes of each."""

    members: int
    evaluation: int
    calibration: int
    thresholds: int = 1
    parties: tuple["Sizes", ...] = ()

    @classmethod
    def of(cls, parties: Sequence["Sizes"]) -> "Sizes":
        """Of parties that are not equal."""
        members, evaluation = sum(each.members for each in parties), sum(each.evaluation for each in parties)
        return cls(members, evaluation, sum(each.calibration for each in parties), len(parties), tuple(parties))

    @property
    def each(self) -> tuple["Sizes", ...]:
        k = self.thresholds
        return self.parties or (Sizes(self.members // k, self.evaluation // k, self.calibration // k),) * k


# ------------------------------------------------------------------ TPR


@lru_cache(maxsize=256)  # a plan asks again for each sentence and table
def smallest_visible_tpr(sizes: Sizes, fpr: float, confidence: float = 0.95) -> float | None:
    """None: no TPR can be seen; the calibration set is too small for a lower end above 0, or the members too few."""

    def reached(shift: float) -> float:
        return power_of_tpr(sizes, fpr, float(special.ndtr(special.ndtri(fpr) + shift)), confidence) - POWER

    furthest = 12.0
    if reached(furthest) < 0:
        return None
    return float(special.ndtr(special.ndtri(fpr) + _crossing(reached, furthest)))


def power_of_tpr(sizes: Sizes, fpr: float, tpr: float, confidence: float = 0.95) -> float:
    """Chance that `tpr_at_fpr` gives a lower end above `fpr` when the true TPR at that FPR is `tpr`.

    Audits of this size are simulated, always the same ones. Their lower ends need not be computed: one lies above `fpr`
    if the distribution of which it is a quantile has less than its share of the error below `fpr`.
    """
    parties = [each for each in sizes.each if each.calibration]  # the others are left out
    members = sum(each.members for each in parties)
    if not members or sum(each.calibration for each in parties) < needed_for_value(fpr):
        return 0.0
    audits = 500 if len(parties) <= 8 else 150
    rng = np.random.default_rng(0)
    tails = _tails(members, fpr)
    spread, moved = np.zeros((audits, len(tails))), np.zeros(audits)
    spread[:, 0] = 1.0
    for each in parties:
        ranks, chances = _thinned_ranks(each.calibration, fpr)
        hits = _simulated_hits(each, ranks, fpr, tpr, audits, rng)
        spread = _added(spread, np.minimum(hits, len(tails)), chances)
        moved += hits @ chances - [np.interp(each.calibration * fpr, ranks, own) for own in hits]
    back = np.maximum(moved, 0.0) if len(parties) > 1 else np.zeros(audits)  # as `_sum_of_hits` does
    at = np.arange(len(tails))
    below = [own @ np.interp(at - shift, at, tails) for own, shift in zip(spread, back, strict=True)]
    return float(np.mean(np.array(below) <= (1 - confidence) / 2))


def _tails(total: int, fpr: float) -> Floats:
    """P(Bin(total, fpr) >= hits) = P(Beta(hits, total - hits + 1) <= fpr) for hits from 0 on, as long as it matters."""
    most = min(total, math.ceil(total * fpr + 12 * math.sqrt(total * fpr) + 16))
    return np.concatenate([[1.0], special.bdtrc(np.arange(most), total, fpr)])


def _thinned_ranks(n: int, fpr: float) -> tuple[Ints, Floats]:
    """The ranks a true threshold may have, and their chances; where there are many, neighbours are joined."""
    ranks, chances = rank_chances(n, fpr)
    cells = np.arange(len(ranks)) * min(_CELLS, len(ranks)) // len(ranks)
    together = np.asarray(np.bincount(cells, chances), np.float64)
    middles = np.rint(np.bincount(cells, chances * ranks) / together).astype(np.int64)
    return middles, together


def _simulated_hits(sizes: Sizes, ranks: Ints, fpr: float, tpr: float, audits: int, rng: np.random.Generator) -> Floats:
    """Audits x ranks: the members above the calibration scores of these ranks, in one party.

    The FPRs at the calibration scores, from the highest down, are distributed like sorted uniform draws; the number of
    members between two of them is binomial.
    """
    steps = np.diff(ranks, prepend=0)
    highest = np.cumsum(rng.standard_gamma(steps, (audits, len(ranks))), axis=1)
    highest /= highest[:, -1:] + rng.standard_gamma(sizes.calibration + 1 - ranks[-1], (audits, 1))
    shift = min(float(special.ndtri(tpr) - special.ndtri(fpr)), 40.0)  # finite, so that nothing lies above rank 0
    caught = special.ndtr(special.ndtri(highest) + shift)
    hits, so_far, before = np.zeros((audits, len(ranks))), np.zeros(audits, np.int64), np.zeros(audits)
    for at in range(len(ranks)):
        chance = np.clip((caught[:, at] - before) / np.maximum(1 - before, 1e-12), 0.0, 1.0)
        so_far = so_far + rng.binomial(sizes.members - so_far, chance)
        hits[:, at], before = so_far, caught[:, at]
    return hits


def _added(spread: Floats, hits: Floats, chances: Floats) -> Floats:
    """The distribution of the hits so far plus those of one more party, cut off where no tail is left."""
    audits, length = spread.shape
    cells = (hits.astype(np.int64) + (length + 1) * np.arange(audits)[:, None]).ravel()
    own = np.bincount(cells, np.tile(chances, audits), audits * (length + 1)).reshape(audits, length + 1)[:, :length]
    size = 2 * length
    return np.asarray(np.fft.irfft(np.fft.rfft(spread, size) * np.fft.rfft(own, size), size)[:, :length])


# ------------------------------------------------------------------ AUC


def smallest_visible_auc(sizes: Sizes, confidence: float = 0.95) -> float | None:
    """The smallest AUC whose score interval lies above 0.5 four times in five."""
    parties = [each for each in sizes.each if each.members and each.evaluation]
    if not parties:
        return None
    pairs = np.array([each.members * each.evaluation for each in parties], float)
    weights = pairs / pairs.sum()  # as `ranking.pool` does

    def deviation(theta: float) -> float:
        variances = [hanley_mcneil_variance(theta, each.members, each.evaluation) for each in parties]
        return float(np.sqrt(weights**2 @ np.array(variances)))

    seen = 0.5 + float(special.ndtri(1 - (1 - confidence) / 2)) * deviation(0.5)

    def reached(theta: float) -> float:
        return float(special.ndtr((theta - seen) / max(deviation(theta), 1e-12))) - POWER

    return _crossing(reached, 1.0, start=0.5) if seen < 1 else None


def _crossing(reached: Callable[[float], float], furthest: float, start: float = 0.0) -> float:
    return float(optimize.brentq(reached, start, furthest, xtol=1e-3))
