"""Canaries from a configuration to results: right and wrong mechanisms, what is refused, resuming, the report."""

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fedaudit.adversary.reductions import flatten, unflatten
from fedaudit.audit import Auditor
from fedaudit.cli import terminal
from fedaudit.config.schema import Config, parse
from fedaudit.defences.dp_fedavg import NoisySum
from fedaudit.defences.shared import Defence
from fedaudit.errors import FedauditError
from fedaudit.learn.tasks import TorchTask, tensor
from fedaudit.privacy.accounting import composed, rdp_epsilon
from fedaudit.privacy.statement import Process
from fedaudit.questions import metric, of
from fedaudit.questions.canary import judge as claims
from fedaudit.questions.canary.claims import refuted as proved_beyond
from fedaudit.questions.canary.crafting import together
from fedaudit.questions.canary.judge import Trials, figures, range_of
from fedaudit.questions.canary.parties import OUTSIDE, Planted
from fedaudit.questions.canary.watch import CRAFTED, CanaryWatch, Mechanism
from fedaudit.report.html import render
from fedaudit.results.document import load
from fedaudit.session.prepare import Prepared, prepare, stage
from fedaudit.session.replay import replay
from fedaudit.session.run import rounds, run
from fedaudit.stats import maximised_epsilon
from fedaudit.stats.wording import full_text
from fedaudit.types import Audit, AuditResult, Cost, Estimate, State, warning
from fedaudit.words import all_words, with_warnings, words
from tests.report import builder
from tests.worlds import plays, silent

NOISE, DELTA, CLAIMED = 1.0, 0.05, 0.01
DEFENCE = {"name": "dp-fedavg", "noise": NOISE, "clip": 0.2, "delta": DELTA}


def asking(
    canary: dict[str, Any] | None = None, attacks: tuple[str, ...] = ("canife",), seed: int = 0, **more: Any
) -> Config:
    """Eight parties with a small claim, which few probes can refute."""
    base: dict[str, Any] = {
        "data": {"name": "digits"},
        "federation": {"parties": 8, "rounds": 2, "lr": 0.1, "algorithm": "fedsgd", "seed": seed},
        "model": {"hidden": [16]},
        "audit": {"attacks": list(attacks), "canary": {"steps": 40, "pool": 8, **(canary or {})}},
        "defences": [DEFENCE],
    }
    for section, values in more.items():
        base[section] = {**base[section], **values} if isinstance(values, dict) else values
        if isinstance(values, dict):
            base[section] = {key: value for key, value in base[section].items() if value is not None}
    return parse(base)


def watched(prepared: Prepared) -> Audit:
    for round in rounds(prepared):
        prepared.auditor.observe(round)
    return prepared.auditor.snapshot()


def question_of(result: AuditResult) -> str:
    question = of(result)
    assert question is not None
    return question.claim_in_words(result, "epsilon-ranks")


def found_by(audit: Audit, attack: str = "canife") -> AuditResult:
    assert audit.failed == {}
    (result,) = [r for r in audit.results if r.attack == attack]
    return result


def refuted(audit: Audit) -> bool:
    return any("does not hold" in warning for warning in found_by(audit).warnings)


def test_the_design_pool_is_large_enough_for_its_mock_parties_if_the_data_are() -> None:
    many = stage(asking({"pool": 8}, federation={"parties": 40, "members": 0.1}))
    assert many.own is not None
    wanted = (8 + OUTSIDE) * int(np.median([len(many.game.members(party)) for party in many.game.parties]))
    assert 0.8 * wanted <= len(many.own) <= 1.2 * wanted
    few = stage(asking({"pool": 64}))
    assert few.own is not None
    assert len(few.own) <= 0.21 * (len(few.own) + len(few.dataset.records))


# ------------------------------------------------------------------ what comes out


