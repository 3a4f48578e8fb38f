"""Who holds what, and which of it is trained on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedaudit.config.schema import FederationSection
from fedaudit.data.partition import (
    LEAST,
    Parts,
    build,
    by_column,
    by_person,
    dirichlet,
    game,
    game_by_subject,
    iid,
    party_name,
    split_people,
)
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset, Records, Role


def records(n: int) -> Records:
    return dataset("a", np.arange(float(n))[:, None], np.arange(n) % 2, id=np.arange(n)).records


def test_fractions_apply_inside_every_party() -> None:
    rng = np.random.default_rng(0)
    split = game(records(1003), iid(records(1003), 4, rng), 0.3, 0.2, rng)
    for party in split.parties:
        mine = split.candidates.party == party
        n = int(mine.sum())
        assert n in (250, 251)
        assert int((mine & split.truth.mask(Role.MEMBER)).sum()) == round(0.3 * n)
        assert int((mine & split.truth.mask(Role.EVALUATION)).sum()) == pytest.approx(0.2 * n, abs=1)
        assert len(split.members(party)) == round(0.3 * n)
    assert sum(split.truth.mask(role).sum() for role in Role) == 1003


def test_B4_no_record_has_two_roles_or_parties() -> None:
    rng = np.random.default_rng(0)
    parts = iid(records(100), 3, rng)
    assert sorted(np.concatenate([*parts.values()]).tolist()) == list(range(100))
    split = game(records(100), parts, 0.4, 0.4, rng)
    members = np.concatenate([split.members(party).id for party in split.parties])
    assert set(members.tolist()) == set(split.truth.id[split.truth.mask(Role.MEMBER)].tolist())


def test_B3_an_empty_set_is_refused_with_its_numbers() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(FedauditError, match="party-0 has 3 records"):
        game(records(9), iid(records(9), 3, rng), 0.1, 0.3, rng)


def test_party_names_sort_by_number() -> None:
    names = [party_name(i, 100) for i in range(100)]
    assert names == sorted(names)
    assert names[3] == "party-03"


# ------------------------------------------------------------------ label skew


def test_text_has_no_label_to_deal_by() -> None:
    windows = np.random.default_rng(0).integers(0, 4, (90, 6))
    roles = np.array([f"role {i % 9}" for i in range(90)])
    text = dataset("text", windows[:, :-1], windows[:, 1:], subject=roles, tokens=True)
    with pytest.raises(FedauditError, match="no class for each record"):
        dirichlet(text, 3, 1.0, np.random.default_rng(0))
    with pytest.raises(FedauditError, match="no column 'label'"):
        by_column(text, 3, "label")
    parts = by_column(text, 3, "subject")
    assert sorted(map(len, parts.values())) == [30, 30, 30]


def skewed_classes(n: int = 4000, classes: int = 10) -> Dataset:
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, n) ** 2 // classes  # classes of unequal size
    people = rng.integers(0, 300, n)
    age = np.where(people % 7 == 0, 5, people % 5)
    return dataset("a", rng.normal(size=(n, 2)), y, id=np.arange(n), subject=people, attributes={"age": age})


def skew(data: Dataset, parts: Parts) -> float:
    """How far the parties' class shares are from the shares overall, on average."""
    y = data.records.y
    overall = np.bincount(y, minlength=data.classes) / len(y)
    shares = [np.bincount(y[part], minlength=data.classes) / len(part) for part in parts.values()]
    return float(np.mean([np.abs(share - overall).sum() for share in shares]))


def test_dirichlet_deals_every_record_once_and_skews_labels_the_more_the_smaller_beta() -> None:
    data = skewed_classes()
    skews = []
    for beta in (0.1, 1.0, 1000.0):
        parts = dirichlet(data, 5, beta, np.random.default_rng(1))
        assert sorted(np.concatenate([*parts.values()]).tolist()) == list(range(4000))
        skews.append(skew(data, parts))
    even = skew(data, iid(data.records, 5, np.random.default_rng(1)))
    assert skews[0] > 1.5 * skews[1] > 4 * skews[2]
    assert skews[2] == pytest.approx(even, abs=0.1)


def test_dirichlet_shares_have_the_right_mean_and_variance() -> None:
    """A party's share of a class is Beta(beta, (K - 1) beta): mean 1/K, variance (K - 1) / (K^2 (K beta + 1))."""
    data = dataset("a", np.zeros((2000, 1)), np.arange(2000) % 2, id=np.arange(2000))
    rng = np.random.default_rng(2)
    shares = []
    for _ in range(400):
        first = dirichlet(data, 4, 2.0, rng)["party-0"]
        shares.append((data.records.y[first] == 0).sum() / 1000)
    assert np.mean(shares) == pytest.approx(0.25, abs=0.02)
    assert np.var(shares) == pytest.approx(3 / (16 * 9), rel=0.25)


