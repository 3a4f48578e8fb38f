"""What was found is what is said: no verdict is milder than the strongest finding, whichever attack made it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedaudit.errors import FedauditError
from fedaudit.report import sections, words
from fedaudit.report.values import cleaned
from fedaudit.results.document import Document, Failure, save
from fedaudit.results.gate import FAILED, PASSED, UNDECIDED, Decision, judge, parse_rule, parse_rules
from fedaudit.results.limits import crossed, party_rule
from fedaudit.results.scores import save_scores
from fedaudit.stats import Block, roc
from fedaudit.stats.roc import estimates
from fedaudit.stats.strongest import RANK, Heard, Shares, chosen, strongest
from fedaudit.types import AuditResult, Cost, Estimate, Role, warning
from fedaudit.words.headlines import Scene, worded
from tests import sealed
from tests.report.builder import bare_run

PRIMARY, OTHERS = "matched-filter", ("fusion", "loss", "round-gain")
FPR, NAME = 0.05, "tpr@0.05"
FPRS = (FPR, 0.4)  # a figure may be doubted at one and not at the other
SEVERITY = {Decision.SAFE: 0, Decision.UNDECIDED: 1, Decision.VIOLATED: 2}
GRADES = {
    "not known": 0,
    "nothing found": 0,
    "alarm": 0,
    **dict(zip(("a little", "at least a little", "some", "most", "nearly everybody"), range(1, 6), strict=True)),
}
TONES = {"unknown": 0, "none": 0, "alarm": 0, "warn": 0, "weak": 1, "found": 2}
SIZES = {Role.MEMBER: 150, Role.EVALUATION: 130, Role.CALIBRATION: 220}
FEW = 8.0  # a shift from which on it is that of every seventh member alone: they are picked out, and the AUC is small
ALIKE: Mapping[str, float] = {}  # by attack, where the records that set its threshold lie, if not at 0
ENOUGH = SIZES | {Role.EVALUATION: 900}  # to see that records which set the threshold are of another kind


def scores(shift: float, seed: int, unlike: float, sizes: Mapping[Role, int]) -> dict[Role, np.ndarray]:
    """Outsiders around 0, members around the shift, and the records that set the threshold around `unlike`."""
    rng, around = np.random.default_rng(seed), {Role.CALIBRATION: unlike}
    found = {role: rng.normal(around.get(role, 0.0), 1, size) for role, size in sizes.items()}
    found[Role.MEMBER] += shift * (np.arange(sizes[Role.MEMBER]) % 7 == 0 if shift >= FEW else 1.0)
    return found


def drawn(shifts: Mapping[str, float], seed: int, unlike: Mapping[str, float]) -> dict[str, dict[Role, np.ndarray]]:
    """By attack."""
    sizes = ENOUGH if any(unlike.values()) else SIZES
    return {
        name: scores(shifts[name], seed + number, unlike.get(name, 0.0), sizes)
        for number, name in enumerate((PRIMARY, *OTHERS))
    }


def block(found: Mapping[Role, np.ndarray]) -> Block:
    return Block(found[Role.MEMBER], found[Role.EVALUATION], found[Role.CALIBRATION])


def heard(shifts: Mapping[str, float], seed: int, unlike: Mapping[str, float] = ALIKE) -> list[Heard]:
    """Every attack as an audit from one vantage hears it."""
    shares = Shares.among(0.95, 2, 2 * len(OTHERS))
    said = []
    for name, found in drawn(shifts, seed, unlike).items():
        blocks = [block(found)]
        decisive = estimates(blocks, FPRS, shares.of(name == PRIMARY))
        own = estimates(blocks, FPRS, 0.95) if name == PRIMARY else decisive
        said.append(Heard(name, "global", own, decisive, name == PRIMARY))
    return said


def written(folder: Path, shifts: Mapping[str, float], seed: int, unlike: Mapping[str, float] = ALIKE) -> Document:
    """A run with these attacks, as `fedaudit run` leaves it: results.json and scores.parquet."""
    said = heard(shifts, seed, unlike)
    by_attack = drawn(shifts, seed, unlike)
    results = [pooled(name, estimates([block(found)], FPRS, 0.95)) for name, found in by_attack.items()]
    quoted = chosen({"client": said}, len(said))
    headlines = worded(quoted.headlines, Scene(results, 5, quoted.name, primary=quoted.primary, average=quoted.average))
    bare = Document.from_json({"schema": 1, "run": bare_run(), "headlines": [], "results": [], "warnings": []})
    config = {"audit": {"fpr": FPRS}}
    document = replace(bare, run=replace(bare.run, config=config), headlines=headlines, results=results)
    save(document, folder)
    parts = []
    for name, found in by_attack.items():
        roles = np.concatenate([np.full(len(values), role.value) for role, values in found.items()])
        column = {"party": "a", "attack": name, "model": "global", "subject": None, "role": roles}
        ids = np.array([f"r{i}" for i in range(len(roles))])
        values = np.concatenate(list(found.values()))
        parts.append({**column, "id": ids, "score": values, "reference": np.zeros(len(roles), bool)})
    save_scores(parts, folder)
    return document


def pooled(name: str, found: Mapping[str, Estimate]) -> AuditResult:
    return AuditResult(name, "client", "global", "record", None, round=5, estimates=found, cost=Cost(0.1))


LIMITS = ("auc > 0.6", "tpr@0.05 > 0.1", "tpr@0.05 > 0.5")


def all_verdicts(
    shifts: Mapping[str, float], seed: int, unlike: Mapping[str, float] = ALIKE
) -> tuple[list[int], list[bool]]:
    """How severe everything is that speaks of a run (tone, grade, page, each gate, each halt), and which of these say
    that all is well."""
    with TemporaryDirectory() as folder:
        document = written(Path(folder), shifts, seed, unlike)
        gates = [SEVERITY[judge(Path(folder), [parse_rule(limit)]).verdict] for limit in LIMITS]
    page = cleaned(document)
    tone = sections.tone(page, words.findings(page))
    halts = [int(crossed(party_rule(limit), heard(shifts, seed, unlike)) is not None) for limit in LIMITS]
    (headline,) = document.headlines
    grade = headline.grade or "not known"
    well = [headline.tone == "none", grade == "nothing found", tone == "none", *(gate == 0 for gate in gates)]
    return [TONES[headline.tone], GRADES[grade], TONES[tone], *gates, *halts], well


EACH = st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0, 2.0, 3.5, FEW]), min_size=4, max_size=4)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    shifts=EACH,
    raised=st.integers(0, 3),
    by=st.sampled_from([0.5, 1.0, 3.0]),
    seed=st.integers(0, 10_000),
    unlike=st.lists(st.sampled_from([0.0, 0.0, -2.0, -0.9, 0.5, 2.0]), min_size=4, max_size=4),
)
def test_T29_raising_the_scores_of_any_attack_never_makes_a_verdict_milder(
    shifts: list[float], raised: int, by: float, seed: int, unlike: list[float]
) -> None:
    names = (PRIMARY, *OTHERS)
    before = dict(zip(names, shifts, strict=True))
    after = before | {names[raised]: before[names[raised]] + by}
    aside = dict(zip(names, unlike, strict=True))
    (old, was_well), (new, is_well) = (all_verdicts(shifts, seed, aside) for shifts in (before, after))
    assert all(a <= b for a, b in zip(old, new, strict=True))
    assert all(a >= b for a, b in zip(was_well, is_well, strict=True))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    shifts=EACH,
    raised=st.integers(0, 3),
    by=st.sampled_from([0.5, 1.0, 3.0]),
    seed=st.integers(0, 10_000),
    unlike=st.lists(st.sampled_from([0.0, 0.0, -2.0, -0.9]), min_size=4, max_size=4),
)
@example([0.0, 0.0, FEW, 0.0], 2, 3.0, 31, [0.0] * 4)
def test_T29_raising_members_and_outsiders_together_never_makes_anything_look_well(
    shifts: list[float], raised: int, by: float, seed: int, unlike: list[float]
) -> None:
    """They are as far from each other as before, and farther from the records that set the threshold: a figure may be
    lost by that, and with it what was found, but nobody may take that for good news."""
    names = (PRIMARY, *OTHERS)
    before = dict(zip(names, unlike, strict=True))
    after = before | {names[raised]: before[names[raised]] - by}
    both = dict(zip(names, shifts, strict=True))
    (_, was_well), (_, is_well) = (all_verdicts(both, seed, aside) for aside in (before, after))
    assert all(a >= b for a, b in zip(was_well, is_well, strict=True))


@pytest.mark.parametrize("doubted", [PRIMARY, "loss"])
@pytest.mark.parametrize("by", [-3.0, 3.0])
def test_T29_nothing_found_is_not_said_beside_a_figure_that_is_doubted(doubted: str, by: float, tmp_path: Path) -> None:
    """Neither of the primary attack, whose share is none by a threshold far too high, nor of another."""
    quiet = dict.fromkeys((PRIMARY, *OTHERS), 0.0)
    assert written(tmp_path, quiet, 31).headlines[0].tone == "none"
    (headline,) = written(tmp_path, quiet, 31, {doubted: by}).headlines
    assert (headline.attack, headline.tone, headline.grade) == (PRIMARY, "unknown", "not known")
    assert "of the outsiders are accused where 0.05 was asked: the records that set the" in headline.sentence
    assert doubted == PRIMARY or "; by loss, " in headline.sentence
    assert "othing beyond chance" not in headline.sentence


def test_T29_a_primary_figure_that_is_doubted_does_not_move_the_rate_at_which_others_are_judged() -> None:
    """Nine tenths of a deviation are too much at 5 %, and not at 40 %."""
    said = heard(dict.fromkeys((PRIMARY, *OTHERS), 0.0) | {"loss": FEW}, 31, {PRIMARY: -0.9})
    (primary,) = (one.decisive for one in said if one.primary)
    assert [primary[name].doubt for name in (NAME, "tpr@0.4")] == ["more", None]
    quoted = chosen({"client": said}, len(said))
    assert (quoted.name, quoted.headlines[0].attack, quoted.headlines[0].tone) == (NAME, "loss", "found")


def of_all(unlike: float) -> dict[str, float]:
    return dict.fromkeys((PRIMARY, *OTHERS), unlike)


@pytest.mark.parametrize("leaky", [PRIMARY, "loss"])
@pytest.mark.parametrize("unlike", [-3.0, -1.5, 0.0, 3.0, 6.0])
def test_T29_no_leak_passes_a_gate_because_other_records_set_the_threshold(
    leaky: str, unlike: float, tmp_path: Path
) -> None:
    """Whether far more outsiders are accused than was asked, or far fewer. The attack beside the primary one had no
    value then, and the gate passed without it."""
    document = written(tmp_path, dict.fromkeys((PRIMARY, *OTHERS), 0.0) | {leaky: 3.0}, 31, of_all(unlike))
    found = judge(tmp_path, [parse_rule("tpr@0.05 > 0.2")])
    assert found.exit_code == (UNDECIDED if unlike else FAILED)
    (of_it,) = (finding for finding in found.findings if finding.attack == leaky)
    assert (of_it.high == 1.0) == (unlike > 0)
    assert (of_it.value is None) == (unlike < 0)
    assert ("are accused where 0.05 was asked" in of_it.note) == bool(unlike)
    assert found.looked_at == len((PRIMARY, *OTHERS))
    assert not found.silent
    assert (document.headlines[0].tone, document.headlines[0].grade) == ("found", "most")


@pytest.mark.parametrize(("condition", "exit_code"), [("tpr@0.05 > 0.9", UNDECIDED), ("auc > 0.99", PASSED)])
def test_thresholds_that_are_too_strict_at_one_rate_make_no_other_safe(
    condition: str, exit_code: int, tmp_path: Path
) -> None:
    """With few outsiders it shows at ten per cent and not at one."""
    document = written(tmp_path, dict.fromkeys((PRIMARY, *OTHERS), 0.0), 31)
    assert judge(tmp_path, [parse_rule(condition)]).exit_code == PASSED
    told = warning("fpr-undershot", attack=PRIMARY, fpr=10.0)
    first, *rest = document.results
    save(replace(document, results=[replace(first, told=[told]), *rest]), tmp_path)
    assert judge(tmp_path, [parse_rule(condition)]).exit_code == exit_code


@pytest.mark.parametrize("unlike", [-3.0, 3.0])
def test_a_run_of_a_former_version_that_doubted_no_threshold_stays_violated(
    unlike: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Computed again, its figure is doubted, and the two files were said to be from different runs."""
    shifts = dict.fromkeys((PRIMARY, *OTHERS), 6.0)
    with monkeypatch.context() as former:
        former.setattr(roc, "_missed", lambda *_: None)
        document = written(tmp_path, shifts, 31, of_all(unlike))
    stored = document.results[0].estimates[NAME]
    assert (stored.doubt, stored.guaranteed is None) == (None, False)
    found = judge(tmp_path, [parse_rule("tpr@0.05 > 0.2")])
    assert found.exit_code == FAILED
    assert all("of the outsiders are accused where 0.05 was asked" in finding.note for finding in found.findings)
    assert stored.guaranteed
    low = found.findings[0].low
    assert low is not None
    assert (low == stored.guaranteed[0]) if unlike < 0 else (low < stored.guaranteed[0])  # the error is shared
    (tmp_path / "other").mkdir()
    written(tmp_path / "other", shifts, 32, of_all(unlike))
    sealed.write(tmp_path / "scores.parquet", (tmp_path / "other" / "scores.parquet").read_bytes())
    with pytest.raises(FedauditError, match="scores-differ"):
        judge(tmp_path, [parse_rule("tpr@0.05 > 0.2")])


