"""Audits with reference models: what they find, what they cost, and whose knowledge they stand for."""

from pathlib import Path

import numpy as np
import pytest

from fedaudit.adversary.shadow import References
from fedaudit.defences.memguard import MemGuardOptions
from fedaudit.errors import FedauditError
from fedaudit.session.prepare import prepare
from fedaudit.session.run import run
from fedaudit.types import Audit
from fedaudit.words import all_words
from tests.worlds import config, silent, watch

INFORMED = ["kta-confidence", "kta-loss", "kta-logit", "lira", "rmia", "rmia-slope", "distillation"]


def found(audit: Audit, attack: str, model: str) -> float:
    (entry,) = [r for r in audit.results if (r.attack, r.model, r.party) == (attack, model, None)]
    value = entry.estimates["auc"].value
    assert value is not None
    return value


def test_what_can_only_be_memorised_is_found_out(tmp_path: Path) -> None:
    """Labels are coins: whatever a model knows of them, it knows from training."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "coins.npz", x=rng.normal(size=(1200, 30)), y=rng.integers(0, 4, 1200))
    attacks = [*INFORMED, "distillation-fraction", "outside-lira"]
    settings = config(
        data={"name": "npz", "path": str(tmp_path / "coins.npz")},
        federation={"rounds": 10},
        audit={"attacks": attacks, "reference": {"models": 6}},
    )
    prepared = prepare(settings)
    audit = watch(prepared)
    for attack in attacks:
        for model in ("global", "local"):
            assert found(audit, attack, model) > 0.6, (attack, model)
    charged = prepared.auditor.outlooks.everyone.ledger.charged  # all attacks on a bank pay for it, and nobody else
    assert charged["kta-loss"]["reference"] == charged["kta-logit"]["reference"] > 0
    assert {name for name, of in charged.items() if "outside-plain-reference" in of} == {"outside-lira"}
    informed, outside = (n for n in all_words(audit.notices) if "reference models" in n)
    assert "kta-loss" in informed
    assert "upper estimate" in informed
    assert outside.startswith("outside-lira")


def test_references_are_trained_alike_live_and_again() -> None:
    audit = {"attacks": ["kta-logit", "lira"], "reference": {"models": 4}, "vantages": ["client"]}
    settings = config(federation={"rounds": 3}, audit=audit)
    first, second = prepare(settings), prepare(settings)
    watch(first)
    watch(second)
    assert first.auditor.score_table() == second.auditor.score_table()


def test_candidates_of_an_outsider_are_not_its_own_data() -> None:
    prepared = prepare(config(audit={"attacks": ["outside-lira"], "reference": {"models": 4}}))
    references = prepared.settings.references
    assert references is not None
    assert references.own is not None
    assert not set(references.own.id.tolist()) & set(prepared.game.candidates.id.tolist())
    assert len(references.own) == pytest.approx(len(prepared.dataset.records) / 2, abs=2)
    assert np.array_equal(np.sort(references.own.id), references.own.id)


def test_odd_numbers_of_models_are_refused() -> None:
    with pytest.raises(FedauditError, match=r"audit\.reference\.models"):
        config(audit={"reference": {"models": 5}})
    with pytest.raises(FedauditError, match=r"audit\.reference\.alpha"):
        config(audit={"reference": {"alpha": float("nan")}})


def test_variance_is_shared_up_to_sixteen_models() -> None:
    def variance(**reference: object) -> object:
        prepared = prepare(config(audit={"attacks": ["lira"], "reference": reference}))
        return prepared.settings.attacks[0].spread  # type: ignore[attr-defined]

    assert (variance(models=16), variance(models=18), variance(models=4, variance="record")) == (
        "shared", "record", "record",
    )  # fmt: skip


def test_fusion_takes_scores_of_reference_attacks() -> None:
    fused = {"attacks": ["kta-logit", "outside-kta-confidence", "loss"]}
    audit = watch(prepare(config(audit={"attacks": ["fusion"], "fusion": fused, "reference": {"models": 4}})))
    assert audit.failed == {}
    assert {r.attack for r in audit.results} == {"fusion", "blind"}


def test_fusion_adds_attacks_that_look_at_the_last_model_alone() -> None:
    parts = ["lira", "rmia", "fta-confidence"]
    asked = {"attacks": [*parts, "fusion"], "fusion": {"attacks": parts}, "reference": {"models": 4}}
    prepared = prepare(config(audit={"vantages": ["client"], **asked}))
    audit = watch(prepared)
    assert audit.failed == {}
    sight, by_name = prepared.auditor.outlooks.everyone, {a.name: a for a in prepared.settings.attacks}
    scores = prepared.auditor.case().scores
    expected = np.zeros(len(sight.id))
    for name in parts:
        known = by_name[name].score(sight.reductions[name].features()[sight.reference])
        expected += (scores.of(sight, by_name[name]) - known.mean()) / known.std()
    assert scores.of(sight, by_name["fusion"]) == pytest.approx(expected)


def test_references_are_refused_behind_bent_answers() -> None:
    audit = {"attacks": ["lira"], "vantages": ["client", "outsider"]}
    settings = config(audit=audit)
    bent = settings.model_copy(update={"defences": (MemGuardOptions(name="memguard", strength=0.5),)})
    prepare(settings)
    with pytest.raises(FedauditError, match="answers as a defence has bent them"):
        prepare(bent)


def test_F3_a_bank_that_cannot_be_made_costs_its_own_attacks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: References, task: object, name: str, *rest: object) -> object:
        if name == "plain-reference":
            raise RuntimeError
        return bank(self, task, name, *rest)  # type: ignore[arg-type]

    bank = References.bank
    monkeypatch.setattr(References, "bank", refuse)
    audit = {"attacks": ["loss", "lira", "kta-logit"], "reference": {"models": 4}}
    found = watch(prepare(config(federation={"rounds": 2}, audit=audit)))
    assert set(found.failed) == {"lira"}
    assert {r.attack for r in found.results} == {"loss", "kta-logit", "blind"}


def test_whoever_keeps_no_models_is_told_what_a_kill_would_cost(tmp_path: Path) -> None:
    for keep in ("signals", "snapshots"):
        told: list[str] = []
        audit = {"attacks": ["loss", "kta-logit"], "reference": {"models": 4}, "keep": keep}
        run(config(federation={"rounds": 2}, audit=audit), tmp_path / keep, silent, tell=told.append)
        assert any("kta-logit" in line and "lost" in line for line in told) == (keep == "signals")
