"""Which party held a record? Asked by attacks that compare the updates of all parties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedaudit.questions.question import Metric, Question, Verdict
from fedaudit.types import ModelKind, Vantage

if TYPE_CHECKING:
    from fedaudit.audit.case import Case
    from fedaudit.report.shapes import PageSection


class Source(Question):
    name = "source"
    about = "which party held this record?"
    unit = "record"
    of_membership = True
    metrics = (
        Metric("auc-other-party", "AUC against other parties' members", chance=0.5),
        Metric("nonmembers-accuracy", "accuracy on non-members", gated=False),
        Metric("label-accuracy", "accuracy by the label alone", gated=False),
        Metric("largest-accuracy", "accuracy of naming the largest party", gated=False),
        Metric("excess-over-baselines", "excess over the best baseline", "difference", chance=0.0, least=-1.0),
    )

    def judge(self, case: Case, attack: Any, vantage: Vantage, model: ModelKind) -> Verdict:
        from fedaudit.questions.source.judge import judge

        return judge(case, attack, vantage, model)

    def sections(self, results: Any) -> Sequence[PageSection]:
        from fedaudit.questions.source.panel import sections

        return sections(results)


QUESTION = Source()
