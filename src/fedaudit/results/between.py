"""One run minus another: the risk on the same records, joined by who they are, and the accuracy."""

import math
from pathlib import Path

from fedaudit.results.document import Document
from fedaudit.results.scores import blocks_of, load_scores
from fedaudit.stats import auc_difference, tpr_difference
from fedaudit.stats.pooled import able
from fedaudit.types import AuditResult, Estimate

EVALUATION = "evaluation"


def risk_difference(first: tuple[Path, AuditResult], second: tuple[Path, AuditResult], metric: str) -> Estimate | None:
    """The first minus the second: an AUC, or a TPR at an FPR. Records that only one run has count as independent.
    None where the scores were not kept, or are not those of the results (answers that a defence has bent)."""
    blocks = []
    for run, entry in (first, second):
        scores = load_scores(run)
        if scores is None or entry.vantage == "outsider" or entry.estimates[metric].value is None:
            return None
        blocks.append(blocks_of(scores, entry.attack, entry.model, entry.party))
    confidence = max(entry.estimates[metric].confidence for _, entry in (first, second))
    if metric == "auc":
        return auc_difference(blocks[0], blocks[1], confidence)
    fpr = float(metric.removeprefix("tpr@"))
    return tpr_difference(able(blocks[0], fpr), able(blocks[1], fpr), fpr, confidence)


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
