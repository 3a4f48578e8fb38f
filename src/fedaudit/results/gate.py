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
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Literal

from fedaudit.config.schema import DEFAULT_FPR
from fedaudit.errors import REFUSED, FedauditError, suggest
from fedaudit.privacy.statement import Statement
from fedaudit.questions import every as every_question
from fedaudit.questions import metric as described
from fedaudit.questions import of, of_membership
from fedaudit.results import document as results
from fedaudit.results.document import Document
from fedaudit.results.scores import Scores, blocks_of, load_scores
from fedaudit.stats import Block, auc, tpr_at_fpr
from fedaudit.stats.intervals import at_confidence
from fedaudit.stats.strongest import Shares, proved_ends
from fedaudit.stats.wording import without
from fedaudit.types import AuditResult, Doubt, Estimate
from fedaudit.words import all_words

PASSED, FAILED, UNDECIDED = 0, 1, 3  # exit codes

Place = tuple[str, str, str, str | None]  # attack, vantage, model, party
SELECTORS = ("attack", "vantage", "model", "party")
ANY = "*"
OUTSIDE = r"(?![^\[]*\])"  # of the brackets: a party may be called "Mercy and Grace"
ACCURACY, EPSILON = "accuracy", "epsilon"
OF_THE_RUN = (ACCURACY, EPSILON)  # not of one attack
SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


# ------------------------------------------------------------------ rules: tpr@0.01[attack=loss, party=*] > 0.05


@dataclass(frozen=True)
class Rule:
    """What is not allowed. Without an attack: every one. Without a vantage or a model: all. Without a party:
    pooled. Conditions that are joined by `and` have the same text."""

    text: str
    metric: str
    limit: float
    _: KW_ONLY
    attack: str | None = None
    vantage: str | None = None
    model: str | None = None
    party: str | None = None
    sign: str = ">"

    @property
    def condition(self) -> str:
        return f"{self.metric} {self.sign} {self.limit:g}"

    def broken_for_sure(self, low: float | None, high: float | None) -> bool:
        """Is what must not be the case true of the whole interval?"""
        near = low if self.sign in (">", ">=") else high
        return near is not None and self._holds(near)

    def kept_for_sure(self, low: float | None, high: float | None) -> bool:
        """Is it false of the whole interval?"""
        far = high if self.sign in (">", ">=") else low
        return far is not None and not self._holds(far)

    def _holds(self, value: float) -> bool:
        return bool(SIGNS[self.sign](value, self.limit))


def parse_limit(text: str) -> Rule:
    """What is wanted, `tpr@0.01 < 0.02`, as the rule that forbids the rest."""
    if text.count("<") != 1 or ">" in text or "=" in text.partition("]")[2]:
        what = f"--limit {text!r}: it must say of one metric that it is below a limit, by '<'"
        raise FedauditError("gate-rule", what, 'Write it like "tpr@0.01 < 0.02" or "auc[vantage=client] < 0.6".')
    return parse_rule(text.replace("<", ">"))


def parse_rules(text: str) -> list[Rule]:
    """The conditions of one rule, joined by `and`."""
    if re.search(rf"\bor\b{OUTSIDE}", text):
        raise _bad_rule(text, "a rule has no 'or'", "Give --fail-if twice: each rule is checked by itself.")
    return [parse_rule(part, text) for part in re.split(rf"\band\b{OUTSIDE}", text)]


def parse_rule(part: str, text: str | None = None) -> Rule:
    """`METRIC[attack=..., vantage=..., model=..., party=...] > LIMIT`, or without a bracket. `text`: all of it."""
    text = part if text is None else text
    chosen = dict[str, str]()
    bracket = re.search(r"\[(.*?)\]", part)
    if bracket:
        for word in re.split(r",(?=[^,]*=|\s*$)", bracket[1]):
            key, _, value = (each.strip() for each in word.partition("="))
            if key not in SELECTORS or not value or key in chosen:
                raise _bad_rule(text, f"{word.strip()!r} is not one of {', '.join(f'{s}=...' for s in SELECTORS)}")
            chosen[key] = value
    bare = part.replace(bracket[0], " ") if bracket else part
    match = re.fullmatch(r"\s*([a-z][^\s<>=\[\]]*)\s*(>=|>|<=|<)\s*([^\s=<>]+)\s*", bare)
    if not match:
        raise _bad_rule(text, "it must compare one metric with one limit by '>' or '>='")
    metric, sign = _metric(text, match[1]), match[2]
    if why := _not_limited(metric, sign):
        raise _bad_rule(text, why)
    if chosen and metric in OF_THE_RUN:
        raise _bad_rule(text, f"{metric} is the run's, so that it takes no brackets")
    rule = Rule(text, metric, _limit(text, match[3]), **chosen, sign=sign)
    if why := _out_of_reach(rule):
        raise _bad_rule(text, why)
    return rule


