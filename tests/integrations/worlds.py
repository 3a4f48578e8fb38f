"""Handwritten digits in the hands of a few parties, each of which set records aside before training."""

import resource
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn

from fedaudit.data.set_aside import set_aside
from fedaudit.types import Game, Records

PARTIES = ("north", "south")


@cache
def part(party: str) -> tuple[Records, Game]:
    """This party's training records and its game."""
    x, y = load_digits(return_X_y=True)
    number = PARTIES.index(party)
    mine = slice(number, None, len(PARTIES))
    return set_aside((x[mine] / 16).astype(np.float32), y[mine], party=party, seed=1)


def games() -> list[Game]:
    return [part(party)[1] for party in PARTIES]


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))


def train(module: nn.Module, records: Records, seed: int, epochs: int = 2) -> None:
    """Somebody's ordinary training."""
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    x, y = torch.from_numpy(records.x), torch.from_numpy(records.y)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(x), generator=generator), 32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def mean(states: Mapping[str, Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    first = next(iter(states.values()))
    return {name: torch.stack([s[name] for s in states.values()]).mean(dim=0) for name in first}


def equal(a: Mapping[str, NDArray[Any]], b: Mapping[str, NDArray[Any]]) -> bool:
    return list(a) == list(b) and all(np.array_equal(a[k], b[k]) for k in a)


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process may grow beyond a few bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def shaped_net(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The same model, as a configuration names it."""
    assert (input_shape, classes) == ((64,), 10)
    return net()
