"""Regularisation: what people use against overfitting, and hope to be a defence. It promises nothing."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.types import Records, State, Trained

ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Sigmoid)


@dataclass(frozen=True)
class L2:
    """Weight decay in every local step."""

    strength: float

    def __call__(
        self, task: TorchTask, state: State, records: Records, training: Training, rng: np.random.Generator
    ) -> Trained:
        return task.train(state, records, replace(training, weight_decay=self.strength), rng)


@dataclass(frozen=True)
class Dropout:
    """Each hidden activation is dropped with this chance, while training."""

    strength: float

    def __call__(
        self, task: TorchTask, state: State, records: Records, training: Training, rng: np.random.Generator
    ) -> Trained:
        module = task.fresh(state)

        def drop(layer: nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(output, self.strength, layer.training)

        for layer in module.modules():
            if isinstance(layer, ACTIVATIONS):
                layer.register_forward_hook(drop)
        return task.fit(module, records, training, rng)