def _out_of_reach(rule: Rule) -> str:
    """Why a rule could never fail, or never pass: most often its limit is written in percent."""
    least, most = described(rule.metric).least, described(rule.metric).most
    if not least <= rule.limit <= most:
        percent = " (0.05 for 5 %)" if most == 1 else ""
        return f"{rule.metric} lies between {least:g} and {most:g}, so that the limit must, too{percent}"
    if (rule.sign, rule.limit) in ((">", most), ("<", least)):
        bound = f"above {most:g}" if rule.sign == ">" else f"below {least:g}"
        return f"{rule.metric} cannot be {bound}: this could never fail"
    return ""


def _not_limited(metric: str, sign: str) -> str:
    """Why a metric takes no such limit, if it takes none: as it describes itself."""
    if metric in OF_THE_RUN:
        return f"{sign!r} is not for {metric}" if metric == EPSILON and sign in ("<", "<=") else ""
    about = described(metric)
    if "{at}" in about.title:
        return f"{metric} lacks its {'rate: write tpr@0.01' if metric == 'tpr' else f'number: write {metric}@25'}"
    if not about.gated:
        return f"{metric} ({about.title}) is what others are compared with, and no risk"
    if sign in ("<", "<=") and about.worse != "lower":
        return f"{sign!r} is for accuracy: no risk is too small"
    if sign in (">", ">=") and about.worse == "lower":
        return f"of {metric}, less is worse: use '<'"
    return ""


def _metric(text: str, word: str) -> str:
    if not word.startswith("tpr@"):
        return word
    try:
        return f"tpr@{float(word.removeprefix('tpr@')):g}"  # as results name it
    except ValueError:
        raise _bad_rule(text, f"{word!r} names no false-positive rate") from None


def _limit(text: str, word: str) -> float:
    try:
        limit = float(word)
    except ValueError:
        limit = math.nan
    if not math.isfinite(limit):
        raise _bad_rule(text, f"{word!r} is not a number")
    return limit


def _bad_rule(text: str, why: str, todo: str = "") -> FedauditError:
    examples = 'Write it like "tpr@0.01 > 0.05", "auc[attack=loss, party=*] >= 0.6" or "accuracy < 0.8 and auc > 0.6".'
    return FedauditError("gate-rule", f"--fail-if {text!r}: {why}", todo or examples)


# ------------------------------------------------------------------ verdicts


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
    _: KW_ONLY
    verdict: Decision = Decision.UNDECIDED
    note: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    named: bool = True  # by the rule, or fixed before looking; the others stand beside it
    doubt: Doubt | None = None  # of the figure


@dataclass(frozen=True)
class Gate:
    findings: Sequence[Judged]
    looked_at: int  # distinct intervals, among which the error of the lower ends is shared
    primary: Mapping[str, str] = field(default_factory=dict)  # by vantage, where a rule names no attack
    silent: Sequence[str] = ()  # attacks beside the primary ones that have no interval for a rule
    useless: str = ""  # why the model itself is worth nothing: a verdict on it speaks for no other

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
    chosen = [(rule, place) for rule, place in selected if place.named or _was_measured(place.entry, rule)]
    silent = dict.fromkeys(place.entry.attack for rule, place in selected if (rule, place) not in chosen)
    keys = {(_place(place.entry), rule.metric) for rule, place in chosen}
    named_by_a_rule = {(_place(place.entry), rule.metric) for rule, place in chosen if place.named}
    counts = len(named_by_a_rule), len(keys - named_by_a_rule)
    scores = cache(lambda: load_scores(run))
    doubts = {rule: Doubts(hidden(document, rule), _confounded(document)) for rule in rules}
    primary = {headline.vantage: headline.fixed for headline in document.headlines}
    named = primary if any(rule.attack is None for rule in risks) else {}
    found, joined = [], Counter(rule.text for rule in rules)
    for rule, place in chosen:
        among = Among(*counts, (_place(place.entry), rule.metric) in named_by_a_rule, joined[rule.text])
        found.append(_find(rule, place, among, _of_whom(place.entry, rule, doubts[rule]), scores))
    found += [f for rule in rules for f in _of_the_run(rule, document, doubts[rule], joined[rule.text])]
    found += _failed(document, rules)
    empty = [rule for rule in rules if not any(finding.rule == rule for finding in found)]
    found += [Judged(rule, *NOWHERE, note="nothing was measured") for rule in empty]
    return Gate(found, len(keys), named, list(silent), document.useless)


