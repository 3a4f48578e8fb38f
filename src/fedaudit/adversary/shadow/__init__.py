"""Models that an adversary trains beside the federation. Nothing here imports torch before a model is trained."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedaudit.adversary.vantage import View
from fedaudit.types import Floats, Grant, Records, Stored, Strings

if TYPE_CHECKING:
    from fedaudit.adversary.shadow.bank import Bank
    from fedaudit.defences.shared import Gradient
    from fedaudit.learn.tasks import TorchTask

# ------------------------------------------------------------------ the signals of reference models: records x models

# They are not measured on the view's model, but on models that an adversary trains beside it, in each round for as many
# epochs as a party (`adversary.shadow`). The banks differ in how much their models are taught to imitate the target. An
# outside adversary has its own banks, trained on its own data, which contains no candidate.


METRICS = ("logit", "loss", "confidence")

# bank -> how much of the target's answer goes into the soft labels; None: as configured (`audit.reference.alpha`)
BANKS: dict[str, float | None] = {
    "reference": None,
    "plain-reference": 0.0,
    "distilled-reference": 1.0,
    "outside-reference": None,
    "outside-plain-reference": 0.0,
}
INSIDE = "reference-inside"  # which of a party's references trained on the record; drawn at random, no ground truth

SIGNALS: dict[str, tuple[str, str]] = {f"{bank}-{metric}": (bank, metric) for bank in BANKS for metric in METRICS}


# Imitating the target needs its answers in every round; references that do not imitate can be trained at any time.
NEEDS: dict[str, frozenset[Grant]] = {
    name: frozenset({Grant.OUTPUTS}) if BANKS[bank] == 0.0 else frozenset({Grant.OUTPUTS, Grant.EVERY_ROUND})
    for name, (bank, _) in SIGNALS.items()
} | {INSIDE: frozenset()}


def is_outside(bank: str) -> bool:
    return bank.startswith("outside-")


# ------------------------------------------------------------------ how they are trained


@dataclass(frozen=True, kw_only=True)
class References:
    """`own`: the data of an outside adversary, where one is asked for. `training`: the fields of `tasks.Training`.

    `gradient`: the parties' defence, for an adversary that trains its references under the same one.
    """

    models: int = 16
    alpha: float = 0.8
    training: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    own: Records | None = None
    gradient: Gradient | None = None

    def bank(self, task: TorchTask, name: str, metrics: list[str], rows: Records, party: Strings) -> Bank:
        from fedaudit.adversary.shadow.bank import Bank

        return Bank(references=self, task=task, name=name, metrics=metrics, rows=rows, party=party)


def metrics_by_bank(signals: Iterable[str]) -> dict[str, list[str]]:
    """The metrics that these signals need, by bank."""
    wanted: dict[str, list[str]] = defaultdict(list)
    for signal in sorted(set(signals) & set(SIGNALS)):
        bank, metric = SIGNALS[signal]
        wanted[bank].append(metric)
    return dict(wanted)


# ---------------------- the banks of one sight, each created when it is first asked


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
