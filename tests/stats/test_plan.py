"""The plan's promises, by simulating audits of the planned size with the statistics that will be used."""

import numpy as np
import pytest
from scipy.stats import norm

from fedaudit.stats import Block, auc, needed_for_lower_end, tpr_at_fpr
from fedaudit.stats.plan import (
    POWER,
    Sizes,
    power_of_tpr,
    smallest_visible_auc,
    smallest_visible_tpr,
)
from tests.stats.simulated import simulation

HOSPITALS = Sizes.of([Sizes(182, 60, 61), Sizes(158, 53, 53), Sizes(72, 24, 24), Sizes(108, 36, 36)])


def audits(sizes: Sizes, shift: float, rng: np.random.Generator) -> list[Block]:
    return [
        Block(rng.normal(shift, 1, each.members), rng.normal(0, 1, each.evaluation), rng.normal(0, 1, each.calibration))
        for each in sizes.each
    ]


@pytest.mark.parametrize(
    ("sizes", "fpr", "confidence"),
    [
        (Sizes(400, 50, 1000), 0.01, 0.95),
        (HOSPITALS, 0.05, 0.975),
        simulation(Sizes(300, 50, 600, 3), 0.05, 0.95),
        (Sizes(200, 50, 500), 0.05, 1 - 0.05 / 40),
    ],
)
def test_the_smallest_visible_tpr_is_seen_as_often_as_promised(sizes: Sizes, fpr: float, confidence: float) -> None:
    tpr = smallest_visible_tpr(sizes, fpr, confidence)
    assert tpr is not None
    assert power_of_tpr(sizes, fpr, tpr, confidence) == pytest.approx(POWER, abs=0.01)
    rng = np.random.default_rng(1)
    shift = float(norm.ppf(tpr) - norm.ppf(fpr))
    lows = [tpr_at_fpr(audits(sizes, shift, rng), fpr, confidence).low for _ in range(600)]
    seen = np.mean([low is not None and low > fpr for low in lows])
    assert seen == pytest.approx(POWER, abs=0.07)  # three standard errors, the plan's own among them


@pytest.mark.parametrize("sizes", [Sizes(100, 150, 0), HOSPITALS, simulation(Sizes(120, 300, 0, 3))])
def test_the_smallest_visible_auc_is_seen_as_often_as_promised(sizes: Sizes) -> None:
    value = smallest_visible_auc(sizes)
    assert value is not None
    rng = np.random.default_rng(2)
    lows = [auc(audits(sizes, float(np.sqrt(2) * norm.ppf(value)), rng)).low for _ in range(800)]
    assert np.mean([low is not None and low > 0.5 for low in lows]) == pytest.approx(POWER, abs=0.06)


def test_T6_too_few_show_nothing() -> None:
    assert smallest_visible_tpr(Sizes(1000, 100, 367), 0.01) is None
    assert smallest_visible_tpr(Sizes(1000, 100, 368), 0.01) is not None
    assert smallest_visible_tpr(Sizes(1000, 100, 4 * 100, 4), 0.01) is not None  # together they are 400
    assert smallest_visible_tpr(Sizes(1000, 100, 4 * 92, 4), 0.01) is not None  # 92 each count as well
    assert smallest_visible_tpr(Sizes(1000, 100, 4 * 91, 4), 0.01) is None
    assert smallest_visible_tpr(Sizes(0, 100, 5000), 0.01) is None
    assert smallest_visible_tpr(Sizes(1, 100, 5000), 0.05) is None  # one of one: lower end 0.025
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


def perfect(sizes: list[int], members: int = 50) -> list[Block]:
    """Every member above every outsider."""
    return [Block(np.full(members, 9.0), np.zeros(1), np.arange(n) / n) for n in sizes]


def test_T6_plan_and_run_agree_on_twenty_sizes() -> None:
    """One more than the plan asks for, as many, one fewer: the run has a lower end from there on, and not before."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        fpr, parties = float(rng.choice([0.01, 0.02, 0.05, 0.1])), int(rng.integers(1, 7))
        confidence = 1 - (1 - float(rng.choice([0.9, 0.95]))) / int(rng.integers(1, 4))
        for proved in (False, True):
            needed = needed_for_lower_end(fpr, confidence, parties, guaranteed=proved)
            for count in (needed - 1, needed, needed + 1):
                found = tpr_at_fpr(perfect([count] * parties), fpr, confidence)
                end = found.guaranteed[0] if proved and found.guaranteed else found.low
                told = (fpr, parties, confidence, proved, count)
                assert (end is not None and end > 0) == (count >= needed), told
                if not proved:
                    sizes = Sizes(50 * parties, 9, count * parties, parties)
                    assert (power_of_tpr(sizes, fpr, 1 - 1e-15, confidence) > 0.9) == (count >= needed), told


def test_T6_as_many_more_as_are_said_suffice() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        parties = int(rng.integers(1, 5))
        sizes = rng.integers(100, 140, parties).tolist() if parties < 3 else [100] * parties
        found = tpr_at_fpr(perfect(sizes), 0.01, 0.99)
        assert (found.value, found.low) == (1.0, 0.0)
        assert found.reason is not None
        more = int(found.reason.split("there are ")[1].split()[0])
        for added, above in ((more - 1, False), (more, True)):
            low = tpr_at_fpr(perfect([size + added for size in sizes]), 0.01, 0.99).low
            assert low is not None
            assert (low > 0) == above


def test_no_number_of_records_helps_a_score_that_knows_nothing() -> None:
    below = tpr_at_fpr([Block(np.zeros(50), np.zeros(1), 1 + np.arange(1000.0))], 0.01)
    assert (below.value, below.low, below.reason) == (0.0, 0.0, None)
