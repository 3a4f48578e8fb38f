"""One model kind and party watched over the rounds: which candidates, and what each attack keeps of them."""

import time
from collections.abc import Sequence

import numpy as np

from fedaudit.attacks.base import BaseAttack
from fedaudit.errors import FedauditError
from fedaudit.signals import measure, passes
from fedaudit.stats import Block, random_half
from fedaudit.types import Floats, Game, Ints, ModelKind, Role, Task, View


class Panel:
    """Global models: one panel for all candidates. Local models: one for each party, with its own candidates."""

    def __init__(self, model: ModelKind, index: Ints, game: Game, attacks: Sequence[BaseAttack]):
        self.model = model
        self.id, self.party = game.candidates.id[index], game.candidates.party[index]
        self.role = game.truth.role[index]
        self.subject = None if game.candidates.subject is None else game.candidates.subject[index]
        self.rows = game.candidates.rows.take(index)
        self.reductions = {attack.name: attack.reduce(len(index)) for attack in attacks}
        self.passes = passes(signal for attack in attacks for signal in attack.signals)
        # Half of the calibration records: known non-members on which an attack may be fitted.
        self.reference = random_half(self.id, "reference") & (self.role == Role.CALIBRATION.value)
        self.seconds = dict.fromkeys(self.passes, 0.0)
        self.epoch_seconds = 0.0

    def observe(self, view: View, task: Task, epoch_seconds: float) -> None:
        values: dict[str, Floats] = {}
        for group in self.passes:
            started = time.perf_counter()
            values |= measure(group, view, self.rows, task)
            self.seconds[group] += time.perf_counter() - started
        for reduction in self.reductions.values():
            reduction.observe(view.round, values)
        self.epoch_seconds += epoch_seconds

    def seconds_of(self, attack: BaseAttack) -> float:
        """Time spent on the passes that an attack needs; passes are shared, so costs of attacks do not add up."""
        return sum(seconds for group, seconds in self.seconds.items() if group & set(attack.signals))

    def scores(self, attack: BaseAttack) -> Floats:
        features = self.reductions[attack.name].features()
        fitted = attack.fit(features[self.reference]) if attack.fits else attack
        return fitted.score(features)

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
