"""The data types that all of fedaudit shares: frozen dataclasses and small protocols. Nothing here imports torch.

Data goes one way: federation -> trace -> vantage -> signals -> attacks -> statistics -> results -> report.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainSerializer, SerializerFunctionWrapHandler, model_serializer
from pydantic_core import to_json

from fedaudit.types.stored import (
    METRIC,
    WORD,
    Count,
    Flag,
    Many,
    Number,
    OrNull,
    Positive,
    Whole,
    if_any,
    if_known,
    sometimes,
)

# ------------------------------------------------------------------ who trains on what, and what is exchanged

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Strings = NDArray[np.str_]

# A model's parameters and buffers by name. numpy, so that traces, Flower and the report need no torch.
State = Mapping[str, NDArray[Any]]
UNSEEN: State = {}  # stands for a model that the observer never saw: masked, or not sent to it

IGNORED = -100  # the label of a position that does not count: what fills a record up has no loss and no gradient

Unit = Literal["record", "subject", "user", "attribute"]
ModelKind = Literal["global", "local"]


@dataclass(frozen=True)
class Records:
    """Rows with stable ids, sorted by id, so that the order in which they were stored cannot change a result."""

    x: NDArray[Any]  # float32; tokens are int64
    y: NDArray[Any]  # one label a record, or records x positions (some IGNORED); values (float32) for regression
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
    vocabulary.

    Two attributes of the records may have a meaning of their own. `session`: records of one session are nearly the
    same, and stay together. `holder`: which party holds a record; -1: none, so that only an adversary has it.
    """

    name: str
    records: Records
    classes: int
    _: KW_ONLY
    session: str | None = None
    holder: str | None = None
    notices: tuple[Notice | str, ...] = ()  # what the report must say about how they were read
    vocabulary: tuple[str, ...] = ()  # of text, where it is known: what each token stands for
    # What the numbers of an attribute, or of the classes (under "label"), stand for, where they had been others.
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    columns: tuple[str, ...] = ()  # what each column of x is called, where that is known

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.records.x.shape[1:])


@dataclass(frozen=True)
class Trained:
    """What a party sends: its model, how many records it was trained on, and how long one local epoch took.

    `is_model` is False where that is no model of the task: it is recorded, and nobody attacks it."""

    state: State
    examples: int
    epoch_seconds: float
    metrics: tuple[str, ...] = ()  # the names of figures that came with it
    is_model: bool = True


class PlainModel(Protocol):
    """What a model of any framework offers, in plain arrays, so that it can be audited."""

    @property
    def classes(self) -> int:
        """How many; 0 for regression."""
        ...

    def initial(self, seed: int) -> State:
        """A first state: the names, shapes and types of what parties exchange."""
        ...

    def outputs(self, state: State, x: NDArray[Any]) -> Floats:
        """Logits, one row for each record; for regression one value."""
        ...


class Task(PlainModel, Protocol):
    """Computes the outputs of a model, given as a state, for records."""

    @property
    def base(self) -> State:
        """What of the model is frozen and not exchanged, if a part of it is: no state holds it."""
        ...

    def asking(self, state: State) -> Callable[[NDArray[Any]], Floats]:
        """`outputs` of one model, for many small questions: its weights are loaded once."""
        ...

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
    """One round: who takes part, what is broadcast (None: the current model; a function is given that model), and
    whether the result is kept.

    A plan that is not kept is a probe: the parties train, the result is observed, and the model stays as it was.
    `canaries` take part in a round that is kept, are seen in a probe of it, and are taken out of what is kept; None:
    there is no such probe.
    """

    parties: tuple[str, ...]
    commit: bool = True
    broadcast: State | Callable[[State], State] | None = None
    canaries: tuple[str, ...] | None = None

    def sent_out(self, model: State) -> State:
        """What the parties receive."""
        return self.broadcast(model) if callable(self.broadcast) else self.broadcast or model


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
    _: KW_ONLY
    commit: bool = True
    probe: int = 0

    @property
    def moment(self) -> Moment:
        return Moment(self.index, self.probe)


