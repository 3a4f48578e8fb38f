"""Signals by name: one number (or a few) per record and round. Signals that share a pass are computed together.

A family gives the values of those signals that could be observed; one that it leaves out was not observed in this
round, which is neither a zero nor a failure.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fedaudit.adversary.signals import attribute, merlin, outputs, references
from fedaudit.adversary.vantage import View, view
from fedaudit.errors import FedauditError
from fedaudit.types import Bools, Floats, Grant, Moment, Records, State, Task, Vantage

# (signals, view, rows, which rows are known non-members, randomness) -> values by signal, one row for each record
Measure = Callable[[Iterable[str], View, Records, Bools, np.random.Generator], dict[str, Floats]]


@dataclass(frozen=True)
class Family:
    """What each of its signals needs of a view, and how those wanted are computed together.

    `salt` tells this family's random numbers from those of the others.
    """

    needs: Mapping[str, frozenset[Grant]]
    measure: Measure
    salt: int = 0


def _gradients(
    names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
) -> dict[str, Floats]:
    from fedaudit.adversary.signals import gradients  # needs torch

    return gradients.measure(names, view, rows, known, rng)


_CONSECUTIVE = frozenset({Grant.WEIGHTS, Grant.EVERY_ROUND})
_GRADIENTS: dict[str, frozenset[Grant]] = {
    **dict.fromkeys(("gradient-cosine", "gradient-diff", "gradient-norm-all"), _CONSECUTIVE),
    "peer-cosine": _CONSECUTIVE | {Grant.UPDATE},
}
GRADIENTS = frozenset(_GRADIENTS)
FAMILIES = [
    Family(outputs.NEEDS, outputs.measure),
    Family(merlin.NEEDS, merlin.measure, salt=merlin.COPIES),
    Family(_GRADIENTS, _gradients),
]

# Signals of models and settings that an adversary brings along are measured by these (`adversary.shadow`, `Probe`).
NEEDS: dict[str, frozenset[Grant]] = {
    **{name: grants for family in FAMILIES for name, grants in family.needs.items()},
    **references.NEEDS,
    **attribute.NEEDS,
}


def register(family: Family) -> None:
    """One more family: an attack may then name its signals."""
    FAMILIES.append(family)
    NEEDS.update(family.needs)


def measure(
    names: Iterable[str], view: View, rows: Records, known: Bools, families: Iterable[Family] = FAMILIES
) -> dict[str, Floats]:
    """The named signals of every row under the view's model; each family computes its own at once."""
    wanted = set(names)
    values: dict[str, Floats] = {}
    for family in families:
        mine = [name for name in family.needs if name in wanted]
        if mine:
            values |= family.measure(mine, view, rows, known, _rng(view.moment, family.salt))
    return values


def _rng(moment: Moment, salt: int) -> np.random.Generator:
    """Of the moment alone, so that measuring twice gives the same bits."""
    return np.random.default_rng([moment.round, salt, moment.probe] if moment.probe else [moment.round, salt])


def why_not(names: Iterable[str], state: State, rows: Records, task: Task) -> str | None:
    """The reason why a task cannot give these signals, found by trying them on two records before training."""
    names = [name.removeprefix("attribute-") for name in names]  # the same signal, at each value of an attribute
    seen = view(Vantage.SERVER, "local", Moment(1), task, state, state)
    try:
        slow(names, state, rows, task)
        few = rows.take(np.arange(min(2, len(rows))))
        measure(names, seen, few, np.ones(len(few), bool))
    except FedauditError as error:
        return error.what
    return None


def slow(names: Iterable[str], state: State, rows: Records, task: Task) -> str | None:
    """Why some of the signals will cost far more than a pass; refuses gradients that would come out wrong."""
    if not GRADIENTS & set(names):
        return None
    from fedaudit.adversary.signals import gradients

    return gradients.check(task, state, rows)
