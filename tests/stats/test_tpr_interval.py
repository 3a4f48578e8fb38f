"""The TPR's two intervals: the same as from the obvious slow ways, and covering what they promise to cover."""

from itertools import product

import numpy as np
import pytest
from scipy import optimize, special
from scipy.stats import beta, binom, norm

from fedaudit.stats import Block, clopper_pearson, roc_curve, tpr_at_fpr
from fedaudit.stats.intervals import quantile_ranks
from fedaudit.stats.roc import Spread, lower_end, rank_chances, summed
from fedaudit.types import Floats, Ints
from tests.stats.simulated import simulation


def parties(rng: np.random.Generator, sizes: list[tuple[int, int]], mu: float) -> list[Block]:
    """(members, calibration) of each party; scores of different parties are not comparable."""
    return [Block(rng.normal(9 * i + mu, 1, m), np.zeros(1), rng.normal(9 * i, 1, n)) for i, (m, n) in enumerate(sizes)]


# ------------------------------------------------------------------ slow twins


def slow_hits(block: Block, rank: int) -> float:
    ahead = [np.sum(block.calibration > m) for m in block.members]
    tied = [np.sum(block.calibration == m) for m in block.members]
    return float(sum(np.clip((rank - a) / (t + 1), 0, 1) for a, t in zip(ahead, tied, strict=True)))


def slow_ends(blocks: list[Block], fpr: float, alpha: float) -> tuple[float, float]:
    """Every combination of ranks, one Beta distribution each."""
    total = sum(len(b.members) for b in blocks)
    supports = [range(len(b.calibration) + 1) for b in blocks]
    low, high, weights = [], [], []
    tables = [[slow_hits(b, k) for k in range(len(b.calibration) + 2)] for b in blocks]
    chances = [binom.pmf(np.arange(len(b.calibration) + 1), len(b.calibration), fpr) for b in blocks]
    for ranks in product(*supports):
        weight = np.prod([c[k] for c, k in zip(chances, ranks, strict=True)])
        if weight > 1e-9:
            low.append(sum(t[k] for t, k in zip(tables, ranks, strict=True)))
            high.append(sum(t[k + 1] for t, k in zip(tables, ranks, strict=True)))
            weights.append(weight)
    if len(blocks) > 1:  # what averaging over the rank moved is moved back
        middles = [
            np.interp(len(b.calibration) * fpr, np.arange(len(t)), t) for b, t in zip(blocks, tables, strict=True)
        ]
        above = [
            np.interp(len(b.calibration) * fpr, np.arange(len(t) - 1), t[1:])
            for b, t in zip(blocks, tables, strict=True)
        ]
        low = np.clip(np.array(low) - max(np.average(low, weights=weights) - sum(middles), 0), 0, total)
        high = np.clip(np.array(high) + max(sum(above) - np.average(high, weights=weights), 0), 0, total)
    w = np.array(weights)

    def below(p: float, a: Floats, b: Floats) -> float:
        found = np.where(a <= 0, 1.0, np.where(b <= 0, 0.0, beta.cdf(p, np.maximum(a, 1e-9), np.maximum(b, 1e-9))))
        return float(w @ found)

    lows, highs = np.array(low), np.array(high)

    def quantile(a: Floats, b: Floats, chance: float) -> float:
        if below(1e-12, a, b) >= chance:
            return 0.0
        if below(1 - 1e-12, a, b) <= chance:
            return 1.0
        return float(optimize.brentq(lambda p: below(p, a, b) - chance, 1e-12, 1 - 1e-12))

    return quantile(lows, total - lows + 1, alpha / 2), quantile(highs + 1, total - highs, 1 - alpha / 2)


