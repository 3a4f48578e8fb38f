"""Data sets by name. One loader a file; a loader is imported when it is asked for."""

from importlib import import_module

from fedaudit.config.schema import Data
from fedaudit.errors import FedauditError, suggest
from fedaudit.types import Dataset

LOADERS = {
    "baskets": "supermarket baskets: 20,504 household-months, 600 bits, 100 classes, 2,307 households (default)",
    "breast-cancer": "of scikit-learn: 569 records, 30 measurements, 2 classes, attribute area",
    "diabetes": "of scikit-learn: 442 records, 10 measurements, regression, attribute sex",
    "digits": "handwritten digits of scikit-learn: 1,797 images of 8 x 8, 10 classes",
    "cifar10": 'your copy of CIFAR-10: path = "cifar-10-binary.tar.gz", its folder, or npz with x_train, y_train, ...',
    "cifar100": "the same with 100 classes: cifar-100-binary.tar.gz",
    "npz": 'your own file: path = "...", keys x, y, optional id, subject, attribute (renameable with x_key, ...); '
    'task = "regression" where y holds values',
}


def check_name(name: str) -> None:
    if name not in LOADERS:
        raise FedauditError("unknown-data", f"unknown data set {name!r}", suggest(name, LOADERS))


def load(settings: Data) -> Dataset:
    check_name(settings.name)
    module = "cifar" if settings.name in ("cifar10", "cifar100") else settings.name.replace("-", "_")
    loader = import_module(f"fedaudit.data.{module}")
    loaded: Dataset = loader.load(settings)
    return loaded