def _was_measured(entry: AuditResult, rule: Rule) -> bool:
    """Has it an interval for the rule, or none because its figure is doubted? What that hides may break the rule."""
    found = entry.estimates.get(rule.metric)
    return found is not None and (found.low is not None or found.doubt is not None)


def _failed(document: Document, rules: Sequence[Rule]) -> list[Judged]:
    """Rules about an attack or a question that failed and so has no result: nobody knows, which is not wrong use."""
    return [
        Judged(
            rule,
            failure.attack,
            rule.vantage or ANY,
            rule.model or ANY,
            rule.party,
            note=f"{failure.attack} failed and has no result: {failure.reason}",
        )
        for rule in rules
        for failure in document.failed
        if _about(rule, failure.attack)
    ]


def _about(rule: Rule, failed: str) -> bool:
    """Is the rule about what has results of this name, because it says so, or because its figure is that question's?"""
    if rule.attack is not None:
        return rule.attack == failed
    asked = [question for question in every_question().values() if failed in (question.name, *question.asked_by)]
    return any(rule.metric.partition("@")[0] == one.name for question in asked for one in question.metrics)


def _asked_for(document: Document, rule: Rule) -> bool:
    """Is the rule about a figure of a question that this run asked? One that was has results, or said something."""
    results, said = {entry.question for entry in document.results}, {one.code for one in document.all_told()}
    return rule.attack is None and any(
        rule.metric == one.name and (question.name in results or said & question.shown)
        for question in every_question().values()
        for one in question.metrics
    )


@dataclass(frozen=True)
class Doubts:
    """What the audit itself says against a verdict: why nothing is safe, and why nothing is violated."""

    not_safe: str = ""
    not_violated: str = ""


def _of_whom(entry: AuditResult, rule: Rule, doubts: Doubts) -> Doubts:
    """A figure that says nothing about some parties proves nothing safe."""
    missing = without(entry.estimates.get(rule.metric))
    return replace(doubts, not_safe=f"the figure is {missing}") if missing and not doubts.not_safe else doubts


def hidden(document: Document, rule: Rule | None = None) -> str:
    """Why not even a small risk is proof of safety: not all that the rule is about was looked at, or something hides
    risk. An attack that failed matters if the rule is about it, or about all of them; so does any without a rule."""
    if document.run.ending == "interrupted":
        return "the run was interrupted"
    about = (None, ANY)
    of_attacks, rest = document.degraded[: len(document.failed)], document.degraded[len(document.failed) :]
    failed = zip(of_attacks, document.failed, strict=False)
    missing = [*(what for what, failure in failed if rule is None or rule.attack in (*about, failure.attack)), *rest]
    if missing:
        return f"part of the audit is missing: {missing[0]}"
    if document.understates:
        return document.understates[0]
    if rule is not None and not rule.metric.startswith("tpr@"):
        return ""
    strict = (told for entry in document.results for told in entry.told if told.code == "fpr-undershot")
    return next(iter(all_words(strict)), "")  # at one rate; at others there may be too few outsiders to see it


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
        estimate = document.accuracy
        if "accuracy" in document.run.not_handed_over:
            return [Judged(rule, *NOWHERE, note="the sites did not hand over the accuracy of the model")]
        if estimate is None or estimate.value is None:
            why = (estimate.reason if estimate else None) or "this run has no accuracy (a regression has none)"
            return [Judged(rule, *NOWHERE, note=why)]
        shared = at_confidence(estimate, 1 - (1 - estimate.confidence) / joined)
        verdict, note = _decided(rule, shared.low, shared.high, Doubts(doubts.not_safe))
        return [
            Judged(rule, *NOWHERE, verdict=verdict, note=note, value=estimate.value, low=shared.low, high=shared.high)
        ]
    if rule.metric != EPSILON:
        return []
    claim = document.run.guarantee
    if "guarantee" in document.run.not_handed_over:
        why = "what the sites promise differs, or some promise nothing: no epsilon is known that holds for all"
        return [Judged(rule, *NOWHERE, note=why)]
    if claim is None:
        why = "this run claims no differential privacy, so that its epsilon has no limit"
        return [Judged(rule, *NOWHERE, verdict=Decision.VIOLATED, note=why)]
    return [_of_a_claim(rule, each, document, doubts) for each in (claim, *claim.further)]


