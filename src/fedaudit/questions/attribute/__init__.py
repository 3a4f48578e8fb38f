"""Does training reveal a hidden attribute of the people it was about? `[audit.attribute]` asks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from fedaudit.config.section import Section
from fedaudit.questions import Ground, Metric, Preparation, Question, Verdict, of
from fedaudit.types import Dataset, ModelKind, Vantage

if TYPE_CHECKING:
    from fedaudit.adversary.signals import Family
    from fedaudit.audit.case import Case
    from fedaudit.config.schema import Config
    from fedaudit.report.shapes import PageSection
    from fedaudit.report.values import Results

# The two differences that matter come first.
NAMES = ("excess-over-blind", "members-minus-nonmembers", "members-auc", "nonmembers-auc", "blind-auc")
TITLES = ("party", "excess over blind", "members minus non-members", "AUC members", "non-members", "blind")
LEAD = (
    "An attribute can often be guessed from the rest of the record by anybody. Training reveals it only as far as the "
    "attack beats a guess that never sees a model (excess over blind), and does better for members than for people who "
    "were not trained on. Each interval holds for its own row."
)


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
        Metric("members-balanced-accuracy", "accuracy on members, all values alike"),
        Metric("nonmembers-balanced-accuracy", "accuracy on non-members, all values alike", gated=False),
        Metric("blind-balanced-accuracy", "accuracy of the blind guess, all values alike", gated=False),
        # Of an attribute with two values. As for accuracy, what guessing gives depends on how many people have it.
        Metric("members-precision", "precision on members, for the value 1"),
        Metric("nonmembers-precision", "precision on non-members, for the value 1", gated=False),
        Metric("blind-precision", "precision of the blind guess, for the value 1", gated=False),
        Metric("members-recall", "recall on members, for the value 1"),
        Metric("nonmembers-recall", "recall on non-members, for the value 1", gated=False),
        Metric("blind-recall", "recall of the blind guess, for the value 1", gated=False),
        Metric("members-f1", "F1 on members, for the value 1"),
        Metric("nonmembers-f1", "F1 on non-members, for the value 1", gated=False),
        Metric("blind-f1", "F1 of the blind guess, for the value 1", gated=False),
    )

    def data(self, config: Config, dataset: Dataset) -> Dataset:
        from fedaudit.questions.attribute.judge import with_attribute

        asked = config.audit.attribute
        return with_attribute(dataset, asked.name, asked.column) if asked else dataset

    def prepare(self, ground: Ground) -> Preparation | None:
        from fedaudit.questions.attribute.judge import probe

        asked = ground.config.audit.attribute
        if asked is None or ground.shadow is None:
            return None
        return Preparation(probe(ground.dataset, ground.shadow.game, asked.name, asked.column))

    def signals(self, asked: Any) -> tuple[Family, ...]:
        from fedaudit.adversary.signals import Family
        from fedaudit.adversary.signals.outputs import ATTRIBUTE_NEEDS

        return (Family(ATTRIBUTE_NEEDS, asked.measure),)

    def judge(self, case: Case, attack: Any, vantage: Vantage, model: ModelKind) -> Verdict:
        from fedaudit.questions.attribute.judge import judge

        return judge(case, attack, vantage, model)

    def sections(self, results: Results) -> list[PageSection]:
        from fedaudit.report.sections import every_estimate
        from fedaudit.report.shapes import PageSection, Panel, Table
        from fedaudit.stats.wording import full_text

        entries = [entry for entry in results.results if of(entry) is self]
        if not entries:
            return []
        rows = [[e.party or "all", *(full_text(name, e.estimates.get(name)) for name in NAMES)] for e in entries]
        everything = every_estimate(entries[:1])
        head = ("attack", "vantage", "model", "measure", "value", "interval", "realised FPR", "people", "compared with")
        folded = [("Counts and methods, all parties", Table((*head, *everything.head[9:]), everything.rows))]
        panel = Panel(LEAD, tables=[("", Table(TITLES, rows))], folded=folded)
        return [PageSection("attribute", "A hidden attribute", "Hidden attribute", [panel])]


QUESTION = Attribute()


class AttributeSection(Section):
    """[audit.attribute] an attribute of the data set that an adversary tries to guess.

    `column`: which input holds it. If none does, it is added to the inputs for training, as a one-hot code.
    """

    name: str = Field(description="which attribute is guessed")
    column: Annotated[int, Field(ge=0)] | None = Field(
        None, description="the number of the input that holds it, if one does"
    )
