"""Parties compared with one another: few false alarms however many there are, and a real difference is found."""

import numpy as np
import pytest
from scipy.stats import norm

from fedaudit.stats import Block, auc
from fedaudit.stats.paired import party_differences
from tests.stats.simulated import simulation


def federation(rng: np.random.Generator, shifts: list[float], n: int = 60) -> dict[str, Block]:
    """Parties of unequal size."""
    return {
        f"p{i}": Block(rng.normal(shift, 1, n + 20 * i), rng.normal(0, 1, 2 * n), np.zeros(0))
        for i, shift in enumerate(shifts)
    }


@pytest.mark.parametrize(("parties", "shift"), [(2, 0.0), simulation(6, 0.8), simulation(3, 3.0)])
def test_all_intervals_together_cover(parties: int, shift: float) -> None:
    rng = np.random.default_rng(parties)
    wrong = 0
    for _ in range(200):
        found = party_differences(federation(rng, [shift] * parties))
        wrong += any(not d.low <= 0 <= d.high for d in found)
    assert wrong <= 19  # 200 at 5 %: mean 10, three standard deviations


def test_a_difference_is_covered_and_found() -> None:
    rng = np.random.default_rng(0)
    truth = float(norm.cdf(1.5 / np.sqrt(2)) - norm.cdf(0.3 / np.sqrt(2)))
    covered = seen = 0
    for _ in range(150):
        by_party = {d.party: d for d in party_differences(federation(rng, [0.3, 0.3, 1.5]))}
        odd = by_party["p2"]
        covered += odd.low <= truth <= odd.high
        seen += odd.low > 0
    assert covered >= 140
    assert seen >= 140


def test_equals_the_two_estimates_and_skips_who_has_none() -> None:
    rng = np.random.default_rng(1)
    blocks = federation(rng, [0.0, 0.5, 1.0])
    (first, *_) = party_differences(blocks)
    assert first.own == pytest.approx(auc([blocks["p0"]]).value)
    assert first.others == pytest.approx(auc([blocks["p1"], blocks["p2"]]).value)
    assert first.low < first.value < first.high
    assert party_differences({"p0": blocks["p0"]}) == []
    empty = Block(np.zeros(0), np.zeros(3), np.zeros(3))
    assert len(party_differences({**blocks, "p9": empty})) == 3


def test_perfect_separation_keeps_a_width() -> None:
    perfect = Block(np.full(30, 9.0), np.zeros(30), np.zeros(0))
    (first, _) = party_differences({"a": perfect, "b": perfect})
    assert first.low < -0.05 < 0.05 < first.high
