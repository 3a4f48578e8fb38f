"""Advice on a small real federation, from its limit to its points."""

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.score import Scores
from fedaudit.cli import auditing
from fedaudit.config.schema import Config, TrackSection, load_config, parse
from fedaudit.errors import FedauditError
from fedaudit.files import writing
from fedaudit.report.pages import advice_page
from fedaudit.results import advice as results
from fedaudit.results.document import load
from fedaudit.results.gate import judge, parse_limit
from fedaudit.session import advise as advising
from fedaudit.session import trials
from fedaudit.session.advise import (
    CONFIRMING,
    Again,
    Unchanged,
    _about,
    _masking,
    _places,
    _refuse_doubted,
    _searched,
    advise,
    compared,
    looking_at,
    most_found,
    points,
)
from fedaudit.session.levers import NO_CHANGE, Change, Lever, changed, levers
from fedaudit.session.run import run
from fedaudit.session.search import Contender, LeverSearch, most_rounds, rungs
from fedaudit.session.trials import TRIALS, Bench, Trial, train_until
from fedaudit.stats import Block
from fedaudit.stats.strongest import proved_ends
from fedaudit.toml import written
from fedaudit.types import Vantage
from tests.session.advising import FIELD, advice_of, leaking, look
from tests.worlds import config, in_turn, silent


def test_the_named_points() -> None:
    own = look("as it is", 0.95, 0.6)
    found = points(FIELD, own, parse_limit("auc < 0.045"))
    assert {name: which[0].name for name, which in found.items()} == {"limit": "best", "free": "best", "cheap": "best"}
    cheap = look("cheap", 0.01, 0.585)
    found = points([*FIELD, cheap], own, parse_limit("auc < 0.03"))
    assert {name: which[0].name for name, which in found.items()} == {
        "limit": "cheap",
        "free": "best",
        "cheap": "cheap",
    }
    assert [one.name for one in found["limit"]] == ["cheap", "strong"]  # the most accurate first, none without use
    assert points([FIELD[4]], own, parse_limit("auc < 0.03"))["limit"][0].name == "useless"  # if there is nothing else
    assert points([look("riskier", 0.99, 0.9)], own, parse_limit("auc < 0.5")).keys() == {"limit"}  # that is no gain
    wide = [replace(one, upper=0.9) for one in FIELD]
    assert (
        points(wide, own, parse_limit("auc < 0.5"))["limit"][0].name == "strong"
    )  # nothing is below: the nearest of use
    early = [replace(one, rounds=2) for one in FIELD]
    assert points(early, own, parse_limit("auc < 0.5"), ["federation.rounds"]) == {}


def test_a_budget_is_counted_in_rounds_and_one_that_is_too_small_is_refused(tmp_path: Path) -> None:
    base = parse({"federation": {"rounds": 40}})
    assert rungs(base) == [10, 20, 40]
    for budget in (8.0, 12.0, 25.0):
        places = _places(budget, base)
        assert (
            most_rounds(places, [10, 20, 40]) <= (budget - CONFIRMING - 2) * 40 < most_rounds(places + 1, [10, 20, 40])
        )
    assert most_rounds(8, [10, 20, 40]) == 8 * 10 + 2 * 10 + 1 * 20
    assert most_rounds(8, [2]) == 16  # a federation of two rounds has one rung
    small = config().model_copy(update={"advise": parse({"advise": {"budget": 2}}).advise})
    with pytest.raises(FedauditError, match="too few to search"):
        advise(small, parse_limit("auc < 0.6"), tmp_path, 1, silent, lambda _: None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["tpr@0.01 < 0.01", "auc < 0.4"])
def test_a_limit_that_chance_breaks_is_refused_before_training(text: str, tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="a guess alone") as error:
        advise(config(), parse_limit(text), tmp_path, 1, silent, lambda _: None)
    assert error.value.code == "limit-below-chance"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["tpr@0.01 > 0.02", "auc", "auc < much", "epsilon < 3", "tpr@2 < 0.1", "auc < 1 < 2"])
def test_limits_that_say_nothing_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(FedauditError) as error:
        advise(config(), parse_limit(text), tmp_path, 1, silent, lambda _: None)
    assert error.value.exit_code == 2


