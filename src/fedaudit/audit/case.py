"""What every judge gets: the game with its truth, the settings, and the scores after the rounds so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.audit.collect import Sight
from fedaudit.audit.outlooks import Outlooks
from fedaudit.audit.over_rounds import AUC, TPR, OverRounds
from fedaudit.audit.patience import patience
from fedaudit.audit.score import Scores
from fedaudit.audit.settings import HEADLINE_FPR, Settings
from fedaudit.errors import OF_OTHERS, say
from fedaudit.questions import Question, named
from fedaudit.stats import Block, auc, decisions, pooled_tpr
from fedaudit.types import AuditResult, Cost, Curve, Estimate, Game, ModelKind, Notice, Vantage, as_notices
from fedaudit.words import with_warnings

Estimates = dict[str, Estimate]
# By vantage, attack and model: the primary attack over the rounds.
Bands = Mapping[tuple[str, str, str], OverRounds]

# By vantage, attack and model: the estimates after each round, of attacks beside the primary one after some.
History = Mapping[tuple[str, str, str], Mapping[int, Estimates]]


@dataclass
class Case:
    game: Game
    settings: Settings
    outlooks: Outlooks
    scores: Scores
    fprs: tuple[float, ...]
    round: int
    bands: Bands = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # attacks without a result, and why
    history: History = field(default_factory=dict)

    def parties(self, model: ModelKind) -> list[str]:
        """The parties with results of their own. Of people with records in several, global models tell no party."""
        return [] if model == "global" and self.game.candidates.held_by is not None else self.game.parties

    def alive(self, vantage: Vantage, model: ModelKind) -> list[BaseAttack]:
        return [attack for attack in self.settings.on(vantage, model) if attack.name not in self.failed]

    def primary(self, vantage: Vantage) -> BaseAttack | None:
        return self.settings.primary(vantage, self.failed)

    @contextmanager
    def blamed_on(self, name: str, failed: dict[str, str] | None = None) -> Iterator[None]:
        """If the block raises or hangs, this attack is marked as failed; the others continue. `failed`: where that is
        marked, if not for the whole case."""
        try:
            with patience():
                yield
        except OF_OTHERS as error:
            (self.failed if failed is None else failed).setdefault(name, say(error))

    def new_band(self) -> OverRounds:
        names = [AUC, *([TPR] if HEADLINE_FPR in self.fprs else [])]
        return OverRounds(self.game, self.settings.rounds, self.settings.confidence, names)

    def beside(self, attack: BaseAttack, sights: Sequence[Sight], confidence: float | None = None) -> Estimates:
        """What other questions say of an attack on membership."""
        found: Estimates = {}
        for name in self.settings.asked:
            found |= named(name).beside(self, attack, sights, confidence)
        return found

    def result(
        self,
        name: str,
        vantage: Vantage,
        model: ModelKind,
        estimates: Mapping[str, Estimate],
        *,
        question: Question,
        party: str | None = None,
        seconds: float = 0.0,
        curves: Mapping[str, Curve] | None = None,
        warnings: Sequence[Notice | str] = (),
    ) -> AuditResult:
        """A result of a question that looks for itself; `seconds`: what its looking took."""
        cost = Cost(seconds / self.outlooks.unit())
        place = (name, vantage.value, model, question.unit, party)
        found = AuditResult(*place, self.round, dict(estimates), cost, question=question.name)
        return with_warnings(replace(found, curves=dict(curves or {})), as_notices(warnings, "warning"))

    def pooled(self, attack: BaseAttack, sights: Sequence[Sight], confidence: float) -> Estimates:
        return estimates(self.scores.blocks(sights, attack), self.fprs, confidence)

    def decided(
        self, attack: BaseAttack, sights: Sequence[Sight], confidence: float, party: str | None = None
    ) -> Estimates:
        """Accuracy, precision and recall, for an attack that has fixed a threshold on records of its own."""
        if "own" not in attack.fitted_on:
            return {}
        blocks = self.scores.blocks(sights, attack, party)
        return decisions(blocks, self.scores.threshold(sights, attack), confidence)


def estimates(blocks: Sequence[Block], fprs: Sequence[float], confidence: float) -> Estimates:
    """The AUC, and the TPR at each FPR. Parties with too few records to calibrate an FPR are left out of its TPR."""
    found = [auc(blocks, confidence), *(pooled_tpr(blocks, fpr, confidence) for fpr in fprs)]
    return {estimate.name: estimate for estimate in found}
