"""Does training give an attribute away? A guess counts only for what it does better than two others.

Better than a *blind* guess, which sees the rest of the record and no model; and better for members than for
*non-members*, of whose attribute the models know nothing. Both comparisons are between people who are not the
adversary's: nobody whose attribute it knows is among those guessed, and a non-member is somebody of whom no record at
all was trained on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.attacks.attribute import SIGNAL, Attribute, guesser, lift
from fedaudit.adversary.attacks.series import Table
from fedaudit.adversary.signals import measure
from fedaudit.audit.panel import Panel
from fedaudit.errors import FedauditError
from fedaudit.stats import Block, auc, proportion
from fedaudit.types import Bools, Dataset, Estimate, Floats, Game, Ints, Records, Role, Task, View

MEMBERS, NONMEMBERS, BLIND = "members", "nonmembers", "blind"


@dataclass(frozen=True)
class Probe:
    """Where the attribute sits in a record's input, and what stands there for each of its values."""

    name: str
    columns: Ints
    settings: NDArray[np.float32]  # values x columns
    signal: ClassVar[str] = SIGNAL

    @property
    def values(self) -> int:
        return len(self.settings)

    def __call__(self, view: View, rows: Records, task: Task) -> dict[str, Floats]:
        """records x values: the gradient norm with the attribute set to each value in turn."""
        norms = []
        for setting in self.settings:
            x = rows.x.copy()
            x[:, self.columns] = setting
            norms.append(measure(["gradient-norm"], view, replace(rows, x=x), task)["gradient-norm"])
        return {SIGNAL: np.column_stack(norms)}

    def rest(self, rows: Records, classes: int) -> Floats:
        """All that is known of a record but the attribute: the other inputs, and its label."""
        known = np.delete(rows.x.reshape(len(rows), -1), self.columns, axis=1).astype(np.float64)
        label = np.eye(classes)[rows.y] if classes else rows.y[:, None].astype(np.float64)
        return np.column_stack([known, label])


def with_attribute(dataset: Dataset, name: str, column: int | None) -> Dataset:
    """The data set as the federation trains on it: an attribute that is not among the inputs is put there."""
    records = dataset.records
    if name not in records.attributes:
        known = ", ".join(sorted(records.attributes)) or "none"
        raise FedauditError("attribute", f"{dataset.name} has no attribute {name!r}", f"It has: {known}.")
    if records.x.ndim != 2:
        raise FedauditError("attribute", "attributes are guessed where a record is a row of numbers", "Flatten it.")
    count = int(records.attributes[name].max()) + 1
    if count < 2:
        raise FedauditError("attribute", f"the attribute {name!r} has a single value", "Choose another.")
    if column is not None:
        if not 0 <= column < records.x.shape[1]:
            raise FedauditError("attribute", f"there is no column {column} in {records.x.shape[1]}", "Count from 0.")
        return dataset
    put = one_hot(records.attributes[name], count).astype(records.x.dtype)
    return replace(dataset, records=replace(records, x=np.column_stack([records.x, put])))


def probe(dataset: Dataset, game: Game, name: str, column: int | None) -> Probe:
    """A column takes, for each value, its mean over the adversary's own records of that value; else a one-hot code.

    `game`: the adversary's own; it learns from those of its records that its shadow is trained on.
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
        raise FedauditError("attribute", f"the adversary has no record with {name} = {missing[0]}", "Use more data.")
    means = np.array([[own.x[known == value, column].mean()] for value in range(count)], np.float32)
    return Probe(name, np.array([column]), means)


def one_hot(codes: Ints, count: int) -> Floats:
    """Unknown (-1) is all zeros."""
    return np.asarray(np.vstack([np.eye(count), np.zeros(count)])[codes])


# ------------------------------------------------------------------ judging


@dataclass(frozen=True)
class Guesses:
    """Of one group of people under one party's models: what was said of each value, and what is true."""

    said: Floats  # records x values
    true: Ints
    subject: Ints | None  # whose, by number; None: nobody has two records

    def blocks(self) -> list[Block]:
        """For each value, how well those who have it are told from those who have not; two values are one question."""
        values = range(self.said.shape[1])
        return [self._block(value) for value in (values if len(values) > 2 else (1,))]

    def _block(self, value: int) -> Block:
        others = np.delete(self.said, value, axis=1)
        score, has = self.said[:, value] - others.max(axis=1), self.true == value
        whose = self.subject
        subjects = None if whose is None else (whose[has], whose[~has], whose[:0])
        return Block(score[has], score[~has], np.empty(0), subjects)


