"""A model as people have it: a module, a class, a factory, or "package.module:name" of one of these.

Whatever it is, it becomes a module that takes one batch of records and answers with one tensor. A model that takes
several inputs, or answers with a tuple or a dict, has a hook that says how it is asked:

    def forward(model, x):
        return model(x[:, :10], x[:, 10:])["logits"]
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from fedaudit.errors import FedauditError

Forward = Callable[[nn.Module, torch.Tensor], torch.Tensor]
SHOWN = 'def forward(model, x): return model(x)["logits"]'


def module_of(
    given: Any, name: str, input_shape: tuple[int, ...], classes: int, options: Mapping[str, Any]
) -> nn.Module:
    """A new module. A class or a function is called with the shape and the classes if it asks for them."""
    if isinstance(given, nn.Module):
        return copy.deepcopy(given)
    try:
        made: object = _called(given, input_shape, classes, options)
    except FedauditError:
        raise
    except Exception as error:  # it was given a shape and a number, so its words quote no record
        raise FedauditError(
            "model-factory",
            f"{name} cannot be called with (input_shape, classes, **options) or (**options): "
            f"{type(error).__name__}: {error}",
            "Let it take these and return a torch.nn.Module; options come from [model.options].",
        ) from error
    if not isinstance(made, nn.Module):
        raise FedauditError(
            "model-factory", f"{name} returned {type(made).__name__}", "Let it return a torch.nn.Module."
        )
    return made


def _called(factory: Any, input_shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> object:
    """By position where two arguments are needed, else by name where it has these names, else without them."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # written in C
        return factory(input_shape, classes, **options)
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.kind in by_position and p.default is p.empty and p.name not in options]
    if len(needed) >= 2 or any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return factory(input_shape, classes, **options)
    known = {"input_shape": input_shape, "classes": classes}
    named = {p.name: known[p.name] for p in parameters if p.name in known and p.name not in options}
    return factory(**named, **options)


def with_forward(module: nn.Module, hook: Forward | None) -> nn.Module:
    """The same module, with the same parameters under the same names, that is asked through the hook.

    Its class is a subclass of its own: a module around it would rename the parameters, and what parties exchange would
    no longer fit.
    """
    if hook is None:
        return module
    asked = hook

    class Asked(type(module)):  # type: ignore[misc]
        def forward(self, *inputs: Any, **named: Any) -> Any:
            if self.__dict__["_inside_hook"]:  # the hook calls the model itself
                return super().forward(*inputs, **named)
            self.__dict__["_inside_hook"] = True
            try:
                return asked(self, *inputs)
            finally:
                self.__dict__["_inside_hook"] = False

    made: nn.Module = Asked.__new__(Asked)
    made.__dict__.update(module.__dict__, _inside_hook=False)
    return made


def answer(made: object) -> torch.Tensor:
    """One tensor, or an error that says how to get one."""
    if isinstance(made, torch.Tensor):
        return made
    what = type(made).__name__
    if isinstance(made, Mapping):
        what += f" with {', '.join(str(key) for key in list(made)[:8])}"
    elif isinstance(made, tuple):
        what += f" of {len(made)}"
    raise FedauditError(
        "model-forward",
        f"the model answers with a {what}, and one tensor of logits is needed",
        f'Say how it is asked: `{SHOWN}`; then [model] forward = "package.module:forward", or forward= in Python.',
    )
