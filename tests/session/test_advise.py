"""Advice on a small real federation, and the halving that it rests on."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.cli import auditing
from fedaudit.config.schema import Config, TrackSection, load_config, parse
from fedaudit.errors import FedauditError
from fedaudit.files import writing
from fedaudit.report.pages import advice_page
from fedaudit.results import advice as results
from fedaudit.results.advice import Risk, Tried
from fedaudit.results.document import load
from fedaudit.results.gate import judge, parse_limit
from fedaudit.session import trials
from fedaudit.session.advise import CONFIRMING, _about, _masking, _places, advise, compared, looking_at, points
from fedaudit.session.levers import NO_CHANGE, Change, changed, levers, together
from fedaudit.session.run import run
from fedaudit.session.search import (
    Contender,
    LeverSearch,
    beats,
    children,
    fronts,
    most_rounds,
    rungs,
    singles,
    spread,
    stopped,
    tried,
)
from fedaudit.session.trials import TRIALS, Bench, Trial, kept, seconds, train_until
from fedaudit.session.workers import News
from fedaudit.toml import written
from fedaudit.trace.store import Store
from fedaudit.types import Estimate, Moment, Vantage
from tests.worlds import config, in_turn, silent


def look(name: str, risk: float, accuracy: float, upper: float | None = None) -> Tried:
    right = Estimate("accuracy", accuracy, accuracy, accuracy, 0.95, "exact", "measured", 1, 1)
    at = Risk(attack="loss", vantage="client", model="global", party=None, value=risk, low=risk, high=risk)
    return replace(
        tried(Change(name, name, {}), 10, 10),
        risk=at,
        upper=risk if upper is None else upper,
        estimates=results.named(accuracy=right),
    )


def names(looks: list[Tried], places: list[int]) -> list[str]:
    return [looks[place].name for place in places]


FIELD = [
    look("undefended", 0.9, 0.8),
    look("best", 0.04, 0.75),
    look("beaten", 0.05, 0.7),
    look("strong", 0.02, 0.5),
    look("useless", 0.001, 0.1),
    look("hopeless", 0.95, 0.79),
]


def test_those_go_on_that_no_other_beats_and_useless_models_last() -> None:
    assert set(names(FIELD, spread(FIELD, 3))) == {"undefended", "best", "strong"}
    assert names(FIELD, spread(FIELD, 5))[3:] == ["beaten", "hopeless"]
    assert names(FIELD, spread(FIELD, 6))[-1] == "useless"
    assert names(FIELD, spread(FIELD, 1)) == ["undefended"]
    assert set(names(FIELD, spread(FIELD, 2))) == {"undefended", "strong"}  # as far apart as can be


def test_fronts_are_peeled_one_after_the_other() -> None:
    """The slow twin: in a front nobody is beaten by anybody who was not taken before."""
    rng = np.random.default_rng(0)
    looks = [look(str(n), float(risk), float(right)) for n, (risk, right) in enumerate(rng.random((30, 2)))]
    taken: set[int] = set()
    for front in fronts(looks, range(30)):
        left = set(range(30)) - taken
        beaten = {p for p in left for o in left if beats(looks[o], looks[p])}
        assert set(front) == left - beaten
        taken |= set(front)
    assert len(taken) == 30


def test_the_frontier_is_what_no_other_beats_in_both() -> None:
    assert results.frontier(FIELD) == {"undefended", "best", "strong", "useless"}


def test_children_take_each_lever_from_their_parents_and_are_new() -> None:
    base = parse({"federation": {"rounds": 8}})
    found = levers(base, ["model", "update", "rate"])
    field = [Contender(NO_CHANGE, base, Path("0"), looks=(look("0", 0.9, 0.5),))]
    for n, moved in enumerate(singles(found)[:6], 1):
        single = together(base, list(moved.values()))
        field.append(
            Contender(single, base, Path(str(n)), moved=moved, looks=(look(single.name, 0.9 - n / 10, 0.5 - n / 50),))
        )
    made = children(field, found, 8, np.random.default_rng(0))
    assert made == children(field, found, 8, np.random.default_rng(0))
    keys = [frozenset((lever, change.name) for lever, change in moved.items()) for moved in made]
    assert len(keys) == len(set(keys)) == 8
    assert not set(keys) & {frozenset((k, c.name) for k, c in one.moved.items()) for one in field}
    assert sum(len(moved) > 1 for moved in made) >= 4  # what either parent has moved
    assert children(field[:1], found, 8, np.random.default_rng(0)) == []  # nobody to make them with


def test_levers_that_do_most_are_tried_first_and_every_lever_before_a_third_position() -> None:
    order = [(name, change.name) for moved in singles(levers(parse({}))) for name, change in moved.items()]
    assert [name for name, _ in order[:4]] == ["update", "model", "update", "model"]
    assert {name for name, _ in order[:11]} >= {"rate", "training", "epochs", "batches", "frozen", "parties", "masking"}
    assert len(order) == len(set(order))


def test_what_was_trained_on_counts_as_a_federation_that_stops_there() -> None:
    change = Change("noise", "add noise", {"defences": []})
    assert stopped(change, 8, 8) is change
    cut = stopped(change, 2, 8)
    assert (cut.name, cut.words) == ("noise, 2 rounds", "add noise, and stop after 2 rounds")
    assert cut.overrides == {"defences": [], "federation.rounds": 2}
    assert stopped(NO_CHANGE, 2, 8).name == "2 rounds"


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


def test_changes_are_configurations_that_differ_in_what_they_say() -> None:
    base = config(federation={"parties": 4, "rounds": 8, "local_epochs": 2})
    found = {
        change.name: changed(base, together(base, [change])) for lever in levers(base) for change in lever.positions
    }
    assert len(found) >= 18
    assert len({new.hash() for new in found.values()} | {base.hash()}) == len(found) + 1
    assert found["one local epoch"].federation.local_epochs == 1
    assert found["frozen first layer"].federation.freeze == 1
    assert found["2 larger parties"].federation.parties == 2
    assert [v.value for v in found["secure aggregation"].audit.vantages] == ["client", "secagg-server"]
    noises = [
        (d.arguments()["noise"], d.arguments()["clip"])
        for name, new in found.items()
        if name.startswith("DP-SGD")
        for d in new.defences
    ]
    assert noises == [(0.3, 1.0), (1.0, 1.0), (0.3, 0.1), (3.0, 1.0)]


@pytest.mark.parametrize(
    ("model", "smaller"),
    [
        ({"name": "mlp"}, [[64], [128], [32], [256], []]),
        ({"name": "mlp", "hidden": [64]}, [[32], []]),
        ({"name": "mlp", "hidden": [32, 16]}, [[32], []]),
        ({"name": "linear"}, []),
        ({"name": "cnn"}, [16]),
        ({"name": "resnet20"}, ["resnet8"]),
        ({"name": "lstm", "units": 64}, [32, 16]),
    ],
)
def test_smaller_models(model: dict[str, Any], smaller: list[Any]) -> None:
    base = parse({"model": model, "federation": {"rounds": 30, "lr": 1e-3}})
    found = [change for lever in levers(base) if lever.name == "model" for change in lever.positions]
    assert [next(iter(change.overrides.values())) for change in found] == smaller
    for change in found:
        assert changed(base, change).model != base.model


def test_what_must_stay_is_not_moved() -> None:
    base = parse({"federation": {"parties": 4}})
    kept = {lever.name for lever in levers(base, keep=["model", "federation.lr", "defences"])}
    assert kept.isdisjoint({"model", "rate", "update", "training"})
    assert "epochs" in kept
    assert [lever.name for lever in levers(base, ["rate"])] == ["rate"]
    with pytest.raises(FedauditError, match="there is no lever 'modle'") as error:
        levers(base, ["modle"])
    assert "'model'" in error.value.todo
    with pytest.raises(FedauditError, match="none of the levers"):
        levers(base, ["rate"], ["federation"])
    with pytest.raises(FedauditError, match=r"'federation\.secag' is no section and no key") as error:
        levers(base, keep=["federation.secag"])
    assert "'federation.secagg'" in error.value.todo


def test_several_changes_become_one_configuration() -> None:
    base = parse({"federation": {"parties": 4}})
    by_name = {change.name: change for lever in levers(base) for change in lever.positions}
    both = together(base, [by_name["one hidden layer of 64"], by_name["update noise 5"], by_name["DP-SGD, noise 1"]])
    new = changed(base, both)
    assert both.name == "one hidden layer of 64, update noise 5, DP-SGD, noise 1"
    assert [d.name for d in new.defences] == ["update-noise", "dp-sgd"]
    assert new.model.arguments() == {"hidden": (64,)} or new.model.arguments() == {"hidden": [64]}
    assert together(base, []) is NO_CHANGE


def test_noise_that_promises_nothing_replaces_no_promise() -> None:
    promised = {"name": "dp-fedavg", "noise": 1.0, "clip": 1.0}
    base = parse({"defences": [promised], "federation": {"parties": 20}})
    found = [change.name for lever in levers(base) for change in lever.positions]
    assert not [name for name in found if "update" in name or "user-level" in name]
    base = parse({"defences": [{"name": "dp-sgd", "noise": 3.0, "clip": 1.0}]})
    found = [change.name for lever in levers(base) for change in lever.positions]
    assert not [name for name in found if "DP-SGD" in name or "subject-level" in name or "clipping" in name]


def test_a_stronger_defence_replaces_one_in_its_slot_and_a_milder_one_is_not_tried() -> None:
    base = config().model_copy(update={"defences": parse({"defences": [{"name": "l2", "strength": 1e-3}]}).defences})
    found = {
        change.name: changed(base, together(base, [change])) for lever in levers(base) for change in lever.positions
    }
    assert [d.name for d in found["DP-SGD, noise 1"].defences] == ["dp-sgd"]
    assert [d.name for d in found["user-level DP"].defences] == ["l2", "dp-fedavg"]
    assert "clipping" not in found


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


LEAKING: dict[str, Any] = {
    "data": {"name": "npz"},
    "federation": {"parties": 4, "rounds": 8, "local_epochs": 4, "batch_size": 16, "lr": 3e-3},
    "model": {"hidden": [64]},
    "audit": {"attacks": ["loss", "fta-confidence"], "vantages": ["client"], "fpr": [0.1]},
}


def leaking(folder: Path) -> Config:
    """Labels are drawn by lot: they can only be learnt by heart, so training longer leaks more."""
    rng = np.random.default_rng(0)
    np.savez(folder / "lots.npz", x=rng.normal(size=(2400, 20)).astype(np.float32), y=rng.integers(0, 4, 2400))
    return parse({**LEAKING, "data": {"name": "npz", "path": str(folder / "lots.npz")}})


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


def advice_of(found: results.Confirmed) -> results.Advice:
    return results.Advice(
        schema=1,
        limit="auc < 0.6",
        confidence=0.975,
        rungs=[],
        tried=[],
        confirmed=[found],
        recommended=None,
        nearest=found.name,
        sentences=(),
        cost=None,
    )


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


def test_what_a_search_cost_is_known_although_it_was_stopped(tmp_path: Path) -> None:
    one = leaking(tmp_path)
    other = one.model_copy(update={"federation": one.federation.model_copy(update={"seed": 1})})
    bench = Bench(tmp_path, 1, lambda: None, lambda _: None)
    first, second = bench.folder(one), bench.folder(other)
    spent = []
    for until in (2, 4):
        train_until(Trial(first, one, until), lambda *_: None)
        spent.append(seconds(first))
    assert 0 < spent[0] < spent[1]
    train_until(Trial(first, one, 4), lambda *_: None)  # it has come this far
    assert seconds(first) == spent[1]
    bench.needed.add(first)
    assert bench.cost(first) == 1
    bench.needed.add(second)  # somebody's, without its time
    assert bench.cost(first) is None


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


def test_with_masked_updates_a_point_is_judged_by_the_global_models(tmp_path: Path) -> None:
    given = leaking(tmp_path)
    audit = given.audit.model_copy(update={"vantages": (Vantage.CLIENT, Vantage.SERVER)})
    run(given.model_copy(update={"audit": audit}), tmp_path / "run", silent, tell=lambda _: None)
    limit = parse_limit("auc < 0.999")
    whole = compared(["limit"], NO_CHANGE, tmp_path / "run", tmp_path / "run", limit)
    masked = compared(["limit"], NO_CHANGE, tmp_path / "run", tmp_path / "run", limit, masked=True)
    assert whole.risk is not None
    assert masked.risk is not None
    assert (whole.risk.model, whole.unmasked) == ("local", None)
    assert masked.risk.model == "global"
    assert masked.unmasked == whole.risk
    assert masked.strongest is not None
    assert masked.strongest.model == "global"


def idle(pieces: Any, *_: Any) -> Any:
    """Nothing may be left to do."""
    assert not pieces
    yield from ()


def test_a_look_is_of_its_own_round_or_there_is_none(tmp_path: Path) -> None:
    given, limit = leaking(tmp_path), parse_limit("auc < 0.6")
    bench = Bench(tmp_path, 1, lambda: None, lambda _: None)
    train_until(Trial(bench.folder(given), given, 4), lambda *_: None)
    one = Contender(NO_CHANGE, given, bench.folder(given))
    with pytest.raises(FedauditError, match="is at round 4, and what was seen after round 2 was not kept"):
        LeverSearch(given, [], limit)._looked_at(bench, one, 2, {})


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


def test_a_limit_about_an_attack_that_does_not_exist_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match="losss"):
        advise(config(), parse_limit("auc[attack=losss] < 0.6"), tmp_path, 1, silent, lambda _: None)
    assert not list(tmp_path.iterdir())


def test_a_search_looks_after_every_rung_and_keeps_what_it_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "work", in_turn)
    raw = leaking(tmp_path).as_dict()
    given = parse({**raw, "data": {**raw["data"], "limit": 400}, "audit": {**raw["audit"], "attacks": ["loss"]}})
    limit, found = parse_limit("auc < 0.6"), levers(given, ["model", "rate", "training"])
    bench = Bench(tmp_path, 1, lambda: None, lambda _: None)
    field = LeverSearch(given, found, limit, places=6).run(bench)
    looked = [one for one in field if one.looks]
    assert len(looked) == 6
    assert len([one for one in looked if len(one.looks) == 1]) == 4
    assert sorted(len(one.looks) for one in looked)[-1] == 3  # one was trained to its end
    best = next(one for one in looked if len(one.looks) == 3)
    assert [look.rounds for look in best.looks] == [2, 4, 8]
    assert all(kept(best.folder, look.rounds, limit) == look for look in best.looks)
    assert [one.status for one in best.told(8)] == ["went on", "went on", "trained to the end"]
    assert kept(best.folder, 2, parse_limit("tpr@0.1 < 0.6")) is None  # that was not looked at
    assert kept(best.folder, 2, parse_limit("auc < 0.9")) == best.looks[0]  # a limit that is less strict sees the same
    monkeypatch.setattr(trials, "work", idle)
    again = LeverSearch(given, found, limit, places=6).run(bench)
    assert [one.looks for one in again] == [one.looks for one in field]


MODES: dict[str, dict[str, Any]] = {
    "probes": {"mode": "probes", "probes": 16, "every": 2},
    "running": {"mode": "running"},
}


@pytest.mark.parametrize("mode", MODES)
def test_a_trial_ends_with_its_round_although_probes_come_between(tmp_path: Path, mode: str) -> None:
    """Canaries are looked for in probes; those are no rounds. In two parts it finds what it finds at once."""
    asked = {"attacks": ["loss", "canife"], "canary": MODES[mode] | {"steps": 5, "pool": 4}}
    given = config(federation={"parties": 4, "rounds": 4}, model={"hidden": [8]}, audit=asked)
    run(given, tmp_path / "whole", silent, tell=lambda _: None)
    for until in (2, 4):
        train_until(Trial(tmp_path / "trial", given, until), lambda *_: None)
        assert load(tmp_path / "trial").run.rounds == until
        probes = until // 2 * 16 if mode == "probes" else until
        assert len(moments(tmp_path / "trial")) == until + probes
    assert moments(tmp_path / "trial") == moments(tmp_path / "whole")
    whole, trial = load(tmp_path / "whole"), load(tmp_path / "trial")
    assert [(r.attack, r.estimates) for r in trial.results] == [(r.attack, r.estimates) for r in whole.results]
    assert trial.failed == whole.failed  # so few steps make a canary that cannot be heard; the same one


def moments(folder: Path) -> list[Moment]:
    return [entry.moment for entry in Store.read(folder).entries()]


def test_what_fails_in_its_first_rounds_is_not_said_to_be_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed for want of memory, it might have fitted; what was refused before any training does not fit."""
    monkeypatch.setattr(trials, "work", in_turn)
    given, said = leaking(tmp_path), list[str]()
    bench = Bench(tmp_path, 1, lambda: None, said.append)
    limit = parse_limit("auc < 0.6")
    one = Contender(Change("dropout", "drop", {}), given, tmp_path / "run")
    search = LeverSearch(given, [], limit)

    def after(contender: Contender, wrong: News | None) -> str:
        return search._looked_at(bench, contender, 2, {contender.folder: wrong} if wrong else {}).status

    killed = News(0, "failed", "", "its process was ended by SIGKILL (out of memory?)")
    assert after(one, killed) == "failed: its process was ended by SIGKILL (out of memory?)"
    known = replace(one, looks=(replace(look("dropout", 0.5, 0.5), rounds=2),))
    assert after(known, News(0, "failed", "", "it died")) == "failed after round 2: it died"
    assert after(one, None).startswith("failed: ")  # it left no results
    by_name = {change.name: change for lever in levers(given) for change in lever.positions}
    subjects = changed(given, together(given, [by_name["subject-level DP"]]))
    unfit = Trial(tmp_path / TRIALS / "unfit", subjects, 2)
    assert after(one, bench.run([unfit])[unfit.folder]).startswith("does not fit: [")
    assert len(said) == 4


