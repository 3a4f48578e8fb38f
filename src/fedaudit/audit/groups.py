"""Groups of candidates, and which of them are more exposed than all others.

An average hides those who have something rare in common. The groups follow from the records and from the sizes of the
sets, and are fixed before any score is seen: each class, each value of each declared attribute, whoever has a value
that few have, and how many records a person has. All of them, on all kinds of models that were watched, share the
error, so that in a federation which gives nothing away some group stands out in one audit of twenty at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.case import Case
from fedaudit.audit.settings import HEADLINE_FPR, Legend
from fedaudit.stats.groups import contrast
from fedaudit.stats.roc import missing_from
from fedaudit.types import Bools, Candidates, Game, GroupFindings, GroupResult, Ints, Role, Subgroup

LEAST = 10  # members, and outsiders to report on, in a group and outside: records, or people where they are known
MOST_VALUES = 100  # of a column; of more than that, rare ones alone are looked at
RARE = (0.01, 0.05)  # a value is rare that at most this share of all candidates have
MOST_INPUTS = 5000  # columns of inputs that are searched for rare values
LABEL = "label"  # what the classes are called among the columns


@dataclass(frozen=True)
class Grouping:
    """The groups that are large enough, by which candidates are in them; and what is not looked at."""

    groups: Mapping[Subgroup, Bools]
    too_small: tuple[Subgroup, ...]
    too_many: tuple[Subgroup, ...]


def partition(game: Game, legend: Legend) -> Grouping:
    """Known before training: it looks at records and at sizes alone."""
    columns = _columns(game.candidates, legend)
    many = [name for name, numbers in columns.items() if len(np.unique(numbers[numbers >= 0])) > MOST_VALUES]
    found: dict[Subgroup, Bools] = {}
    for name, numbers in columns.items():
        if name not in many:
            found |= dict(_by_value(game.candidates, name, numbers, legend))
    found |= dict(_rare(game.candidates, columns.values()))
    found |= dict(_by_records(game.candidates))
    whole = {group: among for group, among in found.items() if not among.all() and among.any()}
    large = {group: among for group, among in whole.items() if _large(game, among)}
    small = [group for group, among in whole.items() if group not in large and not _large_alone(game, among)]
    return Grouping(large, tuple(small), tuple(_group(name, "") for name in many))


def _columns(candidates: Candidates, legend: Legend) -> dict[str, Ints]:
    """Of each row: its class, where a row has one, and its declared attributes. -1 is unknown."""
    rows = candidates.rows
    labels = {LABEL: rows.y.astype(np.int64)} if rows.y.ndim == 1 and rows.y.dtype.kind in "iu" else {}
    declared = {name: numbers for name, numbers in rows.attributes.items() if name not in legend.technical}
    return labels | declared


def _group(column: str, value: str) -> Subgroup:
    return Subgroup("class", value) if column == LABEL else Subgroup("attribute", value, column)


def _by_value(candidates: Candidates, column: str, numbers: Ints, legend: Legend) -> Iterator[tuple[Subgroup, Bools]]:
    for number in np.unique(numbers[numbers >= 0]).tolist():
        yield _group(column, legend.text(column, number)), _owning(candidates, numbers == number)


def _owning(candidates: Candidates, rows: Bools) -> Bools:
    """The candidates that have one of these rows."""
    found = np.zeros(len(candidates), bool)
    found[candidates.owner[rows]] = True
    return found


def _rare(candidates: Candidates, columns: Iterable[Ints]) -> Iterator[tuple[Subgroup, Bools]]:
    """Whoever has a class, an attribute or a two-valued input (a code that is there or not) that few have."""
    tiers = {most: np.zeros(len(candidates), bool) for most in RARE}
    everybody = len(candidates)

    def note(owners: Ints) -> None:
        for most, among in tiers.items():
            if 0 < len(owners) <= most * everybody:
                among[owners] = True

    for numbers in columns:
        order = np.argsort(numbers, kind="stable")
        values, starts = np.unique(numbers[order], return_index=True)
        for value, rows in zip(values.tolist(), np.split(order, starts[1:]), strict=True):
            if value >= 0:
                note(np.unique(candidates.owner[rows]))
    for rows in _minorities(candidates.rows.x):
        note(np.unique(candidates.owner[rows]))
    before: Bools | None = None
    for most, among in tiers.items():
        if before is None or not np.array_equal(among, before):
            yield Subgroup("rare-value", f"{most:g}"), among
        before = among


def _minorities(x: NDArray[np.generic], at_once: int = 256) -> Iterator[Ints]:
    """Of each input that takes two values only, the rows that have the rarer one."""
    if x.ndim != 2 or x.dtype.kind != "f" or not len(x) or x.shape[1] > MOST_INPUTS:
        return
    for start in range(0, x.shape[1], at_once):
        part = x[:, start : start + at_once]
        low, high = part.min(axis=0), part.max(axis=0)
        above = part == high
        two = (low < high) & (above | (part == low)).all(axis=0)
        for column in np.flatnonzero(two):
            upper = above[:, column]
            yield np.flatnonzero(upper if 2 * upper.sum() <= len(upper) else ~upper)


def _by_records(candidates: Candidates) -> Iterator[tuple[Subgroup, Bools]]:
    """1, 2 to 3, 4 to 7 records of a person, and so on: of all that the person has, whoever else has them."""
    if candidates.has is not None:
        numbers = candidates.has
    elif (whose := candidates.subject_number) is not None:
        numbers = np.bincount(whose)[whose]
    else:
        return
    low = 1
    while low <= numbers.max(initial=0):
        among = (numbers >= low) & (numbers < 2 * low)
        yield Subgroup("records", "1" if low == 1 else f"{low}-{2 * low - 1}"), among
        low *= 2


def _large(game: Game, among: Bools) -> bool:
    return _large_alone(game, among) and _large_alone(game, ~among)


def _large_alone(game: Game, among: Bools) -> bool:
    whose = game.candidates.subject_number
    sides = [among & game.truth.mask(role) for role in (Role.MEMBER, Role.EVALUATION)]
    return all((side.sum() if whose is None else len(np.unique(whose[side]))) >= LEAST for side in sides)


@dataclass(frozen=True)
class Sharing:
    """How parties and groups share the error: a half each, as there are always few parties and may be many groups. A
    group that is just one party is judged as that party is, so that no two sentences contradict each other."""

    of_party: float  # the confidence of each comparison
    of_group: float
    comparisons: int
    parties: frozenset[Subgroup]  # groups that are one party

    def of(self, group: Subgroup) -> float:
        return self.of_party if group in self.parties else self.of_group

    @classmethod
    def among(cls, case: Case, parts: Grouping) -> Sharing:
        watched, figures = case.settings.watched(), 2 if HEADLINE_FPR in case.fprs else 1
        members = [case.game.candidates.party == party for party in case.game.parties]
        same = [group for group, among in parts.groups.items() if any(map(partial(np.array_equal, among), members))]
        each = [len(case.parties(model)) for _, model in watched]
        of_parties = sum(many for many in each if many > 1) * (figures if same else 1)
        of_groups = (len(parts.groups) - len(same)) * len(watched) * figures
        if not of_parties:
            of_groups, same = of_groups + len(same) * len(watched) * figures, []
        error = (1 - case.settings.confidence) / (2 if of_parties and of_groups else 1)
        confidences = 1 - error / max(of_parties, 1), 1 - error / max(of_groups, 1)
        return cls(*confidences, of_parties + of_groups, frozenset(same))


def compared_groups(case: Case, parts: Grouping) -> GroupFindings | None:
    """By the primary attack of each vantage; None where there is no group to be looked at."""
    if not (parts.groups or parts.too_small or parts.too_many):
        return None
    settings, fpr = case.settings, HEADLINE_FPR if HEADLINE_FPR in case.fprs else None
    watched = settings.watched()
    sharing = Sharing.among(case, parts)
    found: list[GroupResult] = []
    for vantage, model in watched:
        attack = case.primary(vantage)
        if attack is None or attack not in settings.on(vantage, model):
            continue
        sights = case.outlooks.of(vantage, model)
        blocks, absent = case.scores.blocks(sights, attack), case.scores.absent(sights, attack)
        for group, among in parts.groups.items() if blocks else ():
            seen = contrast(blocks, among, fpr, sharing.of(group))
            found.append(
                GroupResult(
                    group=group,
                    vantage=vantage.value,
                    model=model,
                    attack=attack.name,
                    inside=seen.inside,
                    outside=seen.outside,
                    beyond={n: replace(e, missing=missing_from(n, blocks, absent)) for n, e in seen.beyond.items()},
                    stands_out=seen.certain,
                )
            )
    return GroupFindings(
        looked_at=list(parts.groups),
        comparisons=sharing.comparisons,
        confidence=settings.confidence,
        results=found,
        too_small=parts.too_small,
        too_many=parts.too_many,
    )