def test_entries_are_named_and_labelled() -> None:
    audit = watched(prepare(asking({"probes": 40, "every": 1})))
    result = found_by(audit)
    assert (result.vantage, result.model, result.unit, result.party) == ("secagg-server", "global", "user", None)
    kinds = {name: estimate.kind for name, estimate in result.estimates.items()}
    assert kinds == {
        "auc": "measured", "accuracy": "measured", "score-sd": "measured", "canary-norm": "measured",
        "canary-health": "measured", "epsilon-canife-round": "heuristic", "epsilon-canife": "heuristic",
        "epsilon-maximised": "heuristic", "epsilon-ranks": "proved", "epsilon-split": "proved",
        "epsilon-gdp": "model-based", "epsilon-composed": "heuristic", "epsilon-composed-paper": "heuristic",
        "epsilon-accountant": "claimed", "epsilon-accountant-renyi": "claimed",
        "epsilon-accountant-round": "claimed",
    }  # fmt: skip
    claimed = result.estimates["epsilon-accountant"]
    assert (claimed.value, claimed.low) == (claimed.high, None)
    spread = result.estimates["score-sd"]
    assert spread.value == pytest.approx(NOISE, rel=0.3)  # 80 scores: nearly four standard errors
    assert not result.warnings
    assert result.estimates["canary-norm"].value == pytest.approx(1, abs=1e-3)
    assert list(result.curves["epsilon-gdp"].x) == [1.0, 2.0]
    assert sum(v or 0 for v in result.curves["scores-with"].value) == 40
    assert any(notice.startswith("canife: canary health") for notice in all_words(audit.notices))


def planted(**canary: Any) -> tuple[Planted, TorchTask, State]:
    """The canary of a configuration, crafted for its first model."""
    prepared = prepare(asking({"steps": 20, **canary}))
    watch, start = prepared.auditor.observers["canary"], prepared.task.initial(0)
    assert isinstance(watch, CanaryWatch)
    assert watch.game.crafted is not None
    assert watch.game.crafted.canaries is not None
    return watch.game.crafted.canaries.at(prepared.task, start), prepared.task, start


def test_a_canary_that_is_dead_at_a_stop_has_no_figure_there_and_breaks_nothing() -> None:
    ones, present = np.ones(20), np.arange(20) < 10
    seen = Trials(
        score=np.full(20, np.nan), present=present, counted=ones > 0, probe=np.arange(20),
        round=ones.astype(int), norm=0 * ones, spread=0 * ones, health=0 * ones,
    )  # fmt: skip
    assert figures(seen, DELTA, 0.95)[claims.PAPERS].value is None


@pytest.mark.parametrize("key", [{"objective": "printed"}, {"starts": 2}, {"batch": 2}, {"reach": 50.0}])
def test_keys_of_a_configuration_reach_the_crafting(key: dict[str, Any]) -> None:
    """Another canary comes out of each; without them, the same one again."""
    plain, *_ = planted()
    again, *_ = planted(objective="normalised", starts=16, batch=16)
    assert np.array_equal(plain.records.x, again.records.x)
    crafted, task, start = planted(**key)
    assert not np.array_equal(plain.records.x, crafted.records.x)
    if "reach" in key:
        of_model = together(task, start)
        long, short = (of_model(*map(tensor, (one.records.x, one.records.y))).norm() for one in (crafted, plain))
        assert long > 40 > short


def test_the_papers_figure_of_a_round_is_at_a_delta_of_one_in_the_number_of_trials() -> None:
    """Not at the delta that is claimed. With many trials that hardly changes the value, so there are few."""
    prepared = prepare(asking({"probes": 20, "every": 2}, defences=[DEFENCE | {"delta": CLAIMED}]))
    result, watch = found_by(watched(prepared)), prepared.auditor.observers["canary"]
    assert isinstance(watch, CanaryWatch)
    assert watch.game.crafted is not None
    present, absent = claims.trials(watch.kept[CRAFTED], watch.game.crafted).with_and_without()
    assert (len(present), len(absent)) == (10, 10)
    expected = maximised_epsilon(present, absent, 1 / 20)
    assert result.estimates["epsilon-canife-round"] == replace(expected, name="epsilon-canife-round")
    assert expected.value != maximised_epsilon(present, absent, CLAIMED).value


def test_running_canaries_have_an_anytime_bound() -> None:
    prepared = prepare(asking({"mode": "running", "canaries": 2}, federation={"rounds": 12}))
    result = found_by(watched(prepared))
    estimate = result.estimates["epsilon-anytime"]
    assert estimate.kind == "proved"
    assert estimate.n_pos + estimate.n_neg == 24
    assert len(result.curves["epsilon-anytime"].x) == 12
    assert result.estimates["epsilon-ranks"].n_pos + result.estimates["epsilon-ranks"].n_neg == 12


