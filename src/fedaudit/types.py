"""The words of fedaudit. Frozen dataclasses and small protocols; nothing here computes, nothing imports torch.

Data goes one way: federation -> trace -> vantage -> signals -> attacks -> statistics -> results -> report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Strings = NDArray[np.str_]

# A model's parameters and buffers by name. numpy, so that traces, Flower and the report need no torch.
State = Mapping[str, NDArray[Any]]

Unit = Literal["record", "subject", "user", "attribute"]
ModelKind = Literal["global", "local"]


# ------------------------------------------------------------------ who trains on what


@dataclass(frozen=True)
class Records:
    """Rows with stable ids, kept sorted by id: storage order can never change a result."""

    x: NDArray[Any]
    y: NDArray[Any]
    id: Strings
    subject: Strings | None = None
    attributes: Mapping[str, Ints] = field(default_factory=dict)  # -1 = unknown

    def __len__(self) -> int:
        return len(self.id)

    def take(self, index: Ints | Bools) -> Records:
        subject = None if self.subject is None else self.subject[index]
        attributes = {name: values[index] for name, values in self.attributes.items()}
        return Records(self.x[index], self.y[index], self.id[index], subject, attributes)


@dataclass(frozen=True)
class Dataset:
    """Records and what a model must know of them. `classes` is 0 for regression."""

    name: str
    records: Records
    classes: int

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.records.x.shape[1:])


@dataclass(frozen=True)
class Trained:
    """What leaves a party: its model, how many records stand behind it, and how long one local epoch took."""

    state: State
    examples: int
    epoch_seconds: float


class Task(Protocol):
    """How outputs follow from a model state and records, and how a model is trained on records."""

    @property
    def classes(self) -> int: ...

    def initial(self, seed: int) -> State: ...

    def outputs(self, state: State, x: NDArray[Any]) -> Floats: ...

    def last_layer(self, state: State, x: NDArray[Any]) -> tuple[Floats, Floats]:
        """Outputs, and the inputs of the last linear layer (a 1 for its bias included), from one forward pass."""
        ...


class Party(Protocol):
    """A member of the federation with its own data. A canary client or a rogue one is just another Party."""

    @property
    def name(self) -> str: ...

    def update(self, task: Any, model: State, rng: np.random.Generator) -> Trained: ...


# ------------------------------------------------------------------ what was exchanged


@dataclass(frozen=True)
class Plan:
    """One round: who takes part, and whether its result is kept (False = probe round, rolled back)."""

    parties: tuple[str, ...]
    commit: bool = True


@dataclass(frozen=True)
class Round:
    """What was exchanged in one round, as it was sent, after defences. Rounds count from 1."""

    index: int
    broadcast: State
    sent: Mapping[str, Trained]
    aggregate: State
    commit: bool = True


@dataclass(frozen=True)
class Guarantee:
    """A differential-privacy claim. Compared with an empirical epsilon only when unit and adjacency agree."""

    unit: Unit
    epsilon: float
    delta: float
    adjacency: Literal["add-remove", "replace"]
    accountant: str


class Trace(Protocol):
    """The rounds of one federation, live or stored, in round order. No ground truth."""

    def rounds(self) -> Iterator[Round]: ...


# ------------------------------------------------------------------ what one adversary sees


class Vantage(StrEnum):
    """A place to look from."""

    OUTSIDER = "outsider"
    CLIENT = "client"
    LABEL_ONLY_CLIENT = "label-only-client"
    SECAGG_SERVER = "secagg-server"
    SERVER = "server"


class Grant(StrEnum):
    """Something a view may show. What is not granted is absent from the view."""

    LABELS = "labels"
    OUTPUTS = "outputs"
    WEIGHTS = "weights"
    UPDATE = "update"
    EVERY_ROUND = "every-round"


@dataclass(frozen=True)
class View:
    """One round seen from a vantage: the global model, or (server) one party's local model."""

    round: int
    vantage: Vantage
    model: ModelKind
    party: str | None  # whose local model; None for the global one
    grants: frozenset[Grant]
    state: State
    received: State | None = None  # what the round started from; with it, the update is known
    # of a local model: what the other parties sent, by name; None = took no part
    peers: Mapping[str, State | None] = field(default_factory=dict)


# ------------------------------------------------------------------ the game


@dataclass(frozen=True)
class Candidates:
    """What the game is about. Row i belongs to candidate `owner[i]`; for records the two are the same."""

    unit: Unit
    id: Strings
    party: Strings
    rows: Records
    owner: Ints
    subject: Strings | None = None  # groups whose members are not independent (intervals, blind)

    def __len__(self) -> int:
        return len(self.id)

    @cached_property
    def subject_number(self) -> Ints | None:
        """Subjects as numbers, the same in the whole game: statistics group by them thousands of times."""
        return None if self.subject is None else np.unique(self.subject, return_inverse=True)[1]

    def of_party(self, party: str) -> Ints:
        return np.flatnonzero(self.party == party)


