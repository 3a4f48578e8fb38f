"""The data types that all of fedaudit shares: frozen dataclasses and small protocols. Nothing here imports torch.

Data goes one way: federation -> trace -> vantage -> signals -> attacks -> statistics -> results -> report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Strings = NDArray[np.str_]

# A model's parameters and buffers by name. numpy, so that traces, Flower and the report need no torch.
State = Mapping[str, NDArray[Any]]
UNSEEN: State = {}  # stands for a model that the observer never saw: masked, or not sent to it

Unit = Literal["record", "subject", "user", "attribute"]
ModelKind = Literal["global", "local"]


# ------------------------------------------------------------------ who trains on what


@dataclass(frozen=True)
class Records:
    """Rows with stable ids, sorted by id, so that the order in which they were stored cannot change a result."""

    x: NDArray[Any]  # float32; tokens are int64
    y: NDArray[Any]  # one label a record, or records x positions; values (float32) for regression
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
    """Records and what a model must know of them. `classes` is 0 for regression; for text, the size of its
    vocabulary."""

    name: str
    records: Records
    classes: int

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.records.x.shape[1:])


@dataclass(frozen=True)
class Trained:
    """What a party sends: its model, how many records it was trained on, and how long one local epoch took."""

    state: State
    examples: int
    epoch_seconds: float


class Task(Protocol):
    """Computes the outputs of a model, given as a state, for records."""

    @property
    def classes(self) -> int: ...

    def initial(self, seed: int) -> State: ...

    def outputs(self, state: State, x: NDArray[Any]) -> Floats: ...

    def last_layer(self, state: State, x: NDArray[Any]) -> tuple[Floats, Floats]:
        """Outputs, and the inputs of the last linear layer (a 1 for its bias included), from one forward pass."""
        ...


class Party(Protocol):
    """A member of the federation with its own data. A client that plants canaries is also a party."""

    @property
    def name(self) -> str: ...

    def update(self, task: Any, model: State, rng: np.random.Generator) -> Trained: ...


# ------------------------------------------------------------------ what was exchanged


@dataclass(frozen=True, order=True)
class Moment:
    """A point in time. Probe 0 is the round itself; probes 1, 2, ... start from the model that the round produced.

    A probe is observed and then discarded: it changes neither the model nor the round number.
    """

    round: int
    probe: int = 0


@dataclass(frozen=True)
class Plan:
    """One round: who takes part, what is broadcast (None: the current model), and whether the result is kept.

    A plan that is not kept is a probe: the parties train, the result is observed, and the model stays as it was.
    """

    parties: tuple[str, ...]
    commit: bool = True
    broadcast: State | None = None


@dataclass(frozen=True)
class Round:
    """What was exchanged in one round, after defences. Rounds count from 1.

    A state that was not observed is `UNSEEN`. It is not the same as a model that did not change. `commit` is False if
    the result was not kept.
    """

    index: int
    broadcast: State
    sent: Mapping[str, Trained]
    aggregate: State
    commit: bool = True
    probe: int = 0

    @property
    def moment(self) -> Moment:
        return Moment(self.index, self.probe)


@dataclass(frozen=True)
class Guarantee:
    """A differential-privacy claim. It may be compared with an empirical epsilon only if unit and adjacency agree."""

    unit: Unit
    epsilon: float
    delta: float
    adjacency: Literal["add-remove", "replace"]
    accountant: str


# ------------------------------------------------------------------ what one adversary sees


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

    def __len__(self) -> int:
        return len(self.id)

    @cached_property
    def subject_number(self) -> Ints | None:
        """Subjects as numbers, which are faster to group by than names."""
        return None if self.subject is None else np.unique(self.subject, return_inverse=True)[1]

    def of_party(self, party: str) -> Ints:
        return np.flatnonzero(self.party == party)

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
class Game:
    candidates: Candidates
    truth: Truth

    def members(self, party: str) -> Records:
        """The records that an honest party trains on."""
        mask = (self.candidates.party == party) & self.truth.mask(Role.MEMBER)
        return self.candidates.rows.take(mask)

    @property
    def parties(self) -> list[str]:
        return sorted(set(self.candidates.party.tolist()))


# ------------------------------------------------------------------ what was measured


# What an audit stores between two rounds: arrays and plain values, nested by name. Nothing executable.
Stored = Mapping[str, Any]


@dataclass(frozen=True)
class Measured:
    """The signals of one model in one round: one value (or a few) for each row, with the rows' ids; and the cost."""

    id: Strings
    values: Mapping[str, NDArray[Any]]
    seconds: float
    epoch_seconds: float  # how long one epoch of the audited training took
    failed: Mapping[str, str] = field(default_factory=dict)  # signals that could not be computed, and why
    gradient_seconds: float = 0.0  # the part of `seconds` that only gradient signals need
    unobserved: frozenset[str] = frozenset()  # signals of something that was not observed in this round
    layers: Mapping[str, str] = field(default_factory=dict)  # for signals of one layer, its name
    queries: int = 0  # how many records the model was asked about
    notes: tuple[str, ...] = ()  # problems that did not cost any value


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


