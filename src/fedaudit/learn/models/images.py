"""Networks for images: plain convolutional ones, those that papers on these attacks use, and residual ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

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

    blocks, outputs = _two_blocks("leaf-cnn", input_shape, kernel=5)
    return nn.Sequential(*blocks, nn.Linear(outputs, 2048), nn.ReLU(), nn.Linear(2048, max(classes, 1)))


def _two_blocks(name: str, input_shape: tuple[int, ...], kernel: int) -> tuple[list[nn.Module], int]:
    """Convolution, ReLU and pooling with 32 and 64 filters, flattened, and how many numbers come out."""
    from torch import nn

    from fedaudit.learn.layers import image

    channels, height, width = image(name, input_shape, at_least=4)
    layers: list[nn.Module] = []
    for wide in (32, 64):
        layers += [nn.Conv2d(channels, wide, kernel, padding=kernel // 2), nn.ReLU(), nn.MaxPool2d(2)]
        channels, height, width = wide, height // 2, width // 2
    return [*layers, nn.Flatten()], channels * height * width


@MODELS.register("lenet", "for images: LeNet-5, two 5 x 5 convolutions (6, 16), 120 and 84 units, linear; ReLU")
def lenet(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """LeCun et al. 1998, with ReLU and the largest of four for the mean. Only the first convolution keeps the edge."""
    from torch import nn

    from fedaudit.learn.layers import image

    channels, height, width = image("lenet", input_shape, at_least=12)
    height, width = (height // 2 - 4) // 2, (width // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * height * width, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, max(classes, 1)),
    )  # fmt: skip


@MODELS.register(
    "alexnet", "for images: AlexNet for small pictures, five 3 x 3 convolutions (64, 192, 384, 256, 256), linear"
)
def alexnet(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The convolutions of Krizhevsky et al. 2012, as they were narrowed in 2014, 3 x 3 each for small pictures, and the
    one linear layer that such copies have."""
    from torch import nn

    from fedaudit.learn.layers import image

    channels, height, width = image("alexnet", input_shape, at_least=16)
    layers: list[nn.Module] = []
    for place, wide in enumerate((64, 192, 384, 256, 256)):
        layers += [nn.Conv2d(channels, wide, 3, stride=1 if place else 2, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if place in (0, 1, 4) else []
        channels = wide
    height, width = (-(-side // 2) // 8 for side in (height, width))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * height * width, max(classes, 1)))


@MODELS.register(
    "tanh-cnn", "for images: two convolution blocks (32, 64), 128 units with tanh, linear (that of the gradient series)"
)
def tanh_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of the paper on gradient series, section 5: it gives the kinds of layers and the last two widths. The
    filters are ours."""
    from torch import nn

    blocks, outputs = _two_blocks("tanh-cnn", input_shape, kernel=3)
    return nn.Sequential(*blocks, nn.Linear(outputs, 128), nn.Tanh(), nn.Linear(128, max(classes, 1)))


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


class WideResnetOptions(ResnetOptions):
    depth: Literal[10, 16, 22, 28, 40] | None = Field(None, description="layers with weights; not set: 16")
    width: Annotated[int, Field(ge=1, le=16)] | None = Field(None, description="times as wide; not set: 2")


@MODELS.register(
    "wide-resnet",
    "for images: wide residual network, depth = 16 and width = 2 unless set; norm as in resnet20",
    WideResnetOptions,
)
def wide_resnet(
    input_shape: tuple[int, ...], classes: int, depth: int = 16, width: int = 2, norm: str = "group"
) -> nn.Module:
    """Zagoruyko and Komodakis 2016: depth 6 n + 4, which counts the shortcuts; without dropout. Deviations: a block
    normalises after its convolutions, as in our other residual networks; the first convolution is as wide as the first
    blocks, so that there are two shortcuts and not three."""
    widths = (16 * width, 32 * width, 64 * width)
    return _residual("wide-resnet", input_shape, classes, widths, (depth - 4) // 6, norm)


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
