"""Less of every update is sent: a few directions of each weight matrix, or the largest entries alone.

update-rank    each weight matrix of a party's update is replaced by its best approximation of that rank (Eckart and
               Young: the largest singular values). A convolution's kernels are a matrix of one row for each output.
               Vectors, such as biases, are sent as they are.
update-sparse  of all entries of the update, the share that is largest by absolute value is sent; the other weights
               leave as they came.

What all records agree on survives, and much of what belongs to one of them does not. Nothing random is added and one
record may decide what is kept, so neither promises anything. What they do is measured. The adversary knows of them, and
sees them besides: an update of low rank, or one that is mostly zero, can be told from any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, log10
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from fedaudit.config.registry import DEFENCES
from fedaudit.defences.dp_fedavg import Delta, added, difference
from fedaudit.defences.shared import Defence, DefenceOptions, Setting, within
from fedaudit.errors import FedauditError
from fedaudit.types import State, Trained

if TYPE_CHECKING:
    from fedaudit.defences.shared import Slot

UPDATE_RANK, UPDATE_SPARSE = "update-rank", "update-sparse"


class UpdateRankOptions(DefenceOptions):
    rank: int = Field(description="how many directions are kept of each weight matrix of the update")

    @property
    def slots(self) -> tuple[Slot, ...]:
        return ("update",)


class UpdateSparseOptions(DefenceOptions):
    share: float = Field(description="the share of the update's entries that is sent, the largest ones")

    @property
    def slots(self) -> tuple[Slot, ...]:
        return ("update",)


@DEFENCES.register(
    UPDATE_RANK, "each weight matrix of an update cut to a low rank (rank =); promises nothing", UpdateRankOptions
)
def update_rank(asked: UpdateRankOptions, setting: Setting) -> Defence:
    full = max((min(_as_matrix(v).shape) for v in _floating(setting.initial).values() if v.ndim > 1), default=0)
    if not 0 < asked.rank < full:
        what = f"{asked.name!r}: rank must be at least 1 and less than {full}, got {asked.rank}"
        why = "no weight matrix of this model has a higher rank" if full else "this model has no weight matrix"
        raise FedauditError("defence-rank", f"{what}: {why}", "Correct it.")
    return Defence(asked.name, update=UpdateRank(asked.rank))


@DEFENCES.register(
    UPDATE_SPARSE, "only the largest entries of an update are sent (share =); promises nothing", UpdateSparseOptions
)
def update_sparse(asked: UpdateSparseOptions, setting: Setting) -> Defence:
    share = within(asked.name, asked.share, 0, 1, key="share")
    entries = sum(value.size for value in _floating(setting.initial).values())
    if ceil(share * entries) <= 1:
        what = f"{asked.name!r}: share = {share:g} sends no more than one of the {entries} entries of an update"
        raise FedauditError("defence-share", what, f"Give at least {_just_above(1 / max(1, entries)):.2g}.")
    return Defence(asked.name, update=UpdateSparse(share))


def _just_above(value: float) -> float:
    """The next number with two digits."""
    digit = 10.0 ** (floor(log10(value)) - 1)
    return (floor(value / digit) + 1) * digit


@dataclass(frozen=True)
class UpdateRank:
    """Fills the update slot. Counters, which are no floating-point numbers, leave as they are."""

    rank: int

    def __call__(self, broadcast: State, trained: Trained, rng: np.random.Generator) -> Trained:
        changed = difference(broadcast, trained.state)
        cut = {key: self._cut(value) for key, value in changed.items() if self._can_cut(value)}
        return replace(trained, state={**trained.state, **added({key: broadcast[key] for key in cut}, cut)})

    def _can_cut(self, change: np.ndarray) -> bool:
        """Training that diverged leaves as it is, to be told by whoever looks at it."""
        return change.ndim > 1 and min(_as_matrix(change).shape) > self.rank and bool(np.isfinite(change).all())

    def _cut(self, change: np.ndarray) -> np.ndarray:
        left, values, right = np.linalg.svd(_as_matrix(change), full_matrices=False)
        few = slice(self.rank)
        cut: np.ndarray = (left[:, few] * values[few]) @ right[few]
        return cut.reshape(change.shape)


@dataclass(frozen=True)
class UpdateSparse:
    """Fills the update slot. Counters leave as they are."""

    share: float

    def __call__(self, broadcast: State, trained: Trained, rng: np.random.Generator) -> Trained:
        changed = difference(broadcast, trained.state)
        kept = self._largest(changed).items()
        cut = {key: np.where(mask, trained.state[key], broadcast[key]) for key, mask in kept}
        return replace(trained, state={**trained.state, **cut})

    def _largest(self, change: Delta) -> dict[str, np.ndarray]:
        """Which entries are sent: over all arrays together, because a layer that hardly moved has little to say. What
        is no number counts as the largest, so that training that diverged is not hidden."""
        sizes = np.concatenate([np.abs(value).ravel() for value in change.values()] or [np.zeros(0)])
        sizes[np.isnan(sizes)] = np.inf
        kept = np.zeros(len(sizes), bool)
        kept[np.argsort(-sizes, kind="stable")[: ceil(self.share * len(sizes))]] = True
        ends = np.cumsum([value.size for value in change.values()])[:-1]
        parts = zip(change.items(), np.split(kept, ends), strict=True)
        return {key: mask.reshape(value.shape) for (key, value), mask in parts}


def _floating(state: State) -> State:
    return {key: value for key, value in state.items() if np.issubdtype(value.dtype, np.floating)}


def _as_matrix(array: np.ndarray) -> np.ndarray:
    return array.reshape(len(array), -1)