def _of_a_claim(rule: Rule, claim: Statement, document: Document, doubts: Doubts) -> Judged:
    """A claim is taken at its word, unless its accountant or the audit of the same run speaks against it."""
    value, note = claim.epsilon, claim.problems[0] if claim.problems else ""
    of = (claim.defence, "", claim.unit or "unit not said", None)
    against = [one for question in every_question().values() for one in question.against(claim, document)]
    if against:
        strongest = max(against, key=lambda one: one.at_least)
        low = max(strongest.at_least, value or 0.0)
        verdict = Decision.VIOLATED if rule.broken_for_sure(low, None) else Decision.UNDECIDED
        return Judged(rule, *of, verdict=verdict, note=strongest.why, value=value, low=low)
    verdict = Decision.UNDECIDED
    if not note:
        verdict, note = _decided(rule, math.inf if value is None else value, value, Doubts(doubts.not_safe))
    return Judged(rule, *of, verdict=verdict, note=note, value=value, low=value, high=value)


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
    _known("model", rule.model, {entry.model for entry in entries})
    _known("party", rule.party, {entry.party for entry in entries if entry.party is not None})
    found: dict[Place, Selected] = {}
    elsewhere = rule.attack is None and any(_alone_has(rule.metric, entry) for entry in entries)
    for vantage, attack in vantages.items():
        if rule.vantage in (None, ANY, vantage):
            for entry in (e for e in entries if sees(vantage, e) and _in(rule, e)):
                named = _alone_has(rule.metric, entry) if elsewhere else _attacks(rule.attack or attack, entry)
                beside_it = rule.attack is None and not elsewhere and attack is not None and of_membership(entry)
                if named or beside_it:
                    before = found.get(_place(entry))
                    found[_place(entry)] = Selected(entry, named or (before is not None and before.named))
    of_those = [one.entry for one in found.values()] or entries
    measured = sorted({name for entry in of_those for name in entry.estimates})
    # Rates that were asked for belong to this run, whether or not it was large enough to measure them.
    rates = document.run.config.get("audit", {}).get("fpr") or DEFAULT_FPR
    expected = [*measured, "auc", *(f"tpr@{rate:g}" for rate in rates)]
    if rule.metric not in expected and not any(_about(rule, name) for name in failed):
        if _asked_for(document, rule):
            return []  # it was looked for, and could not be told
        # Whoever names a figure of another question need not name that question.
        others = [] if rule.attack else [entry for entry in entries if not of_membership(entry)]
        limited = {name for entry in (*of_those, *others) for name in entry.estimates if described(name).gated}
        raise FedauditError("gate-metric", f"--fail-if {rule.text!r}: not measured", suggest(rule.metric, limited))
    return list(found.values())


def _alone_has(metric: str, entry: AuditResult) -> bool:
    """Is this a figure of another question than membership? Whoever names the figure need not name the question."""
    question = of(entry)
    own = () if question is None else [one.name for one in question.metrics]
    described = question is None or metric.partition("@")[0] in own
    return not of_membership(entry) and entry.attack != "blind" and metric in entry.estimates and described


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


