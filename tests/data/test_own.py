"""Data from a function of the user's own."""

from typing import Any

import numpy as np
import pytest

from fedaudit.config.schema import parse
from fedaudit.data import load
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset

X = np.random.default_rng(0).random((20, 3), np.float32)
Y = np.arange(20) % 2


def pair() -> Any:
    return X, Y


def mapping(people: int) -> Any:
    return {"x": X, "y": Y, "id": [f"r{i:02}" for i in range(20)], "subject": np.arange(20) % people}


def whole() -> Dataset:
    return dataset("whole", X, Y, attributes={"sex": Y})


def values() -> Any:
    return {"x": X, "y": X[:, 0], "attributes": {"sex": Y.tolist()}}


def nothing() -> Any:
    return [1, 2, 3]


def raises() -> Any:
    raise KeyError("secret")


def read(name: str, **options: Any) -> Dataset:
    return load(parse({"data": {"name": f"tests.data.test_own:{name}"} | options}).data)


def test_x_and_y_a_mapping_or_a_data_set() -> None:
    assert sorted(read("pair").records.x.tolist()) == sorted(X.tolist())
    found = read("mapping", options={"people": 5})
    assert np.array_equal(found.records.x, X)
    assert found.records.subject is not None
    assert len(set(found.records.subject.tolist())) == 5
    assert read("whole").name == "whole"
    assert read("values", task="regression").classes == 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nothing", "returned list.*Let it return x and y"),
        ("raises", "raised KeyError"),
        ("absent", "cannot import 'tests.data.test_own:absent'"),
        ("mapping", "raised TypeError"),
    ],
)
def test_what_does_not_work_is_told_without_quoting(name: str, says: str) -> None:
    with pytest.raises(FedauditError, match=says) as caught:
        read(name)
    assert "secret" not in str(caught.value)


def test_the_configuration_is_stored_and_read_again() -> None:
    config = parse({"data": {"name": "tests.data.test_own:mapping", "options": {"people": 5}}})
    assert parse(config.as_dict()) == config
