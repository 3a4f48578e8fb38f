"""Is another attack stronger than the primary one? Their difference on the same records, with its own interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.audit.judge.case import Case, Estimates
from fedaudit.audit.settings import HEADLINE_FPR
from fedaudit.stats import Block, auc_difference, tpr_difference
from fedaudit.stats.pooled import able
from fedaudit.stats.wording import MINUS
from fedaudit.types import ModelKind, Vantage


def minus_primary(
    case: Case, attack: BaseAttack, vantage: Vantage, model: ModelKind, blocks: Sequence[Block]
) -> Estimates:
    """An attack's AUC and TPR minus those of the vantage's primary attack on the same kind of models. The error is
    shared among all attacks that are so compared."""
    primary, alive = case.primary(vantage), case.alive(vantage, model)
    if primary is None or attack is primary or primary not in alive or attack.question != primary.question:
        return {}
    others = [other for other in alive if other is not primary and other.question == primary.question]
    confidence = 1 - (1 - case.settings.confidence) / len(others)
    theirs = case.scores.blocks(case.panels.of(vantage, model), primary)
    if not blocks or not theirs:
        return {}
    found = {"auc": auc_difference(blocks, theirs, confidence)}
    if HEADLINE_FPR in case.fprs:
        pair = able(blocks, HEADLINE_FPR), able(theirs, HEADLINE_FPR)
        found[f"tpr@{HEADLINE_FPR:g}"] = tpr_difference(*pair, HEADLINE_FPR, confidence)
    return {
        name + MINUS: replace(e, name=name + MINUS, method=f"minus {primary.name}; {e.method}")
        for name, e in found.items()
    }
