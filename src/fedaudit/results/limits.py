"""A party's own limit, written as for the gate: "tpr@0.01 > 0.05". It is crossed if the lower end lies above it.

Before the first round it is known which attacks could ever cross a limit: what an attack would find that puts every
member above every outsider is computed, and if not even that crosses it, the attack is left out of the limit.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.audit.settings import reference_half
from fedaudit.errors import FedauditError
from fedaudit.results.gate import Rule, parse_rule
from fedaudit.stats import Block, auc, needed_for_lower_end, tpr_at_fpr
from fedaudit.stats.strongest import Heard, Shares, proved_ends
from fedaudit.stats.wording import fpr_of
from fedaudit.types import Bools, Estimate, Floats, Game, Ints, Notice, Role, notice

_GOLDEN = 0.6180339887498949  # its multiples lie evenly between 0 and 1, however many there are


class UndecidableError(FedauditError):
    """No outcome of the audit could cross this limit."""

    def __init__(self, rule: Rule, why: str, todo: str):
        self.rule, self.why = rule, why
        super().__init__("limit-unreachable", f"{rule.text!r} could never be crossed: {why}", todo)


def party_rule(text: str | None) -> Rule | None:
    """A limit for every attack on what this party sends. It has no selectors."""
    if text is None:
        return None
    rule = parse_rule(text)
    if rule.attack or rule.vantage or rule.model or rule.party:
        what = f"{text!r}: a party's limit is about every attack on what it sends, so it takes no brackets"
        raise FedauditError("limit-selector", what, 'Write "tpr@0.01 > 0.05", without brackets.')
    rate = fpr_of(rule.metric)
    if not 0 <= rule.limit < 1 or (rule.metric != "auc" and rate is None):
        what = f"{text!r} is not a limit on an AUC or on a TPR at an FPR between 0 and 1"
        raise FedauditError("limit-metric", what, 'Write "tpr@0.01 > 0.05" or "auc > 0.6".')
    return rule


def rates(rules: list[Rule | None]) -> set[float]:
    return {rate for rule in rules if rule is not None and (rate := fpr_of(rule.metric)) is not None}


def crossed(rule: Rule | None, heard: Sequence[Heard]) -> Heard | None:
    """The attack that crosses the limit for certain, whichever it is; of several, the one that does so by most."""
    if rule is None:
        return None
    over = [one for one in heard if _crosses(rule, one.decisive.get(rule.metric))]
    return max(over, key=lambda one: _low(one.decisive.get(rule.metric)) or 0.0, default=None)


def _crosses(rule: Rule, estimate: Estimate | None) -> bool:
    return rule.broken_for_sure(_low(estimate), None)


def _low(estimate: Estimate | None) -> float | None:
    """Of a TPR the guaranteed end. Of an AUC that of its interval: the guaranteed one is so wide where people have
    several records that a party would send for many rounds what its audit has long found."""
    if estimate is None:
        return None
    return estimate.low if fpr_of(estimate.name) is None else proved_ends(estimate)[0]


# ------------------------------------------------------------------ before the first round


def left_out(
    rule: Rule, game: Game, attacks: Sequence[BaseAttack], shares: Shares
) -> tuple[frozenset[str], list[Notice]]:
    """The attacks that could never cross a limit, and what is to be told about that. A limit that no attack could ever
    cross is refused. `attacks`: those first that lead; the first that can cross it has the larger share of the error.
    """
    reasons: dict[tuple[tuple[bool, bool], float], str] = {}
    why: dict[str, str] = {}
    able: list[BaseAttack] = []
    for attack in attacks:
        confidence = shares.of(primary=not able)
        kind = _kind(attack), confidence  # of the same kind, all could or none
        if kind not in reasons:
            reasons[kind] = why_never(rule, game, attack, confidence)
        if reasons[kind]:
            why[attack.name] = reasons[kind]
        else:
            able.append(attack)
    if not able:
        raise _refused(rule, game, attacks, why, shares.primary)
    by_reason: dict[str, list[str]] = {}
    for name, reason in why.items():
        by_reason.setdefault(reason, []).append(name)
    told = [
        notice("left-out-of-limit", limit=rule.text, why=reason, attacks=names) for reason, names in by_reason.items()
    ]
    if not _crosses(rule, _best_case(rule, game, able[0], shares.primary, alike=True)):
        people = len(np.unique(np.asarray(game.candidates.subject)[game.truth.mask(Role.CALIBRATION)]))
        told.append(notice("limit-if-alike", limit=rule.text, people=people))
    return frozenset(why), told


def why_never(rule: Rule, game: Game, attack: BaseAttack, confidence: float) -> str:
    """Why this attack could never cross a limit, whatever it finds; empty if it could."""
    if attack.deferred:
        return "measured on the last model only"
    best, rate = _best_case(rule, game, attack, confidence), fpr_of(rule.metric)
    if _crosses(rule, best):
        return ""
    needed = 0 if rate is None else needed_for_lower_end(rate, confidence, guaranteed=True)
    aside, left = int(game.truth.mask(Role.CALIBRATION).sum()), best.n_cal or 0
    if left < needed and left < aside:
        return f"fitted on {aside - left} of {aside} calibration records, which leaves {left} of {needed} needed"
    if left < needed:
        return f"{aside} calibration records are set aside, {needed} are needed"
    if best.low is None:
        return best.reason or "it has no interval"
    low = _low(best)
    return f"even with all {best.n_pos} members above all {best.n_neg} outsiders the lower end would be {low:.3f}"


def _refused(
    rule: Rule, game: Game, attacks: Sequence[BaseAttack], why: Mapping[str, str], confidence: float
) -> UndecidableError:
    """Told of the attack that comes nearest: one that is not fitted, if there is one."""
    nearest = min(attacks, key=_kind, default=None)
    if nearest is None:
        return UndecidableError(rule, "no attack tells members from outsiders", "Add one, such as loss.")
    larger = "limit the AUC or the TPR at a larger FPR" if rule.metric != "auc" else "choose a lower limit"
    todo = f"Set more records aside, plan fewer rounds, or {larger}."
    whose = f"{nearest.name}, " if nearest.deferred or nearest.calibrates_less else ""
    if whose and not why_never(rule, game, BaseAttack(), confidence):
        todo = f"Add an attack that is measured in every round and not fitted, such as loss. {todo}"
    return UndecidableError(rule, f"{whose}{why[nearest.name]}", todo)


def _kind(attack: BaseAttack) -> tuple[bool, bool]:
    return attack.deferred, attack.calibrates_less


def _best_case(rule: Rule, game: Game, attack: BaseAttack, confidence: float, alike: bool = False) -> Estimate:
    """What the attack would find if it put every member above every outsider. Where people have several records, scores
    of one person are as unlike each other as can be, or (`alike`) the same."""
    everyone = np.arange(len(game.candidates))
    spent: Bools = reference_half(game, everyone) if attack.calibrates_less else np.zeros(len(everyone), bool)
    subject = game.candidates.subject_number
    whose = everyone if subject is None else subject
    members, evaluation, calibration = (
        whose[game.truth.mask(role) & ~spent] for role in (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)
    )
    scores = [_scores(own, alike) for own in (members, evaluation, calibration)]
    names = None if subject is None else (members, evaluation, calibration)
    block = Block(1 + scores[0], scores[1], scores[2], names)
    rate = fpr_of(rule.metric)
    return auc([block], confidence) if rate is None else tpr_at_fpr([block], rate, confidence)


def _scores(whose: Ints, alike: bool) -> Floats:
    """Between 0 and 1. Those of one person lie at equal distances, from a start of the person's own, or all at it."""
    names, person, count = np.unique(whose, return_inverse=True, return_counts=True)
    start = _GOLDEN * np.arange(len(names)) % 1
    if alike:
        return np.asarray(start[person])
    order = np.argsort(person, kind="stable")
    before = np.empty(len(whose))
    before[order] = np.arange(len(whose)) - np.repeat(np.cumsum(count) - count, count)
    return np.asarray((start[person] + before) / count[person])