def test_B3_a_dirichlet_draw_that_starves_a_party_is_drawn_again_or_refused() -> None:
    data = skewed_classes(400)
    for seed in range(20):
        parts = dirichlet(data, 8, 0.3, np.random.default_rng(seed))
        assert min(map(len, parts.values())) >= LEAST
    with pytest.raises(FedauditError, match="larger beta"):
        dirichlet(data, 39, 0.01, np.random.default_rng(0))


def test_a_regression_has_no_classes_to_skew() -> None:
    data = dataset("a", np.zeros((50, 1)), np.arange(50.0), id=np.arange(50), regression=True)
    with pytest.raises(FedauditError, match="no classes to skew"):
        dirichlet(data, 2, 1.0, np.random.default_rng(0))


# ------------------------------------------------------------------ columns and subjects


@pytest.mark.parametrize("column", ["label", "subject", "age"])
def test_a_value_of_the_column_belongs_to_one_party(column: str) -> None:
    data = skewed_classes()
    records = data.records
    values = {"label": records.y, "subject": records.subject, "age": records.attributes["age"]}[column]
    assert values is not None
    parts = by_column(data, 4, column)
    held = [set(values[part].tolist()) for part in parts.values()]
    assert sum(len(values) for values in held) == len(set.union(*held)) == len(np.unique(values))
    assert sorted(np.concatenate([*parts.values()]).tolist()) == list(range(len(records)))
    assert min(map(len, parts.values())) > 0


def test_unfit_columns_are_refused() -> None:
    data = skewed_classes()
    with pytest.raises(FedauditError, match="Did you mean 'age'"):
        by_column(data, 4, "aeg")
    with pytest.raises(FedauditError, match="6 values for 40 parties"):
        by_column(data, 40, "age")


def held_by(column: dict[str, Any], parties: int, **more: Any) -> list[str]:
    (name,) = column
    values = column[name]
    data = dataset("a", np.arange(len(values))[:, None] * 1.0, np.arange(len(values)) % 2, **more)
    texts, codes = np.unique(values, return_inverse=True)
    known = {name: tuple(map(str, texts))} if texts.dtype.kind == "U" else {}
    attributes = {name: codes if known else np.array(values)}
    records = replace(data.records, attributes=attributes)
    return sorted(by_column(replace(data, records=records, values=known), parties, name))


def test_parties_bear_the_values_of_their_column() -> None:
    clinics = ["Nord-Klinik"] * 5 + ["Süd-Klinik"] * 4 + ["Ost"] * 3 + ["West"] * 2
    assert held_by({"site": clinics}, 4) == ["Nord-Klinik", "Ost", "Süd-Klinik", "West"]
    assert held_by({"site": clinics}, 2) == ["Nord-Klinik + West", "Süd-Klinik + Ost"]
    assert held_by({"site": clinics}, 1) == ["Nord-Klinik + 3 more"]
    # A number or a letter alone would be mistaken for something else, by whoever reads it and by what redacts it.
    assert held_by({"site": [7] * 3 + [12] * 2}, 2) == ["site 12", "site 7"]
    assert held_by({"site": ["A", "0815", "B 2"]}, 3) == ["B 2", "site 0815", "site A"]


def test_B22_records_of_no_known_party_are_refused() -> None:
    """An empty cell became a party of its own, or part of another one: "C + hospital unknown"."""
    for parties in (2, 3):
        with pytest.raises(FedauditError, match="'site' is empty in 1 of 6 records") as caught:
            held_by({"site": [7] * 3 + [12] * 2 + [-1]}, parties)
        assert caught.value.code == "column-empty"


def test_no_two_values_make_one_party() -> None:
    """A name is one line of at most 60 characters, and values may differ in what that leaves out."""
    long = "x" * 70
    assert held_by({"ward": [f"{long}1", f"{long}2"]}, 2) == [f"{long[:60]} (1)", f"{long[:60]} (2)"]
    assert held_by({"ward": ["upper\nfloor", "upper floor", "cellar"]}, 3) == [
        "cellar (1)", "upper floor (2)", "upper floor (3)"
    ]  # fmt: skip


def test_classes_are_called_as_they_were_and_people_stay_numbered() -> None:
    people = np.repeat(["ann", "bob"], 4)
    for y, names in ((["ill", "well"] * 4, ["ill", "well"]), ([3.0, 5.0] * 4, ["label 3", "label 5"])):
        data = dataset("a", np.zeros((8, 1)), np.array(y), id=np.arange(8), subject=people)
        assert sorted(by_column(data, 2, "label")) == names
        assert sorted(by_column(data, 2, "subject")) == ["party-0", "party-1"]


PARTITIONS: list[dict[str, Any]] = [
    {"partition": "iid"},
    {"partition": "dirichlet", "beta": 0.5},
    {"partition": "column", "column": "label"},
    {"partition": "column", "column": "subject"},
    {"partition": "subjects"},
]


