"""What training again would change: an interval that includes the spread over runs, beside that of a single run.

Random effects: a run's estimate is the mean over all possible runs, plus what is particular to this run, plus the error
of measuring it on a limited number of records. The interval of one run covers only the last of these. Repeated runs may
be measured on the same records, and that error then does not average out over them. So it is not assumed to: the
half-width of a single run's interval and that of the spread over runs (Student's t) are added as squares.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
from scipy import special

from fedaudit.types import Estimate


def at_confidence(estimate: Estimate, confidence: float) -> Estimate:
    """The same with an interval of another confidence, as if it were a normal one: for intervals that cannot be
    computed again. No end leaves 0 and 1 if none did before."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return estimate
    normal = NormalDist().inv_cdf
    scale = normal((1 + confidence) / 2) / normal((1 + estimate.confidence) / 2)
    low, high = (estimate.value + scale * (end - estimate.value) for end in (estimate.low, estimate.high))
    if estimate.low >= 0 and estimate.high <= 1:
        low, high = max(low, 0.0), min(high, 1.0)
    return replace(estimate, low=low, high=high, confidence=confidence)


def over_runs(runs: Sequence[Estimate], least: float = 0.0, most: float = 1.0) -> Estimate:
    """The mean over training runs, with an interval for the mean over all possible runs. Runs without a value are left
    out; with fewer than two values there is no result. `least`, `most`: possible values, from -1 for differences."""
    measured = [run for run in runs if run.value is not None and run.low is not None and run.high is not None]
    name, confidence = runs[0].name, runs[0].confidence
    counts = min(run.n_pos for run in runs), min(run.n_neg for run in runs)
    if len(measured) < 2:
        method = "mean over training runs"
        reason = f"needs two runs that have a value, and there are {len(measured)}"
        return Estimate(name, None, None, None, confidence, method, "measured", *counts, reason=reason)
    values, low, high = (np.array([getattr(run, end) for run in measured], float) for end in ("value", "low", "high"))
    mean, count, deviation = float(values.mean()), len(values), float(values.std(ddof=1))
    over = float(special.stdtrit(count - 1, (1 + confidence) / 2)) * deviation / math.sqrt(count)
    below, above = math.hypot(float(np.mean(values - low)), over), math.hypot(float(np.mean(high - values)), over)
    method = (
        f"mean over {count} training runs (standard deviation {deviation:.3g}); random effects: Student's t over the "
        f"runs, and the error of measuring each: {measured[0].method}"
    )
    ends = (mean, max(mean - below, least), min(mean + above, most))
    return Estimate(name, *ends, confidence, method, "measured", *counts)
