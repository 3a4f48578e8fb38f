"""`fedaudit compare RUN...`: the accuracy of each run against its risk. Reads results only and needs no torch.

A run is dominated if another one is at least as accurate and at least as safe, and better in one of the two. The risk
of a run is its strongest headline, by what is certain. Runs are ranked by their values; whether one is safer
than another is settled by the interval of their difference on the same records (see `differences`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from fedaudit.errors import FedauditError
from fedaudit.privacy.statement import PerPerson
from fedaudit.results.alike import Like, alike
from fedaudit.results.differences import Difference, differences
from fedaudit.results.document import Document, load, results_file
from fedaudit.results.gate import sees
from fedaudit.stats.strongest import allowed
from fedaudit.trace.journal import unchecked
from fedaudit.types import AuditResult, Estimate, Headline, Notice, notice
from fedaudit.types.stored import Flag, Many, Number, OrNull, Whole, if_any, if_known
from fedaudit.words import all_words, words

RISK = "tpr@0.01"
COMPARED = (RISK, "auc")  # a run may be safer by either: few stand out, or all a little
CHANCE = 0.01


@dataclass(frozen=True)
class Span:
    value: Number
    low: Number
    high: Number

    def text(self, percent: bool = True) -> str:
        scale, unit = (100, " %") if percent else (1, "")
        return f"{self.value * scale:.3g}{unit} ({self.low * scale:.3g}–{self.high * scale:.3g})"

    def overlaps(self, other: "Span") -> bool:
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class ComparedRun:
    run: str
    defences: str
    accuracy: Span | None  # of the released model on records it was not trained on
    risk: Span | None  # of the strongest headline: its TPR at 1 % FPR, unless rows are made by another metric
    whose: str  # vantage and attack of that headline
    risks: Mapping[str, Span]  # by vantage
    unit: str | None
    epsilon: OrNull[Number]
    delta: OrNull[Number]
    allowed: OrNull[Number]  # the largest TPR at 1 % FPR that the guarantee permits anybody
    best: Flag = False  # not dominated
    grades: Annotated[Mapping[str, str], if_any("the verdict by vantage, in two words")] = field(default_factory=dict)
    per_person: Annotated[PerPerson | None, if_known("what the claim means for one person, where that is known")] = None


@dataclass(frozen=True)
class Comparison:
    """The table, what differs besides the defences, and what the comparison cannot say."""

    schema: Whole
    risk: str
    rows: Many[ComparedRun]
    notes: Many[str]
    differences: Annotated[Many[Difference], if_any()] = ()
    alike: Annotated[Many[Like], if_any()] = ()
    told: Annotated[Many[Notice], if_any("the notes, each as its code with its data")] = ()


def compare(directories: Sequence[Path]) -> Comparison:
    if len(directories) < 2:
        raise FedauditError("compare", "one run cannot be compared", "Name two or more folders left by `fedaudit run`.")
    documents = [load(directory) for directory in directories]
    rows = pareto([row_of(document, name) for document, name in zip(documents, _names(directories), strict=True)])
    folders = {row.run: directory for row, directory in zip(rows, directories, strict=True)}
    by_run = {row.run: document for row, document in zip(rows, documents, strict=True)}
    likes = alike(by_run, COMPARED)
    found = differences(by_run, folders, likes)
    where = zip(rows, map(results_file, directories), strict=True)
    told = [notice("of-run", run=row.run, what=words(said)) for row, path in where for said in unchecked(path)]
    notes = [*told, *_not_ranked(rows), *_other_settings([document.run.config for document in documents])]
    notes += _by_chance(rows, found)
    return Comparison(1, RISK, rows, all_words(notes), found, likes, notes)


def _names(directories: Sequence[Path]) -> list[str]:
    """The folders' own names, or their paths where two have the same name."""
    paths = [directory.resolve() for directory in directories]
    if len(set(paths)) < len(paths):
        raise FedauditError("compare", "a run is named twice", "Name each folder once.")
    short = [path.name for path in paths]
    return short if len(set(short)) == len(short) else [str(directory) for directory in directories]


