"""A plain convolutional network for images."""

from __future__ import annotations

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
