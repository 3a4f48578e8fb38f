"""Data sets: the user's own, one format in each file; the demo's baskets; those bundled with scikit-learn (`bundled`);
those of the papers (`papers`). Each registers itself with its name, its options and its loader."""

from fedaudit.config.registry import DATA, Options
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset


def load(options: Options) -> Dataset:
    """The data set that a configuration names."""
    entry = DATA.find(options.name)
    if entry is None:
        raise FedauditError("unknown-data", *DATA.unknown(options.name))
    loaded: Dataset = entry.make(options)
    return loaded
