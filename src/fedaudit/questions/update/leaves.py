"""What else leaves with an update: listed, because nobody masks it. These are facts about the exchange, not estimates.

- who took part, and how many records stand behind an update: sent unmasked, also under secure aggregation;
- metrics of the reply: a party's own loss or accuracy in each round;
- BatchNorm's counter, which is the number of steps, and its running means, which are means of what the layer saw;
- the pattern of weights that stand still: in an update one party's own, in a sum what is common to all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedaudit.questions.update.parts import BesideTruth, CannotTell, Known, OneUpdate, Table
from fedaudit.types import Estimate, Notice, notice

if TYPE_CHECKING:
    from fedaudit.questions.update import UpdateSection

COUNTER, MEAN = "num_batches_tracked", "running_mean"
AT_THE_SERVER = ("who", "examples", "metrics")  # what a party does not get to see
HOLES = 0.05  # of all weights: above this, zeros form a pattern


class Leaves:
    def look(self, update: OneUpdate, known: Known, options: UpdateSection) -> Table:
        found = {"who": float(len(update.parties))} if any(update.parties) else {}
        if update.examples:
            found["examples"] = float(update.examples)
        if update.metrics:
            found["metrics"] = float(len(update.metrics))
        common = [name for name in update.sent if name in update.received]
        if counters := [name for name in common if name.endswith(COUNTER)]:
            found["steps"] = float(np.max(update.sent[counters[0]] - update.received[counters[0]]))
        if means := [name for name in common if name.endswith(MEAN)]:
            found["means"] = float(sum(update.sent[name].size for name in means))
        weights = [name for name in common if update.sent[name].dtype.kind == "f" and update.sent[name].ndim > 1]
        total = sum(update.sent[name].size for name in weights)
        zeros = sum(int((update.sent[name] == update.received[name]).sum()) for name in weights)
        if total and HOLES < zeros / total < 1:
            found["zeros"] = zeros / total
        if not found:
            raise CannotTell("nothing-else")
        return {"leaves-what": np.array(list(found)), "leaves-value": np.array(list(found.values()))}

    def judge(self, seen: Sequence[BesideTruth], known: Known, confidence: float) -> Mapping[str, Estimate]:
        return {}

    def say(self, one: BesideTruth, known: Known, options: UpdateSection) -> Notice | None:
        unseen = AT_THE_SERVER if one.vantage == "client" else ()
        what = [str(each) for each in one.table["leaves-what"] if str(each) not in unseen]
        if not what:
            return None
        return notice("update-leaves", vantage=one.vantage, summed=one.party is None, what=what)


PART = Leaves()