def test_what_a_former_version_kept_for_sure_by_a_doubted_threshold_is_not_sure_where_it_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as former:
        former.setattr(roc, "_missed", lambda *_: None)
        written(tmp_path, dict.fromkeys((PRIMARY, *OTHERS), 0.0), 31, of_all(3.0))
    rules = parse_rules("tpr@0.05 > 0.9 and auc > 0.1")
    found = judge(tmp_path, rules)
    assert found.exit_code == UNDECIDED
    note = next(finding.note for finding in found.findings if finding.rule.metric == NAME)
    assert "of the outsiders are accused where 0.05 was asked" in note


def test_a_leak_that_is_found_in_spite_of_few_accusations_stays_found(tmp_path: Path) -> None:
    document = written(tmp_path, dict.fromkeys((PRIMARY, *OTHERS), 6.0), 31, of_all(3.0))
    (headline,) = document.headlines
    assert (headline.tone, headline.estimates[NAME].high) == ("found", 1.0)
    assert judge(tmp_path, [parse_rule("tpr@0.05 > 0.2")]).exit_code == FAILED


@given(
    lows=st.lists(st.floats(0, 1), min_size=6, max_size=6),
    raised=st.integers(0, 2),
    by=st.floats(0, 1),
)
def test_T29_the_strongest_finding_follows_the_ends(lows: list[float], raised: int, by: float) -> None:
    def said(rates: list[float], areas: list[float]) -> list[Heard]:
        both = [{"auc": end("auc", area), NAME: end(NAME, rate)} for rate, area in zip(rates, areas, strict=True)]
        return [Heard(f"a{i}", "global", found, found, i == 0) for i, found in enumerate(both)]

    rates, areas = lows[:3], lows[3:]
    before = strongest(said(rates, areas), NAME)
    rates[raised], areas[raised] = max(rates[raised], by), max(areas[raised], by)
    after = strongest(said(rates, areas), NAME)
    assert RANK[after.tone(NAME)] >= RANK[before.tone(NAME)]
    assert RANK[after.tone(NAME)] == 0 or after.strength(NAME) >= before.strength(NAME)


