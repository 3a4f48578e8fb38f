"""Gaussian noise on every update, as large as it takes to hide something, and no larger than the model bears.

1. Each party adds noise to the update that leaves it. Its strength is measured in norms of that update: at strength 5
   the noise is about five times as long. Spread over many weights it hardly disturbs what all parties agree on.

Nothing is clipped, so that one record may move the update, and the noise with it, by any amount: it promises nothing.
What it does is measured. The adversary knows of it, as of every defence: `matched-filter` and `unmix` are set for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from fedaudit.config.registry import DEFENCES
from fedaudit.defences.dp_fedavg import added, difference, norm
from fedaudit.defences.shared import Defence, DefenceOptions, Setting, within
from fedaudit.types import State, Trained

if TYPE_CHECKING:
    from fedaudit.defences.shared import Slot

UPDATE_NOISE = "update-noise"


class UpdateNoiseOptions(DefenceOptions):
    strength: float = Field(description="the length of the noise, in norms of the update that it is added to")

    @property
    def slots(self) -> tuple[Slot, ...]:
        return ("update",)


@DEFENCES.register(UPDATE_NOISE, "noise on each update (strength = in norms of the update)", UpdateNoiseOptions)
def update_noise(asked: UpdateNoiseOptions, setting: Setting) -> Defence:
    return Defence(asked.name, update=UpdateNoise(within(asked.name, asked.strength, 0, float("inf"))))


@dataclass(frozen=True)
class UpdateNoise:
    """Fills the update slot. Counters, which are no floating-point numbers, leave as they are."""

    strength: float

    def __call__(self, broadcast: State, trained: Trained, rng: np.random.Generator) -> Trained:
        change = difference(broadcast, trained.state)
        each = self.strength * norm(change) / max(1, sum(v.size for v in change.values())) ** 0.5
        noise = {key: rng.normal(0, each, value.shape) for key, value in change.items()}
        return replace(trained, state=added(trained.state, noise))
