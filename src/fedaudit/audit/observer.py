"""Questions that look for themselves: what was asked, and what is kept of the rounds for it.

Attacks read signals of the records, which the audit measures for all of them together (`collect`). A question that
needs something else of a round has an observer, which the auditor shows every round and every probe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.vantage import GRANTS, Serve, View, look
from fedaudit.audit.costs import timed
from fedaudit.audit.patience import failure, patience
from fedaudit.errors import OF_OTHERS, FedauditError
from fedaudit.questions import OfRounds, Verdict
from fedaudit.types import (
    AuditResult,
    Estimate,
    Grant,
    Measured,
    ModelKind,
    Moment,
    Records,
    Round,
    Stored,
    Strings,
    Vantage,
)
from fedaudit.words import words

if TYPE_CHECKING:
    from fedaudit.audit.case import Case

Key = str | None  # of what was measured in an observation: a party, None for the global model, or a name in brackets


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question that looks for itself, as it was asked. `names`: what its results are called, each with the line that
    says what it does. `needs`: what a vantage must grant."""

    names: Mapping[str, str]
    needs: frozenset[Grant]

    def can_be_seen(self, vantage: Vantage, model: ModelKind) -> bool:
        return self.needs <= GRANTS[vantage, model]


@dataclass(frozen=True)
class Shown:
    """One round, or one probe, as an observer is shown it."""

    round: Round
    task: Any
    watched: Sequence[tuple[Vantage, ModelKind]]  # by this audit
    parties: Sequence[str]
    serve: Serve | None = None
    _: KW_ONLY
    planned: int = 1  # rounds
    outsiders: Records | None = None  # that nobody trained on
    training: Mapping[str, Any] = field(default_factory=dict)  # the fields of `learn.tasks.Training`, where known
    server_lr: float = 1.0

    def views(self, vantage: Vantage, model: ModelKind) -> Iterator[View]:
        return look(vantage, model, self.round, self.task, self.serve, self.parties, self.server_lr)


class Observer(Protocol):
    """Watches the rounds for one question. `measure` changes nothing; `absorb` keeps what it measured, now or earlier:
    that is how a stored round is taken in. What is kept can be stored between two rounds."""

    def measure(self, shown: Shown) -> dict[Key, Measured]: ...

    def absorb(self, moment: Moment, of: Mapping[Key, Measured]) -> dict[Key, Measured]: ...

    def judge(self, case: Case, name: str, vantage: Vantage, model: ModelKind) -> Verdict: ...

    def state(self) -> Stored: ...

    def restore(self, state: Stored) -> None: ...


# ------------------------------------------------------------------ one view at a time

LOOK = "look"


@dataclass(frozen=True, kw_only=True)
class AskedOfViews(Asked):
    """A question about what an adversary sees in each round, with its options."""

    question: OfRounds
    options: Any


@dataclass
class Glances:
    """What one question saw in one kind of view: for each moment, arrays by name. `seconds`: what looking cost."""

    moments: list[Moment] = field(default_factory=list)
    values: list[Mapping[str, NDArray[Any]]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, moment: Moment, measured: Measured) -> None:
        self.moments.append(moment)
        self.values.append(dict(measured.values))
        self.seconds += measured.seconds


