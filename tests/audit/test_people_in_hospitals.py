"""People who stay in their hospital: partition "column", unit "subject", unequal sites, returning patients."""

import csv
from pathlib import Path

import numpy as np
import pytest

from fedaudit.config.schema import Config, load_config
from fedaudit.session.prepare import prepare, stage
from fedaudit.session.selftest import null_world, watch
from fedaudit.types import Role
from fedaudit.words import all_words
from tests import sites

SHARED = 9  # patients of two hospitals


def asked(folder: Path, *changes: str, visits: int = 4, shared: int = SHARED) -> Config:
    path = sites.config(folder, visits=visits, shared=shared)
    changes = ('audit.unit="subject"', 'audit.vantages=["client","server"]', "federation.members=0.5", *changes)
    return load_config(path, changes)


@pytest.mark.parametrize("fresh", [0.0, 0.5])
def test_people_stay_in_their_hospital_and_have_one_role_everywhere(tmp_path: Path, fresh: float) -> None:
    staged = stage(asked(tmp_path, f"federation.fresh={fresh}"))
    game, records = staged.game, staged.dataset.records
    candidates, hospital = game.candidates, staged.dataset.values["hospital"]
    assert game.parties == sorted(sites.SITES) == sorted(set(candidates.party.tolist()))
    assert records.subject is not None
    with (tmp_path / "patients.csv").open() as file:
        visited = {(row["patient"], row["hospital"]) for row in csv.DictReader(file)}
    at = [hospital[number] for number in records.attributes["hospital"].tolist()]
    of = dict(zip(records.id.tolist(), zip(records.subject.tolist(), at, strict=True), strict=True))
    trained = {party: {of[id] for id in game.members(party).id.tolist()} for party in game.parties}
    for party, theirs in trained.items():
        assert {where for _, where in theirs} == {party}
    members = set(candidates.id[game.truth.mask(Role.MEMBER)].tolist())
    assert {who for theirs in trained.values() for who, _ in theirs} == members
    for party in game.parties:  # each is looked for in the models of the hospitals that would train on it
        mine = candidates.id[candidates.of_party(party)].tolist()
        assert {(who, party) for who in mine} <= visited
        assert set(mine) & members == {who for who, _ in trained[party]}
        roles = game.truth.role[candidates.party == party]
        assert {role.value for role in Role} == set(roles.tolist())
    assert candidates.held_by is not None
    in_two = np.sum(list(candidates.held_by.values()), axis=0) > 1
    told = [line for line in all_words(staged.request.notices) if "records at several parties" in line]
    assert told[0].startswith(f"{in_two.sum()} of {len(candidates)} people have records at several parties.")
    assert (in_two.sum() == SHARED) if not fresh else (0 < in_two.sum() <= SHARED)


def test_where_nobody_is_in_two_hospitals_nothing_is_said_of_it(tmp_path: Path) -> None:
    staged = stage(asked(tmp_path, shared=0))
    assert staged.game.candidates.held_by is None
    assert not [line for line in all_words(staged.request.notices) if "several parties" in line]


def test_patients_who_come_back_are_found_in_their_hospital(tmp_path: Path) -> None:
    found = watch(prepare(asked(tmp_path, "federation.fresh=0", 'audit.attacks=["subject-loss","subject-matched"]')))
    whole = {(r.model, r.attack): r.estimates["auc"] for r in found.results if r.party is None}
    assert whole["local", "subject-matched"].low > 0.7  # type: ignore[operator]
    assert {r.party for r in found.results if r.model == "global"} == {r.party for r in found.results} > {None}
    assert all(r.unit == "subject" for r in found.results if r.attack != "blind")


def test_people_who_were_not_trained_on_are_found_by_chance(tmp_path: Path) -> None:
    found = watch(null_world(asked(tmp_path, "federation.fresh=0", 'audit.attacks=["subject-loss","subject-matched"]')))
    for entry in found.results:
        auc = entry.estimates["auc"]
        if entry.party is None and auc.low is not None:
            assert auc.low <= 0.5 <= auc.high, (entry.attack, entry.model, auc)  # type: ignore[operator]
