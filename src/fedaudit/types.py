"""The words of fedaudit. Frozen dataclasses and small protocols; nothing here computes, nothing imports torch.

Data goes one way: federation -> trace -> vantage -> signals -> attacks -> statistics -> results -> report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
UNSEEN: State = {}  # of a model that nobody saw: masked, or never sent to whoever looks

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


@dataclass(frozen=True, order=True)
class Moment:
    """Time in a federation. Probe 0 is the round itself; probes 1, 2, ... start from the model that the round left.

    A probe is looked at and thrown away: it moves neither the model nor the round number.
    """

    round: int
    probe: int = 0


@dataclass(frozen=True)
class Plan:
    """One round: who takes part, what is broadcast (None: the current model), and whether the result is kept.

    A plan that is not kept is a probe: everybody trains, the result is seen, and the model stays as it was.
    """

    parties: tuple[str, ...]
    commit: bool = True
    broadcast: State | None = None


@dataclass(frozen=True)
class Round:
    """What was exchanged in one round, as it was sent, after defences. Rounds count from 1.

    A state is `UNSEEN` where nobody saw it: what was not observed has no value, and is never taken for a model that
    did not change. `commit` is False where the result was not kept.
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
    """Something a view may show. What is not granted cannot be had from the view."""

    LABELS = "labels"
    OUTPUTS = "outputs"
    WEIGHTS = "weights"
    UPDATE = "update"
    EVERY_ROUND = "every-round"


# ------------------------------------------------------------------ the game


@dataclass(frozen=True)
class Candidates:
    """What the game is about. Row i belongs to candidate `owner[i]`; for records the two are the same.

    `at`: which candidates exist at a moment, for those that come and go (a canary); where it says nothing, all do.
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
        """Subjects as numbers, the same in the whole game: statistics group by them thousands of times."""
        return None if self.subject is None else np.unique(self.subject, return_inverse=True)[1]

    def of_party(self, party: str) -> Ints:
        return np.flatnonzero(self.party == party)

    def present(self, moment: Moment) -> Bools:
        return self.at[moment] if moment in self.at else np.ones(len(self), bool)


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
    at: Mapping[Moment, Strings] = field(default_factory=dict)  # roles at moments where they differ from `role`

    def roles(self, moment: Moment | None = None) -> Strings:
        """What is true at a moment; without one, what is true of the whole training."""
        return self.role if moment is None else self.at.get(moment, self.role)

    def mask(self, role: Role, moment: Moment | None = None) -> Bools:
        return np.asarray(self.roles(moment) == role.value)


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


# What an audit keeps between two rounds: arrays and plain values, nested by name. Nothing executable.
Stored = Mapping[str, Any]


class Reduction(Protocol):
    """What an attack keeps of the rounds seen so far: running sums where they suffice, else a table.

    `observe` is the one call for live and replayed rounds. `features` is candidates x features. `state` is everything
    that `restore` needs to go on in another process.
    """

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None: ...

    def features(self) -> Floats: ...

    def state(self) -> Stored: ...

    def restore(self, state: Stored) -> None: ...


@dataclass(frozen=True)
class Measured:
    """The signals of one model in one round: one value (or a few) for each row, by the row's id; and what it cost."""

    id: Strings
    values: Mapping[str, NDArray[Any]]
    seconds: float
    epoch_seconds: float  # of the training that is audited here
    failed: Mapping[str, str] = field(default_factory=dict)  # signals that could not be computed, and why
    gradient_seconds: float = 0.0  # the part of `seconds` that only gradient signals need
    unobserved: frozenset[str] = frozenset()  # signals of something that nobody saw in this round
    queries: int = 0  # how many answers were asked for
    notes: tuple[str, ...] = ()  # what went wrong on the way and was made good


@dataclass(frozen=True)
class Observation:
    """All that an audit takes in of one round, live or stored, by sight: None is the global model as whoever holds it
    sees it, a party's name its local model; other ways of being answered have names in brackets."""

    round: int
    of: Mapping[str | None, Measured]
    probe: int = 0

    @property
    def moment(self) -> Moment:
        return Moment(self.round, self.probe)


@dataclass(frozen=True)
class Own:
    """Records of the adversary's own whose answer it knows: their features and that answer."""

    features: Floats
    label: NDArray[Any]


@dataclass(frozen=True)
class Evidence:
    """What an adversary may learn from before it scores: known non-members, and labelled records of its own."""

    nonmembers: Floats | None = None
    own: Own | None = None


# ------------------------------------------------------------------ what leaves the tool


@dataclass(frozen=True)
class Rule:
    """What the published schema asks of a field beyond its type: a keyword of JSON Schema and its value."""

    keyword: str
    value: Any


# How a field stands in results.json: always, if it has no default; if it has one, only while it differs from it.
# Marked otherwise are those that are written all the same, with another field, or as the key of a mapping.
ALWAYS, WITH_N_CAL, AS_KEY = {"always": True}, {"with": "n_cal"}, {"key": True}

# What may be said of a headline: a risk; one on average only; nothing beyond chance; no number; something is wrong.
Tone = Literal["found", "weak", "none", "unknown", "alarm"]
Kind = Literal["measured", "proved", "model-based", "heuristic"]
Count = Annotated[int, Rule("minimum", 0)]
VantageName = Annotated[str, Rule("enum", [vantage.value for vantage in Vantage])]


@dataclass(frozen=True)
class Estimate:
    """No naked numbers. `value` is None when there is none, and then `reason` says why."""

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
    """An array over x with its band, for the report; `method` says what the band promises."""

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


@dataclass(frozen=True)
class Headline:
    """What is quoted for a vantage: its primary attack, fixed before looking; corrected for `compared`."""

    vantage: VantageName
    attack: str
    model: ModelKind
    estimates: Estimates
    compared: Annotated[int, Rule("minimum", 1)]
    sentence: Annotated[str, "what may be said, the same everywhere"] = ""
    tone: Tone = "unknown"


@dataclass(frozen=True)
class Audit:
    """Everything one audit found; `scores` feeds files for re-scoring and never the report."""

    results: Sequence[AuditResult]
    headlines: Sequence[Headline]
    accuracy: Mapping[str, Estimate]
    warnings: Sequence[str]
    notices: Sequence[str] = ()
    failed: Mapping[str, str] = field(default_factory=dict)  # attacks without a result, and why
