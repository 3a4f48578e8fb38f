"""A simulated malicious aggregator, which trains every party separately, together with a shadow only.

The target receives the mean of its own model and the shadow's. To the party this looks like a federation of two, so
that is what is run here, once for each party, with the same initial model, data and random numbers as in the
configuration. It shares no trace with the honest federation. The report shows what this costs the parties: the accuracy
of their models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.audit import Auditor, Settings
from fedaudit.audit.case import below_chance, figure, fpr_missed
from fedaudit.audit.controls import clusters, right_on, share_right
from fedaudit.audit.costs import each
from fedaudit.audit.outlooks import SHADOW
from fedaudit.defences.shared import Defence
from fedaudit.federation.simulate import Trainer, federate
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.stats import Block, decisions, roc_curve
from fedaudit.stats.roc import estimates
from fedaudit.types import (
    Audit,
    AuditResult,
    Candidates,
    Cost,
    Estimate,
    Game,
    Notice,
    Party,
    Plan,
    Records,
    Role,
    State,
    Truth,
    Vantage,
    gap,
    notice,
    once,
)
from fedaudit.words import with_warnings


@dataclass(frozen=True)
class PartyScores:
    """An attack on one party: its scores, above which of them it calls a record a member, and what it cost in seconds
    and in their unit."""

    block: Block
    threshold: float | None
    seconds: float
    unit: float


def honest(settings: Settings) -> Settings:
    """What is left to the honest federation: the attacks that learn from no shadow."""
    others = [attack for attack in settings.attacks if "shadow" not in attack.fitted_on]
    return replace(settings, attacks=others, shadow=None)


class Isolation:
    """The attacks of the settings that learn, from the records of the shadow."""

    def __init__(
        self,
        *,
        task: TorchTask,
        game: Game,
        parties: Sequence[Party],
        settings: Settings,
        defence: Defence,
        how: Training,
    ):
        assert settings.shadow is not None
        self.task, self.game, self.parties = task, game, parties
        learning = [attack for attack in settings.attacks if "shadow" in attack.fitted_on]
        self.settings = replace(settings, attacks=learning)
        self.defence = replace(defence, aggregate=None)  # this server adds no noise
        self.shadow = Trainer(SHADOW, settings.shadow.game.members(SHADOW), how)
        self.fprs, _ = self.settings.reachable_fprs(game)
        self.auditors: dict[str, Auditor] = {}
        self.training: dict[str, float] = {}  # seconds that the federation with each party took

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
            plans = [Plan((party.name, SHADOW))] * rounds
            made = federate(self.task, [party, self.shadow], plans, seed, defence=self.defence)
            for round in each(made, self.training, party.name):
                auditor.observe(round)
                step()
            self.auditors[party.name] = auditor

    def add_to(self, honest: Audit) -> Audit:
        """The honest audit together with the malicious aggregator's results, and a notice if some parties are
        missing."""
        if not self.complete:
            names = [attack.name for attack in self.settings.attacks]
            missing = notice("agg-mal-stopped", done=len(self.auditors), of=len(self.parties), attacks=names)
            honest = replace(honest, notices=[*honest.notices, missing])
        if not self.auditors:
            return honest
        found = [result for attack in self.settings.attacks for result in self._of_attack(attack.name)]
        accuracy = dict(honest.accuracy)
        notices = [*honest.notices]
        before = honest.accuracy.get("evaluation")
        if before:
            accuracy["evaluation under agg-mal"] = isolated = self._accuracy()
            notices.append(notice("agg-mal-accuracy", isolated=figure(isolated), honest=figure(before)))
        else:
            notices.append(self._mean_squared_error())
        failed = {name: why for auditor in self.auditors.values() for name, why in auditor.failed.items()}
        of_failed = [gap("attack-failed", attack=name, why=why) for name, why in failed.items()]
        warnings = once([*honest.warnings, *of_failed, *(one for result in found for one in result.told)])
        return replace(
            honest, results=[*honest.results, *found], accuracy=accuracy, notices=notices, warnings=warnings,
            failed={**honest.failed, **failed},
        )  # fmt: skip

    def _of_attack(self, name: str) -> list[AuditResult]:
        if any(name in auditor.failed for auditor in self.auditors.values()):
            return []
        entries = []
        (attack,) = (a for a in self.settings.attacks if a.name == name)
        scored = {party: self._scored(party, attack) for party in self.auditors}
        for party in (None, *scored):
            chosen = [*scored.values()] if party is None else [scored[party]]
            blocks = [one.block for one in chosen]
            # The rates of the honest federation: a party that is too small for them has no value there.
            found = estimates(blocks, self.fprs, self.settings.confidence)
            (threshold,) = {one.threshold for one in chosen}  # the shadow's records are the same for every party
            found |= decisions(blocks, threshold, self.settings.confidence) if threshold is not None else {}
            curves = {"roc": roc_curve(blocks, confidence=self.settings.confidence)} if party is None else {}
            unit, rounds = self.game.candidates.unit, self.settings.rounds
            looked_at = len(self.settings.attacks) * (1 if party is None else len(self.auditors))
            warnings = below_chance(name, blocks, found["auc"], looked_at) + fpr_missed(name, found)
            cost = Cost(sum(one.seconds for one in chosen) / sum(one.unit for one in chosen))
            entry = AuditResult(
                name, "server", "local", unit, party, round=rounds, estimates=found, cost=cost, curves=curves
            )
            entries.append(with_warnings(entry, warnings))
        return entries

    def _scored(self, party: str, attack: BaseAttack) -> PartyScores:
        """Subjects keep their numbers of the whole game, because they may be in several parties. Every attack is
        charged the federation that was trained with the party."""
        auditor = self.auditors[party]
        sight, scores = auditor.outlooks.local[party], auditor.case().scores
        block, whose = scores.block(sight, attack), self.game.candidates.subject_number
        if whose is not None:
            number = whose[self.game.candidates.of_party(party)]
            member, evaluation, calibration = (number[sight.role == role.value] for role in Role)
            block = replace(block, subjects=(member, evaluation, calibration))
        seconds = self.training[party] + scores.seconds([sight], attack)
        return PartyScores(block, scores.threshold([sight], attack), seconds, auditor.outlooks.unit([sight]))

    def _released(self) -> Iterator[tuple[str, tuple[State, Records]]]:
        """By party, the model that it ended up with, and the outsiders that it is asked about."""
        for party, auditor in self.auditors.items():
            assert auditor.released is not None
            yield party, (auditor.released, auditor.game.candidates.rows.take(auditor.game.truth.mask(Role.EVALUATION)))

    def _mean_squared_error(self) -> Notice:
        answers = [(self.task.outputs(state, rows.x), rows.y) for _, (state, rows) in self._released()]
        errors = np.concatenate([(said[:, 0] - y) ** 2 for said, y in answers])
        confidence, mean = self.settings.confidence, float(errors.mean())
        half = float(stats.t.ppf((1 + confidence) / 2, len(errors) - 1) * stats.sem(errors))
        ends = {"low": max(mean - half, 0.0), "high": mean + half}
        return notice("agg-mal-error", value=mean, **ends, outsiders=len(errors), confidence=confidence)

    def _accuracy(self) -> Estimate:
        """Of the parties' models on outsiders; people are the same ones in every party."""
        right, whose = [], []
        number, by = clusters(self.game.candidates)
        for party, (state, rows) in self._released():
            found = right_on(rows, self.task, state)
            right.append(np.zeros(rows.y.shape, bool) if found is None else found)
            outsiders = self.game.truth.mask(Role.EVALUATION) & (self.game.candidates.party == party)
            whose.append(number[outsiders])
        return share_right(np.concatenate(right), np.concatenate(whose), by, self.settings.confidence)


def only(game: Game, party: str) -> Game:
    """One party's part of the game."""
    mine = np.flatnonzero(game.candidates.party == party)
    whole = game.candidates
    rows = whole.rows.take(mine)
    subject = None if whole.subject is None else whole.subject[mine]
    part = Candidates(whole.unit, whole.id[mine], whole.party[mine], rows, np.arange(len(mine)), subject=subject)
    return Game(part, Truth(game.truth.id[mine], game.truth.role[mine]))
