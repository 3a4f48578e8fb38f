"""Columns that look like ids and are not declared: refused, with the line to write. Measurements are not."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

from fedaudit.config.schema import parse
from fedaudit.data import load
from fedaudit.data.cells import read_columns
from fedaudit.data.ids import found, says_whose
from fedaudit.data.papers import CATEGORICAL, NUMERIC, adult_from_npz
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset
from fedaudit.words import all_words
from tests.data.test_loaders import SHARED, shared

Columns = Mapping[str, Any]


def written(path: Path, columns: Columns) -> Path:
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows(zip(*columns.values(), strict=True))
    return path


def read(path: Path, **options: Any) -> Dataset:
    return load(parse({"data": {"name": "table", "path": str(path), "label": "outcome"} | options}).data)


def ids(folder: Path, columns: Columns, subject: str | None = None) -> list[str]:
    held = read_columns(written(folder / "table.csv", columns))
    return found({name: column for name, column in held.items() if name not in ("outcome", subject)}, held, subject)


def visits(seed: int, people: int = 300) -> dict[str, Any]:
    """About three visits a person; some of what is written down is the person's own."""
    rng = np.random.default_rng(seed)
    number = rng.permutation(90_000)[:people]
    person = np.repeat(np.arange(people), 1 + rng.poisson(2, people))
    person = rng.permutation(person)
    return {
        "nr": number[person],
        "age": rng.integers(18, 90, people)[person],
        "sex": np.array(["f", "m"])[rng.integers(0, 2, people)][person],
        "pulse": rng.integers(50, 110, len(person)),
        "crp": np.round(rng.lognormal(1, 1, len(person)), 2),
        "outcome": rng.integers(0, 2, len(person)),
    }


@pytest.mark.parametrize("seed", range(5))
def test_B22_a_number_that_repeats_like_an_id_is_found_whatever_its_name(tmp_path: Path, seed: int) -> None:
    table = visits(seed)
    assert ids(tmp_path, table) == ["nr"]
    assert ids(tmp_path, table | {"nr": [f"p{number}" for number in table["nr"]]}) == ["nr"]
    some_missing = [number if i % 17 else "" for i, number in enumerate(table["nr"])]
    assert ids(tmp_path, table | {"nr": some_missing}) == ["nr"]


