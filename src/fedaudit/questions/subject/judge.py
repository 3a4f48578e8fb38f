"""Is anything of this person's in the federation? Membership of subjects, and decisions tuned on a few known ones.

Beside AUC and TPR, for k known subjects on each side: the attack is fitted on them, one threshold on its scores is set
where it tells them apart best, and everybody else is decided about. `balanced-accuracy@k` is the mean of the share of
members and the share of outsiders who are decided about rightly, `f1@k` is given for comparison with published figures:
"everybody is a member" has F1 .667 and balanced accuracy .5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.audit.case import Case
from fedaudit.audit.collect import Sight
from fedaudit.audit.score import KNOWN, Scores, finite, known, possible
from fedaudit.questions import Verdict, behind
from fedaudit.questions.record import judge as record
from fedaudit.stats import best_cut, proportion
from fedaudit.stats.intervals import of_share, of_sum
from fedaudit.types import Bools, Estimate, Ints, ModelKind, Role, UnitErrors, Vantage


def judge(case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind) -> Verdict:
    verdict = record.judge(case, attack, vantage, model)
    pooled, *of_parties = verdict.results
    sights = case.outlooks.of(vantage, model)
    decided = decisions(case.scores, attack, sights, case.settings.confidence)
    results = [replace(pooled, estimates={**pooled.estimates, **decided}), *of_parties]
    errors = behind(attack.name, model, person_errors(case.scores, attack, sights))
    return Verdict(results, verdict.notices, {**verdict.errors, **errors})


def decisions(scores: Scores, attack: BaseAttack, sights: Sequence[Sight], confidence: float) -> dict[str, Estimate]:
    """By name: balanced accuracy and F1 for every number of known subjects that leaves enough to report on."""
    found: dict[str, Estimate] = {}
    seen = [sight for sight in sights if scores.defined(sight, attack)]
    for k in KNOWN:
        able = [sight for sight in seen if k in possible(sight)]
        if able:
            sides = [_decided(scores, attack, sight, k) for sight in able]
            where = f" in each of {len(able)} parties" * (len(able) > 1)
            found |= rates([s[0] for s in sides], [s[1] for s in sides], k, where, confidence)
    return found


def person_errors(scores: Scores, attack: BaseAttack, sights: Sequence[Sight]) -> dict[str, UnitErrors]:
    """What each person adds to the error of a balanced accuracy."""
    found = {}
    seen = [sight for sight in sights if scores.defined(sight, attack)]
    for k in KNOWN:
        able = [sight for sight in seen if k in possible(sight)]
        if able:
            sides = [_decided(scores, attack, sight, k) for sight in able]
            names = [tuple(sight.who[side] for side in _reported(sight, k)) for sight in able]
            hits, passed = (of_share([s[i][0] for s in sides], [n[i] for n in names], 0.5) for i in (0, 1))
            found[f"balanced-accuracy@{k}"] = of_sum(hits, passed)
    return found


def _reported(sight: Sight, k: int) -> tuple[Bools, Bools]:
    """The members and the outsiders that are decided about."""
    return (sight.role == Role.MEMBER.value) & ~known(sight, k)[0], sight.role == Role.EVALUATION.value


Side = tuple[Bools, Ints | None]  # who is decided about rightly, and whose each entry is


def _decided(scores: Scores, attack: BaseAttack, sight: Sight, k: int) -> tuple[Side, Side]:
    """Members and outsiders of one sight: whom the threshold takes for what they are."""
    own = finite(scores.of(sight, attack, k), attack.name)
    members, nonmembers = known(sight, k)
    accused = own > best_cut(own[members], own[nonmembers])
    reported = _reported(sight, k)
    whose = sight.subject
    of = [None if whose is None else whose[side] for side in reported]
    return (accused[reported[0]], of[0]), (~accused[reported[1]], of[1])


def rates(
    members: Sequence[Side], outsiders: Sequence[Side], k: int, where: str, confidence: float
) -> dict[str, Estimate]:
    tuned = f"fitted and threshold set on {k} known subject{'s' * (k > 1)} a side{where}"
    hits, passed = (_share(side, confidence) for side in (members, outsiders))
    both = 1 - (1 - confidence) / 2
    hits_f1, passed_f1 = (_share(side, both) for side in (members, outsiders))
    n_pos, n_neg = hits.n_pos + hits.n_neg, passed.n_pos + passed.n_neg
    value = (_number(hits.value) + _number(passed.value)) / 2
    reach = [
        math.hypot(*(_number(side.value) - _number(end) for side, end in ends)) / 2
        for ends in (((hits, hits.low), (passed, passed.low)), ((hits, hits.high), (passed, passed.high)))
    ]
    method = f"mean of two shares, square-and-add of their intervals; {tuned}; {hits.method}"
    accuracy = Estimate(
        f"balanced-accuracy@{k}",
        value,
        value - reach[0],
        value + reach[1],
        confidence,
        method,
        "measured",
        n_pos,
        n_neg,
    )
    f_value = f1(hits.value, passed.value)
    f_low, f_high = f1(hits_f1.low, passed_f1.low), f1(hits_f1.high, passed_f1.high)
    method = f"sides of equal size; from both shares' intervals, each with half of the error; {tuned}; {hits.method}"
    f_one = Estimate(f"f1@{k}", f_value, f_low, f_high, confidence, method, "measured", n_pos, n_neg)
    return {accuracy.name: accuracy, f_one.name: f_one}


def _share(side: Sequence[Side], confidence: float) -> Estimate:
    return proportion([right for right, _ in side], [whose for _, whose in side], confidence)


def f1(hits: float | None, passed: float | None) -> float:
    """With as many members as outsiders: 2 TP / (2 TP + FP + FN)."""
    return 2 * _number(hits) / (_number(hits) + 2 - _number(passed))


def _number(value: float | None) -> float:
    assert value is not None, "a share of nobody"
    return value
