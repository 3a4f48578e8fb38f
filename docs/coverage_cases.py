"""Every case of docs/coverage.md: which world, under which heading, and what its intervals promise there."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from docs.coverage_misplaced import (
    RoundsAbove,
    few_values,
    heavy_tail,
    long_tail,
    members_below,
    outsiders_above,
    pair_above,
    parties_apart,
    people_above,
)
from docs.coverage_runs import DEALT, OWN, SHARED, Trained
from docs.coverage_worlds import (
    Rng,
    Rounds,
    Shot,
    Shots,
    World,
    area,
    area_of_subjects,
    area_of_two_values,
    between_parties,
    equal,
    few_people,
    heavy,
    kinked,
    levels,
    paired,
    realised,
    realised_of_subjects,
    share,
    small,
    tpr,
    tpr_of_subjects,
    two_valued,
)
from fedaudit.stats import Explicit, Ranks, Split, gdp_epsilon, maximised_epsilon, one_run_epsilon, proved_epsilon
from fedaudit.stats.canary import Probes, anytime_epsilon
from fedaudit.stats.gaussian import gaussian_epsilon
from fedaudit.types import Estimate


@dataclass(frozen=True)
class Case:
    """`promised`: the intervals that claim to cover here. The others are shown to say where they do not."""

    group: str
    name: str
    world: World
    worlds: int = 2000
    promised: tuple[str, ...] = ("interval", "guaranteed")
    nominal: float = 0.05


TABLE = "TPR at 1 % FPR: the sizes of a common audit"
SIZES = "TPR: small and large, null and strong, many small parties"
SMALL = "TPR at 1 % FPR: small and unequal parties"
FEW_PEOPLE = "TPR at 1 % FPR: a few people who are extreme"
TIES = "TPR: ties"
CORNERS = "TPR: all members at the threshold, or a corner of the ROC curve there"
SUBJECTS = "TPR at 1 % FPR: several records of one subject"
FPR = "Realised FPR"
AUC = "AUC"
MISPLACED = "AUC: a few records carry the error"
SHARES = "Shares: accuracy, right guesses"
BANDS = "Bands over rounds (a miss is one round or more outside)"
PAIRS = "Differences on the same records"
RUNS = "Mean over training runs"
EPSILON = "Epsilon: lower bounds and model-based intervals"
GUARANTEED = ("guaranteed",)
ROUNDS = 1000  # worlds of bands over rounds, which take long
SERIOUS = 2.4  # standard deviations between members and others: TPR 53 % at 1 % FPR


def tpr_cases() -> list[Case]:
    four = [(1538, 1025)] * 4
    return [
        Case(TABLE, "4 x 1025, 1538 members", tpr(four, SERIOUS)),
        Case(TABLE, "the same, heavy tails (Student's t, 3)", tpr(four, 4.6, degrees=3)),
        Case(TABLE, "4 x 300, 400 members", tpr([(400, 300)] * 4, SERIOUS)),
        Case(TABLE, "10 x 1000, 500 members", tpr([(500, 1000)] * 10, SERIOUS)),
        Case(TABLE, "1 x 1025, 1538 members", tpr([(1538, 1025)], SERIOUS)),
        Case(TABLE, "4 x 1025 by subjects of nine", tpr_of_subjects(4, (1538, 1025), equal(9), 0.3, SERIOUS)),
        Case(TABLE, "4 x 1025, null", tpr(four, 0.0)),
        Case(SIZES, "1 x 100, 20 members, FPR 5 %", tpr([(20, 100)], 1.6, 0.05)),
        Case(SIZES, "1 x 100, 100 members, FPR 1 %", tpr([(100, 100)], SERIOUS)),
        Case(SIZES, "1 x 400, 200 members, null", tpr([(200, 400)], 0.0)),
        Case(SIZES, "1 x 20,000, 20,000 members", tpr([(20_000, 20_000)], SERIOUS)),
        Case(SIZES, "1 x 5000, 2000 members, FPR 0.1 %", tpr([(2000, 5000)], 3.0, 0.001)),
        Case(SIZES, "1 x 1025, 1538 members, TPR 99.6 %", tpr([(1538, 1025)], 5.0)),
        Case(SIZES, "4 x 1025, 1538 members, TPR 99.6 %", tpr(four, 5.0)),
        Case(SIZES, "unequal: 2000, 500, 150 and 100", tpr([(3000, 2000), (800, 500), (200, 150), (60, 100)], SERIOUS)),
        Case(SIZES, "unequal: few calibrate many", tpr([(3000, 120), (50, 2000), (50, 2000)], SERIOUS)),
        Case(SIZES, "20 x 100, 50 members", tpr([(50, 100)] * 20, SERIOUS)),
        Case(SIZES, "20 x 100, null", tpr([(50, 100)] * 20, 0.0)),
        Case(SIZES, "50 x 100, 100 members, TPR 98 %", tpr([(100, 100)] * 50, 4.4)),
        Case(SIZES, "100 x 100, 20 members", tpr([(20, 100)] * 100, SERIOUS)),
        *small_cases(),
        Case(TIES, "two values, 95 % against 5 %", two_valued(500, 1000)),
        Case(TIES, "two values, small", two_valued(60, 120)),
        Case(TIES, "levels of half a deviation", levels([(500, 1000)], SERIOUS, 2.0)),
        Case(TIES, "the same, 4 parties", levels([(300, 500)] * 4, SERIOUS, 2.0)),
        Case(TIES, "levels of one deviation, null, 4 parties", levels([(300, 500)] * 4, 0.0, 1.0)),
        Case(CORNERS, "1 x 300, just over", kinked(1, 50, 300, 0.01 * (1 - 1e-9))),
        Case(CORNERS, "1 x 300, just under", kinked(1, 50, 300, 0.01 * (1 + 1e-9))),
        Case(CORNERS, "20 x 300, just over", kinked(20, 50, 300, 0.01 * (1 - 1e-9)), promised=GUARANTEED),
        Case(CORNERS, "20 x 300, just under", kinked(20, 50, 300, 0.01 * (1 + 1e-9)), promised=GUARANTEED),
        Case(CORNERS, "1 x 1000, corner", kinked(1, 500, 1000, None)),
        Case(CORNERS, "4 x 1000, corner", kinked(4, 500, 1000, None), promised=GUARANTEED),
        Case(CORNERS, "20 x 300, corner", kinked(20, 100, 300, None), promised=GUARANTEED),
    ]


def small_cases() -> list[Case]:
    """Parties of which most have too few calibration records for a threshold of their own."""
    sites, leaks = [(123, 48), (180, 64), (240, 88), (303, 120)], [3.0, 2.0, 1.0, 0.5]
    large, little = [(400, 800, 1.0)] * 2, [(120, 48, 3.0)] * 2 + [(160, 64, 3.0)] * 2
    names = {
        "48, 64, 88 and 120; the smaller, the more": [(*n, s) for n, s in zip(sites, leaks, strict=True)],
        "48, 64, 88 and 120; the larger, the more": [(*n, s) for n, s in zip(sites, leaks[::-1], strict=True)],
        "48, 64, 88 and 120": [(*n, SERIOUS) for n in sites],
        "48, 64, 88 and 120, null": [(*n, 0.0) for n in sites],
        "2 x 800 and 2 x 48, 2 x 64 that leak more": large + little,
        "4 x 96, strong": [(150, 96, 5.0)] * 4,
        "40 x 12, 20 members": [(20, 12, SERIOUS)] * 40,
        "40 x 12, 20 members, null": [(20, 12, 0.0)] * 40,
    }
    return [Case(SMALL, name, small(parties)) for name, parties in names.items()]


def subject_cases() -> list[Case]:
    found = []
    people = {(100, 10): (0.008,), (300, 10): (0.008, 0.004), (1000, 9): (0.008,)}
    extreme = [
        Case(FEW_PEOPLE, f"{n} x {each} calibrate, {q:.1%} extreme", few_people(n, each, q), 1000, GUARANTEED)
        for (n, each), shares in people.items()
        for q in shares
    ]
    for sized, size in (("nine each", equal(9)), ("heavy-tailed", heavy)):
        for within in (0.0, 0.1, 0.3, 0.5):
            name = f"1 x 2000, {sized}, correlation {within:g}"
            found.append(Case(SUBJECTS, name, tpr_of_subjects(1, (1500, 2000), size, within, SERIOUS)))
    return [
        *extreme,
        *found,
        Case(SUBJECTS, "4 x 1025, heavy-tailed, .5", tpr_of_subjects(4, (1538, 1025), heavy, 0.5, SERIOUS)),
        Case(SUBJECTS, "1 x 2000, heavy-tailed, .5, null", tpr_of_subjects(1, (1500, 2000), heavy, 0.5, 0.0)),
        Case(SUBJECTS, "1 x 2000, heavy-tailed, .5, strong", tpr_of_subjects(1, (1500, 2000), heavy, 0.5, 4.4)),
    ]


def other_cases() -> list[Case]:
    return [
        Case(FPR, "1000 calibrate, 1000 evaluate", realised(10, 1000, 1000)),
        Case(FPR, "100 calibrate, 50 evaluate", realised(10, 100, 50)),
        Case(FPR, "12 subjects of 25 evaluate, .8, FPR 10 %", realised_of_subjects((60, 12, 200), 25, 0.8)),
        Case(AUC, "5 and 5", area([(5, 5)], 1.0)),
        Case(AUC, "20 and 20", area([(20, 20)], 1.0)),
        Case(AUC, "20 and 20, null", area([(20, 20)], 0.0)),
        Case(AUC, "2000 and 2000, null", area([(2000, 2000)], 0.0)),
        Case(AUC, "200 and 1000, AUC .98", area([(200, 1000)], 2.9)),
        Case(AUC, "30 and 30, AUC .998", area([(30, 30)], 4.1)),
        Case(AUC, "100 and 100, levels of one deviation", area([(100, 100)], 1.0, 1.0)),
        Case(AUC, "150 and 150, two values, 60 % and 50 %", area_of_two_values((150, 150), 0.6, 0.5)),
        Case(AUC, "150 and 150, two values, 95 % and 90 %", area_of_two_values((150, 150), 0.95, 0.9)),
        Case(AUC, "4 x (300 and 200)", area([(300, 200)] * 4, 1.0)),
        Case(AUC, "20 x (20 and 20)", area([(20, 20)] * 20, 1.0)),
        Case(AUC, "450 and 450, nine each, .3", area_of_subjects((450, 450), equal(9), 0.3, 1.0)),
        Case(AUC, "450 and 450, nine each, .5, AUC .98", area_of_subjects((450, 450), equal(9), 0.5, 2.9)),
        Case(AUC, "600 and 600, heavy-tailed, 0", area_of_subjects((600, 600), heavy, 0.0, 1.0)),
        Case(AUC, "600 and 600, heavy-tailed, .5", area_of_subjects((600, 600), heavy, 0.5, 1.0)),
        Case(AUC, "600 and 600, heavy-tailed, .5, null", area_of_subjects((600, 600), heavy, 0.5, 0.0)),
        Case(AUC, "party against the others, 4 parties", between_parties(4, (200, 200), [1.0, 1.0, 1.0, 1.5])),
        Case(SHARES, "30 records, 90 %", share(30, 0.9)),
        Case(SHARES, "2000 records, 60 %", share(2000, 0.6)),
        Case(SHARES, "400 records, nine each, .3, 80 %", share(400, 0.8, equal(9), 0.3)),
        Case(SHARES, "400 records, nine each, .5, 98 %", share(400, 0.98, equal(9), 0.5)),
        Case(SHARES, "600 records, heavy-tailed, .5, 80 %", share(600, 0.8, heavy, 0.5)),
    ]


def misplaced_cases() -> list[Case]:
    """Nearly all members lie above nearly all outsiders."""
    worlds = {
        "1000 and 30, 5 % of outsiders above all": outsiders_above((1000, 30), 0.05),
        "1000 and 30, 12 % of outsiders above all": outsiders_above((1000, 30), 0.12),
        "1000 and 1000, .2 % of outsiders above all": outsiders_above((1000, 1000), 0.002),
        "1000 and 1000, .36 % of outsiders above all": outsiders_above((1000, 1000), 0.0036),
        "1000 and 1000, .01 % of outsiders above all": outsiders_above((1000, 1000), 0.0001),
        "1000 and 200, 10 % of outsiders above all": outsiders_above((1000, 200), 0.1),
        "30 and 30, 5 % of outsiders above all": outsiders_above((30, 30), 0.05),
        "50 and 50, 5 % of members below all": members_below((50, 50), 0.05),
        "20 and 1000, 5 % of members below all": members_below((20, 1000), 0.05),
        "1000 and 1000, AUC .98, .5 % above all": outsiders_above((1000, 1000), 0.005, 2.9),
        "1000 and 200, AUC .96, 2 % above all": outsiders_above((1000, 200), 0.02, 2.5),
        "1000 and 1000, AUC .76, .5 % above all": outsiders_above((1000, 1000), 0.005, 1.0),
        "1000 and 30, long tail of outsiders, AUC .95": long_tail((1000, 30), 0.95),
        "200 and 200, long tail of outsiders, AUC .99": long_tail((200, 200), 0.99),
        "1000 and 50, heavy tail of outsiders (Student's t, 2)": heavy_tail((1000, 50), 4.0),
        "1000 and 20, two values, 99 % and 2 %": few_values((1000, 20), (0.01, 0.99), (0.98, 0.02)),
        "300 and 300, two values, 99 % and 1 %": few_values((300, 300), (0.01, 0.99), (0.99, 0.01)),
        "1000 and 20, two values, 90 % and 15 %": few_values((1000, 20), (0.1, 0.9), (0.85, 0.15)),
        "500 and 60, three values": few_values((500, 60), (0.0, 0.02, 0.98), (0.9, 0.08, 0.02)),
        "2 parties: 1000 and 30, 300 and 300": parties_apart([(1000, 30, 0.05), (300, 300, 0.01)]),
        "20 x (50 and 20), 1 % above all": parties_apart([(50, 20, 0.01)] * 20),
        "1000 and 40 people of ten records, 5 % above all": people_above(1000, 40, equal(10), 0.05),
        "1000 and 60 people, half of the records of 8 %": people_above(1000, 60, equal(10), 0.08, 0.5),
        "1000 and 100 people, heavy-tailed sizes, 5 %": people_above(1000, 100, heavy, 0.05),
    }
    return [Case(MISPLACED, name, world) for name, world in worlds.items()]


def joint_cases() -> list[Case]:
    band = ("band", "equal shares")
    return [
        Case(BANDS, "AUC, 20 rounds, .9 to the next", Rounds(1, (200, 200, 1), 20, 0.9, 1.5), ROUNDS, band),
        Case(BANDS, "AUC, 20 rounds, .998 to the next", Rounds(1, (200, 200, 1), 20, 0.998, 1.5), ROUNDS, band),
        Case(BANDS, "AUC, 20 rounds, null", Rounds(1, (200, 200, 1), 20, 0.9, 0.0), ROUNDS, band),
        Case(BANDS, "AUC, 10 rounds, 1000 and 30, 5 % above all", RoundsAbove((1000, 30), 0.05, 10), ROUNDS, band),
        Case(BANDS, "AUC, 10 rounds, 300 and 300, .5 % above all", RoundsAbove((300, 300), 0.005, 10), ROUNDS, band),
        Case(BANDS, "TPR at 1 %, 20 rounds, .9", Rounds(1, (300, 1, 800), 20, 0.9, SERIOUS, 0.01), ROUNDS, band),
        Case(BANDS, "TPR at 1 %, 20 rounds, .998", Rounds(1, (300, 1, 800), 20, 0.998, SERIOUS, 0.01), ROUNDS, band),
        Case(BANDS, "TPR at 1 %, 4 parties, 10 rounds", Rounds(4, (150, 1, 300), 10, 0.9, SERIOUS, 0.01), ROUNDS, band),
        Case(PAIRS, "AUC, 100 and 150, alike .9, no difference", paired((1.0, 1.0), 0.9, (100, 150, 1), None)),
        Case(PAIRS, "AUC, 100 and 150, alike .5", paired((1.5, 1.0), 0.5, (100, 150, 1), None)),
        Case(PAIRS, "AUC, 100 and 150, alike .8, near 1", paired((3.5, 3.0), 0.8, (100, 150, 1), None)),
        Case(PAIRS, "AUC, 30 and 30, alike .9", paired((1.0, 1.0), 0.9, (30, 30, 1), None)),
        Case(PAIRS, "AUC, 1000 and 30, 5 and 1 % above all", pair_above((1000, 30), (0.05, 0.01))),
        Case(PAIRS, "AUC, 1000 and 30, 5 % above all, none", pair_above((1000, 30), (0.05, 0.0))),
        Case(PAIRS, "AUC, 1000 and 1000, .3 and .1 % above all", pair_above((1000, 1000), (0.003, 0.001))),
        Case(PAIRS, "TPR at 1 %, 1 x 1000, alike .9", paired((SERIOUS, SERIOUS), 0.9, (600, 1, 1000), 0.01)),
        Case(
            PAIRS,
            "TPR at 1 %, 1 x 1000, alike .5, apart",
            paired((SERIOUS, 1.4), 0.5, (600, 1, 1000), 0.01),
        ),
        Case(PAIRS, "TPR at 1 %, 1 x 400, null, alike .5", paired((0.0, 0.0), 0.5, (300, 1, 400), 0.01)),
        Case(PAIRS, "TPR at 1 %, 4 x 1000, alike .9", paired((SERIOUS, 2.0), 0.9, (600, 1, 1000), 0.01, 4)),
    ]


def run_cases() -> list[Case]:
    """The mean over training runs, whether or not they share their records."""
    worlds: dict[str, Trained] = {}
    for deal in (OWN, SHARED, DEALT):
        worlds |= {
            f"AUC, 2 runs, spread .2, {deal}": Trained(runs=2, deal=deal, spread=0.2),
            f"AUC, 5 runs, spread .2, {deal}": Trained(runs=5, deal=deal, spread=0.2),
            f"AUC, 20 runs, no spread, {deal}": Trained(runs=20, deal=deal),
            f"AUC, 3 runs, .3 % far above, {deal}": Trained(runs=3, deal=deal, shift=4.0, odd=0.003),
            f"AUC, 20 runs, .3 % far above, {deal}": Trained(runs=20, deal=deal, shift=4.0, odd=0.003),
            f"AUC, 5 runs, 30 people of ten records, {deal}": Trained(runs=5, deal=deal, side=300, records=10),
            f"TPR at 5 %, 3 runs, spread .2, {deal}": Trained(runs=3, deal=deal, spread=0.2, fpr=0.05),
            f"TPR at 5 %, 20 runs, no spread, {deal}": Trained(runs=20, deal=deal, fpr=0.05),
            f"TPR at 1 %, 5 runs, null, {deal}": Trained(runs=5, deal=deal, shift=0.0, fpr=0.01),
            f"AUC, one attack minus another, 5 runs, {deal}": Trained(runs=5, deal=deal, ahead=0.3),
            f"TPR at 5 %, one attack minus another, 3 runs, {deal}": Trained(runs=3, deal=deal, ahead=0.3, fpr=0.05),
        }
    promised = ("over runs", "not known whose")
    return [Case(RUNS, name, world, 2000 if world.runs < 20 else 1000, promised) for name, world in worlds.items()]


# ------------------------------------------------------------------ epsilon


def epsilon(of: Callable[[np.ndarray, np.ndarray], Estimate], mu: float, n: int) -> World:
    """Trials of a Gaussian mechanism, whose epsilon at delta 1e-5 is known."""
    truth = gaussian_epsilon(mu, 1e-5) if mu else 0.0

    def world(rng: Rng) -> Shots:
        found = of(mu + rng.standard_normal(n), rng.standard_normal(n))
        return (
            {}
            if found.low is None
            else {"interval": Shot(found.low, np.inf if found.high is None else found.high, truth)}
        )

    return world


def one_run(units: int, truth: float) -> World:
    """Randomised response: each unit's coin is told rightly with chance e^epsilon / (1 + e^epsilon)."""

    def world(rng: Rng) -> Shots:
        included = rng.random(units) < 0.5
        told = included == (rng.random(units) < 1 / (1 + np.exp(-truth)))
        found = one_run_epsilon(told + 1e-3 * rng.random(units), included, 0.0)
        return {} if found.low is None else {"interval": Shot(found.low, np.inf, truth)}

    return world


