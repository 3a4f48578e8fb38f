"""Fair coins in a run: its own scores prove a bound, which depends on nothing that the coins alone know."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.adversary.attacks import DEFAULTS
from fedaudit.audit import Auditor
from fedaudit.config.schema import Config
from fedaudit.data.partition import split_people
from fedaudit.questions.coins import ONE_RUN, QUESTION, Flipped
from fedaudit.questions.coins.judge import _played
from fedaudit.results.document import load
from fedaudit.results.scores import estimate
from fedaudit.session.prepare import prepare
from fedaudit.session.replay import replay
from fedaudit.session.run import rounds, run
from fedaudit.stats import one_run_epsilon
from fedaudit.types import Game, Role, Truth, Vantage, notice
from tests.audit.test_subjects import people
from tests.worlds import config, silent, watch

FEW = ["loss", "fta-confidence"]


def coins(attacks: list[str] | None = None, **federation: Any) -> Config:
    given = {"coins": True, "members": 0.4, "nonmembers": 0.4, "rounds": 3, "local_epochs": 4}
    return config(federation=given | federation, audit={"attacks": attacks or FEW})


def flipped_again(game: Game, rng: np.random.Generator) -> Game:
    """The same candidates with other coins; calibration records stay what they are."""
    tossed = ~game.truth.mask(Role.CALIBRATION)
    heads = np.where(rng.random(len(tossed)) < 0.5, Role.MEMBER.value, Role.EVALUATION.value)
    return replace(game, truth=Truth(game.truth.id, np.where(tossed, heads, game.truth.role)))


def test_a_run_and_its_exported_scores_give_the_same_bound(tmp_path: Path) -> None:
    document = run(coins(), tmp_path / "run", silent)
    pooled = {(r.attack, r.model): r.estimates for r in document.results if r.party is None and r.attack != "blind"}
    assert all(ONE_RUN in found for found in pooled.values())
    for attack in FEW:
        ours = pooled[attack, "global"][ONE_RUN]
        scored = estimate(tmp_path / "run" / "scores.parquet", None, 0.95, 1e-5, attack)
        theirs = scored.epsilons[ONE_RUN]
        assert ours == replace(theirs, method=ours.method)
        assert ours.kind == "proved"
        assert ours.n_pos + ours.n_neg == sum(p.members + p.evaluation for p in document.run.parties)
        assert any("epsilon-one-run is a proof" in line for line in scored.notices)
        assert [name for name, figure in scored.epsilons.items() if figure.kind == "proved"] == [ONE_RUN]
    assert all(ONE_RUN in headline.estimates for headline in document.headlines)
    assert any(line.startswith("Fair coins:") for line in document.notices)
    # Stored, read and replayed it is the same.
    assert list(load(tmp_path / "run").headlines) == list(document.headlines)
    again = replay(tmp_path / "run", [], tmp_path / "run", silent)
    assert list(again.headlines) == list(document.headlines)


def test_a_local_score_is_a_rank_around_the_middle() -> None:
    """So that a party of which nothing was seen, which is put in the middle, is guessed last."""
    prepared = prepare(coins(["loss"], rounds=2, local_epochs=1))
    watch(prepared)
    case, (attack,) = prepared.auditor.case(), prepared.settings.attacks
    for sight in case.outlooks.of(Vantage.SERVER, "local"):
        index, scores, _ = _played(case, attack, sight)
        assert len(scores) == len(index)
        assert scores.mean() == pytest.approx(0.5)


LABELS = ("gap", "gap-rounds")  # of a vantage that this audit does not have
CHEAP = [name for name in DEFAULTS["record"] if name not in LABELS]
OTHERS = ["projres", "inverse-hessian", "fedmia", "source", "matched-filter-peer"]


@pytest.mark.parametrize("attacks", [CHEAP, OTHERS, ["lira", "kta-logit", "rmia", "distillation"]], ids=str)
def test_scores_follow_from_the_trace_and_the_calibration_records_alone(attacks: list[str]) -> None:
    """The same rounds under other coins: not a bit of any score may change."""
    settings = coins(attacks, rounds=2, local_epochs=1)
    settings = settings.model_copy(
        update={"audit": settings.audit.model_copy(update={"reference": type(settings.audit.reference)(models=4)})}
    )
    prepared = prepare(settings)
    seen = list(rounds(prepared))
    tables = []
    for game in (prepared.game, flipped_again(prepared.game, np.random.default_rng(1))):
        auditor = Auditor(prepared.task, game, prepared.settings)
        for round in seen:
            auditor.observe(round)
        tables.append(auditor.score_table())
    assert tables[0]["role"] != tables[1]["role"]
    assert set(tables[0]["attack"]) == set(attacks)
    for column in ("id", "attack", "model", "score", "reference"):
        assert np.array_equal(np.array(tables[0][column]), np.array(tables[1][column])), column


def test_the_choice_of_the_quoted_attack_does_not_tell_how_the_coins_fell() -> None:
    from fedaudit.session.assemble import weights_per_member

    prepared = prepare(coins())
    other = flipped_again(prepared.game, np.random.default_rng(2))
    found = [weights_per_member(prepared.task, game, None, by_coins=True) for game in (prepared.game, other)]
    assert found[0] == found[1] == prepared.settings.weights_per_member
    assert found[0] != weights_per_member(prepared.task, other, None, by_coins=False)


def test_K8_coins_that_the_training_never_saw_are_not_guessed() -> None:
    """The null: coins flipped again after training. The bound is above 0 in 5 % of the cases at most."""
    prepared = prepare(coins())
    watch(prepared)
    table = prepared.auditor.score_table()
    rows = (np.array(table["attack"]) == "loss") & (np.array(table["model"]) == "global")
    tossed = rows & (np.array(table["role"]) != Role.CALIBRATION.value)
    scores, rng = np.array(table["score"], float)[tossed], np.random.default_rng(3)
    bounds = [one_run_epsilon(scores, rng.random(len(scores)) < 0.5, 1e-5).value for _ in range(200)]
    assert sum(bound is not None and bound > 0 for bound in bounds) <= 19  # of 200 at 5 %: once in 300 times


def test_local_scores_are_ranked_inside_each_party() -> None:
    prepared = prepare(coins(["loss"], parties=3))
    audit = watch(prepared)
    (local,) = [r for r in audit.results if (r.model, r.party, r.attack) == ("local", None, "loss")]
    scores, member, index = [], [], []
    for sight in prepared.auditor.outlooks.local.values():
        (attack,) = sight.attacks
        of, tossed = prepared.auditor.case().scores.of(sight, attack), sight.role != Role.CALIBRATION.value
        mine = of[tossed]
        scores += [(sum(other < one for other in mine) + (sum(other == one for other in mine) - 1) / 2 + 0.5)
                   / len(mine) for one in mine]  # fmt: skip
        member += (sight.role[tossed] == Role.MEMBER.value).tolist()
        index += sight.index[tossed].tolist()
    order = np.argsort(index)  # as the game has them, whoever holds them: ties are broken by that order
    found = one_run_epsilon(np.array(scores)[order], np.array(member)[order], 1e-5)
    assert local.estimates[ONE_RUN] == replace(found, method=local.estimates[ONE_RUN].method)


def test_a_coin_for_each_record_implies_split_people_and_says_so(tmp_path: Path) -> None:
    prepared = prepare(people(tmp_path, ["loss"], coins=True))
    assert prepared.config.federation.split_subjects is True
    assert notice("coins-split") in prepared.settings.notices
    assert split_people(prepared.game)
    assert notice("coins-split") not in prepare(coins()).settings.notices  # digits are nobody's


def by_person(tmp_path: Path, attacks: list[str], unit: str) -> Config:
    given = people(tmp_path, attacks).as_dict()
    dropped = ("members", "nonmembers", "split_subjects")
    federation = {key: value for key, value in given["federation"].items() if key not in dropped}
    federation |= {"partition": "subjects", "member_subjects": 0.4, "nonmember_subjects": 0.4, "coins": True}
    return Config.model_validate(given | {"federation": federation, "audit": {"attacks": attacks, "unit": unit}})


def test_one_coin_a_person_is_guessed_by_person(tmp_path: Path) -> None:
    document = run(by_person(tmp_path, ["loss"], "record"), tmp_path / "run", silent)
    (pooled,) = [r for r in document.results if (r.model, r.party, r.attack) == ("global", None, "loss")]
    bound = pooled.estimates[ONE_RUN]
    assert bound.n_pos + bound.n_neg == 72  # of ninety people
    assert "one coin for each person" in bound.method
    theirs = estimate(tmp_path / "run" / "scores.parquet", None, 0.95, 1e-5, "loss").epsilons[ONE_RUN]
    assert bound == replace(theirs, method=bound.method)


def test_an_attack_that_was_told_coins_guesses_only_those_it_was_not_told(tmp_path: Path) -> None:
    """In a game about people attacks are tuned on known ones: with other coins among the rest no score changes."""
    prepared = prepare(by_person(tmp_path, ["subject-fta"], "subject"))
    audit = watch(prepared)
    (attack,) = prepared.settings.attacks
    (pooled,) = [r for r in audit.results if (r.model, r.party, r.attack) == ("global", None, attack.name)]
    auditor = prepared.auditor
    index, scores, told = _played(auditor.case(), attack, auditor.outlooks.everyone)
    bound = pooled.estimates[ONE_RUN]
    assert bound.n_pos + bound.n_neg == len(index) - told.sum() == 72 - told.sum()
    assert told.sum() >= 10  # ten known members, and whoever comes before the last of them
    # Whoever is not told might as well have the other role.
    role, rng = prepared.game.truth.role.copy(), np.random.default_rng(4)
    rest = index[~told]
    role[rest] = np.where(rng.random(len(rest)) < 0.5, Role.MEMBER.value, Role.EVALUATION.value)
    assert (role != prepared.game.truth.role).any()
    auditor.outlooks.everyone.role = role
    again = _played(auditor.case(), attack, auditor.outlooks.everyone)
    assert np.array_equal(again[1], scores)
    assert np.array_equal(again[2], told)


def test_the_bound_is_at_the_delta_of_the_claim_about_the_same_unit_and_below_it() -> None:
    noisy = {"name": "dp-sgd", "clip": 1.0, "epsilon": 8.0, "delta": 1e-4}
    settings = coins(["loss"], rounds=2, local_epochs=1)
    guarded = Config.model_validate(settings.as_dict() | {"defences": [noisy]})
    prepared = prepare(guarded)
    assert prepared.settings.asked["coins"].delta == 1e-4
    from fedaudit.privacy.accounting import stated

    audit, claim = watch(prepared), stated(prepared.promises, 2)
    assert claim is not None
    bounds = [headline.estimates[ONE_RUN] for headline in audit.headlines]
    assert all("at delta 0.0001" in bound.method for bound in bounds)
    assert QUESTION.warned(Flipped("record"), audit.headlines, claim) == []
    # A claim that is too small for what was proved is refuted; one about another unit is not compared.
    raised = [replace(h, estimates={**h.estimates, ONE_RUN: replace(h.estimates[ONE_RUN], value=9.0, low=9.0)})
              for h in audit.headlines]  # fmt: skip
    assert all(told.code == "claim-refuted" for told in QUESTION.warned(Flipped("record"), raised, claim))
    assert len(QUESTION.warned(Flipped("record"), raised, claim)) == len(raised)
    assert QUESTION.warned(Flipped("subject"), raised, claim) == []
    assert QUESTION.warned(Flipped("record"), raised, replace(claim, adjacency="replace")) == []