def end(name: str, low: float) -> Estimate:
    return Estimate(name, low, low, 1.0, 0.95, "a test", "measured", 100, 100)


def test_an_attack_that_was_not_expected_to_lead_is_quoted_and_fails_the_gate(tmp_path: Path) -> None:
    shifts = {PRIMARY: 0.0, "fusion": 0.0, "loss": 2.0, "round-gain": 0.0}
    document = written(tmp_path, shifts, 1)
    (headline,) = document.headlines
    assert (headline.attack, headline.primary, headline.tone) == ("loss", PRIMARY, "found")
    assert "by loss" in headline.sentence
    assert "corrected for the 4 results" in headline.sentence
    assert any(f"fixed before looking, {PRIMARY}" in line for line in headline.details)
    found = judge(tmp_path, [parse_rule("auc > 0.6")])
    assert found.verdict is Decision.VIOLATED
    assert [f.attack for f in found.findings if f.verdict is Decision.VIOLATED] == ["loss"]
    assert [f.attack for f in found.findings if f.named] == [PRIMARY]


def test_the_primary_is_quoted_where_nothing_is_found_or_it_is_the_strongest(tmp_path: Path) -> None:
    quiet = written(tmp_path, dict.fromkeys((PRIMARY, *OTHERS), 0.0), 3).headlines[0]
    assert (quiet.attack, quiet.primary, quiet.grade) == (PRIMARY, "", "nothing found")
    loud = written(tmp_path, {PRIMARY: 4.0, "fusion": 2.0, "loss": 0.5, "round-gain": 0.0}, 3).headlines[0]
    assert (loud.attack, loud.primary, loud.grade) == (PRIMARY, "", "nearly everybody")


