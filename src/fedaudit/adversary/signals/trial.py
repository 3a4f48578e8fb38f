"""Which signals can a task give? Found before training, by trying each of them once on two records."""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from fedaudit.adversary.signals import DEAR, FAMILIES, Family, measure
from fedaudit.adversary.signals.variants import variant
from fedaudit.adversary.vantage import view
from fedaudit.config.attack_registry import plain
from fedaudit.errors import FedauditError
from fedaudit.types import Moment, Records, State, Task, Vantage


class SignalTrial:
    """Attacks share signals, and all gradients share one check, which takes a large model longer than a round may."""

    def __init__(self, task: Task, state: State, rows: Records, families: Sequence[Family] = FAMILIES):
        self.task, self.state, self.rows, self.families = task, state, rows, families
        self.tried: dict[str, str | None] = {}

    def why_not(self, names: Iterable[str]) -> str | None:
        """Why the task cannot give these signals; None if it can."""
        # The same signal, once for each value of an attribute, or of another update.
        alike = [plain(name).removeprefix("attribute-").removesuffix("-peer") + variant(name) for name in names]
        for name in alike:
            if name not in self.tried:
                self.tried[name] = self._try(name)
        return next((reason for name in alike if (reason := self.tried[name])), None)

    def slow(self, names: Iterable[str]) -> str | None:
        """Why some of the signals cost far more than one pass; None if they do not."""
        return self.gradients[1] if DEAR.intersection(map(plain, names)) else None

    @cached_property
    def gradients(self) -> tuple[str | None, str | None]:
        """Why records have no gradients of their own here, if they do not; why these are slow, if they are."""
        from fedaudit.adversary.signals import gradients  # needs torch

        try:
            return None, gradients.check(self.task, self.state, self.rows)
        except FedauditError as error:
            return error.what, None

    def _try(self, name: str) -> str | None:
        if plain(name) in DEAR and (reason := self.gradients[0]):
            return reason
        seen = view(Vantage.SERVER, "local", Moment(1), self.task, self.state, self.state)
        few = self.rows.take(np.arange(min(2, len(self.rows))))
        try:
            measure([name], seen, few, np.ones(len(few), bool), self.families)
        except FedauditError as error:
            return error.what
        return None
