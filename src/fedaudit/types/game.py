"""What one adversary sees, what it is asked about, who was trained on, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.types.notices import Notice
from fedaudit.types.world import Bools, Ints, Moment, Records, Strings, Unit


class Vantage(StrEnum):
    """Where an adversary stands, and so what it can see."""

    OUTSIDER = "outsider"
    CLIENT = "client"
    LABEL_ONLY_CLIENT = "label-only-client"
    SECAGG_SERVER = "secagg-server"
    SERVER = "server"


class Grant(StrEnum):
    """Something that a view may give access to. A view refuses everything else."""

    LABELS = "labels"
    OUTPUTS = "outputs"
    WEIGHTS = "weights"
    UPDATE = "update"
    OWN = "own-update"
    EVERY_ROUND = "every-round"
    SUM = "noisy-sum"


# ------------------------------------------------------------------ the game


@dataclass(frozen=True)
class Candidates:
    """What the adversary asks about. Row i belongs to candidate `owner[i]`; for records the two are the same.

    `at`: which candidates exist at a given moment, if some come and go (canaries). At all other moments, all exist.
    """

    unit: Unit
    id: Strings
    party: Strings
    rows: Records
    owner: Ints
    subject: Strings | None = None  # groups whose members are not independent (intervals, blind)
    at: Mapping[Moment, Bools] = field(default_factory=dict)
    # By party, which candidates it holds records of, where one may lie in several. `party` is then the same for all.
    held_by: Mapping[str, Bools] | None = None

    def __len__(self) -> int:
        return len(self.id)

    @cached_property
    def subject_number(self) -> Ints | None:
        """Subjects as numbers, which are faster to group by than names."""
        return None if self.subject is None else np.unique(self.subject, return_inverse=True)[1]

    def of_party(self, party: str) -> Ints:
        return np.flatnonzero(self.party == party if self.held_by is None else self.held_by[party])

    def present(self, moment: Moment) -> Bools:
        return self.at[moment] if moment in self.at else np.ones(len(self), bool)


class Role(StrEnum):
    """The three disjoint sets: trained on; not trained on, to report on; not trained on, to set thresholds."""

    MEMBER = "member"
    EVALUATION = "evaluation"
    CALIBRATION = "calibration"


@dataclass(frozen=True)
class Truth:
    """Who is a member, by candidate id. Only the auditor has it; federation and attacks never receive it."""

    id: Strings
    role: Strings  # values of Role
    at: Mapping[Moment, Strings] = field(default_factory=dict)  # roles at moments where they differ from `role`

    def roles(self, moment: Moment | None = None) -> Strings:
        """The roles at a moment, or, without one, in the training as a whole."""
        return self.role if moment is None else self.at.get(moment, self.role)

    def mask(self, role: Role, moment: Moment | None = None) -> Bools:
        return np.asarray(self.roles(moment) == role.value)


@dataclass(frozen=True)
class TrainedRecords:
    """Records that are trained on, and by which party."""

    rows: Records
    party: Strings


@dataclass(frozen=True)
class Game:
    """`training`: what the parties train on, where that is not the members' rows themselves: an adversary who asks
    about people may have other records of theirs."""

    candidates: Candidates
    truth: Truth
    training: TrainedRecords | None = None

    def members(self, party: str) -> Records:
        """The records that an honest party trains on."""
        if self.training is not None:
            return self.training.rows.take(self.training.party == party)
        return self.candidates.rows.take(self._trained_on(party))

    def size(self, party: str) -> int:
        """How many records a party trains on."""
        mine = self._trained_on(party) if self.training is None else self.training.party == party
        return int(np.count_nonzero(mine))

    def _trained_on(self, party: str) -> Bools:
        return np.asarray((self.candidates.party == party) & self.truth.mask(Role.MEMBER))

    @property
    def parties(self) -> list[str]:
        return sorted(set((self.training or self.candidates).party.tolist()))

    @property
    def first(self) -> str:
        """The party that attacks the others, in attacks by a party."""
        return self.parties[0]

    def of_first(self) -> Bools:
        """Which candidates are the first party's own: it has records of them, be it the only one or one of several."""
        own = np.zeros(len(self.candidates), bool)
        own[self.candidates.of_party(self.first)] = True
        return own

    def seen_by(self, party: str) -> Game:
        """The same game where all candidates count as this party's: of people with records in several."""
        mine = np.full(len(self.candidates), party)
        return replace(self, candidates=replace(self.candidates, party=mine, held_by=None))


# ------------------------------------------------------------------ what was measured


# What an audit stores between two rounds: arrays and plain values, nested by name. Nothing executable.
Stored = Mapping[str, Any]

# A run that an earlier version recorded does not say what its seconds were spent on: all that the attacks shared, and
# gradients and searches together.
UNDIVIDED, APART = "undivided", "gradients and searches"


@dataclass(frozen=True)
class Measured:
    """The signals of one model in one round: one value (or a few) for each row, with the rows' ids; and the cost.

    `spent` divides `seconds` by what they were spent on, as `audit.costs` names it.
    """

    id: Strings
    values: Mapping[str, NDArray[Any]]
    seconds: float
    epoch_seconds: float  # how long one epoch of the audited training took
    failed: Mapping[str, Notice] = field(default_factory=dict)  # signals that could not be computed, and why
    unobserved: frozenset[str] = frozenset()  # signals of something that was not observed in this round
    layers: Mapping[str, str] = field(default_factory=dict)  # for signals of one layer, its name
    queries: int = 0  # how many records the model was asked about
    notes: tuple[Notice, ...] = ()  # problems that did not cost any value
    spent: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """Everything an audit measures in one round, by sight. The key None is the global model, seen by
    anybody who holds its weights; a party's name is its local model; a name in brackets is a vantage that gets other
    answers."""

    round: int
    of: Mapping[str | None, Measured]
    probe: int = 0

    @property
    def moment(self) -> Moment:
        return Moment(self.round, self.probe)
