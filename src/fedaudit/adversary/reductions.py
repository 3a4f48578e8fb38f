"""What attacks remember of the rounds. Every reduction can be stored and restored, also when reductions are nested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.types import Floats, Moment, Stored

PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Regression:
    """Of every round, the share of the update that was explained; the largest error of a solution; and the share of the
    candidates that were looked at together."""

    rounds: Sequence[int]
    explained: Sequence[float]
    error: float
    share: float


class Kept:
    """A reduction whose fields are arrays, plain values, lists of these, or other reductions.

    A subclass implements `observe` and `features`. It must declare all its fields in `__init__`, so that `restore`
    finds them.
    """

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        raise NotImplementedError

    def features(self) -> Floats:
        raise NotImplementedError

    def queries(self) -> Floats | None:
        """How many labels each candidate cost so far; None where labels are not what it costs."""
        return None

    def distances(self) -> tuple[list[int], Floats, Floats] | None:
        """For the report: rounds; rounds x candidates, the distance to the decision boundary; and what each cost in
        labels. None where no distances are kept."""
        return None

    def regression(self) -> Regression | None:
        """For the report, of a reduction that explains updates by candidates."""
        return None

    def state(self) -> Stored:
        return {name: _stored(value, f"{type(self).__name__}.{name}") for name, value in vars(self).items()}

    def restore(self, state: Stored) -> None:
        for name, value in vars(self).items():
            if isinstance(value, Kept):
                value.restore(state[name])
            elif isinstance(value, list) and value and isinstance(value[0], Kept):
                for part, stored in zip(value, state[name], strict=True):
                    part.restore(stored)
            else:
                setattr(self, name, _copied(state[name]))


def _stored(value: Any, where: str) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Kept):
        return value.state()
    if isinstance(value, list):
        return [_stored(item, where) for item in value]
    if isinstance(value, PLAIN):
        return value
    raise TypeError(f"{where} is a {type(value).__name__}, which cannot be stored between rounds")


def _copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return [_copied(item) for item in value] if isinstance(value, list) else value


class Last(Kept):
    """The last observed value of one signal, times a sign."""

    def __init__(self, signal: str, sign: float, n: int):
        self.signal, self.sign = signal, sign
        self.values: Floats = np.full(n, np.nan)

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        self.values = self.sign * values[self.signal]

    def features(self) -> Floats:
        return self.values[:, None]


class Mean(Kept):
    """The mean over the observed rounds of a signal with one or more columns, times a sign; kept as sums."""

    def __init__(self, signal: str, n: int, sign: float = 1.0):
        self.signal, self.sign, self.rounds = signal, sign, 0
        self.sums: Floats = np.full((n, 1), np.nan)

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        now = values[self.signal].reshape(len(self.sums), -1)
        self.sums = now + self.sums if self.rounds else now.copy()
        self.rounds += 1

    def features(self) -> Floats:
        return self.sign * self.sums / max(self.rounds, 1)


class Weighted(Kept):
    """The sum over the observed rounds of a signal of unit spread, each round weighted with how strong the signal would
    be (another signal), over the root of the squared weights: again of unit spread. 0 if every weight is 0."""

    def __init__(self, signal: str, weight: str, n: int):
        self.signal, self.weight = signal, weight
        self.products: Floats = np.full(n, np.nan)
        self.squares: Floats = np.full(n, np.nan)

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        weight = values[self.weight]
        first = np.isnan(self.squares)
        self.products = np.where(first, 0.0, self.products) + weight * values[self.signal]
        self.squares = np.where(first, 0.0, self.squares) + weight**2

    def features(self) -> Floats:
        root = np.sqrt(self.squares)
        return (self.products / np.where(root == 0, 1.0, root))[:, None]


class WholeSeries(Kept):
    """The whole series of one signal: candidates x rounds (x values per round), in the order of observation."""

    def __init__(self, signal: str, n: int):
        self.signal, self.n = signal, n
        self.rounds: list[int] = []
        self.columns: list[NDArray[Any]] = []

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        self.rounds.append(moment.round)
        self.columns.append(np.array(values[self.signal]))

    def features(self) -> Floats:
        return self.at(self.rounds)

    def at(self, rounds: Sequence[int]) -> Floats:
        """The columns of these rounds only."""
        spot = {round: i for i, round in enumerate(self.rounds)}
        if not rounds:
            return np.full((self.n, 1), np.nan)
        return np.column_stack([self.columns[spot[round]] for round in rounds])


class Joined(Kept):
    """The features of several reductions side by side. The first columns say how many reductions there are and how wide
    each is, so that `split` can take them apart again."""

    def __init__(self, reductions: Sequence[Kept]):
        self.reductions = list(reductions)

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        for reduction in self.reductions:
            reduction.observe(moment, values)

    def features(self) -> Floats:
        parts = [reduction.features() for reduction in self.reductions]
        widths = np.tile([float(part.shape[1]) for part in parts], (len(parts[0]), 1))
        return np.concatenate([np.full((len(parts[0]), 1), len(parts)), widths, *parts], axis=1)

    @staticmethod
    def split(features: Floats) -> list[Floats]:
        """Takes apart what `features` put together."""
        if len(features) == 0:
            raise ValueError("no features to split")
        count = int(features[0, 0])
        ends = np.cumsum(features[0, 1 : 1 + count].astype(int))
        return np.split(features[:, 1 + count :], ends[:-1], axis=1)


# ------------------------------------------------------------------ states as flat files


def flatten(state: Stored, prefix: str = "") -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Splits a nested state into arrays, by path, and the rest, which JSON can hold. `unflatten` reverses it."""
    arrays: dict[str, NDArray[Any]] = {}

    def plain(value: Any, path: str) -> Any:
        if isinstance(value, np.ndarray):
            arrays[path] = value
            return {"array": path}
        if isinstance(value, Mapping):
            return {"of": {str(name): plain(inner, f"{path}|{name}") for name, inner in value.items()}}
        if isinstance(value, list):
            return [plain(inner, f"{path}|{i}") for i, inner in enumerate(value)]
        return value

    return arrays, plain(state, prefix)


def unflatten(arrays: Mapping[str, NDArray[Any]], rest: Any) -> Any:
    if isinstance(rest, Mapping):
        if "array" in rest:
            return np.array(arrays[rest["array"]])
        return {name: unflatten(arrays, inner) for name, inner in rest["of"].items()}
    return [unflatten(arrays, inner) for inner in rest] if isinstance(rest, list) else rest
