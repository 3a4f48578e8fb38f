"""Data sets read from the user's own copy: small files of the same format, and the real ones where they are there."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.config.schema import parse
from fedaudit.data import load
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset
from tests.data.test_loaders import SHARED, shared


def loaded(name: str, path: Path, **keys: Any) -> Dataset:
    return load(parse({"data": {"name": name, "path": str(path), **keys}}).data)


# ------------------------------------------------------------------ mnist


def pictures(n: int = 40) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.integers(0, 256, (n, 28, 28), dtype=np.uint8),
        "y_train": (np.arange(n) % 10).astype(np.uint8),
        "x_test": rng.integers(0, 256, (n // 2, 28, 28), dtype=np.uint8),
        "y_test": (np.arange(n // 2) % 10).astype(np.uint8),
    }


def test_mnist_puts_both_parts_together_and_knows_the_writers(tmp_path: Path) -> None:
    given = pictures()
    np.savez(tmp_path / "mnist.npz", **given, writer_train=np.arange(40) // 4, writer_test=100 + np.arange(20) // 4)
    found = loaded("mnist", tmp_path / "mnist.npz")
    assert (found.records.x.shape, found.classes, str(found.records.x.dtype)) == ((60, 1, 28, 28), 10, "float32")
    assert (found.records.x.min(), found.records.x.max()) == (0.0, 1.0)
    assert found.records.subject is not None
    assert len(set(found.records.subject.tolist())) == 15
    one = np.flatnonzero((found.records.x[:, 0] == np.float32(given["x_test"][7]) / np.float32(255)).all(axis=(1, 2)))
    assert (found.records.subject[one].tolist(), found.records.y[one].tolist()) == (["101"], [7])


def test_mnist_without_writers_has_no_subjects_and_half_of_them_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist.npz", **pictures())
    assert loaded("mnist", tmp_path / "mnist.npz").records.subject is None
    np.savez(tmp_path / "mnist.npz", **pictures(), writer_train=np.arange(40))
    with pytest.raises(FedauditError, match="mnist-writers"):
        loaded("mnist", tmp_path / "mnist.npz")


@shared("mnist.npz")
def test_shared_mnist() -> None:
    found = loaded("mnist", SHARED / "mnist.npz")
    assert (found.records.x.shape, found.classes) == ((70_000, 1, 28, 28), 10)
    assert len(set(found.records.subject.tolist())) == 539 + 297  # type: ignore[union-attr]


# ------------------------------------------------------------------ hapt


def windows(n: int = 24) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(size=(n, 128, 6)).astype(np.float16),
        "activity": (np.arange(n) % 6).astype(np.uint8),
        "subject": (1 + np.arange(n) // 8).astype(np.uint8),
        "experiment": (np.arange(n) // 4 % 2).astype(np.uint8),  # numbered anew for every person
    }


def test_hapt_knows_people_and_what_was_recorded_in_one_go(tmp_path: Path) -> None:
    np.savez(tmp_path / "hapt.npz", **windows())
    found = loaded("hapt", tmp_path / "hapt.npz")
    records = found.records
    assert (records.x.shape, str(records.x.dtype), found.classes) == ((24, 128, 6), "float32", 6)
    assert records.subject is not None
    assert sorted(set(records.subject.tolist())) == ["1", "2", "3"]
    experiment = records.attributes["experiment"]
    assert np.bincount(experiment).tolist() == [4] * 6
    assert all(len(set(records.subject[experiment == session].tolist())) == 1 for session in range(6))
    np.savez(tmp_path / "hapt.npz", **(windows() | {"experiment": np.zeros(3)}))
    with pytest.raises(FedauditError, match="subject has shape"):
        loaded("hapt", tmp_path / "hapt.npz")


@shared("hapt_windows.npz")
def test_shared_hapt() -> None:
    found = loaded("hapt", SHARED / "hapt_windows.npz")
    assert (found.records.x.shape, found.classes) == ((10_411, 128, 6), 6)
    assert len(set(found.records.subject.tolist())) == 30  # type: ignore[union-attr]
    assert len(set(found.records.attributes["experiment"].tolist())) == 61


# ------------------------------------------------------------------ adult

ADULT = """\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, Cuba, <=50K
50, Private, 83311, HS-grad, 13, Divorced, ?, Husband, White, Male, 0, 0, 13, ?, >50K

