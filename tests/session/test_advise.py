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
from fedaudit.results.advice import Risk
from fedaudit.results.document import load
from fedaudit.results.gate import judge, parse_limit
from fedaudit.session import advise as searching
from fedaudit.session.advise import (
    TRIALS,
    Bench,
    Contender,
    Trial,
    _about,
    _looked_at,
    advise,
    compared,
    halved,
    looking_at,
    seconds,
    train_until,
)
from fedaudit.session.levers import NO_CHANGE, Change, changed, changes
from fedaudit.session.run import run
from fedaudit.session.workers import News
from fedaudit.toml import written
from fedaudit.trace.store import Store
from fedaudit.types import Estimate, Moment, Vantage
from tests.worlds import config, in_turn, silent


def contender(name: str, risk: float, accuracy: float) -> Contender:
    right = Estimate("accuracy", accuracy, accuracy, accuracy, 0.95, "exact", "measured", 1, 1)
    at = Risk(attack="loss", vantage="client", model="global", party=None, value=risk, low=risk, high=risk)
    return Contender(Change(name, name, {}), None, Path(name), rounds=10, risk=at, accuracy=right)


def test_halving_keeps_the_accurate_within_the_limit_and_the_least_risky() -> None:
    field = [
        contender("undefended", 0.9, 0.8),
        contender("weak", 0.04, 0.75),
        contender("middle", 0.03, 0.7),
        contender("strong", 0.01, 0.5),
        contender("useless", 0.011, 0.1),
        contender("hopeless", 0.5, 0.79),
    ]
    assert [c.change.name for c in halved(field, 0.05)] == ["weak", "middle", "strong"]


def test_halving_where_nothing_is_within_the_limit_keeps_the_nearest() -> None:
    field = [contender("a", 0.9, 0.8), contender("b", 0.5, 0.1), contender("c", 0.4, 0.1), contender("d", 0.95, 0.9)]
    assert [c.change.name for c in halved(field, 0.02)] == ["b", "c"]


def test_halving_leaves_what_is_already_above_the_limit() -> None:
    """One change is not above the limit, and the nearest to it goes on with it."""
    risks = {"a": 0.9, "b": 0.5, "c": 0.04, "d": 0.95, "e": 0.3, "f": 0.99}
    field = [contender(name, risk, 0.5) for name, risk in risks.items()]
    assert [c.change.name for c in halved(field, 0.05)] == ["c", "e"]


def test_the_frontier_is_of_changes_that_were_trained_to_their_end() -> None:
    field = [contender("best", 0.1, 0.8), contender("mild", 0.2, 0.9), contender("worse", 0.2, 0.8)]
    tried = [replace(one.told(10), rounds=10) for one in field]
    tried += [replace(one.told(10), rounds=5) for one in [contender("left", 0.01, 0.99)]]
    assert results.frontier(tried) == {"best", "mild"}


def test_changes_are_configurations_that_differ_in_what_they_say() -> None:
    base = config(federation={"parties": 4, "rounds": 8, "local_epochs": 2})
    found = {change.name: changed(base, change) for change in changes(base)}
    assert len(found) >= 12
    assert len({new.hash() for new in found.values()} | {base.hash()}) == len(found) + 1
    assert found["4 rounds"].federation.rounds == 4
    assert found["one local epoch"].federation.local_epochs == 1
    assert found["frozen first layer"].federation.freeze == 1
    assert found["2 larger parties"].federation.parties == 2
    assert [v.value for v in found["secure aggregation"].audit.vantages] == ["client", "secagg-server"]
    noises = [d.arguments()["noise"] for name, new in found.items() if name.startswith("DP-SGD") for d in new.defences]
    assert noises == [0.3, 1.0, 3.0]


