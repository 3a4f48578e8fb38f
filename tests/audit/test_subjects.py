"""People with records in several parties: they stay one person in everything that is said of all parties."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedaudit.audit.outlooks import split_own
from fedaudit.config.schema import Config, parse
from fedaudit.data.partition import split_people
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.results.exposure import most_exposed
from fedaudit.session.prepare import prepare
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.stats import Block, auc
from fedaudit.types import Role
from tests.worlds import silent, watch

ROLES = (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)


def people(tmp_path: Path, attacks: list[str], **federation: Any) -> Config:
    """Ninety people, whole people trained on or not, each with records in every party."""
    x, y = load_digits(return_X_y=True)
    np.savez(tmp_path / "people.npz", x=x / 16, y=y, subject=np.arange(len(x)) % 90)
    return parse({
        "data": {"name": "npz", "path": str(tmp_path / "people.npz")},
        "federation": {
            "members": 0.3, "nonmembers": 0.3, "parties": 3, "rounds": 3, "lr": 3e-3, **federation
        },
        "model": {"hidden": [64]},
        "audit": {"attacks": attacks},
    })  # fmt: skip


def test_T9_a_person_is_one_person_in_all_parties(tmp_path: Path) -> None:
    prepared = prepare(people(tmp_path, ["loss"]))
    audit = watch(prepared)
    (pooled,) = [r for r in audit.results if (r.attack, r.model, r.party) == ("loss", "local", None)]
    (attack,) = prepared.settings.attacks
    names = prepared.game.candidates.subject
    assert names is not None
    blocks = []
    found, local = prepared.auditor.case().scores, prepared.auditor.outlooks.local
    for sight in local.values():
        scores, whose = found.of(sight, attack), names[sight.index]
        sets = [sight.role == role.value for role in ROLES]
        (members, evaluation, calibration), own = (scores[s] for s in sets), tuple(whose[s] for s in sets)
        blocks.append(Block(members, evaluation, calibration, (own[0], own[1], own[2])))
    shared = set(names[local["party-0"].index]) & set(names[local["party-1"].index])
    assert len(shared) > 80
    assert pooled.estimates["auc"] == auc(blocks)
    assert all("clustered by subject" in found.method for found in audit.accuracy.values())


def test_T9_naming_the_source_counts_people(tmp_path: Path) -> None:
    audit = watch(prepare(people(tmp_path, ["loss", "source"])))
    assert audit.failed == {}
    found = {r.party: r.estimates for r in audit.results if r.attack == "source"}
    assert "clustered by subject" in found[None]["accuracy"].method
    assert found["party-0"]["auc-other-party"].value is not None


def test_the_most_exposed_people_are_hashed_by_name(tmp_path: Path) -> None:
    """So that whoever knows the key finds them again, in every audit of the same data."""
    prepared = prepare(people(tmp_path, ["loss"]))
    found = most_exposed(prepared.auditor, watch(prepared).headlines, "key")
    names = prepared.game.candidates.subject
    assert found is not None
    assert names is not None
    hashes = {hashlib.sha256(f"key|{name}".encode()).hexdigest()[:12] for name in set(names.tolist())}
    assert {row.id_hash for row in found.subjects or ()} <= hashes


def test_an_aggregators_own_people_are_whole(tmp_path: Path) -> None:
    """Its shadow used to be trained on some records of a person and told apart by the others."""
    x, y = load_digits(return_X_y=True)
    own = dataset("own", x, y, subject=np.arange(len(x)) % 90).records
    for split in (False, True):
        game = split_own(own, 0.3, seed=0, split_subjects=split)
        assert game.truth.mask(Role.MEMBER).mean() == pytest.approx(0.3, abs=0.01)
        assert bool(split_people(game)) == split


def test_a_run_says_what_its_outsiders_are_and_goes_on_with_them(tmp_path: Path) -> None:
    """Split people halved the risk without a word."""
    out, whole = tmp_path / "split", people(tmp_path, ["loss"])
    split = people(tmp_path, ["loss"], split_subjects=True)
    document = run(split, out, silent)
    (said,) = document.understates
    assert "non-members belong to people who were trained on" in said
    assert said in document.warnings
    told: list[str] = []
    assert run(whole, out, silent, tell=told.append).understates == (said,)
    assert any("Nothing is trained" in line for line in told)
    with pytest.raises(FedauditError, match="split_subjects was True and is now False"):
        run(people(tmp_path, ["loss"], split_subjects=False), out, silent)
    assert replay(out, [], tmp_path / "again", silent).understates == [said]
    assert prepare(whole).config.federation.split_subjects is False
    assert split_people(prepare(whole).game) == []
