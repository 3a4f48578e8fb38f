"""Networks for images: a plain convolutional one, that of LEAF, and residual ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fedaudit.config.registry import MODELS, Options

if TYPE_CHECKING:
    from torch import nn


class CnnOptions(Options):
    filters: Literal[16, 32, 64] | None = Field(None, description="of its first block; not set: 32")


@MODELS.register(
    "cnn",
    "for images: three convolution blocks (two below 24 pixels), linear; filters = 16, 32 or 64 (32 unless set)",
    CnnOptions,
)
def cnn(input_shape: tuple[int, ...], classes: int, filters: int = 32) -> nn.Module:
    """Convolution, ReLU, pooling: three blocks from 24 pixels on, else two, each twice as wide; then linear."""
    from torch import nn

    from fedaudit.learn.layers import image

    channels, height, width = image("cnn", input_shape, at_least=4)
    blocks = 3 if min(height, width) >= 24 else 2
    layers: list[nn.Module] = []
    for block in range(blocks):
        wide = filters * 2**block
        layers += [nn.Conv2d(channels, wide, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        channels, height, width = wide, height // 2, width // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * height * width, max(classes, 1)))


@MODELS.register(
    "leaf-cnn", "for images: LEAF's handwriting network, two 5 x 5 convolutions (32, 64), 2048 units, linear"
)
def leaf_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of the LEAF benchmark for handwriting (Caldas et al. 2018)."""
    from torch import nn

    from fedaudit.learn.layers import image

    channels, height, width = image("leaf-cnn", input_shape, at_least=4)
    layers: list[nn.Module] = []
    for wide in (32, 64):
        layers += [nn.Conv2d(channels, wide, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
        channels, height, width = wide, height // 2, width // 2
    layers += [nn.Flatten(), nn.Linear(channels * height * width, 2048), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(2048, max(classes, 1)))


# ------------------------------------------------------------------ residual networks

# The residual networks for small images (He et al. 2016).
# GroupNorm is the default because it treats every record alone; BatchNorm, on request, mixes the records of a batch and
# sends its statistics to the server.


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
