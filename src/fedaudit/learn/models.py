"""The models of ours, by name. All end in a linear layer, so that last-layer gradients cost no backward pass.

Batches of images are (records, channels, height, width). GroupNorm is the default of the residual networks because it
treats every record alone; BatchNorm, on request, mixes the records of a batch and sends its statistics to the server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from fedaudit.errors import FedauditError

Shape = tuple[int, ...]

GROUPS = 8  # of GroupNorm: widths are multiples of it


def linear(input_shape: Shape, classes: int) -> nn.Module:
    """Logistic (or linear) regression."""
    return mlp(input_shape, classes, ())


def mlp(input_shape: Shape, classes: int, hidden: Sequence[int] = (512, 256, 128)) -> nn.Module:
    """Fully connected layers with ReLU between them."""
    widths = [int(np.prod(input_shape)), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], max(classes, 1)))


def cnn(input_shape: Shape, classes: int, filters: int = 32) -> nn.Module:
    """Convolution, ReLU, pooling: three blocks from 24 pixels on, else two, each twice as wide; then linear."""
    channels, height, width = _image("cnn", input_shape, at_least=4)
    blocks = 3 if min(height, width) >= 24 else 2
    layers: list[nn.Module] = []
    for block in range(blocks):
        wide = filters * 2**block
        layers += [nn.Conv2d(channels, wide, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        channels, height, width = wide, height // 2, width // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * height * width, max(classes, 1)))


def leaf_cnn(input_shape: Shape, classes: int) -> nn.Module:
    """The network of the LEAF benchmark for handwriting: two 5 x 5 convolutions (32, 64), 2048 units, linear."""
    channels, height, width = _image("leaf-cnn", input_shape, at_least=4)
    layers: list[nn.Module] = []
    for wide in (32, 64):
        layers += [nn.Conv2d(channels, wide, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
        channels, height, width = wide, height // 2, width // 2
    layers += [nn.Flatten(), nn.Linear(channels * height * width, 2048), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(2048, max(classes, 1)))


def resnet(input_shape: Shape, classes: int, depth: int, norm: str = "group") -> nn.Module:
    """The residual networks for small images (He et al. 2016): depth 6 n + 2, widths 16, 32, 64."""
    channels, _, _ = _image(f"resnet{depth}", input_shape, at_least=4)
    layers: list[nn.Module] = [nn.Conv2d(channels, 16, 3, padding=1, bias=False), _norm(norm, 16), nn.ReLU()]
    before = 16
    for wide in (16, 32, 64):
        for block in range((depth - 2) // 6):
            layers.append(Residual(before, wide, 2 if wide > 16 and block == 0 else 1, norm))
            before = wide
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, max(classes, 1)))


class Residual(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut, which is a 1 x 1 convolution where the shape changes."""

    def __init__(self, before: int, wide: int, stride: int, norm: str):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, wide, 3, stride, padding=1, bias=False),
            _norm(norm, wide),
            nn.ReLU(),
            nn.Conv2d(wide, wide, 3, padding=1, bias=False),
            _norm(norm, wide),
        )
        self.shortcut: nn.Module = nn.Identity()
        if before != wide or stride > 1:
            self.shortcut = nn.Sequential(nn.Conv2d(before, wide, 1, stride, bias=False), _norm(norm, wide))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


MODELS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "mlp": mlp,
    "cnn": cnn,
    "leaf-cnn": leaf_cnn,
    **{f"resnet{depth}": partial(resnet, depth=depth) for depth in (8, 20, 56)},
}


def _norm(name: str, channels: int) -> nn.Module:
    return nn.GroupNorm(GROUPS, channels) if name == "group" else nn.BatchNorm2d(channels)


def _image(model: str, input_shape: Shape, at_least: int) -> Any:
    if len(input_shape) != 3 or min(input_shape[1:]) < at_least:
        raise FedauditError(
            "model-shape",
            f"{model} needs images of shape (channels, height, width), at least {at_least} x {at_least} pixels, and "
            f"these records have shape {input_shape}",
            "Use `mlp` or `linear`, or store the records as images.",
        )
    return input_shape
