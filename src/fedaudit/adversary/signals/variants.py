"""Signals that an attack has measured in its own way: `boundary+targets=1` is the signal `boundary` with targets = 1,
whatever [audit] says. All that is known of a signal is known of its variants, and they are stored by their names.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.signals import Family, Measure
from fedaudit.adversary.vantage import View
from fedaudit.config.attack_registry import plain, read_word, written
from fedaudit.types import Bools, Floats, Grant, Records


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
