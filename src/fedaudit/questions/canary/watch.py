"""Canaries in an audit: what is measured of them at each moment, and what is kept.

Adversary: whoever sees the sum of the updates, secure aggregation and noise included, and has a party of its own. Which
canaries were present is the auditor's knowledge, and comes in when the scores are judged.

canife (Maddock, Sablayrolles, Stock: "CANIFE: Crafting canaries for empirical privacy measurement in federated
learning", ICLR 2023)
1. The canary's update u_c is known: its record was crafted for this model, and training on it is no secret.
2. The score of a sum is <sum, u_c> / C^2: about 1 with the canary and 0 without; noise sigma C spreads both by sigma.

one-shot (Andrew, Kairouz, Oh, Oprea, McMahan, Suriyakumar: "One-shot empirical privacy estimation for federated
learning", ICLR 2024)
1. Each canary is a random direction c of norm 1, sent with norm C in every round in which it takes part.
2. The score is the cosine of c and a change of the model: of each round (the largest counts), or from the first model
   to the last. A direction that was never sent has (1 + cosine) / 2 ~ Beta((d - 1) / 2, (d - 1) / 2), whatever the
   model does: nearly N(0, 1/d).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.reductions import Kept
from fedaudit.adversary.vantage import View, look
from fedaudit.audit.costs import timed
from fedaudit.audit.observer import Asked, Shown
from fedaudit.questions import Verdict
from fedaudit.questions.canary.vectors import float_names, vector
from fedaudit.types import Bools, Exhibit, Floats, Measured, ModelKind, Moment, Records, Round, State, Strings, Vantage

if TYPE_CHECKING:
    from fedaudit.audit.case import Case
    from fedaudit.privacy.statement import Process
    from fedaudit.questions.canary.parties import Canaries

CRAFTED, RANDOM = "(canife)", "(one-shot)"  # keys in an observation, beside the parties' names
ALIVE = 0.5  # a canary whose update is shorter than this share of the clip norm is dead
SHOWN = 4096  # values of a canary that are kept, to show it

SCORE, NORM, HEALTH, SPREAD = "canary-score", "canary-norm", "canary-health", "canary-spread"
RECORD, SHAPE, LABEL = "canary-record", "canary-shape", "canary-label"  # of what was crafted, to show it
ROUND_COSINE, TOTAL_COSINE = "cosine-round", "cosine-total"


@dataclass(frozen=True)
class Mechanism:
    """What is publicly known of the mechanism, and what it promises; without noise it promises nothing."""

    delta: float
    clip: float | None = None
    denominator: float | None = None  # of the noisy sum; None: a mean weighted by examples
    process: Process | None = None


@dataclass(frozen=True)
class TableColumns:
    """Of a table with which canaries are crafted: the names as far as they are known, the means and the spreads."""

    names: tuple[str, ...]
    mean: Floats
    spread: Floats


@dataclass(frozen=True, kw_only=True)
class CraftedCanaries:
    """Crafted canaries: who makes them, who is present when, and how one is shown."""

    names: Strings
    present: Mapping[Moment, Bools]
    fair: bool  # each presence by a coin of its own; else half of the probes after each stop
    parties: float  # expected in a round
    canaries: Canaries | None = None  # None: only what was stored is judged
    vocabulary: tuple[str, ...] = ()
    columns: TableColumns | None = None  # None: no table
    of_a_record: bool = False  # crafting starts from one, so that the canary may still be recognised as it


@dataclass(frozen=True)
class RandomCanaries:
    """Random canaries: which were included, by fair coins."""

    names: Strings
    included: Bools
    size: int  # parameters
    start: State | None = None  # the first model
    directions: Callable[[], Floats] | None = None


@dataclass(frozen=True, kw_only=True)
class CanaryGame(Asked):
    """Without a claim, it says only that canaries are asked for: they are planned when the task is known."""

    claim: Mechanism | None = None
    crafted: CraftedCanaries | None = None
    random: RandomCanaries | None = None


class CanaryScores(Kept):
    """The scores of canaries, moment by moment."""

    def __init__(self) -> None:
        self.round: Floats = np.empty(0)
        self.probe: Floats = np.empty(0)
        self.values: Floats = np.empty((0, 0, 0))  # moments x canaries x measures
        self.record: NDArray[Any] = np.empty(0)  # of the first canary, as it was crafted last
        self.shape: NDArray[Any] = np.empty(0, np.int64)
        self.label: NDArray[Any] = np.empty(0)
        self.seconds = 0.0

    def add(self, moment: Moment, measured: Measured, names: Strings, measures: tuple[str, ...]) -> None:
        order = [measured.id.tolist().index(name) for name in names.tolist()]
        row = np.stack([measured.values[name].astype(np.float64)[order] for name in measures], axis=1)[None]
        self.values = np.concatenate([self.values, row]) if len(self.values) else row
        self.round = np.append(self.round, float(moment.round))
        self.probe = np.append(self.probe, float(moment.probe))
        if RECORD in measured.values:
            first = (np.asarray(measured.values[name][order[0]]) for name in (RECORD, SHAPE, LABEL))
            self.record, self.shape, self.label = first
        self.seconds += measured.seconds

    def moments(self) -> list[Moment]:
        return [Moment(int(r), int(p)) for r, p in zip(self.round, self.probe, strict=True)]


MEASURES = {CRAFTED: (SCORE, NORM, HEALTH, SPREAD), RANDOM: (ROUND_COSINE, TOTAL_COSINE)}


@dataclass
class CanaryWatch:
    """Beside the sights of the records: what is seen of canaries."""

    game: CanaryGame
    kept: dict[str, CanaryScores] = field(default_factory=lambda: {CRAFTED: CanaryScores(), RANDOM: CanaryScores()})

    def measure(self, shown: Shown) -> dict[str | None, Measured]:
        """What a round shows of the canaries that it is asked about. Changes nothing that is kept."""
        round, task = shown.round, shown.task
        found: dict[str | None, Measured] = {}
        crafted, random = self.game.crafted, self.game.random
        if crafted and crafted.canaries and round.moment in crafted.present:
            found[CRAFTED] = self._crafted(crafted, round, task)
        if random and random.directions and random.start is not None and not round.probe and round.commit:
            found[RANDOM] = self._random(random, round, task)
        return {key: one for key, one in found.items() if one.values}

    def _crafted(self, crafted: CraftedCanaries, round: Round, task: Any) -> Measured:
        assert crafted.canaries is not None
        planted = crafted.canaries.at(task, round.broadcast)
        first = round.probe == 1  # the other probes of the same model meet the same canaries
        epochs = sum(trained.epoch_seconds for trained in round.sent.values())
        spent = {"crafting": planted.seconds if first else 0.0, "looking": 0.0}
        if not crafted.fair:  # what is trained for a probe is thrown away
            spent["probes"] = epochs * crafted.canaries.design.training.epochs
        values: dict[str, Any] = {}
        with timed(spent, "looking"):
            (view,) = look(Vantage.SECAGG_SERVER, "global", round, task)
            total = summed(view, task.exchanged, self._denominator(round))
            if total is not None:
                scores = canife_scores(total, planted.updates, planted.unit)
                scores = np.where(planted.norm >= ALIVE, scores, np.nan)
                values = {SCORE: scores, NORM: planted.norm, HEALTH: planted.health, SPREAD: planted.spread}
        if values and first and not crafted.of_a_record:
            values |= _to_show(planted.records)
        return Measured(crafted.names, values, sum(spent.values()), epochs, spent=spent)

    def _random(self, random: RandomCanaries, round: Round, task: Any) -> Measured:
        assert random.directions is not None
        assert random.start is not None
        values: dict[str, Any] = {}
        spent: dict[str, float] = {}
        with timed(spent, "looking"):
            units = random.directions()
            (view,) = look(Vantage.SECAGG_SERVER, "global", round, task)
            order = float_names(round.broadcast)
            if (change := summed(view, order, 1.0)) is not None:
                whole = np.concatenate([
                    (random.start[name].astype(np.float64) - view.weights[name]).ravel() for name in order
                ])  # fmt: skip
                values = {ROUND_COSINE: cosines(change, units), TOTAL_COSINE: cosines(whole, units)}
        epochs = sum(trained.epoch_seconds for trained in round.sent.values())
        return Measured(random.names, values, sum(spent.values()), epochs, spent=spent)

    def _denominator(self, round: Round) -> float:
        """By what the mean must be multiplied to have the sum in which a canary counts once."""
        assert self.game.claim is not None
        known = self.game.claim.denominator
        return known if known is not None else float(sum(trained.examples for trained in round.sent.values()))

    def absorb(self, moment: Moment, of: Mapping[str | None, Measured]) -> dict[str | None, Measured]:
        """Keeps what was measured of canaries, and returns it."""
        names = {CRAFTED: self.game.crafted, RANDOM: self.game.random}
        for key, game in names.items():
            if game is not None and key in of:
                self.kept[key].add(moment, of[key], game.names, MEASURES[key])
        return {key: of[key] for key in names if key in of}

    def judge(self, case: Case, name: str, vantage: Vantage, model: ModelKind) -> Verdict:
        from fedaudit.questions.canary.judge import crafted, random

        return (crafted if name == "canife" else random)(case, self, vantage, model)

    @property
    def exhibit(self) -> Exhibit | None:
        """The first canary, as it was crafted last, unless it would show somebody's record."""
        crafted, kept = self.game.crafted, self.kept[CRAFTED]
        if crafted is None or crafted.of_a_record or not kept.record.size:
            return None
        if kept.record.dtype.kind in "iu":
            words, tokens = crafted.vocabulary, [*kept.record.tolist(), int(kept.label)]
            text = "".join(words[t] if t < len(words) else f"<{t}>" for t in tokens)
            return Exhibit("text", [], [], text, "")
        values = [round(float(v), 4) for v in kept.record.tolist()]
        shown = kept.shape.tolist(), values, "", str(kept.label)
        picture = len(kept.shape) == 3 and int(kept.shape.prod()) <= SHOWN
        if crafted.columns is not None:
            return _row(crafted.columns, kept.record, *shown)
        return Exhibit("image", *shown) if picture else Exhibit("values", *shown)

    def state(self) -> dict[str, Any]:
        return {key: watch.state() for key, watch in self.kept.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        for key, watch in self.kept.items():
            watch.restore(state[key])


def _row(columns: TableColumns, record: NDArray[Any], *shown: Any) -> Exhibit:
    """A row of a table, with how unusual each of its values is."""
    mean, spread = (of[: len(record)] for of in (columns.mean, columns.spread))
    deviations = [round(float(z), 2) for z in (record - mean) / spread]
    return Exhibit("values", *shown, names=columns.names[: len(record)], deviations=deviations)


def _to_show(records: Records) -> dict[str, NDArray[Any]]:
    """Of each canary: its first values (or tokens), the shape they have together, and its label (or last token)."""
    count, shape = len(records), np.array(records.x.shape[1:])
    return {
        RECORD: records.x.reshape(count, -1)[:, :SHOWN],
        SHAPE: np.tile(shape, (count, 1)),
        LABEL: records.y.reshape(count, -1)[:, -1],
    }


# ------------------------------------------------------------------ the scores


def summed(view: View, order: list[str], denominator: float) -> Floats | None:
    """The noisy sum as a descent direction, in one vector; None where the start of the round was not observed."""
    change = view.update
    if change is None:
        return None
    return denominator * vector(change, order)


def canife_scores(total: Floats, updates: Floats, unit: Floats) -> Floats:
    """<sum, u_c> / C^2 for each canary (row of `updates`); `unit` is C."""
    return np.asarray(updates @ total / unit**2)


def cosines(change: Floats, directions: Floats) -> Floats:
    """Of each direction (a row of norm 1) with a change of the model; 0 where the model did not change."""
    length = float(np.linalg.norm(change))
    return np.asarray(directions @ change / length) if length > 0 else np.zeros(len(directions))