def _in(rule: Rule, entry: AuditResult) -> bool:
    """Is it about the models and the party that the rule names?"""
    party = entry.party == rule.party or (rule.party == ANY and entry.party is not None)
    return party and rule.model in (None, ANY, entry.model)


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
        return Judged(rule, *_place(entry), note=why, named=place.named)
    if of(entry) is None:
        why = f"the package of the question {entry.question!r} is not installed, so nobody knows which way is worse"
        return Judged(rule, *_place(entry), note=why, value=estimate.value, named=place.named)
    (low, high), note = proved_ends(estimate), ""
    many = among.named + among.beside
    if rule.broken_for_sure(low, high) and many > 1:
        low, note = _corrected(entry, rule.metric, among.confidence(estimate.confidence), scores(), 0)
        if low is None:
            note = f"the lower end cannot be corrected for {many} results: scores.parquet does not have its scores"
    if among.joined > 1 and rule.kept_for_sure(low, high):
        high, note = _corrected(entry, rule.metric, 1 - (1 - estimate.confidence) / among.joined, scores(), 1)
    against = Doubts(doubts.not_safe or _below_chance(entry, among, scores), doubts.not_violated)
    verdict, why_not = _decided(rule, low, high, against)
    note = why_not or note or (estimate.reason or "" if verdict is Decision.UNDECIDED else "")
    return Judged(
        rule, *_place(entry), verdict=verdict, note=note, value=estimate.value, low=low, high=high, named=place.named,
        doubt=estimate.doubt,
    )  # fmt: skip


def _below_chance(entry: AuditResult, among: Among, scores: Callable[[], Scores | None]) -> str:
    """Why an AUC below 0.5 does not mean safe: the score carries information, with the wrong sign. Empty if it is not,
    with the error shared among all results: of forty at chance, one lies below it at 95 %."""
    auc_of_it = entry.estimates.get("auc")
    if auc_of_it is None or auc_of_it.high is None or auc_of_it.high >= 0.5:
        return ""
    high, _ = _corrected(entry, "auc", among.confidence(auc_of_it.confidence), scores(), 1)
    if high is not None and high >= 0.5:
        return ""
    return "AUC is below 0.5: the score tells members from outsiders, but with the wrong sign"


# ------------------------------------------------------------------ intervals again, from the scores


def _corrected(
    entry: AuditResult, metric: str, confidence: float, scores: Scores | None, end: Literal[0, 1]
) -> tuple[float | None, str]:
    """The lower (0) or upper (1) end at another confidence, and what is said of it; None if it cannot be computed.

    Former versions did not doubt thresholds. A lower end that they stored and that has no value today stays as it is;
    an upper one is none."""
    stored = entry.estimates[metric]
    if not (metric == "auc" or metric.startswith("tpr@")):  # of another question: from the interval alone
        again = at_confidence(stored, confidence) if stored.kind == "measured" else None
        return (None if again is None else (again.low, again.high)[end]), ""
    if scores is None:
        return None, ""
    blocks = blocks_of(scores, entry.attack, entry.model, entry.party)
    if not blocks:
        return None, ""  # canaries: scores.parquet holds those of records
    again = _estimate(blocks, metric, stored.confidence)
    former = again.doubt if stored.doubt is None else None
    alike = {None: ("value", "low", "high"), "fewer": ("value", "low", "realised_fpr"), "more": ("realised_fpr",)}
    same = all(_close(getattr(again, name), getattr(stored, name)) for name in alike[former])
    if same and former == "more":
        return (None if end else proved_ends(stored)[0]), again.reason or ""
    if not same and entry.vantage == "outsider":
        return None, ""  # a defence changes the answers for outsiders, and scores.parquet does not hold those scores
    if not same:
        raise FedauditError(
            "scores-differ",
            f"{results.SCORES} does not give the {metric} of {entry.attack} that {results.RESULTS} states",
            "The two files are not from the same run. Run `fedaudit run` or `fedaudit audit` again.",
            exit_code=REFUSED,
        )
    return proved_ends(_estimate(blocks, metric, confidence))[end], (again.reason or "") if former else ""


def _estimate(blocks: Sequence[Block], metric: str, confidence: float) -> Estimate:
    if metric == "auc":
        return auc(blocks, confidence)
    return tpr_at_fpr(blocks, float(metric.removeprefix("tpr@")), confidence)


def _close(a: float | None, b: float | None) -> bool:
    return a is b is None or (a is not None and b is not None and math.isclose(a, b, rel_tol=0, abs_tol=1e-9))
