"""T6, T31, T33: a pooled TPR of small and unequal parties, and of a few people who are extreme."""

import numpy as np
import pytest
from scipy.stats import norm

from fedaudit.stats import Block, roc_curve, tpr_at_fpr
from fedaudit.stats.blocks import ranked
from fedaudit.stats.groups import contrast
from fedaudit.stats.paired import by_unit, tpr_influence
from fedaudit.types import Floats, Ints

SITES = {"A": (123, 48), "B": (180, 64), "C": (240, 88), "D": (303, 120)}  # members, calibration non-members
LEAKS = {"A": 3.0, "B": 2.0, "C": 1.0, "D": 0.5}  # the smaller, the more


def site(rng: np.random.Generator, party: str, shift: float) -> Block:
    """Each site's scores are on a scale of its own."""
    members, calibration = SITES[party]
    sets = (rng.normal(shift, 1, members), rng.normal(0, 1, 60), rng.normal(0, 1, calibration))
    scores = [10.0 * ord(party) + one for one in sets]
    start = 1000 * ord(party)
    ids = [np.arange(len(one)) + start + 400 * i for i, one in enumerate(sets)]
    return Block(scores[0], scores[1], scores[2], ids=(ids[0], ids[1], ids[2]), party=party)


def four_sites(rng: np.random.Generator, leaks: dict[str, float] = LEAKS) -> list[Block]:
    return [site(rng, party, leaks[party]) for party in SITES]


def slow_weight(score: float, calibration: Floats, fpr: float) -> float:
    """Put the score among the calibration scores. With a rank of 1.21 it is accused if it is the first, and if it is
    the second a coin accuses it with a chance of .21."""
    place = 1 + sum(other > score for other in calibration)
    rank = fpr * (len(calibration) + 1)
    return 1.0 if place <= rank else rank - (place - 1) if place < rank + 1 else 0.0


def test_T33_four_small_sites_are_all_counted() -> None:
    """Three of them had too few records for a threshold of their own, and were left out in silence."""
    blocks = four_sites(np.random.default_rng(0))
    found = tpr_at_fpr(blocks, 0.01)
    assert (found.n_pos, found.n_cal) == (123 + 180 + 240 + 303, 48 + 64 + 88 + 120)
    slow = [[slow_weight(score, block.calibration, 0.01) for score in block.members] for block in blocks]
    assert found.value == pytest.approx(np.mean(np.concatenate(slow)))
    assert roc_curve(blocks).x[0] == pytest.approx(1 / 320)
    influence = tpr_influence(blocks, 0.01)
    assert all(np.any(of_members) for of_members, _, _ in influence)
    assert by_unit([(influence, blocks)]).any()


def test_T33_a_group_is_compared_with_all_others() -> None:
    blocks = four_sites(np.random.default_rng(1))
    among = np.zeros(200_000, bool)
    for block in blocks[:1]:
        assert block.ids is not None
        for own in block.ids:
            among[own] = True
    found = contrast(blocks, among, 0.05, 0.95)
    assert found.inside["tpr@0.05"].n_pos == 123
    assert found.outside["tpr@0.05"].n_pos == 180 + 240 + 303
    assert found.certain


def test_T33_a_group_does_not_stand_out_because_its_party_is_large() -> None:
    """All members of all parties lie above all non-members. At 1 % a party of 48 can count half of them, one of 300
    each: the group that was the large party stood out by 45 points."""
    rng = np.random.default_rng(0)
    blocks, start = [], 0
    for size in (48, 64, 300):
        members, evaluation, calibration = rng.normal(9, 1, 100), rng.normal(size=100), rng.normal(size=size)
        ids = np.split(np.arange(start, start + 200 + size), [100, 200])
        blocks.append(Block(members, evaluation, calibration, ids=(ids[0], ids[1], ids[2])))
        start += 200 + size
    large = np.arange(start) >= start - 500
    found = contrast(blocks, large, 0.01, 0.95)
    assert (found.certain, set(found.beyond)) == ("", {"auc"})
    assert set(contrast(blocks, large, 0.05, 0.95).beyond) == {"auc", "tpr@0.05"}


@pytest.mark.parametrize("n", [1, 20, 48, 64, 88, 120])
def test_T3_nobody_is_accused_more_often_than_was_asked_in_any_party(n: int) -> None:
    rng = np.random.default_rng(n)
    accused = [
        ranked(Block(np.zeros(1), np.zeros(0), rng.normal(size=n)), 0.05).accused(rng.normal(size=50)).mean()
        for _ in range(1500)
    ]
    assert np.mean(accused) == pytest.approx(0.05, abs=4 * np.std(accused) / np.sqrt(len(accused)))