@dataclass(frozen=True)
class ServerStep:
    """How much of the mean update a server adds to the model (its learning rate). It acts on the parameters; statistics
    and counters of normalisations are those of the mean."""

    lr: float
    names: Sequence[str]  # of the parameters

    def towards(self, mean: State, received: State) -> State:
        """The next global model: part of the way to the mean of what was sent, or beyond it."""
        return mean if self.lr == 1 else _moved(received, mean, self.lr, self.names)

    def back(self, reached: State, received: State) -> State:
        """The mean of what was sent, from two consecutive global models."""
        return reached if self.lr == 1 else _moved(received, reached, 1 / self.lr, self.names)


def _moved(start: State, end: State, part: float, names: Sequence[str]) -> State:
    moved = {}
    for name in names:
        before = np.asarray(start[name], np.float64)
        moved[name] = np.asarray(before + part * (end[name] - before), end[name].dtype)
    return {**end, **moved}


@dataclass(frozen=True)
class Guarantee:
    """A differential-privacy claim. It may be compared with an empirical epsilon only if unit and adjacency agree."""

    unit: Unit
    epsilon: float
    delta: float
    adjacency: Literal["add-remove", "replace"]
    accountant: str


# ------------------------------------------------------------------ what an adversary sees and measures, and the truth


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
    START = "start-of-round"  # the model that the round started from, beside the one that it came to
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
    _: KW_ONLY
    subject: Strings | None = None  # groups whose members are not independent (intervals, blind)
    at: Mapping[Moment, Bools] = field(default_factory=dict)
    # By party, which candidates it holds records of, where one may lie in several. `party` is then the one that holds
    # most of its records, or, where people are scattered on purpose, the same for all.
    held_by: Mapping[str, Bools] | None = None
    has: Ints | None = None  # people: how many records each has in the data, of which `rows` may be a part

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

    @cached_property
    def outsiders(self) -> Records:
        """Records that nobody trained on and an adversary may have: those that set thresholds."""
        known = self.truth.mask(Role.CALIBRATION)
        return self.candidates.rows.take(known[self.candidates.owner])

    @cached_property
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


@dataclass(frozen=True)
class Measured:
    """The signals of one model in one round: one value (or a few) for each row, with the rows' ids; and the cost.

    `spent` divides `seconds` by what they were spent on, as `audit.costs` names it.
    """

    id: Strings
    values: Mapping[str, NDArray[Any]]
    seconds: float
    epoch_seconds: float  # how long one epoch of the audited training took
    _: KW_ONLY
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


@dataclass(frozen=True, kw_only=True)
class RoundRisk:
    """What a leading attack had found after a round. The interval is its place in the band over all rounds."""

    vantage: str
    model: str
    attack: str
    metric: str
    value: float | None
    low: float | None
    high: float | None


# ------------------------------------------------------------------ what an audit tells beside its figures

# A notice is a code, which programs look at, and the data of its sentence. `fedaudit.words` has the sentences, and
# nothing else may depend on how they are put.

# A warning casts doubt on a figure, a notice says what else must be known, and a gap is a part that is missing.
Level = Literal["warning", "notice", "gap"]


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON has it: NaN and infinity are null."""
    found: dict[str, Any] = json.loads(to_json(dict(data), inf_nan_mode="null", fallback=str))
    return found


@dataclass(frozen=True)
class Notice:
    """`data`: plain values, as JSON has them. One with a `text` is told by that text, as it came from outside."""

    code: Annotated[str, Field(json_schema_extra={"pattern": f"^{WORD}$"})]
    level: Level
    data: Annotated[Mapping[str, Any], PlainSerializer(_plain)] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.code, self.level))  # equal ones must be found equal; their data may be unhashable

    def stored(self) -> dict[str, Any]:
        return {"code": self.code, "level": self.level, "data": _plain(self.data)}


def warning(code: str, **data: Any) -> Notice:
    return Notice(code, "warning", data)


def notice(code: str, **data: Any) -> Notice:
    return Notice(code, "notice", data)


def gap(code: str, **data: Any) -> Notice:
    return Notice(code, "gap", data)


def once(notices: Iterable[Notice]) -> list[Notice]:
    """Each of them once, in the order in which they were told first."""
    return list(dict.fromkeys(notices))


def as_notices(told: Iterable[Notice | str | Mapping[str, Any]], level: Level = "notice") -> Sequence[Notice]:
    """Also from what was stored (`Notice.stored`), and from sentences of somebody else's."""
    return [_as_notice(one, level) for one in told]


def _as_notice(told: Notice | str | Mapping[str, Any], level: Level) -> Notice:
    if isinstance(told, Notice):
        return told
    if isinstance(told, str):
        return Notice("text", level, {"text": told})
    return Notice(str(told["code"]), told["level"], dict(told["data"]))


