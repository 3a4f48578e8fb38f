"""Whole audits of games about people: what leaks is found, what does not is not, and nobody is reported on who was
known to the adversary beforehand."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedaudit.adversary.attacks import every
from fedaudit.adversary.attacks.subjects import SubjectFTA
from fedaudit.audit import Auditor
from fedaudit.audit.score import KNOWN, known, possible, usual
from fedaudit.audit.settings import own_records
from fedaudit.cli.planning import plan_of
from fedaudit.config.schema import Config, parse
from fedaudit.questions.subject.judge import f1, rates
from fedaudit.report.html import render
from fedaudit.results.document import load
from fedaudit.results.gate import judge as gate
from fedaudit.results.gate import parse_rule
from fedaudit.session.prepare import Prepared, prepare, stage
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.stats import Block, auc, best_cut, tpr_at_fpr
from fedaudit.stats.plan import Sizes, smallest_visible_auc, smallest_visible_tpr
from fedaudit.types import AuditResult, Candidates, Cost, Estimate, Game, Headline, Role, Truth, Unit
from tests.report import builder
from tests.worlds import silent, watch

EVERY = every("subject")


def people(tmp_path: Path, attacks: list[str] | None = None, audit: Any = None, **federation: Any) -> Config:
    """Three hundred people with six digits each, whose labels are drawn by lot: they can only be learnt by heart."""
    x, _ = load_digits(return_X_y=True)
    y = np.random.default_rng(0).integers(0, 10, len(x))
    np.savez(tmp_path / "people.npz", x=x / 16, y=y, subject=np.arange(len(x)) % 300)
    return parse({
        "data": {"name": "npz", "path": str(tmp_path / "people.npz")},
        "federation": {
            "parties": 2, "rounds": 4, "partition": "subjects", "local_epochs": 8, "batch_size": 16, "lr": 3e-3
        } | federation,
        "model": {"hidden": [64]},
        "audit": {"vantages": ["client"], **({"attacks": attacks} if attacks else {}), **(audit or {})},
    })  # fmt: skip


def by_attack(results: Any) -> dict[str, AuditResult]:
    return {r.attack: r for r in results if r.party is None}


def nobody_trained_on(prepared: Prepared) -> Prepared:
    """The same training, and a game about the non-members alone, a third of whom are called members."""
    candidates, truth = prepared.game.candidates, prepared.game.truth
    kept = ~truth.mask(Role.MEMBER)
    place = np.cumsum(kept) - 1
    rows = kept[candidates.owner]
    role = np.array([list(Role)[i % 3].value for i in range(int(kept.sum()))])
    fewer = Candidates(
        "subject", candidates.id[kept], candidates.party[kept], candidates.rows.take(rows),
        place[candidates.owner[rows]],
    )  # fmt: skip
    game = Game(fewer, Truth(fewer.id, role), prepared.game.training)
    return replace(prepared, game=game, auditor=Auditor(prepared.task, game, prepared.settings))


@pytest.mark.parametrize("fresh", [0.0, 0.5])
def test_a_null_world_comes_out_null_for_every_attack(tmp_path: Path, fresh: float) -> None:
    settings = people(tmp_path, EVERY, {"confidence": 0.999, "reference": {"models": 4}}, fresh=fresh)
    audit = watch(nobody_trained_on(prepare(settings)))
    assert audit.failed == {}
    found = by_attack(audit.results)
    assert set(EVERY) < set(found)
    for name in EVERY:
        for metric, estimate in found[name].estimates.items():
            if metric == "auc" or metric.startswith("balanced"):
                assert estimate.low is not None
                assert estimate.high is not None
                assert estimate.low <= 0.5 <= estimate.high, (name, metric, estimate)


def test_who_was_learnt_by_heart_is_found(tmp_path: Path) -> None:
    """Item-based: every attack that looks at the last model or the rounds sees it. With lots for labels, fresh records
    of a person say nothing, and no attack sees anything."""
    attacks = ["subject-loss", "subject-fta", "subject-matched", "subject-cosine", "subject-rmia", "subject-corrected"]
    more = {"reference": {"models": 4}}
    items = by_attack(watch(prepare(people(tmp_path, attacks, more, fresh=0.0))).results)
    fresh = by_attack(watch(prepare(people(tmp_path, attacks, more, fresh=0.5))).results)
    for name in attacks:
        assert (items[name].estimates["auc"].low or 0) > 0.65, name
        assert (fresh[name].estimates["auc"].low or 0) < 0.55, name
    decided = items["subject-loss"].estimates["balanced-accuracy@10"]  # a third of the people are the adversary's own
    assert (decided.low or 0) > 0.6
    assert items["subject-loss"].unit == "subject"
    counted = items["blind"].estimates["count-auc"]
    assert counted.low is not None
    assert counted.high is not None
    assert counted.low <= 0.5 <= counted.high


def test_the_known_are_not_reported_on(tmp_path: Path) -> None:
    prepared = prepare(people(tmp_path, ["subject-loss", "subject-fta"], fresh=0.0))
    found = by_attack(watch(prepared).results)
    sight = prepared.auditor.outlooks.everyone
    members = int(prepared.game.truth.mask(Role.MEMBER).sum())
    assert KNOWN == (1, 5, 10, 25, 100)  # as in the paper
    assert possible(sight) == [k for k in KNOWN if 3 * k <= members]
    for name in ("subject-loss", "subject-fta"):
        assert found[name].estimates["auc"].n_pos == members - usual(sight) == members - 25
        for k in possible(sight):
            assert found[name].estimates[f"balanced-accuracy@{k}"].n_pos == members - k
    for k, more in pairwise(KNOWN[:-1]):  # the fewer are among the more
        assert all((few <= many).all() for few, many in zip(known(sight, k), known(sight, more), strict=True))
    inside, outside = known(sight, 25)
    assert not outside[sight.role != Role.CALIBRATION.value].any()
    assert (outside <= sight.reference).all()
    case = prepared.auditor.case()
    block = case.scores.block(sight, prepared.settings.attacks[0])
    assert len(block.calibration) == int((prepared.game.truth.mask(Role.CALIBRATION) & ~sight.reference).sum())
    assert inside.sum() == outside.sum() == 25


def test_scattered_people_are_asked_about_in_every_party_and_count_once(tmp_path: Path) -> None:
    settings = people(tmp_path, ["subject-fta"], {"vantages": ["client", "server"]}, fresh=0.0, split_subjects=True)
    prepared = prepare(settings)
    audit = watch(prepared)
    assert audit.failed == {}
    mine = [r for r in audit.results if r.attack == "subject-fta"]
    assert {(r.model, r.party) for r in mine} == {
        ("global", None), ("local", None), ("local", "party-0"), ("local", "party-1")
    }  # fmt: skip
    (pooled,) = [r for r in mine if (r.model, r.party) == ("local", None)]
    assert pooled.estimates["auc"].n_pos > prepared.game.truth.mask(Role.MEMBER).sum()
    assert (pooled.estimates["auc"].low or 0) > 0.6
    assert "subject" in pooled.estimates["auc"].method


class ByAParty(SubjectFTA):
    """An attack by the first party about the people of the others."""

    by_first_party = True


@pytest.mark.parametrize("scattered", [False, True])
def test_a_party_that_attacks_others_is_not_judged_on_its_own_people(tmp_path: Path, scattered: bool) -> None:
    """Scattered people belong to no party by name: its own are those of whom it has records."""
    few = {"parties": 4, "rounds": 2, "local_epochs": 1, "split_subjects": scattered}
    prepared = prepare(people(tmp_path, ["subject-fta"], {"vantages": ["client", "server"]}, **few))
    settings, game = replace(prepared.settings, attacks=[ByAParty()]), prepared.game
    prepared = replace(prepared, auditor=Auditor(prepared.task, game, settings))
    found = [r for r in watch(prepared).results if r.attack == "by-a-party"]
    trained = game.training
    assert trained is not None
    assert trained.rows.subject is not None
    of_first = set(trained.rows.subject[trained.party == "party-0"].tolist())
    members = game.candidates.id[game.truth.mask(Role.MEMBER)].tolist()
    others = [name for name in members if name not in of_first]
    (of_all,) = [r for r in found if (r.model, r.party) == ("global", None)]
    panels, scores = prepared.auditor.outlooks, prepared.auditor.case().scores
    judged = scores.judged(panels.everyone, settings.attacks[0])
    assert sorted(panels.everyone.id[judged & (panels.everyone.role == Role.MEMBER.value)].tolist()) == sorted(others)
    told = known(panels.everyone, usual(panels.everyone))[0]  # tuned on, and so not reported on either
    assert of_all.estimates["auc"].n_pos == int((judged & game.truth.mask(Role.MEMBER) & ~told).sum()) > 0
    assert of_all.estimates["auc"].n_neg > 0
    assert not scores.judged(panels.local["party-0"], settings.attacks[0]).any()
    assert "party-0" not in {r.party for r in found}
    own = own_records(game, np.arange(len(game.candidates)), 40)
    assert own.sum() == 40
    assert not (own & judged).any()


# ------------------------------------------------------------------ decisions


def test_a_threshold_lies_where_the_known_are_told_apart_best() -> None:
    rng = np.random.default_rng(0)
    members, others = rng.normal(1, 1, 9), rng.normal(0, 1, 9)

    def right(place: float) -> float:
        return float((members > place).mean() + (others <= place).mean())

    found = best_cut(members, others)
    assert right(found) == max(right(place) for place in np.linspace(-4, 5, 5000))
    assert best_cut(np.array([1.0]), np.array([1.0])) == -np.inf  # all tied: everybody is accused
    assert best_cut(np.array([0.0]), np.array([1.0])) == -np.inf
    assert best_cut(np.array([3.0]), np.array([1.0])) == 2.0


def test_T2_ties_decide_nothing() -> None:
    """A loss that falls in every round gives everybody the same score: chance, and the F1 of a yes to everybody."""
    place = best_cut(np.full(5, 3.0), np.full(5, 3.0))
    members, outsiders = np.full(40, 3.0) > place, ~(np.full(60, 3.0) > place)
    found = rates([(members, None)], [(outsiders, None)], 5, "", 0.95)
    accuracy, score = found["balanced-accuracy@5"], found["f1@5"]
    assert accuracy.value == 0.5
    assert score.value == pytest.approx(2 / 3)
    assert (accuracy.n_pos, accuracy.n_neg) == (40, 60)


def test_balanced_accuracy_covers() -> None:
    """Its interval holds the truth in about 95 of 100 simulated audits, and F1's in at least as many."""
    rng, hits, passed, n = np.random.default_rng(0), 0.8, 0.6, 600
    inside = {"balanced-accuracy@25": 0, "f1@25": 0}
    truth = {"balanced-accuracy@25": (hits + passed) / 2, "f1@25": f1(hits, passed)}
    for _ in range(n):
        found = rates([(rng.random(50) < hits, None)], [(rng.random(90) < passed, None)], 25, "", 0.95)
        for name, estimate in found.items():
            assert estimate.low is not None
            assert estimate.high is not None
            inside[name] += estimate.low <= truth[name] <= estimate.high
    assert min(inside.values()) >= 0.93 * n