def test_over_20_fixed_runs_no_gate_passes_where_an_attack_violates_the_limit(tmp_path: Path) -> None:
    for seed in range(20):
        drawn = np.random.default_rng(seed).choice([0.0, 0.0, 0.4, 1.0, 2.5], 1 + len(OTHERS))
        written(tmp_path, dict(zip((PRIMARY, *OTHERS), drawn.tolist(), strict=True)), 100 * seed)
        for limit in ("auc > 0.55", "auc > 0.7", "tpr@0.05 > 0.1", "tpr@0.05 > 0.4"):
            every = judge(tmp_path, [parse_rule(limit.replace(" ", "[attack=*] ", 1))]).verdict
            if every is Decision.VIOLATED:
                assert judge(tmp_path, [parse_rule(limit)]).verdict is not Decision.SAFE


def test_a_limit_is_crossed_by_whichever_attack_does() -> None:
    rule = party_rule("auc > 0.6")
    loud = {PRIMARY: 0.0, "fusion": 0.0, "loss": 3.0, "round-gain": 0.0}
    found = crossed(rule, heard(loud, 5))
    assert found is not None
    assert found.attack == "loss"
    assert crossed(rule, heard(dict.fromkeys(loud, 0.0), 5)) is None


@pytest.mark.parametrize(("primaries", "others"), [(1, 0), (2, 5), (4, 60), (0, 3)])
def test_all_lower_ends_together_err_as_often_as_one_interval(primaries: int, others: int) -> None:
    shares = Shares.among(0.95, primaries, others)
    spent = primaries * (1 - shares.primary) + others * (1 - shares.other)
    assert spent == pytest.approx(0.05)