# ------------------------------------------------------------------ what leaves the tool: estimates, results, headlines

# What may be said of a headline: a risk; one on average only; nothing beyond chance; no number; something is wrong.
Tone = Literal["found", "weak", "none", "unknown", "alarm"]
# The same in words that need no statistics: how many can be picked out.
Grade = Literal[
    "nearly everybody", "most", "some", "at least a little", "a little", "nothing found", "not known", "alarm"
]
# Thresholds from records of another kind than those that are reported on accuse far more outsiders than was asked, so
# that there is no value, or far fewer: then the lower end holds, and nothing is known of an upper one.
Doubt = Literal["more", "fewer"]
# Of epsilon: *claimed* is what the accountant says; nothing was measured for it.
Kind = Literal["measured", "proved", "model-based", "heuristic", "claimed"]
VantageName = Annotated[str, Field(json_schema_extra={"enum": [vantage.value for vantage in Vantage]})]

# Why a pooled figure says nothing about a party.
Why = Literal["no-calibration", "no-evaluation", "no-members", "unseen", "unfit"]
MOST_NAMED = 20  # of the parties that a figure says nothing about
_ENDS = {"value": "the value", "low": "the lower end", "high": "the upper end"}
_WITH_N_CAL = ("threshold", "realised_fpr", "realised_fpr_interval")  # written, also as null, whenever n_cal is


@dataclass(frozen=True)
class Missing:
    """Parties of the audit that a pooled figure says nothing about, all for the same reason.

    *no-calibration*: none of their records can set a threshold; *no-evaluation*: none of their non-members can be
    reported on; *no-members*: none of their members can; *unseen*: they took part too seldom; *unfit*: they have too
    few known non-members to fit the attack on.
    """

    why: Why
    parties: Annotated[Many[str], Field(description=f"their names; of more than {MOST_NAMED}, the first")]
    count: Annotated[Positive, Field(description="how many they are")]
    of: Annotated[Positive, Field(description="how many parties were audited")]
    members: Annotated[Count, Field(description="of these parties, whom the figure does not count")]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, method and counts. If `value` is None, `reason` says why."""

    name: Annotated[str, Field(exclude=True)]  # stored as the key of the mapping that holds the estimate
    value: OrNull[Number]
    low: OrNull[Number]
    high: OrNull[Number]
    confidence: Annotated[Number, Field(gt=0, lt=1)]
    method: Annotated[str, Field(json_schema_extra={"minLength": 1})]
    kind: Kind
    n_pos: Count
    n_neg: Count
    _: KW_ONLY
    n_cal: Annotated[Count | None, if_known()] = None
    threshold: Annotated[OrNull[Number], sometimes("null: each party has its own")] = None
    realised_fpr: Annotated[OrNull[Number], sometimes()] = None
    realised_fpr_interval: Annotated[OrNull[tuple[Number, Number]], sometimes()] = None
    reason: Annotated[str | None, Field(description="why there is no value, or no lower end, or no upper end")] = None
    ceiling: Annotated[OrNull[Number], if_known("epsilon: the most that so many trials could ever show")] = None
    guaranteed: Annotated[
        OrNull[tuple[Number, Number]],
        if_known("TPR and AUC: ends that hold for independent records whatever their scores' distribution is"),
    ] = None
    doubt: Annotated[
        Doubt | None,
        if_known("TPR: its thresholds accuse far more outsiders than was asked (no value), or far fewer (high is 1)"),
    ] = None
    missing: Annotated[Many[Missing], if_any("a pooled figure: the parties that it says nothing about")] = ()

    @model_serializer(mode="wrap")
    def _stored(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Numbers that JSON cannot hold are null, and the reason says so. Without a value there is no interval."""
        written: dict[str, Any] = write(self)
        odd = [name for name in _ENDS if written[name] is None and getattr(self, name) is not None]
        if odd:
            named = " and ".join(_ENDS[name] for name in odd)
            written["reason"] = self.reason or f"{named} came out NaN or infinite"
        if "value" in odd:
            written |= {"low": None, "high": None}
        if self.n_cal is None:
            written = {name: item for name, item in written.items() if item is not None or name not in _WITH_N_CAL}
        return written


