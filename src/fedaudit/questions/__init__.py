"""What a question is, and the questions that an audit can ask, by name.

A question is one thing to be asked about a federation, with all that belongs to it. It lives in a room of its own: a
folder here with a line in `ROOMS`, or another package with an entry point in the group `fedaudit.questions`. The audit
names none, and neither does what prepares a training; gate, comparison, study, advice, page and terminal read its
metrics. Whatever it needs that is heavy (torch, scipy, the audit itself) it imports inside its methods, so that a page
can be rendered without them.

There are two kinds. Some questions are asked by attacks: an attack names its question, gives every candidate a score,
and the question judges these scores (`judge`). Others look for themselves: an `audit.observer.Observer` keeps what they
need of each round and judges that. `[audit.questions.NAME]` asks one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from numpy.typing import NDArray

from fedaudit.config.attack_registry import BLIND
from fedaudit.config.registry import plugged_in
from fedaudit.config.section import Section
from fedaudit.errors import OF_OTHERS, FedauditError, suggest
from fedaudit.types import (
    AuditResult,
    Dataset,
    Estimate,
    Game,
    Grant,
    Headline,
    Kind,
    ModelKind,
    Notice,
    Party,
    Plan,
    Records,
    UnitErrors,
    Vantage,
)

if TYPE_CHECKING:
    from fedaudit.adversary.signals import Family
    from fedaudit.adversary.vantage import View
    from fedaudit.audit.case import Case
    from fedaudit.audit.observer import Asked, Glances, Observer
    from fedaudit.audit.outlooks import Shadow
    from fedaudit.config.schema import Config
    from fedaudit.defences.shared import Defence
    from fedaudit.learn.tasks import TorchTask
    from fedaudit.privacy.statement import Statement
    from fedaudit.report.shapes import PageSection
    from fedaudit.report.values import Results
    from fedaudit.results.document import Document

ROOMS = (  # folders; each holds a QUESTION
    "record",
    "subject",
    "source",
    "attribute",
    "canary",
    "coins",
    "update",
)
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
    _: KW_ONLY
    chance: float | None = None  # what guessing gives; for a share at a false-positive rate, that rate
    worse: Worse = "higher"
    gated: bool = True  # may `fedaudit gate` set a limit? Not to a baseline, nor to a figure about the audit itself
    kind: Kind = "measured"
    least: float = 0.0
    most: float = 1.0


@dataclass(frozen=True)
class Verdict:
    """The results of a question, and what must be said with them: notices of `fedaudit.words`, or sentences."""

    results: Sequence[AuditResult] = ()
    notices: Sequence[Notice | str] = ()
    # By attack, kind of model and figure: what each record, or person, adds to its error, where scores do not give it.
    errors: Mapping[tuple[str, str, str], UnitErrors] = field(default_factory=dict)


def behind(attack: str, model: str, errors: Mapping[str, UnitErrors]) -> dict[tuple[str, str, str], UnitErrors]:
    """The errors behind figures of one attack, as a `Verdict` has them."""
    return {(attack, model, name): own for name, own in errors.items()}


@dataclass(frozen=True)
class Against:
    """Evidence against a claim. `at_least`: what epsilon of the whole training is proved to be; 0 where nothing is
    proved about that."""

    why: str
    at_least: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What is known of a federation before its model is built. `own`: the records that were set aside; `shadow`: the
    model of an adversary's own."""

    config: Config
    dataset: Dataset
    game: Game
    own: Records | None = None
    shadow: Shadow | None = None


@dataclass(frozen=True)
class Preparation:
    """What a question has to know when it judges (`asked`), and what is said about that."""

    asked: Any
    notices: Sequence[Notice] = ()


@dataclass(frozen=True)
class Planting:
    """Parties of the auditor's own, the plans with them, and what the question has to know of them when it judges."""

    parties: Sequence[Party]
    plans: Sequence[Plan]
    asked: Asked


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

    # Codes of notices that its section of the page shows, so that the list at the end need not repeat them.
    shown: ClassVar[frozenset[str]] = frozenset()

    # Names in `audit.attacks` that ask it although they are no attacks, each with the line that says what it does.
    asked_by: ClassVar[Mapping[str, str]] = {}
    # Do these names add parties to the federation (`plant`)? Then nobody can be asked who trains without fedaudit.
    plants: ClassVar[bool] = False
    keys: ClassVar[type[Section]] = Section  # what `[audit.questions.NAME]` may set, each key with its description
    how: ClassVar[str] = "Name an attack that asks it in audit.attacks."  # it is asked, where no such section does

    # ------------------------------------------------------------------ before training

    def options(self, given: Mapping[str, Any]) -> Any:
        """What `[audit.questions.NAME]` says, checked: by `keys`, unless a question does it itself."""
        raise FedauditError("not-asked-so", f"{self.name} is asked in another way", self.how)

    def ask(self, names: Sequence[str], given: Mapping[str, Any]) -> Asked | None:
        """The question as it is asked: by these names of `asked_by`, or by a section with these options."""
        return None

    def asked_in(self, attacks: Sequence[str] | None) -> list[str]:
        """Which of these names ask it."""
        return [name for name in self.asked_by if name in (attacks or ())]

    def data(self, config: Config, dataset: Dataset) -> Dataset:
        """The data as the federation trains on them. Refuses those that it cannot be asked about."""
        return dataset

    def set_aside(self, config: Config) -> float:
        """The share of the records that it needs for itself, and that nobody trains on."""
        return 0.0

    def unauthorised(self, config: Config) -> str:
        """What this configuration asks for that nobody may train without a word of their own; empty: nothing."""
        return ""

    def prepare(self, ground: Ground) -> Preparation | None:
        """What follows for it from the configuration and the data. None where it is not asked."""
        return None

    def plant(self, ground: Ground, task: TorchTask, defence: Defence, plans: Sequence[Plan]) -> Planting | None:
        """What it adds to a training with these plans; refuses what cannot be measured. None where it is not asked."""
        return None

    def foreseen(self, ground: Ground, defence: Callable[[], Defence]) -> Sequence[str]:
        """For `fedaudit plan`: what the planned training can show."""
        return ()

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

    def claim_in_words(self, entry: AuditResult, name: str) -> str:
        """What the figure that sums a result up says of a claim; empty where it is read beside guessing."""
        return ""


