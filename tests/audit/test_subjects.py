"""People with records in several parties: they stay one person in everything that is said of all parties."""

import hashlib
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from fedaudit.config.schema import Config, parse
from fedaudit.results.exposure import most_exposed
from fedaudit.session.run import prepare
from fedaudit.stats import Block, auc
from fedaudit.types import Role
from tests.worlds import watch

ROLES = (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)


def people(tmp_path: Path, attacks: list[str]) -> Config:
    """Ninety people, whole people trained on or not, each with records in every party."""
    x, y = load_digits(return_X_y=True)
    np.savez(tmp_path / "people.npz", x=x / 16, y=y, subject=np.arange(len(x)) % 90)
    return parse({
        "data": {"name": "npz", "path": str(tmp_path / "people.npz")},
        "federation": {
            "partition": "subjects", "member_subjects": 0.3, "held_out": 0.3, "parties": 3, "rounds": 3, "lr": 3e-3
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
    for panel in prepared.auditor.each.values():
        scores, whose = panel.scores(attack), names[panel.index]
        sets = [panel.role == role.value for role in ROLES]
        (members, evaluation, calibration), own = (scores[s] for s in sets), tuple(whose[s] for s in sets)
        blocks.append(Block(members, evaluation, calibration, (own[0], own[1], own[2])))
    shared = set(names[prepared.auditor.each["party-0"].index]) & set(names[prepared.auditor.each["party-1"].index])
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
    assert {row["id_hash"] for row in found["subjects"]} <= hashes
