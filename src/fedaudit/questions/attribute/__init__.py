"""Does training reveal a hidden attribute of the people it was about? `[audit.attribute]` asks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedaudit.questions.question import Metric, Question, Verdict
from fedaudit.types import ModelKind, Vantage

if TYPE_CHECKING:
    from fedaudit.adversary.signals import Family
    from fedaudit.audit.case import Case
    from fedaudit.report.shapes import PageSection


class Attribute(Question):
    name = "attribute"
    about = "does training reveal an attribute that the adversary does not know?"
    unit = "attribute"
    how = "Set [audit.attribute] name, and audit.adversary."
    main = ("excess-over-blind",)
    metrics = (
        Metric("excess-over-blind", "AUC over the blind guess", "difference", chance=0.0, least=-1.0),
        Metric("members-minus-nonmembers", "AUC, members minus non-members", "difference", chance=0.0, least=-1.0),
        Metric("members-auc", "AUC on members", chance=0.5),
        Metric("nonmembers-auc", "AUC on non-members", chance=0.5, gated=False),
        Metric("blind-auc", "AUC of the blind guess", chance=0.5, gated=False),
        Metric("members-accuracy", "accuracy on members"),
        Metric("nonmembers-accuracy", "accuracy on non-members", gated=False),
        Metric("blind-accuracy", "accuracy of the blind guess", gated=False),
    )

    def signals(self, asked: Any) -> tuple[Family, ...]:
        from fedaudit.adversary.signals import Family
        from fedaudit.adversary.signals.outputs import ATTRIBUTE_NEEDS

        return (Family(ATTRIBUTE_NEEDS, asked.measure),)

    def judge(self, case: Case, attack: Any, vantage: Vantage, model: ModelKind) -> Verdict:
        from fedaudit.questions.attribute.judge import judge

        return judge(case, attack, vantage, model)

    def sections(self, results: Any) -> Sequence[PageSection]:
        from fedaudit.questions.attribute.panel import sections

        return sections(results)


QUESTION = Attribute()