@pytest.mark.parametrize(
    ("sizes", "fpr", "mu", "levels"),
    [
        ([(40, 60)], 0.1, 1.0, None),
        ([(40, 150)], 0.05, 0.0, None),
        ([(40, 150)], 0.05, 1.0, 6),
        ([(30, 60), (12, 40)], 0.1, 1.5, None),
        ([(30, 60), (12, 40)], 0.1, 9.0, None),
        ([(30, 60), (12, 40)], 0.1, 0.5, 5),
        ([(10, 25), (12, 20), (8, 30)], 0.1, 1.0, None),
    ],
)
def test_the_ends_equal_the_sum_over_all_ranks(
    sizes: list[tuple[int, int]], fpr: float, mu: float, levels: int | None
) -> None:
    blocks = parties(np.random.default_rng(1), sizes, mu)
    if levels:
        blocks = [
            Block(np.rint(b.members * levels / 6), b.evaluation, np.rint(b.calibration * levels / 6)) for b in blocks
        ]
    found = tpr_at_fpr(blocks, fpr)
    # Counts closer together than a quarter of their standard deviation are taken as one.
    assert (found.low, found.high) == pytest.approx(slow_ends(blocks, fpr, 0.05), abs=2e-3)


def test_the_sum_equals_the_convolution() -> None:
    rng = np.random.default_rng(0)
    parts = [Spread(np.sort(rng.choice(40, 9, False)).astype(np.float64), rng.dirichlet(np.ones(9))) for _ in range(3)]
    slow: dict[float, float] = {}
    for a, b, c in product(*(zip(p.values, p.chances, strict=True) for p in parts)):
        slow[a[0] + b[0] + c[0]] = slow.get(a[0] + b[0] + c[0], 0) + a[1] * b[1] * c[1]
    found = summed(parts)
    assert dict(zip(found.values.tolist(), found.chances.tolist(), strict=True)) == pytest.approx(slow)
    fractions = [Spread(p.values / 7, p.chances) for p in parts]  # a lattice of its own, the same mean
    assert summed(fractions).values @ summed(fractions).chances == pytest.approx(found.values @ found.chances / 7)


@pytest.mark.parametrize(("n", "fpr"), [(100, 0.01), (1025, 0.01), (50_000, 0.001), (700, 0.99)])
def test_rank_chances_are_binomial(n: int, fpr: float) -> None:
    ranks, chances = rank_chances(n, fpr)
    assert chances == pytest.approx(binom.pmf(ranks, n, fpr), abs=1e-7)
    assert binom.cdf(ranks[0] - 1, n, fpr) < 1e-7
    assert binom.sf(ranks[-1], n, fpr) < 1e-7


# ------------------------------------------------------------------ the guaranteed ends


def union_bound(blocks: list[Block], fpr: float, alpha: float) -> tuple[float, float]:
    """Every party's threshold at its worst at once."""
    total, share = sum(len(b.members) for b in blocks), alpha / 4
    ranks = [quantile_ranks(len(b.calibration), fpr, share / len(blocks)) for b in blocks]
    low = sum(slow_hits(b, above) for b, (above, _) in zip(blocks, ranks, strict=True))
    high = sum(slow_hits(b, below) for b, (_, below) in zip(blocks, ranks, strict=True))
    return clopper_pearson(low, total, share, share)[0], clopper_pearson(high, total, share, share)[1]


def slow_guaranteed(blocks: list[Block], fpr: float, alpha: float) -> tuple[float, float]:
    """Every combination of ranks in the order of what it uses up, until the rest is improbable enough."""
    total, ends = sum(len(b.members) for b in blocks), []
    needs = np.array([len(b.members) / np.sqrt(len(b.calibration)) for b in blocks])
    needs /= needs.max()
    for side in (-1, 1):
        found = []
        for ranks in product(*(range(len(b.calibration) + 1) for b in blocks)):
            uses, chance, hits = 0, 1.0, 0.0
            for b, need, k in zip(blocks, needs, ranks, strict=True):
                n = len(b.calibration)
                beyond = max(side * (k - n * fpr), 0) / np.sqrt(n * fpr * (1 - fpr))
                uses += int(np.ceil(16 * need * beyond**2 - 1e-9))
                chance *= binom.pmf(k, n, fpr)
                hits += slow_hits(b, k if side < 0 else k + 1)
            found.append((uses, chance, hits))
        limit = min(u for u, *_ in found if sum(c for v, c, _ in found if v > u) <= alpha / 4 - 1e-7)
        inside = [hits for uses, _, hits in found if uses <= limit]
        ends.append(clopper_pearson(min(inside) if side < 0 else max(inside), total, alpha / 4, alpha / 4)[side > 0])
    return ends[0], ends[1]


