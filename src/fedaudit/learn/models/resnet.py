"""The residual networks for small images (He et al. 2016).

GroupNorm is the default because it treats every record alone; BatchNorm, on request, mixes the records of a batch and
sends its statistics to the server.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fedaudit.config.registry import MODELS, Options

if TYPE_CHECKING:
    from torch import nn

DEPTHS = (8, 20, 56)


class ResnetOptions(Options):
    norm: Literal["group", "batch"] | None = Field(None, description="what normalises between layers; not set: group")


def resnet(input_shape: tuple[int, ...], classes: int, depth: int, norm: str = "group") -> nn.Module:
    """Depth 6 n + 2, widths 16, 32, 64."""
    from torch import nn

    from fedaudit.learn.layers import Residual, image, norm_of

    channels, _, _ = image(f"resnet{depth}", input_shape, at_least=4)
    layers: list[nn.Module] = [nn.Conv2d(channels, 16, 3, padding=1, bias=False), norm_of(norm, 16), nn.ReLU()]
    before = 16
    for wide in (16, 32, 64):
        for block in range((depth - 2) // 6):
            layers.append(Residual(before, wide, 2 if wide > 16 and block == 0 else 1, norm))
            before = wide
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, max(classes, 1)))


for depth in DEPTHS:
    about = f'for images: residual network of {depth} layers; norm = "group" (unless set) or "batch"'
    MODELS.register(f"resnet{depth}", about, ResnetOptions)(partial(resnet, depth=depth))
