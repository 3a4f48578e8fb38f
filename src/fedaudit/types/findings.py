"""What leaves the tool: estimates, results, headlines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, model_serializer

from fedaudit.types.game import Vantage
from fedaudit.types.notices import Notice
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
from fedaudit.types.world import ModelKind

# What may be said of a headline: a risk; one on average only; nothing beyond chance; no number; something is wrong.
Tone = Literal["found", "weak", "none", "unknown", "alarm"]
# The same in words that need no statistics: how many can be picked out.
Grade = Literal["nearly everybody", "most", "some", "a little", "nothing found", "not known", "alarm"]
# Of epsilon: *claimed* is what the accountant says; nothing was measured for it.
Kind = Literal["measured", "proved", "model-based", "heuristic", "claimed"]
VantageName = Annotated[str, Field(json_schema_extra={"enum": [vantage.value for vantage in Vantage]})]

_ENDS = {"value": "the value", "low": "the lower end", "high": "the upper end"}
_WITH_N_CAL = ("threshold", "realised_fpr", "realised_fpr_interval")  # written, also as null, whenever n_cal is


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
    n_cal: Annotated[Count | None, if_known()] = None
    threshold: Annotated[OrNull[Number], sometimes("null: each party has its own")] = None
    realised_fpr: Annotated[OrNull[Number], sometimes()] = None
    realised_fpr_interval: Annotated[OrNull[tuple[Number, Number]], sometimes()] = None
    reason: Annotated[str | None, Field(description="why there is no value, or no lower end")] = None
    ceiling: Annotated[OrNull[Number], if_known("epsilon: the most that so many trials could ever show")] = None
    guaranteed: Annotated[
        OrNull[tuple[Number, Number]],
        if_known("TPR and AUC: ends that hold for independent records whatever their scores' distribution is"),
    ] = None

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
    return {name: {**one, "name": name} if isinstance(one, dict) else one for name, one in estimates.items()}


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
    simultaneous: Annotated[Flag, if_any("whether the band holds for all x at once")] = False


@dataclass(frozen=True)
class Cost:
    """`audit.costs` defines `epochs`."""

    epochs: Annotated[
        Number,
        Field(
            ge=0,
            description="what running this attack alone takes a round, in local epochs on the parties' training "
            "records: every pass and every training that it needs; what it shares with other attacks is charged to "
            "each of them in full",
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
    sentence: Annotated[str, if_any("what may be said, the same everywhere")] = ""
    tone: Annotated[Tone, Field(exclude_if=lambda tone: tone == "unknown")] = "unknown"
    primary: Annotated[str, if_any("the attack that was fixed before looking; empty: the quoted one")] = ""
    grade: Annotated[Grade | None, if_known("the finding in two words, by the lower end of its interval")] = None
    details: Annotated[Many[str], if_any("since when, what is not settled, what else was found")] = ()

    @property
    def fixed(self) -> str:
        """The vantage's primary attack."""
        return self.primary or self.attack


@dataclass(frozen=True)
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
    confidence: Annotated[Number, Field(description="for all parties together")]


@dataclass(frozen=True)
class Audit:
    """Everything that one audit found."""

    results: Sequence[AuditResult]
    headlines: Sequence[Headline]
    accuracy: Mapping[str, Estimate]
    warnings: Sequence[Notice]
    notices: Sequence[Notice] = ()
    failed: Mapping[str, str] = field(default_factory=dict)  # attacks without a result, and why
    glossary: Mapping[str, str] = field(default_factory=dict)  # what each attack does, in a line
    useless: Notice | None = None  # why the model itself is worth nothing
    more_exposed: Sequence[MoreExposed] = ()
