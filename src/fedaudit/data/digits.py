"""Handwritten digits, bundled with scikit-learn."""

from fedaudit.config.schema import Data
from fedaudit.data.records import dataset
from fedaudit.types import Dataset


def load(_: Data) -> Dataset:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return dataset("digits", x / 16.0, y)
