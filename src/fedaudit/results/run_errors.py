"""What each record, or person, adds to the errors of a run's figures, read off the scores that it kept: which part of
their measuring error several runs have in common follows from it."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedaudit.results.compare import blocks_behind
from fedaudit.results.scores import load_scores
from fedaudit.stats.intervals import UnitErrors
from fedaudit.stats.paired import errors_behind
from fedaudit.types import AuditResult, Estimate


@dataclass(frozen=True)
class RunErrors:
    """By attack, kind of model and figure: its value, and who adds what to its error."""

    known: Mapping[tuple[str, str, str], tuple[float, UnitErrors]] = field(default_factory=dict)

    def of(self, attack: str, model: str, figure: Estimate) -> UnitErrors | None:
        """None where the scores do not give this very figure, as behind a defence that bends answers for outsiders."""
        value, errors = self.known.get((attack, model, figure.name), (None, None))
        return errors if value == figure.value else None

    def among(self, people: str) -> "RunErrors":
        """With names that others do not have, where other records or people go by the same ones."""
        known = {
            key: (value, UnitErrors(np.array([f"{name} of {people}" for name in own.names.tolist()]), own.values))
            for key, (value, own) in self.known.items()
        }
        return RunErrors(known)


NOT_KNOWN = RunErrors()


def errors_of_run(folder: Path, results: Iterable[AuditResult], names: Container[str] | None = None) -> RunErrors:
    """Of the AUCs and TPRs over all parties; `names`: of these figures alone."""
    known: dict[tuple[str, str, str], tuple[float, UnitErrors]] = {}
    scores = load_scores(folder)
    for entry in (entry for entry in results if entry.party is None):
        for name, figure in entry.estimates.items():
            key = entry.attack, entry.model, name
            if figure.value is None or key in known or (names is not None and name not in names):
                continue
            blocks = blocks_behind(scores, (entry.attack, entry.model, None), figure)
            errors = errors_behind(name, blocks) if blocks else None
            if errors is not None:
                known[key] = figure.value, errors
    return RunErrors(known)
