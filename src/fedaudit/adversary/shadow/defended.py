"""Reference models that train under the parties' defence, with its clipping, noise and batches."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from fedaudit.defences.slots import Gradient
from fedaudit.learn.many import Loop
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.types import Floats, Ints, Records


class Defended(Loop):
    """Trains one model after the other: each needs its own noise, and Opacus takes the steps."""

    def __init__(self, task: TorchTask, module: nn.Module, count: int, training: Training, gradient: Gradient):
        super().__init__(module, count, training, task.classes)
        self.task, self.gradient = task, gradient

    def train(self, data: Records, targets: Floats, sets: Sequence[Ints], rng: np.random.Generator) -> None:
        """Trains each model for one epoch on its own rows, with soft labels."""
        once = replace(self.training, epochs=1)
        taught = replace(data, y=targets if self.classes else targets[:, 0])
        for module, rows in zip(self.modules, sets, strict=True):
            trained = self.gradient(self.task, self.task.state_of(module), taught.take(rows), once, rng)
            module.load_state_dict({name: torch.from_numpy(value) for name, value in trained.state.items()})