class Views:
    """The observer of an `OfRounds` question: shows it every view that grants what it needs."""

    def __init__(self, asked: AskedOfViews):
        self.asked = asked
        self.kept: dict[str, Glances] = {}
        # By view: why it could not look, if it failed there once: its figures would be about some rounds only.
        self.failed: dict[str, str] = {}

    def _key(self, vantage: Vantage, party: str | None) -> str:
        return f"({self.asked.question.name}) {vantage.value}" + ("" if party is None else f" {party}")

    def measure(self, shown: Shown) -> dict[Key, Measured]:
        found: dict[Key, Measured] = {}
        for vantage, model in shown.watched:
            for view in shown.views(vantage, model) if self.asked.can_be_seen(vantage, model) else ():
                measured = self._looked(view)
                if measured.values or measured.failed:
                    found[self._key(vantage, view.party)] = measured
        return found

    def _looked(self, view: View) -> Measured:
        """What the question sees there. One that fails must not cost the others their round."""
        spent: dict[str, float] = {}
        arrays, failed = {}, {}
        try:
            with patience(), timed(spent, "looking"):
                seen = self.asked.question.look(view, self.asked.options) or {}
            arrays = {name: np.atleast_1d(np.asarray(values)) for name, values in seen.items()}
            rows = self._rows(arrays)
        except OF_OTHERS as error:
            arrays, rows, failed = {}, np.array([], str), {LOOK: failure(error)}
        return Measured(rows, arrays, spent["looking"], 0.0, failed=failed, spent=spent)

    def _rows(self, arrays: Mapping[str, NDArray[Any]]) -> Strings:
        """What a question saw is stored as a table, so that all of its arrays have one length."""
        lengths = {len(values) for values in arrays.values()}
        if any(values.dtype.kind not in "fiubU" or values.ndim > 2 for values in arrays.values()):
            what = f"{self.asked.question.name} saw something that is no table of numbers or words"
            raise FedauditError("question-look", what, "Let `look` return arrays of one or two dimensions.")
        if len(lengths) > 1:
            what = f"{self.asked.question.name} saw arrays of {len(lengths)} different lengths in one view"
            raise FedauditError("question-look", what, "Let `look` return arrays of one length.")
        return np.array([str(row) for row in range(max(lengths, default=0))], str)

    def absorb(self, moment: Moment, of: Mapping[Key, Measured]) -> dict[Key, Measured]:
        own = f"({self.asked.question.name}) "
        mine: dict[Key, Measured] = {key: one for key, one in of.items() if key is not None and key.startswith(own)}
        for key, measured in mine.items():
            self.kept.setdefault(str(key), Glances()).add(moment, measured)
            if LOOK in measured.failed:
                self.failed.setdefault(str(key), words(measured.failed[LOOK]))
        return mine

    def judge(self, case: Case, name: str, vantage: Vantage, model: ModelKind) -> Verdict:
        parties: Sequence[str | None] = case.game.parties if model == "local" else [None]
        keys = {party: self._key(vantage, party) for party in parties}
        if why := next((self.failed[key] for key in keys.values() if key in self.failed), None):
            raise FedauditError("question-look", why, "The other questions are not affected.")
        seen = {party: self.kept[key] for party, key in keys.items() if key in self.kept}
        if not seen:
            raise FedauditError("question-blind", f"{name} saw nothing of these rounds", "Ask it from another vantage.")
        return self._checked(self.asked.question.conclude(case, seen, self.asked.options, vantage, model))

    def _checked(self, verdict: object) -> Verdict:
        """What code from outside concludes may be anything: a result bears the question's name, and its figures are
        those that the question describes."""
        question = self.asked.question
        described = {metric.name for metric in question.metrics}
        if not isinstance(verdict, Verdict):
            raise self._wrong(f"conclude returns {type(verdict).__name__}", "Let it return a Verdict.")
        if not verdict.results and not verdict.notices:
            raise self._wrong("conclude returns an empty Verdict", "Let a notice say why there is no result.")
        for result in verdict.results:
            if not isinstance(result, AuditResult) or (result.attack, result.question) != (question.name,) * 2:
                raise self._wrong(
                    "a result is not its own", "Make results by case.result(self.name, ..., question=self)."
                )
            for name, estimate in result.estimates.items():
                if not isinstance(estimate, Estimate) or name.partition("@")[0] not in described:
                    raise self._wrong(f"its figure {name!r} is not described", "Name it in `metrics`, as an Estimate.")
        return verdict

    def _wrong(self, what: str, todo: str) -> FedauditError:
        return FedauditError("question-result", f"{self.asked.question.name}: {what}", todo)

    def state(self) -> Stored:
        kept = {
            key: {
                "moments": [[moment.round, moment.probe] for moment in glances.moments],
                "values": [dict(values) for values in glances.values],
                "seconds": glances.seconds,
            }
            for key, glances in self.kept.items()
        }
        return {"kept": kept, "failed": dict(self.failed)}

    def restore(self, state: Stored) -> None:
        self.failed = dict(state["failed"])
        self.kept = {
            key: Glances(
                [Moment(round, probe) for round, probe in kept["moments"]], list(kept["values"]), kept["seconds"]
            )
            for key, kept in state["kept"].items()
        }