# ------------------------------------------------------------------ from configuration to page


def test_results_report_gate_and_plan_speak_of_people(tmp_path: Path) -> None:
    out, settings = tmp_path / "run", people(tmp_path, ["subject-fta", "subject-loss"], {"fpr": [0.05]}, fresh=0.0)
    document = run(settings, out, silent)
    assert {r.unit for r in load(out).results} == {"subject"}
    assert document.exposed is not None
    assert not document.exposed.records
    assert document.exposed.subjects
    page = render(document)
    assert "Who is in the training data" in page
    assert "the very records that were trained on" in page
    assert "Records of the person it asks about" in page
    assert "label of the record it asks about" not in page
    assert "a subject of the training data" in document.headlines[0].sentence
    assert "subjects in the training data" in " ".join(document.headlines[0].details)
    rules = [parse_rule(text) for text in ("auc[attack=subject-fta] > 0.6", "balanced-accuracy@25 > 0.6")]
    assert gate(out, rules).exit_code == 1
    assert " people at " in plan_of(stage(settings)).first
    again = replay(out, [], tmp_path / "again", silent)
    assert {h.attack: h.estimates for h in again.headlines} == {h.attack: h.estimates for h in document.headlines}
    stored = json.loads((out / "run.json").read_text())["config"]
    assert (stored["audit"]["unit"], stored["federation"]["fresh"]) == ("subject", 0.0)


