"""Is anything of this person's in the federation? Asked by attacks that score people, from several records of each.

Suri, Kanani, Marathe and Peterson call it subject membership inference; docs/subjects.md has the details.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fedaudit.questions import Metric, Question, Verdict
from fedaudit.types import ModelKind, Vantage

if TYPE_CHECKING:
    from fedaudit.audit.case import Case
    from fedaudit.report.shapes import PageSection
    from fedaudit.report.values import Results

ACCURACY = re.compile(r"balanced-accuracy@(\d+)")


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

    def sections(self, results: Results) -> list[PageSection]:
        """Decisions about people, tuned on a few whose membership is known."""
        from fedaudit.report import words
        from fedaudit.report.shapes import PageSection, Panel, Table
        from fedaudit.report.words import adversary
        from fedaudit.stats.wording import count, full_text

        tables = []
        for entry in words.pooled(results):
            rows = []
            for name, accuracy in entry.estimates.items():
                if match := ACCURACY.fullmatch(name):
                    f1 = entry.estimates.get(f"f1@{match[1]}")
                    people = f"{count(accuracy.n_pos)} and {count(accuracy.n_neg)}"
                    rows.append([match[1], full_text(name, accuracy), full_text("f1", f1), people])
            if rows:
                head = ("known on each side", "balanced accuracy", "F1", "members and outsiders decided about")
                title = f"{entry.attack}, {adversary(entry.vantage).title.lower()}, {entry.model} models"
                tables.append((title, Table(head, rows, "")))
        if not tables:
            return []
        lead = (
            "For each person the adversary says yes or no, with a threshold that was set on a few people whose "
            "membership it knows. Guessing has a balanced accuracy of 0.5. F1 is shown beside published figures only: "
            "whoever says yes to everybody has an F1 of 0.667 and a balanced accuracy of 0.5."
        )
        return [PageSection("subjects", "Who is in the training data", "Who is in it", [Panel(lead, tables=tables)])]


QUESTION = Subject()
