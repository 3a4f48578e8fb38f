"""Which party held a record? How often the right one is named, and how well its records are told from others'."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, cast

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack, Evidence
from fedaudit.adversary.attacks.peers import margin
from fedaudit.audit.collect import Sight
from fedaudit.audit.judge import membership
from fedaudit.audit.judge.case import Case, Verdict
from fedaudit.stats import Block, auc, clopper_pearson, design_effect
from fedaudit.types import Estimate, Floats, Ints, ModelKind, Role, Vantage

ACCURACY, ELSEWHERE = "accuracy", "auc-other-party"


class Names(Protocol):
    """An attack that gives, for every party, how well its update fits a record."""

    @property
    def name(self) -> str: ...

    def agreement(self, features: Floats) -> Floats: ...


def judge(case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind) -> Verdict:
    """Membership, as for any attack, and how often the right party is named."""
    results = []
    for result in membership.judge(case, attack, vantage, model).results:
        named = naming(attack, case.panels.local, result.party, case.settings.confidence)
        results.append(replace(result, estimates={**result.estimates, **named}))
    pooled = next(result.estimates for result in results if result.party is None)
    return Verdict(results, conclusion(pooled, len(case.panels.local)))


def naming(
    attack: BaseAttack, panels: Mapping[str, Sight], party: str | None, confidence: float
) -> dict[str, Estimate]:
    """`accuracy` of naming the party that trained on a record; for one party also the AUC with which its members are
    told from the *other parties'* members. (Members against outsiders have the usual names.)

    There is no such AUC for all parties together: every record would be on both sides.
    """
    seen = [name for name, panel in panels.items() if panel.rounds]
    known = [panels[name].reductions[attack.name].features()[panels[name].reference] for name in seen]
    if sum(map(len, known)) < 2:
        return {}
    fitted = cast(
        Names, attack.fit(Evidence(np.concatenate(known)))
    )  # one layer for all records, because the question is whose they are
    if party is None:
        return {ACCURACY: accuracy([_Members(fitted, name, panels) for name in seen], len(panels), confidence)}
    if party not in seen:
        return {}
    own = _Members(fitted, party, panels)
    others = [_Members(fitted, name, panels) for name in seen if name != party]
    found = {ACCURACY: accuracy([own], len(panels), confidence)}
    if others:
        subjects = None
        if own.subject is not None:
            theirs = np.concatenate([o.subject for o in others if o.subject is not None])
            subjects = own.subject, theirs, theirs[:0]
        elsewhere = np.concatenate([o.scores(party) for o in others])
        block = Block(own.scores(party), elsewhere, elsewhere[:0], subjects)
        found[ELSEWHERE] = replace(auc([block], confidence), name=ELSEWHERE)
    return found


class _Members:
    """The training records of one party, and how well the update of each party fits them."""

    def __init__(self, attack: Names, party: str, panels: Mapping[str, Sight]):
        panel = panels[party]
        member = panel.role == Role.MEMBER.value
        features = panel.reductions[attack.name].features()
        self.party = party
        self.order = [party, *sorted(name for name in panels if name != party)]  # as the signal lays them out
        self.fits: Floats = attack.agreement(features)[member]
        self.subject: Ints | None = None if panel.subject is None else panel.subject[member]

    def scores(self, party: str) -> Floats:
        """By how much a party's update fits better than any other's."""
        return margin(self.fits, self.order.index(party))


def accuracy(members: Sequence[_Members], parties: int, confidence: float) -> Estimate:
    hits = np.concatenate([m.scores(m.party) > 0 for m in members])  # a tie names nobody
    subjects = [m.subject for m in members if m.subject is not None]
    spread = design_effect([hits], [np.concatenate(subjects) if subjects else None])
    k, n, alpha = int(hits.sum()), len(hits), (1 - confidence) / 2
    low, high = clopper_pearson(k / spread, n / spread, alpha, alpha)
    clustered = "; clustered by subject" if subjects else ""
    method = (
        f"share of members whose party is named among {parties} (chance {1 / parties:.3g}); Clopper-Pearson{clustered}"
    )
    return Estimate(ACCURACY, k / n, low, high, confidence, method, "measured", k, n - k)


def conclusion(found: Mapping[str, Estimate], parties: int) -> list[str]:
    """A sentence for the report."""
    named = found.get(ACCURACY)
    if named is None or named.value is None or named.low is None or named.high is None:
        return []
    return [
        f"source: shown a training record, the server names the party that holds it in {named.value:.1%} of the cases "
        f"({named.confidence:.0%} interval {named.low:.1%}-{named.high:.1%}; guessing among {parties} parties: "
        f"{1 / parties:.1%})."
    ]
