"""The banks of reference models that one sight uses. Each is created when it is first asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fedaudit.adversary.shadow.references import References, metrics_by_bank
from fedaudit.adversary.vantage import View
from fedaudit.types import Floats, Records, Stored, Strings

if TYPE_CHECKING:
    from fedaudit.adversary.shadow.bank import Bank


class Banks:
    """`signals`: everything that will ever be asked for. Every bank is trained in every round, whether asked or not."""

    def __init__(self, references: References | None, signals: Iterable[str], task: Any):
        self.references, self.task = references, task
        self.metrics = metrics_by_bank(signals)
        self.made: dict[str, Bank] = {}
        self.stored: dict[str, Stored] = {}  # states of banks that have not been created yet

    def answers(
        self, name: str, signals: Iterable[str], view: View, rows: Records, party: Strings, absorbed: int
    ) -> Mapping[str, Floats]:
        """What one bank says about the rows after this round. It trains for this round first, if it must."""
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

    def state(self) -> Stored:
        return {**self.stored, **{name: bank.state() for name, bank in self.made.items()}}

    def restore(self, state: Stored) -> None:
        self.made, self.stored = {}, dict(state)
