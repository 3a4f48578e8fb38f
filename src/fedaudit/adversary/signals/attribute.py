"""The signal for attribute inference: a record's gradient norm with the hidden attribute set to each of its values."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.signals import outputs
from fedaudit.adversary.vantage import View
from fedaudit.types import Bools, Floats, Grant, Ints, Records

SIGNAL = "attribute-gradient-norm"  # records x values of the attribute
NEEDS: dict[str, frozenset[Grant]] = {SIGNAL: frozenset({Grant.OUTPUTS, Grant.WEIGHTS})}


@dataclass(frozen=True)
class Probe:
    """Which inputs of a record hold the attribute, and what they are for each of its values."""

    name: str
    columns: Ints
    settings: NDArray[np.float32]  # values x columns

    @property
    def values(self) -> int:
        return len(self.settings)

    def measure(
        self, names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
    ) -> dict[str, Floats]:
        """records x values: the gradient norm with the attribute set to each value in turn."""
        norms = []
        for setting in self.settings:
            x = rows.x.copy()
            x[:, self.columns] = setting
            norms.append(outputs.of_view(["gradient-norm"], view, replace(rows, x=x))["gradient-norm"])
        return {name: np.column_stack(norms) for name in names}

    def rest(self, rows: Records, classes: int) -> Floats:
        """Everything about a record except the attribute: the other inputs, and the label."""
        inputs = np.delete(rows.x.reshape(len(rows), -1), self.columns, axis=1).astype(np.float64)
        label = np.eye(classes)[rows.y] if classes else rows.y[:, None].astype(np.float64)
        return np.column_stack([inputs, label])
