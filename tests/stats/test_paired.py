"""Differences on the same records: they cover, they are narrower than two intervals side by side, and ids join them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from fedaudit.errors import FedauditError
from fedaudit.stats import Block, auc, auc_difference, tpr_difference
from fedaudit.types import Estimate, Floats, Ints
from tests.stats.simulated import simulation

Pair = tuple[list[Block], list[Block]]


def pair(rng: np.random.Generator, shifts: tuple[float, float], alike: float, sizes: tuple[int, int, int]) -> Pair:
    """Two attacks on the same records, in storage orders of their own; `alike` is the correlation of their scores."""
    first, second, ids = [], [], []
    for i, n in enumerate(sizes):
        common, one, two = rng.normal(size=(3, n))
        mixed = [np.sqrt(alike) * common + np.sqrt(1 - alike) * own for own in (one, two)]
        order = rng.permutation(n)
        first.append(mixed[0] + (shifts[0] if i == 0 else 0.0))
        second.append((mixed[1] + (shifts[1] if i == 0 else 0.0))[order])
        ids.append((np.array([f"{i}-{j}" for j in range(n)]), order))
    names = ids[0][0], ids[1][0], ids[2][0]
    turned = names[0][ids[0][1]], names[1][ids[1][1]], names[2][ids[2][1]]
    return [Block(first[0], first[1], first[2], ids=names)], [Block(second[0], second[1], second[2], ids=turned)]


def missed(found: Estimate, truth: float) -> bool:
    assert found.low is not None
    assert found.high is not None
    return not found.low <= truth <= found.high


def auc_gap(shifts: tuple[float, float]) -> float:
    return float(norm.cdf(shifts[0] / np.sqrt(2)) - norm.cdf(shifts[1] / np.sqrt(2)))


@pytest.mark.parametrize(
    ("shifts", "alike"), [simulation((1.0, 1.0), 0.9), ((1.5, 1.0), 0.5), simulation((3.5, 3.0), 0.8)]
)
def test_auc_differences_cover(shifts: tuple[float, float], alike: float) -> None:
    rng = np.random.default_rng(0)
    misses = [missed(auc_difference(*pair(rng, shifts, alike, (100, 150, 1))), auc_gap(shifts)) for _ in range(300)]
    assert sum(misses) <= 27  # 300 at 5 %: mean 15, three standard deviations


@pytest.mark.parametrize(("shifts", "alike"), [((2.0, 2.0), 0.9), ((2.0, 1.0), 0.6)])
def test_tpr_differences_cover(shifts: tuple[float, float], alike: float) -> None:
    truth = float(norm.sf(norm.isf(0.05) - shifts[0]) - norm.sf(norm.isf(0.05) - shifts[1]))
    rng = np.random.default_rng(1)
    misses = [missed(tpr_difference(*pair(rng, shifts, alike, (200, 1, 600)), 0.05), truth) for _ in range(300)]
    assert sum(misses) <= 27


def test_a_difference_is_seen_where_the_two_intervals_overlap() -> None:
    rng = np.random.default_rng(2)
    first, second = pair(rng, (1.3, 1.0), 0.95, (150, 150, 1))
    one, two, gap = auc(first), auc(second), auc_difference(first, second)
    assert one.low is not None
    assert two.high is not None
    assert gap.low is not None
    assert one.low < two.high
    assert gap.low > 0
    assert gap.value == pytest.approx((one.value or 0) - (two.value or 0))


def test_records_are_joined_by_id_whatever_their_order() -> None:
    rng = np.random.default_rng(3)
    first, _ = pair(rng, (1.0, 1.0), 0.9, (80, 90, 300))
    block = first[0]
    assert block.ids is not None
    turned = (block.ids[0][::-1], block.ids[1][::-1], block.ids[2][::-1])
    again = Block(block.members[::-1], block.evaluation[::-1], block.calibration[::-1], ids=turned)
    same = auc_difference(first, [again])
    assert (same.value, same.low, same.high) == pytest.approx((0, 0, 0), abs=1e-6)
    assert "correlation 1.000" in same.method
    strangers = Block(first[0].members, first[0].evaluation, first[0].calibration,
                      ids=(np.full(80, "a"), np.full(90, "b"), np.full(300, "c")))  # fmt: skip
    apart = auc_difference(first, [strangers])
    assert apart.high is not None
    assert apart.high > 0.05
    with pytest.raises(FedauditError, match="no-ids"):
        auc_difference(first, [Block(np.ones(3), np.zeros(3), np.zeros(3))])


def of_subjects(rng: np.random.Generator) -> tuple[list[Ints], list[Floats]]:
    whose = [np.arange(40).repeat(8), 100 + np.arange(40).repeat(8), 200 + np.arange(40).repeat(8)]
    own = [rng.normal(size=40).repeat(8) for _ in whose]
    return whose, [0.8 * base + 0.6 * rng.normal(size=320) for base in own]


@pytest.mark.parametrize("aware", [True, False])
def test_T9_differences_count_subjects(aware: bool) -> None:
    """The two attacks differ by what is the subject's: records that stand for themselves would say too much."""
    rng, misses = np.random.default_rng(4), 0
    for _ in range(150):
        (whose, one), (_, two) = of_subjects(rng), of_subjects(rng)
        names = (whose[0], whose[1], whose[2])
        records = (np.arange(320), np.arange(320, 640), np.arange(640, 960))
        first, second = (
            [Block(1 + scores[0], scores[1], scores[2], names if aware else None, records)] for scores in (one, two)
        )
        misses += missed(auc_difference(first, second), 0.0)
    assert misses <= 15 if aware else misses > 30


def test_no_value_no_difference() -> None:
    rng = np.random.default_rng(5)
    first, second = pair(rng, (1.0, 1.0), 0.9, (80, 90, 50))
    found = tpr_difference(first, second, 0.01)
    assert found.value is None
    assert found.reason is not None
    assert "50 more" in found.reason


def test_no_difference_from_a_figure_at_another_rate() -> None:
    """The same attack, by thresholds far too high and as they should be: it would seem to have become a better one."""
    rng = np.random.default_rng(6)
    first, _ = pair(rng, (2.0, 2.0), 0.9, (300, 1000, 1000))
    high = [replace(block, calibration=block.calibration + 2) for block in first]
    assert tpr_difference(first, first, 0.05).value == 0
    for found in (tpr_difference(first, high, 0.05), tpr_difference(high, first, 0.05)):
        assert (found.value, found.low, found.high) == (None, None, None)
        assert "and more may be picked out at the rate that was asked" in (found.reason or "")