def told_apart(name: str, groups: Sequence[Guesses], confidence: float) -> Estimate:
    """The AUC of each value against the others, averaged over the pairs.

    The values' AUCs are of the same people: their intervals are averaged as if they always erred together.
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


def judge(
    attack: Attribute, of: Probe, panels: Sequence[Panel], shadow: Panel, classes: int, confidence: float
) -> dict[str, Estimate] | None:
    """All figures for these panels together, or nothing while nothing was observed."""
    groups: dict[str, list[Guesses]] = {MEMBERS: [], NONMEMBERS: [], BLIND: []}
    for panel in panels:
        guessed = _guesses(attack, of, panel, shadow, classes)
        for name, guesses in (guessed or {}).items():
            groups[name].append(guesses)
    if not groups[MEMBERS]:
        return None
    found: dict[str, Estimate] = {}
    for name, guesses_ in groups.items():
        found[f"{name}-auc"] = told_apart(f"{name}-auc", guesses_, confidence)
        found[f"{name}-accuracy"] = _accuracy(f"{name}-accuracy", guesses_, confidence)
    for name, other in (("excess-over-blind", BLIND), ("members-minus-nonmembers", NONMEMBERS)):
        counts = tuple(sum(len(guesses.true) for guesses in groups[group]) for group in (MEMBERS, other))
        gap = difference(name, found["members-auc"], found[f"{other}-auc"])
        found[name] = replace(gap, n_pos=counts[0], n_neg=counts[1])  # people, however many values there are
    return found


def _guesses(attack: Attribute, of: Probe, panel: Panel, shadow: Panel, classes: int) -> dict[str, Guesses] | None:
    target, own = panel.reductions[attack.name], shadow.reductions[attack.name]
    assert isinstance(target, Table)
    assert isinstance(own, Table)
    rounds = [round for round in target.rounds if round in own.rounds]
    known = shadow.rows.attributes[of.name]
    taught = (shadow.role == Role.MEMBER.value) & (known >= 0)
    if not rounds or len(set(known[taught].tolist())) < 2:
        return None
    said = attack.learn(own.at(rounds)[taught], known[taught]).guess(target.at(rounds), of.values)
    rows = panel.rows
    blind = lift(guesser(of.rest(shadow.rows, classes)[taught], known[taught]), of.rest(rows, classes), of.values)
    members, nonmembers = people(panel, shadow, rows.attributes[of.name] >= 0)
    true, subject = rows.attributes[of.name], panel.subject

    def about(guessed: Floats, whom: Bools) -> Guesses:
        return Guesses(guessed[whom], true[whom], None if subject is None else subject[whom])

    return {MEMBERS: about(said, members), NONMEMBERS: about(said, nonmembers), BLIND: about(blind, members)}


def people(panel: Panel, shadow: Panel, known: Bools) -> tuple[Bools, Bools]:
    """Members, and non-members of whom nothing was trained on; nobody of whom the adversary holds a record."""
    usable = known & panel.judged(Attribute())
    member = panel.role == Role.MEMBER.value
    subject, own = panel.rows.subject, shadow.rows.subject
    if subject is None or own is None or panel.trained_subjects is None:
        return usable & member, usable & ~member
    usable &= ~np.isin(subject, own)
    return usable & member, usable & ~np.isin(subject, panel.trained_subjects)


def _accuracy(name: str, guesses: Sequence[Guesses], confidence: float) -> Estimate:
    right = [g.said.argmax(axis=1) == g.true for g in guesses]
    return proportion(right, [g.subject for g in guesses], confidence, name)


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


def conclusion(name: str, found: Mapping[str, Estimate]) -> str:
    """What may be said, in words."""
    excess, gap = found["excess-over-blind"], found["members-minus-nonmembers"]
    attack, blind = found["members-auc"], found["blind-auc"]
    figures = (
        f"(AUC over the blind guess {_text(excess, '+')}, members over non-members {_text(gap, '+')}; "
        f"AUC of the attack {_text(attack)}, of the blind guess {_text(blind)}, of the attack on non-members "
        f"{_text(found['nonmembers-auc'])}; {attack.confidence:.0%} intervals)"
    )
    if excess.low is None or excess.high is None or gap.low is None:
        return f"Attribute {name}: no comparison, so nothing can be said {figures}."
    if excess.low > 0 and gap.low > 0:
        return f"Attribute {name}: training gives it away; the attack beats the blind guess, on members only {figures}."
    if gap.low > 0:
        return (
            f"Attribute {name}: training leaves a trace of it (it is guessed better for members than for others), but "
            f"the attack does not beat a classifier that never sees a model {figures}."
        )
    if excess.high < 0:
        said = "a classifier that never sees a model does better than the attack"
    elif excess.low > 0:
        said = "the attack beats a blind guess, but as well for people who were not trained on"
    else:
        said = "the attack beats neither a classifier that never sees a model nor itself on people not trained on"
    return f"Attribute {name}: {said}: no leak is shown {figures}."


def _text(estimate: Estimate, sign: str = "") -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "–"
    return f"{estimate.value:{sign}.3f} ({estimate.low:{sign}.3f} to {estimate.high:{sign}.3f})"
