"""`fedaudit compare RUN...`: the accuracy of each run against its risk. Reads results only and needs no torch.

A run is dominated if another one is at least as accurate and at least as safe, and better in one of the two. The risk
of a run is that of its gravest headline, the figure that its report quotes. Runs are ranked by their values; one with a
graver verdict dominates none.

Whether one run is safer than another is settled by the difference of their risks on the records that both were measured
on. Two intervals that overlap do not say that two runs are equally safe: both err on the same records, and mostly
together. Like is compared with like: the same attack, from the same vantage, on the same kind of model. All differences
hold together: they share the error, and so do the kinds of models that a headline was chosen from.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

from fedaudit.errors import FedauditError
from fedaudit.privacy.statement import PerPerson
from fedaudit.questions import metric as described
from fedaudit.questions import of_membership
from fedaudit.results.document import Document, RunInfo, load, results_file
from fedaudit.results.gate import sees
from fedaudit.results.scores import Scores, blocks_of, load_scores
from fedaudit.stats import Block, auc, auc_difference, tpr_at_fpr, tpr_difference
from fedaudit.stats.strongest import SEVERITY, QuotedFigure, allowed, leading, quoted_figures
from fedaudit.stats.wording import fpr_of, is_share, without
from fedaudit.trace.journal import unchecked
from fedaudit.types import AuditResult, Estimate, Grade, Headline, ModelKind, Notice, notice
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


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    run: str
    defences: str
    accuracy: Span | None  # of the released model on records it was not trained on
    risk: Span | None  # of the gravest headline: its TPR at 1 % FPR, unless rows are made by another metric
    whose: str  # vantage and attack of that headline, and who is missing from the figure
    risks: Mapping[str, Span]  # by vantage
    unit: str | None
    epsilon: OrNull[Number]
    delta: OrNull[Number]
    allowed: OrNull[Number]  # the largest TPR at 1 % FPR that the guarantee permits anybody
    best: Flag = False  # not dominated
    grades: Annotated[Mapping[str, Grade], if_any("the verdict by vantage, in a few words")] = field(
        default_factory=dict
    )
    quoted: Annotated[Mapping[str, str], if_any("the figure by vantage that the report quotes")] = field(
        default_factory=dict
    )
    per_person: Annotated[PerPerson | None, if_known("what the claim means for one person, where that is known")] = None

    @property
    def verdict(self) -> list[str]:
        """The grade and the figure of each vantage, as the report quotes them."""
        told = [(who, [*filter(None, (self.grades.get(who), figure))]) for who, figure in self.quoted.items()]
        return [f"{who}: {', '.join(said)}" for who, said in told]


@dataclass(frozen=True)
class Like:
    """What several runs have of the same attack, from the same vantage, on the same kind of model."""

    vantage: str
    attack: str
    model: str
    risks: Mapping[str, Estimate]  # by run, of those that have it
    metric: str


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first run's risk minus the second's; `safer` is None where the interval holds 0."""

    first: str
    second: str
    vantage: str
    attack: str
    model: str
    value: Number
    low: Number
    high: Number
    confidence: Number
    method: str
    safer: str | None
    shared: Whole  # records that both runs have scores of
    records: Whole  # that either has
    metric: str


@dataclass(frozen=True, kw_only=True)
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
    return Comparison(
        schema=1, risk=RISK, rows=rows, notes=all_words(notes), differences=found, alike=likes, told=notes
    )


def _names(directories: Sequence[Path]) -> list[str]:
    """The folders' own names, or their paths where two have the same name."""
    paths = [directory.resolve() for directory in directories]
    if len(set(paths)) < len(paths):
        raise FedauditError("compare", "a run is named twice", "Name each folder once.")
    short = [path.name for path in paths]
    return short if len(set(short)) == len(short) else [str(directory) for directory in directories]


def row_of(document: Document, name: str, metric: str = RISK) -> ComparedRun:
    """What the report quotes of a run (`stats.strongest.quoted_figures`), by one metric for all runs."""
    run = document.run
    quoted, gravest = quoted_figures(document.headlines), leading(document.headlines)
    doubted = [one.headline.vantage for one in quoted if hides_risk(document, one.headline, metric)]
    sure = [one for one in quoted if one.headline.vantage not in doubted]
    risks = {one.headline.vantage: span for one in sure if (span := _span(one.whose.estimates.get(metric)))}
    risk = risks.get(gravest.headline.vantage) if gravest and not doubted else None
    claim = run.guarantee
    epsilon = claim.epsilon if claim else None
    return ComparedRun(
        run=name,
        defences=_defences(run),
        accuracy=_span(document.accuracy),
        risk=risk,
        whose=_whose(gravest, metric) if gravest and risk else "",
        risks=risks,
        unit=claim.unit if claim else None,
        epsilon=epsilon,
        delta=claim.delta if claim else None,
        allowed=None if claim is None or claim.binding is None else allowed(claim.binding, claim.delta, CHANCE),
        per_person=claim.per_person if claim else None,
        grades={one.headline.vantage: one.headline.grade for one in quoted if one.headline.grade},
        quoted={one.headline.vantage: one.text for one in quoted},
    )


