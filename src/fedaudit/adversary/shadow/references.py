"""How reference models are to be trained. The models themselves are created in the first round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedaudit.adversary.signals.references import SIGNALS
from fedaudit.types import Records, Strings

if TYPE_CHECKING:
    from fedaudit.adversary.shadow.bank import Bank
    from fedaudit.defences.slots import Gradient
    from fedaudit.learn.tasks import TorchTask


@dataclass(frozen=True)
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

        return Bank(self, task, name, metrics, rows, party)


def metrics_by_bank(signals: Iterable[str]) -> dict[str, list[str]]:
    """The metrics that these signals need, by bank."""
    wanted: dict[str, list[str]] = defaultdict(list)
    for signal in sorted(set(signals) & set(SIGNALS)):
        bank, metric = SIGNALS[signal]
        wanted[bank].append(metric)
    return dict(wanted)
