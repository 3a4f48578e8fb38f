"""The mean over training runs: its interval covers the mean over all runs that could have been."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedaudit.stats import Block, auc, over_runs, tpr_at_fpr
from fedaudit.stats.intervals import in_common, of_sum
from fedaudit.stats.paired import errors_behind
from fedaudit.types import Doubt, Estimate, UnitErrors


def run(value: float, half: float) -> Estimate:
    return Estimate("auc", value, value - half, value + half, 0.95, "how", "measured", 100, 200)


@pytest.mark.parametrize("same_records", [True, False])
@pytest.mark.parametrize("runs", [2, 5])
def test_the_interval_covers_whether_or_not_runs_share_their_records(runs: int, same_records: bool) -> None:
    rng, misses = np.random.default_rng(runs), 0
    for _ in range(1000):
        measuring = np.full(runs, rng.normal()) if same_records else rng.normal(size=runs)
        found = over_runs([run(v, 1.96 * 0.02) for v in 0.6 + 0.02 * measuring + 0.03 * rng.normal(size=runs)])
        assert found.low is not None
        assert found.high is not None
        misses += not found.low <= 0.6 <= found.high
    assert misses <= 71  # 1000 at 5 %: mean 50, three standard deviations


def test_it_is_the_spread_over_runs_and_the_single_runs_width() -> None:
    found = over_runs([run(0.6, 0.03), run(0.7, 0.05), run(0.65, 0.04)])
    t, deviation = 4.302652730, 0.05
    assert found.value == pytest.approx(0.65)
    assert found.low == pytest.approx(0.65 - np.hypot(0.04, t * deviation / np.sqrt(3)))
    assert "3 training runs" in found.method
    assert (found.n_pos, found.n_neg) == (100, 200)


def test_one_run_has_no_spread() -> None:
    none = Estimate("auc", None, None, None, 0.95, "how", "measured", 1, 2, reason="why")
    found = over_runs([run(0.6, 0.03), none])
    assert found.value is None
    assert found.reason == "needs two runs that have a value, and there are 1"


@pytest.mark.parametrize("doubt", ["more", "fewer"])
def test_runs_of_which_one_is_doubted_have_no_mean(doubt: Doubt) -> None:
    """Without the one at another rate, the mean would be over the runs that happened to look well."""
    refused = replace(run(0.9, 0.03), doubt=doubt)
    if doubt == "more":
        refused = replace(refused, value=None, low=None, high=None)
    found = over_runs([run(0.6, 0.03), run(0.7, 0.05), refused])
    assert (found.value, found.low, found.high, found.doubt) == (None, None, None, doubt)
    assert found.reason == "the thresholds of 1 of 3 runs are from records of another kind"


# ------------------------------------------------------------------ what the runs have in common


DEALS = ("fresh records", "one shared set", "roles dealt again")


def trained(
    rng: np.random.Generator, runs: int, n: int, deal: str, fpr: float | None = None, shift: float = 1.0, odd: float = 0
) -> tuple[list[Estimate], list[UnitErrors | None]]:
    """Each run's AUC, or TPR, of scores that are four fifths the record's own and one fifth the run's. A few records,
    of both kinds, lie far above all others."""
    calibration = 0 if fpr is None else 3 * n
    own, found, errors = np.empty(0), list[Estimate](), list[UnitErrors | None]()
    for run in range(runs):
        if not run or deal == "fresh records":
            own = np.sqrt(0.8) * rng.standard_normal(2 * n + calibration)
            own += 12 * (rng.random(len(own)) < odd)
        ids = np.array([f"r{i}-{run * (deal == 'fresh records')}" for i in range(len(own))])
        order = rng.permutation(len(own)) if deal == "roles dealt again" else np.arange(len(own))
        scores, ids = (own + np.sqrt(0.2) * rng.standard_normal(len(own)))[order], ids[order]
        (a, b, c), names = (np.split(each, [n, 2 * n]) for each in (scores, ids))
        block = Block(a + shift, b, c, ids=(names[0], names[1], names[2]))
        found.append(auc([block]) if fpr is None else tpr_at_fpr([block], fpr, prove=False))
        errors.append(errors_behind(found[-1].name, [block]))
    return found, errors


@pytest.mark.parametrize("deal", DEALS)
def test_the_mean_over_many_runs_is_as_wide_as_it_has_to_be(deal: str) -> None:
    """Runs on records of their own narrow the mean; runs on one set do not narrow what that set leaves open."""
    rng, truth = np.random.default_rng(5), float(stats.norm.cdf(1 / np.sqrt(2)))
    misses, widths, whole = 0, [], []
    for _ in range(120):
        runs, errors = trained(rng, 10, 60, deal)
        known, unknown = ends(over_runs(runs, errors=errors)), ends(over_runs(runs))
        misses += not known[0] <= truth <= known[1]
        widths.append(known[1] - known[0])
        whole.append(unknown[1] - unknown[0])
    assert misses <= 13  # 120 at 5 %: mean 6, three standard deviations 7
    share = np.mean(widths) / np.mean(whole)
    least, most = {"fresh records": (0.25, 0.4), "one shared set": (0.8, 0.95), "roles dealt again": (0.3, 0.6)}[deal]
    assert least < share < most


@pytest.mark.parametrize("deal", DEALS)
@pytest.mark.parametrize(("fpr", "shift", "odd"), [(None, 4.0, 0.003), (0.05, 1.0, 0.0), (0.02, 0.0, 0.0)])
def test_few_records_that_carry_the_error_do_not_make_the_mean_certain(
    deal: str, fpr: float | None, shift: float, odd: float
) -> None:
    """By Student's t alone, three runs near AUC 1 on records of their own miss one time in six."""
    rng, misses = np.random.default_rng(7), 0
    normal, above = stats.norm, shift / np.sqrt(2)
    truth = float(normal.cdf(above)) if fpr is None else float(normal.sf(normal.isf(fpr or 0.5) - shift))
    if odd:  # either of two records may be one of the few; of two of them the higher one is
        truth = (1 - odd) ** 2 * truth + odd * (1 - odd) * (1 + float(normal.cdf((shift - 12) / np.sqrt(2))))
        truth += odd**2 * float(normal.cdf(above))
    for _ in range(120):
        runs, errors = trained(rng, 3, 100, deal, fpr, shift, odd)
        low, high = ends(over_runs(runs, errors=errors))
        misses += not low <= truth <= high
    assert misses <= 13  # 120 at 5 %: mean 6, three standard deviations 7


