"""Datasets and loaders of torch and Hugging Face as arrays. Neither is imported: what counts is what they can do.

A dataset is read by position, `dataset[i]` for i below its length. An item is a pair (x, y), as torch has it, or a
mapping of names, as Hugging Face has it: one of LABELS, and one other column, apart from those that are named as `id`
and `subject`. Of a loader its dataset is read, so that it may shuffle and drop what it likes. Refused is what would
make the audit look at other records than those that are trained on: a dataset that gives another record when it
is asked again, because it augments; a sampler that leaves records out or repeats them; a function that makes batches
of its own; and a stream, which has no positions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.errors import FedauditError, suggest

LABELS = ("label", "labels", "target", "y", "fine_label")
ASKED_TWICE = 1000  # records, evenly spread: one that is augmented once in a hundred times is noticed
COLLATE = ("default_collate", "default_convert")


@dataclass(frozen=True)
class Arrays:
    x: NDArray[Any]
    y: NDArray[Any]
    named: Mapping[str, NDArray[Any]]  # the columns that were asked for by name


def array(column: Any) -> NDArray[Any]:
    """Of numpy, a tensor of torch, a column of Hugging Face, or a list of such things (or of pictures)."""
    if isinstance(column, np.ndarray):
        return column
    if hasattr(column, "detach"):  # a tensor, wherever it lies
        return np.asarray(column.detach().cpu())
    if isinstance(column, Sequence) and not isinstance(column, str) and len(column) and not np.isscalar(column[0]):
        return np.stack([array(each) for each in column])
    return np.asarray(column)


def read(name: str, given: Any, columns: Sequence[str] = ()) -> Arrays:
    """x and y of a dataset or a loader, and these of its columns."""
    dataset = _behind(name, given)
    if isinstance(dataset, Mapping):
        what = f"{name}: several datasets are given, {', '.join(map(repr, dataset))}"
        raise FedauditError("dataset", what, f"Give one of them: [{next(iter(dataset), '')!r}].")
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        what = f"{name}: {type(dataset).__name__} has no length and no positions"
        raise FedauditError("dataset", what, "Give a dataset that is not a stream, or arrays: set_aside(x, y).")
    many = len(dataset)
    items = [_item(name, dataset[i], columns) for i in range(many)]
    if not items:
        raise FedauditError("dataset", f"{name}: the dataset is empty", "Give one with records in it.")
    for i in np.unique(np.linspace(0, many - 1, min(many, ASKED_TWICE)).astype(int)).tolist():
        if not all(map(np.array_equal, items[i], _item(name, dataset[i], columns))):
            what = f"{name}: the dataset gives another record at position {i} when it is asked again"
            todo = "Set aside the dataset without augmentation, and augment what set_aside gives you to train on."
            raise FedauditError("dataset-changes", what, todo)
    try:
        x, y, *named = (np.stack(column) for column in zip(*items, strict=True))
    except ValueError:
        what = f"{name}: the records of the dataset differ in shape"
        raise FedauditError("dataset", what, "Bring them to one shape, in a transform of the dataset.") from None
    return Arrays(x, y, dict(zip(columns, named, strict=True)))


def _behind(name: str, given: Any) -> Any:
    """The dataset of a loader that goes through all of it; or the dataset itself."""
    if not (hasattr(given, "dataset") and hasattr(given, "collate_fn")):
        return given
    sampler, wrong = getattr(given, "sampler", None), ""
    kind = type(sampler).__name__
    if getattr(given.collate_fn, "__name__", "") not in COLLATE:
        wrong = "makes batches by a collate_fn of its own"
    elif getattr(given, "batch_size", None) is None and getattr(given, "batch_sampler", None) is not None:
        wrong = f"has a batch_sampler of its own ({type(given.batch_sampler).__name__})"
    elif hasattr(given.dataset, "__len__") and (
        kind not in ("SequentialSampler", "RandomSampler")
        or getattr(sampler, "replacement", False)
        or getattr(sampler, "num_samples", len(given.dataset)) != len(given.dataset)
    ):
        wrong = f"has a sampler that may leave records out or repeat them ({kind})"
    if wrong:
        what = f"{name}: the loader {wrong}"
        raise FedauditError("dataset", what, "Give a dataset with the records that are to be trained on or set aside.")
    return given.dataset


def _item(name: str, item: Any, columns: Sequence[str]) -> tuple[NDArray[Any], ...]:
    """x, y and the columns asked for by name."""
    if isinstance(item, Mapping):
        for column in columns:
            if column not in item:
                raise FedauditError("dataset", f"{name} has no column {column!r}", suggest(column, list(item)))
        labels = [key for key in LABELS if key in item and key not in columns]
        features = [key for key in item if key not in (*labels, *columns)]
        if len(labels) != 1 or len(features) != 1:
            what = f"{name} has the columns {', '.join(map(repr, item))}, and it is not clear which are x and y"
            todo = 'Give them yourself: set_aside(data["..."], data["..."]), or leave the others out (remove_columns).'
            raise FedauditError("dataset", what, todo)
        return array(item[features[0]]), array(item[labels[0]]), *(array(item[column]) for column in columns)
    if columns:
        what = f"{name}: the dataset has no columns with names, so that {columns[0]!r} names none"
        raise FedauditError("dataset", what, "Give an array with one name for each record.")
    if not (isinstance(item, tuple | list) and len(item) == 2):
        parts = f"{len(item)} parts" if isinstance(item, tuple | list) else type(item).__name__
        what = f"{name}: a record of the dataset is {parts}, not a pair (x, y)"
        raise FedauditError("dataset", what, "Give a dataset of pairs, or arrays: set_aside(x, y).")
    return array(item[0]), array(item[1])
