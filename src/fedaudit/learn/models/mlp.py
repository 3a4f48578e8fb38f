"""Fully connected layers; without hidden ones, logistic or linear regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic import Field

from fedaudit.config.registry import MODELS, Options
from fedaudit.config.section import Count

if TYPE_CHECKING:
    from torch import nn

HIDDEN = (512, 256, 128)


class MlpOptions(Options):
    hidden: tuple[Count, ...] | None = Field(
        None, description=f"the widths of its hidden layers; not set: {', '.join(map(str, HIDDEN))}"
    )


@MODELS.register("linear", "logistic regression; linear regression where there are no classes")
def linear(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return mlp(input_shape, classes, ())


@MODELS.register("mlp", f"fully connected, ReLU; hidden = {list(HIDDEN)} unless set", MlpOptions)
def mlp(input_shape: tuple[int, ...], classes: int, hidden: Sequence[int] = HIDDEN) -> nn.Module:
    """Fully connected layers with ReLU between them."""
    from torch import nn

    widths = [math.prod(input_shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], max(classes, 1)))
