"""What does one update say by itself? What whoever receives it reads off, without any training or threshold.

`[audit.questions.update]` asks it, and `fedaudit run` asks it unless attacks are named. The vantages: a server, which
has each party's update; a server behind secure aggregation and a party, which have the sum.

The question has parts, each a module of this room that holds a `PART` (`parts.UpdatePart`). To add one:

1. Write the module. `look(update, known, options)` gets one update as its receiver has it (`parts.OneUpdate`: the
   state received, the state sent, the model, whose it is) and what the receiver knows beside it (`parts.Known`: records
   of outsiders, how the parties train, what columns are called). It returns a table: arrays of one length by name, a
   row for each value, class, record or word. Where nothing may be concluded, it raises `parts.CannotTell` with a code
   whose words stand in `fedaudit.words.CANNOT`. The table is what a trace stores; no other part has arrays of these
   names. `look` never sees a record that was trained on.
2. `judge(seen, known, confidence)` gets the tables of all parties and rounds with the records that were trained on
   (`parts.BesideTruth`) and returns figures: each an estimate with its interval, and beside it the same figure of the
   best guess from outsiders alone. No figure without such a guess, and none where there is nothing to find.
3. `say(one, known, options)` gives what a data owner is told of one update, as a notice; its words stand in
   `fedaudit.words`. Names of values go under the key "exposed" of a mapping, which redaction leaves out; they are
   there only if `names` is asked for.
4. Enter the module in `PARTS`, its figures in `Update.metrics`, and the codes of its notices in `Update.shown`: the
   page shows them in this question's section. `tests/test_layers.py` must know on which floor the module stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from fedaudit.config.section import Count, Positive, Section
from fedaudit.questions import Ground, Metric, Planting, Preparation, Question
from fedaudit.types import Grant, Plan, notice

if TYPE_CHECKING:
    from fedaudit.audit.observer import Observer
    from fedaudit.config.schema import Config
    from fedaudit.defences.shared import Defence
    from fedaudit.learn.tasks import TorchTask
    from fedaudit.questions.update.watch import AskedOfUpdates
    from fedaudit.report.shapes import PageSection
    from fedaudit.report.values import Results

PARTS = ("presence", "inputs", "labels", "leaves", "incoming")  # modules of this room
TRAININGS = 45  # of parties of outsiders, at most, by which the labels of one update are counted


def _found(name: str, what: str) -> tuple[Metric, ...]:
    """A list of values against the truth: how much of both is the same, and how often it is right and complete."""
    return (
        Metric(name, f"{what}: rightly listed, of those listed or true", "share"),
        Metric(f"{name}-precision", f"{what}: right, of those listed", "share"),
        Metric(f"{name}-recall", f"{what}: listed, of all there are", "share"),
        Metric(f"{name}-blind", f"{what}: guessed from outsiders", "share", gated=False),
    )


class UpdateSection(Section):
    """[audit.questions.update] what is read off single updates."""

    rounds: tuple[Count, ...] | None = Field(
        None, description="rounds to look at; not set: the first, the middle and the last"
    )
    names: bool = Field(
        False, description="write down which values were read off; false: how many, because the list is itself a leak"
    )
    simulate: bool = Field(
        False,
        description=f"count labels after several steps by training parties of outsiders, about {TRAININGS} local "
        "trainings for each update that is looked at",
    )
    quantum: Positive | None = Field(
        None, description="the step to which secure aggregation rounds weights, where it does"
    )
    tampering: Literal["imprint", "trap", "fishing"] | None = Field(
        None,
        description="a model that the server prepares so that updates give records away, sent out once more after the "
        "first round: only what that gives away is read; needs --i-am-authorised",
    )


class Update(Question):
    name = "update"
    about = "what does one update say by itself: which values nobody has, which one person has, which whole records?"
    unit = "update"
    how = "Ask it by a section [audit.questions.update]."
    keys = UpdateSection
    metrics = (
        *_found("presence", "values that nobody has"),
        *_found("singletons", "values that one record has"),
        *_found("twins", "pairs of values of the same records"),
        *_found("exact-inputs", "whole records"),
        *_found("exact-words", "words of the records"),
        Metric("label-error", "records counted under a wrong class", "share", worse="lower"),
        Metric("label-error-blind", "the same, by the classes of outsiders", "share", worse="lower", gated=False),
        Metric("label-auc", "AUC of whether a party has a class", chance=0.5),
        Metric("label-auc-blind", "the same, by the classes of outsiders", chance=0.5, gated=False),
        Metric("label-interval", "counts of classes inside their interval", "share", worse="neither", gated=False),
    )
    shown = frozenset(
        {
            "update-presence",
            "update-none-absent",
            "update-inputs",
            "update-labels",
            "update-leaves",
            "update-incoming",
            "update-tampered",
            "update-cannot-tell",
            "update-part-failed",
        }
    )
    needs: ClassVar[frozenset[Grant]] = frozenset({Grant.WEIGHTS, Grant.START})

    def options(self, given: Mapping[str, Any]) -> UpdateSection:
        return UpdateSection.model_validate(given)

    def ask(self, names: Sequence[str], given: Mapping[str, Any]) -> AskedOfUpdates:
        from fedaudit.questions.update.watch import AskedOfUpdates

        return AskedOfUpdates(names={self.name: self.about}, needs=self.needs, options=self.options(given))

    def _asked(self, ground: Ground, given: Mapping[str, Any]) -> AskedOfUpdates:
        names = ground.dataset.vocabulary or ground.dataset.columns
        return replace(self.ask((), given), columns=tuple(names), slots=_slots(ground))

    def unauthorised(self, config: Config) -> str:
        if not (config.audit.questions or {}).get(self.name, {}).get("tampering"):
            return ""
        return "audit.questions.update.tampering plays a server that prepares models to take records from parties"

    def prepare(self, ground: Ground) -> Preparation | None:
        """Asked by its section; or by nobody, where no attacks are named and some vantage sees updates."""
        audit = ground.config.audit
        given = (audit.questions or {}).get(self.name)
        if given is None and (audit.attacks is not None or audit.adversary is not None):
            return None
        asked = self._asked(ground, given or {})
        from fedaudit.adversary.vantage import MODELS

        if given is None and not any(asked.can_be_seen(vantage, MODELS[vantage]) for vantage in audit.vantages):
            return None
        told = [notice("update-simulates", epochs=TRAININGS)] if asked.options.simulate else []
        return Preparation(asked, told)

    def plant(self, ground: Ground, task: TorchTask, defence: Defence, plans: Sequence[Plan]) -> Planting | None:
        from fedaudit.questions.update.tampering import planted

        given = (ground.config.audit.questions or {}).get(self.name, {})
        trick = self.options(given).tampering
        return Planting((), planted(trick, ground, task, plans), self._asked(ground, given)) if trick else None

    def foreseen(self, ground: Ground, defence: Callable[[], Defence]) -> Sequence[str]:
        from fedaudit.questions.update.inputs import foreseen

        return foreseen(ground)

    def observer(self, asked: Any) -> Observer:
        from fedaudit.questions.update.watch import UpdateWatch

        return UpdateWatch(asked)

    def sections(self, results: Results) -> Sequence[PageSection]:
        from fedaudit.questions.update.panel import sections

        return sections(results)


def _slots(ground: Ground) -> frozenset[str]:
    """Which slots the declared defences fill."""
    from fedaudit.defences import DefenceOptions

    declared = ground.config.defences
    return frozenset(slot for each in declared if isinstance(each, DefenceOptions) for slot in each.slots)


QUESTION = Update()
