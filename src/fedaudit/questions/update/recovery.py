"""Whole records from one update: exact where theory permits it, and never a record that is not there.

Adversary: whoever sees one party's update, or the sum of several, and the model that it started from. It has records of
outsiders, and trains nothing.

A dense layer z = W h + b on the records, after one or a few plain gradient steps, moves by dW = sum of g_i h_i^T and
db = sum of g_i over the records i; g_i is 0 for the units that record i does not switch on (ReLU).

1. Ratio: where one record alone moved unit u, dW_u / db_u is that record. Whether it was alone is not seen, and units
   that agree prove nothing: two records that switch on the same units are mixed alike in all of these. So this way is
   taken where all columns are discrete, and accepted is what lies on the values that outsiders have.
2. Rank: [dW, db] has rank b for b distinct records. Its left factor L times an unknown b x b matrix Q is sparse. b - 1
   units that one record leaves off have one kernel vector, which is that record's column of Q. Random sets of b - 1
   units are tried until there are b columns. Accepted is all or nothing: every column must be the only one that its
   units leave open, and every record must switch on exactly the units that its column says (SPEAR, as we know it).
   Records that move all units in the same proportion count as one direction, which stands for none of them: unless the
   columns are discrete, nothing is told where there are fewer directions than records.
3. Tokens: what goes into a linear layer lies in the row space of its dW. Each word at each position is tested against
   it (DAGER, as we know it). Where the row space is nearly everything, nothing can be told.

Deviations: units that outsiders often leave off are tried more often. The bias stands beside the weights as one more
input that is 1 for every record, which gives the records their scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedaudit.types import Bools, Floats, Ints

ULP = 2.0**-23  # of float32, in which weights are exchanged
EVEN, FEWEST = 0.05, 8  # where half of more units than this move as far as the median unit, the optimiser made it so
# Why nothing is told. "normalised": by the optimiser, as Adam does, so that sums of gradients are no longer seen.
Unsure = Literal[
    "",
    "unmoved",
    "one-layer",
    "normalised",
    "no-check",
    "too-many",
    "merged",
    "not-found",
    "full-rank",
    "no-gap",
    "all-near",
]


@dataclass(frozen=True)
class MovedLayer:
    """A dense layer that lies on the records: as it was received, and by how much it moved (sent - received)."""

    weight: Floats  # units x inputs
    bias: Floats
    moved: Floats
    moved_bias: Floats
    last: bool = False  # is it the model's only layer?

    @property
    def rounding(self) -> Floats:
        """How coarse each unit's move is known: a unit in the last place of its largest weight."""
        return np.asarray(ULP * np.maximum(np.abs(self.weight).max(axis=1, initial=0.0), np.abs(self.bias)))

    @property
    def untold(self) -> Unsure:
        """Why no record can be read off, whatever moved it."""
        if not self.moved_bias.any():
            return "unmoved"
        if self.last:
            return "one-layer"
        sizes = np.abs(self.moved_bias[self.moved_bias != 0])
        alike = np.abs(sizes / np.median(sizes) - 1) < EVEN
        return "normalised" if len(sizes) > FEWEST and alike.mean() > 0.5 else ""

    def firing(self, x: Floats) -> Bools:
        """Records x units: which are switched on by the model as it was received."""
        return np.asarray(x @ self.weight.T + self.bias > 0)


@dataclass(frozen=True)
class Recovered:
    """Records, one in each row, and which of the two ways found them; or why there are none."""

    records: Floats
    way: Literal["ratio", "rank", ""] = ""
    unsure: Unsure = ""

    def __len__(self) -> int:
        return len(self.records)


def _none(inputs: int, why: Unsure) -> Recovered:
    return Recovered(np.empty((0, inputs)), "", why)


# ------------------------------------------------------------------ the values that records can have

LEVELS = 32  # a column with more distinct values is continuous
NEAR = 0.02  # of the gap between two levels: what is so near to one is on it