def test_one_shot_comes_out_with_its_null() -> None:
    small = [{"name": "dp-fedavg", "noise": 1.0, "clip": 0.2, "delta": 0.01}]
    asked = asking({"canaries": 40}, ("one-shot",), federation={"parties": 40, "rounds": 3}, defences=small)
    result = found_by(watched(prepare(asked)), "one-shot")
    assert {"auc", "epsilon-one-shot", "epsilon-one-shot-bound", "epsilon-one-run", "epsilon-accountant"} <= set(
        result.estimates
    )
    proved = result.estimates["epsilon-one-run"]
    claimed = result.estimates["epsilon-accountant"].value
    assert proved.kind == "proved"
    assert proved.value is not None
    assert claimed is not None
    assert proved.value < claimed
    assert not result.warnings  # canaries that were never sent look random


def test_K19_without_noise_the_audit_says_so() -> None:
    prepared = prepare(asking({"probes": 20, "every": 2, "steps": 200}))
    sure = prepared.defence.aggregate
    assert isinstance(sure, NoisySum)
    silent_one = replace(prepared, defence=replace(prepared.defence, aggregate=replace(sure, noise=0.0)))
    result = found_by(watched(silent_one))
    assert any("no noise" in warning for warning in result.warnings)
    capped = result.estimates["epsilon-maximised"]
    assert capped.value is not None
    assert np.isfinite(capped.value)
    assert capped.reason == "limited by the number of trials"


# ------------------------------------------------------------------ right and wrong mechanisms


def mechanism(name: str, defence: Defence) -> Defence:
    assert isinstance(defence.aggregate, NoisySum)
    if name == "a third of the noise":
        return replace(defence, aggregate=replace(defence.aggregate, noise=defence.aggregate.noise / 3))
    return replace(defence, update=None) if name == "not clipped" else defence


@pytest.mark.evidence
@pytest.mark.parametrize(
    ("name", "least", "most"), [("right", 0, 0), ("a third of the noise", 8, 10), ("not clipped", 8, 10)]
)
def test_a_wrong_mechanism_is_caught_and_the_right_one_is_not(name: str, least: int, most: int) -> None:
    caught = 0
    for seed in range(10):
        asked = asking({"probes": 240, "every": 2, "steps": 20, "pool": 4}, seed=seed)
        prepared = prepare(asked)
        caught += refuted(watched(replace(prepared, defence=mechanism(name, prepared.defence))))
    assert least <= caught <= most


def test_the_report_says_that_a_claim_is_refuted(tmp_path: Path) -> None:
    asked = asking({"probes": 240, "every": 2, "steps": 20, "pool": 4})
    prepared, told = prepare(asked), "the claim of differential privacy does not hold"
    wrong = replace(prepared, defence=mechanism("a third of the noise", prepared.defence))
    document = run(asking({"probes": 60, "every": 2, "steps": 20, "pool": 4}), tmp_path / "run", silent)
    assert told not in render(document)
    assert told in render(replace(document, results=[found_by(watched(wrong))]))