def row_of(document: Document, name: str, metric: str = RISK) -> ComparedRun:
    run = document.run
    risks: dict[str, tuple[Span, str]] = {}
    for headline in document.headlines:
        found = [(headline.attack, headline.model, headline.estimates)]
        found += [(e.attack, e.model, e.estimates) for e in document.results if _is_primary(e, headline)]
        spans = [(span, attack, model) for attack, model, own in found if (span := _span(own.get(metric)))]
        if spans:
            span, attack, model = max(spans, key=lambda each: (each[0].low, each[0].value))
            risks[headline.vantage] = (span, f"{headline.vantage}, {attack}, {model} models")
    worst = max(risks.values(), key=lambda pair: (pair[0].low, pair[0].value), default=(None, ""))
    claim = run.guarantee
    epsilon = claim.epsilon if claim else None
    return ComparedRun(
        run=name,
        defences=_defences(run.config),
        accuracy=_span(run.accuracy.get("evaluation")),
        risk=worst[0],
        whose=worst[1],
        risks={vantage: span for vantage, (span, _) in risks.items()},
        unit=claim.unit if claim else None,
        epsilon=epsilon,
        delta=claim.delta if claim else None,
        allowed=None if claim is None or claim.binding is None else allowed(claim.binding, claim.delta, CHANCE),
        per_person=claim.per_person if claim else None,
        grades={headline.vantage: headline.grade or "" for headline in document.headlines},
    )


def _is_primary(entry: AuditResult, headline: Headline) -> bool:
    """A pooled result of the vantage's primary attack that is not quoted: it may find more at this rate."""
    quoted = (entry.attack, entry.model) == (headline.attack, headline.model)
    fixed = entry.party is None and entry.attack == headline.fixed and sees(headline.vantage, entry)
    return fixed and not quoted


def pareto(rows: Sequence[ComparedRun]) -> list[ComparedRun]:
    def dominated(row: ComparedRun) -> bool:
        return any(_better(other, row) for other in rows if other is not row)

    return [replace(row, best=row.accuracy is not None and row.risk is not None and not dominated(row)) for row in rows]


def _better(a: ComparedRun, b: ComparedRun) -> bool:
    if not (a.accuracy and b.accuracy and a.risk and b.risk):
        return False
    more, less = a.accuracy.value - b.accuracy.value, b.risk.value - a.risk.value
    return more >= 0 and less >= 0 and (more > 0 or less > 0)


def _span(estimate: Estimate | None) -> Span | None:
    if estimate is None or estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    return Span(estimate.value, estimate.low, estimate.high)


def _defences(config: Mapping[str, Any]) -> str:
    named = []
    for defence in config.get("defences", ()):
        told = ", ".join(f"{key} {value:g}" for key, value in defence.items() if isinstance(value, float | int))
        named.append(f"{defence['name']}({told})")
    return " | ".join(named) or "none"


def _other_settings(configs: Sequence[Mapping[str, Any]]) -> list[Notice]:
    """A note if the runs differ in more than their defences: the comparison then includes those differences."""
    first = _flat(configs[0])
    differing = set()
    for other in map(_flat, configs[1:]):
        differing |= {key for key in first.keys() | other.keys() if first.get(key) != other.get(key)}
    return [notice("settings-differ", keys=sorted(differing))] if differing else []


def _flat(section: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in section.items():
        if prefix or key != "defences":
            found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def _not_ranked(rows: Sequence[ComparedRun]) -> list[Notice]:
    lacking = {
        "no-accuracy": [row.run for row in rows if row.accuracy is None],
        "no-risk": [row.run for row in rows if row.risk is None],
    }
    return [notice(code, runs=runs) for code, runs in lacking.items() if runs]


def _same(one: Difference, other: Difference) -> bool:
    """The same two runs and the same attack, by whichever metric."""
    return all(getattr(one, name) == getattr(other, name) for name in ("first", "second", "vantage", "attack", "model"))


def _by_chance(rows: Sequence[ComparedRun], found: Sequence[Difference]) -> list[Notice]:
    """Where it is not settled which run is safer: by their difference, or by two intervals where there is none."""
    paired = {(gap.first, gap.second) for gap in found}
    notes = [
        notice("not-settled", runs=[gap.first, gap.second], vantage=gap.vantage, attack=gap.attack, model=gap.model)
        for gap in found
        if gap.metric == RISK and not any(other.safer for other in found if _same(gap, other))
    ]
    for a, b in ((a, b) for i, a in enumerate(rows) for b in rows[i + 1 :]):
        if (a.run, b.run) not in paired and a.risk and b.risk and a.risk.overlaps(b.risk):
            notes.append(notice("risks-overlap", runs=[a.run, b.run]))
    return notes
