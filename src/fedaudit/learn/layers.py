"""What several models are built from."""

from typing import Any

import torch
from torch import nn

from fedaudit.errors import FedauditError

GROUPS = 8  # of GroupNorm: widths are multiples of it


SEED = 0  # of a projection: every party must have the same one


class Projection(nn.Module):
    """Fixed random sums of the inputs. None is trained or exchanged: whoever knows the configuration has them."""

    matrix: torch.Tensor

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        random = torch.randn(inputs, outputs, generator=torch.Generator().manual_seed(SEED)) / outputs**0.5
        self.register_buffer("matrix", random, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.matrix

    def extra_repr(self) -> str:
        return f"{self.matrix.shape[0]} to {self.matrix.shape[1]}"


class Residual(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut, which is a 1 x 1 convolution where the shape changes."""

    def __init__(self, before: int, wide: int, stride: int, norm: str):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, wide, 3, stride, padding=1, bias=False),
            norm_of(norm, wide),
            nn.ReLU(),
            nn.Conv2d(wide, wide, 3, padding=1, bias=False),
            norm_of(norm, wide),
        )
        self.shortcut: nn.Module = nn.Identity()
        if before != wide or stride > 1:
            self.shortcut = nn.Sequential(nn.Conv2d(before, wide, 1, stride, bias=False), norm_of(norm, wide))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class Recurrent(nn.Module):
    """Tokens in, logits over the tokens out, at every position: embedding, stacked LSTM, linear."""

    def __init__(self, tokens: int, width: int, units: int, layers: int):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.lstm = nn.LSTM(width, units, layers, batch_first=True)
        self.head = nn.Linear(units, tokens)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(self.embedding(x))
        out: torch.Tensor = self.head(hidden)
        return out


class LastOfRecurrent(nn.Module):
    """Tokens in, one row of logits out: embedding, stacked LSTM, linear on what the LSTM holds at the end."""

    def __init__(self, tokens: int, classes: int, width: int, units: int, layers: int):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.lstm = nn.LSTM(width, units, layers, batch_first=True)
        self.head = nn.Linear(units, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(self.embedding(x))
        out: torch.Tensor = self.head(hidden[:, -1])
        return out


def norm_of(name: str, channels: int) -> nn.Module:
    return nn.GroupNorm(GROUPS, channels) if name == "group" else nn.BatchNorm2d(channels)


def image(model: str, input_shape: tuple[int, ...], at_least: int) -> Any:
    """Channels, height and width; a model for images takes no other records."""
    if len(input_shape) != 3 or min(input_shape[1:]) < at_least:
        raise FedauditError(
            "model-shape",
            f"{model} needs images of shape (channels, height, width), at least {at_least} x {at_least} pixels, and "
            f"these records have shape {input_shape}",
            "Use `mlp` or `linear`, or store the records as images (for digits: data.pictures = true).",
        )
    return input_shape