@pytest.mark.parametrize("calibration", [0, 40, 400])
def test_nothing_found_is_no_evidence_and_says_what_could_have_been_seen(calibration: int) -> None:
    """Nobody is called safe: what was not found may be less than what could have been."""
    rng = np.random.default_rng(0)
    block = Block(rng.random(70), rng.random(150), rng.random(calibration))
    found = {e.name: e for e in (auc([block]), tpr_at_fpr([block], 0.05))}
    headline = Headline("client", "subject-fta", "global", found, 1)
    behind = AuditResult("subject-fta", "client", "global", "subject", None, round=4, estimates=found, cost=Cost(0.1))
    (told,) = builder.told([headline], [behind], 4)
    tone, sentence = told.tone, " ".join([told.sentence, *told.details])
    visible = smallest_visible_auc(Sizes(70, 150, calibration))
    assert (
        "The smallest risk that this audit could have seen, with 70 members and 150 outsiders, is an AUC of "
        in sentence
    )
    assert f"{visible:.3f}" in sentence
    assert tone == ("none" if calibration else "unknown")
    assert ("No evidence was found that" in sentence) == (calibration > 0)
    assert ("On average no evidence was found that" in sentence) == (calibration == 0)
    least = smallest_visible_tpr(Sizes(70, 150, calibration), 0.05) if calibration else None
    assert ("picked out at 5 % false accusations" in sentence) == (least is not None) == (calibration == 400)
    assert re.search(r"\bsafe\b", sentence) is None