def ends(found: Estimate) -> tuple[float, float]:
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def slow(runs: list[Estimate], errors: list[UnitErrors]) -> tuple[float, float]:
    """The same by the formula, unit by unit and pair by pair."""
    count, adds = len(runs), [dict(zip(own.names.tolist(), own.values.tolist(), strict=True)) for own in errors]
    together = sum(
        own.get(name, 0.0) * value for i, own in enumerate(adds) for j, other in enumerate(adds) if i != j
        for name, value in other.items()
    )  # fmt: skip
    variance = sum(value**2 for own in adds for value in own.values()) / count
    share = min(max(together / (count * (count - 1)) / variance, 0.0), 1.0)
    values = [run.value or 0.0 for run in runs]
    spread = float(stats.t.ppf(0.975, count - 1) * np.std(values, ddof=1) / np.sqrt(count))
    sides = []
    for of in (1, -1):
        half = np.mean([of * (value - end[of < 0]) for value, end in zip(values, map(ends, runs), strict=True)])
        sides.append(max(float(np.hypot(spread, np.sqrt(share) * half)), float(half) / np.sqrt(count)))
    return float(np.mean(values)) - sides[0], float(np.mean(values)) + sides[1]


@pytest.mark.parametrize("deal", DEALS)
@pytest.mark.parametrize("fpr", [None, 0.05])
def test_it_is_the_formula(deal: str, fpr: float | None) -> None:
    runs, errors = trained(np.random.default_rng(3), 4, 80, deal, fpr)
    known = [own for own in errors if own is not None]
    assert ends(over_runs(runs, errors=errors)) == pytest.approx(slow(runs, known))


def test_without_the_names_of_one_run_all_of_the_error_may_be_in_common() -> None:
    runs, errors = trained(np.random.default_rng(3), 4, 50, "fresh records")
    assert over_runs(runs, errors=[None, *errors[1:]]) == over_runs(runs)
    assert "all of the error" in over_runs(runs).method
    known = over_runs(runs, errors=errors)
    assert "(0) of the error" in known.method
    assert ends(known)[0] > ends(over_runs(runs))[0]


def test_a_run_without_a_value_leaves_its_records_out() -> None:
    runs, errors = trained(np.random.default_rng(3), 4, 50, "one shared set")
    none = Estimate("auc", None, None, None, 0.95, "how", "measured", 1, 2, reason="why")
    assert over_runs([*runs, none], errors=[*errors, None]) == replace(over_runs(runs, errors=errors), n_pos=1, n_neg=2)


def test_runs_that_find_everybody_are_as_certain_as_one_of_them() -> None:
    """Nobody is misplaced in any run: nothing says whether they would err together."""
    rng = np.random.default_rng(3)
    runs, errors = trained(rng, 3, 40, "fresh records", shift=30.0)
    assert [run.value for run in runs] == [1.0] * 3
    assert ends(over_runs(runs, errors=errors)) == ends(runs[0])


def test_the_errors_of_a_difference_are_joined_by_name() -> None:
    one = UnitErrors(np.array(["a", "b"]), np.array([1.0, 2.0]))
    two = UnitErrors(np.array(["b", "c"]), np.array([0.5, 4.0]))
    gap = of_sum(one, two, -1.0)
    assert dict(zip(gap.names.tolist(), gap.values.tolist(), strict=True)) == {"a": 1.0, "b": 1.5, "c": -4.0}
    assert in_common([one, one]) == pytest.approx(1.0)
    assert in_common([one, UnitErrors(np.array(["c"]), np.array([1.0]))]) == 0.0
    assert in_common([one, UnitErrors(one.names, -one.values)]) == 0.0


def test_T33_what_makes_the_tpr_of_small_parties_too_low_does_not_average_out() -> None:
    """With ten runs on fresh records the upper end lay below the truth in 87 % of the worlds."""
    rng, truth, short = np.random.default_rng(3), float(stats.norm.sf(stats.norm.isf(0.01) - 2)), 0
    for _ in range(20):
        runs, errors = list[Estimate](), list[UnitErrors | None]()
        for run in range(10):
            names = [np.array([f"{run}-{party}-{i}" for i in range(228)]) for party in range(3)]
            blocks = []
            for own in names:
                scores = rng.standard_normal(228)
                ids = own[:76], own[76:152], own[152:]
                blocks.append(Block(scores[:76] + 2, scores[76:152], scores[152:], ids=ids))
            runs.append(tpr_at_fpr(blocks, 0.01, prove=False))
            errors.append(errors_behind("tpr@0.01", blocks))
        short += (over_runs(runs, errors=errors).high or 0.0) < truth
    assert short <= 3
