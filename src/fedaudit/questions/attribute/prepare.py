"""A hidden attribute: adds it to the inputs before training, and says how to set it to each of its values."""

from dataclasses import replace

import numpy as np

from fedaudit.adversary.signals.outputs import Probe
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset, Floats, Game, Ints, Role


def with_attribute(dataset: Dataset, name: str, column: int | None) -> Dataset:
    """The data set as the federation trains on it: an attribute that is not among the inputs is put there."""
    records = dataset.records
    if name not in records.attributes:
        known = ", ".join(sorted(records.attributes)) or "none"
        raise FedauditError("attribute", f"{dataset.name} has no attribute {name!r}", f"It has: {known}.")
    if records.x.ndim != 2 or records.x.dtype.kind != "f" or records.y.ndim > 1:
        what = "attributes are guessed where a record is a row of numbers with one label"
        raise FedauditError("attribute", what, "Flatten it; of text no attribute can be guessed.")
    count = int(records.attributes[name].max()) + 1
    if count < 2:
        raise FedauditError(
            "attribute", f"the attribute {name!r} has a single value", "Choose another in [audit.attribute] name."
        )
    if column is not None:
        if not 0 <= column < records.x.shape[1]:
            raise FedauditError(
                "attribute", f"there is no column {column} among {records.x.shape[1]}", "Count columns from 0."
            )
        return dataset
    put = one_hot(records.attributes[name], count).astype(records.x.dtype)
    return replace(dataset, records=replace(records, x=np.column_stack([records.x, put])))


def probe(dataset: Dataset, game: Game, name: str, column: int | None) -> Probe:
    """How the attribute is set to each of its values: a column, to its mean over the adversary's own records with that
    value; without a column, as a one-hot code.

    `game`: the adversary's own. It learns from those of its records that its shadow is trained on.
    """
    own, taught = game.candidates.rows, game.truth.mask(Role.MEMBER)
    if len(set(own.attributes[name][taught].tolist()) - {-1}) < 2:
        raise FedauditError(
            "attribute",
            f"the {int(taught.sum())} records from which the adversary learns have a single value of {name!r}",
            "Use more data, or an attribute that varies more.",
        )
    codes, width = dataset.records.attributes[name], dataset.records.x.shape[1]
    count = int(codes.max()) + 1
    if column is None:
        return Probe(name, np.arange(width - count, width), np.eye(count, dtype=np.float32))
    known = own.attributes[name]
    missing = [value for value in range(count) if not (known == value).any()]
    if missing:
        raise FedauditError(
            "attribute",
            f"the adversary has no record with {name} = {missing[0]}",
            "Use more records, or another attribute.",
        )
    means = np.array([[own.x[known == value, column].mean()] for value in range(count)], np.float32)
    return Probe(name, np.array([column]), means)


def one_hot(codes: Ints, count: int) -> Floats:
    """Unknown (-1) is all zeros."""
    return np.asarray(np.vstack([np.eye(count), np.zeros(count)])[codes])
