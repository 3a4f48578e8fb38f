"""Was this record trained on? The question of most attacks: each gives every candidate a score, and this room judges
the scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedaudit.questions import Metric, Question, Verdict
from fedaudit.types import ModelKind, Vantage

if TYPE_CHECKING:
    from fedaudit.audit.case import Case
    from fedaudit.report.shapes import PageSection
    from fedaudit.report.values import Results

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

    def sections(self, results: Results) -> list[PageSection]:
        """Decisions about records, at a threshold that was fixed on the adversary's own."""
        from fedaudit.report import words
        from fedaudit.report.shapes import PageSection, Panel, Table
        from fedaudit.stats.wording import DECISIONS, full_text

        rows = [
            [entry.attack, f"{entry.vantage}, {entry.model} models"]
            + [full_text("precision", entry.estimates[name]) for name in DECISIONS]
            for entry in words.pooled(results)
            if entry.estimates.keys() >= set(DECISIONS)
        ]
        if not rows:
            return []
        lead = (
            "These adversaries have records of their own and fix a threshold on them; then they say yes or no for each "
            "record of others. Members and outsiders count as if there were as many of each: guessing has an accuracy "
            "of 0.5, and whoever says yes to everybody an F1 of 0.667."
        )
        table = Table(("attack", "seen from", "accuracy", "precision", "recall", "F1"), rows)
        return [
            PageSection("decisions", "Yes or no, record by record", "Yes or no", [Panel(lead, tables=[("", table)])])
        ]


QUESTION = Record()