def test_a_result_that_two_rules_select_has_one_share_of_the_error(tmp_path: Path) -> None:
    """In whichever order they are given: attacks beside the primary one were not corrected at all."""
    written(tmp_path, dict.fromkeys((PRIMARY, *OTHERS), 0.8), 11)
    default, every = parse_rule("auc > 0.5"), parse_rule("auc[attack=*] > 0.5")
    alone = {f.attack: f.low for f in judge(tmp_path, [every]).findings}
    for rules in ([default, every], [every, default]):
        found = judge(tmp_path, rules)
        assert found.looked_at == 4
        assert all(f.low == alone[f.attack] for f in found.findings)


def test_an_attack_that_failed_leaves_nothing_safe(tmp_path: Path) -> None:
    document = written(tmp_path, dict.fromkeys((PRIMARY, *OTHERS), 0.0), 12)
    rule = parse_rule("auc > 0.9")
    assert judge(tmp_path, [rule]).verdict is Decision.SAFE
    save(replace(document, failed=[Failure("plugged-in", "ValueError")], degraded=["attack plugged-in"]), tmp_path)
    assert judge(tmp_path, [rule]).verdict is Decision.UNDECIDED
    assert judge(tmp_path, [parse_rule("auc[attack=loss] > 0.9")]).verdict is Decision.SAFE


def ends(value: float, low: float, high: float, name: str) -> Estimate:
    return Estimate(name, value, low, high, 0.95, "a test", "measured", 1000, 1000, n_cal=1000)


def of(attack: str, primary: bool, rate: tuple[float, float, float], area: tuple[float, float, float]) -> Heard:
    found = {"auc": ends(*area, "auc"), NAME: ends(*rate, NAME)}
    return Heard(attack, "global", found, found, primary)


