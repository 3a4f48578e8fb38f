"""The threshold with the best balanced accuracy: one rule for all who need one."""

import numpy as np

from fedaudit.adversary.attacks.tear import best_threshold
from fedaudit.stats import balanced_accuracy, best_cut


def test_of_places_that_are_equally_good_the_middle_one_whatever_rounding_says() -> None:
    """Three places with gains of 2/5 - 1/5, 3/5 - 2/5 and 4/5 - 3/5: equal, but not as floating-point numbers."""
    members = np.array([9.0, 9.0, 7.0, 5.0, 0.0])
    others = np.array([9.0, 8.0, 6.0, 1.0, 1.0])
    gains = [(members > at).mean() - (others > at).mean() for at in (8.5, 6.5, 3.0)]
    assert len(set(gains)) > 1
    assert np.allclose(gains, 1 / 5)
    assert best_cut(members, others) == 6.5


def test_the_attack_and_the_judge_agree_also_where_nothing_is_better_than_chance() -> None:
    members, others = np.array([0.0, 1.0]), np.array([1.0, 2.0])
    both, inside = np.concatenate([members, others]), np.array([True, True, False, False])
    assert best_threshold(both, inside) == best_cut(members, others) == -np.inf
    assert balanced_accuracy(members, others) == 0.5


def test_a_score_that_is_missing_is_above_no_threshold() -> None:
    assert balanced_accuracy(np.array([1.0, np.nan]), np.array([np.nan, np.nan])) == 0.75
