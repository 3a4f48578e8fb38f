"""The matched filter as an attack: what it finds, from where, and that it finds nothing where there is nothing."""

from typing import Any

import numpy as np
import pytest

from fedaudit.adversary.signals.updates import FilterOptions
from fedaudit.errors import FedauditError
from fedaudit.session.assemble import filter_options
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.types import Audit
from fedaudit.words import all_words
from tests.worlds import config, null_world, watch

ASKED: dict[str, Any] = {
    "attacks": ["matched-filter", "matched-filter-peer", "round-gain", "projres", "inverse-hessian"]
}


def pooled(audit: Audit) -> dict[tuple[str, str], Any]:
    return {(r.attack, r.model): r for r in audit.results if r.party is None}


def test_it_finds_what_was_trained_on_from_local_and_from_global_models() -> None:
    federation = {"parties": 3, "rounds": 5, "members": 0.15, "nonmembers": 0.3}
    prepared = prepare(config(federation=federation, model={"hidden": [256]}, audit=ASKED))
    audit = watch(prepared)
    assert audit.failed == {}
    found = pooled(audit)
    local, together = (found["matched-filter", model] for model in ("local", "global"))
    assert local.estimates["auc"].low > 0.8
    assert together.estimates["auc"].low > 0.6
    assert local.layer == together.layer == "1"  # the largest linear layer, behind nn.Flatten
    peer = found["matched-filter-peer", "global"]
    assert peer.estimates["auc"].low > together.estimates["auc"].value - 0.1
    parties = {r.party for r in audit.results if r.attack == "matched-filter-peer"}
    assert parties == {None, "party-1", "party-2"}  # the first party does not ask about itself
    assert ("matched-filter-peer", "local") not in found


@pytest.mark.parametrize("fit", ["all", "nonmembers"])
def test_K8_nothing_is_found_where_nothing_was_trained_on(fit: str) -> None:
    asked = {"attacks": ["matched-filter", "round-gain", "projres", "inverse-hessian"], "matched": {"fit": fit}}
    audit = watch(null_world(config(federation={"rounds": 4}, audit=asked)))
    assert audit.failed == {}
    for (attack, model), result in pooled(audit).items():
        found = result.estimates["auc"]
        assert found.low <= 0.5 <= found.high, (attack, model, found)


def test_known_non_members_that_it_is_fitted_on_set_no_threshold() -> None:
    for fit, bars in (("all", False), ("nonmembers", True)):
        prepared = prepare(config(audit={"attacks": ["matched-filter"], "matched": {"fit": fit}}))
        (attack,) = prepared.settings.attacks
        assert attack.calibrates_less is bars
        prepared.auditor.observe(next(rounds(prepared)))
        sight, scores = prepared.auditor.outlooks.everyone, prepared.auditor.case().scores
        known = int((sight.role == "calibration").sum())
        left = len(scores.block(sight, attack).calibration)
        assert left == known - bars * int(sight.reference.sum())


def test_a_running_sum_of_standardised_rounds_weighted_with_the_strength_of_each() -> None:
    prepared = prepare(config(audit={"vantages": ["client"], "attacks": ["matched-filter"]}))
    (attack,) = prepared.settings.attacks
    values, strengths = [], []
    for round in rounds(prepared):
        seen = prepared.auditor.observe(round)
        assert seen is not None
        values.append(seen.of[None].values["matched-filter"])
        strengths.append(seen.of[None].values["matched-strength"])
        assert seen.of[None].layers == {"matched-filter": "1"}
    sight = prepared.auditor.outlooks.everyone
    naive = [
        sum(w * z for w, z in zip(strength, value, strict=True)) / sum(w * w for w in strength) ** 0.5
        for value, strength in zip(np.transpose(values), np.transpose(strengths), strict=True)
    ]
    assert prepared.auditor.case().scores.of(sight, attack) == pytest.approx(naive)
    assert np.min(strengths) > 0
    assert values[0].mean() == pytest.approx(0.0, abs=1e-6)
    assert values[0].std() == pytest.approx(1.0, abs=1e-2)


def test_how_it_is_set_follows_from_the_configuration() -> None:
    def options(*defences: dict[str, Any], **sections: Any) -> FilterOptions:
        prepared = prepare(config(**sections).model_copy()) if not defences else None
        if prepared is not None:
            return filter_options(prepared.config, prepared.promises)
        from fedaudit.config.schema import parse

        whole = prepare(parse({**config(**sections).as_dict(), "defences": list(defences)}))
        return whole.settings.filter

    assert options() == FilterOptions("all", 0.1, None, True)
    assert options(federation={"optimizer": "sgd"}).adaptive is False
    assert options({"name": "dp-sgd", "noise": 1.0, "clip": 1.0}) == FilterOptions("all", 10.0, None, False)
    assert options({"name": "dp-fedavg", "noise": 1.0, "clip": 1.0}).damping == 1.0
    asked = {"matched": {"damping": 0.5, "layer": "3", "fit": "nonmembers"}}
    assert options(audit=asked) == FilterOptions("nonmembers", 0.5, "3", True)


def test_too_few_known_non_members_to_whiten_are_said() -> None:
    """It was the plain cosine then, and nobody was told."""

    def notices(fit: str) -> list[str]:
        shares = {"parties": 4, "members": 0.6, "nonmembers": 0.35}
        prepared = prepare(config(federation=shares, audit={"attacks": ["matched-filter"], "matched": {"fit": fit}}))
        return [notice for notice in all_words(prepared.settings.notices) if "plain cosine" in notice]

    assert notices("all") == []
    (notice,) = notices("nonmembers")
    assert "fewer than 16 records" in notice


def test_a_layer_that_does_not_exist_is_refused_before_training() -> None:
    with pytest.raises(FedauditError, match="no matched filter for layer 'fc'"):
        prepare(config(audit={"attacks": ["matched-filter"], "matched": {"layer": "fc"}}))
