"""A band over rounds: it holds for all rounds together, and wastes little where they err together (T5)."""

import numpy as np
import pytest
from scipy.stats import norm

from fedaudit.stats import Band, Block, auc, band_confidences, tpr_at_fpr
from fedaudit.stats.paired import auc_influence, by_unit, tpr_influence
from fedaudit.types import Floats


def widths(confidences: list[float]) -> Floats:
    return np.asarray(norm.isf((1 - np.array(confidences)) / 2))


def smooth(rounds: int, strength: float) -> Floats:
    """Rounds x units of an error that changes from round to round with this correlation."""
    own = np.eye(rounds)
    rows = [own[0]]
    for r in range(1, rounds):
        rows.append(strength * rows[-1] + np.sqrt(1 - strength**2) * own[r])
    return np.array(rows)


@pytest.mark.parametrize("strength", [0.0, 0.7, 0.95, 0.999, 1.0])
def test_paths_leave_the_band_as_often_as_promised(strength: float) -> None:
    rows = smooth(30, strength)
    found = widths(band_confidences(rows, 30))
    errors = np.abs(np.random.default_rng(7).normal(size=(40_000, 30)) @ rows.T)
    assert np.mean((errors > found).any(axis=1)) == pytest.approx(0.05, abs=0.006)  # both simulations' own error
    assert (found <= norm.isf(0.05 / 30 / 2) + 1e-9).all()  # never wider than equal shares


def test_rounds_that_are_the_same_cost_one_round_in_the_end() -> None:
    found = widths(band_confidences(np.ones((20, 5)), 20))
    assert found[0] == pytest.approx(norm.isf(0.05 / 40), abs=0.1)
    assert found[-1] == pytest.approx(norm.isf(0.025), abs=0.03)
    assert (np.diff(found) < 1e-9).all()
    apart = widths(band_confidences(np.eye(20), 20))
    assert apart == pytest.approx(np.full(20, norm.isf(0.05 / 40)), abs=0.1)


def test_a_live_audit_draws_the_same_band_and_never_redraws_it() -> None:
    rows = smooth(12, 0.9) + 0.1
    whole = band_confidences(rows, 12)
    live = Band(12)
    for r, row in enumerate(rows):
        assert live.add(row) == whole[r]
        assert band_confidences(rows[: r + 1], 12) == whole[: r + 1]


def test_a_band_goes_on_from_its_state() -> None:
    rows = smooth(12, 0.9)
    whole, halfway = Band(12), Band(12)
    for row in rows:
        whole.add(row)
        again = Band(12)
        again.restore(halfway.state())
        halfway = again
        halfway.add(row)
    assert whole.levels == halfway.levels


def test_of_very_many_units_random_sums_tell_the_same() -> None:
    rng = np.random.default_rng(3)
    own, drift = rng.normal(size=60_000), rng.normal(size=(10, 60_000))
    rows = own + 0.3 * np.cumsum(drift, axis=0)
    band = Band(10)
    for row in rows:
        band.add(row)
    assert len(band.units[0]) < 5000
    for i, j in ((0, 1), (0, 9), (5, 6)):
        truth = np.corrcoef(rows[i], rows[j])[0, 1]
        assert 1 - band.correlation(i, j) == pytest.approx(1 - truth, rel=0.1)


def test_more_rounds_than_planned_get_an_equal_share_each() -> None:
    late = widths(band_confidences(np.eye(6), 3))[3:]
    assert late == pytest.approx(np.full(3, norm.isf(0.05 / 6)), abs=1e-6)


def test_a_round_in_which_nothing_varies_is_taken_for_independent() -> None:
    rows = np.ones((4, 3))
    rows[1] = 0.0
    found = band_confidences(rows, 4)
    assert all(0.95 <= own < 1 for own in found)


# ------------------------------------------------------------------ with scores


def scored(rng: np.random.Generator, records: int, rounds: int) -> Floats:
    """Rounds x records: half of the variance is the record's own, the rest drifts from round to round."""
    own, drift = rng.normal(size=records), np.zeros((rounds, records))
    drift[0] = rng.normal(size=records)
    for r in range(1, rounds):
        drift[r] = 0.9 * drift[r - 1] + np.sqrt(1 - 0.81) * rng.normal(size=records)
    return np.asarray((own + drift) / np.sqrt(2))


@pytest.mark.simulation
def test_T5_the_band_holds_for_all_rounds_and_is_narrower_than_equal_shares() -> None:
    rng, rounds, left, widest = np.random.default_rng(1), 10, 0, []
    shifts = np.linspace(0.0, 1.5, rounds)
    truth = norm.cdf(shifts / np.sqrt(2))
    for _ in range(150):
        members, others = scored(rng, 120, rounds) + shifts[:, None], scored(rng, 150, rounds)
        names = (np.arange(120), np.arange(120, 270), np.arange(0))
        blocks = [[Block(m, o, np.zeros(0), ids=names)] for m, o in zip(members, others, strict=True)]
        confidences = band_confidences(by_unit([(auc_influence(own), own) for own in blocks]), rounds)
        found = [auc(own, confidence) for own, confidence in zip(blocks, confidences, strict=True)]
        left += any(
            e.low is None or e.high is None or not e.low <= t <= e.high for e, t in zip(found, truth, strict=True)
        )
        widest.append(widths(confidences))
    assert left <= 15  # 150 at 5 %: mean 7.5, three standard deviations
    assert np.mean(widest) < 0.93 * norm.isf(0.05 / rounds / 2)


@pytest.mark.simulation
def test_influences_add_up_to_the_variance_over_worlds() -> None:
    """What the records add to the error, squared, is how much the estimate varies from world to world."""
    rng = np.random.default_rng(2)
    values: dict[str, list[float]] = {"auc": [], "tpr": []}
    squares: dict[str, list[float]] = {"auc": [], "tpr": []}
    for _ in range(400):
        blocks = [
            Block(rng.normal(1.5, 1, m), rng.normal(size=80), rng.normal(size=500)) for m in (60, 150)
        ]  # parties of unequal size
        for name, estimate, influence in (
            ("auc", auc(blocks), auc_influence(blocks)),
            ("tpr", tpr_at_fpr(blocks, 0.1), tpr_influence(blocks, 0.1)),
        ):
            assert estimate.value is not None
            values[name].append(estimate.value)
            squares[name].append(sum(float(np.sum(part**2)) for own in influence for part in own))
    for name in values:
        assert np.mean(squares[name]) == pytest.approx(np.var(values[name]), rel=0.25), name
