"""A model, or a change of one, as one vector."""

from collections.abc import Sequence

import numpy as np

from fedaudit.types import Floats, State


def float_names(model: State) -> list[str]:
    return sorted(name for name, value in model.items() if value.dtype.kind == "f")


def parameter_count(model: State) -> int:
    return sum(model[name].size for name in float_names(model))


def vector(change: State, names: Sequence[str]) -> Floats:
    return np.concatenate([np.asarray(change[name], np.float64).ravel() for name in names])
