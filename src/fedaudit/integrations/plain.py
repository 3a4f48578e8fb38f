"""A model of another framework (numpy, JAX, scikit-learn, TensorFlow) as a task: plain arrays go in and come out.

Any object with the members of `types.PlainModel` will do. It may also have `last_layer(state, x)`, as `types.Task`
describes it: the gradient norm of the last layer is then known, too. All other gradients need a torch module.

Below is what all integrations share: states from elsewhere, under the audited model's names, in its order and types.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedaudit.errors import FedauditError, say
from fedaudit.learn.tasks import batches, check_answers
from fedaudit.types import UNSEEN, Floats, PlainModel, Records, State

OFFERED = {"classes": "`classes`", "initial": "`initial(seed)`", "outputs": "`outputs(state, x)`"}
METHODS = ("initial", "outputs")
SUMS = 1e-6  # by how much rounded probabilities may miss 1


def is_plain(given: object) -> bool:
    """Is it meant as such a model, or as a class of them? Even if some of what it needs is missing."""
    of_torch = isinstance(given, nn.Module) or (isinstance(given, type) and issubclass(given, nn.Module))
    return any(hasattr(given, name) for name in METHODS) and not of_torch


class PlainTask:
    """`needed`: how many classes the labels of the records need; 0 for regression."""

    def __init__(self, given: PlainModel, needed: int):
        self._given = given
        self.classes = _classes(given, needed)
        self.base: State = {}  # such a model is exchanged as a whole

    def initial(self, seed: int) -> State:
        made = self._given.initial(seed)
        try:
            state = numpy_state(made)
        except FedauditError as error:
            raise FedauditError(error.code, f"initial(seed): {error.what}", error.todo) from None
        if not state:
            raise FedauditError("model-state", "initial(seed) returns no arrays", "Return all weights by name.")
        for name, value in state.items():
            if not isinstance(name, str):
                what = f"initial(seed) names an array {name!r}, which is no text"
                raise FedauditError("model-state", what, f'Name it "{name}".')
            if value.dtype.kind != "f":
                raise FedauditError(
                    "model-state",
                    f"initial(seed) gives {name!r} as {value.dtype}, and weights are arrays of floats",
                    "Flatten what is nested, write 0.0 for 0, and leave counters out: later rounds take these types.",
                )
        return state

    def outputs(self, state: State, x: NDArray[Any]) -> Floats:
        return self._outputs(partial(self._given.outputs, state), x)

    def asking(self, state: State) -> Callable[[NDArray[Any]], Floats]:
        own = getattr(self._given, "asking", None)
        return partial(self._outputs, own(state) if own else partial(self._given.outputs, state))

    def _outputs(self, ask: Callable[[NDArray[Any]], Any], x: NDArray[Any]) -> Floats:
        parts = [_rows("outputs(state, x)", ask(part), len(part)) for part in batches(x)]
        return np.concatenate(parts) if parts else np.empty((0, max(self.classes, 1)))

    def last_layer(self, state: State, x: NDArray[Any]) -> tuple[Floats, Floats]:
        own = getattr(self._given, "last_layer", None)
        if own is None:
            raise FedauditError(
                "last-layer",
                "this model does not say what goes into its last layer",
                "Add `last_layer(state, x)`, which returns outputs and inputs, or leave out gradient-norm.",
            )
        outputs, inputs = list[Floats](), list[Floats]()
        for part in batches(x):
            made = own(state, part)
            if not isinstance(made, tuple) or len(made) != 2:
                what = f"last_layer(state, x) returns a {type(made).__name__}, and two arrays are needed"
                raise FedauditError("last-layer", what, "Return the outputs, and the inputs of the last layer.")
            for found, array in zip((outputs, inputs), made, strict=True):
                found.append(_rows("last_layer(state, x)", array, len(part)))
        return np.concatenate(outputs), np.concatenate(inputs)

    def check(self, state: State, records: Records) -> None:
        few = records.x[:8]
        try:
            first, second = self.outputs(state, few), self.outputs(state, few)
        except FedauditError:
            raise
        except Exception as error:  # its words may quote records
            what = f"outputs(state, x) fails on records of shape {few.shape} and type {few.dtype}: {say(error)}"
            raise FedauditError("model-data", what, "Let it take a batch of records in that shape.") from error
        check_answers(first, records, self.classes)
        if not np.array_equal(first, second):
            raise FedauditError(
                "model-random",
                "outputs(state, x) answers the same records differently twice",
                "Switch off dropout and other randomness in it, and let it change neither state nor x.",
            )
        if self.classes and (first >= 0).all() and np.allclose(first.sum(axis=-1), 1, rtol=0, atol=SUMS):
            raise FedauditError(
                "model-outputs",
                "outputs(state, x) answers with probabilities, and logits are needed",
                "Return what goes into the softmax, or the logarithm of the probabilities.",
            )


def _classes(given: PlainModel, needed: int) -> int:
    """How many the model has. `needed`: by the labels of the records; 0 for regression."""
    missing = [told for name, told in OFFERED.items() if not hasattr(given, name)]
    missing += [OFFERED[name] for name in METHODS if hasattr(given, name) and not callable(getattr(given, name))]
    todo = f"Give it {', '.join(OFFERED.values())}; classes = {needed} suits these records."
    if missing:
        what = f"the model, of type {type(given).__name__}, lacks {' and '.join(missing)}"
        raise FedauditError("plain-model", what, todo)
    classes = given.classes
    if isinstance(classes, bool) or not isinstance(classes, int | np.integer) or bool(classes) != bool(needed):
        about = f"the labels need {needed} of them" if needed else "the labels are fractions, as in a regression"
        raise FedauditError("plain-model", f"the model has classes = {classes!r}, and {about}", todo)
    return int(classes)


def _rows(whose: str, made: Any, records: int) -> Floats:
    """Numbers in float64, a row for each record."""
    try:
        found = np.asarray(made, np.float64)
    except (TypeError, ValueError):
        what = f"{whose} answers with a {type(made).__name__} that is no array of numbers"
        raise FedauditError("model-outputs", what, "Return one array.") from None
    if found.shape[:1] != (records,):
        what = f"{whose} answers with shape {found.shape} for {records} records"
        raise FedauditError("model-outputs", what, "Return one row for each record, in their order.")
    return found


# ------------------------------------------------------------------ states: models as mappings of names to arrays


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


def matched(given: State, like: State, where: str, base: State = UNSEEN) -> State:
    """`given` in the order and types of `like`. Names that differ are an error that lists them.

    Arrays without names (a list, numbered 0, 1, ...) are taken in order; names as PEFT saves them are known. Where
    `like` is a part of a model, the frozen `base` may come along: it is compared and left out. Lower precision is
    widened; a whole number where a fraction belongs, or another shape, is refused. A counter that an average made
    fractional is rounded.
    """
    if set(given) != set(like) and set(given) == {str(i) for i in range(len(like))}:
        given = {name: given[str(i)] for i, name in enumerate(like)}
    given = _without_base(_renamed(given, like, base), base, where)
    missing, unknown = [n for n in like if n not in given], [n for n in given if n not in like]
    if missing or unknown:
        todo = "Give the whole state of the same model, under the same names."
        if base or len(given) < len(like):
            todo = (
                "Give what the parties exchange, under the model's names. If that is a part of the model, say which: "
                'exchanged="trainable", or exchanged=[...] with names ([model] exchanged in a configuration).'
            )
        raise FedauditError(
            "parameter-names",
            f"the parameters differ from the model's: {_names('missing', missing)}; {_names('unknown', unknown)}",
            todo,
            where=where,
        )
    return {name: _fitting(name, given[name], like[name], where) for name in like}


# PEFT leaves the adapter's name out of what it saves, and puts a prefix before it:
# base_model.model.h.0.attn.lora_A.weight is h.0.attn.lora_A.default.weight of the module. What Opacus, DDP and the
# compiler wrap around a model puts one there, too.
PREFIX = re.compile(r"^(base_model\.model\.|_module\.|module\.|_orig_mod\.)+")
ADAPTER = re.compile(r"\.modules_to_save\.[^.]+|(?<=\.lora_[AB])\.(?!weight$|bias$)[^.]+|\.default(?=\.|$)")


def _renamed(given: State, like: State, base: State) -> State:
    """Under the model's own names, where these are clear without the adapter's name and the prefix."""

    def short(name: str) -> str:
        return ADAPTER.sub("", PREFIX.sub("", name))

    own = {short(name): name for name in like}
    odd = [name for name in given if name not in like and name not in base and short(name) in own]
    found = {own[short(name)] for name in odd}
    if len(own) < len(like) or len(found) < len(odd) or found & set(given):
        return given
    return {own[short(name)] if name in odd else name: value for name, value in given.items()}


def _without_base(given: State, base: State, where: str) -> State:
    for name in (name for name in given if name in base):
        if given[name].shape != base[name].shape or not np.array_equal(given[name], base[name]):
            raise FedauditError(
                "other-base",
                f"{name!r}, which is not exchanged, differs from the frozen part of the model that is audited",
                "Audit with the base that the parties train on. If this changes in training, it is exchanged: name it.",
                where=where,
            )
    return {name: value for name, value in given.items() if name not in base}


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