def _named(estimates: Any) -> Any:
    if not isinstance(estimates, dict):
        return estimates
    return {name: one | {"name": name} if isinstance(one, dict) else one for name, one in estimates.items()}


def _names(pattern: str) -> dict[str, Any]:
    return {"propertyNames": {"pattern": f"^{pattern}$"}}


ByName = Annotated[Mapping[str, Estimate], BeforeValidator(_named)]
Estimates = Annotated[ByName, Field(json_schema_extra={"minProperties": 1, **_names(METRIC)})]


@dataclass(frozen=True)
class Curve:
    """Values over x with a band, for the report; `method` says what the band guarantees."""

    x: Many[Number]
    value: Many[OrNull[Number]]
    low: Many[OrNull[Number]]
    high: Many[OrNull[Number]]
    method: str
    _: KW_ONLY
    simultaneous: Annotated[Flag, if_any("whether the band holds for all x at once")] = False


# How a run ended; recorded: it was seen in part.
Ending = Literal["complete", "interrupted", "degraded", "recorded", "not-audited"]


@dataclass(frozen=True)
class Cost:
    """`audit.costs` defines `epochs`."""

    epochs: Annotated[
        Annotated[Number, Field(ge=0)] | None,
        Field(
            description="what running this attack alone takes a round, in local epochs on the parties' training "
            "records: every pass and every training that it needs; what it shares with other attacks is charged to "
            "each of them in full; null where it was not handed over",
        ),
    ]
    queries: Annotated[
        OrNull[Number],
        if_known(
            "labels, where labels are what it costs: the mean over all candidates but the adversary's own, those that "
            "set thresholds among them"
        ),
    ] = None
    most_queries: Annotated[OrNull[Number], if_known("labels that one of these candidates cost at most")] = None


@dataclass(frozen=True)
class Exhibit:
    """A canary, to be shown: a picture or other values with their shape, or a text; and its label."""

    kind: Literal["image", "values", "text"]
    shape: Many[Whole]
    values: Many[Number]
    text: str
    label: str
    _: KW_ONLY
    names: Annotated[Many[str], if_any("of a row of a table: its columns, as far as they are known")] = ()
    deviations: Annotated[
        Many[Number], if_any("of a row of a table: how many standard deviations each value is from the column's mean")
    ] = ()


@dataclass(frozen=True)
class AuditResult:
    """One attack from one vantage on one kind of model, for one party or pooled (party None)."""

    attack: str
    vantage: VantageName
    model: ModelKind
    unit: Annotated[
        str,
        Field(
            description="whom or what it is about: record, subject, user, attribute, or as its question says",
            json_schema_extra={"pattern": f"^{WORD}$"},
        ),
    ]
    party: Annotated[str | None, Field(description="null = pooled over the parties")]
    _: KW_ONLY
    round: Count
    estimates: Estimates
    cost: Cost
    warnings: Annotated[Many[str], Field(description="sentences; `told` has their codes")] = ()
    curves: Annotated[Mapping[str, Curve], if_any()] = field(default_factory=dict)
    layer: Annotated[str | None, if_known("the layer that the attack looked at, where it looks at one")] = None
    beside: Annotated[
        ByName,
        Field(json_schema_extra=_names(f"{METRIC}-minus-primary")),
        if_any("minus the primary attack, on the same records"),
    ] = field(default_factory=dict)
    canary: Annotated[Exhibit | None, if_known("the first canary, as it was crafted last")] = None
    question: Annotated[str, if_any("what the result answers; empty: a former version wrote it")] = ""
    told: Annotated[Many[Notice], if_any("the warnings as codes with their data, in the same order")] = ()


@dataclass(frozen=True)
class Headline:
    """The result quoted for a vantage: its strongest finding. That is what the primary attack found, which was fixed
    before looking, unless another attack certainly finds more.

    Its interval is corrected for the number of results that it was chosen from (`compared`).
    """

    vantage: VantageName
    attack: str
    model: ModelKind
    estimates: Estimates
    compared: Positive
    _: KW_ONLY
    sentence: Annotated[str, if_any("what may be said, the same everywhere")] = ""
    tone: Annotated[Tone, Field(exclude_if=lambda tone: tone == "unknown")] = "unknown"
    primary: Annotated[str, if_any("the attack that was fixed before looking; empty: the quoted one")] = ""
    grade: Annotated[Grade | None, if_known("the finding in a few words, by what is certain of it")] = None
    figure: Annotated[str, if_any("the figure on which the grade rests, and which is quoted")] = ""
    lent_by: Annotated[str, if_any("the vantage that sees less, and whose finding is quoted here")] = ""
    details: Annotated[Many[str], if_any("since when, what is not settled, what else was found")] = ()
    most_exposed: Annotated[str, if_any("the group that stands out most from all others, as a sentence")] = ""

    @property
    def fixed(self) -> str:
        """The vantage's primary attack."""
        return self.primary or self.attack


