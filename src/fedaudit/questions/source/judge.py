"""Which party held a record? How often the right one is named, and how well its records are told from others'."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.attacks.base import BaseAttack, Evidence
from fedaudit.adversary.attacks.gradients import margin
from fedaudit.audit.case import Case, figure
from fedaudit.audit.collect import Sight
from fedaudit.questions import Verdict
from fedaudit.questions.attribute.judge import difference
from fedaudit.questions.record import judge as record
from fedaudit.stats import Block, auc, proportion
from fedaudit.types import Bools, Estimate, Floats, Ints, ModelKind, Notice, Role, Vantage, notice

ACCURACY, ELSEWHERE = "accuracy", "auc-other-party"
OUTSIDE, LABEL, LARGEST, EXCESS = "nonmembers-accuracy", "label-accuracy", "largest-accuracy", "excess-over-baselines"


class Names(Protocol):
    """An attack that gives, for every party, how well its update fits a record."""

    @property
    def name(self) -> str: ...

    def agreement(self, features: Floats) -> Floats: ...


def judge(case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind) -> Verdict:
    """Membership, as for any attack, and how often the right party is named."""
    results = []
    told = record.judge(case, attack, vantage, model)
    for result in told.results:
        named = naming(attack, case.outlooks.local, result.party, case.settings.confidence)
        results.append(replace(result, estimates={**result.estimates, **named}))
    pooled = next(result.estimates for result in results if result.party is None)
    return Verdict(results, [*told.notices, *conclusion(pooled, len(case.outlooks.local))])


def naming(
    attack: BaseAttack, panels: Mapping[str, Sight], party: str | None, confidence: float
) -> dict[str, Estimate]:
    """`accuracy` of naming the party that trained on a record. For all parties together beside what others reach; for
    one party also the AUC with which its members are told from the *other parties'* members. (Members against outsiders
    have the usual names.)

    There is no such AUC for all parties together: every record would be on both sides.
    """
    seen = [name for name, panel in panels.items() if panel.rounds]
    known = [panels[name].reductions[attack.name].features()[panels[name].reference] for name in seen]
    if sum(map(len, known)) < 2:
        return {}
    fitted = cast(
        Names, attack.fit(Evidence(np.concatenate(known)))
    )  # one layer for all records: whose they are is the question
    members = {name: _Held(fitted, name, panels, Role.MEMBER) for name in seen}
    if party is None:
        outside = [_Held(fitted, name, panels, Role.EVALUATION) for name in seen]
        return beside_baselines(list(members.values()), outside, panels, confidence)
    if party not in seen:
        return {}
    own, others = members[party], [held for name, held in members.items() if name != party]
    found = {ACCURACY: accuracy(ACCURACY, [own], None, len(panels), confidence)}
    if others:
        found[ELSEWHERE] = elsewhere(own, others, confidence)
    return found


def elsewhere(own: _Held, others: Sequence[_Held], confidence: float) -> Estimate:
    """A party's members told from the other parties' members; no value where no update was seen beside its own."""
    subjects = None
    if own.subject is not None:
        theirs = np.concatenate([o.subject for o in others if o.subject is not None])
        subjects = own.subject, theirs, theirs[:0]
    here, there = own.scores(own.party), np.concatenate([o.scores(own.party) for o in others])
    if np.isnan(here).any() or np.isnan(there).any():
        alone = auc([], confidence)
        why = "a record has no score: no other party took part in the same rounds"
        return replace(alone, name=ELSEWHERE, n_pos=len(here), n_neg=len(there), reason=why)
    return replace(auc([Block(here, there, there[:0], subjects)], confidence), name=ELSEWHERE)


def beside_baselines(
    members: Sequence[_Held], outside: Sequence[_Held], panels: Mapping[str, Sight], confidence: float
) -> dict[str, Estimate]:
    """How often the attack is right, and what is reached without anything that training left behind: by the same attack
    on records that were never trained on, by the label alone, and by always naming the largest party."""
    sizes = {name: int((panel.role == Role.MEMBER.value).sum()) for name, panel in panels.items()}
    largest, by_label = max(sizes, key=lambda name: sizes[name]), _commonest_party(panels)
    count = len(panels)
    found = {
        ACCURACY: accuracy(ACCURACY, members, None, count, confidence),
        OUTSIDE: accuracy(OUTSIDE, outside, None, count, confidence),
        LABEL: accuracy(LABEL, members, lambda held: by_label(held.label) == held.party, count, confidence),
        LARGEST: accuracy(
            LARGEST, members, lambda held: np.full(len(held.label), held.party == largest), count, confidence
        ),
    }
    best = max((OUTSIDE, LABEL, LARGEST), key=lambda name: found[name].value or 0.0)
    gap = difference(EXCESS, found[ACCURACY], found[best])
    method = f"accuracy minus {best}, the best of three baselines; square-and-add of their intervals"
    return {**found, EXCESS: replace(gap, method=method)}


def _commonest_party(panels: Mapping[str, Sight]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """For a label, the party with most calibration records of it; a value that nobody has names nobody."""
    counts: dict[Any, dict[str, int]] = {}
    for name, panel in panels.items():
        labels, many = np.unique(panel.rows.y[panel.role == Role.CALIBRATION.value], return_counts=True)
        for label, count in zip(labels.tolist(), many.tolist(), strict=True):
            counts.setdefault(label, {})[name] = count
    most = {label: max(of, key=lambda name: of[name]) for label, of in counts.items()}
    return lambda labels: np.array([most.get(label, "") for label in labels.tolist()])


class _Held:
    """The records of one party in one role, and how well the update of each party fits them."""

    def __init__(self, attack: Names, party: str, panels: Mapping[str, Sight], role: Role):
        panel = panels[party]
        mine = panel.role == role.value
        features = panel.reductions[attack.name].features()
        self.party = party
        self.order = [party, *sorted(name for name in panels if name != party)]  # as the signal lays them out
        self.fits: Floats = attack.agreement(features)[mine]
        self.subject: Ints | None = None if panel.subject is None else panel.subject[mine]
        self.label: NDArray[Any] = panel.rows.y[mine]

    def scores(self, party: str) -> Floats:
        """By how much a party's update fits better than any other's."""
        return margin(self.fits, self.order.index(party))

    def named(self) -> Bools:
        """Whose own party fits best; a tie names nobody."""
        return np.asarray(self.scores(self.party) > 0)


def accuracy(
    name: str, held: Sequence[_Held], guess: Callable[[_Held], Bools] | None, parties: int, confidence: float
) -> Estimate:
    """The share whose party is named rightly: by the attack, or as `guess` says."""
    hits = [guess(one) if guess else one.named() for one in held]
    counted = f"share of records whose party is named among {parties} (chance {1 / parties:.3g})"
    found = proportion(hits, [one.subject for one in held], confidence, name, counted)
    records = sum(map(len, hits))
    return replace(found, n_pos=0, n_neg=records) if name == OUTSIDE else replace(found, n_pos=records, n_neg=0)


def conclusion(found: Mapping[str, Estimate], parties: int) -> list[Notice]:
    """For the report: what counts is the excess over what needs no training at all."""
    if EXCESS not in found or any(found[name].value is None for name in (ACCURACY, OUTSIDE, LABEL, LARGEST, EXCESS)):
        return []
    named, outside, label, largest, excess = (found[name] for name in (ACCURACY, OUTSIDE, LABEL, LARGEST, EXCESS))
    return [
        notice(
            "source",
            shown=(excess.low or 0.0) > 0,
            named=figure(named),
            excess=figure(excess),
            guesses={"outside": outside.value, "label": label.value, "largest": largest.value},
            parties=parties,
            confidence=named.confidence,
        )
    ]
