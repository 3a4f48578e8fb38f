"""One run minus another: the risk on the same records, joined by who they are, and the accuracy."""

import math
from pathlib import Path

from fedaudit.results.document import Document
from fedaudit.results.scores import Scores, blocks_of, load_scores
from fedaudit.stats import Block, auc, auc_difference, pooled_tpr, tpr_difference
from fedaudit.stats.roc import able
from fedaudit.stats.wording import fpr_of
from fedaudit.types import AuditResult, Estimate

EVALUATION = "evaluation"


def risk_difference(first: tuple[Path, AuditResult], second: tuple[Path, AuditResult], metric: str) -> Estimate | None:
    """The first minus the second: an AUC, or a TPR at an FPR. Records that only one run has count as independent.
    None where the scores were not kept, or are not those of the results."""
    ours, theirs = (
        blocks_behind(load_scores(run), (entry.attack, entry.model, entry.party), entry.estimates[metric])
        for run, entry in (first, second)
    )
    if not ours or not theirs:
        return None
    confidence = max(entry.estimates[metric].confidence for _, entry in (first, second))
    fpr = fpr_of(metric)
    return auc_difference(ours, theirs, confidence) if fpr is None else tpr_difference(ours, theirs, fpr, confidence)


def blocks_behind(scores: Scores | None, of: tuple[str, str, str | None], risk: Estimate) -> list[Block]:
    """The scores of this attack, model and party behind a risk, as far as they can give it. None at all where the file
    does not have them: a defence that changes the answers for outsiders is not in it."""
    blocks = [] if scores is None or risk.value is None else blocks_of(scores, *of)
    if not blocks:
        return []
    fpr = fpr_of(risk.name)
    again = auc(blocks) if fpr is None else pooled_tpr(blocks, fpr, prove=False)
    if again.value is None or risk.value is None or not math.isclose(again.value, risk.value, rel_tol=0, abs_tol=1e-9):
        return []
    return list(blocks) if fpr is None else able(blocks, fpr)


def accuracy_difference(first: Document, second: Document) -> Estimate | None:
    """Of the released models on records that they were not trained on. Both err on much the same records, and mostly
    together; which of them each model got right is not kept, so the interval leaves that out and is too wide."""
    one, two = (document.run.accuracy.get(EVALUATION) for document in (first, second))
    if one is None or two is None:
        return None
    known = [end for e in (one, two) for end in (e.value, e.low, e.high) if end is not None]
    if len(known) < 6:
        return None
    a, a_low, a_high, b, b_low, b_high = known
    low, high = a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low)
    method = f"difference; the two intervals combined as if they erred independently (MOVER) of: {one.method}"
    confidence, counts = min(one.confidence, two.confidence), (min(one.n_pos, two.n_pos), min(one.n_neg, two.n_neg))
    ends = (a - b, max(low, -1.0), min(high, 1.0))
    return Estimate("accuracy-difference", *ends, confidence, method, "measured", *counts)
