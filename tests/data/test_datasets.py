"""`set_aside` of datasets and loaders, as torch and Hugging Face have them."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, SubsetRandomSampler, TensorDataset

from fedaudit.data.set_aside import set_aside
from fedaudit.errors import FedauditError
from fedaudit.types import Game

DIGITS = load_digits(return_X_y=True)
X, Y = DIGITS[0][:300].astype(np.float32), DIGITS[1][:300]
WHOSE = np.array([f"p{i // 3}" for i in range(len(X))])


class Rows(Dataset[Any]):
    """As Hugging Face has them: a record is a mapping of column names. (The library itself is tried below.)"""

    def __init__(self, **columns: Any):
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, i: int) -> Any:
        return {name: column[i] for name, column in self.columns.items()}


class Noisy(Dataset[Any]):
    """It augments one record in fifty, when it is asked."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> Any:
        return torch.from_numpy(X[i]) + (np.random.default_rng().random() < 0.02), int(Y[i])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(zip(X, Y, strict=True))


PAIRS = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


def hugging_face() -> Any:
    datasets = pytest.importorskip("datasets")
    found = datasets.Dataset.from_dict({"features": X.tolist(), "label": Y.tolist(), "patient": WHOSE.tolist()})
    return found.with_format("numpy", dtype=np.float32, columns=["features"], output_all_columns=True)


def same(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        rows, there = (each.candidates.rows if isinstance(each, Game) else each for each in (one, other))
        assert np.array_equal(rows.x, there.x)
        assert np.array_equal(rows.y, there.y)
        assert np.array_equal(rows.id, there.id)
        if isinstance(one, Game):
            assert np.array_equal(one.truth.role, other.truth.role)


@pytest.mark.parametrize(
    "given",
    [
        PAIRS,
        DataLoader(PAIRS, batch_size=32),
        DataLoader(PAIRS, batch_size=32, shuffle=True, drop_last=True),
        Rows(image=X, label=Y),
        DataLoader(Rows(img=torch.from_numpy(X), label=Y), batch_size=16, shuffle=True),
        list(zip(X, Y, strict=True)),
    ],
    ids=["pairs", "loader", "shuffled", "rows", "shuffled rows", "list"],
)
def test_B10_a_dataset_is_set_aside_as_its_arrays_are(given: Any) -> None:
    same(set_aside(given, seed=1), set_aside(X, Y, seed=1))


def test_columns_are_named_and_given() -> None:
    rows = Rows(patient=WHOSE, pixels=X, label=Y)
    same(set_aside(rows, subject="patient"), set_aside(X, Y, subject=WHOSE))
    same(set_aside(torch.from_numpy(X), torch.from_numpy(Y)), set_aside(X, Y))
    same(set_aside([torch.from_numpy(row) for row in X], Y.tolist()), set_aside(X, Y))


def test_a_subset_is_a_dataset() -> None:
    _, game = set_aside(Subset(PAIRS, range(100)))
    assert len(game.candidates) == 100


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (Noisy(), "dataset-changes", "gives another record at position"),
        (DataLoader(Noisy(), shuffle=True), "dataset-changes", "without augmentation"),
        (DataLoader(PAIRS, sampler=SubsetRandomSampler(range(50))), "dataset", "leave records out or repeat them"),
        (DataLoader(PAIRS, collate_fn=lambda batch: batch), "dataset", "collate_fn of its own"),
        (Stream(), "dataset", "no length and no positions"),
        (DataLoader(Stream()), "dataset", "no length and no positions"),
        ({"train": PAIRS, "test": PAIRS}, "dataset", "several datasets are given, 'train', 'test'"),
        (Rows(image=X, mask=X, label=Y), "dataset", "not clear which are x and y"),
        (TensorDataset(torch.from_numpy(X)), "dataset", "not a pair"),
        ([(np.zeros(i + 1), 0) for i in range(5)], "dataset", "differ in shape"),
        ([], "dataset", "is empty"),
    ],
)
def test_B10_what_would_be_audited_by_other_records_is_refused(given: Any, code: str, message: str) -> None:
    with pytest.raises(FedauditError, match=message) as caught:
        set_aside(given)
    assert caught.value.code == code


def test_a_column_that_is_not_there_is_told_with_the_nearest() -> None:
    with pytest.raises(FedauditError, match=r"no column 'pacient'.*Did you mean 'patient'"):
        set_aside(Rows(patient=WHOSE, pixels=X, label=Y), subject="pacient")


def test_B10_hugging_face() -> None:
    """The library itself, where it is installed."""
    data = hugging_face()
    same(set_aside(data, subject="patient", seed=2), set_aside(X, Y, subject=WHOSE, seed=2))
    same(set_aside(data["features"], data["label"], seed=2), set_aside(X, Y, seed=2))
    same(set_aside(DataLoader(data, batch_size=8), subject="patient"), set_aside(X, Y, subject=WHOSE))
    with pytest.raises(FedauditError, match="no length and no positions"):
        set_aside(data.with_format(None).to_iterable_dataset())
    plain = data.with_format(None).remove_columns("patient")
    same(set_aside(plain), set_aside(X, Y))
    with pytest.raises(FedauditError, match="several datasets are given"):
        set_aside(plain.train_test_split(0.5))
