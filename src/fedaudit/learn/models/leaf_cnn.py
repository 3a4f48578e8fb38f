"""The network of the LEAF benchmark for handwriting (Caldas et al. 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedaudit.config.registry import MODELS

if TYPE_CHECKING:
    from torch import nn


@MODELS.register(
    "leaf-cnn", "for images: LEAF's handwriting network, two 5 x 5 convolutions (32, 64), 2048 units, linear"
)
def leaf_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    from torch import nn

    from fedaudit.learn.layers import image

    channels, height, width = image("leaf-cnn", input_shape, at_least=4)
    layers: list[nn.Module] = []
    for wide in (32, 64):
        layers += [nn.Conv2d(channels, wide, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
        channels, height, width = wide, height // 2, width // 2
    layers += [nn.Flatten(), nn.Linear(channels * height * width, 2048), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(2048, max(classes, 1)))
