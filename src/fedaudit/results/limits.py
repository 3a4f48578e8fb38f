"""A party's own limit, written as for the gate: "tpr@0.01 > 0.05". It is crossed if the lower end lies above it."""

from collections.abc import Sequence

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.audit.settings import calibrating
from fedaudit.errors import FedauditError
from fedaudit.results.rules import Rule, parse_rule
from fedaudit.stats import needed_for_lower_end
from fedaudit.stats.strongest import Heard, proved_ends
from fedaudit.stats.wording import fpr_of
from fedaudit.types import Game


def party_rule(text: str | None) -> Rule | None:
    """A limit for every attack on what this party sends. It has no selectors."""
    if text is None:
        return None
    rule = parse_rule(text)
    if rule.attack or rule.vantage or rule.party:
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
    over = [one for one in heard if (low := _low(one, rule)) is not None and rule.broken_for_sure(low, None)]
    return max(over, key=lambda one: _low(one, rule) or 0.0, default=None)


def _low(one: Heard, rule: Rule) -> float | None:
    estimate = one.decisive.get(rule.metric)
    return None if estimate is None else proved_ends(estimate)[0]


def check_reachable(rule: Rule | None, game: Game, confidence: float, attack: BaseAttack | None = None) -> None:
    """Refuse a limit that no outcome could ever cross, because too few records calibrate it.

    `attack`: the one that the limit is about; one that is fitted spends half of the calibration records on that.
    """
    rate = None if rule is None else fpr_of(rule.metric)
    if rule is None or rate is None:
        return
    everyone = [np.arange(len(game.candidates))]
    aside, fits = calibrating(game, everyone), attack is not None and attack.fits
    available = calibrating(game, everyone, fitted=fits)
    needed = needed_for_lower_end(rate, confidence, guaranteed=True)
    if available < needed:
        of_these = f", of which {attack.name} leaves {available}" if attack is not None and fits else ""
        raise FedauditError(
            "limit-unreachable",
            f"{rule.text!r} could never be crossed: {aside} calibration records are set aside{of_these}, {needed} are "
            "needed",
            "Set more records aside, plan fewer rounds, or limit the AUC or the TPR at a larger FPR.",
        )
