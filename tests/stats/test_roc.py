"""What the statistics promise, against known answers and by simulation. Names say which trap of docs they cover."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import special
from scipy.stats import norm, rankdata

from fedaudit.stats import (
    Block,
    auc,
    clopper_pearson,
    design_effect,
    needed_for_lower_end,
    needed_for_value,
    roc_curve,
    tied_share,
    tpr_at_fpr,
)
from fedaudit.stats.blocks import ranked
from fedaudit.stats.intervals import hanley_mcneil_variance, quantile_ranks, score_interval
from fedaudit.types import Estimate, Floats, Ints
from tests.stats.simulated import simulation


def block(members: Floats, evaluation: Floats, calibration: Floats | None = None) -> Block:
    return Block(members, evaluation, evaluation if calibration is None else calibration)


def slow_auc(members: Floats, nonmembers: Floats) -> float:
    wins = [1.0 if m > n else 0.5 if m == n else 0.0 for m in members for n in nonmembers]
    return float(np.mean(wins))


def covers(estimate: Estimate, truth: float) -> bool:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low <= truth <= estimate.high


def misses(draw: Callable[[np.random.Generator], tuple[Estimate, float]], times: int, seed: int = 0) -> int:
    rng = np.random.default_rng(seed)
    return sum(not covers(*draw(rng)) for _ in range(times))


# ------------------------------------------------------------------ AUC


@pytest.mark.parametrize("levels", [1, 2, 5, 1000])
def test_placements_are_those_of_mid_ranks_to_the_bit(levels: int) -> None:
    rng = np.random.default_rng(levels)
    members, others = rng.integers(0, levels, 70) / 7, rng.integers(0, levels, 31) / 7
    members[:3], others[:2] = -np.inf, [np.inf, -np.inf]
    found = block(members, others)
    ranks = rankdata(np.concatenate([members, others]))
    by_member, by_other = found.placements
    assert np.array_equal(by_member, (ranks[:70] - rankdata(members)) / 31)
    assert np.array_equal(by_other, 1 - (ranks[70:] - rankdata(others)) / 70)
    values = np.intersect1d(members, others)
    shares = [[np.sum(side == value) / (len(side) + 2) for value in values] for side in (members, others)]
    assert found.untied == 1 - float(np.sum(np.minimum(*map(np.array, shares)) ** 3))
    members[0] = np.nan
    assert np.isnan(np.concatenate(block(members, others).placements)).all()


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_auc_equals_the_mean_over_all_pairs(levels: int) -> None:
    rng = np.random.default_rng(levels)
    members, nonmembers = rng.integers(0, levels, 37).astype(float), rng.integers(0, levels, 91).astype(float)
    assert auc([block(members, nonmembers)]).value == pytest.approx(slow_auc(members, nonmembers), abs=1e-12)


def test_T2_K12_ties_and_storage_order() -> None:
    members, nonmembers = np.repeat([1.0, 0.0], [600, 400]), np.repeat([1.0, 0.0], [500, 500])
    estimate = auc([block(members, nonmembers)])
    assert estimate.value == pytest.approx(0.55, abs=1e-12)
    assert estimate == auc([block(members[::-1], nonmembers[::-1])])
    # The threshold falls inside the block of 500 ties, of whom 100.1 may be ahead.
    found = tpr_at_fpr([block(members, nonmembers)], 0.1)
    assert found.value == pytest.approx(0.6 * 100.1 / 501)
    assert found == tpr_at_fpr([block(members[::-1], nonmembers[::-1])], 0.1)


def slow_weight(score: float, calibration: Floats, rank: float, spread: float = 1.0) -> float:
    above, tied = np.sum(calibration > score), np.sum(calibration == score)
    return float(np.clip((rank - above) / (tied + spread), 0, 1))


@pytest.mark.parametrize("levels", [1, 2, 7, 300])
def test_T2_ties_are_accused_in_part(levels: int) -> None:
    rng = np.random.default_rng(levels)
    members, calibration = (rng.integers(0, levels, n).astype(np.float64) for n in (60, 130))
    calibration[:3] = -np.inf
    scores = Block(members, calibration, calibration)
    slow = [sum(slow_weight(m, calibration, rank) for m in members) for rank in range(132)]
    assert scores.hits(np.arange(132)) == pytest.approx(np.array(slow))
    assert [scores.accused(members, rank).sum() for rank in range(132)] == pytest.approx(slow)
    for rank, spread in ((0.3, 1.0), (6.55, 1.0), (6.55, 2.4), (2.0, 7.5), (40.0, 9.0), (131.0, 1.0)):
        slow = [slow_weight(m, calibration, rank, spread) for m in members]
        assert scores.accused(members, rank, spread) == pytest.approx(slow)
        assert scores.accusations(members, rank, spread) == pytest.approx(sum(slow))
    slow = [slow_weight(m, calibration, 0.05 * 131) for m in members]
    assert tpr_at_fpr([scores], 0.05).value == pytest.approx(np.mean(slow))


@pytest.mark.parametrize("levels", [1, 3, 40, 10**9])
@pytest.mark.parametrize("n", [1, 5, 48, 99, 250])
def test_T3_the_expected_fpr_is_the_nominal_one_whatever_the_size(n: int, levels: int) -> None:
    """A score that nobody was trained on may be any of n + 1: leave each out in turn, and let the others calibrate."""
    everybody = np.random.default_rng(n).integers(0, levels, n + 1).astype(np.float64)
    for fpr in (0.001, 0.01, 0.07, 0.5):
        accused = 0.0
        for i, own in enumerate(everybody):
            part = ranked(block(everybody[:1], np.delete(everybody, i)), fpr)
            accused += part.accused(np.array([own]))[0]
        assert accused / (n + 1) == pytest.approx(fpr, rel=1e-6)


def test_T2_an_adversary_with_a_coin_gets_what_is_reported() -> None:
    """A two-valued score, 95 % of members and 5 % of others: breaking ties at random finds 19 %, and so do we."""
    rng = np.random.default_rng(0)
    members, others = (rng.random(4000) < 0.95).astype(np.float64), (rng.random(4000) < 0.05).astype(np.float64)
    coin = rng.random(8000) / 2
    found, drawn = (
        tpr_at_fpr([block(members + with_coin * coin[:4000], others + with_coin * coin[4000:])], 0.01)
        for with_coin in (0, 1)
    )
    assert found.value == pytest.approx(0.19, abs=0.02)
    assert found.value == pytest.approx(drawn.value, abs=0.06)  # which of the others lie highest is chance
    assert found.low is not None
    assert found.low > 0.1
    assert tied_share([block(members, others)], 0.01) == pytest.approx(0.5, abs=0.02)
    assert tied_share([block(members + coin[:4000], others + coin[4000:])], 0.01) <= 1 / 8000


def test_T2_ties_keep_the_false_positive_rate() -> None:
    rng = np.random.default_rng(0)
    realised = []
    for _ in range(800):
        evaluation, calibration = (rng.integers(0, 9, n).astype(np.float64) for n in (300, 150))
        realised.append(tpr_at_fpr([Block(np.zeros(1), evaluation, calibration)], 0.05).realised_fpr)
    assert np.mean(np.array(realised, float)) == pytest.approx(0.05, abs=2e-3)


def test_K9_constant_score() -> None:
    constant = block(np.zeros(300), np.zeros(200))
    assert auc([constant]).value == 0.5
    found = tpr_at_fpr([constant], 0.01)
    assert found.value == pytest.approx(0.01)
    assert found.realised_fpr == pytest.approx(0.01)
    assert tied_share([constant], 0.01) == 1.0


def test_T8_K10_perfect_separation_keeps_a_width() -> None:
    perfect = block(np.linspace(2, 3, 50), np.linspace(0, 1, 200))
    estimate = auc([perfect])
    assert estimate.value == estimate.high == 1.0
    assert estimate.low is not None
    assert 0.9 < estimate.low < 0.99
    assert tpr_at_fpr([perfect], 0.01).value == 1.0


def test_K11_inverted_score_is_not_flipped() -> None:
    estimate = auc([block(np.linspace(0, 1, 50), np.linspace(2, 3, 60))])
    assert estimate.value == estimate.low == 0.0
    assert estimate.high is not None
    assert estimate.high < 0.1


def test_unequal_sizes_swap_no_denominator() -> None:
    members, nonmembers = np.array([3.0]), np.array([1.0, 2.0, 4.0, 5.0])
    estimate = auc([block(members, nonmembers)])
    assert (estimate.value, estimate.n_pos, estimate.n_neg) == (0.5, 1, 4)


@pytest.mark.parametrize(("mu", "times"), [(1.0, 400), *(simulation(mu, 2000) for mu in (0.0, 0.5, 1.0, 2.0, 3.0))])
def test_K1_auc_interval_covers_the_gaussian_answer(mu: float, times: int) -> None:
    truth = float(norm.cdf(mu / np.sqrt(2)))

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        return auc([block(rng.normal(mu, 1, 60), rng.normal(0, 1, 140))]), truth

    assert misses(draw, times) <= 0.05 * times + 3 * (0.05 * 0.95 * times) ** 0.5


@pytest.mark.simulation
def test_auc_interval_covers_when_few_members_stand_out() -> None:
    """A tenth of the members scores far above everybody: DeLong's variance exceeds the exponential one."""

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        members = np.where(rng.random(80) < 0.1, 10.0, rng.normal(0, 1, 80))
        return auc([block(members, rng.normal(0, 1, 300))]), 0.55

    assert misses(draw, 2000) <= 130


