"""`fedaudit compare RUN...`: what each run is worth against what it gives away. Reads results alone; no torch.

A run is dominated when another one is at least as accurate and at least as safe, and better in one of the two. The
risk of a run is its largest headline: whoever can do most counts. Runs are ranked by their values; where the intervals
overlap, that is said.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedaudit.errors import FedauditError
from fedaudit.results import document as results

RISK = "tpr@0.01"
CHANCE = 0.01


@dataclass(frozen=True)
class Span:
    value: float
    low: float
    high: float

    def text(self, percent: bool = True) -> str:
        scale, unit = (100, " %") if percent else (1, "")
        return f"{self.value * scale:.3g}{unit} ({self.low * scale:.3g}–{self.high * scale:.3g})"

    def overlaps(self, other: "Span") -> bool:
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Row:
    run: str
    defences: str
    accuracy: Span | None  # of the released model on records it was not trained on
    risk: Span | None  # TPR at 1 % FPR of the strongest headline
    whose: str  # vantage and attack of that headline
    risks: Mapping[str, Span]  # by vantage
    unit: str | None
    epsilon: float | None
    delta: float | None
    allowed: float | None  # the largest TPR at 1 % FPR that the guarantee permits anybody
    config: Mapping[str, Any]
    best: bool = False  # not dominated


def compare(directories: Sequence[Path]) -> dict[str, Any]:
    """The table, what differs besides the defences, and what the comparison cannot say."""
    if len(directories) < 2:
        raise FedauditError("compare", "one run cannot be compared", "Name two or more folders left by `fedaudit run`.")
    rows = pareto([_row(results.load(directory), directory) for directory in directories])
    notes = [*_not_ranked(rows), *_other_settings(rows), *_by_chance(rows)]
    plain = [{key: value for key, value in asdict(row).items() if key != "config"} for row in rows]
    return {"schema": 1, "risk": RISK, "rows": plain, "notes": notes}


def _row(document: Mapping[str, Any], directory: Path) -> Row:
    run = document["run"]
    risks: dict[str, tuple[Span, str]] = {}
    for headline in document["headlines"]:
        span = _span(headline["estimates"].get(RISK))
        if span:
            risks[headline["vantage"]] = (
                span,
                f"{headline['vantage']}, {headline['attack']}, {headline['model']} models",
            )
    worst = max(risks.values(), key=lambda pair: pair[0].value, default=(None, ""))
    claim = run.get("guarantee") or {}
    epsilon, delta = claim.get("epsilon"), claim.get("delta")
    return Row(
        run=directory.resolve().name,
        defences=_defences(run["config"]),
        accuracy=_span(run["accuracy"].get("evaluation")),
        risk=worst[0],
        whose=worst[1],
        risks={vantage: span for vantage, (span, _) in risks.items()},
        unit=claim.get("unit"),
        epsilon=epsilon,
        delta=delta,
        allowed=None if epsilon is None else allowed(epsilon, delta or 0.0, CHANCE),
        config=run["config"],
    )


def pareto(rows: Sequence[Row]) -> list[Row]:
    def dominated(row: Row) -> bool:
        return any(_better(other, row) for other in rows if other is not row)

    return [replace(row, best=row.accuracy is not None and row.risk is not None and not dominated(row)) for row in rows]


def _better(a: Row, b: Row) -> bool:
    if not (a.accuracy and b.accuracy and a.risk and b.risk):
        return False
    more, less = a.accuracy.value - b.accuracy.value, b.risk.value - a.risk.value
    return more >= 0 and less >= 0 and (more > 0 or less > 0)


def allowed(epsilon: float, delta: float, fpr: float) -> float:
    """The most that (epsilon, delta)-DP lets any test reach at this FPR."""
    return min(math.exp(min(epsilon, 50.0)) * fpr + delta, 1 - math.exp(-epsilon) * (1 - delta - fpr), 1.0)


def _span(plain: Mapping[str, Any] | None) -> Span | None:
    if not plain or plain["value"] is None:
        return None
    return Span(plain["value"], plain["low"], plain["high"])


def _defences(config: Mapping[str, Any]) -> str:
    named = []
    for defence in config.get("defences", ()):
        told = ", ".join(f"{key} {value:g}" for key, value in defence.items() if isinstance(value, float | int))
        named.append(f"{defence['name']}({told})")
    return " | ".join(named) or "none"


def _other_settings(rows: Sequence[Row]) -> list[str]:
    """A comparison of defences in which something else differs, too, compares that as well."""
    first = _flat(rows[0].config)
    differing = set()
    for row in rows[1:]:
        other = _flat(row.config)
        differing |= {key for key in first.keys() | other.keys() if first.get(key) != other.get(key)}
    return [f"Not only defences differ between these runs: {', '.join(sorted(differing))}."] if differing else []


def _flat(section: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in section.items():
        if prefix or key != "defences":
            found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def _not_ranked(rows: Sequence[Row]) -> list[str]:
    notes = []
    for what, lacking in (
        ("accuracy (a regression has none)", [row.run for row in rows if row.accuracy is None]),
        ("risk at 1 % FPR", [row.run for row in rows if row.risk is None]),
    ):
        if lacking:
            notes.append(f"Not ranked, for want of {what}: {', '.join(lacking)}.")
    return notes


def _by_chance(rows: Sequence[Row]) -> list[str]:
    notes = []
    for a, b in ((a, b) for i, a in enumerate(rows) for b in rows[i + 1 :]):
        if a.risk and b.risk and a.risk.overlaps(b.risk):
            notes.append(f"{a.run} and {b.run}: the intervals of their risks overlap; which is safer is not settled.")
    return notes
