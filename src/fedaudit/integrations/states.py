"""Converts model states from elsewhere to the audited model's names, order and types."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.errors import FedauditError
from fedaudit.types import State

SHOWN = 5  # names listed in a message, on either side


def numpy_state(state: Mapping[str, Any]) -> State:
    """A copy in numpy: torch tensors of any device, numpy arrays, or anything that numpy takes."""
    if not isinstance(state, Mapping):
        what = f"a model is given as a mapping of names to arrays, and this is a {type(state).__name__}"
        raise FedauditError("model-state", what, 'Give every array a name: {"weights": ..., "bias": ...}.')
    return {name: _array(value) for name, value in state.items()}


def _array(value: Any) -> NDArray[Any]:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # numpy has none; float32 holds every value of it
            value = value.float()
        value = value.numpy()
    return np.array(value)


def matched(given: State, like: State, where: str) -> State:
    """`given` in the order and types of `like`. Names that differ are an error that lists them.

    Arrays without names (a list, numbered 0, 1, ...) are taken in order. Lower precision is widened; a whole number
    where a fraction belongs, or another shape, is refused. A counter that an average made fractional is rounded.
    """
    if set(given) != set(like) and set(given) == {str(i) for i in range(len(like))}:
        given = {name: given[str(i)] for i, name in enumerate(like)}
    missing, unknown = [n for n in like if n not in given], [n for n in given if n not in like]
    if missing or unknown:
        raise FedauditError(
            "parameter-names",
            f"the parameters differ from the model's: {_names('missing', missing)}; {_names('unknown', unknown)}",
            "Give the whole state of the same model, under the same names.",
            where=where,
        )
    return {name: _fitting(name, given[name], like[name], where) for name in like}


def _fitting(name: str, given: NDArray[Any], like: NDArray[Any], where: str) -> NDArray[Any]:
    if given.shape != like.shape:
        what = f"parameter {name!r} has shape {given.shape}, the model's has {like.shape}"
        raise FedauditError("parameter-shape", what, "Give the state of the same model.", where=where)
    if like.dtype.kind != "f" and given.dtype.kind == "f":
        given = np.rint(given)
    elif given.dtype.kind not in "fiub" or (given.dtype.kind == "f") != (like.dtype.kind == "f"):
        what = f"parameter {name!r} is {given.dtype}, the model's is {like.dtype}"
        raise FedauditError("parameter-type", what, "Store it in the model's own type.", where=where)
    return given.astype(like.dtype)


def _names(what: str, names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{what}: {', '.join(names[:SHOWN])}{more}" if names else f"none {what}"
