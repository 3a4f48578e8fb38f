"""Two towers: each looks at one half of the features. Torch is imported inside the function only."""

from typing import Any

from pydantic import Field

from fedaudit.config.registry import MODELS, Options


class TowerOptions(Options):
    width: int = Field(64, ge=1, description="of each tower")


@MODELS.register("two-towers", "for rows of numbers: two towers of one hidden layer each (width)", TowerOptions)
def two_towers(input_shape: tuple[int, ...], classes: int, width: int = 64) -> Any:
    import torch
    from torch import nn

    first = input_shape[0] // 2

    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(first, width), nn.Linear(input_shape[0] - first, width)
            self.last = nn.Linear(2 * width, max(classes, 1))

        def forward(self, x: Any) -> Any:
            seen = torch.cat([self.left(x[:, :first]), self.right(x[:, first:])], dim=1)
            return self.last(torch.relu(seen))

    return Towers()
