"""Model, data and training, as in any Flower app. Supermarket baskets, the households split among the parties."""

import numpy as np
import torch
from torch import nn

import fedaudit
from fedaudit.config.registry import Options
from fedaudit.data import load


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(600, 256), nn.ReLU(), nn.Linear(256, 100))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def load_data(partition: int, partitions: int):
    """What this party trains on, and the game that audits it. Whole households are set aside, before any training."""
    baskets = load(Options(name="baskets")).records
    households = np.unique(baskets.subject)[partition::partitions]
    mine = baskets.take(np.isin(baskets.subject, households))
    return fedaudit.set_aside(mine.x, mine.y, subject=mine.subject, party=f"party-{partition}", seed=0)


def train(net: nn.Module, x: np.ndarray, y: np.ndarray, epochs: int, lr: float) -> float:
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    loss = torch.zeros(())
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(inputs)), 64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(inputs[batch]), labels[batch])
            loss.backward()
            optimizer.step()
    return float(loss)
