"""Signals by name: one number (or a few) per record and round. Signals that share a pass are computed together.

A family returns values for the signals that could be observed. A signal that it leaves out was not observed in this
round; that is neither a zero nor a failure.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fedaudit.adversary.signals import attribute, merlin, neighbourhood, outputs, references, searching, updates
from fedaudit.adversary.vantage import View
from fedaudit.types import Bools, Floats, Grant, Moment, Records

# (signals, view, rows, which rows are known non-members, randomness) -> values by signal, one row for each record
Measure = Callable[[Iterable[str], View, Records, Bools, np.random.Generator], dict[str, Floats]]


@dataclass(frozen=True)
class Family:
    """Signals that come out of one pass: what each needs from a view, and a function that computes them together.

    `salt` keeps the random numbers of this family apart from those of the others. `expected`: how many seconds it was
    said to take, where that was said.
    """

    needs: Mapping[str, frozenset[Grant]]
    measure: Measure
    salt: int = 0
    expected: float = 0.0

    @property
    def name(self) -> str:
        """That of its first signal. Times are stored by it."""
        return next(iter(self.needs))


def _gradients(
    names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
) -> dict[str, Floats]:
    from fedaudit.adversary.signals import gradients  # needs torch

    return gradients.measure(names, view, rows, known, rng)


_GRADIENTS: dict[str, frozenset[Grant]] = {
    **dict.fromkeys(("gradient-cosine", "gradient-diff", "gradient-norm-all"), updates.CONSECUTIVE),
    "peer-cosine": updates.CONSECUTIVE | {Grant.UPDATE},
}
GRADIENTS = frozenset(_GRADIENTS)
# Signals of a record's gradient, which some models give only slowly.
DEAR = GRADIENTS | set(updates.NEEDS) - {updates.BEFORE}
FAMILIES = [
    Family(outputs.NEEDS, outputs.measure),
    Family(merlin.NEEDS, merlin.measure, salt=merlin.COPIES),
    Family(neighbourhood.NEEDS, neighbourhood.measure, salt=neighbourhood.COPIES),
    Family(_GRADIENTS, _gradients),
]

# The last four are measured elsewhere: on reference models (`adversary.shadow`), by `attribute.Probe`, and by objects
# that a sight keeps from round to round.
NEEDS: dict[str, frozenset[Grant]] = {
    **{name: grants for family in FAMILIES for name, grants in family.needs.items()},
    **references.NEEDS,
    **attribute.NEEDS,
    **updates.NEEDS,
    **searching.NEEDS,
}


def register(family: Family) -> None:
    """Adds a family, so that attacks can use its signals."""
    FAMILIES.append(family)
    NEEDS.update(family.needs)


def measure(
    names: Iterable[str], view: View, rows: Records, known: Bools, families: Iterable[Family] = FAMILIES
) -> dict[str, Floats]:
    """The named signals of every row under the view's model."""
    wanted = set(names)
    values: dict[str, Floats] = {}
    for family in families:
        mine = [name for name in family.needs if name in wanted]
        if mine:
            values |= family.measure(mine, view, rows, known, _rng(view.moment, family.salt))
    return values


def _rng(moment: Moment, salt: int) -> np.random.Generator:
    """Depends on the moment only, so that measuring twice gives identical values."""
    return np.random.default_rng([moment.round, salt, moment.probe] if moment.probe else [moment.round, salt])
