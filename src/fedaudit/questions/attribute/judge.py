"""Does training reveal an attribute? The attack counts only as far as it beats two baselines. At the end of this file:
how the attribute is put among the inputs before training, and set to each of its values.

It must do better than a *blind* guess, which sees the rest of the record and no model. And it must do better for
members than for *non-members*, about whose attribute the models know nothing. People whose attribute the adversary
already knows are not among those guessed, and a non-member is somebody none of whose records was trained on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack, Evidence, Own
from fedaudit.adversary.attacks.series import Classifier
from fedaudit.adversary.signals.outputs import Probe
from fedaudit.audit.case import Case, figure
from fedaudit.audit.collect import Sight
from fedaudit.errors import FedauditError
from fedaudit.questions import Verdict, behind
from fedaudit.stats import Block, auc, proportion
from fedaudit.stats.intervals import of_share, of_sum, of_units
from fedaudit.stats.paired import auc_influence
from fedaudit.types import (
    AuditResult,
    Bools,
    Cost,
    Dataset,
    Estimate,
    Floats,
    Game,
    Ints,
    ModelKind,
    Notice,
    Role,
    Strings,
    UnitErrors,
    Vantage,
    notice,
)

MEMBERS, NONMEMBERS, BLIND = "members", "nonmembers", "blind"
GAPS = ("excess-over-blind", BLIND), ("members-minus-nonmembers", NONMEMBERS)


class Guesser(Protocol):
    """An attack that gives each of `count` values a score."""

    def guess(self, features: Floats, count: int) -> Floats: ...


@dataclass(frozen=True)
class Guesses:
    """The guesses for one group of people under one party's models, and the truth."""

    said: Floats  # records x values: a score for each value
    true: Ints
    subject: Ints | None  # whose record it is, by number; None: nobody has two records
    who: Strings | None = None  # the same by name, of the record where nobody has two

    def blocks(self) -> list[Block]:
        """For each value, the scores of people who have it and of people who do not. Two values need only one block."""
        values = range(self.said.shape[1])
        return [self._block(value) for value in (values if len(values) > 2 else (1,))]

    def _block(self, value: int) -> Block:
        others = np.delete(self.said, value, axis=1)
        score, has = self.said[:, value] - others.max(axis=1), self.true == value
        whose = self.subject
        subjects = None if whose is None else (whose[has], whose[~has], whose[:0])
        names = None if self.who is None else (self.who[has], self.who[~has], self.who[:0])
        return Block(score[has], score[~has], np.empty(0), subjects, names)


def told_apart(name: str, groups: Sequence[Guesses], confidence: float) -> Estimate:
    """The AUC of each value against the others, averaged over the pairs.

    The AUCs are about the same people, so their intervals are averaged as if their errors were fully correlated.
    """
    by_value = [auc(blocks, confidence) for blocks in zip(*(group.blocks() for group in groups), strict=True)]
    usable = [estimate for estimate in by_value if estimate.value is not None]
    if len(by_value) == 1 or not usable:
        return replace(by_value[0], name=name)
    pairs = np.array([estimate.n_pos * estimate.n_neg for estimate in usable], float)
    ends = np.array([[e.value, e.low, e.high] for e in usable], float)
    value, low, high = (float(end) for end in pairs @ ends / pairs.sum())
    people = sum(len(group.true) for group in groups)
    method = (
        f"mean over {len(usable)} values, {people} people each time, who has it against who has not, of: "
        f"{usable[0].method}"
    )
    return Estimate(name, value, low, high, confidence, method, "measured", people, people)


def person_errors(groups: Mapping[str, Sequence[Guesses]]) -> dict[str, UnitErrors]:
    """What each person adds to the errors of the AUCs, of their differences and of the accuracies."""
    found = {}
    for name, guesses in groups.items():
        if guesses:
            found[f"{name}-auc"] = _auc_errors(guesses)
            right = [g.said.argmax(axis=1) == g.true for g in guesses]
            found[f"{name}-accuracy"] = of_share(right, [_names(g) for g in guesses])
    for gap, other in GAPS:
        if f"{other}-auc" in found:
            found[gap] = of_sum(found[f"{MEMBERS}-auc"], found[f"{other}-auc"], -1.0)
    return found


