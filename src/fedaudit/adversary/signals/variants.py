"""Signals that an attack has measured in its own way: `boundary+targets=1` is the signal `boundary` with targets = 1,
whatever [audit] says. All that is known of a signal is known of its variants, and they are stored by their names.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.vantage import View
from fedaudit.config.attack_registry import plain, read_word, written
from fedaudit.types import Bools, Floats, Grant, Records

# (signals, view, rows, which rows are known non-members, randomness) -> values by signal, one row for each record
Measure = Callable[[Iterable[str], View, Records, Bools, np.random.Generator], dict[str, Floats]]


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


def needs_of(needs: Mapping[str, frozenset[Grant]], variant: str) -> dict[str, frozenset[Grant]]:
    """What the signals of a pass need, by the names of this variant."""
    return {f"{name}{variant}": grants for name, grants in needs.items()}


def varied(measure: Measure, variant: str) -> Measure:
    """Measures the signals of a variant by what measures the plain ones."""

    def by_its_names(
        names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
    ) -> dict[str, Floats]:
        found = measure([plain(name) for name in names], view, rows, known, rng)
        return {f"{name}{variant}": values for name, values in found.items()}

    return by_its_names if variant else measure


def of_variant(values: Mapping[str, NDArray[Any]], wanted: str) -> dict[str, NDArray[Any]]:
    """What was measured of one variant, by the names of the plain signals."""
    return {plain(name): found for name, found in values.items() if variant(name) == wanted}