def test_several_blocks_are_never_compared_with_one_another() -> None:
    rng = np.random.default_rng(0)
    parts = [block(rng.normal(size=40) + 100 * k, rng.normal(size=30) + 100 * k) for k in range(4)]
    separate = [slow_auc(b.members, b.evaluation) for b in parts]
    assert auc(parts).value == pytest.approx(np.mean(separate))
    shifted = [Block(b.members + 7, b.evaluation + 7, b.calibration + 7) for b in parts[:1]] + parts[1:]
    assert auc(shifted).value == pytest.approx(auc(parts).value)


def test_score_interval_is_where_the_score_test_turns() -> None:
    low, high = score_interval(0.7, [(50, 80)], 0.0, 0.05)
    assert 0.5 < low < 0.7 < high < 0.85
    wide = score_interval(0.7, [(50, 80)], 0.1, 0.05)  # the measured variance is larger: the interval follows it
    assert wide[0] < low < high < wide[1]


def test_the_score_interval_of_a_perfect_auc_is_hanley_and_mcneils_alone() -> None:
    """Nobody erred, so that nothing is known of how errors spread."""
    low, high = score_interval(1.0, [(50, 80)], 0.0, 0.05)
    z = float(special.ndtri(0.975))
    assert (1 - low) ** 2 == pytest.approx(z * z * hanley_mcneil_variance(low, 50, 80), rel=1e-9)
    assert high == 1.0


