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
        if values is not None and values.ndim != 1:
            raise FedauditError("shape", f"{name}: {column} has shape {values.shape}", "Give one value a record.")
    if x.ndim < 2:
        raise FedauditError("shape", f"{name}: x has shape {x.shape}", "Give one row a record: (records, features).")
    for column, values in columns.items():
        if values is not None and len(values) != len(x):
            raise FedauditError("lengths", f"{name}: x has {len(x)} rows, {column} has {len(values)}", "Align them.")
    if len(x) == 0:
        raise FedauditError("no-records", f"{name}: there are no records", "Give a file with rows in it.")
    if x.dtype.kind not in "fiub" or y.dtype.kind not in ("fiub" if regression else "fiubUS"):
        raise FedauditError("dtype", f"{name}: x is {x.dtype}, y is {y.dtype}", "Store numbers (classes may be text).")
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused below
        x = np.ascontiguousarray(x, dtype=np.float32)
        y = y.astype(np.float32) if regression else y
    for column, values in (("x", x), ("y", y)):
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
            raise FedauditError(
                "not-finite",
                f"{name}: {column} has NaN or infinite values in {len(bad)} rows, the first is row {bad[0]}",
                "Remove or impute these rows.",
            )
    labels, classes = (y, 0) if regression else _coded(name, y)
    for column, values in (("id", id), ("subject", subject)):
        if values is not None and len(rows := missing(values)):
            raise FedauditError(
                f"missing-{column}",
                f"{name}: {column} is missing in {len(rows)} of {len(values)} rows, the first is row {rows[0]}",
                f"Give every record its {column}, or leave {column} out altogether.",
            )
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


def _coded(name: str, y: NDArray[Any]) -> tuple[Ints, int]:
    """Classes as 0, 1, ... in the order of their names, and how many there are."""
    fractions = np.flatnonzero(y.dtype.kind == "f" and y != np.floor(y))
    if len(fractions):
        raise FedauditError(
            "continuous-y",
            f"{name}: y is no whole number in {len(fractions)} of {len(y)} rows, the first is row {fractions[0]}: "
            "values, not classes",
            'Set data.task = "regression", or store classes as whole numbers or text.',
        )
    names, codes = np.unique(y, return_inverse=True)
    if len(names) < 2:
        raise FedauditError("one-class", f"{name}: y has a single value", "A classifier needs two classes or more.")
    return codes.astype(np.int64), len(names)


MISSING = ("", "nan", "NaN", "None", "<NA>", "NaT")  # what numpy, pandas and Python write where there is nothing


def missing(values: NDArray[Any]) -> Ints:
    """Rows without a name: taken as they are they would all become one."""
    return np.flatnonzero(np.isin(np.char.strip(values.astype(np.str_)), MISSING))


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
