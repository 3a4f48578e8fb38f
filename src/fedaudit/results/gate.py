"""Is a finished run within its limits? The verdict follows from intervals, never from point estimates.

A rule is what must not be: `tpr@0.01 > 0.05`. It is *violated* when the lower end of an interval lies above the limit,
*safe* when the upper ends of all lie below it, and otherwise *undecided*. The ends of a TPR and of an AUC are the
guaranteed ones. A rule of several conditions, joined by `and`, is violated when all of them are, and safe when one of
them is.

`accuracy` is that of the released model on records it was not trained on; `epsilon` is what the run claims, and a run
that claims nothing has none that could be within a limit. A claim that the run's own audit refutes leaves nothing safe.

A rule that names no attack is about all of them: the primary attack of each vantage, which was fixed before looking,
and every other that was run.

The gate listens to the audit. What hides risk (people on both sides, twins, a missing part) leaves nothing safe; where
a blind guess beats chance, nothing is violated, because the sets differ without any model.

A gate that looks at several results fails on the worst of them, so a false alarm has several chances: lower ends are
then computed again from scores.parquet with the error shared (`stats.strongest.Shares`). Passing needs no such
correction: a wrong pass needs the one upper end that matters to be wrong, and every one must be below. Only conditions
that are joined by `and` share their error, because one of them suffices to pass.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Literal

from fedaudit.config.schema import DEFAULT_FPR
from fedaudit.errors import REFUSED, FedauditError, suggest
from fedaudit.privacy.statement import Statement
from fedaudit.questions import Against, of, of_membership
from fedaudit.questions import every as every_question
from fedaudit.results import document as results
from fedaudit.results.document import Document
from fedaudit.results.rules import ACCURACY, ANY, EPSILON, OF_THE_RUN, Rule
from fedaudit.results.scores import Scores, blocks_of, load_scores
from fedaudit.stats import Block, auc, pooled_tpr
from fedaudit.stats.intervals import at_confidence
from fedaudit.stats.strongest import Shares, proved_ends
from fedaudit.types import AuditResult, Estimate

PASSED, FAILED, UNDECIDED = 0, 1, 3  # exit codes

Place = tuple[str, str, str, str | None]  # attack, vantage, model, party


class Decision(StrEnum):
    SAFE = "safe"
    VIOLATED = "violated"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Judged:
    """One rule on one result. `low` is corrected for everything the gate looks at, `high` is as stored."""

    rule: Rule
    attack: str
    vantage: str
    model: str
    party: str | None
    value: float | None
    low: float | None
    high: float | None
    verdict: Decision
    note: str = ""
    named: bool = True  # by the rule, or fixed before looking; the others stand beside it


@dataclass(frozen=True)
class Gate:
    findings: Sequence[Judged]
    looked_at: int  # distinct intervals, among which the error of the lower ends is shared
    primary: Mapping[str, str] = field(default_factory=dict)  # by vantage, where a rule names no attack
    silent: Sequence[str] = ()  # attacks beside the primary ones that have no interval for a rule

    @property
    def rules(self) -> dict[str, Decision]:
        """The verdict on each rule, by its text."""
        return {text: self._verdict(text) for text in dict.fromkeys(finding.rule.text for finding in self.findings)}

    def _verdict(self, text: str) -> Decision:
        """One finding may violate a condition, all must be safe; all conditions must be violated, one may be safe."""
        own = [finding for finding in self.findings if finding.rule.text == text]
        conditions = []
        for rule in dict.fromkeys(finding.rule for finding in own):
            found = {finding.verdict for finding in own if finding.rule == rule}
            rest = Decision.SAFE if found == {Decision.SAFE} else Decision.UNDECIDED
            conditions.append(Decision.VIOLATED if Decision.VIOLATED in found else rest)
        if set(conditions) == {Decision.VIOLATED}:
            return Decision.VIOLATED
        return Decision.SAFE if Decision.SAFE in conditions else Decision.UNDECIDED

    @property
    def verdict(self) -> Decision:
        found = set(self.rules.values())
        if Decision.VIOLATED in found:
            return Decision.VIOLATED
        return Decision.UNDECIDED if Decision.UNDECIDED in found else Decision.SAFE

    @property
    def exit_code(self) -> int:
        return {Decision.SAFE: PASSED, Decision.VIOLATED: FAILED, Decision.UNDECIDED: UNDECIDED}[self.verdict]


# ------------------------------------------------------------------ judging


def judge(run: Path, rules: Sequence[Rule]) -> Gate:
    """Every rule on every result it selects."""
    if not rules:
        raise FedauditError("gate-rule", "there is nothing to check", 'Give --fail-if "tpr@0.01 > 0.05".')
    document = results.load(run)
    risks = [rule for rule in rules if rule.metric not in OF_THE_RUN]
    selected = [(rule, place) for rule in risks for place in _select(document, rule)]
    chosen = [(rule, place) for rule, place in selected if place.named or _has_interval(place.entry, rule.metric)]
    silent = dict.fromkeys(place.entry.attack for rule, place in selected if (rule, place) not in chosen)
    keys = {(_place(place.entry), rule.metric) for rule, place in chosen}
    named_by_a_rule = {(_place(place.entry), rule.metric) for rule, place in chosen if place.named}
    counts = len(named_by_a_rule), len(keys - named_by_a_rule)
    scores = cache(lambda: load_scores(run))
    doubts = {rule: Doubts(_hidden(document, rule), _confounded(document)) for rule in rules}
    primary = {headline.vantage: headline.fixed for headline in document.headlines}
    named = primary if any(rule.attack is None for rule in risks) else {}
    found, joined = [], Counter(rule.text for rule in rules)
    for rule, place in chosen:
        among = Among(*counts, (_place(place.entry), rule.metric) in named_by_a_rule, joined[rule.text])
        found.append(_find(rule, place, among, doubts[rule], scores))
    found += [f for rule in rules for f in _of_the_run(rule, document, doubts[rule], joined[rule.text])]
    found += _failed(document, rules)
    empty = [rule for rule in rules if not any(finding.rule == rule for finding in found)]
    found += [Judged(rule, *NOWHERE, None, None, None, Decision.UNDECIDED, "nothing was measured") for rule in empty]
    return Gate(found, len(keys), named, list(silent))


def _has_interval(entry: AuditResult, metric: str) -> bool:
    estimate = entry.estimates.get(metric)
    return estimate is not None and estimate.low is not None


def _failed(document: Document, rules: Sequence[Rule]) -> list[Judged]:
    """Rules about an attack that has no result because it failed: nobody knows, which is not wrong use."""
    why = {
        failure.attack: f"{failure.attack} failed and has no result: {failure.reason}" for failure in document.failed
    }
    return [
        Judged(rule, rule.attack, rule.vantage or ANY, ANY, rule.party, None, None, None, Decision.UNDECIDED, note)
        for rule in rules
        if rule.attack is not None and (note := why.get(rule.attack))
    ]


@dataclass(frozen=True)
class Doubts:
    """What the audit itself says against a verdict: why nothing is safe, and why nothing is violated."""

    not_safe: str = ""
    not_violated: str = ""


def _hidden(document: Document, rule: Rule) -> str:
    """Why not even a small risk is proof of safety: not all that the rule is about was looked at, or something hides
    risk. An attack that failed matters if the rule is about it, or about all of them."""
    if document.run.ending == "interrupted":
        return "the run was interrupted"
    about = (None, ANY)
    of_attacks, rest = document.degraded[: len(document.failed)], document.degraded[len(document.failed) :]
    failed = zip(of_attacks, document.failed, strict=False)
    missing = [*(what for what, failure in failed if rule.attack in (*about, failure.attack)), *rest]
    if missing:
        return f"part of the audit is missing: {missing[0]}"
    return document.understates[0] if document.understates else ""


def _confounded(document: Document) -> str:
    """Why not even a large figure is proof of a leak: members and outsiders are told apart without any model."""
    blind = next((entry for entry in document.results if entry.attack == "blind"), None)
    found = blind.estimates.get("auc") if blind else None
    if found is None or found.low is None or found.low <= 0.5:
        return ""
    return f"a blind guess that sees no model has AUC {found.value:.3f}: the sets differ, and the figure may show that"


NOWHERE: Place = ("", "", "", None)


def _of_the_run(rule: Rule, document: Document, doubts: Doubts, joined: int) -> list[Judged]:
    """Of the run as a whole: its accuracy, or each epsilon that it claims. `joined`: the conditions of the rule."""
    if rule.metric == ACCURACY:
        estimate = document.run.accuracy.get("evaluation")
        if estimate is None or estimate.value is None:
            why = (estimate.reason if estimate else None) or "this run has no accuracy (a regression has none)"
            return [Judged(rule, *NOWHERE, None, None, None, Decision.UNDECIDED, why)]
        shared = at_confidence(estimate, 1 - (1 - estimate.confidence) / joined)
        verdict, note = _decided(rule, shared.low, shared.high, Doubts(doubts.not_safe))
        return [Judged(rule, *NOWHERE, estimate.value, shared.low, shared.high, verdict, note)]
    if rule.metric != EPSILON:
        return []
    claim = document.run.guarantee
    if claim is None:
        why = "this run claims no differential privacy, so that its epsilon has no limit"
        return [Judged(rule, *NOWHERE, None, None, None, Decision.VIOLATED, why)]
    found = []
    for each in (claim, *claim.further):
        of = (each.defence, "", each.unit or "unit not said", None)
        found.append(_of_a_claim(rule, each, of, _against(each, document), doubts))
    return found


def _against(claim: Statement, document: Document) -> Against | None:
    """The strongest evidence that the run itself found against one of its claims, if there is any. A claim that the
    audit has refuted is no ground for a verdict."""
    found = [one for question in every_question().values() for one in question.against(claim, document)]
    return max(found, key=lambda one: one.at_least, default=None)


def _of_a_claim(rule: Rule, claim: Statement, of: Place, found: Against | None, doubts: Doubts) -> Judged:
    """A claim is taken at its word, unless its accountant or the audit of the same run speaks against it."""
    value, note = claim.epsilon, claim.problems[0] if claim.problems else ""
    if found is not None:
        low = max(found.at_least, value or 0.0)
        proved = rule.broken_for_sure(low, None)
        return Judged(rule, *of, value, low, None, Decision.VIOLATED if proved else Decision.UNDECIDED, found.why)
    verdict = Decision.UNDECIDED
    if not note:
        verdict, note = _decided(rule, math.inf if value is None else value, value, Doubts(doubts.not_safe))
    return Judged(rule, *of, value, value, value, verdict, note)


def _decided(rule: Rule, low: float | None, high: float | None, doubts: Doubts) -> tuple[Decision, str]:
    """What the two ends say, unless the audit itself speaks against it."""
    if rule.broken_for_sure(low, high):
        return (Decision.UNDECIDED, doubts.not_violated) if doubts.not_violated else (Decision.VIOLATED, "")
    if rule.kept_for_sure(low, high):
        return (Decision.UNDECIDED, doubts.not_safe) if doubts.not_safe else (Decision.SAFE, "")
    return Decision.UNDECIDED, ""


@dataclass(frozen=True)
class Selected:
    """A result that a rule is about; `named`: by the rule itself, or as the primary attack of a vantage."""

    entry: AuditResult
    named: bool


def _select(document: Document, rule: Rule) -> list[Selected]:
    primary = {headline.vantage: headline.fixed for headline in document.headlines}
    entries = document.results
    # What no headline's vantage sees, as canaries in a sum, has results for whoever names the attack.
    beside = {e.vantage for e in entries if e.attack != "blind" and not any(sees(vantage, e) for vantage in primary)}
    vantages: dict[str, str | None] = {**primary, **dict.fromkeys(sorted(beside))}
    _known("vantage", rule.vantage, vantages)
    failed = {failure.attack for failure in document.failed}
    _known("attack", rule.attack, {entry.attack for entry in entries} | failed)
    _known("party", rule.party, {entry.party for entry in entries if entry.party is not None})
    found: dict[Place, Selected] = {}
    elsewhere = rule.attack is None and any(_alone_has(rule.metric, entry) for entry in entries)
    for vantage, attack in vantages.items():
        if rule.vantage in (None, ANY, vantage):
            for entry in (e for e in entries if sees(vantage, e) and _of(rule.party, e)):
                named = _alone_has(rule.metric, entry) if elsewhere else _attacks(rule.attack or attack, entry)
                beside_it = rule.attack is None and not elsewhere and attack is not None and of_membership(entry)
                if named or beside_it:
                    before = found.get(_place(entry))
                    found[_place(entry)] = Selected(entry, named or (before is not None and before.named))
    measured = sorted({name for one in found.values() for name in one.entry.estimates} or _measured(entries))
    expected = [*measured, "auc", *_asked_for(document)]
    if rule.metric not in expected and rule.attack not in failed:
        raise FedauditError("gate-metric", f"--fail-if {rule.text!r}: not measured", suggest(rule.metric, measured))
    return list(found.values())


def _alone_has(metric: str, entry: AuditResult) -> bool:
    """Is this a figure of another question than membership? Whoever names the figure need not name the question."""
    question = of(entry)
    own = () if question is None else [one.name for one in question.metrics]
    described = question is None or metric.partition("@")[0] in own
    return not of_membership(entry) and entry.attack != "blind" and metric in entry.estimates and described


def _measured(entries: Sequence[AuditResult]) -> set[str]:
    return {name for entry in entries for name in entry.estimates}


def _asked_for(document: Document) -> list[str]:
    """Rates that belong to this run, whether or not it was large enough to measure them."""
    asked = document.run.config.get("audit", {}).get("fpr") or DEFAULT_FPR
    return [f"tpr@{rate:g}" for rate in asked]


def _known(what: str, word: str | None, names: Iterable[str]) -> None:
    if word not in (None, ANY) and word not in names:
        raise FedauditError("gate-selector", f"this run has no {what} {word!r}", suggest(str(word), names))


def sees(vantage: str, entry: AuditResult) -> bool:
    """Results on global models are stored once, under the client; a server sees these models, too."""
    also = vantage == "server" and (entry.vantage, entry.model) == ("client", "global")
    return entry.vantage == vantage or also


def _attacks(attack: str | None, entry: AuditResult) -> bool:
    """`*` is every attack; blind is none, because it sees no model. None: a vantage that has no primary attack."""
    return entry.attack == attack or (attack == ANY and entry.attack != "blind")


def _of(party: str | None, entry: AuditResult) -> bool:
    return entry.party == party or (party == ANY and entry.party is not None)


def _place(entry: AuditResult) -> Place:
    return entry.attack, entry.vantage, entry.model, entry.party


@dataclass(frozen=True)
class Among:
    """How many results are named by some rule, how many stand beside these, and to which of the two this one belongs:
    the error is shared among them."""

    named: int
    beside: int
    is_named: bool
    joined: int  # conditions of the rule: one that is safe suffices, so that each is a chance to pass by mistake

    def confidence(self, whole: float) -> float:
        return Shares.among(whole, self.named, self.beside).of(self.is_named)


def _find(rule: Rule, place: Selected, among: Among, doubts: Doubts, scores: Callable[[], Scores | None]) -> Judged:
    entry = place.entry
    estimate = entry.estimates.get(rule.metric)
    if estimate is None:
        why = f"this run was too small to measure {rule.metric}" if rule.metric.startswith("tpr@") else "not measured"
        return Judged(rule, *_place(entry), None, None, None, Decision.UNDECIDED, why, place.named)
    if of(entry) is None:
        why = (
            f"the package of the question {entry.question!r} is not installed here, so nobody knows which way is worse"
        )
        return Judged(rule, *_place(entry), estimate.value, None, None, Decision.UNDECIDED, why, place.named)
    (low, high), note = proved_ends(estimate), ""
    many = among.named + among.beside
    if rule.broken_for_sure(low, high) and many > 1:
        low = _corrected(entry, rule.metric, among.confidence(estimate.confidence), scores(), 0)
        if low is None:
            note = f"the lower end cannot be corrected for {many} results: scores.parquet does not have its scores"
    if among.joined > 1 and rule.kept_for_sure(low, high):
        high = _corrected(entry, rule.metric, 1 - (1 - estimate.confidence) / among.joined, scores(), 1)
    against = Doubts(doubts.not_safe or _below_chance(entry, among, scores), doubts.not_violated)
    verdict, why_not = _decided(rule, low, high, against)
    note = why_not or note
    note = note or (estimate.reason or "" if verdict is Decision.UNDECIDED else "")
    return Judged(rule, *_place(entry), estimate.value, low, high, verdict, note, place.named)


def _below_chance(entry: AuditResult, among: Among, scores: Callable[[], Scores | None]) -> str:
    """Why an AUC below 0.5 does not mean safe: the score carries information, with the wrong sign. Empty if it is not,
    with the error shared among all results: of forty at chance, one lies below it at 95 %."""
    auc_of_it = entry.estimates.get("auc")
    if auc_of_it is None or auc_of_it.high is None or auc_of_it.high >= 0.5:
        return ""
    high = _corrected(entry, "auc", among.confidence(auc_of_it.confidence), scores(), 1)
    if high is not None and high >= 0.5:
        return ""
    return "AUC is below 0.5: the score tells members from outsiders, but with the wrong sign"


# ------------------------------------------------------------------ intervals again, from the scores


def _corrected(
    entry: AuditResult, metric: str, confidence: float, scores: Scores | None, end: Literal[0, 1]
) -> float | None:
    """The lower (0) or upper (1) end at another confidence; None if it cannot be computed."""
    stored = entry.estimates[metric]
    if not (metric == "auc" or metric.startswith("tpr@")):  # of another question: from the interval alone
        again = at_confidence(stored, confidence) if stored.kind == "measured" else None
        return None if again is None else (again.low, again.high)[end]
    if scores is None:
        return None
    blocks = blocks_of(scores, entry.attack, entry.model, entry.party)
    if not blocks:
        return None  # canaries: scores.parquet holds those of records
    again = _estimate(blocks, metric, stored.confidence)
    # Runs of earlier versions have no guaranteed ends of an AUC, and another interval around the same value.
    older = stored.guaranteed is None and again.guaranteed is not None
    names = ("value",) if older else ("value", "low", "high")
    same = all(_close(getattr(again, name), getattr(stored, name)) for name in names)
    if not same and entry.vantage == "outsider":
        return None  # a defence changes the answers for outsiders, and scores.parquet does not hold those scores
    if not same:
        raise FedauditError(
            "scores-differ",
            f"{results.SCORES} does not give the {metric} of {entry.attack} that {results.RESULTS} states",
            "The two files are not from the same run. Run `fedaudit run` or `fedaudit audit` again.",
            exit_code=REFUSED,
        )
    return proved_ends(_estimate(blocks, metric, confidence))[end]


def _estimate(blocks: Sequence[Block], metric: str, confidence: float) -> Estimate:
    if metric == "auc":
        return auc(blocks, confidence)
    return pooled_tpr(blocks, float(metric.removeprefix("tpr@")), confidence)


def _close(a: float | None, b: float | None) -> bool:
    return a is b is None or (a is not None and b is not None and math.isclose(a, b, rel_tol=0, abs_tol=1e-9))
