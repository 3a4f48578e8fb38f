"""Was this record trained on? The question of most attacks: each gives every candidate a score, and this room judges
the scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedaudit.questions import Metric, Question, Verdict
from fedaudit.types import ModelKind, Vantage

if TYPE_CHECKING:
    from fedaudit.audit.case import Case

AUC = Metric("auc", "AUC", chance=0.5)
TPR = Metric("tpr", "TPR at {at} FPR", "share")


class Record(Question):
    name = "record"
    about = "was this record trained on?"
    unit = "record"
    of_membership = True
    metrics = (
        AUC,
        TPR,
        Metric("accuracy", "accuracy", "share", chance=0.5),
        Metric("precision", "precision", chance=0.5),
        Metric("recall", "recall"),
        Metric("f1-balanced", "F1, as if there were as many others as members", chance=2 / 3, gated=False),
        Metric("length-auc", "AUC of a text's length alone", chance=0.5, gated=False),
        Metric("ngram-auc", "AUC of a text's pairs of tokens alone", chance=0.5, gated=False),
    )

    def judge(self, case: Case, attack: Any, vantage: Vantage, model: ModelKind) -> Verdict:
        from fedaudit.questions.record.judge import judge

        return judge(case, attack, vantage, model)


QUESTION = Record()