# ------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (asking({"canaries": 9}), "canary-count"),
        (asking({"every": 3}), "canary-every"),
        (asking({"target": 10}), "canary-target"),
        (asking(defences=[{"name": "dp-fedavg", "noise": 1.0, "clip": 1.0, "delta": 0.2}]), "canary-delta"),
        (asking(defences=[{"name": "dp-fedavg", "noise": 1.0, "clip": 1.0, "local": True}]), "canary-local"),
        (asking(attacks=("one-shot",), defences=[]), "canary-clip"),
        (asking(federation={"optimizer": "adam", "algorithm": "fedavg", "lr": 0.001}), "canary-short"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_training(asked: Config, code: str) -> None:
    with pytest.raises(FedauditError) as refused:
        prepare(asked)
    assert refused.value.code == code


def test_texts_that_are_filled_up_are_refused_before_training(tmp_path: Path) -> None:
    """They were refused when the first canary was crafted, after a round of training."""
    lines = [f"{'abcdef'[i % 6]} went{' there' * (i % 3)} {i}" for i in range(300)]
    (tmp_path / "lines.txt").write_text("\n\n".join(lines))
    data = {"name": "text", "path": str(tmp_path / "lines.txt"), "length": 6}
    with pytest.raises(FedauditError, match="each token's label is the next one"):
        prepare(parse(asking().as_dict() | {"data": data, "model": {"name": "lstm", "units": 8}}))


def test_a_vantage_that_does_not_see_the_sum_is_refused() -> None:
    with pytest.raises(FedauditError, match="noisy-sum"):
        prepare(asking(audit={"attacks": ["canife", "loss"], "vantages": ["client"]}))


def test_a_dead_canary_is_refused() -> None:
    """A clip norm that no gradient reaches: health may read well, and nothing is concluded. So little noise that the
    model stays one: with noise in proportion to such a norm, its gradients would be as large as its weights."""
    huge = [{"name": "dp-fedavg", "noise": 1e-6, "clip": 1e5, "delta": 0.01}]
    prepared = prepare(asking({"probes": 20, "every": 2, "steps": 5}, defences=huge))
    audit = watched(prepared)
    assert "every canary is dead" in audit.failed["canife"]
    assert not [r for r in audit.results if r.attack == "canife"]


# ------------------------------------------------------------------ stored, resumed, shown


def test_state_goes_on_in_another_process() -> None:
    prepared = prepare(asking({"mode": "running"}, ("canife", "one-shot"), federation={"rounds": 6}))
    whole, parts = prepared.auditor, Auditor(prepared.task, prepared.game, prepared.settings)
    for round in rounds(prepared):
        whole.observe(round)
        fresh = Auditor(prepared.task, prepared.game, prepared.settings)
        fresh.restore(unflatten(*flatten(parts.state())))
        fresh.observe(round)
        parts = fresh
    one, other = whole.snapshot(), parts.snapshot()
    for attack in ("canife", "one-shot"):
        assert found_by(one, attack).estimates == found_by(other, attack).estimates
    assert found_by(one).canary == found_by(other).canary is not None


def test_a_run_is_written_shown_and_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asking({"probes": 20, "every": 1}, ("canife", "loss"))
    document = run(asked, tmp_path / "run", silent)
    (result,) = [r for r in document.results if r.attack == "canife"]
    again = load(tmp_path / "run")
    assert [r.estimates for r in again.results if r.attack == "canife"] == [result.estimates]
    assert json.loads((tmp_path / "run" / "results.json").read_text())["schema"] == 1
    page = render(document)
    assert "what the sum tells about one party" in page
    assert "epsilon-ranks" in page
    shown = io.StringIO()
    monkeypatch.setattr(terminal, "console", Console(file=shown, width=1000))
    terminal.say(document, None)
    lines = shown.getvalue().splitlines()
    assert [line for line in lines if line.split()[:2] == ["canife", "secagg-server,"]]  # its figures stand below
    title = metric("epsilon-canife-round").title
    (row,) = [line for line in lines if line.startswith(title)]
    assert full_text("epsilon-canife-round", result.estimates["epsilon-canife-round"]) in row
    assert len([line for line in lines if "canife: canary health" in line]) == 1
    ranks = full_text("epsilon-ranks", result.estimates["epsilon-ranks"])
    (said,) = [line for line in lines if line.startswith("canife, seen from secagg-server on global models")]
    assert f"{metric('epsilon-ranks').title} {ranks}, with 95 % confidence" in said
    assert [line.split()[0] for line in lines[-3:]] == ["client", *2 * ["secagg-server"]]  # a headline for each
    assert f"{ranks} {metric('epsilon-ranks').title}" in lines[-1]
    claimed = result.estimates["epsilon-accountant-round"].value
    assert f"{claimed:.3g} is claimed for one round, and not refuted" in said
    low = replace(result.estimates["epsilon-accountant-round"], value=0.001)
    assert question_of(replace(result, estimates={**result.estimates, low.name: low})).endswith(", and refuted")
    replayed = replay(tmp_path / "run", [], tmp_path / "again", silent)
    (again_judged,) = [r for r in replayed.results if r.attack == "canife"]
    assert again_judged.estimates == result.estimates
    assert again_judged.canary == result.canary is not None


@pytest.mark.parametrize("initial", ["random", "data"])
def test_a_text_canary_is_shown_as_text_unless_it_began_as_a_record(initial: str, tmp_path: Path) -> None:
    asked = asking(
        {"probes": 16, "every": 2, "steps": 10, "initial": initial},
        data={"name": "shakespeare", "path": str(plays(tmp_path / "plays.json")), "length": 12},
        federation={"split_subjects": True},
        model={"name": "lstm", "hidden": None, "units": 8, "layers": 1},
    )
    prepared = prepare(asked)
    result = found_by(watched(prepared))
    watch = prepared.auditor.observers["canary"]
    assert isinstance(watch, CanaryWatch)
    if initial == "data":
        assert result.canary is None
        assert watch.kept[CRAFTED].record.size == 0, "what is measured is written to disk"
        return
    assert watch.kept[CRAFTED].record.size == 12
    assert result.canary is not None
    assert result.canary.kind == "text"
    assert len(result.canary.text) == 13
    assert set(result.canary.text) <= set("abcdefghij .\n")


@pytest.mark.parametrize("initial", ["random", "data"])
def test_a_canary_crafted_for_a_table_is_shown_unless_it_began_as_a_record(initial: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{y},{20 * y + 9 * x:.3f},{x:.3f}" for y, x in zip(rng.integers(0, 2, 900), rng.random(900), strict=True)]
    (tmp_path / "people.csv").write_text("\n".join(["ill,income,share", *rows]))
    asked = asking(
        {"probes": 16, "every": 2, "steps": 10, "initial": initial},
        data={"name": "table", "path": str(tmp_path / "people.csv"), "label": "ill"},
    )
    document = run(asked, tmp_path / "run", silent)
    (result,) = [r for r in document.results if r.attack == "canife"]
    page = render(load(tmp_path / "run"))
    assert ("As it was crafted last, the most unusual values first" in page) == (initial == "random")
    assert (">income<" in page) == (initial == "random")
    if initial == "data":
        assert result.canary is None
        return
    assert result.canary is not None
    pool = stage(asked).own
    assert pool is not None
    expected = (np.array(result.canary.values) - pool.x.mean(axis=0)) / pool.x.std(axis=0)
    assert np.abs(result.canary.deviations - expected).max() < 0.02


def test_where_canaries_run_only_the_e_process_refutes() -> None:
    """Other models in every round: with and without the canary are not trials of one mechanism."""

    def of(name: str, value: float | None) -> Estimate:
        return Estimate(name, value, value, None, 0.95, "", "proved", 10, 10)

    claimed = of("epsilon-accountant-round", 1.0)
    by_probes = {"epsilon-accountant-round": claimed, "epsilon-ranks": of("epsilon-ranks", 2.0)}
    assert proved_beyond(by_probes) == by_probes["epsilon-ranks"]
    assert proved_beyond(by_probes | {"epsilon-anytime": of("epsilon-anytime", 0.5)}) is None
    assert proved_beyond(by_probes | {"epsilon-anytime": of("epsilon-anytime", None)}) is None


@pytest.mark.parametrize("low", [None, 0.5, 2.0])
def test_page_warning_and_gate_agree_whether_the_whole_run_is_refuted(low: float | None) -> None:
    """By the lower end everywhere; a value without one proves nothing."""
    found = {
        "epsilon-one-run": Estimate("epsilon-one-run", 2.0, low, None, 0.95, "coins", "proved", 9, 9),
        "epsilon-accountant": Estimate("epsilon-accountant", 1.0, None, 1.0, 0.95, "", "claimed", 0, 0),
    }
    entry = AuditResult(
        "one-shot", "secagg-server", "global", "user", None, round=2, estimates=found, cost=Cost(0.1), question="canary"
    )
    document = replace(builder.read(builder.results()), results=[entry])
    assert document.run.guarantee is not None
    claim = replace(document.run.guarantee, unit="user", epsilon=1.0)
    wrong = low == 2.0
    assert bool(claims._whole_run_refuted(found)) == bool(claims.against(claim, document)) == wrong
    question = of(entry)
    assert question is not None
    said = question.claim_in_words(entry, "epsilon-one-run")
    assert said == ("" if low is None else f"1 is claimed for the whole training, and {'' if wrong else 'not '}refuted")
    assert not claims.against(replace(claim, epsilon=3.0), document)
    assert not claims.against(replace(claim, epsilon=None), document)


def test_a_claim_that_the_sum_contradicts_is_not_said_to_stand() -> None:
    """The page said "not refuted" beside the warning that the noise is missing."""
    estimates = {
        name: Estimate(name, 1.0, 0.5, None, 0.95, "", "proved", 9, 9)
        for name in ("epsilon-ranks", "epsilon-accountant-round")
    }
    entry = AuditResult(
        "canife",
        "secagg-server",
        "global",
        "user",
        None,
        round=2,
        estimates=estimates,
        cost=Cost(0.1),
        question="canary",
    )
    assert question_of(entry) == "1 is claimed for one round, and not refuted"
    told = warning("noise-missing", sd=0.1, most=0.2, expected=1.0, none=False)
    assert question_of(with_warnings(entry, [told])).endswith(
        "and contradicted: the sum has less noise than is claimed"
    )


def test_whether_a_claim_is_refuted_is_said_without_scipy() -> None:
    code = "import sys; from fedaudit.questions.canary.claims import refuted; assert 'scipy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def simulated(norm: float, canaries: int, alike: bool, rng: np.random.Generator, probes: int = 100) -> Trials:
    """Scores of canaries with a share of the clip norm under noise that is as large as it is claimed to be. Alike:
    their updates point the same way, so that they all meet the same noise."""
    present = np.stack([rng.permutation(np.arange(probes) % 2 == 0) for _ in range(canaries)], axis=1)
    noise = np.tile(rng.standard_normal((probes, 1)), canaries) if alike else rng.standard_normal(present.shape)
    score = (norm**2 * present + NOISE * norm * noise).ravel()
    counted = np.tile(np.arange(canaries) == 0, probes)
    ones = np.ones(score.size)
    probe = np.repeat(np.arange(probes), canaries)
    return Trials(
        score=score,
        present=present.ravel(),
        counted=counted,
        probe=probe,
        round=ones.astype(int),
        norm=norm * ones,
        spread=0 * ones,
        health=ones,
    )


def test_a_score_at_the_threshold_is_taken_for_absent() -> None:
    """Above it, it is taken for present."""
    ones, present = np.ones(20), np.arange(20) < 10
    seen = Trials(
        score=np.where(present, 0.6, 0.5), present=present, counted=ones > 0, probe=np.arange(20),
        round=ones.astype(int), norm=ones, spread=0 * ones, health=ones,
    )  # fmt: skip
    assert figures(seen, DELTA, 0.95)["accuracy"].value == 1.0


def test_one_random_canary_has_nothing_to_be_compared_with() -> None:
    result = found_by(watched(prepare(asking({"canaries": 1}, ("one-shot",)))), "one-shot")
    assert "auc" not in result.estimates
    assert result.curves == {}


@pytest.fixture
def no_epsilons(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise is judged by the spread of the scores alone; proving epsilons a hundred times takes long."""
    monkeypatch.setattr(claims, "FIGURES", {})


def less_noise(seen: Trials) -> bool:
    told = claims.remarks(figures(seen, DELTA, 0.95), NOISE, seen.norm)
    return any(one.code == "noise-missing" and not one.data["none"] for one in told)


@pytest.mark.usefixtures("no_epsilons")
@pytest.mark.parametrize(("norm", "canaries", "alike"), [(1.0, 1, False), (0.6, 1, False), (1.0, 8, True)])
def test_noise_that_is_there_is_not_missed(norm: float, canaries: int, alike: bool) -> None:
    """A canary of 0.6 of the clip norm meets 0.6 of the noise, and eight that meet the same noise are one trial."""
    rng = np.random.default_rng(3)
    alarms = sum(less_noise(simulated(norm, canaries, alike, rng)) for _ in range(100))
    assert alarms <= 2  # once in a thousand audits


def test_noise_that_is_not_there_is_missed() -> None:
    seen = simulated(0.6, 4, alike=False, rng=np.random.default_rng(4))
    quiet = replace(seen, score=0.36 * seen.present + 0.5 * (seen.score - 0.36 * seen.present))
    assert less_noise(quiet)


def test_what_a_stop_shows_holds_until_the_next_one() -> None:
    """Stops after rounds 2 and 8 of 10: eight rounds as the first found them, two as the second did."""
    one, other = (Estimate("epsilon-gdp", e, e, e, 0.95, "", "model-based", 9, 9) for e in (1.0, 3.0))
    papers = Estimate(claims.PAPERS, 2.0, 2.0, 2.0, 0.95, "", "heuristic", 9, 9)
    stops = {r: {"epsilon-gdp": e, "epsilon-maximised": e, claims.PAPERS: papers} for r, e in ((2, one), (8, other))}
    found = claims._composed_estimates(stops, Mechanism(1e-5), 10, 0.95, (9, 9))
    assert found["epsilon-composed"].value == pytest.approx(composed([1.0, 3.0], [8, 2], 1.0, 1e-5))
    assert found["epsilon-canife"].value == pytest.approx(composed([2.0], [10], 1.0, 1e-5, "renyi", found_at=[1 / 18]))


def test_the_headline_of_the_paper_is_what_a_perfect_canary_would_show() -> None:
    """Noise .423, 50 probes with the canary and 50 without it, 2,550 rounds at a rate of 100 in 8,408: of the 13.2 that
    are claimed for a round, its recipe shows 3.6, because a hundred probes can show no more; of 48.2 it shows 6.3."""
    process = Process("user", 0.423, 1, "poisson", 100 / 8408)
    rng = np.random.default_rng(0)
    drawn = [(rng.normal(1, 0.423, 50), rng.normal(0, 0.423, 50)) for _ in range(100)]
    of_a_round = [claims.FIGURES[claims.PAPERS](*pair, 1e-5, 0.95) for pair in drawn]
    assert np.mean([one.value for one in of_a_round]) == pytest.approx(3.6, abs=0.05)
    usual = min(of_a_round, key=lambda one: abs((one.value or 0.0) - 3.6))
    found = {"epsilon-gdp": usual, "epsilon-maximised": usual, claims.PAPERS: usual}
    whole = claims._composed_estimates({2550: found}, Mechanism(1e-5, process=process), 2550, 0.95, (50, 50))
    assert whole["epsilon-canife"].value == pytest.approx(6.3, abs=0.2)
    assert rdp_epsilon(process, 2550, 1e-5) == pytest.approx(48.2, abs=0.1)


def test_a_canary_that_was_crafted_badly_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Health is in the results and over the rounds; where it is too low, a warning says what that means."""
    bad = prepare(asking({"probes": 16, "every": 1, "steps": 1, "starts": 1}))
    monkeypatch.setattr(claims, "HEALTHY", 0.95)  # one step on digits reaches more than a half
    result = found_by(watched(bad))
    health = result.estimates["canary-health"].value
    assert health is not None
    assert 0 <= health < 0.95
    told = words(warning("canary-unhealthy", health=health))
    assert told in result.warnings
    assert list(result.curves["canary-health"].x) == [1.0, 2.0]
    monkeypatch.setattr(claims, "HEALTHY", health)
    assert told not in found_by(watched(bad)).warnings


@pytest.mark.usefixtures("no_epsilons")
def test_a_gate_takes_a_short_canary_for_no_missing_noise_either() -> None:
    """It reads stored figures, and is fooled by 0.6 of the clip norm as little as the warnings are."""
    rng, alarms = np.random.default_rng(7), 0
    for _ in range(100):
        seen = simulated(0.6, 1, alike=False, rng=rng)
        stored = figures(seen, DELTA, 0.95) | {"canary-norm": range_of(seen.norm, seen, "canary-norm", "norm", 0.95)}
        alarms += claims.too_little_noise(stored, NOISE)
    assert alarms <= 2
    assert claims.too_little_noise(stored, 3 * NOISE)


def test_every_figure_counts_probes_with_and_without() -> None:
    seen = simulated(1.0, 2, alike=False, rng=np.random.default_rng(5), probes=40)
    counts = {name: (found.n_pos, found.n_neg) for name, found in figures(seen, DELTA, 0.95).items()}
    assert {counts[name] for name in ("auc", "accuracy")} == {(40, 40)}
    assert {counts[name] for name in ("epsilon-ranks", "score-sd", "epsilon-gdp")} == {(20, 20)}  # one a probe


@pytest.mark.usefixtures("no_epsilons")
def test_canaries_that_meet_the_same_noise_are_not_as_many_trials() -> None:
    """Four at a probe, all present or all absent, whose updates do not show: 0.5 must lie in the interval of the AUC
    about 95 times of 100."""
    rng, covered = np.random.default_rng(6), 0
    for _ in range(100):
        seen = simulated(1.0, 4, alike=True, rng=rng, probes=40)
        together = np.repeat(seen.present[::4], 4)
        nothing = replace(seen, present=together, score=seen.score - seen.present)
        found = figures(nothing, DELTA, 0.95)["auc"]
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.5 <= found.high
    assert covered >= 89
