"""The ends of an AUC where few records carry the error, and those that are guaranteed: against slow twins and in worlds
whose AUC is known."""

import numpy as np
import pytest
from scipy.stats import binom

from docs.coverage_misplaced import outsiders_above, people_above
from docs.coverage_worlds import Shot, World, equal
from fedaudit.stats import Block, auc, auc_difference, clopper_pearson
from fedaudit.stats.ranking import (
    Comparisons,
    at_least,
    gamma_quantile,
    guaranteed_ends,
    of_records,
    pooled_auc,
    rare_ends,
    reached,
)
from fedaudit.types import Floats


def shots(world: World, times: int, seed: int = 0) -> dict[str, list[Shot]]:
    rng = np.random.default_rng(seed)
    found: dict[str, list[Shot]] = {}
    for _ in range(times):
        for name, shot in world(rng).items():
            found.setdefault(name, []).append(shot)
    return found


def plain(members: Floats, outsiders: Floats) -> list[Block]:
    return [Block(members, outsiders, np.zeros(0))]


# ------------------------------------------------------------------ guaranteed


def slow_bound(count: float, trials: int, chance: float) -> float:
    """The smallest bound over all t, each expectation summed term by term."""
    hits = np.arange(trials + 1)
    chances = binom.pmf(hits, trials, chance)
    tried = [*range(int(np.ceil(count))), *np.linspace(0, count, 50, endpoint=False)]
    return min(1.0, *(float(np.dot(chances, np.maximum(hits - t, 0))) / float(count - t) for t in tried))


@pytest.mark.parametrize(("trials", "count"), [(1, 0.8), (5, 4.0), (5, 4.3), (30, 28.5), (200, 150.0), (200, 121.7)])
@pytest.mark.parametrize("chance", [0.05, 0.4, 0.55])
def test_the_bound_equals_the_search_over_every_t(trials: int, count: float, chance: float) -> None:
    found, slow = at_least(count, trials, chance), slow_bound(count, trials, chance)
    assert slow * (1 - 1e-9) <= found <= max(1.02 * slow, 1e-15)
    assert found >= binom.sf(np.ceil(count) - 1, trials, chance) * (1 - 1e-9)


def test_all_members_above_all_outsiders_is_clopper_and_pearson() -> None:
    for members, outsiders in ((1000, 30), (30, 1000), (7, 7)):
        found = auc(plain(np.ones(members), np.zeros(outsiders)))
        assert found.guaranteed is not None
        assert found.guaranteed == pytest.approx((0.025 ** (1 / min(members, outsiders)), 1.0))
        assert found.low is not None
        assert found.low >= found.guaranteed[0]


def test_wins_and_losses_are_mirrored_and_equal_parties_are_as_good_as_one() -> None:
    one, four = of_records((800, 1200), 1.0), Comparisons(0, 0.0)
    for _ in range(4):
        four += of_records((200, 300), 0.25)
    assert (four.trials, four.weight) == pytest.approx((one.trials, one.weight))
    low, high = guaranteed_ends(0.7, one, 0.05)
    assert guaranteed_ends(0.3, one, 0.05) == pytest.approx((1 - high, 1 - low))
    assert reached(0.7, low, one.trials, one.weight) == pytest.approx(0.025, rel=1e-3)


def test_unequal_parties_are_never_better_than_their_pairs_in_one() -> None:
    sizes = [(3000, 2000), (800, 500), (200, 150)]
    pairs = sum(m * n for m, n in sizes)
    together = sum((of_records(size, size[0] * size[1] / pairs) for size in sizes), Comparisons(0, 0.0))
    for value in (0.6, 0.95):
        low, high = guaranteed_ends(value, together, 0.05)
        best = guaranteed_ends(value, of_records((4000, 2650), 1.0), 0.05)
        alone = guaranteed_ends(value, of_records((3000, 2000), 1.0), 0.05)
        assert low < best[0]
        assert best[1] < high
        assert alone[0] - 0.003 < low


@pytest.mark.parametrize("share", [0.05, 0.12])
def test_a_limit_that_is_exactly_true_is_rarely_called_crossed(share: float) -> None:
    """As a gate does: the guaranteed lower end lies above the true AUC."""
    found = shots(outsiders_above((1000, 30), share), 400)["guaranteed"]
    assert sum(shot.missed[0] for shot in found) <= 20  # 2.5 %, plus three standard deviations


