"""What is kept of the rounds: of each update that a vantage has, a table from each part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedaudit.adversary.vantage import View
from fedaudit.audit.costs import timed
from fedaudit.audit.observer import Asked, Key, Shown
from fedaudit.audit.patience import failure, patience
from fedaudit.errors import OF_OTHERS
from fedaudit.questions import Verdict
from fedaudit.questions.update import UpdateSection
from fedaudit.questions.update.parts import CannotTell, Known, OneUpdate, Table, parts, seen_by
from fedaudit.types import Measured, ModelKind, Moment, Stored, Vantage
from fedaudit.words import words

if TYPE_CHECKING:
    from fedaudit.audit.case import Case

SIGN = "(update)"  # keys of an observation begin with it
CANNOT, WHO = "update-cannot", "update-who"


@dataclass(frozen=True, kw_only=True)
class AskedOfUpdates(Asked):
    """`columns`: what those of the records, or the tokens in them, are called. `slots`: that declared defences fill."""

    options: UpdateSection
    columns: tuple[str, ...] = ()
    slots: frozenset[str] = frozenset()


@dataclass(frozen=True)
class SeenFrom:
    """Of whose update, from where, by which part: the key of a table. The party comes last: it may have any name."""

    vantage: str
    part: str
    party: str | None

    @property
    def key(self) -> str:
        return f"{SIGN} {self.vantage} {self.part}" + ("" if self.party is None else f" {self.party}")

    @classmethod
    def of(cls, key: str) -> SeenFrom:
        _, vantage, part, *party = key.split(" ", 3)
        return cls(vantage, part, party[0] if party else None)


@dataclass
class UpdateWatch:
    asked: AskedOfUpdates
    tables: dict[tuple[str, Moment], Table] = field(default_factory=dict)  # by key of a place, and when
    seconds: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def rounds(self, planned: int) -> set[int]:
        chosen = self.asked.options.rounds
        return set(chosen) if chosen else {1, (planned + 1) // 2, planned}

    def measure(self, shown: Shown) -> dict[Key, Measured]:
        if self.asked.options.tampering:  # the probe with the prepared model, and nothing else
            if not shown.round.probe:
                return {}
        elif shown.round.probe or shown.round.index not in self.rounds(shown.planned):
            return {}
        known = Known(outsiders=shown.outsiders, classes=shown.task.classes, training=shown.training)
        found: dict[Key, Measured] = {}
        for vantage, model in shown.watched:
            if self.asked.can_be_seen(vantage, model):
                # What the server does to the mean changes no party's own update.
                acting = {"gradient", "update"} | ({"aggregate"} if model == "global" else set())
                beside = replace(known, defended=bool(acting & self.asked.slots))
                for view in shown.views(vantage, model):
                    if view.received is not None:
                        found |= dict(self._looked(view, shown, beside))
        return found

    def _looked(self, view: View, shown: Shown, known: Known) -> Iterator[tuple[Key, Measured]]:
        """One part that fails must not cost the others their round."""
        whose = tuple(sorted(shown.round.sent)) if view.party is None else (view.party,)
        examples = sum(shown.round.sent[name].examples for name in whose)
        assert view.received is not None
        update = OneUpdate(
            received=view.received,
            sent=view.sent,
            task=view.task,
            examples=examples,
            parties=whose,
            round=view.round,
            metrics=tuple(sorted({name for party in whose for name in shown.round.sent[party].metrics})),
            by_records=_by_records(view, shown, whose),
        )
        seen = {"update-party": np.array(whose, str), "update-examples": _examples(shown, whose)}
        yield SeenFrom(view.vantage.value, WHO, view.party).key, _table(seen, {}, {})
        for name, part in parts().items():
            spent: dict[str, float] = {}
            table: Table = {}
            failed = {}
            try:
                with patience(), timed(spent, "looking"):
                    table = seen_by(part, update, known, self.asked.options)
            except CannotTell as why:
                table = {CANNOT: np.array([why.code])}
            except OF_OTHERS as error:
                failed = {name: failure(error)}
            yield SeenFrom(view.vantage.value, name, view.party).key, _table(table, failed, spent)

    def absorb(self, moment: Moment, of: Mapping[Key, Measured]) -> dict[Key, Measured]:
        mine: dict[Key, Measured] = {key: one for key, one in of.items() if key and key.startswith(f"{SIGN} ")}
        for key, measured in mine.items():
            assert key is not None
            for name, why in measured.failed.items():
                self.failed.setdefault(name, words(why))
            if measured.values:
                self.tables[key, moment] = dict(measured.values)
            self.seconds[key] = self.seconds.get(key, 0.0) + measured.seconds
        return mine

    def judge(self, case: Case, name: str, vantage: Vantage, model: ModelKind) -> Verdict:
        from fedaudit.questions.update.judge import judge

        return judge(case, self, vantage, model)

    def state(self) -> Stored:
        kept: list[dict[str, Any]] = [
            {"key": key, "round": moment.round, "probe": moment.probe, "table": dict(table)}
            for (key, moment), table in self.tables.items()
        ]
        return {"kept": kept, "seconds": dict(self.seconds), "failed": dict(self.failed)}

    def restore(self, state: Stored) -> None:
        self.tables = {(one["key"], Moment(one["round"], one["probe"])): one["table"] for one in state["kept"]}
        self.seconds, self.failed = dict(state["seconds"]), dict(state["failed"])


def _examples(shown: Shown, whose: tuple[str, ...]) -> Any:
    return np.array([shown.round.sent[name].examples for name in whose], np.int64)


def _by_records(view: View, shown: Shown, whose: tuple[str, ...]) -> bool:
    """Is this the mean of these parties, each weighed by its records? Asked of the biases, where sizes differ. False
    where what they sent is not there to be asked."""
    many = _examples(shown, whose)
    if view.party is not None or len(np.unique(many)) < 2:
        return True
    sent = [shown.round.sent[name].state for name in whose]
    biases = [name for name, value in view.weights.items() if value.ndim == 1 and value.dtype.kind == "f"]
    if view.received is None or not all(sent):
        return False
    for name in biases:
        mean = np.average([one[name] for one in sent], axis=0, weights=many)
        moved = np.abs(mean - view.received[name]).max(initial=0.0)
        if np.abs(mean - view.sent[name]).max(initial=0.0) > WEIGHED * moved + 1e-6:
            return False
    return True


WEIGHED = 1e-2  # of what a bias moved: how near the mean must be


def _table(table: Table, failed: Mapping[str, Any], spent: Mapping[str, float]) -> Measured:
    rows = np.array([str(row) for row in range(max(map(len, table.values()), default=0))], str)
    return Measured(rows, dict(table), sum(spent.values()), 0.0, failed=failed, spent=spent)
