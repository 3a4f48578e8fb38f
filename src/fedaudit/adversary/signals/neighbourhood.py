"""The loss in a record's neighbourhood: its mean over a few noisy copies of the record.

A model that has learnt a person's records, and not just one of them, is sure of itself around them, too. The noise is
a tenth of the features' spread; it depends on the round only, so that scoring twice gives identical values.
"""

from collections.abc import Iterable

import numpy as np

from fedaudit.adversary.signals import outputs
from fedaudit.adversary.vantage import View
from fedaudit.errors import FedauditError
from fedaudit.types import Bools, Floats, Grant, Records

NEIGHBOURHOOD = "neighbourhood-loss"
COPIES, SHARE = 10, 0.1
NEEDS: dict[str, frozenset[Grant]] = {NEIGHBOURHOOD: frozenset({Grant.OUTPUTS})}


def measure(
    names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
) -> dict[str, Floats]:
    return {name: mean_loss_around(view, rows, rng) for name in names}


def mean_loss_around(view: View, rows: Records, rng: np.random.Generator) -> Floats:
    if rows.x.dtype.kind != "f":
        what = "the records hold tokens, to which no noise can be added"
        raise FedauditError("tokens", what, "Take subject-neighbourhood out of audit.attacks.")
    scale, total = np.float32(SHARE * rows.x.std()), np.zeros(len(rows))
    for _ in range(COPIES):
        noisy = rows.x + scale * rng.standard_normal(rows.x.shape, dtype=np.float32)
        total += outputs.of_view(["loss"], view, Records(noisy, rows.y, rows.id))["loss"]
    return total / COPIES
