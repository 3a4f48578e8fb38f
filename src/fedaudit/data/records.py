"""Arrays become records: checked, labelled 0..classes-1, identified, and sorted by id."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.errors import FedauditError
from fedaudit.types import IGNORED, Dataset, Ints, Records, Strings


def dataset(
    name: str,
    x: NDArray[Any],
    y: NDArray[Any],
    *,
    id: NDArray[Any] | None = None,
    subject: NDArray[Any] | None = None,
    attributes: Mapping[str, Ints] | None = None,
    regression: bool = False,
    tokens: bool = False,
) -> Dataset:
    """The only way in for data. Whatever order the rows come in, the result is the same.

    x becomes float32; with `tokens` it holds whole numbers that stand for characters or words, and stays whole. y has
    a label for each record, or a whole number for each position along the first axis of a record: the classes are then
    0, 1, ... as they are given, and where x holds tokens, too, the two share one vocabulary. A label that is
    `IGNORED` says that nothing is predicted there, as in records that were filled up to one length.
    """
    return arranged(name, x, y, id, subject, dict(attributes or {}), regression, tokens)[0]


def arranged(
    name: str,
    x: NDArray[Any],
    y: NDArray[Any],
    id: NDArray[Any] | None,
    subject: NDArray[Any] | None,
    attributes: Mapping[str, Ints],
    regression: bool,
    tokens: bool,
) -> tuple[Dataset, Ints]:
    """The data set, and the row that each of its records came from."""
    _check_shapes(name, x, y, {"id": id, "subject": subject, **attributes}, regression)
    x, y = _stored(name, x, y, regression, tokens)
    labels, classes = (y, ()) if regression else _coded(name, y)
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
    order = np.argsort(ids, kind="stable")
    records = Records(x, labels, ids, subjects, attributes).take(order)
    known = {"label": classes} if classes else {}
    return Dataset(name, records, classes_of(records) if y.ndim > 1 else len(classes), values=known), order


def classes_of(records: Records) -> int:
    """How many classes records with numbered labels need; text shares one vocabulary between x and y."""
    highest = int(records.y.max())
    if records.x.dtype.kind == "i" and records.y.ndim > 1:
        highest = max(highest, int(records.x.max()))
    return highest + 1


def _instead(x: NDArray[Any], y: NDArray[Any]) -> str:
    """What works where several targets of a record do not."""
    if y.ndim == 2 and y.shape[1] == 1:
        return "Give y[:, 0]: one value a record."
    if y.ndim == 2:
        return (
            "Give one value a record, or a class for each position of x: (records, positions). Several labels are "
            "audited one at a time: y[:, 0] with the outputs of that label alone."
        )
    return (
        "Give one value a record. Classes of pixels are classes of positions: x as (records, pixels, channels), y as "
        "(records, pixels), and a model that answers (records, pixels, classes), by its forward hook."
    )


def _check_shapes(
    name: str, x: NDArray[Any], y: NDArray[Any], columns: Mapping[str, NDArray[Any] | None], regression: bool
) -> None:
    at_positions = y.ndim == 2 and y.shape[1:] == x.shape[1:2] and y.shape[1] > 1 and not regression
    if y.ndim != 1 and not at_positions:
        raise FedauditError("shape", f"{name}: y has shape {y.shape}, x has {x.shape}", _instead(x, y))
    for column, values in columns.items():
        if values is not None and values.ndim != 1:
            raise FedauditError("shape", f"{name}: {column} has shape {values.shape}", "Give one value a record.")
    if x.ndim < 2 or 0 in x.shape[1:]:
        raise FedauditError("shape", f"{name}: x has shape {x.shape}", "Give one row a record: (records, features).")
    for column, values in {"y": y, **columns}.items():
        if values is not None and len(values) != len(x):
            raise FedauditError(
                "lengths",
                f"{name}: x has {len(x)} rows, {column} has {len(values)}",
                "Give every array one row for each record.",
            )
    if len(x) == 0:
        raise FedauditError("no-records", f"{name}: there are no records", "Give a file with rows in it.")


def _stored(
    name: str, x: NDArray[Any], y: NDArray[Any], regression: bool, tokens: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """In the types in which records are kept; refused is what these cannot hold."""
    whole = [("x", x)] * tokens + [("y", y)] * (y.ndim > 1)
    for column, values in whole:
        known = values[values != IGNORED] if column == "y" and values.dtype.kind in "iu" else values
        if known.dtype.kind not in "iu" or (known.size and known.min() < 0):
            what = f"{name}: {column} is {values.dtype}, and tokens and classes of positions are numbered 0, 1, ..."
            todo = f"Store whole numbers from 0 on ({IGNORED} in y where nothing is predicted), and features as floats."
            raise FedauditError("dtype", what, todo)
    if y.ndim > 1 and len(empty := np.flatnonzero((y == IGNORED).all(axis=1))):
        what = f"{name}: nothing is predicted in {len(empty)} records, the first is row {empty[0]}"
        raise FedauditError("no-labels", what, f"Leave them out: their labels are all {IGNORED}.")
    if x.dtype.kind not in "fiub" or y.dtype.kind not in ("fiub" if regression else "fiubUS"):
        raise FedauditError(
            "dtype",
            f"{name}: x is {x.dtype}, y is {y.dtype}",
            "Store x as numbers, and y as numbers or, for classes, as text.",
        )
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused below
        x = np.ascontiguousarray(x, dtype=np.int64 if tokens else np.float32)
        y = y.astype(np.float32) if regression else y
    for column, values in (("x", x), ("y", y)):
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
            raise FedauditError(
                "not-finite",
                f"{name}: {column} has NaN or infinite values in {len(bad)} rows, the first is row {bad[0]}",
                "Remove or impute these rows.",
            )
    return x, y


def _coded(name: str, y: NDArray[Any]) -> tuple[Ints, tuple[str, ...]]:
    """Classes as 0, 1, ... in the order of their names, and these names; at positions, as they are numbered."""
    if y.ndim > 1:
        if y.max() == y.min():
            raise FedauditError("one-class", f"{name}: y has a single value", "A classifier needs two classes or more.")
        return np.ascontiguousarray(y, dtype=np.int64), ()
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
    return codes.astype(np.int64), tuple(map(_as_text, names.tolist()))


def _as_text(name: str | bytes | float) -> str:
    if isinstance(name, bytes):
        return name.decode(errors="replace")
    return f"{name:.0f}" if isinstance(name, float) else str(name)


MISSING = ("", "nan", "NaN", "None", "<NA>", "NaT")  # what numpy, pandas and Python write where there is nothing


def missing(values: NDArray[Any]) -> Ints:
    """Rows without a name. If they were accepted, all of them would become one."""
    return np.flatnonzero(np.isin(np.char.strip(values.astype(np.str_)), MISSING))


def standardised(values: NDArray[Any]) -> NDArray[Any]:
    """Every column with mean 0 and standard deviation 1, over all records alike, whatever their role will be.

    A column with a single value becomes 0.
    """
    spread = values.std(axis=0)
    return np.asarray((values - values.mean(axis=0)) / np.where(spread > 0, spread, 1))


def content_ids(x: NDArray[Any], y: NDArray[Any], subject: Strings | None, attributes: Mapping[str, Ints]) -> Strings:
    """Content hash plus occurrence number. Rows that are equal in everything are interchangeable."""
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


def contents(records: Records) -> NDArray[Any]:
    """A hash of each record's features and label, whatever its id and whosever it is."""
    pairs = zip(records.x, records.y, strict=True)
    return np.array([hashlib.sha256(x.tobytes() + y.tobytes()).digest() for x, y in pairs], dtype="V32")


CHANNELS = (1, 3, 4)


def as_images(x: NDArray[Any]) -> NDArray[Any]:
    """Bytes in three or four dimensions are pictures, grey or in colour. They become what convolutions take: (records,
    channels, height, width), values from 0 to 1. Everything else is left as it is."""
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        return x
    if x.ndim == 3:
        x = x[:, None]
    elif x.shape[3] in CHANNELS:
        x = x.transpose(0, 3, 1, 2)
    scaled = np.ascontiguousarray(x, dtype=np.float32)
    scaled /= np.float32(255)
    return scaled
