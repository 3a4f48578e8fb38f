"""Fair coins: who is set aside is decided before they are flipped, and nothing is drawn again afterwards."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedaudit.config.schema import FederationSection
from fedaudit.data.partition import build
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset, Game, Role


def data(n: int, people: int | None = None) -> Dataset:
    whose = None if people is None else np.array([f"p{i % people:04}" for i in range(n)])
    return dataset("a", np.arange(float(n))[:, None], np.arange(n) % 2, id=np.arange(n), subject=whose)


def built(source: Dataset, seed: int = 0, **keys: Any) -> Game:
    return build(source, FederationSection(coins=True, **keys), np.random.default_rng(seed))


def test_the_fractions_say_how_many_calibrate_and_coins_decide_the_rest() -> None:
    for members, nonmembers in ((0.3, 0.3), (0.5, 0.1), (0.1, 0.5)):  # only their sum counts
        split = built(data(2000), members=members, nonmembers=nonmembers)
        for party in split.parties:
            mine = split.candidates.party == party
            assert int((mine & split.truth.mask(Role.CALIBRATION)).sum()) == 200
            heads = int((mine & split.truth.mask(Role.MEMBER)).sum())
            assert stats.binomtest(heads, 300).pvalue > 1e-6


def test_coins_are_fair_and_independent_of_each_other() -> None:
    source = data(200)
    games = [built(source, seed) for seed in range(1000)]
    members = np.array([game.truth.mask(Role.MEMBER) for game in games])
    played = np.array([~game.truth.mask(Role.CALIBRATION) for game in games])
    assert stats.binomtest(int(members.sum()), int(played.sum())).pvalue > 1e-4
    # The number of heads has the spread of independent coins; a fixed share would have none.
    heads = members.sum(axis=1)
    assert heads.var(ddof=1) == pytest.approx(120 / 4, rel=0.2)
    # Two records that were both played: one coin says nothing of the other.
    both = played[:, 0] & played[:, 1]
    same = members[both, 0] == members[both, 1]
    assert stats.binomtest(int(same.sum()), int(both.sum())).pvalue > 1e-4


def test_what_is_set_aside_does_not_depend_on_how_the_coins_fall() -> None:
    """The same draw up to the coins: the calibration set of a party is the same whatever its coins show."""
    for seed in range(20):
        game = built(data(400), seed, parties=1)
        rng = np.random.default_rng(seed)
        part = np.sort(rng.permutation(400))
        tossed = rng.permutation(part)[:240]
        aside = np.ones(400, bool)
        aside[tossed] = False
        assert np.array_equal(game.truth.mask(Role.CALIBRATION), aside)


@pytest.mark.parametrize("scattered", [False, True])
def test_one_coin_a_person(scattered: bool) -> None:
    split = built(data(1200, people=300), partition="subjects", member_subjects=0.3, held_out=0.3,
                  split_subjects=scattered)  # fmt: skip
    subject, role = split.candidates.subject, split.truth.role
    assert subject is not None
    roles = {person: set(role[subject == person].tolist()) for person in set(subject.tolist())}
    assert all(len(of) == 1 for of in roles.values())
    assert sum(of == {"calibration"} for of in roles.values()) == 120
    parties = {person: set(split.candidates.party[subject == person].tolist()) for person in roles}
    assert any(len(of) > 1 for of in parties.values()) == scattered
    assert stats.binomtest(sum(of == {"member"} for of in roles.values()), 180).pvalue > 1e-6


@pytest.mark.parametrize("scattered", [False, True])
def test_one_coin_a_person_in_a_game_about_people(scattered: bool) -> None:
    keys: dict[str, Any] = {"partition": "subjects", "member_subjects": 0.3, "nonmember_subjects": 0.3, "fresh": 0.5}
    federation = FederationSection(coins=True, split_subjects=scattered, **keys)
    heads = []
    source = data(600, people=150)
    for seed in range(100):
        split = build(source, federation, np.random.default_rng(seed), "subject")
        assert len(split.candidates) == 150
        assert int(split.truth.mask(Role.CALIBRATION).sum()) == 60
        heads.append(int(split.truth.mask(Role.MEMBER).sum()))
    assert stats.binomtest(sum(heads), 100 * 90).pvalue > 1e-4
    assert np.var(heads, ddof=1) == pytest.approx(90 / 4, rel=0.5)  # a fixed share would have no spread


def test_a_coin_for_each_record_splits_people() -> None:
    split = built(data(1200, people=60), split_subjects=True)
    subject = split.candidates.subject
    assert subject is not None
    assert any(len(set(split.truth.role[subject == person].tolist())) == 3 for person in set(subject.tolist()))


def test_too_few_coins_are_refused() -> None:
    with pytest.raises(FedauditError, match=r"leaves 18 records.*at least 20"):
        built(data(30), parties=2)
    with pytest.raises(FedauditError, match="leaves 12 people"):
        built(data(400, people=20), partition="subjects", member_subjects=0.3, held_out=0.3, parties=2)


def test_coins_that_leave_a_party_without_members_are_refused_and_not_flipped_again() -> None:
    codes = []
    for seed in range(200):
        try:
            built(data(60), seed, parties=12)  # three coins a party: one in four parties lacks a side
        except FedauditError as error:
            codes.append(error.code)
    assert set(codes) == {"empty-set"}
    assert len(codes) >= stats.binom.ppf(1e-6, 200, 1 - (1 - 2 * 0.5**3) ** 12)


def test_people_are_needed_for_a_coin_a_person() -> None:
    with pytest.raises(FedauditError, match="no-subjects"):
        built(data(400), partition="subjects", member_subjects=0.3, held_out=0.3)
