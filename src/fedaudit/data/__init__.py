"""Data sets by name. One loader a file; a loader is imported when it is asked for."""

from importlib import import_module

from fedaudit.config import Data
from fedaudit.errors import FedauditError, suggest
from fedaudit.types import Dataset

LOADERS = {
    "baskets": "supermarket baskets: 20,504 household-months, 600 bits, 100 classes, 2,307 households (default)",
    "digits": "handwritten digits of scikit-learn: 1,797 images of 8 x 8, 10 classes",
    "npz": 'your own file: path = "...", keys x, y, optional id, subject, attribute (renameable with x_key, ...)',
}


def check_name(name: str) -> None:
    if name not in LOADERS:
        raise FedauditError("unknown-data", f"unknown data set {name!r}", suggest(name, LOADERS))


def load(settings: Data) -> Dataset:
    check_name(settings.name)
    loader = import_module(f"fedaudit.data.{settings.name}")
    loaded: Dataset = loader.load(settings)
    return loaded
