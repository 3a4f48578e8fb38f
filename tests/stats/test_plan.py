"""The plan's promises, by simulating audits of the planned size with the statistics that will be used."""

import numpy as np
import pytest
from scipy.stats import norm

from fedaudit.stats import Block, auc, tpr_at_fpr
from fedaudit.stats.plan import POWER, Sizes, power_of_tpr, smallest_visible_auc, smallest_visible_tpr


def audits(sizes: Sizes, shift: float, rng: np.random.Generator) -> list[Block]:
    k = sizes.thresholds
    return [
        Block(
            rng.normal(shift, 1, sizes.members // k),
            rng.normal(0, 1, sizes.evaluation // k),
            rng.normal(0, 1, sizes.calibration // k),
        )
        for _ in range(k)
    ]


@pytest.mark.parametrize(
    ("sizes", "fpr", "confidence"),
    [
        (Sizes(400, 50, 1000), 0.01, 0.95),
        (Sizes(200, 50, 500), 0.05, 1 - 0.05 / 40),
    ],
)
def test_the_smallest_visible_tpr_is_seen_as_often_as_promised(sizes: Sizes, fpr: float, confidence: float) -> None:
    tpr = smallest_visible_tpr(sizes, fpr, confidence)
    assert tpr is not None
    assert power_of_tpr(sizes, fpr, tpr, confidence) == pytest.approx(POWER, abs=1e-3)
    rng = np.random.default_rng(1)
    shift = float(norm.ppf(tpr) - norm.ppf(fpr))
    proved = [tpr_at_fpr(audits(sizes, shift, rng), fpr, confidence).guaranteed for _ in range(1000)]
    seen = np.mean([ends is not None and ends[0] > fpr for ends in proved])
    assert seen == pytest.approx(POWER, abs=0.05)  # four standard errors


@pytest.mark.parametrize("sizes", [Sizes(100, 150, 0), Sizes(120, 300, 0, 3)])
def test_the_smallest_visible_auc_is_seen_as_often_as_promised(sizes: Sizes) -> None:
    value = smallest_visible_auc(sizes)
    assert value is not None
    rng = np.random.default_rng(2)
    lows = [auc(audits(sizes, float(np.sqrt(2) * norm.ppf(value)), rng)).low for _ in range(800)]
    assert np.mean([low is not None and low > 0.5 for low in lows]) == pytest.approx(POWER, abs=0.06)


def test_T6_too_few_show_nothing() -> None:
    assert smallest_visible_tpr(Sizes(1000, 100, 436), 0.01) is None
    assert smallest_visible_tpr(Sizes(1000, 100, 437), 0.01) is not None
    assert smallest_visible_tpr(Sizes(1000, 100, 4 * 437, 4), 0.01) is None  # four thresholds share the error
    assert smallest_visible_tpr(Sizes(0, 100, 5000), 0.01) is None
    assert smallest_visible_tpr(Sizes(1, 100, 5000), 0.05) is None  # one of one: lower end 0.0125
    assert smallest_visible_auc(Sizes(0, 10, 10)) is None
    assert smallest_visible_auc(Sizes(1, 1, 10)) is None


def test_more_records_show_smaller_risks_and_more_rounds_larger_ones() -> None:
    visible = [smallest_visible_tpr(Sizes(n, n, 2 * n), 0.01) for n in (500, 5000, 50_000)]
    assert all(v is not None and v > 0.01 for v in visible)
    assert visible == sorted(visible, key=lambda v: -(v or 0))
    once, often = (smallest_visible_auc(Sizes(500, 500, 0), 1 - 0.05 / rounds) for rounds in (1, 40))
    assert once is not None
    assert often is not None
    assert 0.5 < once < often < 0.6