@pytest.mark.parametrize("keys", PARTITIONS)
def test_B13_a_person_has_one_role_in_all_parties(keys: dict[str, Any]) -> None:
    """Under iid, dirichlet and column a person's other records used to be its outsiders: 94 % of the demo's."""
    for seed in range(5):
        shares = {} if keys["partition"] == "subjects" else {"members": 0.3, "nonmembers": 0.3}
        split = build(skewed_classes(), FederationSection(parties=3, **keys, **shares), np.random.default_rng(seed))
        subject = split.candidates.subject
        assert subject is not None
        people = [set(subject[split.truth.mask(role)].tolist()) for role in Role]
        assert sum(map(len, people)) == len(set.union(*people)) == 300
        assert [len(p) for p in people] == pytest.approx([90, 90, 120], abs=3)  # shares of people, a rounding a party
        for party in split.parties:
            mine = split.candidates.party == party
            assert all((mine & split.truth.mask(role)).any() for role in Role)


def test_iid_scatters_a_person_and_subjects_keeps_it_in_one_party() -> None:
    """`partition = "subjects"` used to deal a person's records to all parties."""
    held = {}
    for keys in ({"partition": "iid"}, {"partition": "subjects"}):
        split = build(skewed_classes(), FederationSection(parties=3, **keys), np.random.default_rng(0))
        subject, party = split.candidates.subject, split.candidates.party
        assert subject is not None
        pairs = set(zip(subject.tolist(), party.tolist(), strict=True))
        held[keys["partition"]] = len(pairs) / 300
    assert held["subjects"] == 1
    assert held["iid"] > 2.5


def test_whole_people_are_dealt_evenly_by_their_records() -> None:
    data = skewed_classes()
    parts = by_person(data.records, 4, np.random.default_rng(0))
    assert [*map(len, parts.values())] == pytest.approx([1000] * 4, abs=40)
    assert sorted(np.concatenate([*parts.values()]).tolist()) == list(range(4000))


def test_every_party_has_all_roles_however_few_people_it_has() -> None:
    """Drawn without regard to parties, three people a party would leave a role empty most of the time."""
    people = np.repeat(np.arange(30), 4)
    data = dataset("a", np.zeros((120, 1)), np.arange(120) % 2, id=np.arange(120), subject=people)
    keys = FederationSection(parties=10, partition="column", column="subject", members=0.6, nonmembers=0.2)
    for seed in range(20):
        split = build(data, keys, np.random.default_rng(seed))
        for party in split.parties:
            assert set(split.truth.role[split.candidates.party == party].tolist()) == {role.value for role in Role}


def test_a_person_a_party_is_refused_and_may_be_split_on_request() -> None:
    """Used to make members and outsiders of one person without a word."""
    people = np.repeat(np.arange(4), 30)
    data = dataset("a", np.zeros((120, 1)), np.arange(120) % 2, id=np.arange(120), subject=people)
    keys: dict[str, Any] = {"parties": 4, "partition": "column", "column": "subject"}
    says = r"party-0 has records of 1 people, and a party needs at least 3\. .*split_subjects = true"
    with pytest.raises(FedauditError, match=says) as caught:
        build(data, FederationSection(**keys), np.random.default_rng(0))
    assert caught.value.code == "few-people"
    split = build(data, FederationSection(**keys, split_subjects=True), np.random.default_rng(0))
    assert split_people(split) != []


@pytest.mark.parametrize("keys", PARTITIONS)
def test_split_on_request_is_the_game_that_it_used_to_be(keys: dict[str, Any]) -> None:
    """The slow twin is the former code: parts, then records inside each part, from one generator."""
    data, settings = skewed_classes(), FederationSection(parties=3, split_subjects=True, **keys)
    split, rng = build(data, settings, np.random.default_rng(7)), np.random.default_rng(7)
    if keys["partition"] == "subjects":
        expected = game_by_subject(data.records, iid(data.records, 3, rng), 0.3, 0.3, rng)
    else:
        parts = {
            "iid": lambda: iid(data.records, 3, rng),
            "dirichlet": lambda: dirichlet(data, 3, 0.5, rng),
            "column": lambda: by_column(data, 3, keys["column"]),
        }[keys["partition"]]()
        expected = game(data.records, parts, 0.3, 0.3, rng)
        assert split_people(split) != []
    assert np.array_equal(split.truth.role, expected.truth.role)
    assert np.array_equal(split.candidates.party, expected.candidates.party)


def test_subjects_need_subjects() -> None:
    data = dataset("a", np.zeros((50, 1)), np.arange(50) % 2, id=np.arange(50))
    with pytest.raises(FedauditError, match="subject_key"):
        build(data, FederationSection(partition="subjects"), np.random.default_rng(0))