class Role(StrEnum):
    """The three disjoint sets: trained on; reported as outsiders; thresholds are set on these."""

    MEMBER = "member"
    EVALUATION = "evaluation"
    CALIBRATION = "calibration"


@dataclass(frozen=True)
class Truth:
    """The labels, by candidate id. The auditor's alone: neither federation nor attacks ever receive it."""

    id: Strings
    role: Strings  # values of Role

    def mask(self, role: Role) -> Bools:
        return np.asarray(self.role == role.value)


@dataclass(frozen=True)
class Game:
    candidates: Candidates
    truth: Truth

    def members(self, party: str) -> Records:
        """What an honest party trains on."""
        mask = (self.candidates.party == party) & self.truth.mask(Role.MEMBER)
        return self.candidates.rows.take(mask)

    @property
    def parties(self) -> list[str]:
        return sorted(set(self.candidates.party.tolist()))


# ------------------------------------------------------------------ signals and attacks


class Signal(Protocol):
    """(view, candidates) -> one value (or a few) per row; `needs` is what a view must grant."""

    name: str
    needs: frozenset[Grant]

    def __call__(self, view: View, rows: Records, task: Any) -> Floats: ...


class Reduction(Protocol):
    """What an attack keeps of the rounds seen so far: running sums where they suffice, else a table.

    `observe` is the one call for live and replayed rounds. `features` is candidates x features.
    """

    def observe(self, round: int, values: Mapping[str, Floats]) -> None: ...

    def features(self) -> Floats: ...


@dataclass(frozen=True)
class Measured:
    """The signals of one model in one round: one value (or a few) for each row, by the row's id; and what it cost."""

    id: Strings
    values: Mapping[str, NDArray[Any]]
    seconds: float
    epoch_seconds: float  # of the training that is audited here
    failed: Mapping[str, str] = field(default_factory=dict)  # signals that could not be computed, and why
    gradient_seconds: float = 0.0  # the part of `seconds` that only gradient signals need


@dataclass(frozen=True)
class Observation:
    """All that an audit takes in of one round, live or stored: per party, and under None of the global model."""

    round: int
    of: Mapping[str | None, Measured]


@runtime_checkable
class Attack(Protocol):
    """Frozen hyperparameters. Scores are oriented: higher = more likely a member, everywhere."""

    @property
    def name(self) -> str: ...

    @property
    def signals(self) -> tuple[str, ...]: ...

    def reduce(self, n: int) -> Reduction: ...

    def fit(self, reference: Floats) -> Attack:
        """A copy fitted on features of known non-members, which are then barred from setting thresholds."""
        ...

    def score(self, features: Floats) -> Floats: ...


# ------------------------------------------------------------------ what leaves the tool

Kind = Literal["measured", "proved", "model-based", "heuristic"]


@dataclass(frozen=True)
class Estimate:
    """No naked numbers. `value` is None when there is none, and then `reason` says why."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    confidence: float
    method: str
    kind: Kind
    n_pos: int
    n_neg: int
    n_cal: int | None = None
    threshold: float | None = None
    realised_fpr: float | None = None
    realised_fpr_interval: tuple[float, float] | None = None
    reason: str | None = None
    ceiling: float | None = None  # epsilon: the most that so many trials could ever show
    guaranteed: tuple[float, float] | None = None  # TPR: ends that are proved whatever the scores' distribution is


@dataclass(frozen=True)
class Curve:
    """An array over x with its band, for the report; `method` says what the band promises."""

    x: Sequence[float]
    value: Sequence[float | None]
    low: Sequence[float | None]
    high: Sequence[float | None]
    method: str


@dataclass(frozen=True)
class AuditResult:
    """One attack from one vantage on one kind of model, for one party or pooled (party None)."""

    attack: str
    vantage: str
    model: ModelKind
    unit: Unit
    party: str | None
    round: int
    estimates: Mapping[str, Estimate]
    epochs: float  # cost per round, in units of one local epoch on the audited parties' training records
    warnings: Sequence[str] = ()
    curves: Mapping[str, Curve] = field(default_factory=dict)


@dataclass(frozen=True)
class Headline:
    """What is quoted for a vantage: its primary attack, fixed before looking; corrected for `compared`."""

    vantage: str
    attack: str
    model: ModelKind
    estimates: Mapping[str, Estimate]
    compared: int


@dataclass(frozen=True)
class Audit:
    """Everything one audit found; `scores` feeds files for re-scoring and never the report."""

    results: Sequence[AuditResult]
    headlines: Sequence[Headline]
    accuracy: Mapping[str, Estimate]
    warnings: Sequence[str]
    notices: Sequence[str] = ()
    failed: Mapping[str, str] = field(default_factory=dict)  # attacks without a result, and why
