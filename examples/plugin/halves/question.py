"""Of which classes has a party more records than the others? What the server reads off a party's update.

The bias of a class in the last layer moves towards the class as often as a record of it is seen: with a cross-entropy
loss, its gradient is the mean of what the model says of the class, less the share of records that have it. So the
classes whose bias moves up more than in the other parties' updates are those that a party has more of.

1. In every round, what the last layer's biases of each party's update are.
2. For each party and class, the mean over the rounds, less the mean over all parties.
3. Above 0: "this party has more of that class than the others". How often is that right? Guessing is right half of the
   time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from fedaudit.config.section import Count, Section
from fedaudit.questions import Metric, OfRounds, Verdict
from fedaudit.types import Grant

if TYPE_CHECKING:
    from fedaudit.adversary.vantage import View
    from fedaudit.audit.case import Case
    from fedaudit.audit.observer import Glances


class Options(Section):
    least: Count = Field(2, description="rounds that a party must have taken part in")


class ClassShares(OfRounds):
    name = "class-shares"
    about = "of which classes has a party more records than the other parties?"
    unit = "party"
    main = ("rightly-told",)
    needs = frozenset({Grant.UPDATE})
    metrics = (Metric("rightly-told", "classes told rightly", "share", chance=0.5),)
    keys = Options

    def look(self, view: View, options: Options) -> Mapping[str, Any] | None:
        update = view.update
        if update is None:
            return None
        biases = [name for name in update if name.endswith("bias") and len(update[name]) == view.classes]
        return {"moved": -update[biases[-1]]} if biases else None  # an update is a descent direction

    def conclude(
        self, case: Case, seen: Mapping[str | None, Glances], options: Options, vantage: Any, model: Any
    ) -> Verdict:
        from fedaudit.stats import proportion

        often = {party: glances for party, glances in seen.items() if len(glances.moments) >= options.least}
        if len(often) < 2:
            return Verdict(notices=[f"{self.name}: fewer than two parties took part in {options.least} rounds."])
        moved = np.array([np.mean([one["moved"] for one in glances.values], axis=0) for glances in often.values()])
        labels = [case.game.members(str(party)).y for party in often]
        shares = np.array([np.bincount(own, minlength=moved.shape[1]) / len(own) for own in labels])
        right = ((moved > moved.mean(axis=0)) == (shares > shares.mean(axis=0))).ravel()
        # With two parties one's excess is the other's lack: what is told of one class is one guess.
        guess = np.tile(np.arange(moved.shape[1]), len(often))
        found = proportion([right], [guess], case.settings.confidence, "rightly-told", by="class")
        seconds = sum(glances.seconds for glances in seen.values())
        result = case.result(self.name, vantage, model, {found.name: found}, question=self, seconds=seconds)
        said = f"{self.name}: {found.value:.0%} of {len(right)} parties and classes are told rightly; guessing is 50 %."
        return Verdict([result], [said])
