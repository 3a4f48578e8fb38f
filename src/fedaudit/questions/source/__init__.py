"""Which party held a record? Asked by attacks that compare the updates of all parties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedaudit.questions import Metric, Question, Verdict
from fedaudit.types import ModelKind, Vantage

if TYPE_CHECKING:
    from fedaudit.audit.case import Case
    from fedaudit.report.shapes import PageSection
    from fedaudit.report.values import Results


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

    def sections(self, results: Results) -> list[PageSection]:
        """The results of `source`, party by party."""
        from fedaudit.report.shapes import PageSection, Panel, Table
        from fedaudit.stats.wording import count, full_text

        rows = []
        for entry in results.results:
            if entry.attack == "source" and entry.party:
                named, elsewhere = entry.estimates.get("accuracy"), entry.estimates.get("auc-other-party")
                sizes = (elsewhere.n_pos, elsewhere.n_neg) if elsewhere else (None, None)
                row = [entry.party, full_text("accuracy", named), full_text("auc", elsewhere), *map(count, sizes)]
                rows.append(row)
        if not rows:
            return []
        lead = (
            "Seen by the server: how often the right party is named for a training record, and how well a party's "
            "records are told from the other parties' (chance is 0.5). There is no such AUC for all parties together: "
            "every record would be on both sides."
        )
        head = ("party", "rightly named", "AUC against other parties' records", "own records", "others' records")
        panel = Panel(lead, tables=[("", Table(head, rows))])
        return [PageSection("naming", "Whose record is it?", "Whose record", [panel])]


QUESTION = Source()
