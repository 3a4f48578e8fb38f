"""Diabetes, bundled with scikit-learn: ten measurements of 442 patients, and how far the disease went: a regression."""

import numpy as np

from fedaudit.config.registry import DATA, Options
from fedaudit.data.records import dataset, standardised
from fedaudit.types import Dataset

SEX = 1  # a column with two values


@DATA.register("diabetes", "of scikit-learn: 442 records, 10 measurements, regression, attribute sex")
def load(_: Options) -> Dataset:
    """Measurements and target are standardised: a loss of 1 is that of always guessing the mean."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    sex = np.unique(x[:, SEX], return_inverse=True)[1].astype(np.int64)
    return dataset("diabetes", standardised(x), standardised(y), attributes={"sex": sex}, regression=True)
