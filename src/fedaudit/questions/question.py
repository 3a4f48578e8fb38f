"""What a question is: one thing that an audit can ask about a federation, with all that belongs to it.

A question lives in a room of its own: a folder here, or a package of somebody else's. Whatever it needs that is heavy
(torch, scipy, the audit itself) it imports inside its methods, so that a page can be rendered without them.

There are two kinds. Some questions are asked by attacks: an attack names its question, gives every candidate a score,
and the question judges these scores (`judge`). Others look for themselves: an `audit.observer.Observer` keeps what they
need of each round and judges that. `[audit.questions.NAME]` asks one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from numpy.typing import NDArray

from fedaudit.config.section import Section
from fedaudit.errors import FedauditError
from fedaudit.types import AuditResult, Estimate, Grant, Headline, Kind, ModelKind, Notice, Vantage

if TYPE_CHECKING:
    from fedaudit.adversary.signals import Family
    from fedaudit.adversary.vantage import View
    from fedaudit.audit.case import Case
    from fedaudit.audit.observer import Asked, Glances, Observer
    from fedaudit.privacy.statement import Statement
    from fedaudit.report.shapes import PageSection
    from fedaudit.report.values import Results
    from fedaudit.results.document import Document

# How a figure is printed: a share in percent, a number with three decimals, differences of these two with their sign,
# an epsilon, which may have a lower end only.
Form = Literal["share", "number", "points", "difference", "epsilon"]
Worse = Literal["higher", "lower", "neither"]
MINUS = "-minus-primary"  # the end of a name: an attack's figure minus that of the primary attack


@dataclass(frozen=True)
class Metric:
    """One figure of a question, described once for everybody who prints, compares or limits it.

    A name with `@` has a number behind it: `tpr@0.01`, `balanced-accuracy@25`. Its description is that of the part
    before it; `{at}` in the title stands for the number. For a share, the number is a false-positive rate.
    """

    name: str
    title: str
    form: Form = "number"
    chance: float | None = None  # what guessing gives; for a share at a false-positive rate, that rate
    worse: Worse = "higher"
    gated: bool = True  # may `fedaudit gate` set a limit? Not to a baseline, nor to a figure about the audit itself
    kind: Kind = "measured"
    least: float = 0.0
    most: float = 1.0


@dataclass(frozen=True)
class Verdict:
    """The results of a question, and what is to be said with them: a notice of `fedaudit.words`, or a sentence."""

    results: Sequence[AuditResult] = ()
    notices: Sequence[Notice | str] = ()


@dataclass(frozen=True)
class Against:
    """Evidence against a claim. `at_least`: what epsilon of the whole training is proved to be; 0 where nothing is
    proved about that."""

    why: str
    at_least: float = 0.0


class Question:
    """Derive a class from this one, and name it in the entry-point group `fedaudit.questions`."""

    name: ClassVar[str]
    about: ClassVar[str]  # one line, for `fedaudit list questions`
    unit: ClassVar[str]  # whom or what a result is about: record, subject, party, probe, ...
    metrics: ClassVar[tuple[Metric, ...]] = ()
    main: ClassVar[tuple[str, ...]] = ()  # the figures that sum a result up: the first of these that it has
    # Is an attack on it quoted in the headline of its vantage, and does it give every candidate a score that is stored?
    # Then its figures are AUC and TPR, of members against outsiders.
    of_membership: ClassVar[bool] = False

    # Names in `audit.attacks` that ask it although they are no attacks, each with the line that says what it does.
    asked_by: ClassVar[Mapping[str, str]] = {}
    keys: ClassVar[type[Section]] = Section  # what `[audit.questions.NAME]` may set, each key with its description
    how: ClassVar[str] = "Name an attack that asks it in audit.attacks."  # it is asked, where no such section does

    # ------------------------------------------------------------------ before training

    def options(self, given: Mapping[str, Any]) -> Any:
        """What `[audit.questions.NAME]` says, checked: by `keys`, unless a question does it itself."""
        raise FedauditError("not-asked-so", f"{self.name} is asked in another way", self.how)

    def ask(self, names: Sequence[str], given: Mapping[str, Any]) -> Asked | None:
        """The question as it is asked: by these names of `asked_by`, or by a section with these options."""
        return None

    # ------------------------------------------------------------------ during training

    def signals(self, asked: Any) -> tuple[Family, ...]:
        """Signals of the records that its attacks need, beside those that there are."""
        return ()

    def observer(self, asked: Any) -> Observer | None:
        """What watches the rounds for it; None where scores of attacks are all that it needs."""
        return None

    # ------------------------------------------------------------------ afterwards: the truth comes in

    def judge(self, case: Case, attack: Any, vantage: Vantage, model: ModelKind) -> Verdict:
        """The results of one of its attacks from one vantage on one kind of model, pooled and by party."""
        raise NotImplementedError(f"no attack asks {self.name}")

    def beside(self, case: Case, attack: Any, sights: Any, confidence: float | None) -> Mapping[str, Estimate]:
        """Further figures of an attack on membership. The confidence is that of the audit unless it is given."""
        return {}

    def told(self, asked: Any, headlines: Sequence[Headline]) -> Sequence[Notice | str]:
        """What is to be said about the headlines."""
        return ()

    # ------------------------------------------------------------------ from results alone, without torch

    def warned(self, asked: Any, headlines: Sequence[Headline], claim: Statement | None) -> Sequence[Notice | str]:
        """Warnings about what the run claims."""
        return ()

    def against(self, claim: Statement, document: Document) -> Sequence[Against]:
        """What the run found against a claim of its own."""
        return ()

    def sections(self, results: Results) -> Sequence[PageSection]:
        """Its part of the page. Without one, the page shows a table of its figures."""
        return ()


class OfRounds(Question):
    """A question about what an adversary sees in each round, one view at a time. Such a question has one result name,
    its own; `[audit.questions.NAME]` asks it."""

    how = "Ask it by a section [audit.questions.NAME]."
    needs: ClassVar[frozenset[Grant]]  # what a view must grant; whoever does not see so much is not asked about

    def options(self, given: Mapping[str, Any]) -> Any:
        if given and not self.keys.model_fields:
            raise ValueError(f"it has no options: remove {', '.join(given)}")
        return self.keys.model_validate(given)

    def ask(self, names: Sequence[str], given: Mapping[str, Any]) -> Asked:
        from fedaudit.audit.observer import AskedOfViews

        line, options = {self.name: self.about}, self.options(given)
        return AskedOfViews(names=line, needs=self.needs, question=self, options=options)

    def look(self, view: View, options: Any) -> Mapping[str, NDArray[Any]] | None:
        """What is kept of a view, as arrays of one length; None where there is nothing to see."""
        raise NotImplementedError

    def conclude(
        self,
        case: Case,
        seen: Mapping[str | None, Glances],
        options: Any,
        vantage: Vantage,
        model: ModelKind,
    ) -> Verdict:
        """Results from what was seen: by party where these are local models, else under None. `case.game` has the
        truth, and `case.result` makes a result."""
        raise NotImplementedError

    def observer(self, asked: Any) -> Observer:
        from fedaudit.audit.observer import Views

        return Views(asked)


def of_base(metric: Metric, name: str) -> Metric:
    """The description of `name`, whose part before the `@` (or before MINUS) this metric describes."""
    if name.endswith(MINUS):
        form: Form = "points" if metric.form == "share" else "difference"
        return replace(metric, name=name, form=form, chance=0.0, least=-1.0, gated=False)
    number = name.partition("@")[2]
    if not number:
        return metric
    is_rate = metric.form == "share"  # a share at a false-positive rate, which is what guessing gives
    said, chance = (f"{100 * float(number):.4g} %", float(number)) if is_rate else (number, metric.chance)
    return replace(metric, name=name, title=metric.title.replace("{at}", said), chance=chance)
