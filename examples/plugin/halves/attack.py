"""The lowest loss that a record had in any round."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.reductions import Kept
from fedaudit.types import Floats, Moment


@dataclass(frozen=True)
class LowestLoss(BaseAttack):
    """the lowest loss of the record in any round"""

    @property
    def name(self) -> str:
        return "lowest-loss"

    @property
    def signals(self) -> tuple[str, ...]:
        return ("loss",)

    def reduce(self, n: int) -> "Lowest":
        return Lowest(n)


class Lowest(Kept):
    """The smallest loss so far; NaN, not observed, is passed over."""

    def __init__(self, n: int):
        self.lowest: Floats = np.full(n, np.nan)

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        self.lowest = np.fmin(self.lowest, values["loss"])

    def features(self) -> Floats:
        return -self.lowest[:, None]  # higher means member