def test_guaranteed_ends_are_not_much_wider_far_from_1() -> None:
    rng = np.random.default_rng(0)
    found = auc(plain(rng.normal(0.75, 1, 1000), rng.normal(0, 1, 1000)))
    assert found.guaranteed is not None
    assert found.low is not None
    assert found.high is not None
    assert found.guaranteed[1] - found.guaranteed[0] < 1.6 * (found.high - found.low)


# ------------------------------------------------------------------ few records carry the error


def test_a_few_that_err_among_many_are_clopper_and_pearson() -> None:
    """Against far more members, the AUC is a share of outsiders."""
    for errors, outsiders in ((0, 300), (1, 300), (4, 300), (20, 1000)):
        scores = np.where(np.arange(outsiders) < errors, 2.0, 0.0)
        pooled = pooled_auc(plain(np.ones(10**5), scores))
        (low, weight), (high, _) = rare_ends(pooled.value, pooled.variance, pooled.third, 1 / outsiders, 0.05)
        assert weight == 1 or errors == 20
        below, above = clopper_pearson(errors, outsiders, 0.025, 0.025)
        assert (1 - high, 1 - low) == pytest.approx((below, above), rel=0.03, abs=0.02 / outsiders)


def test_gamma_quantiles_have_the_three_moments() -> None:
    drawn = np.random.default_rng(0).gamma(3.0, 2.0, 400_000) + 5
    for sign in (1, -1):
        own = sign * drawn
        third = float(np.mean((own - own.mean()) ** 3))
        for chance in (0.025, 0.5, 0.975):
            found = gamma_quantile(float(own.mean()), float(own.var()), third, chance)
            assert found == pytest.approx(float(np.quantile(own, chance)), abs=0.12)
    assert gamma_quantile(1.0, 4.0, 0.0, 0.975) == pytest.approx(1 + 2 * 1.96, abs=1e-3)


@pytest.mark.parametrize(("sizes", "share"), [((1000, 30), 0.05), ((1000, 1000), 0.002)])
def test_few_misplaced_outsiders_are_covered(sizes: tuple[int, int], share: float) -> None:
    """Where none of them is seen, Hanley and McNeil's variance misses them: in 27 and 19 % of such worlds."""
    found = shots(outsiders_above(sizes, share), 300)["interval"]
    assert sum(any(shot.missed) for shot in found) <= 26  # 5 %, plus three standard deviations


def test_few_misplaced_people_are_covered() -> None:
    """The records of a person are as good as independent until one person lies above all members."""
    found = shots(people_above(1000, 40, equal(10), 0.05), 200)
    for name in ("interval", "guaranteed"):
        assert sum(any(shot.missed) for shot in found[name]) <= 19


def test_many_records_keep_their_interval() -> None:
    """Nothing is added where hundreds of records carry the error: at most 2 % of the width."""
    rng = np.random.default_rng(1)
    for shift in (0.0, 1.0):
        pooled = pooled_auc(plain(rng.normal(shift, 1, 2000), rng.normal(0, 1, 2000)))
        low, high = pooled.interval(0.05)
        assert high - low == pytest.approx(2 * 1.96 * pooled.variance**0.5, rel=0.02)


@pytest.mark.parametrize("each", [3, 4, 6, 9])
def test_few_on_either_side_are_rarely_better_than_guessing_by_chance(each: int) -> None:
    """Not even three members above three outsiders, which chance alone gives once in twenty."""
    rng = np.random.default_rng(each)
    found = [auc(plain(rng.normal(size=each), rng.normal(size=each))) for _ in range(300)]
    assert sum((one.low or 0) > 0.5 for one in found) <= 8  # 2.5 % would be 7.5
    best = auc(plain(np.arange(3.0) + 9, np.arange(3.0)))
    assert best.low is not None
    assert best.low < 0.5


# ------------------------------------------------------------------ differences


def test_two_attacks_that_err_on_the_same_few_records_may_differ_all_the_same() -> None:
    rng = np.random.default_rng(0)
    ids = np.arange(1000), 1000 + np.arange(30), np.zeros(0, int)
    above = np.arange(30) < 1
    first, second = (
        [Block(50 + rng.normal(size=1000), np.where(above, 100.0, rng.normal(size=30)), np.zeros(0), ids=ids)]
        for _ in range(2)
    )
    found, same = auc_difference(first, second), auc_difference(first, first)
    assert found.value == 0
    assert found.low is not None
    assert found.high is not None
    assert found.low < -0.1
    assert found.high > 0.1
    assert (same.value, same.low, same.high) == pytest.approx((0, 0, 0), abs=1e-6)
