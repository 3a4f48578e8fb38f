"""Handwritten digits, bundled with scikit-learn."""

from fedaudit.config.registry import DATA, Options
from fedaudit.data.records import dataset
from fedaudit.types import Dataset


@DATA.register("digits", "handwritten digits of scikit-learn: 1,797 images of 8 x 8, 10 classes")
def load(_: Options) -> Dataset:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return dataset("digits", x / 16.0, y)
