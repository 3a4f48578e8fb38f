"""Arrays become records: what is refused, what is repaired, and that order never matters."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.config.registry import DATA, Options
from fedaudit.config.schema import parse
from fedaudit.data import load
from fedaudit.data.npz import NpzOptions
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError


def arrays(n: int = 60, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(n, 3)), "y": rng.integers(0, 3, n)}


def test_T1_rows_in_any_order_give_the_same_records() -> None:
    given = arrays()
    given["x"][10:20], given["y"][10:20] = given["x"][0], given["y"][0]  # copies of one record
    order = np.random.default_rng(1).permutation(60)
    first = dataset("a", **given).records
    second = dataset("a", **{key: value[order] for key, value in given.items()}).records
    assert np.array_equal(first.id, second.id)
    assert np.array_equal(first.x, second.x)
    assert np.array_equal(first.y, second.y)
    assert len(set(first.id.tolist())) == 60


def test_B11_labels_of_any_kind_become_codes() -> None:
    words = dataset("a", np.arange(4.0)[:, None], np.array(["no", "yes", "no", "maybe"]))
    assert words.classes == 3
    assert set(words.records.y.tolist()) == {0, 1, 2}
    gaps = dataset("a", np.arange(4.0)[:, None], np.array([10, 30, 10, 20]), id=np.arange(4))
    assert gaps.records.y.tolist() == [0, 2, 0, 1]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"x": np.full((60, 3), np.nan)}, "not-finite"),
        ({"y": np.where(np.arange(60) == 7, np.inf, 1.0)}, "not-finite"),
        ({"y": np.zeros(60, int)}, "one-class"),
        ({"y": np.zeros(59, int)}, "lengths"),
        ({"id": np.zeros(60, int)}, "duplicate-id"),
        ({"x": np.array([["a"]] * 60)}, "dtype"),
        ({"x": np.empty((0, 3)), "y": np.empty(0, int)}, "no-records"),
        ({"x": np.full((60, 3), 1e39)}, "not-finite"),
        ({"y": np.float64(3.0)}, "shape"),
        ({"y": np.zeros((60, 2), int)}, "shape"),
        ({"x": np.arange(60.0)}, "shape"),
        ({"subject": np.zeros((60, 2), int)}, "shape"),
        ({"y": np.arange(60) / 8}, "continuous-y"),
        ({"y": np.array(["a", "b"] * 30), "regression": True}, "dtype"),
        ({"subject": np.where(np.arange(60) % 3, np.arange(60), np.nan)}, "missing-subject"),
        ({"subject": np.array(["s1", " "] * 30)}, "missing-subject"),
        ({"id": np.array([*map(str, range(59)), ""])}, "missing-id"),
        ({"id": np.array([*range(59), "0"])}, "duplicate-id"),  # mixed types: numpy makes them all text
        ({"id": np.array([*range(59), "0"], dtype=object)}, "duplicate-id"),
    ],
)
def test_bad_arrays_are_refused_by_name(change: dict[str, Any], code: str) -> None:
    with pytest.raises(FedauditError) as caught:
        dataset("mine", **(arrays() | change))
    assert caught.value.code == code
    assert "mine" in str(caught.value)


def text(n: int = 60, seed: int = 0) -> dict[str, Any]:
    windows = np.random.default_rng(seed).integers(0, 9, (n, 6))
    return {"x": windows[:, :-1], "y": windows[:, 1:], "tokens": True}


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint16, np.uint8])
def test_tokens_stay_whole_and_have_the_same_ids_in_any_type_and_order(kind: type) -> None:
    given = text()
    given["x"][10:20], given["y"][10:20] = given["x"][0], given["y"][0]  # copies of one record
    first = dataset("a", **given)
    order = np.random.default_rng(1).permutation(60)
    second = dataset("a", given["x"][order].astype(kind), given["y"][order].astype(kind), tokens=True)
    for found in (first, second):
        assert (str(found.records.x.dtype), str(found.records.y.dtype)) == ("int64", "int64")
        assert found.records.y.shape == (60, 5)
        assert (found.classes, found.input_shape) == (9, (5,))
    for column in ("id", "x", "y"):
        assert np.array_equal(getattr(first.records, column), getattr(second.records, column))
    assert len(set(first.records.id.tolist())) == 60


def test_the_vocabulary_is_that_of_x_and_y_together() -> None:
    """A class that is never a label keeps its number, because x may hold it; a single label a record is coded."""
    x = np.array([[0, 7], [3, 1], [2, 2]])
    assert dataset("a", x, np.array([[1, 3], [1, 5], [0, 0]]), tokens=True).classes == 8
    assert dataset("a", x.astype(float), np.array([[1, 3], [1, 5], [0, 0]])).classes == 6
    one_each = dataset("a", x, np.array(["bad", "good", "good"]), tokens=True)
    assert (one_each.classes, str(one_each.records.x.dtype)) == (2, "int64")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"x": text()["x"] / 2}, "dtype"),
        ({"x": -text()["x"]}, "dtype"),
        ({"y": -text()["y"]}, "dtype"),
        ({"y": text()["y"] / 2}, "dtype"),
        ({"y": text()["y"][:, :-1]}, "shape"),
        ({"y": text()["y"][..., None]}, "shape"),
        ({"y": text()["y"][:59]}, "lengths"),
        ({"y": np.ones((60, 5), int)}, "one-class"),
        ({"x": text()["x"][:, :1], "y": text()["y"][:, :1]}, "shape"),  # a column is no sequence
        ({"regression": True}, "shape"),
    ],
)
def test_sequences_that_do_not_fit_are_refused(change: dict[str, Any], code: str) -> None:
    with pytest.raises(FedauditError) as caught:
        dataset("mine", **(text() | change))
    assert caught.value.code == code


def test_npz_holds_tokens_where_it_says_so(tmp_path: Path) -> None:
    given = text()
    np.savez(tmp_path / "mine.npz", x=given["x"].astype(np.uint8), y=given["y"])
    tokens = load(NpzOptions(name="npz", path=tmp_path / "mine.npz", tokens=True))
    assert np.array_equal(tokens.records.x, dataset("a", **given).records.x)
    np.savez(tmp_path / "mine.npz", x=given["x"], y=given["y"][:, 0])
    assert load(NpzOptions(name="npz", path=tmp_path / "mine.npz")).records.x.dtype == np.float32
    assert load(NpzOptions(name="npz", path=tmp_path / "mine.npz", tokens=True)).records.x.dtype == np.int64


def test_missing_subjects_name_the_first_row() -> None:
    with pytest.raises(FedauditError, match="missing in 2 of 60 rows, the first is row 7"):
        dataset("mine", **arrays(), subject=np.where(np.isin(np.arange(60), (7, 9)), np.nan, 1.0))


def test_whole_numbers_stored_as_floats_are_classes() -> None:
    given = arrays()
    assert dataset("mine", given["x"], given["y"].astype(float)).classes == 3


def test_npz_with_values_is_a_regression_only_if_told(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    np.savez(tmp_path / "mine.npz", x=x, y=2 * x[:, 0])
    with pytest.raises(FedauditError, match=r'data\.task = "regression"'):
        load(NpzOptions(name="npz", path=tmp_path / "mine.npz"))
    found = load(NpzOptions(name="npz", path=tmp_path / "mine.npz", task="regression"))
    assert found.classes == 0
    assert np.array_equal(found.records.y, 2 * found.records.x[:, 0])
    with pytest.raises(FedauditError, match=r"bad-value.*task belongs to npz, .*not to digits"):
        parse({"data": {"name": "digits", "task": "regression"}})


def test_npz_with_renamed_keys(tmp_path: Path) -> None:
    given = arrays()
    path = tmp_path / "mine.npz"
    np.savez(path, features=given["x"], label=given["y"], patient=np.arange(60) // 2)
    found = load(NpzOptions(name="npz", path=path, x_key="features", y_key="label", subject_key="patient"))
    assert (found.name, found.classes, len(found.records)) == ("mine", 3, 60)
    assert found.records.subject is not None
    assert len(set(found.records.subject.tolist())) == 30


def test_npz_missing_key_names_the_keys_there_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=arrays()["x"], label=arrays()["y"])
    with pytest.raises(FedauditError, match="label"):
        load(NpzOptions(name="npz", path=tmp_path / "mine.npz"))


def test_B17_npz_with_pickled_objects_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", x=np.array([{"a": 1}], dtype=object), y=np.zeros(1))
    with pytest.raises(FedauditError) as caught:
        load(NpzOptions(name="npz", path=tmp_path / "bad.npz"))
    assert (caught.value.code, caught.value.exit_code) == ("npz-unreadable", 5)


def test_npz_that_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"not a zip")
    with pytest.raises(FedauditError, match="npz-unreadable"):
        load(NpzOptions(name="npz", path=tmp_path / "bad.npz"))


def test_unknown_data_set_suggests() -> None:
    for ask in (lambda: load(Options(name="basket")), lambda: parse({"data": {"name": "basket"}})):
        with pytest.raises(FedauditError, match="Did you mean 'baskets'") as caught:
            ask()
        assert caught.value.code == "unknown-data"


def test_digits_have_the_expected_shape() -> None:
    found = load(DATA.read({"name": "digits"}))
    assert (found.records.x.shape, found.classes) == ((1797, 64), 10)
