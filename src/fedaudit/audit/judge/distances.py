"""For the report: how far members and non-members lie from the decision boundary, round by round, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.audit.collect import Sight
from fedaudit.audit.judge.case import Case
from fedaudit.types import Curve, Floats, Role

SIDES = {"distance-members": (Role.MEMBER,), "distance-nonmembers": (Role.EVALUATION, Role.CALIBRATION)}


def curves(case: Case, attack: BaseAttack, sights: Sequence[Sight]) -> dict[str, Curve]:
    """Medians of the judged candidates, and the labels they cost so far; nothing for attacks without distances."""
    kept = sights[0].reductions.get(attack.name) if len(sights) == 1 else None
    if kept is None or (of_rounds := kept.distances()) is None or len(of_rounds[0]) < 2:
        return {}
    sight, found = sights[0], dict[str, Curve]()
    judged = case.scores.judged(sight, attack)
    seen, nearest, cost = of_rounds
    rounds = [float(round) for round in seen]
    confidence = case.settings.confidence
    method = f"median; order statistics, {confidence:.0%} in each round"
    for name, roles in SIDES.items():
        mine = judged & np.isin(sight.role, [role.value for role in roles])
        ends = [median(row[mine], confidence) for row in nearest]
        value, low, high = ([end[i] for end in ends] for i in range(3))
        found[name] = Curve(rounds, value, low, high, method)
    if kept.queries() is not None:
        spent = np.cumsum([float(np.mean(asked[judged])) for asked in cost])
        found["queries"] = Curve(rounds, spent.tolist(), spent.tolist(), spent.tolist(), "counted: mean of a candidate")
    return found


def median(values: Floats, confidence: float) -> tuple[float | None, float | None, float | None]:
    """With the order statistics that enclose it: how many values lie below it is binomial."""
    from scipy import stats

    kept = np.sort(values[np.isfinite(values)])
    n = len(kept)
    if n == 0:
        return None, None, None
    below = int(stats.binom.ppf((1 - confidence) / 2, n, 0.5))  # ranks `below` and n + 1 - below, counted from 1
    if below < 1:
        return float(np.median(kept)), None, None
    return float(np.median(kept)), float(kept[below - 1]), float(kept[n - below])