# ------------------------------------------------------------------ TPR


def slow_threshold(calibration: Floats, fpr: float) -> float:
    """The smallest calibration score that is more likely accused than not, if nothing ties with it."""
    rank = fpr * (len(calibration) + 1)
    return float(min(s for s in calibration if rank - np.sum(calibration > s) >= 0.5 - 1e-9))


@pytest.mark.parametrize("fpr", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("n", [100, 101, 199, 523])
def test_threshold_equals_the_obvious_search(n: int, fpr: float) -> None:
    rng = np.random.default_rng(n)
    calibration, members = rng.integers(0, 80, n).astype(float), rng.normal(60, 20, 300)
    estimate = tpr_at_fpr([Block(members, rng.normal(size=50), calibration)], fpr)
    assert estimate.threshold == slow_threshold(calibration, fpr)
    slow = [slow_weight(member, calibration, fpr * (n + 1)) for member in members]
    assert estimate.value == pytest.approx(np.mean(slow))


@pytest.mark.simulation
def test_T3_expected_fpr_is_at_most_the_nominal_one() -> None:
    rng = np.random.default_rng(1)
    realised = []
    for _ in range(4000):
        estimate = tpr_at_fpr([Block(rng.normal(size=1), rng.normal(size=400), rng.normal(size=150))], 0.02)
        realised.append(estimate.realised_fpr)
    assert np.mean(np.array(realised, float)) == pytest.approx(0.02, abs=0.0008)


@pytest.mark.parametrize(
    ("mu", "tpr"), [(0.5, 0.0339), simulation(1, 0.0924), simulation(2, 0.3721), simulation(3, 0.7497)]
)
def test_K1_T7_tpr_interval_covers_the_gaussian_answer(mu: float, tpr: float) -> None:
    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        scores = Block(rng.normal(mu, 1, 250), rng.normal(0, 1, 50), rng.normal(0, 1, 500))
        return tpr_at_fpr([scores], 0.01), tpr

    assert misses(draw, 1000) <= 70


@pytest.mark.simulation
def test_T7_pooled_over_parties_with_their_own_thresholds() -> None:
    shifts = np.array([0.0, 1.0, 2.0])
    truth = float(np.mean(norm.sf(norm.isf(0.02) - shifts)))

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        parts = [Block(rng.normal(9 * s + s, 1, 150), np.zeros(1), rng.normal(9 * s, 1, 500)) for s in shifts]
        return tpr_at_fpr(parts, 0.02), truth

    assert misses(draw, 1000) <= 70


@pytest.mark.parametrize(("fpr", "needed", "proved"), [(0.01, 368, 437), (0.001, 3688, 4380), (0.0001, 36887, 43819)])
def test_T6_how_many_nonmembers_a_lower_end_needs(fpr: float, needed: int, proved: int) -> None:
    assert needed_for_lower_end(fpr) == needed
    assert needed_for_lower_end(fpr, guaranteed=True) == proved
    members = np.full(100, 9.0)
    for n, above, proved_above in ((needed - 1, 0, 0), (needed, 1, 0), (proved - 1, 1, 0), (proved, 1, 1)):
        found = tpr_at_fpr([block(members, np.arange(float(n)) / n)], fpr)
        assert found.low is not None
        assert found.guaranteed is not None
        assert (found.low > 0, found.guaranteed[0] > 0) == (above, proved_above)


def test_the_realised_fpr_has_an_interval_of_its_own() -> None:
    rng = np.random.default_rng(4)
    estimate = tpr_at_fpr([Block(rng.normal(size=50), rng.normal(size=1000), rng.normal(size=1000))], 0.05)
    hits = (estimate.realised_fpr or 0) * 1000
    assert hits > 10
    assert estimate.realised_fpr_interval == pytest.approx(clopper_pearson(hits, 1000, 0.025, 0.025))


def test_T6_too_few_nonmembers_are_said() -> None:
    members = np.full(100, 9.0)
    few = tpr_at_fpr([block(members, np.arange(60.0) / 100)], 0.01)
    assert few.value is None
    assert few.reason is not None
    assert "40 more" in few.reason
    assert needed_for_value(0.01) == 100
    some = tpr_at_fpr([block(members, np.arange(331.0) / 1000)], 0.01)
    assert (some.value, some.low) == (1.0, 0.0)
    assert some.reason is not None
    assert "37 more" in some.reason
    enough = tpr_at_fpr([block(members, np.arange(368.0) / 1000)], 0.01)
    assert enough.reason is None
    assert enough.low is not None
    assert enough.low > 0.7


@pytest.mark.parametrize("n", [20, 100, 437, 1000])
def test_quantile_ranks_equal_the_obvious_search(n: int) -> None:
    from scipy.stats import binom

    for tail, alpha in ((0.01, 0.0125), (0.1, 0.0125), (0.5, 0.003)):
        above = max([j for j in range(1, n + 1) if binom.cdf(j - 1, n, tail) <= alpha], default=0)
        below = min([j for j in range(1, n + 1) if binom.sf(j - 1, n, tail) <= alpha], default=n + 1)
        assert quantile_ranks(n, tail, alpha) == (above, below)


# ------------------------------------------------------------------ subjects


def clustered(rng: np.random.Generator, subjects: int, each: int, mu: float) -> tuple[Floats, Ints]:
    """Scores of which most of the variance is the subject's."""
    own = rng.normal(0, 0.9, subjects).repeat(each)
    return mu + own + rng.normal(0, np.sqrt(1 - 0.81), subjects * each), np.arange(subjects, dtype=np.int64).repeat(
        each
    )


@pytest.mark.parametrize("times", [80, simulation(400)])
def test_T9_records_of_one_subject_are_not_independent(times: int) -> None:
    truth = float(norm.cdf(1 / np.sqrt(2)))

    def draw(rng: np.random.Generator, aware: bool) -> tuple[Estimate, float]:
        members, of_members = clustered(rng, 60, 10, 1.0)
        others, of_others = clustered(rng, 60, 10, 0.0)
        names = (of_members.astype(str), (1000 + of_others).astype(str), (1000 + of_others).astype(str))
        return auc([Block(members, others, others, names if aware else None)]), truth

    assert misses(lambda rng: draw(rng, True), times) <= 0.09 * times
    assert misses(lambda rng: draw(rng, False), times) > 0.3 * times


@pytest.mark.parametrize("times", [60, simulation(300)])
def test_T9_tpr_interval_covers_with_subjects(times: int) -> None:
    truth = float(norm.sf(norm.isf(0.05) - 1.5))

    def draw(rng: np.random.Generator, aware: bool) -> tuple[Estimate, float]:
        members, of_members = clustered(rng, 60, 10, 1.5)
        others, of_others = clustered(rng, 150, 10, 0.0)
        names = (of_members.astype(str), np.array(["e"]), (1000 + of_others).astype(str))
        return tpr_at_fpr([Block(members, np.zeros(1), others, names if aware else None)], 0.05), truth

    assert misses(lambda rng: draw(rng, True), times) <= 0.09 * times
    assert misses(lambda rng: draw(rng, False), times) > 0.2 * times


def scattered(rng: np.random.Generator, subjects: int, mu: float, first: int) -> list[tuple[Floats, Ints]]:
    """Three records of every subject in each of four parties."""
    scores, whose = clustered(rng, subjects, 12, mu)
    return [(scores[i::4], first + whose[i::4]) for i in range(4)]


@pytest.mark.simulation
def test_T9_a_subject_in_several_blocks_is_still_one_subject() -> None:
    """Local models of parties that share their subjects: blocks added up as if independent miss 30 % of the time."""
    truth = float(norm.cdf(1 / np.sqrt(2)))

    def draw(rng: np.random.Generator, aware: bool) -> tuple[Estimate, float]:
        pairs = zip(scattered(rng, 60, 1.0, 0), scattered(rng, 60, 0.0, 1000), strict=True)
        apart = [0 if aware else 10_000 * i for i in range(4)]
        parts = [Block(m, n, n, (a + k, b + k, b + k)) for k, ((m, a), (n, b)) in zip(apart, pairs, strict=True)]
        return auc(parts), truth

    assert misses(lambda rng: draw(rng, True), 300) <= 27
    assert misses(lambda rng: draw(rng, False), 300) > 60


def test_T9_blocks_that_share_their_subjects_are_as_good_as_one() -> None:
    """The same scores in one block or in four, with the same thresholds: the same design effect."""
    rng = np.random.default_rng(2)
    accused, whose = [], []
    for scores, own in scattered(rng, 60, 0.0, 0):
        accused.append(scores > np.quantile(scores, 0.7))
        whose.append(own)
    together = design_effect([np.concatenate(accused)], [np.concatenate(whose)])
    assert together > 2
    assert design_effect(accused, whose) == pytest.approx(together)


@pytest.mark.parametrize(("members", "others"), [(8, 8), simulation(8, 60), simulation(60, 8)])
@pytest.mark.parametrize("mu", [0.0, 1.5])
def test_T9_few_subjects_have_an_interval_that_holds(members: int, others: int, mu: float) -> None:
    truth = float(norm.cdf(mu / np.sqrt(2)))

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        (inside, a), (outside, b) = clustered(rng, members, 20, mu), clustered(rng, others, 20, 0.0)
        return auc([Block(inside, outside, outside, (a, 1000 + b, 1000 + b))]), truth

    assert misses(draw, 300) <= 33  # 8 % in the worst case, plus two standard deviations


@pytest.mark.parametrize(("members", "others"), [(1, 1), (7, 60), (60, 7)])
def test_T9_too_few_subjects_have_no_interval_and_no_value(members: int, others: int) -> None:
    rng = np.random.default_rng(0)
    (inside, a), (outside, b) = clustered(rng, members, 40, 1.0), clustered(rng, others, 40, 0.0)
    scores = Block(inside, outside, outside, (a, 1000 + b, 1000 + b))
    for estimate in (auc([scores]), tpr_at_fpr([scores], 0.1)):
        assert (estimate.value, estimate.low, estimate.high) == (None, None, None)
        assert estimate.reason is not None
        assert f"there are {min(members, others)}" in estimate.reason


def test_a_party_that_is_one_person_is_judged_by_that_persons_records() -> None:
    rng = np.random.default_rng(0)
    members, others = rng.normal(1, 1, 80), rng.normal(size=200)
    names = (np.full(80, "a"), np.full(200, "a"), np.full(200, "a"))
    alone, plain = Block(members, others, others, names), Block(members, others, others)
    assert (auc([alone]).low, auc([alone]).high) == (auc([plain]).low, auc([plain]).high)
    assert tpr_at_fpr([alone], 0.05).low == tpr_at_fpr([plain], 0.05).low


def test_singletons_are_the_independent_case() -> None:
    rng = np.random.default_rng(3)
    members, evaluation, calibration = rng.normal(1, 1, 80), rng.normal(size=90), rng.normal(size=500)
    names = (np.arange(80).astype(str), np.arange(80, 170).astype(str), np.arange(170, 670).astype(str))
    plain, named = Block(members, evaluation, calibration), Block(members, evaluation, calibration, names)
    assert auc([named]).low == pytest.approx(auc([plain]).low, abs=0.003)
    assert tpr_at_fpr([named], 0.05).low == tpr_at_fpr([plain], 0.05).low


# ------------------------------------------------------------------ the curve


def test_roc_curve_is_tpr_at_every_rate() -> None:
    rng = np.random.default_rng(2)
    scores = Block(rng.normal(1, 1, 200), rng.normal(size=200), rng.normal(size=1000))
    curve = roc_curve([scores])
    for fpr, value, low, high in zip(curve.x, curve.value, curve.low, curve.high, strict=True):
        estimate = tpr_at_fpr([scores], fpr)
        assert (value, low, high) == (estimate.value, estimate.low, estimate.high)
    assert curve.x[0] == pytest.approx(0.001)