def test_guaranteed_ends_equal_the_search_over_all_ranks() -> None:
    blocks = parties(np.random.default_rng(2), [(30, 25), (9, 20)], 1.5)
    assert tpr_at_fpr(blocks, 0.2).guaranteed == pytest.approx(slow_guaranteed(blocks, 0.2, 0.05), abs=1e-9)


def test_guaranteed_ends_of_one_party_are_the_union_bounds_and_of_several_are_tighter() -> None:
    rng = np.random.default_rng(3)
    one, four = parties(rng, [(300, 500)], 2.0), parties(rng, [(150, 400)] * 4, 2.0)
    assert tpr_at_fpr(one, 0.01).guaranteed == pytest.approx(union_bound(one, 0.01, 0.05), abs=1e-12)
    found, slow = tpr_at_fpr(four, 0.01), union_bound(four, 0.01, 0.05)
    assert found.guaranteed is not None
    assert found.low is not None
    assert found.high is not None
    assert slow[0] < found.guaranteed[0] < found.low < found.high < found.guaranteed[1] < slow[1]


def test_so_small_an_error_that_the_region_is_not_looked_at_has_ends_too() -> None:
    four = parties(np.random.default_rng(3), [(150, 4000)] * 4, 2.0)
    found = tpr_at_fpr(four, 0.01, 1 - 1e-7)
    assert found.guaranteed == pytest.approx(union_bound(four, 0.01, 1e-7), abs=1e-9)


# ------------------------------------------------------------------ coverage (the whole of it is in docs/coverage.md)


@pytest.mark.parametrize(
    ("sizes", "mu"), [simulation([(300, 300)] * 4, 2.0), simulation([(100, 100)] * 25, 4.5), ([(300, 500)], 3.0)]
)
def test_T7_both_intervals_cover_where_the_roc_is_smooth(sizes: list[tuple[int, int]], mu: float) -> None:
    truth, rng = float(norm.sf(norm.isf(0.01) - mu)), np.random.default_rng(0)
    missed = proved_missed = 0
    for _ in range(300):
        found = tpr_at_fpr(parties(rng, sizes, mu), 0.01)
        assert found.low is not None
        assert found.high is not None
        assert found.guaranteed is not None
        missed += not found.low <= truth <= found.high
        proved_missed += not found.guaranteed[0] <= truth <= found.guaranteed[1]
    assert missed <= 27  # 300 at 5 %: mean 15, three standard deviations
    assert proved_missed <= 27


@pytest.mark.parametrize("times", [50, simulation(200)])
@pytest.mark.parametrize("over", [True, False])
def test_guaranteed_ends_hold_where_all_members_lie_at_the_threshold(over: bool, times: int) -> None:
    """A kink in the ROC curve just there: what the parties' errors do does not average out."""
    rng, missed, proved_missed = np.random.default_rng(0), 0, 0
    at = -0.01 * (1 - 1e-9 if over else 1 + 1e-9)
    for _ in range(times):
        blocks = [Block(np.full(50, at), -np.ones(1), -rng.random(300)) for _ in range(10)]
        found = tpr_at_fpr(blocks, 0.01)
        assert found.low is not None
        assert found.high is not None
        assert found.guaranteed is not None
        missed += not found.low <= over <= found.high
        proved_missed += not found.guaranteed[0] <= over <= found.guaranteed[1]
    assert missed > times / 2  # this is what the guaranteed ends are for
    assert proved_missed <= 0.05 * times + 3 * (0.05 * 0.95 * times) ** 0.5


def test_the_lower_end_is_a_quantile_of_the_mixture_where_no_hits_are_possible_but_rare() -> None:
    hits = Spread(np.array([0.0, 5.0, 9.0]), np.array([0.01, 0.6, 0.39]))

    def below(p: float) -> float:
        mixed = [special.betainc(k, 20 - k + 1, p) if k else 1.0 for k in hits.values]
        return float(hits.chances @ np.array(mixed))

    found = optimize.brentq(lambda p: below(p) - 0.05, 1e-9, 0.9, xtol=1e-13)
    assert lower_end(hits, 20.0, 0.05) == pytest.approx(found, abs=1e-9)


