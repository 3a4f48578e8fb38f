"""A model of the user's own: `name = "package.module:factory"`."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from pydantic import Field

from fedaudit.config.registry import MODELS, Options
from fedaudit.errors import FedauditError


class OwnOptions(Options):
    options: dict[str, Any] = Field({}, description="what the factory is called with, beside shape and classes")

    def arguments(self) -> dict[str, Any]:
        return dict(self.options)


@MODELS.register(
    "package.module:factory", "your own: factory(input_shape, classes, **options) -> torch.nn.Module", OwnOptions
)
def factory_of(name: str) -> Callable[..., Any]:
    """The function that is named, imported."""
    module, _, attribute = name.partition(":")
    try:
        factory: Callable[..., Any] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise FedauditError(
            "model-import",
            f"cannot import {name!r}: {error}",
            "Check the name, and run the command in a folder from which the package can be imported.",
        ) from None
    return factory