def test_a_configuration_is_written_and_read_again(tmp_path: Path) -> None:
    given = config(federation={"participation": 0.5}, audit={"fpr": [0.1], "reference": {"models": 4}})
    both = parse({"defences": [{"name": "dp-fedavg", "clip": 1.0, "noise": 0.3, "local": True}]}).defences
    given = given.model_copy(update={"defences": both})
    (tmp_path / "advised.toml").write_text(written(given.as_dict()))
    assert load_config(tmp_path / "advised.toml") == given


Searched = tuple[Path, Config, results.Advice, dict[str, Config]]


@pytest.fixture(scope="module")
def advised(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    folder = tmp_path_factory.mktemp("advice")
    given = leaking(folder)
    given = given.model_copy(update={"advise": parse({"advise": {"budget": 10}}).advise})
    found, new = advise(given, parse_limit("auc < 0.6"), folder, 1, silent, lambda _: None)
    results.save(found, folder)
    return folder, given, found, new


@pytest.mark.evidence
def test_the_advice_is_confirmed_by_a_run_that_was_not_used_for_choosing(advised: Searched) -> None:
    folder, given, found, new = advised
    assert found.recommended not in (None, NO_CHANGE.name)
    assert new["limit"].federation.seed == given.federation.seed
    one = next(c for c in found.confirmed if c.name == found.recommended)
    assert (one.seed, one.meets) == (given.federation.seed + 1, True)
    assert "limit" in one.points
    assert one.risk is not None
    assert one.risk.high is not None
    assert one.risk.high < 0.6
    assert one.largest_before is not None
    assert one.largest_before.low is not None
    assert one.largest_before.low > 0.6  # without the change it leaks
    plain = {key: value for key, value in one.overrides.items() if key not in ("federation.secagg", "audit.vantages")}
    again = changed(given.model_copy(update={"advise": None}), Change("", "", plain))
    again = again.model_copy(update={"federation": again.federation.model_copy(update={"seed": one.seed})})
    again = again.model_copy(update={"audit": again.audit.model_copy(update={"confidence": 1 - 0.05 / CONFIRMING})})
    there = folder / TRIALS / again.hash()
    assert judge(there, [parse_limit("auc < 0.6")]).exit_code == 0
    assert load(there).run.accuracy["evaluation"].value == (one.accuracy.value if one.accuracy else None)
    assert found.cost is not None
    assert found.cost < 12


@pytest.mark.evidence
def test_the_advice_never_says_safe_and_its_page_shows_all(advised: Searched) -> None:
    folder, _, found, _ = advised
    text = " ".join(found.sentences)
    assert "safe" not in text
    assert "another seed confirms it" in text
    assert "not proof" in text
    assert json.loads((folder / results.ADVICE).read_text())["recommended"] == found.recommended
    html = advice_page(results.load(folder), "advice")
    assert all(one.name in html for one in found.tried)
    assert "safe" not in html.lower().replace("safer", "")


@pytest.mark.evidence
def test_begun_again_it_goes_the_same_way_and_trains_nothing(
    advised: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, given, found, _ = advised
    monkeypatch.setattr(trials, "work", refusing)
    again, _ = advise(given, parse_limit("auc < 0.6"), folder, 1, silent, lambda _: None)
    assert again == found


def refusing(pieces: Any, *_: Any) -> Any:
    """Nothing may be left to do but to see that it is done."""
    for piece in pieces:
        assert load(piece.folder).run.rounds >= piece.until
    yield from ()


def test_what_is_compared_is_the_same_attack_from_the_same_vantage(tmp_path: Path) -> None:
    """With secure aggregation the parties are the strongest adversary that is left; without it the server is."""
    given = leaking(tmp_path)
    given = given.model_copy(
        update={"audit": given.audit.model_copy(update={"vantages": (Vantage.CLIENT, Vantage.SERVER)})}
    )
    masked = next(change for lever in levers(given, ["masking"]) for change in lever.positions)
    for name, one in (("before", given), ("after", changed(given, masked))):
        run(one, tmp_path / name, silent, tell=lambda _: None)
    limit = parse_limit("auc < 0.6")
    found = compared(["limit"], masked, tmp_path / "after", tmp_path / "before", limit)
    assert found.risk is not None
    assert found.risk_before is not None
    assert found.largest_before is not None
    assert found.risk.place == found.risk_before.place == ("fta-confidence", "client", "global", None)
    assert found.largest_before.place == ("fta-confidence", "server", "local", None)
    assert found.largest_before.value > found.risk_before.value
    # Masking changes nothing in what the parties see: the global models are the same to the last bits of the sum.
    assert found.risk.value == pytest.approx(found.risk_before.value, abs=0.01)
    assert found.risk_difference is not None
    assert found.risk_difference.value == pytest.approx(found.risk.value - found.risk_before.value, abs=1e-9)
    assert (found.verdict, found.meets) == ("above the limit", False)
    lenient = compared(["limit"], masked, tmp_path / "after", tmp_path / "before", parse_limit("auc < 0.9999"))
    assert (lenient.verdict, lenient.meets) == ("below the limit", True)
    told = " ".join(results.sentences(advice_of(found), limit))
    assert "by fta-confidence (client, global models); without the change the same attack finds" in told
    assert "The largest without the change is" in told
    assert "by fta-confidence (server, local models)" in told


def test_advice_is_about_runs_of_its_federation_whatever_attacks_they_ask(tmp_path: Path) -> None:
    small: dict[str, Any] = {"federation": {"parties": 2, "rounds": 2}, "model": {"hidden": [4]}}
    given = config(**small, audit={"attacks": ["loss"]})
    given = given.model_copy(update={"track": TrackSection(tensorboard=str(tmp_path / "board"))})
    run(given, tmp_path / "run", silent, tell=lambda _: None)
    assert (tmp_path / "board").exists()
    shutil.rmtree(tmp_path / "board")
    train_until(Trial(tmp_path / "trial", looking_at(given, ["fta-loss"], 0.2), 2), lambda *_: None)
    assert not (tmp_path / "board").exists()  # a trial is not the federation that is tracked
    about, found = _about(tmp_path / "trial"), load(tmp_path / "run").run.config
    assert about == results.federation_of(found)
    assert about != results.federation_of({**found, "federation": {**found["federation"], "lr": 0.5}})
    assert _about(tmp_path / "nowhere") is None


def harmless(folder: Path) -> Config:
    """Nothing is learnt at a rate of nothing, so there is nothing to find."""
    raw = leaking(folder).as_dict()
    return parse({**raw, "federation": {**raw["federation"], "rounds": 2, "local_epochs": 1, "lr": 1e-9}})


def test_where_nothing_leaks_it_says_so_after_two_audits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "work", in_turn)
    found, new = advise(harmless(tmp_path), parse_limit("auc < 0.7"), tmp_path, 1, silent, lambda _: None)
    assert found.recommended == NO_CHANGE.name
    assert found.sentences[0].startswith("Nothing has to be changed to stay below 0.700")
    assert len([path for path in (tmp_path / TRIALS).iterdir() if path.is_dir()]) == 2
    assert [one.name for one in found.tried] == [NO_CHANGE.name]
    assert new["limit"].federation == harmless(tmp_path).federation
    strict, _ = advise(harmless(tmp_path), parse_limit("auc < 0.501"), tmp_path, 1, silent, lambda _: None)
    assert strict.recommended is None
    assert strict.sentences[0].startswith("No attack found anything in this federation as it is")


@pytest.mark.parametrize("by", [-99.0, 99.0])
@pytest.mark.parametrize("from_the_first", [True, False])
def test_a_figure_that_is_doubted_is_not_taken_for_nothing_found(
    by: float, from_the_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attack without a figure, or one without an upper end, ended the advice: no attack had found anything."""
    as_scored, as_confirmed, unlike = Scores.block, Again.unchanged, [from_the_first]

    def moved(*given: Any, **named: Any) -> Block:
        found = as_scored(*given, **named)
        return replace(found, calibration=found.calibration + by * unlike[0])

    def confirmed(again: Again) -> list[results.Confirmed]:
        unlike[0] = True
        return as_confirmed(again)

    def searching(*_: Any) -> list[Contender]:
        searched.append(True)
        return []

    searched = list[bool]()
    monkeypatch.setattr(trials, "work", in_turn)
    monkeypatch.setattr(Scores, "block", moved)
    monkeypatch.setattr(Again, "unchanged", confirmed)
    monkeypatch.setattr(LeverSearch, "run", searching)
    asked = harmless(tmp_path), parse_limit("tpr@0.1 < 0.11"), tmp_path, 1, silent, lambda _: None
    if from_the_first:  # and so it would be in every trial
        with pytest.raises(
            FedauditError, match="is doubted in the federation as it is: records that set its threshold"
        ):
            advise(*asked)
    else:
        assert "No attack found anything" not in " ".join(advise(*asked)[0].sentences)
    assert searched == [True] * (not from_the_first)


@pytest.mark.parametrize(("attack", "asked"), [("loss", True), ("fta-loss", False)])
def test_a_search_goes_on_where_an_attack_that_it_does_not_ask_is_doubted(attack: str, asked: bool) -> None:
    limit, every = parse_limit("tpr@0.1 < 0.2"), ["matched-filter", "loss", "fta-loss"]
    own = Unchanged(look(NO_CHANGE.name, 0.95, 0.6), every, quiet=False, people=False, doubted=[attack])
    searched = _searched(config(), limit, every)
    with pytest.raises(FedauditError, match="of loss is doubted") if asked else nullcontext():
        _refuse_doubted(own, searched, limit)


def test_a_figure_at_another_rate_is_not_quoted_beside_the_changed_federation(tmp_path: Path) -> None:
    run(harmless(tmp_path), tmp_path / "run", silent)
    limit, found = parse_limit("tpr@0.1 < 0.11"), load(tmp_path / "run")
    gate = judge(tmp_path / "run", [limit])
    assert most_found(found, limit, gate) is not None
    doubted = [
        replace(e, estimates={name: replace(own, doubt="fewer") for name, own in e.estimates.items()})
        for e in found.results
    ]
    assert most_found(replace(found, results=doubted), limit, gate) is None


def test_after_a_search_nobody_says_that_nothing_was_searched() -> None:
    found = results.Confirmed(
        name=NO_CHANGE.name, points=["limit"], words=NO_CHANGE.words, overrides={}, seed=1, verdict="undecided",
        meets=False, why_not="", risk=None, risk_before=None, largest_before=None, strongest=None, guarantee=None,
    )  # fmt: skip
    own, limit = look(NO_CHANGE.name, 0.95, 0.6), parse_limit("auc < 0.6")
    for tried, says in (([own], "No attack found anything"), ([own, *FIELD], "None of the changes was confirmed")):
        assert results.sentences(replace(advice_of(found), tried=tried), limit)[0].startswith(says)


@pytest.mark.parametrize("known", [True, False])
def test_subject_level_privacy_is_tried_where_the_data_say_whose_a_record_is(
    known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, searched = harmless(tmp_path), list[str]()
    if known:
        lots = dict(np.load(tmp_path / "lots.npz"))
        np.savez(tmp_path / "lots.npz", **lots, subject=np.arange(2400) // 2)

    def searching(_: Config, found: Sequence[Lever], *__: Any, **___: Any) -> None:
        searched.extend(change.name for lever in found for change in lever.positions)
        raise KeyboardInterrupt

    monkeypatch.setattr(trials, "work", in_turn)
    monkeypatch.setattr(advising, "quiet", lambda *_: False)
    monkeypatch.setattr(advising, "LeverSearch", searching)
    with pytest.raises(KeyboardInterrupt):
        advise(given, parse_limit("auc < 0.501"), tmp_path, 1, silent, lambda _: None)
    assert "clipping" in searched
    assert ("subject-level DP" in searched) == known


@pytest.fixture(scope="module")
def seen_by_a_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seen")
    given = leaking(folder)
    audit = given.audit.model_copy(update={"vantages": (Vantage.CLIENT, Vantage.SERVER)})
    run(given.model_copy(update={"audit": audit}), folder / "run", silent, tell=lambda _: None)
    return folder / "run"


def test_one_figure_has_one_interval_in_an_advice(seen_by_a_server: Path) -> None:
    """The gate's, whose lower end is corrected for everything that it looks at."""
    found = compared(["limit"], NO_CHANGE, seen_by_a_server, seen_by_a_server, parse_limit("auc < 0.6"))
    assert found.risk == found.risk_before == found.largest_before == found.strongest
    assert found.risk is not None
    stored = next(r for r in load(seen_by_a_server).results if (r.attack, r.model) == (found.risk.attack, "local"))
    low, _ = proved_ends(stored.estimates["auc"])
    assert found.risk.low is not None
    assert low is not None
    assert found.risk.low < low


def test_the_strongest_of_all_attacks_has_the_interval_of_all_although_the_limit_names_one(
    seen_by_a_server: Path,
) -> None:
    every = compared(["limit"], NO_CHANGE, seen_by_a_server, seen_by_a_server, parse_limit("auc < 0.6")).strongest
    assert every is not None
    other = next(name for name in ("loss", "fta-confidence") if name != every.attack)
    limit = parse_limit(f"auc[attack={other}] < 0.6")
    found = compared(["limit"], NO_CHANGE, seen_by_a_server, seen_by_a_server, limit)
    assert found.risk is not None
    assert (found.risk.attack, found.strongest) == (other, every)


def test_with_masked_updates_a_point_is_judged_by_the_global_models(seen_by_a_server: Path) -> None:
    limit = parse_limit("auc < 0.999")
    whole = compared(["limit"], NO_CHANGE, seen_by_a_server, seen_by_a_server, limit)
    masked = compared(["limit"], NO_CHANGE, seen_by_a_server, seen_by_a_server, limit, masked=True)
    assert whole.risk is not None
    assert masked.risk is not None
    assert (whole.risk.model, whole.unmasked) == ("local", None)
    assert masked.risk.model == "global"
    assert masked.unmasked == whole.risk
    assert masked.strongest is not None
    assert masked.strongest.model == "global"


@pytest.mark.parametrize(
    ("vantages", "limit", "masked"),
    [
        (["client", "server"], "auc < 0.6", True),
        (["client"], "auc < 0.6", False),
        (["client", "server"], "auc[vantage=server] < 0.6", False),
    ],
)
def test_updates_are_masked_where_a_server_is_an_adversary(vantages: list[str], limit: str, masked: bool) -> None:
    base = parse({"audit": {"vantages": vantages}})
    assert bool(_masking(base, levers(base), parse_limit(limit))) == masked


@pytest.mark.parametrize(
    ("meeting", "trained"),
    [
        ({"lower", "lowest"}, ["above", "lower"]),  # not the one that is as risky, and no third
        ({"above"}, ["above"]),
        (set(), ["above", "lower"]),
    ],
)
def test_if_the_point_at_the_limit_is_not_confirmed_one_with_less_risk_is_tried(
    meeting: set[str], trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def confirming(_: Again, wanted: Mapping[str, Change]) -> list[results.Confirmed]:
        return [confirmed(change.name, [point], change.name in meeting) for point, change in wanted.items()]

    monkeypatch.setattr(Again, "_compared", confirming)
    bench = Bench(Path("nowhere"), 1, lambda: None, lambda _: None)
    again = Again(bench, config(), ["loss"], parse_limit("auc < 0.6"), masked=False)
    looks = [look("above", 0.5, 0.9), look("as risky", 0.5, 0.8), look("lower", 0.3, 0.7), look("lowest", 0.2, 0.6)]
    assert [one.name for one in again.points({results.LIMIT: looks})] == trained


def confirmed(name: str, points: list[str], meets: bool) -> results.Confirmed:
    nothing: dict[str, Any] = dict.fromkeys(("risk", "risk_before", "largest_before", "strongest", "guarantee"))
    return results.Confirmed(
        name=name, points=points, words=name, overrides={}, seed=1, verdict="", meets=meets, why_not="", **nothing
    )


def test_a_limit_about_an_attack_that_does_not_exist_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="losss"):
        advise(config(), parse_limit("auc[attack=losss] < 0.6"), tmp_path, 1, silent, lambda _: None)
    assert not list(tmp_path.iterdir())


def test_a_second_search_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "given.toml").write_text(written(config().as_dict()))
    with writing(tmp_path / "out"), pytest.raises(FedauditError, match="another fedaudit") as error:
        auditing.advise(tmp_path / "given.toml", "auc < 0.6", tmp_path / "out")
    assert error.value.code == "locked"
    assert not (tmp_path / "out" / results.ADVICE).exists()