@pytest.mark.parametrize(
    ("model", "smaller"),
    [
        ({"name": "mlp"}, {"one hidden layer of 128", "one hidden layer of 64", "one hidden layer of 32"}),
        ({"name": "mlp", "hidden": [64]}, {"one hidden layer of 32"}),
        ({"name": "mlp", "hidden": [32, 16]}, {"one hidden layer of 32"}),
        ({"name": "linear"}, set()),
        ({"name": "cnn"}, {"16 filters"}),
        ({"name": "resnet20"}, {"resnet8"}),
        ({"name": "lstm", "units": 64}, {"units 32"}),
    ],
)
def test_smaller_models_are_tried_alone_and_with_noise_or_fewer_rounds(
    model: dict[str, Any], smaller: set[str]
) -> None:
    base = parse({"model": model, "federation": {"rounds": 30, "lr": 1e-3}})
    found = {change.name: change for change in changes(base)}
    pairs = {name: change for name, change in found.items() if ", update noise" in name or ", 10 rounds" in name}
    assert {name.split(", ")[0] for name in pairs} == smaller <= set(found)
    assert len(pairs) == 3 * len(smaller)
    for change in pairs.values():
        after = changed(base, change)
        assert after.model != base.model
        assert [d.name for d in after.defences] == ["update-noise"] or after.federation.rounds == 10
    if "16 filters" in smaller:
        both = changed(base, found["16 filters, 10 rounds at rate 0.003"])
        assert both.model.arguments() == {"filters": 16}
        assert both.federation.lr == pytest.approx(3e-3)


def test_noise_that_promises_nothing_replaces_no_promise() -> None:
    promised = {"name": "dp-fedavg", "noise": 1.0, "clip": 1.0}
    base = parse({"defences": [promised], "federation": {"parties": 20}})
    assert not [change.name for change in changes(base) if "update noise" in change.name]


def test_a_stronger_defence_replaces_one_in_its_slot_and_a_milder_one_is_not_tried() -> None:
    base = config().model_copy(update={"defences": parse({"defences": [{"name": "l2", "strength": 1e-3}]}).defences})
    found = {change.name: changed(base, change) for change in changes(base)}
    assert [d.name for d in found["DP-SGD, noise 1"].defences] == ["dp-sgd"]
    assert [d.name for d in found["user-level DP"].defences] == ["l2", "dp-fedavg"]
    assert "clipping" not in found


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


@pytest.fixture(scope="module")
def advised(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Config, results.Advice, Config | None]:
    folder = tmp_path_factory.mktemp("advice")
    given = leaking(folder)
    found, new = advise(given, parse_limit("auc < 0.6"), folder, 1, silent, lambda _: None)
    results.save(found, folder)
    return folder, given, found, new


@pytest.mark.evidence
def test_the_advice_is_confirmed_by_a_run_that_was_not_used_for_choosing(
    advised: tuple[Path, Config, results.Advice, Config | None],
) -> None:
    folder, given, found, new = advised
    assert found.recommended not in (None, NO_CHANGE.name)
    assert new is not None
    assert new.federation.seed == given.federation.seed
    one = found.confirmed[-1]
    assert (one.name, one.seed, one.meets) == (found.recommended, given.federation.seed + 1, True)
    assert one.risk is not None
    assert one.risk.high is not None
    assert one.risk.high < 0.6
    assert one.risk_before is not None
    assert one.risk_before.place == one.risk.place
    assert one.risk_before.low is not None
    assert one.risk_before.low > 0.6  # without the change it leaks
    assert one.risk_difference is not None
    assert one.risk_difference.high is not None
    assert one.risk_difference.high < 0
    again = new.model_copy(update={"federation": new.federation.model_copy(update={"seed": one.seed})})
    again = again.model_copy(update={"audit": again.audit.model_copy(update={"confidence": 0.975})})
    there = folder / TRIALS / again.hash()
    assert judge(there, [parse_limit("auc < 0.6")]).exit_code == 0
    assert load(there).run.accuracy["evaluation"].value == (one.accuracy.value if one.accuracy else None)