def _whose(quoted: QuotedFigure, metric: str) -> str:
    missing = without(quoted.whose.estimates.get(metric))
    return ", ".join(filter(None, (quoted.whose.vantage, quoted.by, missing)))


def hides_risk(document: Document, headline: Headline, metric: str) -> bool:
    """Has an attack from there a figure by a threshold from records of another kind? More may be found by it than by
    all others, so that the run cannot be ranked. The same records set its thresholds at all rates, and with few of them
    it is seen only at some."""
    seen = [e.estimates for e in document.results if e.party is None and of_membership(e) and sees(headline.vantage, e)]
    rates = metric.startswith("tpr@")
    of_rates = (e for own in (headline.estimates, *seen) for name, e in own.items() if name.startswith("tpr@"))
    return rates and any(estimate.doubt for estimate in of_rates)


def pareto(rows: Sequence[ComparedRun]) -> list[ComparedRun]:
    def dominated(row: ComparedRun) -> bool:
        return any(_better(other, row) for other in rows if other is not row)

    return [replace(row, best=row.accuracy is not None and row.risk is not None and not dominated(row)) for row in rows]


def _better(a: ComparedRun, b: ComparedRun) -> bool:
    if not (a.accuracy and b.accuracy and a.risk and b.risk):
        return False
    more, less = a.accuracy.value - b.accuracy.value, b.risk.value - a.risk.value
    if a.grades and b.grades and _severity(a) > _severity(b):  # by another figure than the one that is compared;
        return False  # a mean over runs has no grade
    return more >= 0 and less >= 0 and (more > 0 or less > 0)


def _severity(row: ComparedRun) -> int:
    return max(SEVERITY[grade] for grade in row.grades.values())


def _span(estimate: Estimate | None) -> Span | None:
    if estimate is None or estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    return Span(estimate.value, estimate.low, estimate.high)


def _defences(run: RunInfo) -> str:
    if "settings" in run.not_handed_over:
        promised = f" ({run.guarantee.defence} is promised)" if run.guarantee else ""
        return f"not handed over{promised}"
    named = []
    for defence in run.config.get("defences", ()):
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


def _by_chance(rows: Sequence[ComparedRun], found: Sequence[Difference]) -> list[Notice]:
    """Where it is not settled which run is safer: by their difference, or by two intervals where there is none."""
    settled = {_without_metric(gap) for gap in found if gap.safer}
    notes = [
        notice("not-settled", runs=[gap.first, gap.second], vantage=gap.vantage, attack=gap.attack, model=gap.model)
        for gap in found
        if gap.metric == RISK and _without_metric(gap) not in settled
    ]
    paired = {(gap.first, gap.second) for gap in found}
    for a, b in combinations(rows, 2):
        if (a.run, b.run) not in paired and a.risk and b.risk and a.risk.overlaps(b.risk):
            notes.append(notice("risks-overlap", runs=[a.run, b.run]))
    return notes


def _without_metric(gap: Difference) -> tuple[str, ...]:
    return gap.first, gap.second, gap.vantage, gap.attack, gap.model


# ------------------------------------------------------------------ like beside like

Key = tuple[str, str, str]  # vantage, attack, model


def alike(documents: Mapping[str, Document], metrics: Sequence[str]) -> list[Like]:
    """By each of the metrics, what every run found of whatever some run quotes, or had fixed before looking."""
    return [*(like for metric in metrics for like in _alike(documents, metric)), *_other_questions(documents)]


def _other_questions(documents: Mapping[str, Document]) -> list[Like]:
    """What other questions than membership found, by every figure that says of a risk how large it is."""
    found: dict[tuple[str, str, ModelKind, str], dict[str, Estimate]] = {}
    for run, document in documents.items():
        for entry in document.results:
            if entry.party is None and entry.attack != "blind" and not of_membership(entry):
                for name, estimate in entry.estimates.items():
                    if described(name).gated and estimate.kind != "claimed":
                        found.setdefault((entry.vantage, entry.attack, entry.model, name), {})[run] = estimate
    return [Like(*key[:3], risks, key[3]) for key, risks in found.items() if len(risks) > 1]


def _alike(documents: Mapping[str, Document], metric: str) -> list[Like]:
    """A server sees the global models that a client sees: these are named once."""
    found: list[Like] = []
    quoted = [headline for document in documents.values() for headline in document.headlines]
    for key in dict.fromkeys(key for headline in quoted for key in _keys(headline)):
        risks = {name: risk for name, document in documents.items() if (risk := risk_of(document, key, metric))}
        named = key[2] == "global" and key[1:] in [(like.attack, like.model) for like in found]
        if len(risks) > 1 and not named:
            found.append(Like(*key, risks, metric))
    return found


def _keys(headline: Headline) -> list[Key]:
    return [(headline.vantage, attack, headline.model) for attack in dict.fromkeys((headline.attack, headline.fixed))]


