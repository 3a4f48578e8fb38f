"""What a promise for records or parties promises a person: against the exact divergence, found by integration."""

import math

import numpy as np
import pytest
from scipy import stats

from fedaudit.privacy import accounting
from fedaudit.privacy.accounting import epsilon, group_epsilon, per_person, statement
from fedaudit.privacy.statement import Group, Process, Promise
from fedaudit.stats.gaussian import gaussian_epsilon
from fedaudit.types import Floats, Unit

DELTA = 1e-5
RECORD = Process("record", 1.6, 25, "poisson", 0.04)
ONCE = Process("record", 0.9, 1, "poisson", 0.1)  # one release a round
USER = Process("user", 2.0, 1, "poisson", 0.2)
X = np.linspace(-40, 40, 400_001)


def density(weights: list[float], shifts: list[float], noise: float) -> Floats:
    found: Floats = sum(w * stats.norm.pdf(X, s, noise) for w, s in zip(weights, shifts, strict=True))
    return found


def delta_between(p: Floats, q: Floats, epsilon: float, cell: float) -> float:
    """The larger of the two hockey-stick divergences."""
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum() * cell) for a, b in ((p, q), (q, p)))


@pytest.mark.parametrize("size", [2, 3, 8])
def test_all_records_of_a_person_are_hidden_and_little_is_wasted(size: int) -> None:
    """Slow twin: of `size` records a binomial number is in the batch, and each moves the sum by one clip norm."""
    drawn = list(stats.binom.pmf(range(size + 1), size, ONCE.rate))
    there, gone = density(drawn, list(range(size + 1)), ONCE.noise), density([1.0], [0.0], ONCE.noise)
    found = group_epsilon(Group(ONCE, size), 1, DELTA)
    assert delta_between(there, gone, found, X[1] - X[0]) <= DELTA * (1 + 1e-6)
    assert delta_between(there, gone, 0.98 * found, X[1] - X[0]) > DELTA


def test_records_in_two_parties_cost_no_more_than_in_one() -> None:
    """A server sees two releases, each with one of the person's two records or without it."""
    x = np.linspace(-12, 12, 2001)
    one = (1 - ONCE.rate) * stats.norm.pdf(x, 0, ONCE.noise) + ONCE.rate * stats.norm.pdf(x, 1, ONCE.noise)
    none = stats.norm.pdf(x, 0, ONCE.noise)
    both, neither = np.outer(one, one), np.outer(none, none)
    found = group_epsilon(Group(ONCE, 2), 1, DELTA)
    assert delta_between(both, neither, found, (x[1] - x[0]) ** 2) <= DELTA


@pytest.mark.parametrize("size", [1, 2])
def test_a_party_that_stays_when_a_person_leaves_contributes_something_else(size: int) -> None:
    drawn, shifts = list(stats.binom.pmf(range(size + 1), size, USER.rate)), [float(m) for m in range(size + 1)]
    there, other = density(drawn, shifts, USER.noise), density(drawn, [-m for m in shifts], USER.noise)
    found = group_epsilon(Group(USER, size, replaced=True), 1, DELTA)
    assert delta_between(there, other, found, X[1] - X[0]) <= DELTA
    each, nobody = found / 2, density([1.0], [0.0], USER.noise)  # by way of the world without these parties
    spent = delta_between(there, nobody, each, X[1] - X[0]) * (1 + math.exp(each))
    assert spent == pytest.approx(DELTA, rel=0.02)
    assert spent <= DELTA


def test_such_a_party_is_promised_twice_the_distance_without_sampling() -> None:
    always = Process("user", 2.0, 1, "full")
    assert group_epsilon(Group(always, 1, replaced=True), 4, DELTA) == gaussian_epsilon(2.0, DELTA)
    nearly = Process("user", 20.0, 1, "poisson", 0.999)  # never more than for parties that always take part
    assert group_epsilon(Group(nearly, 1, replaced=True), 4, DELTA) <= gaussian_epsilon(0.2, DELTA)


def test_one_record_is_promised_what_a_record_is_and_more_records_less() -> None:
    found = [group_epsilon(Group(RECORD, size), 4, DELTA) for size in (1, 2, 3, 5)]
    assert found[0] == epsilon(RECORD, 4, DELTA)
    assert found == sorted(found)
    assert found[2] > 3 * found[0]
    full = Process("record", 20.0, 2, "full")
    assert group_epsilon(Group(full, 3), 8, DELTA) == gaussian_epsilon(3 * 4 / 20, DELTA)


def test_it_promises_more_than_the_formula_for_any_mechanism() -> None:
    """(k epsilon, k e^((k-1) epsilon) delta): at that delta, ours is smaller."""
    once, k = epsilon(RECORD, 4, DELTA), 3
    loose = k * math.exp((k - 1) * once) * DELTA
    assert DELTA < loose < 1
    assert group_epsilon(Group(RECORD, k), 4, loose) < k * once


def finer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "INTERVAL", 3e-4)
    monkeypatch.setattr(accounting, "GROUP_CELLS", 30_000)
    group_epsilon.cache_clear()


@pytest.mark.parametrize("group", [Group(RECORD, 3), Group(Process("record", 8.0, 30, "poisson", 0.01), 10)])
def test_the_interval_of_a_group_is_fine_enough(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    found = group_epsilon(group, 20, DELTA)
    finer(monkeypatch)
    assert found == pytest.approx(group_epsilon(group, 20, DELTA), rel=0.01)
    group_epsilon.cache_clear()


def test_where_nothing_is_guaranteed_there_is_no_promise() -> None:
    told = per_person([Group(RECORD, 3), Group(RECORD, 60)], 100, DELTA)
    assert (told.k, told.epsilon, told.delta) == (60, None, DELTA)
    assert told.text == (
        "no promise, because one person has up to 60 records and group privacy gives an epsilon above 100, which "
        "guarantees nothing"
    )
    for hopeless in (Group(RECORD, 5000), Group(Process("record", 0.1, 5, "poisson", 0.5), 2)):
        assert per_person([hopeless], 10, DELTA).epsilon is None


def worst_of(*groups: Group) -> float | None:
    return per_person(groups, 4, DELTA).epsilon


def test_everybody_is_promised_what_the_worst_off_is() -> None:
    """Fewer records that are drawn more often may be worse off."""
    few, many = Group(Process("record", 1.6, 5, "poisson", 0.5), 3), Group(RECORD, 4)
    found = per_person([many, few], 4, DELTA)
    assert found.k == 4
    assert found.epsilon == worst_of(few)
    assert (worst_of(few) or 0) > (worst_of(many) or 0)
    assert "mixture of Gaussians: the number of the 3 records" in found.method


def told(unit: Unit, *sizes: int) -> str | None:
    process = Process(unit, 20.0, 1, "full")
    groups = tuple(Group(process, size) for size in sizes)
    found = statement(
        Promise(defence="d", process=process, delta=DELTA, units=9, against="all", people=groups), 4
    ).per_person
    return found.text if found else None


def test_the_words() -> None:
    one, three = (f"epsilon {gaussian_epsilon(k * 2 / 20, DELTA):.4g} at delta 1e-05" for k in (1, 3))
    assert told("record", 1) == f"{one} (nobody has more than one record)"
    assert told("record", 3) == f"{three} (one person has up to 3 records)"
    assert told("user", 1) == f"{one} (the records of one person lie in one party)"
    assert told("user", 3) == f"{three} (the records of one person lie in up to 3 parties)"
    assert told("record") is None  # nobody knows whose the records are
