"""Games about people: who is trained on, what the adversary has, and what may not tell members from others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.config.schema import Config, parse
from fedaudit.data.subjects import CAP
from fedaudit.data.subjects import people as owners
from fedaudit.errors import FedauditError
from fedaudit.session.prepare import Staged, stage
from fedaudit.types import Game, Role
from fedaudit.words import words


def people(tmp_path: Path, data: dict[str, Any] | None = None, audit: Any = None, **federation: Any) -> Config:
    """A hundred people with 2 to 240 records each, of four sessions."""
    rng = np.random.default_rng(0)
    sizes = np.concatenate([[240, 230, 1], rng.integers(2, 40, 97)])
    subject = np.repeat([f"person {i:02d}" for i in range(100)], sizes)
    x = rng.normal(size=(len(subject), 5)).astype(np.float32)
    session = rng.integers(0, 4, len(x))
    y, id = rng.integers(0, 2, len(x)), np.arange(len(x))
    np.savez(tmp_path / "people.npz", x=x, y=y, id=id, subject=subject, session=session)
    return parse({
        "data": {"name": "npz", "path": str(tmp_path / "people.npz")} | (data or {}),
        "federation": {"parties": 3, "rounds": 2, "partition": "subjects"} | federation,
        "audit": audit or {},
    })  # fmt: skip


def trained_rows(game: Game) -> tuple[set[str], dict[str, set[str]]]:
    by_party = {party: set(game.members(party).id.tolist()) for party in game.parties}
    return set.union(*by_party.values()), by_party


def test_a_candidate_is_a_person_and_fresh_records_are_nobodys(tmp_path: Path) -> None:
    staged = stage(people(tmp_path, fresh=0.4))
    game, records = staged.game, staged.dataset.records
    candidates, owner = game.candidates, game.candidates.owner
    assert candidates.unit == "subject"
    assert records.subject is not None
    assert len(candidates) == 99  # who has a single record is left out, and the audit says so
    (told,) = (one for one in staged.request.notices if one.code == "single-record")
    assert told.data == {"people": 1, "of": 100, "sessions": False, "fresh": 0.4}
    assert words(told).startswith("1 of 100 people have a single record")
    trained, by_party = trained_rows(game)
    assert not trained & set(candidates.rows.id.tolist())
    assert sum(map(len, by_party.values())) == len(trained)  # none in two
    subject_of = dict(zip(records.id.tolist(), records.subject.tolist(), strict=True))
    member = set(candidates.id[game.truth.mask(Role.MEMBER)].tolist())
    assert {subject_of[id] for id in trained} == member
    assert [subject_of[id] for id in candidates.rows.id.tolist()] == candidates.id[owner].tolist()
    for party in game.parties:  # everybody lies in one party
        mine = set(candidates.id[candidates.of_party(party)].tolist())
        assert {subject_of[id] for id in by_party[party]} == mine & member


@pytest.mark.parametrize("fresh", [0.0, 0.25, 0.5])
def test_members_and_nonmembers_are_thinned_and_capped_alike(tmp_path: Path, fresh: float) -> None:
    """The number of an adversary's records follows from the number of the person's, whatever its role."""
    staged = stage(people(tmp_path, fresh=fresh))
    game, records = staged.game, staged.dataset.records
    names, person = owners(records)
    whole = dict(zip(names.tolist(), np.bincount(person).tolist(), strict=True))
    shown = np.bincount(game.candidates.owner, minlength=len(game.candidates))
    for name, count in zip(game.candidates.id.tolist(), shown.tolist(), strict=True):
        n = whole[name]
        kept = n if fresh == 0 else min(max(round(fresh * n), 1), n - 1)
        assert count == min(kept, CAP)
    if fresh == 0:  # the adversary has the trained records
        member = game.truth.mask(Role.MEMBER)[game.candidates.owner]
        assert set(game.candidates.rows.id[member].tolist()) <= trained_rows(game)[0]


def test_windows_of_one_session_are_never_on_both_sides(tmp_path: Path) -> None:
    staged = stage(people(tmp_path, {"session_key": "session"}, fresh=0.5))
    game, records = staged.game, staged.dataset.records
    trained = np.isin(records.id, list(trained_rows(game)[0]))
    shown = np.isin(records.id, game.candidates.rows.id)
    of = np.char.add(np.char.add(records.subject, "/"), records.attributes["session"].astype(str))  # type: ignore[arg-type]
    assert not set(of[trained].tolist()) & set(of[shown].tolist())
    assert not trained[shown].any()
    without = stage(people(tmp_path, fresh=0.5)).game
    split = np.isin(records.id, list(trained_rows(without)[0]))
    assert set(of[split].tolist()) & set(of[np.isin(records.id, without.candidates.rows.id)].tolist())


def test_a_person_may_be_scattered_over_the_parties(tmp_path: Path) -> None:
    staged = stage(people(tmp_path, split_subjects=True))
    game, records = staged.game, staged.dataset.records
    subject_of = dict(zip(records.id.tolist(), records.subject.tolist(), strict=True))  # type: ignore[union-attr]
    trained, by_party = trained_rows(game)
    assert sum(map(len, by_party.values())) == len(trained)
    in_several = [{subject_of[id] for id in own} for own in by_party.values()]
    assert len(set.intersection(*in_several)) > 10
    assert set(game.candidates.party.tolist()) == {"several"}
    member = game.truth.mask(Role.MEMBER)
    for party, own in by_party.items():  # a party's local model is asked about the members whose records it has
        mine = game.candidates.of_party(party)
        assert set(game.candidates.id[mine[member[mine]]].tolist()) == {subject_of[id] for id in own}
        assert (~member[mine]).sum() > 20
    assert game.seen_by("party-1").candidates.party.tolist() == ["party-1"] * len(game.candidates)


def test_the_record_may_stay_the_unit(tmp_path: Path) -> None:
    game = stage(people(tmp_path, audit={"unit": "record", "attacks": ["loss"]})).game
    assert game.candidates.unit == "record"
    assert game.training is None


def test_both_names_of_the_outsiders_mean_the_same(tmp_path: Path) -> None:
    new = stage(people(tmp_path, member_subjects=0.4, nonmember_subjects=0.35))
    old = stage(people(tmp_path, member_subjects=0.4, held_out=0.35))
    assert np.array_equal(new.game.truth.role, old.game.truth.role)
    assert new.game.truth.mask(Role.MEMBER).sum() == pytest.approx(0.4 * 99, abs=2)
    assert new.game.truth.mask(Role.EVALUATION).sum() == pytest.approx(0.35 * 99, abs=2)


@pytest.mark.parametrize(("federation", "audit", "message"), [
    ({"held_out": 0.3, "nonmember_subjects": 0.3}, {}, "two names of one thing"),
    ({"fresh": 1.0}, {}, "fresh"),
    ({"fresh": 0.2}, {"unit": "record"}, "fresh has no effect"),
    ({"member_subjects": 0.6, "nonmember_subjects": 0.4}, {}, "leave subjects for calibration"),
    ({"partition": "iid"}, {"unit": "subject"}, "needs federation.partition = 'subjects'"),
    ({"partition": "iid", "fresh": 0.5}, {}, "fresh has no effect when audit.unit is not 'subject'"),
    ({}, {"attacks": ["loss"]}, "asks about records, and this game about people"),
    ({"partition": "iid"}, {"attacks": ["subject-loss"]}, "asks about people, and this game about records"),
    ({}, {"adversary": "agg-sh"}, "are about records"),
    ({"parties": 60}, {}, "subjects"),
    ({"partition": "column", "column": "label", "split_subjects": True}, {"unit": "subject"}, "split_subjects and"),
    ({"partition": "column", "column": "label", "coins": True}, {"unit": "subject"}, "coins and audit.unit"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(tmp_path: Path, federation: Any, audit: Any, message: str) -> None:
    with pytest.raises(FedauditError, match=message):
        stage(people(tmp_path, audit=audit, **federation))


def test_data_without_people_are_refused() -> None:
    with pytest.raises(FedauditError, match="no-subjects"):
        stage(parse({"data": {"name": "digits"}, "federation": {"partition": "subjects"}}))


# ------------------------------------------------------------------ federations that the data describe


def synthetic(**federation: Any) -> Staged:
    data = {"name": "synthetic", "dimensions": 3, "users": 4, "subjects_per_user": 5, "items_per_user": 100}
    return stage(parse({"data": data, "federation": {"parties": 4, "partition": "subjects", "rounds": 2} | federation}))


def test_a_synthetic_federation_brings_its_parties_and_its_adversary() -> None:
    staged = synthetic()
    game, records = staged.game, staged.dataset.records
    assert [game.size(party) for party in game.parties] == [100] * 4
    user = records.attributes["user"]
    assert set(game.candidates.rows.id.tolist()) <= set(records.id[user < 0].tolist())
    held = set(records.subject[user >= 0].tolist())  # type: ignore[index]
    assert set(game.candidates.id[game.truth.mask(Role.MEMBER)].tolist()) == held
    for number, party in enumerate(game.parties):
        mine = game.candidates.of_party(party)
        members = game.candidates.id[mine][game.truth.mask(Role.MEMBER)[mine]]
        assert set(members.tolist()) == set(records.subject[user == number].tolist())  # type: ignore[index]
    assert set(np.bincount(game.candidates.owner).tolist()) == {100}
    assert min(game.truth.mask(role).sum() for role in Role) > 10


def test_item_based_the_adversary_has_what_the_users_hold() -> None:
    game, fresh = synthetic(fresh=0.0).game, synthetic().game
    member = game.truth.mask(Role.MEMBER)[game.candidates.owner]
    assert set(game.candidates.rows.id[member].tolist()) <= trained_rows(game)[0]
    others = fresh.candidates.rows.id[~fresh.truth.mask(Role.MEMBER)[fresh.candidates.owner]]
    assert set(game.candidates.rows.id[~member].tolist()) == set(others.tolist())


def test_a_synthetic_federation_fixes_the_number_of_parties() -> None:
    with pytest.raises(FedauditError, match=r"Set federation\.parties = 4"):
        synthetic(parties=3)
    with pytest.raises(FedauditError, match='partition = "subjects"'):
        stage(parse({"data": {"name": "synthetic"}, "federation": {"parties": 10}}))
