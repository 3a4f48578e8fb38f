"""Signals by name: one number (or a few) per record and round. Signals that share a pass are computed together.

A family returns values for the signals that could be observed. A signal that it leaves out was not observed in this
round; that is neither a zero nor a failure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary import shadow
from fedaudit.adversary.signals import outputs, searching, text, updates
from fedaudit.adversary.vantage import View, view
from fedaudit.config.attack_registry import plain, read_word, written
from fedaudit.errors import OF_OTHERS, say
from fedaudit.types import Bools, Floats, Grant, Moment, Records, State, Task, Vantage

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


# Signals of a record's gradient, which some models give only slowly.
DEAR = set(updates.OF_GRADIENTS) | set(updates.OF_UNMIXING) | set(updates.NEEDS) - {updates.BEFORE}
OF_ALL_LAYERS = set(updates.OF_GRADIENTS) | set(updates.OF_UNMIXING)
FAMILIES = [
    Family(outputs.NEEDS, outputs.measure),
    Family({outputs.MERLIN: outputs.NEEDS["loss"]}, outputs.measure_merlin, salt=outputs.MERLIN_COPIES),
    Family({outputs.NEIGHBOURHOOD: outputs.NEEDS["loss"]}, outputs.measure_neighbourhood, salt=outputs.NEIGHBOURS),
    Family(updates.OF_GRADIENTS, updates.measure),
    Family(text.NEEDS, text.measure),
    Family(text.PRESENCE_NEEDS, text.measure_presence),
]

# The last five are measured elsewhere: on reference models (`adversary.shadow`), by `outputs.Probe`, and by objects
# that a sight keeps from round to round.
NEEDS: dict[str, frozenset[Grant]] = {
    **{name: grants for family in FAMILIES for name, grants in family.needs.items()},
    **shadow.NEEDS,
    **outputs.ATTRIBUTE_NEEDS,
    **updates.NEEDS,
    **updates.OF_UNMIXING,
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


# ------------------------------------------------------------------ signals that an attack has measured in its own way

# `boundary+targets=1` is the signal `boundary` with targets = 1,
# whatever [audit] says. All that is known of a signal is known of its variants, and they are stored by their names.


def variant_of(signal: str, options: Mapping[str, Any]) -> str:
    """The signal with those options that are set."""
    return written(signal, {key: value for key, value in options.items() if value is not None})


def variant(signal: str) -> str:
    """What sets it apart from the plain signal; empty for that itself."""
    return signal.removeprefix(plain(signal))


def options_of(variant: str) -> dict[str, Any]:
    """The options, as text."""
    return read_word(variant)[1]


def variants(signals: Iterable[str], among: Iterable[str]) -> list[str]:
    """Those of the signals that are `among` these, each once; the plain ones come first."""
    known = set(among)
    return sorted({variant(signal) for signal in signals if plain(signal) in known})


def family_of(
    needs: Mapping[str, frozenset[Grant]], measure: Measure, variant: str, salt: int = 0, expected: float = 0.0
) -> Family:
    """The signals of one pass in this variant, measured by what measures the plain ones."""

    def varied(
        names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
    ) -> dict[str, Floats]:
        found = measure([plain(name) for name in names], view, rows, known, rng)
        return {f"{name}{variant}": values for name, values in found.items()}

    return Family({f"{name}{variant}": grants for name, grants in needs.items()}, varied, salt, expected)


def of_variant(values: Mapping[str, NDArray[Any]], wanted: str) -> dict[str, NDArray[Any]]:
    """What was measured of one variant, by the names of the plain signals."""
    return {plain(name): found for name, found in values.items() if variant(name) == wanted}


# ------------------------------------------------------------------ which signals a task can give


class SignalTrial:
    """Tries each signal once on two records, before training.

    Attacks share signals, and all gradients share one check, which takes a large model longer than a round may."""

    def __init__(self, task: Task, state: State, rows: Records):
        self.task, self.state, self.rows = task, state, rows
        self.tried: dict[str, str | None] = {}

    def why_not(self, names: Iterable[str], families: Sequence[Family] = FAMILIES) -> str | None:
        """Why the task cannot give these signals; None if it can."""
        # The same signal, once for each value of an attribute, or of another update.
        alike = [plain(name).removeprefix("attribute-").removesuffix("-peer") + variant(name) for name in names]
        for name in alike:
            if name not in self.tried:
                self.tried[name] = self._try(name, families)
        return next((reason for name in alike if (reason := self.tried[name])), None)

    @cached_property
    def gradients(self) -> "updates.Coverage | str":
        """Which layers have fast gradients of single records; or why records have none of their own here."""
        try:
            return updates.coverage(self.task, self.state, self.rows)
        except OF_OTHERS as error:
            return say(error)

    def _try(self, name: str, families: Sequence[Family]) -> str | None:
        if plain(name) in DEAR and isinstance(self.gradients, str):
            return self.gradients
        seen = view(Vantage.SERVER, "local", Moment(1), self.task, self.state, self.state)
        few = self.rows.take(np.arange(min(2, len(self.rows))))
        try:
            measure([name], seen, few, np.ones(len(few), bool), families)
        except OF_OTHERS as error:
            return say(error)
        return None
