"""Records of one subject are worth less than as many of strangers: thresholds, AUCs, hits and shares (T9)."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import norm

from fedaudit.stats import Block, auc, clopper_pearson, design_effect, proportion, tpr_at_fpr
from fedaudit.stats.blocks import effective_subjects, lowest, ranked, threshold_rank, too_few
from fedaudit.types import Estimate, Floats, Ints

Sizes = Callable[[np.random.Generator], int]


def equal(size: int) -> Sizes:
    return lambda rng: size


def heavy(rng: np.random.Generator) -> int:
    """A few subjects have most of the records."""
    return max(1, round(float(np.exp(rng.normal(1.0, 1.2)))))


def clustered(rng: np.random.Generator, records: int, size: Sizes, share: float, mu: float = 0) -> tuple[Floats, Ints]:
    """Standard normal scores about `mu`, of whose variance the subject makes a given share."""
    sizes: list[int] = []
    while sum(sizes) < records:
        sizes.append(size(rng))
    whose = np.repeat(np.arange(len(sizes)), sizes)
    own, rest = rng.normal(size=len(sizes))[whose], rng.normal(size=len(whose))
    return mu + np.sqrt(share) * own + np.sqrt(1 - share) * rest, whose


def block(rng: np.random.Generator, counts: tuple[int, int, int], size: Sizes, share: float, mu: float) -> Block:
    (m, a), (e, b), (c, d) = (clustered(rng, n, size, share, mu if i == 0 else 0.0) for i, n in enumerate(counts))
    return Block(m, e, c, (a, 10_000 + b, 20_000 + d))


def missed(found: Estimate, truth: float) -> bool:
    assert found.low is not None
    assert found.high is not None
    return not found.low <= truth <= found.high


# ------------------------------------------------------------------ the threshold


def test_whole_subjects_are_accused_as_they_would_be_by_one_record_each() -> None:
    """Subjects of nine equal records each: the weights are those that the subjects have among themselves."""
    rng = np.random.default_rng(0)
    for subjects in range(20, 700, 17):
        own, fresh = rng.normal(size=subjects), rng.normal(size=500)
        calibration = Block(fresh, fresh[:0], np.repeat(own, 9))
        alone = Block(fresh, fresh[:0], own)
        weights = calibration.accused(fresh, threshold_rank(9 * subjects, 0.01, 9.0), 9.0)
        assert weights == pytest.approx(alone.accused(fresh, threshold_rank(subjects, 0.01)))


@pytest.mark.parametrize(("size", "share"), [(equal(30), 0.0), (equal(30), 0.5), (heavy, 0.5), (heavy, 0.8)])
def test_T3_whole_subjects_calibrate_at_most_the_nominal_fpr(size: Sizes, share: float) -> None:
    """Ranks of records give 1.5 % and more at 1 %: some subjects have many records above the threshold. By effective
    scores it is 1 %, or a tenth of that more where some people have most of the records."""
    rng, fresh = np.random.default_rng(0), norm.isf(0.2 * (np.arange(4000) + 0.5) / 4000)  # the upper fifth
    accused = []
    for _ in range(200):
        part = ranked(block(rng, (9, 9, 1200), size, share, 0.0), 0.01)
        accused.append(0.2 * part.accused(fresh).mean())
    assert np.mean(accused) <= 0.011 + 2 * np.std(accused) / np.sqrt(len(accused))
    assert np.mean(accused) >= 0.008


def test_T6_effective_scores_must_suffice_for_a_value() -> None:
    rng = np.random.default_rng(0)
    scores = block(rng, (400, 100, 1025), equal(30), 0.999, 3.0)  # 35 people, who differ and whose records do not
    found = tpr_at_fpr([scores], 0.01)
    assert found.value is None
    assert found.reason is not None
    assert "independent ones" in found.reason
    missing = int(found.reason.split()[1])
    assert 1500 < missing < 2300  # a hundred people of thirty, and the thirty-five that there are
    enough = block(rng, (400, 100, 1025 + 2 * missing), equal(30), 0.999, 3.0)
    assert tpr_at_fpr([enough], 0.01).value is not None


# ------------------------------------------------------------------ intervals


@pytest.mark.parametrize(("share", "mu"), [(0.5, 1.5), (0.9, 1.5), (0.9, 3.5)])
def test_T9_auc_interval_covers_with_heavy_tailed_subjects(share: float, mu: float) -> None:
    truth, rng, asked, misses = float(norm.cdf(mu / np.sqrt(2))), np.random.default_rng(2), 0, 0
    for _ in range(250):
        found = auc([block(rng, (300, 300, 1), heavy, share, mu)])
        if found.value is not None:
            asked, misses = asked + 1, misses + missed(found, truth)
    assert asked > 150
    assert misses <= 0.05 * asked + 3 * np.sqrt(0.05 * 0.95 * asked)


@pytest.mark.parametrize("mu", [2.5, 3.5])
def test_T9_intervals_hold_where_few_subjects_are_misplaced(mu: float) -> None:
    """Twenty subjects of twenty alike records: in most worlds nobody is misplaced, and the AUC comes out as 1."""
    truth, rng, misses, tpr_misses = float(norm.cdf(mu / np.sqrt(2))), np.random.default_rng(3), 0, 0
    tpr = float(norm.sf(norm.isf(0.05) - mu))
    for _ in range(150):
        scores = block(rng, (400, 400, 2000), equal(20), 0.9, mu)
        misses += missed(auc([scores]), truth)
        tpr_misses += missed(tpr_at_fpr([scores], 0.05), tpr)
    assert misses <= 15  # 150 at 5 %: mean 7.5, three standard deviations
    assert tpr_misses <= 15


@pytest.mark.parametrize(("m", "n"), [(2, 2), (1, 5), (3, 8)])
def test_auc_interval_is_wide_at_tiny_counts(m: int, n: int) -> None:
    truth, rng, misses = float(norm.cdf(1 / np.sqrt(2))), np.random.default_rng(4), 0
    for _ in range(400):
        found = auc([Block(rng.normal(1, 1, m), rng.normal(0, 1, n), np.zeros(0))])
        misses += missed(found, truth)
        assert found.low is not None
        assert found.high is not None
        assert found.high - found.low > 0.3
    assert misses <= 33  # 400 at 5 %: mean 20, three standard deviations


def test_effective_subjects_are_counted_by_their_records() -> None:
    assert effective_subjects([np.repeat(np.arange(8), 5)]) == pytest.approx(8)
    assert effective_subjects([np.arange(30)]) is None
    uneven = np.concatenate([np.zeros(100, int), np.arange(1, 11)])
    assert effective_subjects([np.repeat(np.arange(8), 5), uneven]) == pytest.approx(110**2 / (100**2 + 10))
    scores = Block(
        np.random.default_rng(0).normal(size=110), np.zeros(40), np.zeros(0), (uneven, np.arange(40), np.zeros(0, int))
    )
    reason = auc([scores]).reason
    assert reason is not None
    assert "there are share the records so unevenly that they tell less than 2 with equal shares would" in reason
    assert too_few(3.0000000001) == too_few(3) != too_few(2.87)  # a number of subjects is whole
    assert (too_few(3) or "").endswith(", and there are 3")
    assert "2.87" not in (too_few(2.87) or "")


def test_the_lowest_share() -> None:
    scores = np.array([5.0, 1, 4, 2, 3, 3])
    assert lowest(scores, 0.1).tolist() == [False, True, False, False, False, False]
    assert lowest(scores, 0.5).sum() == 4  # a tie with the last one
    assert lowest(np.zeros(0), 0.1).tolist() == []


# ------------------------------------------------------------------ shares


def test_a_share_of_independent_records_is_clopper_pearsons() -> None:
    hits = np.arange(50) < 20
    found = proportion([hits, ~hits[:10]], [None, None], 0.9, "accuracy", "told")
    assert (found.low, found.high) == pytest.approx(clopper_pearson(20, 60, 0.05, 0.05))
    assert (found.value, found.n_pos, found.n_neg, found.method) == (20 / 60, 20, 40, "told; Clopper-Pearson")
    one_person = proportion([hits], [np.zeros(50, int)])  # what is said of one person is said of their records
    assert (one_person.low, one_person.high) == clopper_pearson(20, 50, 0.025, 0.025)
    nobody = proportion([], [])
    assert (nobody.value, nobody.n_pos, nobody.n_neg) == (None, 0, 0)


def test_hits_may_be_fractions_and_their_order_does_not_matter() -> None:
    rng = np.random.default_rng(4)
    hits, whose = rng.permutation(np.repeat([0.0, 1 / 3, 1.0], [70, 20, 10])), np.arange(100) // 5
    found = proportion([hits], [None])
    assert (found.low, found.high) == pytest.approx(clopper_pearson(20 / 3 + 10, 100, 0.025, 0.025))
    assert (found.n_pos, found.n_neg) == (17, 83)
    for subjects in (None, whose):
        order = rng.permutation(100)
        again = proportion([hits[order]], [None if subjects is None else subjects[order]])
        assert again.value == proportion([hits], [subjects]).value
    assert proportion([hits == 1.0], [whose]) == proportion([(hits == 1.0) * 1.0], [whose])


def test_a_share_by_subject_covers_and_counts_subjects() -> None:
    rng, misses = np.random.default_rng(5), {True: 0, False: 0}
    for _ in range(300):
        scores, whose = clustered(rng, 400, equal(20), 0.5)
        for aware in misses:
            misses[aware] += missed(proportion([scores > -1], [whose if aware else None]), float(norm.cdf(1)))
    assert misses[True] <= 27
    assert misses[False] > 60


def test_subjects_in_several_groups_are_summed_before_squaring() -> None:
    scores, whose = clustered(np.random.default_rng(6), 400, equal(20), 0.8)
    hits = scores > 0
    together = proportion([hits], [whose])
    apart = proportion([hits[::2], hits[1::2]], [whose[::2], whose[1::2]])
    assert apart.low == pytest.approx(together.low, abs=0.02)
    assert design_effect([hits], [whose]) > 5
