"""The interval of a TPR at 1 % FPR for 50,000 members and as many non-members, against a bootstrap of 1000.

Both are also asked in small worlds whose true TPR is known: how often they contain it, and how wide they are.
"""

from typing import Any

import numpy as np
from scipy import special

from benchmarks.measuring import interleaved, verdict
from fedaudit.stats import Block, tpr_at_fpr

N, FPR, RESAMPLES, GOAL = 50_000, 0.01, 1000, 200.0
WORLDS, SMALL, SHIFT = 200, 600, 2.0  # worlds with as many members and non-members each
FEWEST = 181  # of 200 intervals at 95 % that contain the truth: mean 190, three standard deviations


def run() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    members, outsiders = rng.normal(1, 1, N), rng.normal(0, 1, N)
    block = Block(members, outsiders, outsiders)
    detail = coverage(rng)
    assert detail["ours"]["covered"] >= FEWEST
    case = interleaved(lambda: bootstrap(members, outsiders, rng), lambda: tpr_at_fpr([block], FPR), GOAL, times=3)
    return verdict("tpr-interval", "higher", {"n = 50,000": case}, small_worlds=detail)


def coverage(rng: np.random.Generator) -> dict[str, Any]:
    """In how many worlds each interval contains the true TPR, and how wide it is on average."""
    truth = float(special.ndtr(special.ndtri(FPR) + SHIFT))
    ends: dict[str, list[tuple[float, float]]] = {"ours": [], "guaranteed": [], "bootstrap": []}
    for _ in range(WORLDS):
        members, outsiders = rng.normal(SHIFT, 1, SMALL), rng.normal(0, 1, SMALL)
        found = tpr_at_fpr([Block(members, outsiders, outsiders)], FPR)
        assert found.low is not None
        assert found.high is not None
        assert found.guaranteed is not None
        ends["ours"].append((found.low, found.high))
        ends["guaranteed"].append(found.guaranteed)
        ends["bootstrap"].append(bootstrap(members, outsiders, rng))
    shown: dict[str, Any] = {"worlds": WORLDS, "n": SMALL, "true_tpr": round(truth, 4)}
    for name, found_ends in ends.items():
        covered = sum(low <= truth <= high for low, high in found_ends)
        width = float(np.mean([high - low for low, high in found_ends]))
        shown[name] = {"covered": covered, "width": round(width, 4)}
    return shown


def bootstrap(members: Any, outsiders: Any, rng: np.random.Generator) -> tuple[float, float]:
    """Sorted once: a resample is a draw of counts, found again by cumulative sums."""
    n = len(members)
    descending, rising = np.sort(outsiders)[::-1], np.sort(members)
    values = []
    for _ in range(RESAMPLES):
        counts = np.bincount(rng.integers(0, n, n), minlength=n)
        threshold = descending[np.searchsorted(np.cumsum(counts), FPR * n)]
        drawn = np.bincount(rng.integers(0, n, n), minlength=n)
        values.append(drawn[np.searchsorted(rising, threshold, side="right") :].sum() / n)
    return float(np.quantile(values, 0.025)), float(np.quantile(values, 0.975))
