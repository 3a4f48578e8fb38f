"""The banks of reference models behind the signals of one sight; they come into being when they are first asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fedaudit.adversary.shadow.references import References, metrics_by_bank
from fedaudit.adversary.vantage import View
from fedaudit.types import Floats, Records, Stored, Strings

if TYPE_CHECKING:
    from fedaudit.adversary.shadow.bank import Bank


class Banks:
    """`signals`: all that will ever be asked for, so that every bank learns in every round, asked or not."""

    def __init__(self, references: References | None, signals: Iterable[str], task: Any):
        self.references, self.task = references, task
        self.metrics = metrics_by_bank(signals)
        self.made: dict[str, Bank] = {}
        self.stored: dict[str, Stored] = {}  # of banks that are not made yet

    def answers(
        self, name: str, signals: Iterable[str], view: View, rows: Records, party: Strings, absorbed: int
    ) -> Mapping[str, Floats]:
        """What one bank says of the rows after this round: it takes its epoch first, if it has not yet."""
        return self._bank(name, rows, party).answers(signals, view, absorbed)

    def _bank(self, name: str, rows: Records, party: Strings) -> Bank:
        assert self.references is not None, "signals of references need them"
        if name not in self.made:
            self.made[name] = self.references.bank(self.task, name, self.metrics[name], rows, party)
            if name in self.stored:
                self.made[name].restore(self.stored.pop(name))
        return self.made[name]

    def signals_of(self, name: str) -> list[str]:
        return [f"{name}-{metric}" for metric in self.metrics[name]]

    def unused_seconds(self, used: set[str]) -> float:
        """What the banks cost that none of these signals needs."""
        return sum(bank.seconds for bank in self.made.values() if not bank.signals & used)

    def state(self) -> Stored:
        return {**self.stored, **{name: bank.state() for name, bank in self.made.items()}}

    def restore(self, state: Stored) -> None:
        self.made, self.stored = {}, dict(state)
