"""How members and others move over the rounds, as a picture: a few numbers a round, none of them about one candidate.

After each round, of all members and of all others: the median and the quartiles of the confidence in their labels. And
how far their means lie apart, with an interval that holds for all rounds together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import special

from fedaudit.audit.collect import Sight, gather, in_order
from fedaudit.types import Curve, Floats, Ints, Measured, ModelKind, Role, Stored, Trajectory

SIGNAL = "confidence"
LEAST = 10  # people on each side: a quartile of fewer is nearly somebody's own value
SIDES = ((Role.MEMBER,), (Role.EVALUATION, Role.CALIBRATION))
HALF = "median and quartiles: the middle half of them lies between"
APART = (
    "difference of means, errors added up by person or record, Student's t; simultaneous over {} planned rounds and "
    "both kinds of models (Bonferroni)"
)


@dataclass(frozen=True)
class OneSide:
    """The values of members, or of others, and whose each is: a person's, or a record's own."""

    values: Floats
    whose: Ints

    @property
    def people(self) -> int:
        return len(np.unique(self.whose))

    @property
    def quartiles(self) -> list[float]:
        found: list[float] = np.quantile(self.values, (0.25, 0.5, 0.75)).tolist()
        return found

    @property
    def pull(self) -> Floats:
        """What each value adds to the error of the mean."""
        return np.asarray((self.values - self.values.mean()) / len(self.values))


@dataclass
class Followed:
    """One kind of models. Of each round: three quartiles of either side, and the difference with its ends."""

    rounds: list[int] = field(default_factory=list)
    members: list[list[float]] = field(default_factory=list)
    others: list[list[float]] = field(default_factory=list)
    apart: list[list[float]] = field(default_factory=list)
    fewest: list[int] = field(default_factory=list)  # members and others, in the round with the fewest

    def add(self, round: int, members: OneSide, others: OneSide, confidence: float) -> None:
        sizes = [len(members.values), len(others.values)]
        self.fewest = [min(a, b) for a, b in zip(self.fewest or sizes, sizes, strict=True)]
        self.rounds.append(round)
        self.members.append(members.quartiles)
        self.others.append(others.quartiles)
        self.apart.append(difference(members, others, confidence))


class Trajectories:
    """`planned`: the rounds that are looked at."""

    def __init__(self, planned: int, confidence: float):
        self.planned, self.confidence = planned, confidence
        self.of_each = 1 - (1 - confidence) / (2 * max(planned, 1))  # of one round under one kind of models
        self.of: dict[ModelKind, Followed] = {}

    def add(self, round: int, model: ModelKind, seen: Iterable[tuple[Sight, Measured]]) -> None:
        """`seen`: the sights of one kind of models that were measured in this round."""
        followed = [(sight, _of_candidates(sight, measured)) for sight, measured in seen if SIGNAL in measured.values]
        if not followed:
            return
        members, others = (_side(followed, roles) for roles in SIDES)
        if min(members.people, others.people) >= LEAST:
            self.of.setdefault(model, Followed()).add(round, members, others, self.of_each)

    def found(self) -> list[Trajectory]:
        return [
            Trajectory(
                model=model,
                signal=SIGNAL,
                members=_curve(of.rounds, of.members, (1, 0, 2), HALF),
                others=_curve(of.rounds, of.others, (1, 0, 2), HALF),
                apart=_curve(of.rounds, of.apart, (0, 1, 2), APART.format(self.planned), simultaneous=True),
                confidence=self.confidence,
                fewest_members=of.fewest[0],
                fewest_others=of.fewest[1],
            )
            for model, of in self.of.items()
            if len(of.rounds) > 1
        ]

    # ------------------------------------------------------------------ between two rounds

    def state(self) -> Stored:
        return {model: {name: list(value) for name, value in vars(of).items()} for model, of in self.of.items()}

    def restore(self, state: Stored) -> None:
        kinds: tuple[ModelKind, ...] = ("global", "local")
        self.of = {model: Followed(**state[model]) for model in kinds if model in state}


def _of_candidates(sight: Sight, measured: Measured) -> Floats:
    values = np.asarray(in_order(measured, sight.row_ids)[SIGNAL], np.float64)
    return gather(values, sight.owner, len(sight.id), "mean")


def _side(followed: Sequence[tuple[Sight, Floats]], roles: Sequence[Role]) -> OneSide:
    values, whose = [], []
    for sight, of in followed:
        mine = np.logical_or.reduce([sight.of_role[role] for role in roles]) & np.isfinite(of)
        values.append(of[mine])
        whose.append((sight.index if sight.subject is None else sight.subject)[mine])
    return OneSide(np.concatenate(values), np.concatenate(whose))


def difference(members: OneSide, others: OneSide, confidence: float) -> list[float]:
    """Of the means, with its ends. What each value adds to the error is summed up by person, so that somebody with
    records on both sides moves both means together. Student's t, because those on the smaller side may be few."""
    whose = np.unique(np.concatenate([members.whose, others.whose]), return_inverse=True)[1]
    error = np.bincount(whose, np.concatenate([members.pull, -others.pull]))
    free = min(members.people, others.people) - 1
    half = float(special.stdtrit(free, (1 + confidence) / 2)) * math.sqrt(float(error @ error) * (free + 1) / free)
    value = float(members.values.mean() - others.values.mean())
    return [value, max(value - half, -1.0), min(value + half, 1.0)]


def _curve(rounds: list[int], rows: list[list[float]], at: tuple[int, int, int], method: str, **more: bool) -> Curve:
    value, low, high = ([row[place] for row in rows] for place in at)
    return Curve([float(round) for round in rounds], value, low, high, method, **more)
