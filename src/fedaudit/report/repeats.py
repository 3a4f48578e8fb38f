"""Every attack over repeated training runs: the mean with its interval, and the two runs that are farthest apart."""

from collections.abc import Iterator
from dataclasses import dataclass

from fedaudit.report import words
from fedaudit.report.shapes import Table
from fedaudit.report.values import Results
from fedaudit.report.words import ValueText
from fedaudit.stats.wording import NONE, count, fpr_of, number_text, rate

NOTE = (
    "Pooled over the parties. The interval of a mean includes how much training runs differ. It holds for its own row, "
    "not for all rows at once."
)


@dataclass(frozen=True)
class RepeatedMeasure:
    """One measure of one attack. `main`: the measure that everything quotes, or the first that this attack has."""

    attack: str
    vantage: str
    model: str
    measure: str
    mean: ValueText
    smallest: str
    largest: str
    runs: str
    main: bool


def rows(results: Results) -> Iterator[RepeatedMeasure]:
    """Of each attack the TPR that is quoted, and AUC; where it has neither, everything it has."""
    quoted = [name for name in (words.main_tpr(results), "auc") if name]
    for entry in results.run.attacks_over_runs:
        names = [name for name in quoted if name in entry.estimates] or list(entry.estimates)
        blind = entry.attack == "blind"
        for place, name in enumerate(names):
            yield RepeatedMeasure(
                entry.attack,
                NONE if blind else entry.vantage,
                NONE if blind else entry.model,
                _measure(name),
                ValueText.of(name, entry.estimates[name]),
                number_text(name, entry.smallest.get(name)),
                number_text(name, entry.largest.get(name)),
                count(entry.runs),
                place == 0,
            )


def every_attack(results: Results) -> Table | None:
    head = ("attack", "vantage", "model", "measure", "mean over runs", "smallest", "largest", "runs")
    shown = [
        [r.attack, r.vantage, r.model, r.measure, str(r.mean), r.smallest, r.largest, r.runs] for r in rows(results)
    ]
    return Table(head, shown, NOTE) if shown else None


def _measure(name: str) -> str:
    fpr = fpr_of(name)
    return f"TPR at {rate(fpr)} FPR" if fpr else name.replace("auc", "AUC")
