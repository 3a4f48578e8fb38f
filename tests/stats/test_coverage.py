"""A part of docs/coverage.md with fewer worlds: intervals hold where they promise to, and one that does not is told."""

from dataclasses import replace

import pytest

from docs.coverage_cases import CASES, Case
from docs.coverage_worlds import Rng, Shot, Shots
from docs.make_coverage import COUNTS, level, page, simulate, stored
from tests.stats.simulated import simulation

QUICK = {
    "1 x 1025, 1538 members": 300,
    "4 x 300, 400 members": 200,
    "4 x 1025, null": 150,
    "1 x 100, 20 members, FPR 5 %": 400,
    "20 x 100, 50 members": 60,
    "two values, 95 % against 5 %": 300,
    "20 x 300, just over": 60,
    "1 x 2000, heavy-tailed, correlation 0.5": 150,
    "1000 calibrate, 1000 evaluate": 300,
    "12 subjects of 25 evaluate, .8, FPR 10 %": 300,
    "20 and 20": 400,
    "150 and 150, two values, 95 % and 90 %": 400,
    "600 and 600, heavy-tailed, .5": 200,
    "1000 and 20, two values, 99 % and 2 %": 200,
    "1000 and 50, heavy tail of outsiders (Student's t, 2)": 150,
    "2 parties: 1000 and 30, 300 and 300": 150,
    "party against the others, 4 parties": 100,
    "400 records, nine each, .5, 98 %": 300,
    "AUC, 10 rounds, 1000 and 30, 5 % above all": 60,
    "AUC, 100 and 150, alike .8, near 1": 150,
    "AUC, 1000 and 30, 5 and 1 % above all": 150,
    "TPR at 1 %, 1 x 1000, alike .9": 150,
    "AUC, 5 runs, spread .2, one set": 150,
    "AUC, 20 runs, no spread, roles dealt again": 100,
    "TPR at 5 %, 3 runs, spread .2, records of their own": 150,
    "proved, ranks, 60 trials, mu 1": 150,
}


def case(name: str) -> Case:
    (found,) = [own for own in CASES if own.name == name]
    return found


ALWAYS = {  # the others are simulated when the statistics changed
    "1 x 1025, 1538 members",
    "1 x 100, 20 members, FPR 5 %",
    "1000 calibrate, 1000 evaluate",
    "12 subjects of 25 evaluate, .8, FPR 10 %",
    "20 and 20",
    "TPR at 1 %, 1 x 1000, alike .9",
}


@pytest.mark.parametrize("name", [name if name in ALWAYS else simulation(name) for name in QUICK])
def test_intervals_hold_where_they_promise_to(name: str) -> None:
    for count in simulate(case(name), QUICK[name]):
        if count.promised:
            assert count.chance > 0.05 / len(QUICK), count
            assert count.valued > 0.5 * count.worlds


def test_T2_ties_do_not_widen_the_interval_of_an_auc() -> None:
    """With two values it is at most a third wider than 2 x 1.96 standard deviations."""
    for name, p, q in (("60 % and 50 %", 0.6, 0.5), ("95 % and 90 %", 0.95, 0.9)):
        count, _ = simulate(case(f"150 and 150, two values, {name}"), 100)
        assert count.width < 4 / 3 * 3.92 * ((p * (1 - p) + q * (1 - q)) / 150 / 4) ** 0.5


def test_an_interval_that_misses_is_found_out_and_said() -> None:
    """All members just over the threshold of twenty parties: the quoted interval promises nothing there."""
    counts = simulate(case("20 x 300, just over"), 60)
    quoted = next(count for count in counts if count.interval == "interval")
    assert not quoted.promised
    assert quoted.chance < 1e-9
    broken = replace(quoted, promised=True)
    told = page([broken])
    assert "**Where a promise is not kept:**" in told
    assert "| **fails** |" in told
    assert "no promise" in page([quoted])


def test_misses_are_counted_on_their_side() -> None:
    def world(rng: Rng) -> Shots:
        value = float(rng.integers(3))
        return {"interval": Shot(value, value + 0.5, 1.2)}  # below, around and above 1.2

    (count,) = simulate(Case("a", "b", world, 900))
    assert count.below == pytest.approx(300, abs=60)
    assert count.above == pytest.approx(300, abs=60)
    assert count.misses == count.above + count.below
    assert count.width == pytest.approx(0.5)


def test_the_page_is_made_from_its_counts_and_names_what_it_lacks() -> None:
    counts, asked = stored(), {(case.group, case.name): case.worlds for case in CASES}
    made = {(count.group, count.case): count.worlds for count in counts}
    assert all(made[place] >= asked[place] for place in made)
    told = COUNTS.with_suffix(".md").read_text()
    assert told == page(counts)
    assert all(name in told for _, name in asked)
    assert ("not simulated on this page yet" in told) == (made.keys() != asked.keys())
    assert not [c for c in counts if c.promised and c.interval == "guaranteed" and c.chance < level(counts)]