@dataclass(frozen=True)
class Domain:
    """What outsiders say about the columns: the levels of discrete ones, padded with NaN, and the gap between them."""

    levels: Floats  # columns x most levels
    gap: Floats  # by column, the smallest between two levels; 1 where there is one level
    discrete: Bools

    @classmethod
    def of(cls, x: Floats) -> Domain:
        """Of bits, 0 and 1 are the levels of every column: one that no outsider has may still be there."""
        if ((x == 0) | (x == 1)).all():
            columns = x.shape[1]
            return cls(np.tile([0.0, 1.0], (columns, 1)), np.ones(columns), np.ones(columns, bool))
        found = [np.unique(column) for column in x.T]
        discrete = np.array([len(values) <= min(LEVELS, max(2, len(x) // 10)) for values in found])
        most = max((len(values) for values, few in zip(found, discrete, strict=True) if few), default=0)
        levels, gap = np.full((x.shape[1], most), np.nan), np.ones(x.shape[1])
        for column in np.flatnonzero(discrete):
            levels[column, : len(found[column])] = found[column]
            gap[column] = np.diff(found[column]).min(initial=np.inf) if len(found[column]) > 1 else 1.0
        return cls(levels, gap, discrete)

    @property
    def checks(self) -> bool:
        """Can it tell a record from a mixture of several? If every column is discrete."""
        return bool(self.discrete.all())

    def only(self, columns: Ints) -> Domain:
        return Domain(self.levels[columns], self.gap[columns], self.discrete[columns])

    def snapped(self, rows: Floats) -> tuple[Floats, Bools]:
        """The rows with each discrete column on its nearest level, and which rows lay on one in all of these."""
        nearest, at = np.full(rows.shape, np.inf), rows.copy()
        for level in self.levels.T:
            away = np.abs(rows - level)
            closer = away < nearest  # never for NaN
            nearest, at = np.where(closer, away, nearest), np.where(closer, level, at)
        on = np.where(self.discrete, nearest <= NEAR * self.gap, True).all(axis=1)
        return np.where(self.discrete, at, rows), np.asarray(on)


# ------------------------------------------------------------------ how many records moved a layer

MOST = 24  # records that are looked for
SPARE = 16  # directions beyond these, to see that there are no more
SIGMAS = 8.0  # of rounding: what is less than this is nothing
NOTHING = 1e-4  # of the largest unit
ZERO = 3e-3  # of a unit's row: what is less may be nothing


@dataclass(frozen=True)
class Factors:
    """The layer's move as left @ right: orthonormal columns (units x rank), and the rest (rank x inputs and bias).
    `coarse`: what rounding of the weights adds to one entry of the move; `size`: the singular values."""

    left: Floats
    size: Floats
    right: Floats
    coarse: float

    @property
    def rank(self) -> int:
        return len(self.size)

    def moves(self, columns: Floats) -> Bools:
        """Units x columns: where a combination of the left factor's columns is more than rounding, and than what is
        left over from rounding in the combination itself."""
        rounding = self.coarse * np.linalg.norm(columns / self.size[:, None], axis=0)
        moved = np.abs(self.left @ columns)
        return np.asarray(moved > np.maximum(SIGMAS * rounding, NOTHING * moved.max(axis=0)))


def factors(layer: MovedLayer, rng: np.random.Generator) -> Factors:
    """A singular value counts where rounding of the weights could not have made it. If more than MOST do, the move has
    more directions than were looked at."""
    whole = np.column_stack([layer.moved, layer.moved_bias])
    weights = layer.weight[:: max(1, len(layer.weight) // 64)].astype(np.float32)  # some units say how large they are
    coarse = float(np.sqrt(np.mean(np.square(np.spacing(np.abs(weights)).astype(np.float64))) / 12))
    units, inputs = whole.shape
    seen = min(MOST + SPARE, units, inputs)
    reached = whole @ rng.standard_normal((inputs, seen))  # what the move reaches, if it has few directions
    basis, _ = np.linalg.qr(reached)
    left, size, right = np.linalg.svd(basis.T @ whole, full_matrices=False)
    rank = int(np.count_nonzero(size > 4 * coarse * (np.sqrt(units) + np.sqrt(inputs))))
    return Factors((basis @ left)[:, :rank], size[:rank], size[:rank, None] * right[:rank], coarse)


# ------------------------------------------------------------------ one record alone in a unit

COARSE = 3e-3  # of a unit's move that may be rounding
GLANCE = 32  # columns that are looked at first


def by_ratio(layer: MovedLayer, domain: Domain) -> Recovered:
    """Records that moved a unit alone, where every column is discrete: a mixture of several lies between the levels."""
    inputs = layer.moved.shape[1]
    if why := layer.untold:
        return _none(inputs, why)
    usable = (layer.moved_bias != 0) & (layer.rounding <= COARSE * np.abs(layer.moved_bias))
    if not usable.any():
        return _none(inputs, "unmoved")
    if not domain.checks:
        return _none(inputs, "no-check")
    ratios = layer.moved[usable] / layer.moved_bias[usable, None]
    some = np.linspace(0, inputs - 1, min(GLANCE, inputs)).astype(int)
    ratios = ratios[domain.only(some).snapped(ratios[:, some])[1]]  # a few columns rule most of them out
    rows, on = domain.snapped(ratios)
    kept = np.unique(rows[on], axis=0)
    return Recovered(kept, "ratio") if len(kept) else _none(inputs, "not-found")


# ------------------------------------------------------------------ all records of a small batch

MATCHING = 0.97  # of all units: a record switches on the units that moved for it
ENOUGH = 0.6  # of the units that outsiders' busiest records leave off: a column that leaves off fewer is none
ALIKE = 0.999  # cosine of two columns that are the same one
APART = 0.03  # what a column must have beyond the others
KERNELS = 2**17  # sets of units that are tried before giving up
AT_ONCE = 2**13
REFITTED = 64  # kernels of these that are looked at closely


def by_rank(
    layer: MovedLayer,
    domain: Domain,
    outsiders: Floats,
    rng: np.random.Generator,
    *,
    records: int = 0,
    kernels: int = KERNELS,
) -> Recovered:
    """Every record of the batch, or none. `records`: how many there are, 0 where it is not known."""
    inputs = layer.moved.shape[1]
    if why := layer.untold:
        return _none(inputs, why)
    split = factors(layer, rng)
    if split.rank == 0:
        return _none(inputs, "unmoved")
    if split.rank > MOST:
        return _none(inputs, "too-many")
    if not domain.checks and split.rank != records:
        return _none(inputs, "merged")
    known = layer.firing(outsiders)
    search = Columns(split, np.asarray(1 - known.mean(axis=0)), ENOUGH * _least_off(known, split.rank, rng))
    for _ in range(max(1, kernels // AT_ONCE)):
        search.add(rng)
        columns = search.independent()
        if columns is not None and (found := _records(layer, split, columns)) is not None:
            rows, on = domain.snapped(found)
            if split.rank != records and not on.all():  # else a level may be one that no outsider has
                continue
            return Recovered(np.where(on[:, None], rows, found), "rank")
        if split.rank == 1:
            break
    return _none(inputs, "not-found")


def _least_off(firing: Bools, batch: int, rng: np.random.Generator) -> float:
    """Of the units that a batch of outsiders moves, the share that its busiest record leaves off: in nine of ten
    batches at least this."""
    shares = []
    for _ in range(100):
        drawn = firing[rng.choice(len(firing), batch, replace=len(firing) < batch)]
        shares.append((~drawn[:, drawn.any(axis=0)]).mean(axis=1).min(initial=1.0))
    return float(np.quantile(shares, 0.1))


class Columns:
    """Candidates for columns of Q. `off`: the share of outsiders that leave each unit off; `least`: the share of units
    that a column must leave off."""

    def __init__(self, split: Factors, off: Floats, least: float):
        length = np.linalg.norm(split.left, axis=1)
        live = length > SIGMAS * split.coarse / split.size[-1] / ZERO
        self.split, self.least = split, least
        self.rows = split.left[live] / length[live, None]
        self.live = np.flatnonzero(live)
        chance = np.square(off[live]) + 1e-3  # units that are often off are worth more, and all may be
        self.chance = chance / chance.sum()
        self.found = np.ones((1, 1)) if split.rank == 1 else np.empty((0, split.rank))
        self.zeros = np.zeros(len(self.found), np.int64)

    def add(self, rng: np.random.Generator) -> None:
        """Kernels of further random sets of units: those that many other units agree with."""
        units, rank = self.rows.shape
        if rank == 1 or units < rank:
            return
        drawn = np.sort(rng.choice(units, (AT_ONCE, rank - 1), p=self.chance), axis=1)
        drawn = drawn[(np.diff(drawn, axis=1) > 0).all(axis=1)]
        turn = np.linalg.qr(rng.standard_normal((rank, rank)))[0]  # so that no coordinate of a kernel is 0
        picked = (self.rows @ turn)[drawn]
        try:
            solved = np.linalg.solve(picked[:, :, :-1], -picked[:, :, -1:])[:, :, 0]
        except np.linalg.LinAlgError:  # one of the sets says the same twice
            return
        kernels = np.column_stack([solved, np.ones(len(solved))]) @ turn.T
        length = np.linalg.norm(kernels, axis=1)
        usable = np.isfinite(length) & (length > 0)
        self._take(kernels[usable] / length[usable, None])

    def _take(self, columns: Floats) -> None:
        zero = np.abs(columns @ self.rows.T) < ZERO
        count = zero.sum(axis=1)
        good = np.flatnonzero(count >= max(self.least * len(self.rows), self.rows.shape[1]))
        good = good[np.argsort(-count[good], kind="stable")]
        good = good[self._new(columns[good])]
        for _ in range(REFITTED):
            if not len(good):
                return
            refitted, good = self._refitted(zero[good[0]]), good[1:]
            if refitted is not None and self._new(refitted[None])[0]:
                self.found = np.vstack([self.found, refitted])
                self.zeros = np.append(self.zeros, np.count_nonzero(~self.split.moves(refitted[:, None])))
                good = good[np.abs(columns[good] @ refitted) <= ALIKE]

    def _new(self, columns: Floats) -> Bools:
        """Which of these are not among those that were found."""
        return np.asarray(np.abs(columns @ self.found.T).max(axis=1, initial=0.0) <= ALIKE)

    def _refitted(self, zero: Bools) -> Floats | None:
        """The column that the units without a move agree on. Some only moved little: those that fit worst are dropped,
        until what is left is rounding. None where these units leave more than one column open: it could be any mixture
        of two records that switch on the same units."""
        split = self.split
        rows = split.left[self.live[zero]]
        while True:
            _, size, columns = np.linalg.svd(rows, full_matrices=False)
            column: Floats = columns[-1]
            left = np.abs(rows @ column)
            rounding = SIGMAS * split.coarse * np.linalg.norm(column / split.size)
            fits = left <= max(rounding, 3 * float(np.median(left)))
            if fits.all():
                break
            if np.count_nonzero(fits) < rows.shape[1]:
                return None
            rows = rows[fits]
        open_ = SIGMAS * split.coarse / split.size[-1] * np.sqrt(len(rows))
        return column if size[-2] > max(open_, NOTHING) else None

    def independent(self) -> Floats | None:
        """As many columns as there are records, those with most units off first; None while there are too few."""
        rank = self.rows.shape[1]
        chosen: list[Floats] = []
        basis = np.empty((0, rank))
        for one in np.argsort(-self.zeros, kind="stable"):
            beyond = self.found[one] - basis.T @ (basis @ self.found[one])
            if np.linalg.norm(beyond) > APART:
                chosen.append(self.found[one])
                basis = np.vstack([basis, beyond / np.linalg.norm(beyond)])
            if len(chosen) == rank:
                return np.array(chosen).T
        return None


def _records(layer: MovedLayer, split: Factors, columns: Floats) -> Floats | None:
    """The records that these columns stand for, if each switches on exactly the units that its column moves."""
    with np.errstate(all="ignore"):
        rows = np.linalg.solve(columns, split.right)
        records = rows[:, :-1] / rows[:, -1:]
    if not np.isfinite(records).all():
        return None
    agree = layer.firing(records) == split.moves(columns).T
    return records if (agree.mean(axis=1) > MATCHING).all() else None


# ------------------------------------------------------------------ words

IN_SPAN = 0.01  # distance of a unit vector from the row space: what is nearer lies in it
JUMP = 10.0  # from the last direction that records made to the first that rounding made
CROWDED = 0.1  # the median distance of all words: below this everything is near


@dataclass(frozen=True)
class Words:
    """Words that the batch holds, and where each was near, in the order of `word`; or why none can be told."""

    word: Ints
    position: Ints
    distance: Floats
    unsure: Unsure = ""


def by_span(moved: Floats, weight: Floats, candidates: Callable[[Ints], Floats], words: int) -> Words:
    """Which words went into a linear layer. `candidates(numbers)`: what goes into it for each of these words at every
    position: words x positions x inputs. Positions are those where a word came nearest: with several sentences they may
    be another's, because positions that are added to words can be exchanged between them."""
    nothing = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    _, size, right = np.linalg.svd(moved, full_matrices=False)
    coarse = float(np.sqrt(np.mean(np.square(np.spacing(np.abs(weight.astype(np.float32))).astype(np.float64))) / 12))
    rank = int(np.count_nonzero(size > 4 * coarse * sum(np.sqrt(moved.shape))))
    if rank == 0:
        return Words(*nothing, "unmoved")
    if rank >= moved.shape[1] - 1:
        return Words(*nothing, "full-rank")
    if rank < len(size) and size[rank - 1] < JUMP * max(size[rank], coarse):
        return Words(*nothing, "no-gap")
    distance = []
    for some in np.array_split(np.arange(words), max(1, words // 500)):
        vectors = candidates(some)
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-30)
        beside = vectors - (vectors @ right[:rank].T) @ right[:rank]
        distance.append(np.linalg.norm(beside, axis=-1))
    whole = np.concatenate(distance)
    if float(np.median(whole)) < CROWDED:
        return Words(*nothing, "all-near")
    nearest = whole.argmin(axis=1)
    found = np.flatnonzero(whole.min(axis=1) < IN_SPAN)
    return Words(found, nearest[found], whole[found, nearest[found]])


# ------------------------------------------------------------------ before training: what a shape can give away


@dataclass(frozen=True)
class Capacity:
    """What one update of a layer of this shape can give away. `limit`: how many different records it has room for;
    `complete`: the chance that all come out; `alone`: how many are expected to move a unit alone."""

    limit: int
    complete: float
    alone: float


def capacity(units: int, inputs: int, records: int, off: float = 0.5) -> Capacity:
    """From architecture and batch alone. `off`: the share of units that a record leaves off, a half in a fresh ReLU
    network. A batch comes out as a whole if, for each record, one of KERNELS random sets of `records` - 1 units is off.
    A record comes out alone if some unit fires for it and for no other."""
    limit = min(units, inputs + 1) - 1
    tries = KERNELS * off ** (records - 1)
    complete = float((1 - np.exp(-tries)) ** records) if 0 < records <= min(limit, MOST) else 0.0
    alone = records * (1 - (1 - (1 - off) * off ** (records - 1)) ** units)
    return Capacity(limit, complete, float(alone))