def test_a_person_is_known_by_what_is_measured_as_well(tmp_path: Path) -> None:
    """Nothing is written down that stays the same, but values that differ less within a person."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(600), 3)
    level, visit = rng.normal(size=(600, 4))[person], rng.normal(size=(1800, 4))
    measured = {f"x{i}": np.round(0.8 * level[:, i] + 0.6 * visit[:, i], 3) for i in range(4)}
    assert ids(tmp_path, {"case": person, **measured, "outcome": rng.integers(0, 2, 1800)}) == ["case"]


@pytest.mark.parametrize("name", ["nr", "patient"])
def test_what_is_a_persons_own_is_no_id_once_the_person_is_known(tmp_path: Path, name: str) -> None:
    """A date of birth stands in as many rows as the person, and goes with everything that is the person's own."""
    rng, table = np.random.default_rng(0), visits(0)
    person = np.unique(table["nr"], return_inverse=True)[1]
    own = {"born": rng.integers(0, 30_000, 300), "income": rng.normal(3e4, 9e3, 300), "zip": rng.integers(0, 250, 300)}
    table = {name: table.pop("nr"), **table, **{key: values[person].astype(int) for key, values in own.items()}}
    assert ids(tmp_path, table) == [name]
    assert ids(tmp_path, table, subject=name) == []
    household = person // 2 * 7 + 1
    address = np.array(["a", "b", "c", "d"])[rng.integers(0, 4, 150)][person // 2]
    assert ids(tmp_path, table | {"hh": household, "address": address}, subject=name) == ["hh"]


def test_the_line_to_write_is_said_and_works(tmp_path: Path) -> None:
    path = written(tmp_path / "visits.csv", visits(0))
    with pytest.raises(FedauditError) as caught:
        read(path, drop=["crp"])
    assert (caught.value.code, caught.value.exit_code) == ("table-id", 2)
    assert "column 'nr' repeats like an id" in caught.value.what
    for line in ('subject = "nr"', 'drop = ["crp", "nr"]', "keep_ids = true"):
        assert line in caught.value.todo
    assert read(path, subject="nr").records.subject is not None
    assert read(path, drop=["nr"]).records.x.shape[1] == 4
    kept = read(path, keep_ids=True)
    assert kept.records.x.shape[1] == 5
    assert all_words(kept.notices) == ["Learnt from, though they look like ids (data.keep_ids): 'nr'."]


def test_what_is_declared_already_is_not_offered_again(tmp_path: Path) -> None:
    table = visits(0)
    path = written(tmp_path / "visits.csv", table | {"visit_id": np.arange(len(table["nr"]))})
    with pytest.raises(
        FedauditError, match=r"'visit_id' looks like an id as well.*subject = \"nr\".*id = \"visit_id\""
    ):
        read(path)
    with pytest.raises(FedauditError, match=r"write what is true of it: id = \"visit_id\" \(it names the row\), drop"):
        read(path, subject="nr")
    assert len(read(path, subject="nr", id="visit_id").records) == len(table["nr"])


@pytest.mark.parametrize(
    "name",
    ["patient", "Person", "user", "ID", "subject", "household", "patient_id", "PatientID", "user-id", "userId",
     "PATIENTID", "patientid", "Patient No.", "patient_nbr", "household key", "anon_person_id"],
)  # fmt: skip
def test_B22_names_that_say_whose_a_record_is(tmp_path: Path, name: str) -> None:
    assert says_whose(name)
    rng = np.random.default_rng(0)
    table = {name: rng.integers(0, 9, 60), "a": rng.normal(size=60), "outcome": rng.integers(0, 2, 60)}
    assert ids(tmp_path, table) == [name]
    assert ids(tmp_path, table | {name: [f"p{value}" for value in table[name]]}) == [name]
    assert ids(tmp_path, table | {name: rng.integers(0, 2, 60)}) == []  # a patient or a healthy person: yes or no


def test_an_id_of_something_else_is_one_if_it_has_many_values(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {"a": rng.normal(size=1000), "outcome": rng.integers(0, 2, 1000)}
    assert ids(tmp_path, {"admission_type_id": rng.integers(1, 9, 1000), **table}) == []
    assert ids(tmp_path, {"encounter_id": rng.integers(0, 400, 1000), **table}) == ["encounter_id"]


@pytest.mark.parametrize(
    "name",
    ["patient_age", "household_income", "Household size", "user_rating", "number_of_persons", "subject_weight",
     "is_patient", "paid", "grid", "covid", "personality", "idle", "user_agent"],
)  # fmt: skip
def test_names_that_say_something_else(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    assert ids(tmp_path, {name: rng.integers(0, 150, 900), "outcome": rng.integers(0, 2, 900)}) == []


@pytest.mark.parametrize("rows", [600, 5000])
@pytest.mark.parametrize("seed", range(4))
def test_B22_what_is_measured_or_counted_is_no_id(tmp_path: Path, seed: int, rows: int) -> None:
    """Beside columns that follow from them, as a year of birth from an age."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(55, 18, rows), 0, 99).astype(int)
    day = np.sort(rng.integers(0, 900, rows))
    places = np.sort(rng.choice(np.arange(10_000, 99_999), 400, replace=False))
    sizes = rng.lognormal(0, 1, 400)
    postcode = rng.choice(places, rows, p=sizes / sizes.sum())
    kinds = 1 / np.arange(1, 251) ** 0.9
    code = rng.choice(rng.permutation(250), rows, p=kinds / kinds.sum())
    chapter = rng.integers(0, 12, 250)
    grams = rng.normal(3400, 500, rows).astype(int)
    columns = {
        "age": age, "born": 2026 - age, "retired": (age >= 65).astype(int),
        "bmi": np.round(20 + age / 10 + rng.normal(0, 3, rows), 1),
        "year": rng.integers(1990, 2026, rows), "day": day, "season": np.array(list("wsaf"))[day // 91 % 4],
        "zip": postcode, "state": [f"s{place // 5000}" for place in postcode],
        "icd": code, "chapter": [f"c{chapter[each]}" for each in code],
        "visits": rng.poisson(3, rows), "grams": grams, "light": (grams < 2500).astype(int),
        "cholesterol": rng.normal(220, 45, rows).astype(int), "minute": rng.integers(0, 1440, rows),
        "income": np.round(rng.lognormal(10, 0.6, rows), -2).astype(int), "outcome": rng.integers(0, 2, rows),
    }  # fmt: skip
    assert ids(tmp_path, columns) == []


def test_weights_of_a_survey_are_no_ids(tmp_path: Path) -> None:
    """Like the weights in Adult: most occur once, and those that occur twice belong to people who are much alike."""
    rng = np.random.default_rng(0)
    weight = rng.permutation(900_000)[:2000].repeat(rng.choice([1, 2, 3], 2000, p=[0.6, 0.3, 0.1]))
    sex = np.unique(weight, return_inverse=True)[1] % 2
    assert ids(tmp_path, {"weight": weight, "sex": sex, "outcome": rng.integers(0, 2, len(weight))}) == []


def test_chance_makes_no_ids(tmp_path: Path) -> None:
    """Of many rare remarks, some agree by chance in all rows of a number."""
    rng = np.random.default_rng(0)
    remarks = {f"remark{i}": (rng.random(300) < 0.02).astype(int) for i in range(200)}
    assert (
        ids(tmp_path, {"number": rng.permutation(np.arange(300) % 140), **remarks, "outcome": np.arange(300) % 2}) == []
    )


def test_breast_cancer_and_diabetes_have_no_ids(tmp_path: Path) -> None:
    for data in (load_breast_cancer(), load_diabetes(scaled=False)):
        columns = dict(zip(map(str, data.feature_names), data.data.T, strict=True))
        assert ids(tmp_path, columns | {"outcome": (data.target > np.median(data.target)).astype(int)}) == []


@shared("adult.npz")
@pytest.mark.parametrize("rows", [500, 5000, 32_561])
def test_adult_has_no_ids(tmp_path: Path, rows: int) -> None:
    """Its weights (fnlwgt) repeat among people who are much alike, and come closest."""
    numbers, codes, names, y = adult_from_npz(SHARED / "adult.npz")
    chosen = np.random.default_rng(0).permutation(len(y))[:rows]
    columns = {name: numbers[chosen, i].astype(int) for i, name in enumerate(NUMERIC)}
    columns |= {name: np.array(names[name])[codes[name][chosen]] for name in CATEGORICAL}
    assert ids(tmp_path, columns | {"outcome": y[chosen]}) == []
