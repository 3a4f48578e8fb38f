"""Merlin's signal (Jayaraman et al. 2021): how often a little noise on the record makes its loss rise.

For a record that the model has learnt, the loss is near a local minimum. The signal takes a hundred noisy copies of
each record, and so a hundred forward passes. The noise depends on the round only, so that scoring twice gives identical
values.
"""

from collections.abc import Iterable

import numpy as np

from fedaudit.adversary.signals import outputs
from fedaudit.adversary.vantage import View
from fedaudit.errors import FedauditError
from fedaudit.types import Bools, Floats, Grant, Ints, Records

COPIES, SIGMA = 100, 0.01
ROWS = 4096  # number of records for which noise is drawn at a time
NEEDS: dict[str, frozenset[Grant]] = {"merlin": frozenset({Grant.OUTPUTS})}


def measure(
    names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
) -> dict[str, Floats]:
    return {name: share_of_rises(view, rows, rng) for name in names}


def share_of_rises(view: View, rows: Records, rng: np.random.Generator) -> Floats:
    if rows.x.dtype.kind != "f":
        raise FedauditError(
            "tokens", "the records hold tokens, to which no noise can be added", "Take merlin out of audit.attacks."
        )
    parts = [rows.take(np.arange(i, min(i + ROWS, len(rows)))) for i in range(0, len(rows), ROWS)]
    return np.concatenate([_rises(view, part, rng) for part in parts]) / COPIES


def _rises(view: View, rows: Records, rng: np.random.Generator) -> Ints:
    def loss(x: np.ndarray) -> Floats:
        return outputs.of_view(["loss"], view, Records(x, rows.y, rows.id))["loss"]

    before = loss(rows.x)
    rises = np.zeros(len(rows), np.int64)
    for _ in range(COPIES):
        noise = rng.standard_normal(rows.x.shape, dtype=np.float32)
        rises += loss(rows.x + np.float32(SIGMA) * noise) > before
    return rises