def risk_of(document: Document, key: Key, metric: str) -> Estimate | None:
    """As a headline quotes it, or as it stands among the pooled results."""
    for headline in document.headlines:
        if (headline.vantage, headline.attack, headline.model) == key and metric in headline.estimates:
            return headline.estimates[metric]
    for entry in document.results:
        same = (entry.attack, entry.model, entry.party) == (*key[1:], None)
        if same and sees(key[0], entry) and metric in entry.estimates:
            return entry.estimates[metric]
    return None


# ------------------------------------------------------------------ one run minus another


def differences(
    documents: Mapping[str, Document], folders: Mapping[str, Path], likes: Sequence[Like]
) -> list[Difference]:
    """Between every two runs, in everything alike. Pairs whose scores are missing are left out."""
    scores = {name: load_scores(folders[name]) for name in documents}
    pairs = [
        (one, two, like)
        for one, two in combinations(documents, 2)
        for like in likes
        if one in like.risks and two in like.risks
    ]
    error = max((1 - e.confidence for like in likes for e in like.risks.values()), default=0.05)
    chosen = max((h.compared for document in documents.values() for h in document.headlines), default=1)
    found = []
    for one, two, like in pairs:
        confidence = 1 - error / len(pairs) / chosen
        ours, theirs = (
            blocks_behind(scores[name], (like.attack, like.model, None), like.risks[name]) for name in (one, two)
        )
        gap = _difference(ours, theirs, like.metric, confidence)
        if gap is None or gap.value is None or gap.low is None or gap.high is None:
            continue
        records, others = _ids(ours), _ids(theirs)
        found.append(
            Difference(
                first=one,
                second=two,
                vantage=like.vantage,
                attack=like.attack,
                model=like.model,
                value=gap.value,
                low=gap.low,
                high=gap.high,
                confidence=confidence,
                method=gap.method,
                safer=two if gap.low > 0 else one if gap.high < 0 else None,
                shared=len(records & others),
                records=len(records | others),
                metric=like.metric,
            )
        )
    return found


def risk_difference(first: tuple[Path, AuditResult], second: tuple[Path, AuditResult], metric: str) -> Estimate | None:
    """The first minus the second: an AUC, or a TPR at an FPR. Records that only one run has count as independent.
    None where the scores were not kept, or are not those of the results."""
    ours, theirs = (
        blocks_behind(load_scores(run), (entry.attack, entry.model, entry.party), entry.estimates[metric])
        for run, entry in (first, second)
    )
    confidence = max(entry.estimates[metric].confidence for _, entry in (first, second))
    return _difference(ours, theirs, metric, confidence)


def _difference(ours: Sequence[Block], theirs: Sequence[Block], metric: str, confidence: float) -> Estimate | None:
    if not ours or not theirs:
        return None
    fpr = fpr_of(metric)
    return auc_difference(ours, theirs, confidence) if fpr is None else tpr_difference(ours, theirs, fpr, confidence)


def _ids(blocks: Sequence[Block]) -> set[str]:
    return {str(name) for block in blocks for names in block.ids or () for name in names.tolist()}


def blocks_behind(scores: Scores | None, of: tuple[str, str, str | None], risk: Estimate) -> list[Block]:
    """The scores of this attack, model and party behind a risk, as far as they can give it. None at all where the file
    does not have them: a defence that changes the answers for outsiders is not in it."""
    return blocks_giving(risk, [] if scores is None or risk.value is None else blocks_of(scores, *of))


def blocks_giving(risk: Estimate, blocks: list[Block]) -> list[Block]:
    """These, or none where their AUC, or TPR, is another."""
    fpr = fpr_of(risk.name)
    if not blocks or (fpr is None and risk.name != "auc"):
        return []
    again = auc(blocks) if fpr is None else tpr_at_fpr(blocks, fpr, prove=False)
    if again.value is None or risk.value is None or not math.isclose(again.value, risk.value, rel_tol=0, abs_tol=1e-9):
        return []
    return blocks


def in_points(metric: str, difference: Estimate | Difference) -> str:
    """A difference of shares in percentage points, of AUCs as it is."""
    scale, unit = (100.0, " points") if is_share(metric) else (1.0, "")
    ends = (difference.value, difference.low, difference.high)
    value, low, high = (f"{scale * end:+.3g}" for end in ends if end is not None)
    return f"{value}{unit} ({low} to {high})"


def accuracy_difference(first: Document, second: Document) -> Estimate | None:
    """Of the released models on records that they were not trained on. Both err on much the same records, and mostly
    together; which of them each model got right is not kept, so the interval leaves that out and is too wide."""
    one, two = first.accuracy, second.accuracy
    if one is None or two is None:
        return None
    known = [end for e in (one, two) for end in (e.value, e.low, e.high) if end is not None]
    if len(known) < 6:
        return None
    a, a_low, a_high, b, b_low, b_high = known
    low, high = a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low)
    method = f"difference; the two intervals combined as if they erred independently (MOVER) of: {one.method}"
    confidence, counts = min(one.confidence, two.confidence), (min(one.n_pos, two.n_pos), min(one.n_neg, two.n_neg))
    ends = (a - b, max(low, -1.0), min(high, 1.0))
    return Estimate("accuracy-difference", *ends, confidence, method, "measured", *counts)
