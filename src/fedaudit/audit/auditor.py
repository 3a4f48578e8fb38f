"""Watches a federation round by round and says what its adversaries could tell."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedaudit.attacks import BLIND
from fedaudit.attacks.base import BaseAttack
from fedaudit.audit.blind import blind_block, blind_scores
from fedaudit.audit.panel import Panel
from fedaudit.audit.settings import HEADLINE_FPR, Settings
from fedaudit.errors import FedauditError
from fedaudit.stats import Block, auc, clopper_pearson, roc_curve, tpr_at_fpr
from fedaudit.types import (
    Audit,
    AuditResult,
    Curve,
    Estimate,
    Game,
    Headline,
    ModelKind,
    Role,
    Round,
    State,
    Task,
    Vantage,
)
from fedaudit.vantage import MODELS, global_view, local_views

Estimates = dict[str, Estimate]


class Auditor:
    """Live and replayed rounds go through the same `observe`; `finish` may be called after any of them."""

    def __init__(self, task: Task, game: Game, settings: Settings):
        settings, dropped = settings.feasible(task, game)
        self.task, self.game, self.settings = task, game, settings
        self.fprs, unreachable = settings.reachable_fprs(game)
        self.notices = dropped + unreachable
        everyone = np.arange(len(game.candidates))
        self.everyone = Panel("global", everyone, game, settings.attacks)
        self.each: dict[str, Panel] = {}
        if Vantage.SERVER in settings.vantages:
            self.each = {p: Panel("local", game.candidates.of_party(p), game, settings.attacks) for p in game.parties}
        self.history: dict[ModelKind, dict[int, Estimates]] = {"global": {}, "local": {}}
        self.released: State | None = None
        self.last_round = 0

    def observe(self, round: Round) -> None:
        """One round. Probe rounds show nothing: their result was thrown away."""
        if not round.commit:
            return
        epochs = {name: trained.epoch_seconds for name, trained in round.sent.items()}
        self.everyone.observe(global_view(round, Vantage.CLIENT), self.task, sum(epochs.values()))
        for view in local_views(round):
            if view.party is not None and view.party in self.each:
                self.each[view.party].observe(view, self.task, epochs[view.party])
        self.released, self.last_round = round.aggregate, round.index
        self._remember(round.index)

    def finish(self) -> Audit:
        """Everything that can be said after the rounds observed so far."""
        if self.last_round < 2:
            raise FedauditError("no-rounds", f"{self.last_round} rounds were observed", "Two are needed at least.")
        results: list[AuditResult] = []
        for vantage, model in self.settings.watched():
            for attack in self.settings.attacks:
                results += self._of_attack(attack, vantage, model)
        blind = self._blind()
        warnings = []
        found = blind.estimates["auc"]
        if found.low is not None and found.high is not None and not found.low <= 0.5 <= found.high:
            warnings.append(
                f"Members and non-members differ without any model (blind AUC {found.value:.3f}, "
                f"{found.low:.3f}-{found.high:.3f}): only what attacks find beyond that can come from training."
            )
        return Audit([*results, blind], self._headlines(), self._accuracy(), warnings, self.notices)

    # ------------------------------------------------------------------ scores to estimates

    def panels(self, model: ModelKind) -> list[Panel]:
        return [self.everyone] if model == "global" else list(self.each.values())

    def estimates(self, blocks: Sequence[Block], confidence: float) -> Estimates:
        found = [auc(blocks, confidence), *(tpr_at_fpr(blocks, fpr, confidence) for fpr in self.fprs)]
        return {estimate.name: estimate for estimate in found}

    def _pooled(self, attack: BaseAttack, model: ModelKind, confidence: float) -> Estimates:
        return self.estimates([panel.block(attack) for panel in self.panels(model)], confidence)

    def _of_attack(self, attack: BaseAttack, vantage: Vantage, model: ModelKind) -> list[AuditResult]:
        """The pooled entry, with its curves, and one entry for each party."""
        panels = self.panels(model)
        blocks = [panel.block(attack) for panel in panels]
        curves = {"roc": roc_curve(blocks, confidence=self.settings.confidence)}
        if attack is self.settings.primary(vantage):
            curves |= self._over_rounds(model)
        pooled = self._entry(attack, vantage, model, None, blocks, _epochs(attack, panels))
        entries = [replace(pooled, curves=curves)]
        for party in self.game.parties:
            panel = self.each[party] if model == "local" else self.everyone
            block = panel.block(attack, party)
            entries.append(self._entry(attack, vantage, model, party, [block], _epochs(attack, [panel])))
        return entries

    def _entry(
        self,
        attack: BaseAttack,
        vantage: Vantage,
        model: ModelKind,
        party: str | None,
        blocks: Sequence[Block],
        epochs: float,
    ) -> AuditResult:
        found, unit = self.estimates(blocks, self.settings.confidence), self.game.candidates.unit
        warnings = below_chance(attack.name, found)
        return AuditResult(attack.name, vantage.value, model, unit, party, self.last_round, found, epochs, warnings)

    def _blind(self) -> AuditResult:
        started = time.perf_counter()
        scores, reported = blind_scores(self.game, self.settings.seed)
        found = {"auc": auc([blind_block(self.game, scores, reported)], self.settings.confidence)}
        epochs = (time.perf_counter() - started) / max(self.everyone.epoch_seconds, 1e-9)
        vantage = self.settings.vantages[0]
        unit = self.game.candidates.unit
        return AuditResult(BLIND, vantage.value, MODELS[vantage], unit, None, self.last_round, found, epochs)

    # ------------------------------------------------------------------ what is quoted

    def _headlines(self) -> list[Headline]:
        """The primary attack of each vantage; a server's is the stronger of its two, corrected for the choice."""
        headlines = []
        rate = f"tpr@{HEADLINE_FPR:g}" if HEADLINE_FPR in self.fprs else "auc"
        for vantage in self.settings.vantages:
            attack = self.settings.primary(vantage)
            models: list[ModelKind] = ["local", "global"] if vantage is Vantage.SERVER else [MODELS[vantage]]
            confidence = 1 - (1 - self.settings.confidence) / len(models)  # Bonferroni over what is compared
            found = {model: self._pooled(attack, model, confidence) for model in models}
            best = max(models, key=lambda m: (found[m][rate].value or 0.0, found[m]["auc"].value or 0.0))
            headlines.append(Headline(vantage.value, attack.name, best, found[best], len(models)))
        return headlines

    def _remember(self, round: int) -> None:
        """The primary attack after this round, with the error shared among all planned rounds."""
        confidence = 1 - (1 - self.settings.confidence) / self.settings.rounds
        for vantage, model in self.settings.watched():
            attack = self.settings.primary(vantage)
            undefined = any(np.isnan(panel.scores(attack)).all() for panel in self.panels(model))
            if round not in self.history[model] and not undefined:
                self.history[model][round] = self._pooled(attack, model, confidence)

    def _over_rounds(self, model: ModelKind) -> dict[str, Curve]:
        seen = self.history[model]
        method = f"simultaneous over {self.settings.rounds} planned rounds: error shared equally (Bonferroni)"
        curves = {}
        for name in ("auc", f"tpr@{HEADLINE_FPR:g}"):
            found = [e[name] for e in seen.values() if name in e]
            if found:
                values, lows, highs = [e.value for e in found], [e.low for e in found], [e.high for e in found]
                curves[name] = Curve([float(r) for r in seen], values, lows, highs, method)
        return curves

    def _accuracy(self) -> Estimates:
        """What the released model is worth: its accuracy on what it was trained on and on outsiders."""
        if not self.task.classes or self.released is None:
            return {}
        rows = self.game.candidates.rows
        right = self.task.outputs(self.released, rows.x).argmax(axis=1) == rows.y
        confidence = self.settings.confidence
        found = {}
        for name, role in (("members", Role.MEMBER), ("evaluation", Role.EVALUATION)):
            hits = right[self.game.truth.mask(role)]
            k, n = int(hits.sum()), len(hits)
            low, high = clopper_pearson(k, n, (1 - confidence) / 2, (1 - confidence) / 2)
            found[name] = Estimate("accuracy", k / n, low, high, confidence, "Clopper-Pearson", "measured", k, n - k)
        return found

    def score_table(self) -> dict[str, list[object]]:
        """Every candidate's score under every attack, with its role: for re-scoring without training."""
        columns = ("id", "party", "role", "attack", "model", "score", "reference")
        table: dict[str, list[object]] = {name: [] for name in columns}
        for panel in (self.everyone, *self.each.values()):
            for attack in self.settings.attacks:
                n = len(panel.id)
                rows = (panel.id, panel.party, panel.role, [attack.name] * n, [panel.model] * n)
                for name, values in zip(
                    columns, (*rows, panel.scores(attack), panel.reference & attack.fits), strict=True
                ):
                    table[name] += list(values) if isinstance(values, list) else values.tolist()
        return table


def audit(task: Task, rounds: Iterable[Round], game: Game, settings: Settings) -> Audit:
    """A whole audit in one call."""
    auditor = Auditor(task, game, settings)
    for round in rounds:
        auditor.observe(round)
    return auditor.finish()


def below_chance(attack: str, found: Mapping[str, Estimate]) -> list[str]:
    """A score that is worse than guessing is an alarm, never a reason to flip it."""
    auc_ = found["auc"]
    if auc_.high is None or auc_.high >= 0.5:
        return []
    return [f"{attack}: AUC {auc_.value:.3f} is below 0.5 (upper end {auc_.high:.3f}); the score is not flipped."]


def _epochs(attack: BaseAttack, panels: Sequence[Panel]) -> float:
    """Audit time in units of the local epochs that were trained in the same rounds."""
    return sum(p.seconds_of(attack) for p in panels) / max(sum(p.epoch_seconds for p in panels), 1e-9)
