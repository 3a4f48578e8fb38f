"""A malicious aggregator in simulation: every party is trained apart from the others, with nobody but a shadow.

The target is broadcast the mean of its own model and the shadow's. Seen from the party that is a federation of two, so
that is what is run here, once for each party, forked from the configuration: same start, same data, same randomness.
It shares no trace with the honest federation. What it costs the parties is reported: the accuracy of the models that
they end up with.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from fedaudit.audit import Auditor, Settings
from fedaudit.audit.notices import below_chance
from fedaudit.audit.shadows import SHADOW
from fedaudit.defences.slots import Defence
from fedaudit.federation.simulate import Trainer, federate
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.stats import proportion, roc_curve
from fedaudit.types import (
    Audit,
    AuditResult,
    Candidates,
    Estimate,
    Floats,
    Game,
    Party,
    Plan,
    Records,
    Role,
    Truth,
    Vantage,
)


class Isolation:
    """`settings`: the attacks that learn, and the shadow from whose records they do."""

    def __init__(
        self, task: TorchTask, game: Game, parties: Sequence[Party], settings: Settings, defence: Defence, how: Training
    ):
        assert settings.shadow is not None
        self.task, self.game, self.parties, self.settings = task, game, parties, settings
        self.defence = replace(defence, aggregate=None)  # this server adds no noise
        self.shadow = Trainer(SHADOW, settings.shadow.game.members(SHADOW), how)
        self.fprs, _ = settings.reachable_fprs(game)
        self.auditors: dict[str, Auditor] = {}

    @property
    def complete(self) -> bool:
        return len(self.auditors) == len(self.parties)

    def run(self, step: Callable[[], None]) -> None:
        """One federation of two for each party."""
        rounds, seed = self.settings.rounds, self.settings.seed
        shadow = replace(self.settings.shadow, party=SHADOW) if self.settings.shadow else None
        settings = replace(self.settings, vantages=(Vantage.SERVER,), shadow=shadow, fpr=None)
        for party in self.parties:
            auditor = Auditor(self.task, only(self.game, party.name), settings)
            auditor.fprs = self.fprs  # as in the honest federation: a party that is too small has no value there
            plans = [Plan((party.name, SHADOW))] * rounds
            for round in federate(self.task, [party, self.shadow], plans, seed, defence=self.defence):
                auditor.observe(round)
                step()
            whose = self.game.candidates.subject_number
            for panel in auditor.each.values():  # people keep their numbers: they may have records in several parties
                panel.subject = None if whose is None else whose[self.game.candidates.of_party(party.name)]
            self.auditors[party.name] = auditor

    def add_to(self, honest: Audit) -> Audit:
        """The honest audit, with what the malicious aggregator finds beside it; said is how far it got."""
        if not self.complete:
            names = ", ".join(attack.name for attack in self.settings.attacks)
            missing = f"agg-mal was stopped with {len(self.auditors)} of {len(self.parties)} parties isolated"
            missing += f": {names} {'are about these alone' if self.auditors else 'have no result'}."
            honest = replace(honest, notices=[*honest.notices, missing])
        if not self.auditors:
            return honest
        found = [result for attack in self.settings.attacks for result in self._of_attack(attack.name)]
        accuracy = dict(honest.accuracy)
        notices = [*honest.notices]
        before = honest.accuracy.get("evaluation")
        if before:
            accuracy["evaluation under agg-mal"] = isolated = self._accuracy()
            notices.append(
                f"agg-mal: isolated with the shadow, the parties' models are right on {_share(isolated)} of outsiders, "
                f"against {_share(before)} in the honest federation."
            )
        else:
            notices.append(self._mean_squared_error())
        failed = {name: why for auditor in self.auditors.values() for name, why in auditor.failed.items()}
        warnings = [*honest.warnings, *(f"{name} failed and has no result: {why}" for name, why in failed.items())]
        return replace(
            honest, results=[*honest.results, *found], accuracy=accuracy, notices=notices, warnings=warnings,
            failed={**honest.failed, **failed},
        )  # fmt: skip

    def _of_attack(self, name: str) -> list[AuditResult]:
        if any(name in auditor.failed for auditor in self.auditors.values()):
            return []
        entries = []
        for party in (None, *self.auditors):
            chosen = list(self.auditors.values()) if party is None else [self.auditors[party]]
            (attack,) = (a for a in self.settings.attacks if a.name == name)
            blocks = [panel.block(attack) for auditor in chosen for panel in auditor.each.values()]
            estimates = chosen[0].estimates(blocks, self.settings.confidence)
            epochs = float(np.mean([auditor.epochs(attack, "local") for auditor in chosen]))
            curves = {"roc": roc_curve(blocks, confidence=self.settings.confidence)} if party is None else {}
            unit, rounds = self.game.candidates.unit, self.settings.rounds
            looked_at = len(self.settings.attacks) * (1 if party is None else len(self.auditors))
            warnings = below_chance(name, blocks, estimates["auc"], looked_at)
            entries.append(
                AuditResult(name, "server", "local", unit, party, rounds, estimates, epochs, warnings, curves)
            )
        return entries

    def _answers(self) -> Iterator[tuple[Floats, Records]]:
        """What each party's model says of outsiders."""
        for auditor in self.auditors.values():
            assert auditor.released is not None
            rows = auditor.game.candidates.rows.take(auditor.game.truth.mask(Role.EVALUATION))
            yield self.task.outputs(auditor.released, rows.x), rows

    def _mean_squared_error(self) -> str:
        errors = np.concatenate([(answers[:, 0] - rows.y) ** 2 for answers, rows in self._answers()])
        confidence, mean = self.settings.confidence, float(errors.mean())
        half = float(stats.t.ppf((1 + confidence) / 2, len(errors) - 1) * stats.sem(errors))
        return (
            f"agg-mal: isolated with the shadow, the parties' models have a mean squared error of {mean:.4g} on "
            f"{len(errors)} outsiders ({confidence:.0%} interval {max(mean - half, 0.0):.4g}-{mean + half:.4g}, "
            "Student's t)."
        )

    def _accuracy(self) -> Estimate:
        pairs = list(self._answers())
        right = [np.asarray(answers.argmax(axis=1) == rows.y) for answers, rows in pairs]
        return proportion(right, [rows.subject for _, rows in pairs], self.settings.confidence)


def only(game: Game, party: str) -> Game:
    """One party's part of the game."""
    mine = np.flatnonzero(game.candidates.party == party)
    whole = game.candidates
    rows = whole.rows.take(mine)
    subject = None if whole.subject is None else whole.subject[mine]
    part = Candidates(whole.unit, whole.id[mine], whole.party[mine], rows, np.arange(len(mine)), subject)
    return Game(part, Truth(game.truth.id[mine], game.truth.role[mine]))


def _share(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} ({estimate.low:.1%}-{estimate.high:.1%})"