@dataclass(frozen=True, kw_only=True)
class MoreExposed:
    """A party that the primary attack of a vantage tells apart better than the others: its AUC there and elsewhere, and
    their difference."""

    party: str
    vantage: VantageName
    model: ModelKind
    attack: str
    own: Number
    others: Number
    value: Number
    low: Number
    high: Number
    confidence: Annotated[Number, Field(description="for all parties and groups together")]


@dataclass(frozen=True)
class Subgroup:
    """Candidates that have something in common. *class*: a label; *attribute*: a value of a declared attribute;
    *rare-value*: some value that at most this share of all candidates have; *records*: how many records their person
    has in the data, whoever holds them (`value`: the smallest and the largest number). A person is in a group if one of
    its records is."""

    kind: Literal["class", "attribute", "rare-value", "records"]
    value: Annotated[str, if_any("empty: all values of the class or the attribute, where these are too many")] = ""
    attribute: Annotated[str, if_any("its name")] = ""


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """What the primary attack of a vantage finds in a group, and among all candidates that are not in it. Members are
    compared with outsiders of their own side alone; `realised_fpr` of a TPR is the share of these that the threshold,
    which is the same for both sides, accuses."""

    group: Subgroup
    vantage: VantageName
    model: ModelKind
    attack: str
    inside: ByName
    outside: ByName
    beyond: Annotated[
        ByName,
        Field(description="inside minus outside; for the TPR, what it exceeds its side's own false accusations by"),
    ]
    stands_out: Annotated[
        str, if_any("the figure by which it is certainly more exposed than the others, and exposed at all")
    ] = ""


@dataclass(frozen=True, kw_only=True)
class GroupFindings:
    """All groups that were looked at. They follow from the records and the sizes, never from scores."""

    looked_at: Many[Subgroup]
    comparisons: Annotated[
        Count,
        Field(description="that share the error, in all places: two figures of each group, and the AUC of each party"),
    ]
    confidence: Annotated[Number, Field(description="of all intervals together")]
    results: Many[GroupResult]
    too_small: Annotated[Many[Subgroup], if_any("named, and not shown")] = ()
    too_many: Annotated[Many[Subgroup], if_any("columns with too many values to look at each")] = ()


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """What the models make of members and of others, round by round. Nothing in it is about a single candidate."""

    model: ModelKind
    signal: Annotated[str, Field(description="what is followed")]
    members: Annotated[Curve, Field(description="median and quartiles; no interval")]
    others: Annotated[Curve, Field(description="the same of those who were not trained on")]
    apart: Annotated[Curve, Field(description="mean of members minus mean of others, with its interval")]
    confidence: Annotated[Number, Field(description="of the intervals of `apart`, all rounds and models together")]
    fewest_members: Annotated[Count, Field(description="in the round with the fewest")]
    fewest_others: Annotated[Count, Field(description="in the round with the fewest")]


@dataclass(frozen=True)
class UnitErrors:
    """What each record, or person, adds to the error of an estimate."""

    names: Strings  # each of them once
    values: Floats


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Everything that one audit found."""

    results: Sequence[AuditResult]
    headlines: Sequence[Headline]
    accuracy: Mapping[str, Estimate]
    commonest: float | None = None  # what always naming the commonest label is right on, of evaluation non-members
    warnings: Sequence[Notice]
    notices: Sequence[Notice] = ()
    failed: Mapping[str, str] = field(default_factory=dict)  # attacks without a result, and why
    glossary: Mapping[str, str] = field(default_factory=dict)  # what each attack does, in a line
    useless: Notice | None = None  # why the model itself is worth nothing
    more_exposed: Sequence[MoreExposed] = ()
    groups: GroupFindings | None = None
    trajectories: Sequence[Trajectory] = ()
    # By attack, kind of model and figure: of figures over all parties that stored scores do not give.
    errors: Mapping[tuple[str, str, str], UnitErrors] = field(default_factory=dict)