def test_a_folder_that_cannot_be_written_is_no_change_that_does_not_fit(tmp_path: Path) -> None:
    given = leaking(tmp_path)
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "notes.txt").write_text("somebody's")
    with pytest.raises(FedauditError, match="not empty"):
        train_until(Trial(tmp_path / "trial", given, 2), lambda *_: None)


def test_the_cost_is_unknown_where_the_unchanged_federation_was_not_trained_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, lambda: None, lambda _: None)
    (tmp_path / "one.seconds").write_text("2.0\n")
    bench.needed.add(tmp_path / "one")
    assert bench.cost(tmp_path / "one") == 1
    assert bench.cost(tmp_path / "never") is None
    advice = results.Advice(
        schema=1,
        limit="auc < 0.6",
        confidence=0.975,
        rungs=[],
        tried=[],
        confirmed=[],
        recommended=None,
        nearest=None,
        sentences=(),
        cost=bench.cost(tmp_path / "never"),
    )
    results.save(advice, tmp_path)
    assert "nan" not in (tmp_path / results.ADVICE).read_text().lower()
    assert "audits of the federation as it is" not in advice_page(advice, "advice")


def test_a_second_search_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "given.toml").write_text(written(config().as_dict()))
    with writing(tmp_path / "out"), pytest.raises(FedauditError, match="another fedaudit") as error:
        auditing.advise(tmp_path / "given.toml", "auc < 0.6", tmp_path / "out")
    assert error.value.code == "locked"
    assert not (tmp_path / "out" / results.ADVICE).exists()
