"""What does one run prove about epsilon? Asked where fair coins decided who was trained on (`federation.coins`).

It asks nothing of its own: every attack on membership guesses the coins, and this room says what its guesses prove.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedaudit.questions.question import Against, Metric, Question
from fedaudit.types import Estimate, Headline, Notice, Unit

if TYPE_CHECKING:
    from fedaudit.audit.case import Case
    from fedaudit.privacy.statement import Statement
    from fedaudit.report.shapes import PageSection
    from fedaudit.results.document import Document


@dataclass(frozen=True)
class Flipped:
    """A fair coin decided about each unit whether it was trained on, except those that calibrate."""

    unit: Unit  # record or subject
    delta: float = 1e-5  # at which epsilon is bounded


class Coins(Question):
    name = "coins"
    about = "what does this one run prove about epsilon?"
    unit = "record"
    how = "Set federation.coins = true."
    metrics = (
        Metric(
            "epsilon-one-run", "epsilon, proved by this run", "epsilon", chance=0.0, kind="proved", most=float("inf")
        ),
    )

    def beside(self, case: Case, attack: Any, sights: Any, confidence: float | None) -> dict[str, Estimate]:
        from fedaudit.questions.coins.judge import one_run

        return one_run(case, attack, sights, confidence)

    def told(self, asked: Flipped, headlines: Sequence[Headline]) -> list[Notice]:
        from fedaudit.questions.coins.judge import quoted

        return quoted(headlines, asked.unit)

    def warned(self, asked: Flipped, headlines: Sequence[Headline], claim: Statement | None) -> list[Notice]:
        from fedaudit.questions.coins.claims import refuted

        return refuted(asked.unit, headlines, claim)

    def against(self, claim: Statement, document: Document) -> Sequence[Against]:
        from fedaudit.questions.coins.claims import against

        return against(claim, document)

    def sections(self, results: Any) -> Sequence[PageSection]:
        from fedaudit.questions.coins.panel import sections

        return sections(results)


QUESTION = Coins()