# ------------------------------------------------------------------ what leaves the tool


@dataclass(frozen=True)
class Rule:
    """A constraint on a field in the published schema: a keyword of JSON Schema, and its value."""

    keyword: str
    value: Any


# A field without a default is always written to results.json; one with a default only if it differs from the default.
# These marks change that: always written, written together with another field, or written as the key of a mapping.
ALWAYS, WITH_N_CAL, AS_KEY = {"always": True}, {"with": "n_cal"}, {"key": True}

# What may be said of a headline: a risk; one on average only; nothing beyond chance; no number; something is wrong.
Tone = Literal["found", "weak", "none", "unknown", "alarm"]
Kind = Literal["measured", "proved", "model-based", "heuristic"]
Count = Annotated[int, Rule("minimum", 0)]
VantageName = Annotated[str, Rule("enum", [vantage.value for vantage in Vantage])]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, method and counts. If `value` is None, `reason` says why."""

    name: str = field(metadata=AS_KEY)
    value: float | None
    low: float | None
    high: float | None
    confidence: Annotated[float, Rule("exclusiveMinimum", 0), Rule("exclusiveMaximum", 1)]
    method: Annotated[str, Rule("minLength", 1)]
    kind: Kind
    n_pos: Count
    n_neg: Count
    n_cal: Count | None = None
    threshold: Annotated[float | None, "null: each party has its own"] = field(default=None, metadata=WITH_N_CAL)
    realised_fpr: float | None = field(default=None, metadata=WITH_N_CAL)
    realised_fpr_interval: tuple[float, float] | None = field(default=None, metadata=WITH_N_CAL)
    reason: Annotated[str | None, "why there is no value, or no lower end"] = field(default=None, metadata=ALWAYS)
    ceiling: Annotated[float | None, "epsilon: the most that so many trials could ever show"] = None
    guaranteed: Annotated[tuple[float, float] | None, "TPR: ends that hold whatever the scores' distribution is"] = None


_ABOUT_MEMBERS = "auc|auc-other-party|accuracy|tpr@[0-9.e-]+|epsilon.*"
_ABOUT_SOURCE = "(label|largest)-accuracy|excess-over-baselines"
_ABOUT_ATTRIBUTES = "(members|nonmembers|blind)-(auc|accuracy)|excess-over-blind|members-minus-nonmembers"
_NAMES = Rule("propertyNames", {"pattern": f"^({_ABOUT_MEMBERS}|{_ABOUT_SOURCE}|{_ABOUT_ATTRIBUTES})$"})
Estimates = Annotated[Mapping[str, Estimate], Rule("minProperties", 1), _NAMES]


@dataclass(frozen=True)
class Curve:
    """Values over x with a band, for the report; `method` says what the band guarantees."""

    x: Sequence[float]
    value: Sequence[float | None]
    low: Sequence[float | None]
    high: Sequence[float | None]
    method: str


@dataclass(frozen=True)
class Cost:
    epochs: Annotated[float, Rule("minimum", 0), "audit time a round, in local epochs on the parties' training records"]


@dataclass(frozen=True)
class AuditResult:
    """One attack from one vantage on one kind of model, for one party or pooled (party None)."""

    attack: str
    vantage: VantageName
    model: ModelKind
    unit: Unit
    party: Annotated[str | None, "null = pooled over the parties"]
    round: Count
    estimates: Estimates
    cost: Cost
    warnings: Sequence[str] = field(default=(), metadata=ALWAYS)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    layer: Annotated[str | None, "the layer that the attack looked at, where it looks at one"] = None


@dataclass(frozen=True)
class Headline:
    """The result quoted for a vantage: that of its primary attack, which was fixed before looking.

    Its interval is corrected for the number of results that it was chosen from (`compared`).
    """

    vantage: VantageName
    attack: str
    model: ModelKind
    estimates: Estimates
    compared: Annotated[int, Rule("minimum", 1)]
    sentence: Annotated[str, "what may be said, the same everywhere"] = ""
    tone: Tone = "unknown"


@dataclass(frozen=True)
class Audit:
    """Everything that one audit found."""

    results: Sequence[AuditResult]
    headlines: Sequence[Headline]
    accuracy: Mapping[str, Estimate]
    warnings: Sequence[str]
    notices: Sequence[str] = ()
    failed: Mapping[str, str] = field(default_factory=dict)  # attacks without a result, and why