def anytime(rounds: int, truth: float) -> World:
    """The bound is looked at after every round, and its largest value counts."""

    def world(rng: Rng) -> Shots:
        present, right = rng.random(rounds) < 0.5, rng.random(rounds) < 1 / (1 + np.exp(-truth))
        told = (present == right) * 1.0  # randomised response
        found = anytime_epsilon(Probes(told, present, np.arange(rounds)), 0.0)
        return {"interval": Shot(found.low or 0.0, np.inf, truth)}

    return world


def epsilon_cases() -> list[Case]:
    delta, cut = 1e-5, Explicit(1.5)
    of = {
        "threshold fixed, 500 trials": (500, lambda a, b: proved_epsilon(a, b, delta, cut)),
        "threshold on half, 500 trials": (500, lambda a, b: proved_epsilon(a, b, delta, Split())),
        "ranks, 60 trials": (60, lambda a, b: proved_epsilon(a, b, delta, Ranks())),
    }
    bounds = [
        Case(EPSILON, f"proved, {way}, {told}", epsilon(function, mu, trials))
        for way, (trials, function) in of.items()
        for told, mu in (("mu 1", 1.0), ("null", 0.0))
    ]
    return [
        *bounds,
        Case(EPSILON, "mu-GDP, 500 trials, mu 1", epsilon(lambda a, b: gdp_epsilon(a, b, delta), 1.0, 500)),
        Case(EPSILON, "mu-GDP, 30 trials, mu 1", epsilon(lambda a, b: gdp_epsilon(a, b, delta), 1.0, 30)),
        Case(EPSILON, "one run, 1000 coins, epsilon 1", one_run(1000, 1.0)),
        Case(EPSILON, "one run, 1000 coins, epsilon 0", one_run(1000, 0.0)),
        Case(EPSILON, "every round, 100 coins, epsilon 1", anytime(100, 1.0)),
        Case(EPSILON, "heuristic: maximised, 500 trials, null",
             epsilon(lambda a, b: maximised_epsilon(a, b, delta), 0.0, 500), promised=()),
    ]  # fmt: skip


CASES = [
    *tpr_cases(),
    *subject_cases(),
    *other_cases(),
    *misplaced_cases(),
    *joint_cases(),
    *run_cases(),
    *epsilon_cases(),
]