class OfRounds(Question):
    """A question about what an adversary sees in each round, one view at a time. Such a question has one result name,
    its own; `[audit.questions.NAME]` asks it."""

    how = "Ask it by a section [audit.questions.NAME]."
    needs: ClassVar[frozenset[Grant]]  # what a view must grant; a vantage that grants less is left out

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


# ------------------------------------------------------------------ all questions, by name


@cache
def ours() -> dict[str, Question]:
    """Those of fedaudit itself, by name."""
    found = [import_module(f"fedaudit.questions.{folder}").QUESTION for folder in ROOMS]
    return {question.name: question for question in found}


@cache
def _of_others() -> tuple[dict[str, Question], dict[str, str]]:
    """From installed packages; and why some cannot be used."""
    found, broken = plugged_in("questions")
    usable: dict[str, Question] = {}
    for name, made in found.items():
        try:
            question = made() if isinstance(made, type) else made
        except OF_OTHERS as error:
            broken[name] = f"it cannot be made ({type(error).__name__}: {error})"
            continue
        if not isinstance(question, Question) or question.name != name:
            broken[name] = "it is no Question of that name: derive it from fedaudit.questions.Question and set `name`"
        elif name in ours():
            broken[name] = "fedaudit has a question of that name: rename it"
        elif clash := _clash(question, [*ours().values(), *usable.values()]):
            broken[name] = clash
        else:
            usable[name] = question
    return usable, broken


def _clash(question: Question, others: Sequence[Question]) -> str:
    """Which of its figures another question describes otherwise. Whoever prints one finds it by its name."""
    for other in others:
        known = {metric.name: metric for metric in other.metrics}
        for mine in question.metrics:
            if known.get(mine.name, mine) != mine:
                return f"its metric {mine.name!r} is described otherwise by the question {other.name!r}: rename it"
    return ""


def every() -> dict[str, Question]:
    """By name, ours first."""
    return ours() | _of_others()[0]


def unusable() -> dict[str, str]:
    """Questions of installed packages that cannot be used, and why."""
    return _of_others()[1]


def named(name: str) -> Question:
    found, (_, broken) = every(), _of_others()
    if name in found:
        return found[name]
    if name in broken:
        what = f"the question {name!r} cannot be used: {broken[name]}"
        raise FedauditError("unknown-question", what, "Mend its package and install it again, or leave it out.")
    if ":" in name:
        what = f"{name!r} names code, and a question is known by an entry point of an installed package alone"
        todo = f'Enter it under "fedaudit.questions" there (docs/plugins.md). {suggest(name, found)}'
        raise FedauditError("unknown-question", what, todo)
    raise FedauditError("unknown-question", f"unknown question {name!r}", suggest(name, found))


def of(entry: AuditResult) -> Question | None:
    """The question that a result answers; None if its package is not installed here. The results of the former version
    do not name it: it follows from their unit."""
    former = {"user": "canary", "attribute": "attribute", "subject": "subject"}
    name = entry.question or ("source" if entry.attack == "source" else former.get(entry.unit, "record"))
    return every().get(name)


def of_membership(entry: AuditResult) -> bool:
    """Is it the result of an attack on who was trained on? The blind guess is none: it sees no model."""
    question = of(entry)
    return question is not None and question.of_membership and entry.attack != BLIND


def main_figure(entry: AuditResult) -> str | None:
    """The name of the figure that sums a result up: the first with a value, or else the first, whose reason is then
    told. None where the question has none."""
    question = of(entry)
    names = [name for name in (question.main if question else ()) if name in entry.estimates]
    return next((name for name in names if entry.estimates[name].value is not None), names[0] if names else None)


def asked_by() -> dict[str, str]:
    """Names in `audit.attacks` that ask a question without being attacks, and the question's name."""
    return {name: question.name for question in every().values() for name in question.asked_by}


@cache
def _described() -> dict[str, Metric]:
    return {metric.name: metric for question in reversed(every().values()) for metric in question.metrics}


def metric(name: str) -> Metric:
    """The description of a figure. One that no installed question describes is printed as a plain number: its run may
    come from a machine with another package."""
    base, _, number = name.removesuffix(MINUS).partition("@")
    found = _described().get(base)
    if found is None:
        return Metric(name, name, most=float("inf"), least=float("-inf"))
    if name.endswith(MINUS):
        form: Form = "points" if found.form == "share" else "difference"
        return replace(found, name=name, form=form, chance=0.0, least=-1.0, gated=False)
    if not number:
        return found
    is_rate = found.form == "share"  # a share at a false-positive rate, which is what guessing gives
    said, chance = (f"{100 * float(number):.4g} %", float(number)) if is_rate else (number, found.chance)
    return replace(found, name=name, title=found.title.replace("{at}", said), chance=chance)
