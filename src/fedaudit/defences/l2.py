"""Weight decay: meant against overfitting, and sometimes used as a defence. It promises nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from fedaudit.config.registry import DEFENCES
from fedaudit.defences.shared import DefenceOptions, Setting, within
from fedaudit.defences.slots import Defence
from fedaudit.types import Records, State, Trained

if TYPE_CHECKING:
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