@pytest.mark.evidence
def test_hopeless_changes_cost_little_and_what_does_not_fit_is_listed(
    advised: tuple[Path, Config, results.Advice, Config | None],
) -> None:
    _, _, found, _ = advised
    by_name = {one.name: one for one in found.tried}
    assert found.rungs == [2, 4, 8]
    assert by_name["subject-level DP"].status.startswith("does not fit: ")
    assert by_name[NO_CHANGE.name].status.startswith("left after round ")
    fits = [one for one in found.tried if one.rounds]
    assert sum(one.rounds > 2 for one in fits) <= (len(fits) + 1) // 2
    assert len(fits) >= 6
    assert found.cost is not None
    assert found.cost < 20


@pytest.mark.evidence
def test_the_advice_never_says_safe_and_its_page_shows_all(
    advised: tuple[Path, Config, results.Advice, Config | None],
) -> None:
    folder, _, found, _ = advised
    text = " ".join(found.sentences)
    assert "safe" not in text
    assert "another seed confirms it" in text
    assert "not proof" in text
    assert json.loads((folder / results.ADVICE).read_text())["recommended"] == found.recommended
    html = advice_page(results.load(folder), "advice")
    assert all(one.name in html for one in found.tried)
    assert "safe" not in html.lower().replace("safer", "")


def test_what_is_compared_is_the_same_attack_from_the_same_vantage(tmp_path: Path) -> None:
    """With secure aggregation the parties are the strongest adversary that is left; without it the server is."""
    given = leaking(tmp_path)
    given = given.model_copy(
        update={"audit": given.audit.model_copy(update={"vantages": (Vantage.CLIENT, Vantage.SERVER)})}
    )
    masked = next(change for change in changes(given) if change.name == "secure aggregation")
    for name, one in (("before", given), ("after", changed(given, masked))):
        run(one, tmp_path / name, silent, tell=lambda _: None)
    limit = parse_limit("auc < 0.6")
    found = compared("secure aggregation", tmp_path / "after", tmp_path / "before", limit)
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
    lenient = compared("secure aggregation", tmp_path / "after", tmp_path / "before", parse_limit("auc < 0.9999"))
    assert (lenient.verdict, lenient.meets) == ("below the limit", True)
    told = " ".join(results.sentences(advice_of(found), limit, {found.name: masked.words}))
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


@pytest.mark.evidence
def test_none_is_said_where_nothing_meets_the_limit(tmp_path: Path) -> None:
    given = leaking(tmp_path)
    given = given.model_copy(
        update={"federation": given.federation.model_copy(update={"rounds": 2, "local_epochs": 1})}
    )
    found, new = advise(given, parse_limit("auc < 0.4"), tmp_path, 1, silent, lambda _: None)
    assert found.recommended is None
    assert found.nearest is not None
    assert new is not None
    assert found.sentences[0].startswith("None of the changes was confirmed to stay below 0.400")
    assert "nearest" in found.sentences[0] or "nearer" in found.sentences[0]


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
    monkeypatch.setattr(searching, "work", in_turn)
    given, said = leaking(tmp_path), list[str]()
    bench = Bench(tmp_path, 1, lambda: None, said.append)
    limit = parse_limit("auc < 0.6")
    one = Contender(Change("dropout", "drop", {}), given, tmp_path / "run")
    killed = _looked_at(bench, one, News(0, "failed", "", "its process was ended by SIGKILL (out of memory?)"), limit)
    assert killed.status == "failed: its process was ended by SIGKILL (out of memory?)"
    known = replace(one, rounds=2)
    assert _looked_at(bench, known, News(0, "failed", "", "it died"), limit).status == "failed after round 2: it died"
    assert _looked_at(bench, one, None, limit).status.startswith("failed: ")  # it left no results
    subjects = next(change for change in changes(given) if change.name == "subject-level DP")
    unfit = Trial(tmp_path / TRIALS / "unfit", changed(given, subjects), 2)
    wrong = bench.run([unfit])[unfit.folder]
    assert _looked_at(bench, one, wrong, limit).status.startswith("does not fit: [")
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
