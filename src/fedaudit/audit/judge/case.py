"""What every judge gets: the game with its truth, the settings, and the scores after the rounds so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.audit.collect import Sight, say
from fedaudit.audit.panels import Panels
from fedaudit.audit.patience import patience
from fedaudit.audit.score import Scores
from fedaudit.audit.settings import Settings
from fedaudit.stats import Block, auc, decisions, needed_for_value, tpr_at_fpr
from fedaudit.types import AuditResult, Estimate, Game, ModelKind, Vantage

Estimates = dict[str, Estimate]
# By vantage, attack and model: the estimates of the primary attack after each round.
History = Mapping[tuple[str, str, str], Mapping[int, Estimates]]


@dataclass(frozen=True)
class Verdict:
    """The results of a judge, and sentences that go with them."""

    results: Sequence[AuditResult] = ()
    notices: Sequence[str] = ()


@dataclass
class Case:
    game: Game
    settings: Settings
    panels: Panels
    scores: Scores
    fprs: tuple[float, ...]
    round: int
    history: History = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # attacks without a result, and why

    def alive(self, vantage: Vantage, model: ModelKind) -> list[BaseAttack]:
        return [attack for attack in self.settings.on(vantage, model) if attack.name not in self.failed]

    def primary(self, vantage: Vantage) -> BaseAttack | None:
        return self.settings.primary(vantage, self.failed)

    @contextmanager
    def blamed_on(self, name: str) -> Iterator[None]:
        """If the block raises or hangs, this attack is marked as failed; the others continue."""
        try:
            with patience():
                yield
        except Exception as error:
            self.failed.setdefault(name, say(error))

    def pooled(self, attack: BaseAttack, sights: Sequence[Sight], confidence: float) -> Estimates:
        return estimates(self.scores.blocks(sights, attack), self.fprs, confidence)

    def decided(
        self, attack: BaseAttack, sights: Sequence[Sight], confidence: float, party: str | None = None
    ) -> Estimates:
        """Accuracy, precision and recall, for an attack that has fixed a threshold on records of its own."""
        if not attack.taught:
            return {}
        blocks = self.scores.blocks(sights, attack, party)
        return decisions(blocks, self.scores.threshold(sights, attack), confidence)


def estimates(blocks: Sequence[Block], fprs: Sequence[float], confidence: float) -> Estimates:
    """The AUC, and the TPR at each FPR. Parties with too few records to calibrate an FPR are left out of its TPR."""
    found = [auc(blocks, confidence), *(_tpr(blocks, fpr, confidence) for fpr in fprs)]
    return {estimate.name: estimate for estimate in found}


def _tpr(blocks: Sequence[Block], fpr: float, confidence: float) -> Estimate:
    able = [block for block in blocks if len(block.calibration) >= needed_for_value(fpr)]
    if not able or len(able) == len(blocks):
        return tpr_at_fpr(blocks, fpr, confidence)
    found = tpr_at_fpr(able, fpr, confidence)
    left_out = f"{len(blocks) - len(able)} of {len(blocks)} parties left out: too few records to calibrate this rate"
    return replace(found, method=f"{found.method}; {left_out}")