def _auc_errors(groups: Sequence[Guesses]) -> UnitErrors:
    """Of the mean over the values, as `told_apart` weighs them."""
    by_value = [list(blocks) for blocks in zip(*(group.blocks() for group in groups), strict=True)]
    usable = [blocks for blocks in by_value if auc(blocks).value is not None]
    pairs = [sum(len(b.members) for b in each) * sum(len(b.evaluation) for b in each) for each in usable]
    names, values = [np.empty(0, np.str_)], [np.empty(0)]
    for blocks, weight in zip(usable, pairs, strict=True):
        for block, parts in zip(blocks, auc_influence(blocks), strict=True):
            assert block.ids is not None
            names += block.ids
            values += [weight / sum(pairs) * part for part in parts]
    return of_units(names, values)


def _names(guesses: Guesses) -> Strings:
    assert guesses.who is not None
    return guesses.who


def judge(case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind) -> Verdict:
    """The pooled result with its sentence; then each party, if its local models are seen."""
    of, results, notices = case.settings.asked.get("attribute"), [], list[Notice]()
    errors: Mapping[tuple[str, str, str], UnitErrors] = {}
    for party in (None, *(case.game.parties if model == "local" else ())):
        sights = case.outlooks.of(vantage, model) if party is None else [case.outlooks.sight(vantage, model, party)]
        groups = _groups(case, attack, sights)
        found = all_figures(case, groups)
        if found and of:
            cost = Cost(case.scores.epochs(sights, attack))
            place = (attack.name, vantage.value, model, "attribute", party)
            results.append(AuditResult(*place, round=case.round, estimates=found, cost=cost, question=attack.question))
            if party is None:
                notices.append(conclusion(of.name, found))
                errors = behind(attack.name, model, person_errors(groups))
    return Verdict(results, notices, errors)


def _groups(case: Case, attack: BaseAttack, sights: Sequence[Sight]) -> dict[str, list[Guesses]]:
    groups: dict[str, list[Guesses]] = {MEMBERS: [], NONMEMBERS: [], BLIND: []}
    for sight in sights:
        for name, guesses in (_guesses(case, attack, sight) or {}).items():
            groups[name].append(guesses)
    return groups


def all_figures(case: Case, groups: Mapping[str, Sequence[Guesses]]) -> dict[str, Estimate] | None:
    """The estimates for several sights together, or None if nothing was observed."""
    confidence = case.settings.confidence
    if not groups[MEMBERS]:
        return None
    found: dict[str, Estimate] = {}
    for name, guesses_ in groups.items():
        found[f"{name}-auc"] = told_apart(f"{name}-auc", guesses_, confidence)
        found[f"{name}-accuracy"] = _accuracy(f"{name}-accuracy", guesses_, confidence)
        found[f"{name}-balanced-accuracy"] = balanced(f"{name}-balanced-accuracy", guesses_, confidence)
        if case.settings.asked["attribute"].values == 2:
            found |= {f"{name}-{which}": one for which, one in called(name, guesses_, confidence).items()}
    for name, other in GAPS:
        counts = tuple(sum(len(guesses.true) for guesses in groups[group]) for group in (MEMBERS, other))
        gap = difference(name, found["members-auc"], found[f"{other}-auc"])
        found[name] = replace(gap, n_pos=counts[0], n_neg=counts[1])  # people, however many values there are
    return found


def _guesses(case: Case, attack: BaseAttack, sight: Sight) -> dict[str, Guesses] | None:
    of, own = case.settings.asked["attribute"], case.scores.own
    assert own is not None
    target, series = case.scores.series(sight, attack)
    own_rows, rows = own.rows, sight.rows
    known = own_rows.attributes[of.name]
    taught = (own.role == Role.MEMBER.value) & (known >= 0)
    if series is None or len(set(known[taught].tolist())) < 2:
        return None
    fitted = cast(Guesser, case.scores.fit(sight, attack, Evidence(shadow=Own(series[taught], known[taught]))))
    said, classes = fitted.guess(target, of.values), _classes(case.game)
    unseen = Classifier.learnt(of.rest(own_rows, classes)[taught], known[taught])
    blind = unseen.lift(of.rest(rows, classes), of.values)
    true, subject = rows.attributes[of.name], sight.subject
    members, nonmembers = people(case, attack, sight, true >= 0)

    def about(guessed: Floats, whom: Bools) -> Guesses:
        return Guesses(guessed[whom], true[whom], None if subject is None else subject[whom], sight.who[whom])

    return {MEMBERS: about(said, members), NONMEMBERS: about(said, nonmembers), BLIND: about(blind, members)}