38, Private, 215646, HS-grad, 9, Divorced, Sales, Not-in-family, Black, Female, 0, 0, 40, Cuba, <=50K
28, ?, 338409, Masters, 14, Divorced, Sales, Wife, Black, Female, 0, 0, 40, Peru, >50K
"""


def test_adult_as_published_and_as_npz_is_the_same(tmp_path: Path) -> None:
    text = tmp_path / "adult.data"
    text.write_text(ADULT)
    (tmp_path / "adult.test").write_text("|1x3 Cross validator\n" + ADULT.replace("50K\n", "50K.\n"))
    numeric = np.array([[39, 77516, 13, 2174, 0, 40], [50, 83311, 13, 0, 0, 13], [38, 215646, 9, 0, 0, 40],
                        [28, 338409, 14, 0, 0, 40]], np.int32)  # fmt: skip
    categories = {
        "workclass": ["?", "Private", "State-gov"], "education": ["Bachelors", "HS-grad", "Masters"],
        "marital-status": ["Divorced", "Never-married"], "occupation": ["?", "Adm-clerical", "Sales"],
        "relationship": ["Husband", "Not-in-family", "Wife"], "race": ["Black", "White"], "sex": ["Female", "Male"],
        "native-country": ["?", "Cuba", "Peru"],
    }  # fmt: skip
    codes = np.array([[2, 0, 1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 1, 1, 0], [1, 1, 0, 2, 1, 0, 0, 1],
                      [0, 2, 0, 2, 2, 0, 0, 2]], np.uint8)  # fmt: skip
    stored: dict[str, Any] = {
        "numeric": numeric,
        "categorical": codes,
        "y": np.array([0, 1, 0, 1]),
        "categories": json.dumps(categories),
    }
    np.savez(tmp_path / "adult.npz", **stored)
    first = loaded("adult", text)
    for other in (loaded("adult", tmp_path / "adult.npz"), loaded("adult", tmp_path / "adult.test")):
        assert np.array_equal(first.records.x, other.records.x)
        assert np.array_equal(first.records.y, other.records.y)
    records = first.records
    assert (records.x.shape, first.classes) == ((4, 6 + 1 + sum(map(len, categories.values())) - 2), 2)
    assert records.x[:, :6].mean(axis=0) == pytest.approx(np.zeros(6), abs=1e-6)
    assert not records.x[:, 4].any()  # capital-loss: always the same here
    assert np.array_equal(records.x[:, 6], records.attributes["sex"])
    assert (records.x[:, 7:].sum(axis=1) == 7).all()  # one value of each of the other categories


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("1, 2, 3\n", "record 1 does not have 15 fields"),
        (ADULT.replace("39,", "old,"), "is not a number"),
        ("", "no records"),
        ("\x00\xff", "cannot be read as text|has not 15 fields"),
    ],
)
def test_adult_of_another_kind_is_refused(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "adult.data").write_text(content, encoding="latin-1")
    with pytest.raises(FedauditError, match=says):
        loaded("adult", tmp_path / "adult.data")
    with pytest.raises(FedauditError, match="there is no file"):
        loaded("adult", tmp_path / "nowhere")


@pytest.mark.parametrize(
    "change",
    [
        {"categories": "{}"},
        {"categories": "no json"},
        {"categorical": np.full((4, 8), 9)},
        {"categorical": np.zeros((4, 7), int)},
        {"numeric": np.zeros((3, 6))},
    ],
)
def test_adult_codes_that_nothing_names_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    names = ("workclass", "education", "marital-status", "occupation", "relationship", "race", "sex", "native-country")
    categories = json.dumps({name: ["a", "b"] for name in names})
    right: dict[str, Any] = {"numeric": np.eye(4, 6), "categorical": np.eye(4, 8, dtype=int), "y": np.arange(4) % 2}
    np.savez(tmp_path / "adult.npz", **(right | {"categories": categories}))
    assert loaded("adult", tmp_path / "adult.npz").classes == 2
    np.savez(tmp_path / "adult.npz", **(right | {"categories": categories} | change))
    with pytest.raises(FedauditError) as caught:
        loaded("adult", tmp_path / "adult.npz")
    assert (caught.value.code, caught.value.exit_code) == ("adult-file", 5)


@shared("adult.npz")
def test_shared_adult() -> None:
    found = loaded("adult", SHARED / "adult.npz")
    assert (found.records.x.shape, found.classes) == ((32_561, 107), 2)
    assert found.records.attributes["sex"].mean() == pytest.approx(0.669, abs=1e-3)  # more men than women were asked


# ------------------------------------------------------------------ shakespeare

PLAYS = {"play|B": ["to be, or not", "to be"], "play|A": ["that is the question:", "é"], "play|C": ["no"]}


def test_shakespeare_is_cut_into_windows_that_share_no_character(tmp_path: Path) -> None:
    (tmp_path / "plays.json").write_text(json.dumps(PLAYS))
    (tmp_path / "plays.json.gz").write_bytes(gzip.compress(json.dumps(PLAYS).encode()))
    found = loaded("shakespeare", tmp_path / "plays.json", length=4)
    records = found.records
    letters = sorted(
        set("to be, or not\nto bthat is the question")
    )  # of the whole windows: an e, an é and C's are left
    assert found.classes == len(letters)
    assert (str(records.x.dtype), str(records.y.dtype), found.input_shape) == ("int64", "int64", (4,))
    assert np.array_equal(records.x[:, 1:], records.y[:, :-1])
    assert records.subject is not None
    windows = np.column_stack([records.x, records.y[:, -1]])
    texts = {"".join(letters[token] for token in window) for window in windows[records.subject == "play|A"]}
    assert texts == {"that ", "is th", "e que", "stion"}
    texts = {"".join(letters[token] for token in window) for window in windows[records.subject == "play|B"]}
    assert texts == {"to be", ", or ", "not\nt"}
    assert len(records) == 7
    packed = loaded("shakespeare", tmp_path / "plays.json.gz", length=4)
    assert np.array_equal(packed.records.id, records.id)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"no json", "it is not such a file"),
        (b"[1, 2]", "a list of speeches"),
        (b'{"a": "speech"}', "a list of speeches"),
        (b'{"a": [1]}', "a list of speeches"),
        (b'{"a": ["\\ud800"]}', "not valid text"),
        (b'{"a": ["short"]}', "no role says more than 80"),
        (b"[" * 100_000, "it is not such a file"),
    ],
)
def test_B17_other_files_are_refused(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "plays.json").write_bytes(content)
    with pytest.raises(FedauditError, match=says):
        loaded("shakespeare", tmp_path / "plays.json")


def test_B17_a_gzip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedaudit.data.papers.MAX_TEXT", 10_000)
    (tmp_path / "plays.json.gz").write_bytes(gzip.compress(b" " * 10_001))
    with pytest.raises(FedauditError, match="unpacks to more"):
        loaded("shakespeare", tmp_path / "plays.json.gz")
    (tmp_path / "plays.json.gz").write_bytes(b"no gzip")
    with pytest.raises(FedauditError, match="it is not such a file"):
        loaded("shakespeare", tmp_path / "plays.json.gz")


@shared("shakespeare_roles.json.gz")
def test_shared_shakespeare() -> None:
    found = loaded("shakespeare", SHARED / "shakespeare_roles.json.gz")
    assert (found.input_shape, found.classes) == ((80,), 77)  # 76 characters and the end of a speech
    assert len(set(found.records.subject.tolist())) == 596  # type: ignore[union-attr]
