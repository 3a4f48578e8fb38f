"""Arrays become records: checked, labelled 0..classes-1, identified, and sorted by id."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.errors import FedauditError
from fedaudit.types import Dataset, Ints, Records, Strings


def dataset(
    name: str,
    x: NDArray[Any],
    y: NDArray[Any],
    *,
    id: NDArray[Any] | None = None,
    subject: NDArray[Any] | None = None,
    attributes: Mapping[str, Ints] | None = None,
    regression: bool = False,
) -> Dataset:
    """The only way in for data. Whatever order the rows come in, the result is the same."""
    attributes = dict(attributes or {})
    columns = {"y": y, "id": id, "subject": subject, **attributes}
    for column, values in columns.items():
        if values is not None and len(values) != len(x):
            raise FedauditError("lengths", f"{name}: x has {len(x)} rows, {column} has {len(values)}", "Align them.")
    if len(x) == 0:
        raise FedauditError("no-records", f"{name}: there are no records", "Give a file with rows in it.")
    if x.dtype.kind not in "fiub" or y.dtype.kind not in "fiubUS":
        raise FedauditError("dtype", f"{name}: x is {x.dtype}, y is {y.dtype}", "Store numbers (y may be text).")
    for column, values in (("x", x), ("y", y)):
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
            raise FedauditError(
                "not-finite",
                f"{name}: {column} has NaN or infinite values in {len(bad)} rows, the first is row {bad[0]}",
                "Remove or impute these rows.",
            )
    x = np.ascontiguousarray(x, dtype=np.float32)
    labels: NDArray[Any]
    if regression:
        labels, classes = y.astype(np.float32), 0
    else:
        names, codes = np.unique(y, return_inverse=True)
        labels, classes = codes.astype(np.int64), len(names)
        if classes < 2:
            raise FedauditError("one-class", f"{name}: y has a single value", "A classifier needs two classes or more.")
    subjects = None if subject is None else subject.astype(np.str_)
    ids = content_ids(x, labels, subjects, attributes) if id is None else id.astype(np.str_)
    values, counts = np.unique(ids, return_counts=True)
    if len(values) < len(ids):
        raise FedauditError(
            "duplicate-id",
            f"{name}: {int((counts > 1).sum())} ids occur more than once, so a member could share its id with a "
            f"non-member; the first is in row {int(np.flatnonzero(np.isin(ids, values[counts > 1]))[0])}",
            "Make ids unique, or leave them out: they are then made from the content.",
        )
    records = Records(x, labels, ids, subjects, attributes)
    return Dataset(name, records.take(np.argsort(ids, kind="stable")), classes)


def standardised(values: NDArray[Any]) -> NDArray[Any]:
    """Every column with mean 0 and standard deviation 1, over all records alike, whatever their role will be."""
    return np.asarray((values - values.mean(axis=0)) / values.std(axis=0))


def content_ids(x: NDArray[Any], y: NDArray[Any], subject: Strings | None, attributes: Mapping[str, Ints]) -> Strings:
    """Content hash plus occurrence number: rows that are equal in everything are interchangeable."""
    seen: dict[str, int] = {}
    ids = []
    for i in range(len(x)):
        content = hashlib.sha256(x[i].tobytes() + y[i].tobytes())
        content.update(f"|{'' if subject is None else subject[i]}".encode())
        content.update("".join(f"|{name}={attributes[name][i]}" for name in sorted(attributes)).encode())
        digest = content.hexdigest()[:20]
        seen[digest] = seen.get(digest, -1) + 1
        ids.append(f"{digest}-{seen[digest]}")
    return np.array(ids)