def _classes(game: Game) -> int:
    y = game.candidates.rows.y
    return int(y.max()) + 1 if y.dtype.kind in "iu" else 0


def people(case: Case, attack: BaseAttack, sight: Sight, known: Bools) -> tuple[Bools, Bools]:
    """Members, and non-members none of whose records was trained on; without people whose records the adversary
    holds."""
    usable = known & case.scores.judged(sight, attack)
    member = sight.role == Role.MEMBER.value
    whose, own = case.game.candidates.subject, case.scores.own
    theirs = own.rows.subject if own else None
    if whose is None or theirs is None:
        return usable & member, usable & ~member
    trained_on = whose[case.game.truth.mask(Role.MEMBER)]
    subject = whose[sight.index]
    usable &= ~np.isin(subject, theirs)
    return usable & member, usable & ~np.isin(subject, trained_on)


def _accuracy(name: str, guesses: Sequence[Guesses], confidence: float) -> Estimate:
    right = [g.said.argmax(axis=1) == g.true for g in guesses]
    found = proportion(right, [g.subject for g in guesses], confidence, name)
    return replace(found, n_pos=found.n_pos + found.n_neg, n_neg=0)  # people, compared with nobody


def balanced(name: str, guesses: Sequence[Guesses], confidence: float) -> Estimate:
    """The mean, over the values that anybody has, of the share of those with this value who are guessed: an attribute
    that most people share is not guessed well by naming it every time."""
    shares = []
    for value in sorted(set(np.concatenate([g.true for g in guesses]).tolist())):
        has = [g.true == value for g in guesses]
        right = [g.said[whom].argmax(axis=1) == value for g, whom in zip(guesses, has, strict=True)]
        whose = [None if g.subject is None else g.subject[whom] for g, whom in zip(guesses, has, strict=True)]
        shares.append(proportion(right, whose, confidence))
    people = sum(len(g.true) for g in guesses)
    how = f"mean over values; square-and-add of the intervals of: {shares[0].method if shares else 'nobody'}"
    known = [(s.value, s.low, s.high) for s in shares if s.value is not None and s.low is not None]
    if not known or len(known) < len(shares):
        reason = next((s.reason for s in shares if s.reason), "nobody's attribute is known")
        return Estimate(name, None, None, None, confidence, how, "measured", people, 0, reason=reason)
    each, low, high = np.array(known, float).T
    value = float(each.mean())
    below, above = (float(np.linalg.norm(side)) / len(each) for side in (each - low, high - each))
    return Estimate(
        name, value, max(value - below, 0.0), min(value + above, 1.0), confidence, how, "measured", people, 0
    )


def called(name: str, guesses: Sequence[Guesses], confidence: float) -> dict[str, Estimate]:
    """Precision, recall and F1 of calling a person's attribute 1, at the numbers that there are, as accuracy is.

    Each is a share: of those called so, who has it; of those who have it, who is called so; and of those with either,
    who has both, which is F1 / (2 - F1).
    """
    says, has = [g.said.argmax(axis=1) == 1 for g in guesses], [g.true == 1 for g in guesses]
    both, either = ([how(s, h) for s, h in zip(says, has, strict=True)] for how in (np.logical_and, np.logical_or))

    def share(which: str, among: Sequence[Bools], method: str, nobody: str) -> Estimate:
        hits = [own[whom] for own, whom in zip(both, among, strict=True)]
        whose = [None if g.subject is None else g.subject[whom] for g, whom in zip(guesses, among, strict=True)]
        one = proportion(hits, whose, confidence, f"{name}-{which}", method)
        one = replace(one, reason=nobody) if one.value is None else one
        return replace(one, n_pos=one.n_pos + one.n_neg, n_neg=0)  # people, compared with nobody

    precision = share("precision", says, "of those whose attribute is called 1", "nobody's attribute is called 1")
    recall = share("recall", has, "of those whose attribute is 1", "nobody's attribute is 1")
    how = "2 s / (1 + s), where s: of those whose attribute is or is called 1, the share of both"
    overlap = share("f1", either, how, "nobody's attribute is 1 or called 1")
    value, low, high = (
        None if end is None else 2 * end / (1 + end) for end in (overlap.value, overlap.low, overlap.high)
    )
    return {"precision": precision, "recall": recall, "f1": replace(overlap, value=value, low=low, high=high)}


