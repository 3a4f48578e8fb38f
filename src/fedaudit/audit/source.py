"""Which party held a record: how often the right one is named, and its records told from the other parties'."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedaudit.adversary.attacks.peers import Source, margin
from fedaudit.audit.panel import Panel
from fedaudit.stats import Block, auc, proportion
from fedaudit.types import Estimate, Floats, Ints, Role

ACCURACY, ELSEWHERE = "accuracy", "auc-other-party"


def naming(attack: Source, panels: Mapping[str, Panel], party: str | None, confidence: float) -> dict[str, Estimate]:
    """`accuracy` of naming the party that trained on a record; for one party also the AUC with which its members are
    told from the *other parties'* members. (Members against outsiders have the usual names.)

    There is no such AUC for all parties together: every record would stand on both sides.
    """
    seen = [name for name, panel in panels.items() if panel.rounds]
    known = [panels[name].reductions[attack.name].features()[panels[name].reference] for name in seen]
    if sum(map(len, known)) < 2:
        return {}
    attack = attack.fit(np.concatenate(known))  # one layer for all records: whose they are is the question
    if party is None:
        return {ACCURACY: accuracy([_Members(attack, name, panels) for name in seen], len(panels), confidence)}
    if party not in seen:
        return {}
    own = _Members(attack, party, panels)
    others = [_Members(attack, name, panels) for name in seen if name != party]
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

    def __init__(self, attack: Source, party: str, panels: Mapping[str, Panel]):
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
    hits = [m.scores(m.party) > 0 for m in members]  # a tie names nobody
    counted = f"share of members whose party is named among {parties} (chance {1 / parties:.3g})"
    return proportion(hits, [m.subject for m in members], confidence, ACCURACY, counted)


def conclusion(found: Mapping[str, Estimate], parties: int) -> list[str]:
    """In a sentence, for the report."""
    named = found.get(ACCURACY)
    if named is None or named.value is None or named.low is None or named.high is None:
        return []
    return [
        f"source: shown a training record, the server names the party that holds it in {named.value:.1%} of the cases "
        f"({named.confidence:.0%} interval {named.low:.1%}-{named.high:.1%}; guessing among {parties} parties: "
        f"{1 / parties:.1%})."
    ]
