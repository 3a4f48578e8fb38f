"""A share of records with its interval, where several records may belong to one subject: the one function for it."""

from collections.abc import Sequence

import numpy as np

from fedaudit.stats.blocks import Groups, design_effect, effective_subjects, numbered
from fedaudit.stats.intervals import clopper_pearson, few_subjects_factor
from fedaudit.types import Bools, Estimate, Floats

BY_SUBJECT = "; clustered by subject"
_PRIOR = 0.15  # how much of an average subject, whose records all err together, is assumed before any is seen


def proportion(
    hits: Sequence[Bools | Floats],
    subjects: Sequence[Groups | None],
    confidence: float = 0.95,
    name: str = "accuracy",
    method: str = "",
    by: str = "subject",
) -> Estimate:
    """The share of hits over all groups together; `subjects` says whose each record is (None: all independent).
    A hit may be a fraction: the chance that a coin, which breaks a tie, makes it one.

    Clopper-Pearson with counts divided by the design effect, which is enlarged if it was measured on few subjects.
    `method` says what was counted, `by` what the subjects are called.
    """
    n, k = sum(len(own) for own in hits), sum(_total(own) for own in hits)
    known = [own for own in subjects if own is not None]
    people = len(np.unique(np.concatenate(known))) if known else 0
    several = 1 < people < sum(len(own) for own in known)
    told = (f"{method}; " if method else "") + "Clopper-Pearson" + f"; clustered by {by}" * several
    if n == 0:
        return Estimate(name, None, None, None, confidence, told, "measured", 0, 0, reason="nobody is left to count")
    alpha = 1 - confidence
    spread = _spread(hits, subjects, alpha) if several else 1.0
    low, high = clopper_pearson(k / spread, n / spread, alpha / 2, alpha / 2)
    return Estimate(name, k / n, low, high, confidence, told, "measured", round(k), n - round(k))


def _total(hits: Bools | Floats) -> float:
    """The sum, the same bits in whatever order the records are stored."""
    values, counts = np.unique(np.asarray(hits, np.float64), return_counts=True)
    return float(np.sum(values * counts))


def _spread(hits: Sequence[Bools | Floats], subjects: Sequence[Groups | None], alpha: float) -> float:
    """The design effect. A few hits or misses say little about how they cluster, so a fraction of one subject whose
    records all err together is added to what was seen."""
    numbers = numbered(subjects)
    known = [own for own in numbers if own is not None]
    everybody = np.concatenate(known)
    sizes = np.bincount(everybody).astype(np.float64)
    average = float(np.sum(sizes**2) / sizes.sum())
    seen = sum(_variance(own) for own in hits)
    measured = design_effect(hits, numbers)
    blended = (measured * seen + _PRIOR * average**2) / (seen + _PRIOR * average)
    return max(blended, 1.0) * few_subjects_factor(effective_subjects([everybody]), alpha)


def _variance(hits: Bools | Floats) -> float:
    share = float(np.mean(hits)) if len(hits) else 0.0
    return len(hits) * share * (1 - share)