def test_T6_one_small_party_alone_has_no_value() -> None:
    """Of 48 records, .49 at most would be accused even if all members lay above them: such a value says how small the
    party is, and nothing of the leak."""
    alone = four_sites(np.random.default_rng(0))[0]
    found = tpr_at_fpr([alone], 0.01)
    assert (found.value, found.low, found.high) == (None, None, None)
    assert found.reason == "needs 52 more calibration non-members: there must be 100, and there are 48"
    none = tpr_at_fpr([Block(alone.members, alone.evaluation, alone.calibration[:0])], 0.01)
    assert none.reason == "needs 100 more calibration non-members: there must be 100, and there are 0"


def test_a_party_without_calibration_records_is_left_out() -> None:
    blocks = four_sites(np.random.default_rng(0))
    bare = Block(blocks[0].members, blocks[0].evaluation, blocks[0].calibration[:0], party="bare")
    assert tpr_at_fpr([*blocks, bare], 0.01) == tpr_at_fpr(blocks, 0.01)
    assert not any(np.any(part) for part in tpr_influence([*blocks, bare], 0.01)[-1])


@pytest.mark.parametrize("leaks", [LEAKS, dict.fromkeys(SITES, 2.4), dict.fromkeys(SITES, 0.0)])
def test_T33_the_ends_hold_where_small_parties_leak_more(leaks: dict[str, float]) -> None:
    """What was reported of the larger ones lay below the truth in 89 % of such worlds."""
    sizes = np.array([members for members, _ in SITES.values()])
    truth = float(np.average(norm.sf(norm.isf(0.01) - np.array([*leaks.values()])), weights=sizes))
    rng, misses = np.random.default_rng(5), np.zeros(4)
    for _ in range(250):
        found = tpr_at_fpr(four_sites(rng, leaks), 0.01)
        assert found.low is not None
        assert found.high is not None
        assert found.guaranteed is not None
        low, high = found.guaranteed
        misses += [truth < found.low, truth > found.high, truth < low, truth > high]
    assert misses.max() <= 250 * 0.025 + 3 * np.sqrt(250 * 0.025)


def test_T33_four_small_sites_that_leak_are_certainly_found() -> None:
    rng = np.random.default_rng(0)
    blocks = [Block(rng.normal(6, 1, 150), np.zeros(0), rng.normal(0, 1, 96)) for _ in range(4)]
    found = tpr_at_fpr(blocks, 0.01)
    assert found.value is not None
    assert found.low is not None
    assert found.value > 0.9
    assert found.low > 0.01


@pytest.mark.parametrize(("people", "share"), [(100, 0.008), (300, 0.008)])
def test_T31_guaranteed_ends_hold_for_people_who_are_extreme(people: int, share: float) -> None:
    """All records of a few people lie above the threshold, members or not, so that the TPR is the FPR. If none of them
    calibrates, no design effect is measured: with a hundred people these ends missed in a fifth of the worlds."""
    rng, misses, worlds = np.random.default_rng(2), 0, 100

    def side(people: int, records: int, start: int) -> tuple[Floats, Ints]:
        whose = np.repeat(np.arange(people), records)
        extreme = (rng.random(people) < share)[whose]
        return np.where(extreme, 9.0, 0.0) + rng.random(len(whose)), whose + start

    for _ in range(worlds):
        (members, a), (calibration, c) = side(10_000, 2, 0), side(people, 10, 10**6)
        found = tpr_at_fpr([Block(members, members[:0], calibration, (a, a[:0], c))], 0.01)
        assert found.guaranteed is not None
        misses += not found.guaranteed[0] <= 0.01 <= found.guaranteed[1]
    assert misses <= 0.05 * worlds


def test_people_with_one_record_each_are_records() -> None:
    rng = np.random.default_rng(0)
    members, calibration = rng.normal(2, 1, 300), rng.normal(0, 1, 700)
    plain = Block(members, members[:0], calibration)
    named = Block(members, members[:0], calibration, (np.arange(300), np.arange(0), np.arange(1000, 1700)))
    assert tpr_at_fpr([named], 0.01).guaranteed == tpr_at_fpr([plain], 0.01).guaranteed
