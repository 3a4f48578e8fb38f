"""Breast Cancer Wisconsin (diagnostic), bundled with scikit-learn: 30 measurements of cell nuclei, two diagnoses."""

import numpy as np

from fedaudit.config.registry import DATA, Options
from fedaudit.data.records import dataset, standardised
from fedaudit.types import Dataset, Floats, Ints

AREA = 3  # the column "mean area"


@DATA.register("breast-cancer", "of scikit-learn: 569 records, 30 measurements, 2 classes, attribute area")
def load(_: Options) -> Dataset:
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
