"""Adversaries with a shadow model: what they find, what they may learn from, and what must come out null."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.adversary.reductions import WholeSeries
from fedaudit.audit import Auditor
from fedaudit.audit.outlooks import own_game
from fedaudit.config.schema import Config
from fedaudit.errors import FedauditError
from fedaudit.federation.simulate import federate
from fedaudit.session import isolation
from fedaudit.session.assemble import SERIES
from fedaudit.session.isolation import Isolation
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import rounds, run
from fedaudit.types import Audit, Moment, Role
from fedaudit.words import all_words
from tests.worlds import config, null_world, silent, watch

ADVERSARIES = ("agg-sh", "agg-mal", "do-sh")


def coins(folder: Path, adversary: str, **federation: Any) -> Config:
    """Labels are coins: whatever a model knows of them, it knows from training."""
    rng = np.random.default_rng(federation.get("seed", 0))
    np.savez(folder / "coins.npz", x=rng.normal(size=(1600, 30)), y=rng.integers(0, 4, 1600))
    return config(
        data={"name": "npz", "path": str(folder / "coins.npz")},
        federation={"rounds": 5, "local_epochs": 4, "parties": 3, **federation},
        audit={"adversary": adversary, "attacks": ["loss", *SERIES]},
    )


def audited(prepared: Prepared) -> Audit:
    for round in rounds(prepared):
        prepared.auditor.observe(round)
    if prepared.isolation:
        prepared.isolation.run(lambda: None)
    return prepared.snapshot()


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_what_can_only_be_memorised_is_found_out(adversary: str, tmp_path: Path) -> None:
    prepared = prepare(coins(tmp_path, adversary))
    audit = audited(prepared)
    if adversary == "agg-mal":
        says_what_it_costs_the_honest_parties(audit)
    entries = {(r.attack, r.party): r for r in audit.results if r.attack in SERIES}
    model, vantage = ("global", "client") if adversary == "do-sh" else ("local", "server")
    assert {(r.model, r.vantage) for r in entries.values()} == {(model, vantage)}
    everybody = {None, *prepared.game.parties} - ({"party-0"} if adversary == "do-sh" else set())
    assert {party for _, party in entries} == everybody  # a party does not attack itself
    for attack in SERIES:
        found = entries[attack, None].estimates["auc"].value
        assert found is not None
        assert found > 0.6, (attack, found)
        decided = entries[attack, None].estimates  # at the threshold that the adversary's own records gave
        accuracy, precision, recall, f1 = (decided[n].value for n in ("accuracy", "precision", "recall", "f1-balanced"))
        assert accuracy is not None
        assert precision is not None
        assert recall is not None
        assert accuracy > 0.55, (attack, accuracy)
        assert f1 == pytest.approx(2 * precision * recall / (precision + recall))
        assert entries[attack, None].cost.epochs
    assert audit.failed == {}


def says_what_it_costs_the_honest_parties(audit: Audit) -> None:
    assert set(audit.accuracy) == {"members", "evaluation", "evaluation under agg-mal"}
    (notice,) = [n for n in all_words(audit.notices) if "agg-mal" in n]
    assert "in the honest federation" in notice


def with_null_parties(prepared: Prepared, settings: Config) -> Prepared:
    """A world in which no candidate was trained on, but in which the shadow's own labels are still true."""
    null = null_world(settings)
    shadow = prepared.settings.shadow
    if shadow and shadow.party:
        (trainer,) = (party for party in null.parties if party.name == shadow.party)
        trained_on = trainer.records  # type: ignore[attr-defined]
        mine = prepared.game.candidates.rows.take(prepared.game.candidates.party == shadow.party)
        shadow = replace(shadow, game=own_game(mine, np.isin(mine.id, trained_on.id)))
        null = replace(null, auditor=Auditor(null.task, null.game, replace(null.settings, shadow=shadow)))
    if prepared.isolation:
        of = prepared.isolation
        alone = Isolation(
            task=null.task,
            game=null.game,
            parties=null.parties,
            settings=of.settings,
            defence=of.defence,
            how=of.shadow.training,
        )
        null = replace(null, isolation=alone)
    return null


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_K8_a_null_world_comes_out_null(adversary: str, tmp_path: Path) -> None:
    settings = coins(tmp_path, adversary, rounds=3, seed=1)
    null = with_null_parties(prepare(settings), settings)
    confidence = 1 - 0.05 / 9
    if null.isolation:
        null.isolation.settings = replace(null.isolation.settings, confidence=confidence)
    null.auditor.settings = replace(null.auditor.settings, confidence=confidence)
    audit = audited(null)
    found = [(r.attack, r.estimates["auc"]) for r in audit.results if r.attack in SERIES and r.party is None]
    assert len(found) == 3
    for attack, estimate in found:
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low <= 0.5 <= estimate.high, (attack, estimate)


def test_an_aggregators_data_are_other_peoples(tmp_path: Path) -> None:
    prepared = prepare(coins(tmp_path, "agg-sh"))
    assert prepared.settings.shadow is not None
    own = prepared.settings.shadow.game
    assert not set(own.candidates.id.tolist()) & set(prepared.game.candidates.id.tolist())
    assert len(own.candidates) == 400
    assert own.truth.mask(Role.MEMBER).sum() == 120  # as large a share as the parties train on


