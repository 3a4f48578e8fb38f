"""Data sets bundled with scikit-learn."""

import numpy as np
from pydantic import Field

from fedaudit.config.registry import DATA, DataOptions
from fedaudit.data.records import dataset, standardised
from fedaudit.types import Dataset, Floats, Ints

AREA = 3  # of breast cancer: the column "mean area"
SEX = 1  # of diabetes: a column with two values


class DigitsOptions(DataOptions):
    pictures: bool | None = Field(
        None, description="true: pictures, for `cnn` and its like; not set: rows of 64 pixels"
    )


@DATA.register("digits", "of scikit-learn: 1,797 records of 8 x 8, 10 classes; pictures = true for cnn", DigitsOptions)
def digits(options: DigitsOptions) -> Dataset:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return dataset("digits", (x / 16.0).reshape(-1, 1, 8, 8) if options.pictures else x / 16.0, y)


@DATA.register("diabetes", "of scikit-learn: 442 records, 10 measurements, regression, attribute sex", DataOptions)
def diabetes(_: DataOptions) -> Dataset:
    """Measurements and target are standardised: a loss of 1 is that of always guessing the mean."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    sex = np.unique(x[:, SEX], return_inverse=True)[1].astype(np.int64)
    return dataset("diabetes", standardised(x), standardised(y), attributes={"sex": sex}, regression=True)


@DATA.register("breast-cancer", "of scikit-learn: 569 records, 30 measurements, 2 classes, attribute area", DataOptions)
def breast_cancer(_: DataOptions) -> Dataset:
    """Measurements are standardised. The attribute `area` says whether the nuclei are of the small or large kind."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return dataset("breast-cancer", standardised(x), y, attributes={"area": two_means(x[:, AREA])})


def two_means(values: Floats) -> Ints:
    """0 for the smaller kind, 1 for the larger: k-means with two centres, started at the ends."""
    centres = np.array([values.min(), values.max()])
    while True:
        kind: Ints = (np.abs(values - centres[0]) > np.abs(values - centres[1])).astype(np.int64)
        moved = np.array([values[kind == 0].mean(), values[kind == 1].mean()])
        if np.array_equal(moved, centres):
            return kind
        centres = moved
