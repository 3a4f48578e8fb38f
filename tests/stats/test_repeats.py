"""The mean over training runs: its interval covers the mean over all runs that could have been."""

from dataclasses import replace

import numpy as np
import pytest

from fedaudit.stats import over_runs
from fedaudit.types import Doubt, Estimate


def run(value: float, half: float) -> Estimate:
    return Estimate("auc", value, value - half, value + half, 0.95, "how", "measured", 100, 200)


@pytest.mark.parametrize("same_records", [True, False])
@pytest.mark.parametrize("runs", [2, 5])
def test_the_interval_covers_whether_or_not_runs_share_their_records(runs: int, same_records: bool) -> None:
    rng, misses = np.random.default_rng(runs), 0
    for _ in range(1000):
        measuring = np.full(runs, rng.normal()) if same_records else rng.normal(size=runs)
        found = over_runs([run(v, 1.96 * 0.02) for v in 0.6 + 0.02 * measuring + 0.03 * rng.normal(size=runs)])
        assert found.low is not None
        assert found.high is not None
        misses += not found.low <= 0.6 <= found.high
    assert misses <= 71  # 1000 at 5 %: mean 50, three standard deviations


def test_it_is_the_spread_over_runs_and_the_single_runs_width() -> None:
    found = over_runs([run(0.6, 0.03), run(0.7, 0.05), run(0.65, 0.04)])
    t, deviation = 4.302652730, 0.05
    assert found.value == pytest.approx(0.65)
    assert found.low == pytest.approx(0.65 - np.hypot(0.04, t * deviation / np.sqrt(3)))
    assert "3 training runs" in found.method
    assert (found.n_pos, found.n_neg) == (100, 200)


def test_one_run_has_no_spread() -> None:
    none = Estimate("auc", None, None, None, 0.95, "how", "measured", 1, 2, reason="why")
    found = over_runs([run(0.6, 0.03), none])
    assert found.value is None
    assert found.reason == "needs two runs that have a value, and there are 1"


@pytest.mark.parametrize("doubt", ["more", "fewer"])
def test_runs_of_which_one_is_doubted_have_no_mean(doubt: Doubt) -> None:
    """Without the one at another rate, the mean would be over the runs that happened to look well."""
    refused = replace(run(0.9, 0.03), doubt=doubt)
    if doubt == "more":
        refused = replace(refused, value=None, low=None, high=None)
    found = over_runs([run(0.6, 0.03), run(0.7, 0.05), refused])
    assert (found.value, found.low, found.high, found.doubt) == (None, None, None, doubt)
    assert found.reason == "the thresholds of 1 of 3 runs are from records of another kind"
