"""What every judge gets: the game with its truth, the settings, the scores after the rounds so far, and the curves of
the primary attacks over the rounds, with bands that hold for all rounds together (see `stats.bands`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.audit.collect import Sight
from fedaudit.audit.outlooks import Outlooks
from fedaudit.audit.patience import patience
from fedaudit.audit.score import Scores
from fedaudit.audit.settings import HEADLINE_FPR, Settings
from fedaudit.errors import OF_OTHERS, say
from fedaudit.questions import Question, named
from fedaudit.stats import Band, Block, auc, decisions, tpr_at_fpr
from fedaudit.stats.intervals import of_units
from fedaudit.stats.paired import (
    Influence,
    accuracy_influence,
    auc_influence,
    ends_of_difference,
    on_units,
    tpr_influence,
)
from fedaudit.stats.roc import estimates
from fedaudit.stats.wording import fpr_of
from fedaudit.types import (
    AuditResult,
    Cost,
    Curve,
    Estimate,
    Game,
    ModelKind,
    Notice,
    Stored,
    UnitErrors,
    Vantage,
    as_notices,
    warning,
)
from fedaudit.words import with_warnings

Estimates = dict[str, Estimate]
AUC, TPR = "auc", f"tpr@{HEADLINE_FPR:g}"
METHOD = "simultaneous over {} planned rounds, widened as far as the correlation of their errors requires"
Ends = tuple[float | None, float | None, float | None]  # value, low, high


@dataclass
class Case:
    game: Game
    settings: Settings
    outlooks: Outlooks
    _: KW_ONLY
    scores: Scores
    fprs: tuple[float, ...]
    round: int
    # By vantage, attack and model: the primary attack over the rounds.
    bands: Mapping[tuple[str, str, str], OverRounds] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # attacks without a result, and why
    # By vantage, attack and model: the estimates after each round, of attacks beside the primary one after some.
    history: Mapping[tuple[str, str, str], Mapping[int, Estimates]] = field(default_factory=dict)

    def parties(self, model: ModelKind) -> list[str]:
        """The parties with results of their own. Of people who are scattered over them, global models tell no party."""
        homes = set(self.game.candidates.party.tolist())
        return [party for party in self.game.parties if model == "local" or party in homes]

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
        settings = self.settings
        return OverRounds(self.game, settings.followed, settings.confidence, names, settings.rounds)

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
        found = AuditResult(*place, round=self.round, estimates=dict(estimates), cost=cost, question=question.name)
        return with_warnings(replace(found, curves=dict(curves or {})), as_notices(warnings, "warning"))

    def pooled(self, attack: BaseAttack, sights: Sequence[Sight], confidence: float) -> Estimates:
        blocks, absent = self.scores.blocks(sights, attack), self.scores.absent(sights, attack)
        return estimates(blocks, self.fprs, confidence, absent)

    def decided(
        self, attack: BaseAttack, sights: Sequence[Sight], confidence: float, party: str | None = None
    ) -> Estimates:
        """Accuracy, precision, recall and F1, for an attack that has fixed a threshold on records of its own."""
        if not {"own", "shadow"} & set(attack.fitted_on):
            return {}
        blocks = self.scores.blocks(sights, attack, party)
        return decisions(blocks, self.scores.threshold(sights, attack), confidence)

    def decided_errors(self, attack: BaseAttack, sights: Sequence[Sight]) -> dict[str, UnitErrors]:
        """What each record, or person, adds to the error of the accuracy."""
        threshold = self.scores.threshold(sights, attack) if {"own", "shadow"} & set(attack.fitted_on) else None
        blocks, candidates = self.scores.blocks(sights, attack), self.game.candidates
        if threshold is None or not blocks:
            return {}
        who = candidates.id if candidates.subject is None else candidates.subject
        names = [who[part] for block in blocks for part in block.ids or ()]
        influence = accuracy_influence(blocks, threshold)
        return {"accuracy": of_units(names, [part for own in influence for part in own])}


def below_chance(attack: str, blocks: Sequence[Block], found: Estimate, looked_at: int) -> list[Notice]:
    """A warning if a score is worse than guessing. The score is never flipped.

    The error is shared among all results: of forty results at chance, one interval lies below 0.5 at 95 %.
    """
    if found.high is None or found.high >= 0.5:
        return []
    high = auc(blocks, 1 - (1 - found.confidence) / looked_at).high
    if high is None or high >= 0.5:
        return []
    # Without the number, which is shown anyway, so that the report can merge the alarms of many parties.
    return [warning("below-chance", attack=attack)]


def fpr_missed(attack: str, found: Mapping[str, Estimate]) -> list[Notice]:
    """A warning for each rate at which far more outsiders were accused than was asked, or far fewer. How many is not
    said, so that the warnings of many parties are one."""
    codes = {"more": "fpr-missed", "fewer": "fpr-undershot"}
    rates = {fpr: tpr.doubt for name, tpr in found.items() if tpr.doubt and (fpr := fpr_of(name)) is not None}
    return [warning(codes[doubt], attack=attack, fpr=100 * fpr) for fpr, doubt in rates.items()]


def figure(estimate: Estimate) -> dict[str, float | None]:
    """An estimate as the data of a notice."""
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


# ------------------------------------------------------------------ over the rounds


@dataclass
class Measure:
    """One estimate over the rounds."""

    band: Band
    rounds: list[int] = field(default_factory=list)
    ends: list[Ends] = field(default_factory=list)
    widened: list[int] = field(default_factory=list)  # rounds that have a place in the band, in its order
    doubted: list[int] = field(default_factory=list)  # rounds whose value is one at another rate


@dataclass(frozen=True)
class ChangeOverRounds:
    """Round against round. Both ends belong to the band, so that the change holds with all else that it says."""

    first: int
    last: int
    value: float
    low: float
    high: float


class OverRounds:
    """Of one attack on one kind of model. A round's band is settled when the round is seen."""

    def __init__(self, game: Game, planned: int, confidence: float, names: Sequence[str], of: int | None = None):
        """`planned`: the rounds that are looked at, `of` so many in all."""
        whose = game.candidates.subject_number
        self.units = len(game.candidates) if whose is None else int(whose.max(initial=-1)) + 1
        self.over = f"{planned}" if of in (None, planned) else f"{planned} of {of}"
        self.measures = {name: Measure(Band(planned, confidence)) for name in names}

    def add(self, round: int, blocks: Sequence[Block], found: Mapping[str, Estimate]) -> None:
        """`found`: the estimates on these blocks, at whichever confidence. One without an interval is a gap."""
        for name, measure in self.measures.items():
            own = found[name]
            if own.low is not None:
                influence, on = _influence(name, blocks)
                own = _estimate(name, blocks, measure.band.add(on_units(influence, on, self.units)))
                measure.widened.append(round)
            if own.doubt:
                measure.doubted.append(round)
            measure.rounds.append(round)
            measure.ends.append((own.value, own.low, own.high))

    def at(self, round: int) -> dict[str, Ends]:
        """By estimate: what was found after this round, if it is the newest."""
        return {n: one.ends[-1] for n, one in self.measures.items() if one.rounds and one.rounds[-1] == round}

    def curves(self) -> dict[str, Curve]:
        method = METHOD.format(self.over)
        found = {}
        for name, measure in self.measures.items():
            if measure.rounds:
                values, lows, highs = (list(part) for part in zip(*measure.ends, strict=True))
                rounds = [float(round) for round in measure.rounds]
                found[name] = Curve(rounds, values, lows, highs, method, simultaneous=True)
        return found

    def change(self, name: str) -> ChangeOverRounds | None:
        """The last round that has an interval minus the first, on the same records; None where there is one at most, or
        where either is doubted."""
        measure = self.measures.get(name)
        if measure is None or len(measure.widened) < 2 or len(measure.band.units) < len(measure.widened):
            return None
        first, last = measure.widened[0], measure.widened[-1]
        if {first, last} & set(measure.doubted):
            return None
        old, new = (_whole(measure.ends[measure.rounds.index(round)]) for round in (first, last))
        low, high = ends_of_difference(new, old, measure.band.correlation(0, len(measure.widened) - 1))
        return ChangeOverRounds(first, last, new[0] - old[0], low, high)

    # ------------------------------------------------------------------ between two rounds

    def state(self) -> Stored:
        return {
            name: {
                "band": measure.band.state(),
                "rounds": list(measure.rounds),
                "ends": [list(ends) for ends in measure.ends],
                "widened": list(measure.widened),
                "doubted": list(measure.doubted),
            }
            for name, measure in self.measures.items()
        }

    def restore(self, state: Stored) -> None:
        for name, measure in self.measures.items():
            kept: Mapping[str, list[int]] = state[name]
            measure.band.restore(state[name]["band"])
            measure.rounds[:], measure.widened[:] = kept["rounds"], kept["widened"]
            measure.doubted[:] = kept.get("doubted", ())  # former versions kept none
            measure.ends[:] = [(value, low, high) for value, low, high in state[name]["ends"]]


def _whole(ends: Ends) -> tuple[float, float, float]:
    value, low, high = ends
    assert value is not None
    assert low is not None
    assert high is not None
    return value, low, high


def _estimate(name: str, blocks: Sequence[Block], confidence: float) -> Estimate:
    return auc(blocks, confidence) if name == AUC else tpr_at_fpr(blocks, HEADLINE_FPR, confidence, prove=False)


def _influence(name: str, blocks: Sequence[Block]) -> tuple[Influence, Sequence[Block]]:
    if name == AUC:
        return auc_influence(blocks), blocks
    return tpr_influence(blocks, HEADLINE_FPR), blocks
