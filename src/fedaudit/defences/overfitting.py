"""Weight decay and dropout: meant against overfitting, and sometimes used as defences. They promise nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from fedaudit.config.registry import DEFENCES
from fedaudit.defences.shared import Defence, DefenceOptions, Setting, within
from fedaudit.errors import FedauditError
from fedaudit.types import Records, State, Trained

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedaudit.learn.tasks import TorchTask, Training


class L2Options(DefenceOptions):
    strength: float = Field(description="weight decay of the parties' optimiser, above 0")


@DEFENCES.register("l2", "weight decay (strength)", L2Options)
def l2(asked: L2Options, setting: Setting) -> Defence:
    return Defence(asked.name, gradient=L2(within(asked.name, asked.strength, 0, float("inf"))))


@dataclass(frozen=True)
class L2:
    """Fills the gradient slot: weight decay in every local step."""

    strength: float

    def __call__(
        self, task: TorchTask, state: State, records: Records, training: Training, rng: np.random.Generator
    ) -> Trained:
        return task.train(state, records, replace(training, weight_decay=self.strength), rng)


class DropoutOptions(DefenceOptions):
    strength: float = Field(description="the probability that an activation is dropped, between 0 and 1")


@DEFENCES.register("dropout", "activations dropped while training (strength = chance)", DropoutOptions)
def dropout(asked: DropoutOptions, setting: Setting) -> Defence:
    if not any(isinstance(layer, activations()) for layer in setting.task.architecture.modules()):
        what = "dropout acts behind activation layers such as nn.ReLU, and this model has none"
        raise FedauditError("dropout", what, "Take it out, or use a model with such layers.")
    return Defence(asked.name, gradient=Dropout(within(asked.name, asked.strength, 0, 1)))


def activations() -> tuple[type[nn.Module], ...]:
    from torch import nn

    return nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Sigmoid


@dataclass(frozen=True)
class Dropout:
    """Fills the gradient slot: each hidden activation is dropped with this chance, while training."""

    strength: float

    def __call__(
        self, task: TorchTask, state: State, records: Records, training: Training, rng: np.random.Generator
    ) -> Trained:
        from torch import nn

        module = task.fresh(state)

        def drop(layer: nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(output, self.strength, layer.training)

        for layer in module.modules():
            if isinstance(layer, activations()):
                layer.register_forward_hook(drop)
        return task.fit(module, records, training, rng)
