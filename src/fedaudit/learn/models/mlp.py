"""Fully connected layers; without hidden ones, logistic or linear regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic import Field

from fedaudit.config.registry import MODELS, Options
from fedaudit.config.section import Count
from fedaudit.errors import FedauditError

if TYPE_CHECKING:
    from torch import nn

HIDDEN = (512, 256, 128)


class MlpOptions(Options):
    hidden: tuple[Count, ...] | None = Field(
        None, description=f"the widths of its hidden layers; not set: {', '.join(map(str, HIDDEN))}"
    )
    rank: Count | None = Field(
        None, description="the largest layer is a product of two, with so many numbers between them; not set: one layer"
    )
    projection: Count | None = Field(
        None, description="the network sees so many fixed random sums of the inputs; not set: the inputs themselves"
    )


@MODELS.register("linear", "logistic regression; linear regression where there are no classes")
def linear(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return mlp(input_shape, classes, ())


@MODELS.register(
    "mlp",
    f"fully connected, ReLU; hidden = {list(HIDDEN)} unless set; rank = of its largest layer, projection = of inputs",
    MlpOptions,
)
def mlp(
    input_shape: tuple[int, ...],
    classes: int,
    hidden: Sequence[int] = HIDDEN,
    rank: int | None = None,
    projection: int | None = None,
) -> nn.Module:
    """Fully connected layers with ReLU between them. With `rank`, the largest is two layers with nothing between."""
    from torch import nn

    from fedaudit.learn.layers import Projection

    inputs = math.prod(input_shape)
    front: list[nn.Module] = [nn.Flatten()]
    if projection is not None:
        if projection >= inputs:
            what = f"model.projection = {projection} does not make the {inputs} inputs fewer"
            raise FedauditError("model-projection", what, f"Set less than {inputs}, or leave it out.")
        front.append(Projection(inputs, projection))
        inputs = projection
    shapes = list(pairwise([inputs, *hidden, max(classes, 1)]))
    largest = max(range(len(shapes)), key=lambda place: math.prod(shapes[place])) if rank is not None else None
    layers: list[nn.Module] = []
    for place, (before, after) in enumerate(shapes):
        if rank is not None and place == largest:
            layers += _product(before, rank, after)
        else:
            layers.append(nn.Linear(before, after))
        layers.append(nn.ReLU())
    return nn.Sequential(*front, *layers[:-1])


def _product(before: int, rank: int, after: int) -> list[nn.Module]:
    from torch import nn

    if rank * (before + after) >= before * after:
        most = (before * after - 1) // (before + after)
        what = f"model.rank = {rank} does not make the largest layer, {before} x {after}, smaller"
        remedy = f"Set at most {most}, or leave it out." if most else "Leave it out."
        raise FedauditError("model-rank", what, remedy)
    return [nn.Linear(before, rank, bias=False), nn.Linear(rank, after)]
