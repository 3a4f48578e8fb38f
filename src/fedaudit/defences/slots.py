"""A defence: up to four slots, and what it promises. An empty slot does nothing; two defences in one slot is an error.

gradient   inside the party: how it trains                       (task, state, records, training, rng) -> Trained
update     what leaves the party                                 (broadcast, trained, rng) -> Trained
aggregate  at the server, instead of the weighted mean           (broadcast, {party: trained}, rng) -> State
serve      the answers of the released model                     (task, state, outputs) -> outputs
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fedaudit.errors import FedauditError
from fedaudit.types import Floats, Notice, Records, State, Trained

if TYPE_CHECKING:
    from fedaudit.learn.tasks import TorchTask, Training
    from fedaudit.privacy.statement import Promise

Gradient = Callable[["TorchTask", State, Records, "Training", np.random.Generator], Trained]
Update = Callable[[State, Trained, np.random.Generator], Trained]
Aggregate = Callable[[State, Mapping[str, Trained], np.random.Generator], State]
Serve = Callable[[Any, State, Floats], Floats]

Slot = Literal["gradient", "update", "aggregate", "serve"]
SLOTS: tuple[Slot, ...] = get_args(Slot)


@dataclass(frozen=True)
class Defence:
    name: str
    gradient: Gradient | None = None
    update: Update | None = None
    aggregate: Aggregate | None = None
    serve: Serve | None = None
    promises: tuple[Promise, ...] = ()
    notices: tuple[Notice | str, ...] = ()

    def __or__(self, other: Defence) -> Defence:
        for slot in SLOTS:
            if getattr(self, slot) and getattr(other, slot):
                raise FedauditError(
                    "defence-conflict",
                    f"{self.name!r} and {other.name!r} both fill the slot {slot!r}",
                    "Remove one of them from [[defences]].",
                )
        return Defence(
            name=" | ".join(part.name for part in (self, other) if part is not NONE) or NONE.name,
            promises=self.promises + other.promises,
            notices=self.notices + other.notices,
            **{slot: getattr(self, slot) or getattr(other, slot) for slot in SLOTS},
        )


NONE = Defence("none")


@dataclass(frozen=True)
class Guarded:
    """An honest party that trains with the defence in the gradient slot. The stacked trainer must not train it."""

    name: str
    source: Callable[[], Records]
    training: Training
    gradient: Gradient

    def update(self, task: TorchTask, model: State, rng: np.random.Generator) -> Trained:
        return self.gradient(task, model, self.source(), self.training, rng)
