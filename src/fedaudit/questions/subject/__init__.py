"""Is anything of this person's in the federation? Asked by attacks that score people, from several records of each.

Krishna Kanth Nakka and others call it subject membership inference; docs/subjects.md has the details.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedaudit.questions.question import Metric, Question, Verdict
from fedaudit.types import ModelKind, Vantage

if TYPE_CHECKING:
    from fedaudit.audit.case import Case
    from fedaudit.report.shapes import PageSection


class Subject(Question):
    name = "subject"
    about = "is anything of this person's in the training data?"
    unit = "subject"
    of_membership = True
    metrics = (
        Metric("balanced-accuracy", "balanced accuracy, tuned on {at} known people a side", chance=0.5),
        Metric("f1", "F1, tuned on {at} known people a side", chance=2 / 3, gated=False),
        Metric("count-auc", "AUC of the number of a person's records alone", chance=0.5, gated=False),
    )

    def judge(self, case: Case, attack: Any, vantage: Vantage, model: ModelKind) -> Verdict:
        from fedaudit.questions.subject.judge import judge

        return judge(case, attack, vantage, model)

    def sections(self, results: Any) -> Sequence[PageSection]:
        from fedaudit.questions.subject.panel import sections

        return sections(results)


QUESTION = Subject()
