"""Data sets: the user's own, one format in each file; the demo's baskets; those bundled with scikit-learn (`bundled`);
those of the papers (`papers`, `published`). Each registers itself with its name, its options and its loader."""

from dataclasses import replace

import numpy as np

from fedaudit.config.registry import DATA, Options
from fedaudit.data.records import standardised
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset, Ints

DRAWN = 0  # the seed of those that are drawn: the same records every time, whatever the seed of the run


def load(options: Options) -> Dataset:
    """The data set that a configuration names, with as many records of each class, and as scaled, as it asks for."""
    entry = DATA.find(options.name)
    if entry is None:
        raise FedauditError("unknown-data", *DATA.unknown(options.name))
    loaded: Dataset = entry.make(options)
    asked = options.arguments()
    rng = np.random.default_rng(DRAWN)
    limit = asked.get("limit")
    if asked.get("balance"):
        loaded = replace(loaded, records=loaded.records.take(_balanced(loaded, limit, rng)))
    elif limit is not None and limit < len(loaded.records):
        kept = np.sort(rng.permutation(len(loaded.records))[:limit])
        loaded = replace(loaded, records=loaded.records.take(kept))
    if asked.get("standardise"):
        if loaded.records.x.dtype.kind != "f":
            what = "data.standardise is set, and the records hold characters or words by number"
            raise FedauditError("standardise-tokens", what, "Take standardise out of [data].")
        x = standardised(loaded.records.x.astype(np.float64)).astype(np.float32)
        loaded = replace(loaded, records=replace(loaded.records, x=x))
    return loaded


def _balanced(loaded: Dataset, limit: int | None, rng: np.random.Generator) -> Ints:
    """As many rows of each class as the rarest one has, or as the limit leaves to each."""
    y = loaded.records.y
    if not loaded.classes or y.ndim > 1:
        what = "data.balance is set, and the records have no class each"
        raise FedauditError("balance-classes", what, "Take balance out of [data].")
    shuffled = rng.permutation(len(y))
    counts = np.bincount(y, minlength=loaded.classes)
    fewest, present = int(counts[counts > 0].min()), int((counts > 0).sum())
    if limit is not None and limit < present:
        what = f"data.limit is {limit}, and data.balance asks for records of each of {present} classes"
        raise FedauditError("balance-limit", what, f"Set a limit of {present} or more.")
    fewest = fewest if limit is None else min(fewest, limit // present)
    by_class = [shuffled[y[shuffled] == label][:fewest] for label in range(loaded.classes)]
    return np.sort(np.concatenate(by_class))
