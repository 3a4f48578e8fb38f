"""Torch lives behind this: a model and a loss become outputs, training and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedaudit.errors import FedauditError, suggest
from fedaudit.types import Floats, Records, State, Trained

FORWARD_ROWS = 4096  # rows in one forward pass; fixed, because the batch size can change the last bits


@dataclass(frozen=True)
class Training:
    """How a party trains."""

    optimizer: str = "adam"
    lr: float = 1e-3
    epochs: int = 1
    batch_size: int = 64


class TorchTask:
    """Any `nn.Module` with logits (classification) or one value (regression, classes = 0) as output."""

    def __init__(self, build: Callable[[], nn.Module], classes: int):
        self._build = build
        self._module = build()
        self._classes = classes
        self._loss: nn.Module = nn.CrossEntropyLoss() if classes else nn.MSELoss()

    @property
    def classes(self) -> int:
        return self._classes

    def initial(self, seed: int) -> State:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return _to_numpy(self._build())

    def outputs(self, state: State, x: NDArray[Any]) -> Floats:
        """Logits (or predictions) in float64, in evaluation mode, in fixed batches and in row order."""
        module = self._load(state).eval()
        with torch.inference_mode():
            parts = [module(_tensor(x[i : i + FORWARD_ROWS])).double() for i in range(0, len(x), FORWARD_ROWS)]
        return torch.cat(parts).numpy() if parts else np.empty((0, max(self._classes, 1)))

    def module(self, state: State) -> nn.Module:
        """The model itself with this state, in evaluation mode; the next call with another state changes it."""
        return self._load(state).eval()

    def losses(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """One loss per record, summed over its positions if it has several."""
        each = nn.functional.cross_entropy if self._classes else nn.functional.mse_loss
        outputs = outputs if self._classes else outputs.squeeze(-1)
        return (
            each(outputs, y, reduction="none").flatten(1).sum(1) if y.dim() > 1 else each(outputs, y, reduction="none")
        )

    def train(self, state: State, records: Records, training: Training, rng: np.random.Generator) -> Trained:
        """Local training from `state`: shuffled mini-batches, a fresh optimiser."""
        module = self._load(state).train()
        optimizer = _OPTIMIZERS[training.optimizer](module.parameters(), lr=training.lr)
        x, y = _tensor(records.x), _tensor(records.y)
        started = time.perf_counter()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))  # dropout
            for _ in range(training.epochs):
                order = torch.from_numpy(rng.permutation(len(records)))
                for batch in torch.split(order, training.batch_size):
                    optimizer.zero_grad(set_to_none=True)
                    self._loss(self._predict(module, x[batch]), y[batch]).backward()
                    optimizer.step()
        seconds = (time.perf_counter() - started) / training.epochs
        return Trained(_to_numpy(module), len(records), seconds)

    def check(self, state: State, records: Records) -> None:
        """Refuse, before training, a model that does not fit the data or whose answers are not reproducible."""
        few = records.x[:8]
        try:
            first, second = self.outputs(state, few), self.outputs(state, few)
        except RuntimeError as error:
            raise FedauditError(
                "model-data",
                f"the model cannot take records of shape {records.x.shape[1:]}: {str(error).splitlines()[0]}",
                "Choose a model for this shape, or reshape the data.",
            ) from None
        if self._classes and first.shape != (len(few), self._classes):
            raise FedauditError(
                "model-outputs",
                f"the model answers with shape {first.shape[1:]} where {self._classes} classes are needed",
                "Make its last layer as wide as there are classes.",
            )
        if not np.array_equal(first, second):
            raise FedauditError(
                "model-random",
                "the model answers the same records differently twice, in evaluation mode",
                "Remove the randomness from its forward pass when `self.training` is false.",
            )

    def _predict(self, module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = module(x)
        return out if self._classes else out.squeeze(-1)

    def _load(self, state: State) -> nn.Module:
        self._module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in state.items()})
        return self._module


_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _to_numpy(module: nn.Module) -> State:
    return {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}


# ------------------------------------------------------------------ models


def mlp(input_shape: tuple[int, ...], classes: int, hidden: Sequence[int] = (512, 256, 128)) -> nn.Module:
    """Fully connected layers with ReLU between them."""
    widths = [int(np.prod(input_shape)), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], max(classes, 1)))


def build_task(name: str, input_shape: tuple[int, ...], classes: int, options: dict[str, Any]) -> TorchTask:
    """A task around a model of ours, or the user's own `package.module:factory`."""
    factory = _MODELS.get(name) or _imported(name)
    return TorchTask(lambda: factory(input_shape, classes, **options), classes)


_MODELS: dict[str, Callable[..., nn.Module]] = {"mlp": mlp}


def _imported(name: str) -> Callable[..., nn.Module]:
    module, separator, attribute = name.partition(":")
    if not separator:
        raise FedauditError("unknown-model", f"unknown model {name!r}", suggest(name, _MODELS))
    try:
        factory: Callable[..., nn.Module] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise FedauditError(
            "model-import", f"cannot import {name!r}: {error}", "Run from where the package can be imported."
        ) from None
    return factory
