"""One model kind and party watched over the rounds: which candidates, and what each attack keeps of them."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from fedaudit.attacks.base import BaseAttack
from fedaudit.errors import FedauditError
from fedaudit.signals import measure
from fedaudit.stats import Block, random_half
from fedaudit.types import Floats, Game, Ints, ModelKind, Records, Role, Task, View


class Panel:
    """Global models: one panel for all candidates. Local models: one for each party, with its own candidates."""

    def __init__(self, model: ModelKind, index: Ints, game: Game, attacks: Sequence[BaseAttack]):
        self.model = model
        self.id, self.party = game.candidates.id[index], game.candidates.party[index]
        self.role = game.truth.role[index]
        self.subject = None if game.candidates.subject is None else game.candidates.subject[index]
        self.index, self.candidates = index, game.candidates
        self.reductions = {attack.name: attack.reduce(len(index)) for attack in attacks}
        self.now = [attack for attack in attacks if not attack.deferred]
        self.later = [attack for attack in attacks if attack.deferred]
        self.signals = sorted({signal for attack in self.now for signal in attack.signals})
        self.pending: dict[str, tuple[View, Task]] = {}  # what deferred attacks have yet to see
        # Half of the calibration records: known non-members on which an attack may be fitted.
        self.reference = random_half(self.id, "reference") & (self.role == Role.CALIBRATION.value)
        self.seconds = self.epoch_seconds = 0.0

    def observe(self, view: View, task: Task, epoch_seconds: float) -> None:
        self._show(self.now, self.signals, view, task)
        self.epoch_seconds += epoch_seconds
        self.pending = {attack.name: (replace(view, received=None), task) for attack in self.later}

    @property
    def rows(self) -> Records:
        """Taken when needed: the records of all parties are not held twice."""
        rows = self.candidates.rows
        return rows if len(self.index) == len(rows) else rows.take(self.index)

    def _show(self, attacks: Sequence[BaseAttack], signals: Iterable[str], view: View, task: Task) -> None:
        started = time.perf_counter()
        values = measure(signals, view, self.rows, task)
        for attack in attacks:
            self.reductions[attack.name].observe(view.round, values)
        self.seconds += time.perf_counter() - started

    def scores(self, attack: BaseAttack) -> Floats:
        if attack.name in self.pending:
            self._show([attack], attack.signals, *self.pending.pop(attack.name))
        features = self.reductions[attack.name].features()
        fitted = attack.fit(features[self.reference]) if attack.fits else attack
        return fitted.score(features)

    def defined(self, attack: BaseAttack) -> bool:
        """Has enough been observed for this attack? A party that hardly takes part may never get there."""
        return not np.isnan(self.scores(attack)).all()

    def block(self, attack: BaseAttack, party: str | None = None) -> Block:
        """The scores, of one party's candidates or all, sorted into the three sets."""
        scores = finite(self.scores(attack), self.id, attack.name)
        mine = np.ones(len(scores), bool) if party is None else self.party == party
        calibration = mine & (self.role == Role.CALIBRATION.value)
        if attack.fits:
            calibration &= ~self.reference
        sets = (mine & (self.role == Role.MEMBER.value), mine & (self.role == Role.EVALUATION.value), calibration)
        subject = self.subject
        names = None if subject is None else (subject[sets[0]], subject[sets[1]], subject[sets[2]])
        return Block(scores[sets[0]], scores[sets[1]], scores[sets[2]], names)


def finite(scores: Floats, ids: np.ndarray, attack: str) -> Floats:
    """Scores without NaN: a few count as the least suspicious, more than 1 % is an error, all means "not yet"."""
    bad = np.isnan(scores)
    count = int(bad.sum())
    if 0.01 * len(scores) < count < len(scores):
        first = ids[np.flatnonzero(bad)[0]]
        raise FedauditError(
            "nan-scores",
            f"{attack}: {count} of {len(scores)} scores are NaN, the first is {first}",
            "Look at that record.",
        )
    return np.where(bad, -np.inf, scores) if count else scores
