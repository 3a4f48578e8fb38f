"""The lowest loss that a record had in any round."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.reductions import Kept
from fedaudit.config.attack_registry import option
from fedaudit.types import Floats, Moment


@dataclass(frozen=True)
class LowestLoss(BaseAttack):
    """the lowest loss of the record in any round"""

    skip: int = option(0, "rounds at the beginning that do not count", ge=0)

    @property
    def signals(self) -> tuple[str, ...]:
        return ("loss",)

    def reduce(self, n: int) -> "Lowest":
        return Lowest(self.skip, n)


class Lowest(Kept):
    """The smallest loss so far; NaN, not observed, is passed over."""

    def __init__(self, skip: int, n: int):
        self.skip = skip
        self.lowest: Floats = np.full(n, np.nan)

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        if moment.round > self.skip:
            self.lowest = np.fmin(self.lowest, values["loss"])

    def features(self) -> Floats:
        return -self.lowest[:, None]  # higher means member
