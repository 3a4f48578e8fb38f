"""A model of the user's own: `name = "package.module:factory"`, a class or a function."""

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from fedaudit.config.code import imported
from fedaudit.config.registry import MODELS, Options


class OwnModelOptions(Options):
    options: dict[str, Any] = Field({}, description="what the factory is called with, beside shape and classes")
    forward: str | None = Field(
        None, description='how it is asked, if not by model(x) -> logits: "package.module:function" of (model, x)'
    )

    exchanged: Literal["trainable"] | tuple[str, ...] | None = Field(
        None,
        description='what parties exchange, where that is a part of the model: "trainable", or names of parameters or '
        "modules; not set: all, or the adapter of a PEFT model",
    )

    def arguments(self) -> dict[str, Any]:
        return dict(self.options)


@MODELS.register(
    "package.module:factory",
    "your own: a function or a class of (input_shape, classes, **options), or of (**options) -> torch.nn.Module",
    OwnModelOptions,
)
def factory_of(name: str) -> Callable[..., Any]:
    """The function that is named, imported."""
    factory: Callable[..., Any] = imported(name, "model-import")
    return factory


def forward_of(asked: Options) -> Callable[..., Any] | None:
    """The hook that a configuration names, imported."""
    name = asked.forward if isinstance(asked, OwnModelOptions) else None
    hook: Callable[..., Any] | None = imported(name, "model-import") if name else None
    return hook


def exchanged_of(asked: Options) -> Literal["trainable"] | tuple[str, ...] | None:
    """What parties exchange, where a configuration says that it is a part of the model."""
    return asked.exchanged if isinstance(asked, OwnModelOptions) else None
