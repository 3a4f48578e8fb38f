"""MNIST (LeCun et al. 1998) from the user's own copy: training and test images together, with their writers if known.

It reads an npz file with x_train, y_train, x_test and y_test, and, if there are any, writer_train and writer_test: who
wrote each digit, as QMNIST (Yadav and Bottou 2019) found out. The writers are the subjects.
"""

from pathlib import Path

import numpy as np
from pydantic import Field

from fedaudit.config.registry import DATA, Options
from fedaudit.data import npz
from fedaudit.data.images import as_images
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset

NEEDED = ("x_train", "y_train", "x_test", "y_test")
WRITERS = ("writer_train", "writer_test")


class MnistOptions(Options):
    path: Path = Field(
        description="your copy, relative to this file: npz with x_train, y_train, ... (writer_train, ...)"
    )


@DATA.register(
    "mnist",
    "your copy of MNIST: path = npz with x_train, y_train, x_test, y_test; writer_train, writer_test name the subjects",
    MnistOptions,
)
def load(options: MnistOptions) -> Dataset:
    stored = npz.read(options.path, NEEDED, [*NEEDED, *WRITERS])
    if len({name in stored for name in WRITERS}) > 1:
        what = f"{options.path} names the writers of one part of the images only"
        raise FedauditError("mnist-writers", what, f"Give both {' and '.join(WRITERS)}, or neither.")
    x, y = (np.concatenate([stored[f"{kind}_train"], stored[f"{kind}_test"]]) for kind in "xy")
    writer = np.concatenate([stored[name] for name in WRITERS]) if WRITERS[0] in stored else None
    return dataset(options.name, as_images(x), y, subject=writer)