def said(*heard: Heard) -> str:
    quoted = chosen({"client": list(heard)}, len(heard))
    (headline,) = worded(quoted.headlines, Scene([], 5, quoted.name, primary=quoted.primary, average=quoted.average))
    return " ".join([headline.grade or "", headline.sentence, *headline.details])


def test_a_small_certain_share_does_not_hide_a_large_average() -> None:
    loud = of("loss", False, (0.2, 0.0, 0.5), (0.97, 0.96, 0.98))
    told = said(of(PRIMARY, True, (0.08, 0.06, 0.1), (0.56, 0.55, 0.57)), loud)
    assert told.startswith("most Any party that sees the global models does better than guessing")
    assert "which is which 97.0 % of the time" in told
    assert f"fixed before looking, {PRIMARY}, has an AUC of 0.560" in told
    assert "a share picked out at 5 % false accusations of 8.0 %" in told


def test_the_primary_attack_is_compared_by_what_is_quoted() -> None:
    """By its AUC where that is the finding: "finds less" stood beside a larger share."""
    told = said(
        of(PRIMARY, True, (0.08, 0.0, 0.2), (0.55, 0.52, 0.58)), of("loss", False, (0.01, 0.0, 0.1), (0.7, 0.68, 0.72))
    )
    assert told.startswith("some ")
    assert f"{PRIMARY}, has an AUC of 0.550 (95 % interval 0.520–0.580) and a share picked out at 5 %" in told
    assert "finds less" not in told


def at_rates(auc: tuple[float, float, float], **shares: tuple[float, float, float]) -> dict[str, Estimate]:
    """`at_5` is the TPR at 5 %."""
    rates = {f"tpr@{int(key.removeprefix('at_')) / 100:g}": found for key, found in shares.items()}
    return {"auc": ends(*auc, "auc"), **{name: ends(*found, name) for name, found in rates.items()}}


def graded(found: Mapping[str, Estimate]) -> tuple[str | None, str]:
    quoted = chosen({"client": [Heard(PRIMARY, "global", found, found, True)]}, 1)
    (headline,) = worded(quoted.headlines, Scene([], 5, quoted.name, primary=quoted.primary, average=quoted.average))
    return headline.grade, headline.figure


NOTHING_AT_1, SLIGHT = (0.03, 0.0, 0.3), (0.55, 0.52, 0.58)


@pytest.mark.parametrize(
    ("found", "grade", "figure"),
    [
        (at_rates(SLIGHT, at_1=NOTHING_AT_1, at_5=(0.4, 0.33, 0.47), at_10=(0.55, 0.47, 0.62)), "some", "tpr@0.05"),
        (at_rates(SLIGHT, at_1=(0.2, 0.1, 0.3), at_10=(0.6, 0.52, 0.68)), "most", "tpr@0.1"),
        (at_rates(SLIGHT, at_1=(0.6, 0.52, 0.68), at_10=(0.7, 0.6, 0.8)), "most", "tpr@0.01"),
        (at_rates(SLIGHT, at_1=NOTHING_AT_1, at_50=(0.6, 0.52, 0.68)), "some", "tpr@0.5"),
        (at_rates((0.9, 0.88, 0.92), at_1=NOTHING_AT_1), "most", "auc"),
        (at_rates((0.65, 0.61, 0.7), at_1=NOTHING_AT_1), "some", "auc"),
        (at_rates((0.65, 0.61, 0.7)), "some", "auc"),
        (at_rates(SLIGHT, at_1=NOTHING_AT_1), "at least a little", "auc"),
        (at_rates(SLIGHT, at_1=(0.015, 0.005, 0.04)), "a little", "auc"),
        (at_rates(SLIGHT, at_1=(0.015, 0.005, 0.04), at_10=(0.12, 0.09, 0.16)), "at least a little", "auc"),
        (at_rates((0.57, 0.52, 0.62), at_1=(0.015, 0.005, 0.04)), "at least a little", "auc"),
        (at_rates(SLIGHT), "at least a little", "auc"),
        (at_rates((0.5, 0.46, 0.54), at_1=(0.01, 0.005, 0.04)), "nothing found", "tpr@0.01"),
    ],
)  # fmt: skip
def test_a_grade_says_how_much_not_by_which_test_it_was_seen(
    found: dict[str, Estimate], grade: str, figure: str
) -> None:
    assert graded(found) == (grade, figure)


