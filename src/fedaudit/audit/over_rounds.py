"""The curve of an attack over the rounds, with a band that holds for all of them together (see `stats.bands`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedaudit.audit.settings import HEADLINE_FPR
from fedaudit.stats import Band, Block, auc, pooled_tpr
from fedaudit.stats.paired import Influence, auc_influence, ends_of_difference, on_units, tpr_influence
from fedaudit.stats.roc import able
from fedaudit.types import Curve, Estimate, Game, Stored

AUC, TPR = "auc", f"tpr@{HEADLINE_FPR:g}"
METHOD = "simultaneous over {} planned rounds, widened as far as the correlation of their errors requires"
Ends = tuple[float | None, float | None, float | None]  # value, low, high


@dataclass
class Measure:
    """One estimate over the rounds."""

    band: Band
    rounds: list[int] = field(default_factory=list)
    ends: list[Ends] = field(default_factory=list)
    widened: list[int] = field(default_factory=list)  # rounds that have a place in the band, in its order


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

    def __init__(self, game: Game, planned: int, confidence: float, names: Sequence[str]):
        whose = game.candidates.subject_number
        self.units = len(game.candidates) if whose is None else int(whose.max(initial=-1)) + 1
        self.planned = planned
        self.measures = {name: Measure(Band(planned, confidence)) for name in names}

    def add(self, round: int, blocks: Sequence[Block], found: Mapping[str, Estimate]) -> None:
        """`found`: the estimates on these blocks, at whichever confidence. One without an interval is a gap."""
        for name, measure in self.measures.items():
            own = found[name]
            if own.low is not None:
                influence, on = _influence(name, blocks)
                own = _estimate(name, blocks, measure.band.add(on_units(influence, on, self.units)))
                measure.widened.append(round)
            measure.rounds.append(round)
            measure.ends.append((own.value, own.low, own.high))

    def curves(self) -> dict[str, Curve]:
        method = METHOD.format(self.planned)
        found = {}
        for name, measure in self.measures.items():
            if measure.rounds:
                values, lows, highs = (list(part) for part in zip(*measure.ends, strict=True))
                rounds = [float(round) for round in measure.rounds]
                found[name] = Curve(rounds, values, lows, highs, method, simultaneous=True)
        return found

    def change(self, name: str) -> ChangeOverRounds | None:
        """The last round that has an interval minus the first, on the same records; None where there is one at most."""
        measure = self.measures.get(name)
        if measure is None or len(measure.widened) < 2 or len(measure.band.units) < len(measure.widened):
            return None
        first, last = measure.widened[0], measure.widened[-1]
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
            }
            for name, measure in self.measures.items()
        }

    def restore(self, state: Stored) -> None:
        for name, measure in self.measures.items():
            kept: Mapping[str, list[int]] = state[name]
            measure.band.restore(state[name]["band"])
            measure.rounds[:], measure.widened[:] = kept["rounds"], kept["widened"]
            measure.ends[:] = [(value, low, high) for value, low, high in state[name]["ends"]]


def _whole(ends: Ends) -> tuple[float, float, float]:
    value, low, high = ends
    assert value is not None
    assert low is not None
    assert high is not None
    return value, low, high


def _estimate(name: str, blocks: Sequence[Block], confidence: float) -> Estimate:
    return auc(blocks, confidence) if name == AUC else pooled_tpr(blocks, HEADLINE_FPR, confidence, prove=False)


def _influence(name: str, blocks: Sequence[Block]) -> tuple[Influence, Sequence[Block]]:
    if name == AUC:
        return auc_influence(blocks), blocks
    kept = able(blocks, HEADLINE_FPR)
    return tpr_influence(kept, HEADLINE_FPR), kept
