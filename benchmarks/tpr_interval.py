"""The interval of a TPR at 1 % FPR for 50,000 members and as many non-members, against a bootstrap of 1000."""

from typing import Any

import numpy as np

from benchmarks.measuring import interleaved, verdict
from fedaudit.stats import Block, tpr_at_fpr

N, FPR, RESAMPLES, GOAL = 50_000, 0.01, 1000, 200.0


def run() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    members, outsiders = rng.normal(1, 1, N), rng.normal(0, 1, N)
    block = Block(members, outsiders, outsiders)
    found = tpr_at_fpr([block], FPR)
    low, high = bootstrap(members, outsiders, rng)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= low < high <= found.high  # ours keeps its promise, the bootstrap's is too narrow
    case = interleaved(lambda: bootstrap(members, outsiders, rng), lambda: tpr_at_fpr([block], FPR), GOAL, times=3)
    return verdict("tpr-interval", "higher", {"n = 50,000": case})


def bootstrap(members: Any, outsiders: Any, rng: np.random.Generator) -> tuple[float, float]:
    """Sorted once: a resample is a draw of counts, found again by cumulative sums."""
    descending, rising = np.sort(outsiders)[::-1], np.sort(members)
    values = []
    for _ in range(RESAMPLES):
        counts = np.bincount(rng.integers(0, N, N), minlength=N)
        threshold = descending[np.searchsorted(np.cumsum(counts), FPR * N)]
        drawn = np.bincount(rng.integers(0, N, N), minlength=N)
        values.append(drawn[np.searchsorted(rising, threshold, side="right") :].sum() / N)
    return float(np.quantile(values, 0.025)), float(np.quantile(values, 0.975))