# ------------------------------------------------------------------ thresholds from records of another kind


def reported_at(shift: float) -> list[Block]:
    """The outsiders that are reported on have other scores than those that set the thresholds."""
    rng, sizes = np.random.default_rng(0), [(2000, 1000), (3000, 1500)]
    return [Block(rng.normal(1, 1, 500), rng.normal(shift, 1, n), rng.normal(size=m)) for n, m in sizes]


def test_thresholds_that_accuse_too_many_have_no_tpr() -> None:
    found = tpr_at_fpr(reported_at(1.0), 0.01)
    assert (found.value, found.low, found.guaranteed, found.doubt) == (None, None, None, "more")
    assert (found.reason or "").startswith("0.082 of the outsiders are accused where 0.01 was asked: the records")
    assert found.realised_fpr == pytest.approx(0.082, abs=1e-4)


def test_thresholds_that_accuse_too_few_keep_the_lower_ends() -> None:
    """What is picked out at a smaller rate is picked out at the rate that was asked, and more may be."""
    alike, found = tpr_at_fpr(reported_at(0.0), 0.01), tpr_at_fpr(reported_at(-2.0), 0.01)
    assert (alike.reason, alike.doubt) == (None, None)
    assert alike.guaranteed is not None
    assert (found.value, found.low, found.guaranteed) == (alike.value, alike.low, (alike.guaranteed[0], 1.0))
    assert (found.high, found.doubt) == (1.0, "fewer")
    assert "and more may be picked out at the rate that was asked" in (found.reason or "")
    assert tpr_at_fpr(reported_at(-2.0), 0.01, prove=False).guaranteed is None


def in_parties(*shifts: float) -> list[Block]:
    """One party each; members and outsiders lie so far from the records that set its threshold."""
    rng = np.random.default_rng(0)
    return [Block(rng.normal(s, 1, 500), rng.normal(s, 1, 2500), rng.normal(size=2000)) for s in shifts]


def test_thresholds_that_accuse_too_few_in_some_parties_leave_more_possible() -> None:
    """Three of the parties accuse nobody, and all together more than half of what was asked."""
    blocks = in_parties(*[0.0] * 7, *[-9.0] * 3)
    found = tpr_at_fpr(blocks, 0.01)
    assert found.realised_fpr == pytest.approx(0.006, abs=1e-3)
    assert (found.high, found.doubt) == (1.0, "fewer")
    assert (found.reason or "").startswith("0 of the outsiders in 3 of 10 parties are accused where 0.01 was asked")
    curve = roc_curve(blocks)
    assert [high for rate, high in zip(curve.x, curve.high, strict=True) if 0.008 < rate < 0.1 and high != 1.0] == []
    assert tpr_at_fpr(in_parties(*[0.0] * 10), 0.01).doubt is None


@pytest.mark.parametrize("shift", [0.0, 1.0, -2.0])
def test_a_curve_draws_no_tpr_that_an_estimate_refuses(shift: float) -> None:
    blocks = reported_at(shift)
    curve = roc_curve(blocks)
    for rate, *drawn in zip(curve.x, curve.value, curve.low, curve.high, strict=True):
        found = tpr_at_fpr(blocks, rate, prove=False)
        assert drawn == [found.value, found.low, found.high]
    assert (None in curve.value) == (shift > 0)
    assert (1.0 in curve.high[: len(curve.high) // 2]) == (shift < 0)


def test_of_people_who_differ_no_threshold_is_doubted() -> None:
    """Records of a person resemble each other, so that the outsiders of thirty people vary more than as many alone."""
    rng = np.random.default_rng(0)

    def of_people(first: int) -> tuple[Floats, Ints]:
        whose = np.repeat(np.arange(first, first + 30), 40)
        return 0.8 * rng.normal(size=first + 30)[whose] + 0.6 * rng.normal(size=len(whose)), whose

    doubted = 0
    for _ in range(100):
        (members, mine), (evaluation, theirs), (calibration, others) = (of_people(first) for first in (0, 30, 60))
        found = tpr_at_fpr([Block(members, evaluation, calibration, (mine, theirs, others))], 0.05, prove=False)
        doubted += "are accused where" in (found.reason or "")
    assert doubted == 0