def test_no_label_of_the_audited_party_changes_a_score(tmp_path: Path) -> None:
    """The same rounds with every role of the game permuted: the scores are the same to the bit."""
    prepared = prepare(coins(tmp_path, "agg-sh", rounds=2))
    seen = list(rounds(prepared))
    tables = []
    for order in (slice(None), slice(None, None, -1)):
        truth = replace(prepared.game.truth, role=prepared.game.truth.role[order])
        auditor = Auditor(prepared.task, replace(prepared.game, truth=truth), prepared.settings)
        for round in seen:
            auditor.observe(round)
        tables.append(auditor.score_table()["score"])
    assert tables[0] == tables[1]


def test_rounds_without_the_target_or_the_shadow_are_left_out() -> None:
    table = WholeSeries("logit", 2)
    for round in (1, 3, 4):
        table.observe(Moment(round), {"logit": np.array([1.0, 2.0]) * round})
    assert table.features().tolist() == [[1, 3, 4], [2, 6, 8]]
    assert table.at((3, 4)).tolist() == [[3, 4], [6, 8]]
    assert np.isnan(table.at(())).all()


def test_parties_that_take_part_now_and_then(tmp_path: Path) -> None:
    for adversary in ("agg-sh", "do-sh"):
        settings = coins(tmp_path, adversary, participation=0.67)
        audit = watch(prepare(settings))
        assert audit.failed == {}
        (entry,) = [r for r in audit.results if (r.attack, r.party) == ("gradient-series", None)]
        assert entry.estimates["auc"].value is not None


def test_regression_has_gradients_only() -> None:
    settings = config(
        data={"name": "diabetes"}, federation={"rounds": 4, "local_epochs": 3, "parties": 3},
        audit={"adversary": "agg-sh"},
    )  # fmt: skip
    audit = watch(prepare(settings))
    assert {r.attack for r in audit.results if r.attack in SERIES} == {"gradient-series"}
    assert any("logit-series" in notice and "Left out" in notice for notice in all_words(audit.notices))
    assert audit.failed == {}


def test_wrong_use_is_refused_before_training() -> None:
    with pytest.raises(FedauditError, match="no-adversary"):
        prepare(config(audit={"attacks": ["gradient-series"]}))
    with pytest.raises(FedauditError, match="'agg-sh' needs the vantage 'server'"):
        prepare(config(audit={"adversary": "agg-sh", "vantages": ["client"]}))
    with pytest.raises(FedauditError, match=r"audit\.adversary"):
        config(audit={"adversary": "agg"})


def mal(**audit: Any) -> Config:
    asked = {"adversary": "agg-mal", "attacks": ["loss", "gradient-series"], "fpr": [0.1]} | audit
    return config(federation={"rounds": 2, "parties": 2}, audit=asked)


def test_T33_an_fpr_beyond_each_isolated_party_has_a_value_for_both() -> None:
    settings = mal(fpr=[0.003])  # 574 calibration records together, half of that each
    audit = audited(prepare(settings))
    found = {r.party: r.estimates["tpr@0.003"] for r in audit.results if r.attack == "gradient-series"}
    assert found[None].value is not None
    for party in ("party-0", "party-1"):
        assert found[party].value is None
        assert "more calibration non-members" in str(found[party].reason)


@pytest.mark.parametrize("done", [0, 1])
def test_F14_isolation_that_is_stopped_is_said_and_made_up_for(
    done: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impatient(*args: Any, **options: Any) -> Any:
        started.append(1)
        if len(started) > done:
            raise KeyboardInterrupt
        return federate(*args, **options)

    started: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(isolation, "federate", impatient)
        document = run(mal(), tmp_path, silent, tell=lambda line: None)
    assert document.run.status.startswith("interrupted")
    assert any(f"with {done} of 2 parties isolated" in notice for notice in document.notices)
    series = {r.party for r in document.results if r.attack == "gradient-series"}
    assert series == ({None, "party-0"} if done else set())
    again = run(mal(), tmp_path, silent, tell=lambda line: None)
    assert again.run.status == "complete"
    assert {r.party for r in again.results if r.attack == "gradient-series"} == {None, "party-0", "party-1"}


def test_training_that_is_stopped_leaves_nobody_isolated_and_says_so(tmp_path: Path) -> None:
    def engine(prepared: Prepared, after: Moment, model: Any) -> Any:
        for round in rounds(prepared, after, model):
            yield round
            if round.index == 2:
                raise KeyboardInterrupt

    settings = config(federation={"rounds": 3}, audit={"adversary": "agg-mal", "attacks": ["loss", "gradient-series"]})
    document = run(settings, tmp_path, silent, tell=lambda line: None, engine=engine)
    assert any("gradient-series have no result" in notice for notice in document.notices)


def test_agg_mal_says_what_it_costs_a_regression() -> None:
    asked = {"adversary": "agg-mal", "attacks": ["loss", "gradient-series"]}
    settings = config(data={"name": "diabetes"}, federation={"rounds": 2}, audit=asked)
    (notice,) = [n for n in all_words(audited(prepare(settings)).notices) if "agg-mal" in n]
    assert "mean squared error" in notice
    assert "95% interval" in notice


def test_a_party_knows_its_own_model_under_secure_aggregation() -> None:
    settings = config(
        federation={"rounds": 2, "secagg": True}, audit={"adversary": "do-sh", "attacks": ["loss", "gradient-series"]}
    )
    prepared = prepare(settings)
    assert {bool(trained.state) for trained in next(rounds(prepared)).sent.values()} == {True, False}
    audit = watch(prepared)
    assert audit.failed == {}
    assert "gradient-series" in {r.attack for r in audit.results}