def test_a_share_that_is_certain_at_another_rate_is_graded_and_its_rate_is_named() -> None:
    """Of scores: two fifths of the members stand out, and no lower end at 1 % is above it for want of outsiders."""
    rng = np.random.default_rng(3)
    members, evaluation, few = rng.normal(0, 1, 400), rng.normal(0, 1, 300), rng.normal(0, 1, 130)
    members[:170] += 2.2
    rates = (0.01, 0.05, 0.1)
    found = estimates([Block(members, evaluation, few)], rates, Shares.among(0.95, 1 + len(rates), 0).primary)
    assert (found["tpr@0.01"].low or 0.0) <= 0.01
    assert graded(found) == ("some", "tpr@0.05")
    told = said(Heard(PRIMARY, "global", found, found, True))
    assert "while wrongly accusing 5 % of outsiders" in told


def test_what_is_only_known_to_be_better_than_guessing_says_that_the_rest_is_open() -> None:
    told = said(of(PRIMARY, True, (0.08, 0.0, 0.3), (0.55, 0.52, 0.58)))
    assert told.startswith("at least a little ")
    assert "How much any party that sees the global models can pick out is not settled: 8.0 %" in told
    wide = of("loss", False, (0.02, 0.0, 0.4), (0.5, 0.45, 0.55))
    quoted = chosen({"client": [of(PRIMARY, True, (0.08, 0.0, 0.3), (0.55, 0.52, 0.58)), wide]}, 2)
    (headline,) = worded(quoted.headlines, Scene([pooled("loss", wide.estimates)], 5, quoted.name))
    assert "the intervals allow that loss picks out up to 40.0 %" in " ".join(headline.details)


def test_an_interval_above_chance_that_the_shared_error_takes_back_is_not_settled() -> None:
    found = {"auc": ends(0.56, 0.51, 0.61, "auc"), NAME: ends(0.06, 0.03, 0.1, NAME)}
    wider = {"auc": ends(0.56, 0.48, 0.64, "auc"), NAME: ends(0.06, 0.01, 0.2, NAME)}
    told = said(Heard(PRIMARY, "global", found, wider, True))
    assert told.startswith("not known Whether any party that sees the global models does better than guessing is not")
    assert "with the error shared among all figures of this audit, the interval includes chance" in told
    assert "othing beyond chance" not in told


def test_what_remains_possible_is_the_largest_of_all_attacks(tmp_path: Path) -> None:
    document = written(tmp_path, dict.fromkeys((PRIMARY, *OTHERS), 0.0), 3)
    most = max(entry.estimates[NAME].high or 0.0 for entry in document.results)
    assert f"up to {100 * most:.1f} % remains possible" in document.headlines[0].sentence


def test_all_remains_possible_where_an_attack_has_no_figure() -> None:
    """It dropped out of the largest: 3 % remained possible, although another attack was refused, or had scores that
    cluster by person so much that they gave no value."""
    fine = of(PRIMARY, True, (0.02, 0.0, 0.03), (0.5, 0.45, 0.55))
    refused = replace(fine.estimates[NAME], value=None, low=None, high=None, doubt="more")
    quoted = chosen({"client": [fine]}, 1)
    for estimate in (refused, replace(refused, doubt=None)):
        (headline,) = worded(quoted.headlines, Scene([pooled("loss", {NAME: estimate})], 5, NAME))
        assert "up to 100 % remains possible" in headline.sentence


def test_conditions_that_are_joined_share_the_error_of_passing(tmp_path: Path) -> None:
    """One of them suffices to pass, so each is one more chance to pass by mistake."""
    written(tmp_path, dict.fromkeys((PRIMARY, *OTHERS), 0.0), 13)
    text = "auc > 0.7 and tpr@0.05 > 0.4"
    alone = {f.attack: f.high for f in judge(tmp_path, [parse_rule("auc > 0.7")]).findings}
    joined = [f for f in judge(tmp_path, parse_rules(text)).findings if f.rule.metric == "auc"]
    assert all((f.high or 0.0) > (alone[f.attack] or 0.0) for f in joined)