def test_where_the_share_is_not_settled_chance_on_average_is_still_said() -> None:
    short = "the lower end is 0 until there are 4 more calibration non-members"
    found = {
        "auc": Estimate("auc", 0.533, 0.472, 0.592, 0.95, "", "measured", 175, 175),
        "tpr@0.05": Estimate("tpr@0.05", 0.06, 0.0, 0.147, 0.95, "", "measured", 175, 175, n_cal=60, reason=short),
    }
    headline = Headline("client", "subject-loss", "global", found, 1)
    for unit, words in (("subject", "no evidence was found that it can tell"), ("record", "nothing beyond chance was")):
        behind = AuditResult(
            "subject-loss", "client", "global", cast(Unit, unit), None, round=5, estimates=found, cost=Cost(0.1)
        )
        (told,) = builder.told([headline], [behind], 5)
        details = " ".join(told.details)
        assert told.tone == "unknown"
        assert f"is not settled: 6.0 % of {'subjects in ' if unit == 'subject' else ''}the training" in told.sentence
        assert f"On average {words}" in details
        assert "53.3 % of the time (95 % interval 47.2–59.2; guessing is 50 %)" in details
        assert ("The smallest risk that this audit could have seen" in details) == (unit == "subject")


@pytest.mark.parametrize("scattered", [False, True])
def test_a_promise_about_people_charges_for_every_party_that_holds_them(tmp_path: Path, scattered: bool) -> None:
    plain = people(tmp_path, ["subject-fta"], split_subjects=scattered).as_dict()
    defence = {"name": "higradavg", "noise": 1.0, "clip": 1.0}
    (promise,) = prepare(parse(plain | {"defences": [defence]})).promises
    assert promise.process.unit == "subject"
    steps = {game.size(party) for game in [stage(parse(plain)).game] for party in game.parties}
    once = 8 * -(-max(steps) // 16)  # eight epochs a round, in batches of 16
    assert promise.process.releases == once * (2 if scattered else 1)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_number_of_a_persons_records_drives_the_risk(seed: int) -> None:
    """No two rows are alike, and the attacker has none of those that were trained on. Ten rows of a person at a user
    give nobody away, even with as many steps of training as a thousand rows take; a thousand rows do."""

    def found(items: int, epochs: int) -> Estimate:
        data = {
            "name": "synthetic", "sampling": "normal", "dimensions": 200, "users": 4, "subjects_per_user": 5,
            "items_per_user": items, "subjects": 80, "data_seed": seed,
        }  # fmt: skip
        federation = {"parties": 4, "partition": "subjects", "rounds": 10, "lr": 0.005}
        asked = {
            "data": data,
            "federation": federation | {"local_epochs": epochs, "seed": seed},
            "model": {"hidden": [8]},
            "audit": {"vantages": ["client"], "attacks": ["subject-loss"]},
        }
        return by_attack(watch(prepare(parse(asked))).results)["subject-loss"].estimates["auc"]

    few, longer, many = found(50, 1), found(50, 100), found(5000, 1)
    assert many.low is not None
    assert many.low > 0.5
    assert (many.value or 0) - max(few.value or 0, longer.value or 0) > 0.2  # about .92 against .60 at most
