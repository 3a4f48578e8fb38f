"""Judge: one file for each question. Each gives estimates, and sentences for the report.

To add a question, add a file and a line here. An attack names its question.
"""

from collections.abc import Callable

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.audit.judge import attribute, membership, source, subjects
from fedaudit.audit.judge.case import Case, Verdict
from fedaudit.types import ModelKind, Vantage

JUDGES: dict[str, Callable[[Case, BaseAttack, Vantage, ModelKind], Verdict]] = {
    "membership": membership.judge,
    "subject": subjects.judge,
    "source": source.judge,
    "attribute": attribute.judge,
}

__all__ = ["JUDGES", "Case", "Verdict"]