def difference(name: str, first: Estimate, second: Estimate) -> Estimate:
    """The difference of two estimates, with an interval from theirs (Newcombe's square-and-add)."""
    method = "difference of AUCs; square-and-add of their intervals, correlation not counted on"
    counts = (first.n_pos + first.n_neg, second.n_pos + second.n_neg)
    values = (first.value, first.low, first.high, second.value, second.low, second.high)
    if any(value is None for value in values):
        reason = first.reason or second.reason
        return Estimate(name, None, None, None, first.confidence, method, "measured", *counts, reason=reason)
    one, one_low, one_high, two, two_low, two_high = (float(value) for value in values if value is not None)
    low = one - two - math.hypot(one - one_low, two_high - two)
    high = one - two + math.hypot(one_high - one, two - two_low)
    return Estimate(name, one - two, max(low, -1.0), min(high, 1.0), first.confidence, method, "measured", *counts)


def conclusion(name: str, found: Mapping[str, Estimate]) -> Notice:
    excess, gap = found["excess-over-blind"], found["members-minus-nonmembers"]
    attack, blind = found["members-auc"], found["blind-auc"]
    figures = {"excess": excess, "gap": gap, "members": attack, "blind": blind, "nonmembers": found["nonmembers-auc"]}
    return notice(
        "attribute",
        name=name,
        finding=_finding(excess, gap, attack),
        figures={which: figure(one) for which, one in figures.items()},
        confidence=attack.confidence,
    )


def _finding(excess: Estimate, gap: Estimate, attack: Estimate) -> str:
    if excess.low is None or excess.high is None or gap.low is None:
        return "no-comparison"
    if attack.low is None or attack.low <= 0.5:
        return "at-chance"
    if gap.low > 0:
        return "revealed" if excess.low > 0 else "trace"
    if excess.high < 0:
        return "blind-is-better"
    return "of-everybody" if excess.low > 0 else "neither"


# ------------------------------------------------------------------ before training


def with_attribute(dataset: Dataset, name: str, column: int | None) -> Dataset:
    """The data set as the federation trains on it: an attribute that is not among the inputs is put there."""
    records = dataset.records
    if name not in records.attributes:
        known = ", ".join(sorted(records.attributes)) or "none"
        raise FedauditError("attribute", f"{dataset.name} has no attribute {name!r}", f"It has: {known}.")
    if records.x.ndim != 2 or records.x.dtype.kind != "f" or records.y.ndim > 1:
        what = "attributes are guessed where a record is a row of numbers with one label"
        raise FedauditError("attribute", what, "Flatten it; attributes of text cannot be guessed.")
    count = int(records.attributes[name].max()) + 1
    if count < 2:
        raise FedauditError(
            "attribute", f"the attribute {name!r} has a single value", "Choose another in [audit.attribute] name."
        )
    if column is not None:
        if not 0 <= column < records.x.shape[1]:
            raise FedauditError(
                "attribute", f"there is no column {column} among {records.x.shape[1]}", "Count columns from 0."
            )
        return dataset
    put = one_hot(records.attributes[name], count).astype(records.x.dtype)
    return replace(dataset, records=replace(records, x=np.column_stack([records.x, put])))


def probe(dataset: Dataset, game: Game, name: str, column: int | None) -> Probe:
    """How the attribute is set to each of its values: a column, to its mean over the adversary's own records with that
    value; without a column, as a one-hot code.

    `game`: the adversary's own. It learns from those of its records that its shadow is trained on.
    """
    own, taught = game.candidates.rows, game.truth.mask(Role.MEMBER)
    if len(set(own.attributes[name][taught].tolist()) - {-1}) < 2:
        raise FedauditError(
            "attribute",
            f"the {int(taught.sum())} records from which the adversary learns have a single value of {name!r}",
            "Use more data, or an attribute that varies more.",
        )
    codes, width = dataset.records.attributes[name], dataset.records.x.shape[1]
    count = int(codes.max()) + 1
    if column is None:
        return Probe(name, np.arange(width - count, width), np.eye(count, dtype=np.float32))
    known = own.attributes[name]
    missing = [value for value in range(count) if not (known == value).any()]
    if missing:
        raise FedauditError(
            "attribute",
            f"the adversary has no record with {name} = {missing[0]}",
            "Use more records, or another attribute.",
        )
    means = np.array([[own.x[known == value, column].mean()] for value in range(count)], np.float32)
    return Probe(name, np.array([column]), means)


def one_hot(codes: Ints, count: int) -> Floats:
    """Unknown (-1) is all zeros."""
    return np.asarray(np.vstack([np.eye(count), np.zeros(count)])[codes])
