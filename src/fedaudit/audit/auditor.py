"""Watches a federation round by round and says what its adversaries could tell."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from fedaudit.adversary.attacks import BLIND
from fedaudit.adversary.attacks.attribute import Attribute
from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.attacks.peers import Source
from fedaudit.adversary.signals.references import SIGNALS as OF_REFERENCES
from fedaudit.adversary.vantage import MODELS, global_view, local_views
from fedaudit.audit.attributes import conclusion, judge
from fedaudit.audit.blind import blind_block, blind_scores
from fedaudit.audit.notices import below_chance, references_notices, sets_differ, unscored
from fedaudit.audit.panel import Panel, say
from fedaudit.audit.patience import TooLongError, patience
from fedaudit.audit.settings import HEADLINE_FPR, Settings
from fedaudit.audit.shadows import PLACES, SHADOW
from fedaudit.audit.source import conclusion as who_held_it
from fedaudit.audit.source import naming
from fedaudit.errors import FedauditError
from fedaudit.stats import Block, auc, party_differences, proportion, roc_curve, tpr_at_fpr
from fedaudit.types import (
    Audit,
    AuditResult,
    Bools,
    Curve,
    Estimate,
    Floats,
    Game,
    Headline,
    Measured,
    ModelKind,
    Observation,
    Role,
    Round,
    State,
    Task,
    Vantage,
    View,
)

Estimates = dict[str, Estimate]


class Auditor:
    """Live and stored rounds go through the same `absorb`; `finish` may be called after any of them.

    `task` may be None when only stored rounds are absorbed.
    """

    def __init__(self, task: Task | None, game: Game, settings: Settings):
        self.task, self.game, self.settings = task, game, settings
        self.fprs, dropped = settings.reachable_fprs(game)
        self.notices = [*settings.notices, *dropped]
        everyone = np.arange(len(game.candidates))
        references = settings.references
        self.everyone = Panel("global", everyone, game, settings.on("global"), references)
        self.each: dict[str, Panel] = {}
        if Vantage.SERVER in settings.vantages:
            self.each = {
                p: Panel("local", game.candidates.of_party(p), game, settings.on("local"), references)
                for p in game.parties
            }
        self.shadow = shadow_panel(settings)
        if self.shadow:
            self.shadow.probe = settings.attribute
        for panel in (self.everyone, *self.each.values()):
            panel.shadow, panel.probe = self.shadow, settings.attribute
            panel.barred = settings.shadow.party if settings.shadow else None
        self.notices += references_notices(settings.attacks)
        self.history: dict[tuple[str, ModelKind], dict[int, Estimates]] = {}
        self.failed: dict[str, str] = {}
        self.released: State | None = None
        self.blind: tuple[Floats, Bools] | None = None  # what `blind_scores` gives, once it was asked
        self.right: Bools | None = None  # which candidates the released model answers rightly
        self.last_round = 0

    def observe(self, round: Round) -> Observation | None:
        """One round as it happens. Probe rounds show nothing (their result was thrown away), nor do empty ones."""
        return self.absorb(self.measure(round), round)

    def measure(self, round: Round) -> Observation | None:
        """What can be seen of a round. Slow, and changes nothing."""
        if not round.commit or self.task is None:
            return None
        epochs: dict[str | None, float] = {name: trained.epoch_seconds for name, trained in round.sent.items()}
        epochs[None] = sum(epochs.values())
        last = round.index == self.settings.rounds
        of: dict[str | None, Measured] = {
            party: panel.measure(view, self.task, epochs[party], last)
            for party, (panel, view) in self._views(round).items()
        }
        if self.shadow and self.settings.shadow:
            own = self.settings.shadow.measure(self.shadow, round, self.task, last)
            of |= {SHADOW: own} if own else {}
        return Observation(round.index, of)

    def absorb(self, seen: Observation | None, round: Round | None = None) -> Observation | None:
        """Take in what was measured: live, then with its round, or stored. It comes back with all that it cost."""
        if seen is None:  # a round that shows nothing has passed all the same
            self.last_round = round.index if round else self.last_round
            return None
        costed: dict[str | None, Measured] = {}
        for party, measured in seen.of.items():
            panel = self.everyone if party is None else self.shadow if party == SHADOW else self.each.get(party)
            if panel:
                costed[party] = panel.absorb(seen.round, measured, stored=round is None)
                self.failed = panel.failed | self.failed
        self.released, self.right, self.last_round = round.aggregate if round else None, None, seen.round
        if round:
            self.expect(round)
        self._remember(seen.round)
        return Observation(seen.round, costed)

    def wants(self, round: int) -> set[str]:
        """The signals that all attacks together read in a round."""
        panels = (self.everyone, *self.each.values())
        names = {signal for panel in panels for signal in panel.wants(round == self.settings.rounds)}
        used = {signal for attack in self.settings.attacks for signal in attack.signals}
        # Reference models go on from where they were, so that stored signals alone do not bring them to this round.
        return names | {"reference models"} if used & set(OF_REFERENCES) else names

    def wants_models(self) -> bool:
        """Is there a deferred attack that has not seen the models it will look at?"""
        return any(panel.later and panel.pending is None for panel in (self.everyone, *self.each.values()))

    def expect(self, round: Round) -> None:
        """Let deferred attacks look at this round's models, where they know of no later ones."""
        for panel, view in self._views(round).values():
            if panel.later and panel.pending is None and self.task:
                panel.pending = replace(view, received=None, peers={}), self.task

    def _views(self, round: Round) -> dict[str | None, tuple[Panel, View]]:
        """Who looks at what: the global model, and under a party's name its local one."""
        views: dict[str | None, tuple[Panel, View]] = {None: (self.everyone, global_view(round, Vantage.CLIENT))}
        for view in local_views(round, self.game.parties):
            if view.party is not None and view.party in self.each:
                views[view.party] = self.each[view.party], view
        return views

    def finish(self) -> Audit:
        """Everything that can be said after the rounds observed so far."""
        if self.last_round < 2:
            raise FedauditError("no-rounds", f"{self.last_round} rounds were observed", "Two are needed at least.")
        results: list[AuditResult] = []
        for vantage, model in self.settings.watched():
            for attack in self.alive(model):
                with self._blamed_on(attack.name):
                    results += self._of_attack(attack, vantage, model)
        guessed = self._attribute()
        results += guessed
        warnings = []
        with self._blamed_on(BLIND):
            results.append(self._blind())
            warnings += sets_differ(results[-1].estimates["auc"])
        headlines, by_auc = self._headlines()
        results = [result for result in results if result.attack not in self.failed]
        warnings += [f"{name} failed and has no result: {why}" for name, why in self.failed.items()]
        notices = [*self.notices, *self._unseen(), *by_auc, *self._compare_parties()]
        if guessed and self.settings.attribute:
            notices.insert(0, conclusion(self.settings.attribute.name, guessed[0].estimates))
        for result in results:
            notices += who_held_it(result.estimates, len(self.each)) if result.party is None else []
        return Audit(results, headlines, self._accuracy(), warnings, notices, dict(self.failed))

    def alive(self, model: ModelKind | None = None) -> list[BaseAttack]:
        """The attacks on membership that have not failed; on one kind of model, if that is given."""
        usable = self.settings.on(model) if model else self.settings.attacks
        return [a for a in usable if a.name not in self.failed and not isinstance(a, Attribute)]

    def primary(self, vantage: Vantage) -> BaseAttack | None:
        """The primary attack; when it failed, the first listed one that did not. Never chosen by its result."""
        alive = self.alive(MODELS[vantage])
        named = self.settings.primary(vantage)
        return named if named in alive else next(iter(alive), None)

    @contextmanager
    def _blamed_on(self, name: str) -> Iterator[None]:
        """One attack that raises or hangs is marked failed; the others go on."""
        try:
            with patience():
                yield
        except Exception as error:
            self.failed.setdefault(name, say(error))

    def _unseen(self) -> list[str]:
        """Says how many parties a server saw too seldom to judge: they are not in the pooled local results."""
        attack = self.primary(Vantage.SERVER)
        if attack is None:
            return []
        unseen = [panel for panel in self.each.values() if not panel.defined(attack)]
        unfit = sum(panel.cannot_fit(attack) for panel in unseen)
        seldom, whole = len(unseen) - unfit, f"of {len(self.each)} parties"
        said = [f"{seldom} {whole} took part too seldom to judge their local models: left out."] if seldom else []
        few = f"{unfit} {whole} have too few known non-members to fit {attack.name} on their local models: left out."
        return [*said, few] if unfit else said

    # ------------------------------------------------------------------ scores to estimates

    def panels(self, model: ModelKind) -> list[Panel]:
        return [self.everyone] if model == "global" else list(self.each.values())

    def estimates(self, blocks: Sequence[Block], confidence: float) -> Estimates:
        found = [auc(blocks, confidence), *(tpr_at_fpr(blocks, fpr, confidence) for fpr in self.fprs)]
        return {estimate.name: estimate for estimate in found}

    def _pooled(self, attack: BaseAttack, model: ModelKind, confidence: float) -> Estimates:
        return self.estimates(self._blocks(attack, self.panels(model)), confidence)

    def _blocks(self, attack: BaseAttack, panels: Sequence[Panel], party: str | None = None) -> list[Block]:
        """The scores, without parties of which too little was observed."""
        return [panel.block(attack, party) for panel in panels if panel.defined(attack)]

    def _of_attack(self, attack: BaseAttack, vantage: Vantage, model: ModelKind) -> list[AuditResult]:
        """The pooled entry, with its curves, and one entry for each party."""
        panels, barred = self.panels(model), self.everyone.barred
        blocks = self._blocks(attack, panels)
        curves = {"roc": roc_curve(blocks, confidence=self.settings.confidence)}
        if attack is self.primary(vantage):
            curves |= self._over_rounds(attack, model)
        pooled = self._entry(attack, vantage, model, None, blocks, self.epochs(attack, model))
        entries = [replace(pooled, curves=curves, warnings=[*pooled.warnings, *unscored(attack, panels)])]
        for party in self.game.parties:
            if attack.learns and party == barred:
                continue  # the adversary itself
            panel = self.each[party] if model == "local" else self.everyone
            mine, epochs = self._blocks(attack, [panel], party), self.epochs(attack, model, [panel])
            entry = self._entry(attack, vantage, model, party, mine, epochs)
            if not mine:
                why = panel.why_undefined(attack)
                without = {name: replace(e, reason=why) for name, e in entry.estimates.items() if e.value is None}
                entry = replace(entry, estimates={**entry.estimates, **without})
            entries.append(entry)
        return entries

    def epochs(self, attack: BaseAttack, model: ModelKind, panels: Sequence[Panel] | None = None) -> float:
        """Audit time in units of the local epochs that were trained in the same rounds."""
        panels = self.panels(model) if panels is None else panels
        own = self.shadow.seconds if attack.learns and self.shadow else 0.0
        return (own + sum(p.cost(attack) for p in panels)) / max(sum(p.epoch_seconds for p in panels), 1e-9)

    def _attribute(self) -> list[AuditResult]:
        """What can be told of a hidden attribute: pooled first, then for each party."""
        of, shadow, attacks = self.settings.attribute, self.settings.shadow, self.settings.attacks
        attack = next((a for a in attacks if isinstance(a, Attribute) and a.name not in self.failed), None)
        if not (of and shadow and self.shadow and attack):
            return []
        found: list[AuditResult] = []
        vantage, model = PLACES[shadow.adversary]
        with self._blamed_on(attack.name):
            for party in (None, *(self.game.parties if model == "local" else ())):
                panels = self.panels(model) if party is None else [self.each[party]]
                estimates = judge(attack, of, panels, self.shadow, self.classes, self.settings.confidence)
                if estimates:
                    epochs, round = self.epochs(attack, model, panels), self.last_round
                    found.append(
                        AuditResult(attack.name, vantage.value, model, "attribute", party, round, estimates, epochs)
                    )
        return found

    @property
    def classes(self) -> int:
        y = self.game.candidates.rows.y
        return int(y.max()) + 1 if y.dtype.kind in "iu" else 0

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
        if not blocks:
            found = {name: replace(e, reason="took part in too few rounds") for name, e in found.items()}
        looked_at = sum(len(self.settings.on(kind)) for _, kind in self.settings.watched())
        looked_at *= 1 if party is None else len(self.game.parties)
        warnings = below_chance(attack.name, blocks, found["auc"], looked_at)
        if isinstance(attack, Source):
            found |= naming(attack, self.each, party, self.settings.confidence)
        return AuditResult(attack.name, vantage.value, model, unit, party, self.last_round, found, epochs, warnings)

    def _blind(self) -> AuditResult:
        started = time.perf_counter()
        self.blind = self.blind or blind_scores(self.game, self.settings.seed)
        found = {"auc": auc([blind_block(self.game, *self.blind)], self.settings.confidence)}
        epochs = (time.perf_counter() - started) / max(self.everyone.epoch_seconds, 1e-9)
        vantage = self.settings.vantages[0]
        unit = self.game.candidates.unit
        return AuditResult(BLIND, vantage.value, MODELS[vantage], unit, None, self.last_round, found, epochs)

    # ------------------------------------------------------------------ what is quoted

    def _headlines(self) -> tuple[list[Headline], list[str]]:
        """The primary attack of each vantage; and where a server's two could not be compared by TPR."""
        headlines: list[Headline] = []
        notices: list[str] = []
        for vantage in self.settings.vantages:
            attack = self.primary(vantage)
            while attack:
                with self._blamed_on(attack.name):
                    headline, by_auc = self._headline(vantage, attack)
                    headlines.append(headline)
                    notices += by_auc
                    break
                attack = self.primary(vantage)
        return headlines, notices

    def _headline(self, vantage: Vantage, attack: BaseAttack) -> tuple[Headline, list[str]]:
        """A server's is the stronger of its two kinds of models, corrected for the choice.

        They are compared by TPR only where both have one: a model without it is not the weaker for that.
        """
        models: list[ModelKind] = ["local", "global"] if vantage is Vantage.SERVER else [MODELS[vantage]]
        models = [model for model in models if attack in self.settings.on(model)]
        confidence = 1 - (1 - self.settings.confidence) / len(models)  # Bonferroni over what is compared
        found = {model: self._pooled(attack, model, confidence) for model in models}
        rate = f"tpr@{HEADLINE_FPR:g}"
        asked = HEADLINE_FPR in self.fprs
        without = [model for model in models if asked and found[model][rate].value is None]
        notices = [
            f"{vantage.value}: {attack.name} on {model} models has no TPR at {HEADLINE_FPR:.0%} FPR "
            f"({found[model][rate].reason}), so its {len(models)} kinds of models were compared by AUC."
            for model in (without if len(models) > 1 else ())
        ]

        def strength(model: ModelKind) -> list[float]:
            by = [rate, "auc"] if asked and not without else ["auc"]
            return [value if (value := found[model][name].value) is not None else -1.0 for name in by]

        best = max(models, key=strength)
        return Headline(vantage.value, attack.name, best, found[best], len(models)), notices

    def _compare_parties(self) -> list[str]:
        """Who is more exposed than the others to the primary attack; the error is shared among all comparisons."""
        watched = self.settings.watched()
        confidence = 1 - (1 - self.settings.confidence) / len(watched)
        found = []
        for vantage, model in watched:
            attack = self.primary(vantage)
            if attack is None or attack not in self.settings.on(model):
                continue
            panels = {p: self.each[p] if model == "local" else self.everyone for p in self.game.parties}
            blocks = {party: panel.block(attack, party) for party, panel in panels.items() if panel.defined(attack)}
            found += [
                f"{d.party} is more exposed than the others: {attack.name} on {model} models has AUC {d.own:.3f} there "
                f"and {d.others:.3f} elsewhere (difference {d.value:.3f}, {d.low:.3f}-{d.high:.3f}; "
                f"{self.settings.confidence:.0%} for all {len(blocks)} parties together)."
                for d in party_differences(blocks, confidence)
                if d.low > 0
            ]
        return found

    def _remember(self, round: int) -> None:
        """The primary attack after this round, with the error shared among all planned rounds."""
        confidence = 1 - (1 - self.settings.confidence) / self.settings.rounds
        for vantage, model in self.settings.watched():
            attack = self.primary(vantage)
            if attack is None or attack not in self.settings.on(model):
                continue
            seen = self.history.setdefault((attack.name, model), {})
            try:
                with patience():
                    if round not in seen and any(panel.defined(attack) for panel in self.panels(model)):
                        seen[round] = self._pooled(attack, model, confidence)
            except TooLongError as error:
                self.failed.setdefault(attack.name, say(error))
            except Exception:
                continue  # a gap in the curve; whether the attack failed is decided at the end

    def _over_rounds(self, attack: BaseAttack, model: ModelKind) -> dict[str, Curve]:
        seen = self.history.get((attack.name, model), {})
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
        if self.right is None and self.task and self.task.classes and self.released is not None:
            rows = self.game.candidates.rows
            outputs = self.task.outputs(self.released, rows.x)
            answered = ~np.isnan(outputs).any(axis=1)
            if answered.any():  # NaN is no answer; a model without any has no accuracy
                self.right = (outputs.argmax(axis=1) == rows.y) & answered
        if self.right is None:
            return {}
        found, subject = {}, self.game.candidates.subject_number
        for name, role in (("members", Role.MEMBER), ("evaluation", Role.EVALUATION)):
            mine = self.game.truth.mask(role)
            whose = None if subject is None else subject[mine]
            found[name] = proportion([self.right[mine]], [whose], self.settings.confidence)
        return found

    def score_parts(self) -> Iterator[dict[str, Any]]:
        """Every candidate's score with its role, one attack and model at a time: all at once would not be small."""
        for panel in (self.everyone, *self.each.values()):
            for attack in self.alive(panel.model):
                judged = panel.judged(attack)
                with self._blamed_on(attack.name):
                    yield {
                        "id": panel.id[judged],
                        "subject": None if panel.subject is None else panel.subject[judged],
                        "party": panel.party[judged],
                        "role": panel.role[judged],
                        "attack": attack.name,
                        "model": panel.model,
                        "score": panel.scores(attack)[judged],
                        "reference": panel.reference[judged] & attack.fits,
                    }

    def score_table(self) -> dict[str, list[object]]:
        """All of `score_parts` as plain lists."""
        table: dict[str, list[object]] = {}
        for part in self.score_parts():
            for name, values in part.items():
                column = values.tolist() if isinstance(values, np.ndarray) else [values] * len(part["id"])
                table.setdefault(name, []).extend(column)
        return table


def audit(task: Task, rounds: Iterable[Round], game: Game, settings: Settings) -> Audit:
    """A whole audit in one call."""
    auditor = Auditor(task, game, settings)
    for round in rounds:
        auditor.observe(round)
    return auditor.finish()


def shadow_panel(settings: Settings) -> Panel | None:
    """The adversary's own records, if an attack learns from them."""
    learning = [attack for attack in settings.attacks if attack.learns]
    if settings.shadow is None or not learning:
        return None
    own = settings.shadow.game
    return Panel("local", np.arange(len(own.candidates)), own, learning)
