"""Rounding: what leaves a party is rounded to a grid. It guarantees nothing."""

from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from fedaudit.config.registry import DEFENCES
from fedaudit.defences import Defence, DefenceOptions, Setting
from fedaudit.types import State, Trained


class RoundingOptions(DefenceOptions):
    step: float = Field(gt=0, description="the distance between two values that may be sent")

    @property
    def slots(self) -> tuple[str, ...]:
        return ("update",)


@DEFENCES.register("rounding", "weights are rounded before they leave a party (step)", RoundingOptions)
def rounding(asked: RoundingOptions, setting: Setting) -> Defence:
    return Defence(asked.name, update=Rounding(asked.step))


@dataclass(frozen=True)
class Rounding:
    """Fills the update slot."""

    step: float

    def __call__(self, broadcast: State, trained: Trained, rng: np.random.Generator) -> Trained:
        floats = {name: value for name, value in trained.state.items() if value.dtype.kind == "f"}
        rounded = {name: (np.rint(v / self.step) * self.step).astype(v.dtype) for name, v in floats.items()}
        return replace(trained, state={**trained.state, **rounded})
