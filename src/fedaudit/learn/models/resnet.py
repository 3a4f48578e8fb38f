"""The residual networks for small images (He et al. 2016).

GroupNorm is the default because it treats every record alone; BatchNorm, on request, mixes the records of a batch and
sends its statistics to the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fedaudit.config.registry import MODELS, Options

if TYPE_CHECKING:
    from torch import nn

DEPTHS = (8, 20, 56)
WIDE = (64, 128, 256, 512)  # the widths of the networks for large images


class ResnetOptions(Options):
    norm: Literal["group", "batch"] | None = Field(None, description="what normalises between layers; not set: group")


def resnet(input_shape: tuple[int, ...], classes: int, depth: int, norm: str = "group") -> nn.Module:
    """Depth 6 n + 2, widths 16, 32, 64."""
    return _residual(f"resnet{depth}", input_shape, classes, (16, 32, 64), (depth - 2) // 6, norm)


@MODELS.register(
    "resnet18",
    'for images: the wide residual network of 18 layers; norm = "group" (unless set) or "batch"',
    ResnetOptions,
)
def resnet18(input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """ResNet-18 as it is used for small images: a 3 x 3 convolution first, and no pooling after it."""
    return _residual("resnet18", input_shape, classes, WIDE, 2, norm)


def _residual(
    name: str, input_shape: tuple[int, ...], classes: int, widths: Sequence[int], blocks: int, norm: str
) -> nn.Module:
    """As many blocks of each width; each width after the first begins at half the resolution."""
    from torch import nn

    from fedaudit.learn.layers import Residual, image, norm_of

    channels, _, _ = image(name, input_shape, at_least=4)
    before = widths[0]
    layers: list[nn.Module] = [nn.Conv2d(channels, before, 3, padding=1, bias=False), norm_of(norm, before), nn.ReLU()]
    for wide in widths:
        for block in range(blocks):
            layers.append(Residual(before, wide, 2 if wide > widths[0] and block == 0 else 1, norm))
            before = wide
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, max(classes, 1)))


for depth in DEPTHS:
    about = f'for images: residual network of {depth} layers; norm = "group" (unless set) or "batch"'
    MODELS.register(f"resnet{depth}", about, ResnetOptions)(partial(resnet, depth=depth))
