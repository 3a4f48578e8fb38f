"""An AUC of few people a side: how often its lower end lies above guessing although nothing is told apart."""

from collections.abc import Iterator
from itertools import combinations
from math import comb

import numpy as np
import pytest

from fedaudit.stats import Block, auc
from fedaudit.types import Floats

LEVEL = 0.025  # on this side, of a 95 % interval


def above_guessing(members: Floats, outsiders: Floats) -> bool:
    low = auc([Block(members, outsiders, outsiders)]).low
    assert low is not None
    return low > 0.5


def assigned(scores: Floats, members: int) -> Iterator[bool]:
    """Whoever is a member, if all people are alike: every choice of members, or 600 of them."""
    rng, everybody = np.random.default_rng(0), np.arange(len(scores))
    few = comb(len(scores), members) <= 1000
    choices = combinations(range(len(scores)), members) if few else None
    for _ in range(600) if choices is None else range(comb(len(scores), members)):
        chosen = rng.choice(everybody, members, replace=False) if choices is None else list(next(choices))
        yield above_guessing(scores[chosen], np.delete(scores, chosen))


@pytest.mark.parametrize(("members", "outsiders"), [(3, 3), (3, 30), (30, 3), (4, 9), (9, 4), (5, 5), (6, 6), (9, 9)])
@pytest.mark.parametrize("ties", [False, True])
def test_people_who_are_all_alike_are_seldom_told_apart(members: int, outsiders: int, ties: bool) -> None:
    scores = np.arange(float(members + outsiders))
    assert np.mean([*assigned(scores // 4 if ties else scores, members)]) <= LEVEL


@pytest.mark.parametrize("members", range(3, 10))
@pytest.mark.parametrize("outsiders", [3, 9, 30])
def test_members_who_lie_above_everybody_or_below_by_a_coin_are_seldom_told_apart(members: int, outsiders: int) -> None:
    """Their AUC is .5, and all coins fall alike once in 32 times if there are five. A permutation test of 5 against 30
    then rejects (p < .00001), because it asks whether all people are alike. The interval is for the AUC, and holds."""
    chance = 0.0
    for up in range(members + 1):
        scores = np.where(np.arange(members) < up, 1.0, -1.0)
        chance += comb(members, up) / 2**members * above_guessing(scores, np.zeros(outsiders))
    assert chance <= LEVEL


@pytest.mark.parametrize("people", [6, 7, 9])
def test_enough_people_who_are_told_apart_perfectly_are_found(people: int) -> None:
    """From six on: six coins fall alike in one of 64 cases, five in one of 32."""
    scores = np.arange(float(people))
    assert above_guessing(scores + people, scores)
    assert not above_guessing(scores[:5] + people, scores)
