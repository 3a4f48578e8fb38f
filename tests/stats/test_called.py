"""Accuracy, precision, recall and F1 at a threshold that was fixed elsewhere."""

import numpy as np
import pytest

from fedaudit.stats import Block, accuracy_difference, decisions


def block(members: np.ndarray, others: np.ndarray) -> Block:
    ids = tuple(np.array([f"{kind}{i}" for i in range(n)]) for kind, n in (("m", len(members)), ("e", len(others))))
    return Block(members, others, np.zeros(0), ids=(ids[0], ids[1], np.zeros(0, "U1")))


def test_known_counts() -> None:
    """60 of 100 members and 20 of 50 others are above the threshold: whatever the numbers, both sides count alike."""
    found = decisions([block(np.repeat([1.0, 0.0], [60, 40]), np.repeat([1.0, 0.0], [20, 30]))], 0.5)
    assert found["recall"].value == pytest.approx(0.6)
    assert found["accuracy"].value == pytest.approx((0.6 + 0.6) / 2)
    assert found["precision"].value == pytest.approx(0.6 / (0.6 + 0.4))
    assert found["f1-balanced"].value == pytest.approx(2 * 0.6 * 0.6 / (0.6 + 0.6))  # of precision and recall
    assert all(e.n_pos == 100 and e.n_neg == 50 for e in found.values())


def test_without_a_threshold_or_records_there_is_a_reason() -> None:
    scores = block(np.ones(5), np.zeros(5))
    assert decisions([scores], None)["accuracy"].reason == "no threshold was fixed"
    assert decisions([], 0.5)["precision"].reason == "nobody is left to count"


def test_where_nobody_is_called_a_member_there_is_no_precision() -> None:
    found = decisions([block(np.zeros(5), np.zeros(5))], 0.5)
    assert (found["precision"].value, found["precision"].reason) == (None, "nobody is called a member")
    assert (found["accuracy"].value, found["recall"].value) == (0.5, 0.0)


def test_coverage_of_accuracy_and_precision() -> None:
    """At most 61 misses in 1,000 audits would be nominal; all these intervals are conservative."""
    precise = 0.7 / (0.7 + 0.4)
    rng, missed = np.random.default_rng(0), {"accuracy": 0, "precision": 0, "f1-balanced": 0}
    truth = {"accuracy": (0.7 + 0.6) / 2, "precision": precise, "f1-balanced": 2 * 0.7 * precise / (0.7 + precise)}
    for _ in range(1000):
        drawn = block((rng.random(120) < 0.7).astype(float), (rng.random(90) < 0.4).astype(float))
        found = decisions([drawn], 0.5)
        for name in missed:
            low, high = found[name].low, found[name].high
            assert low is not None
            assert high is not None
            missed[name] += not low <= truth[name] <= high
    assert max(missed.values()) <= 61


def test_a_difference_on_the_same_records() -> None:
    rng = np.random.default_rng(1)
    members, others = rng.normal(1, 1, 200), rng.normal(0, 1, 200)
    same = accuracy_difference([block(members, others)], [block(members, others)], (0.5, 0.5))
    assert (same.value, same.low, same.high) == pytest.approx((0, 0, 0), abs=1e-12)
    coin = block(rng.normal(0, 1, 200), rng.normal(0, 1, 200))
    better = accuracy_difference([block(members, others)], [coin], (0.5, 0.0))
    assert better.low is not None
    assert better.low > 0
