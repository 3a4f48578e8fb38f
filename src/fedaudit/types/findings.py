"""What leaves the tool: estimates, results, headlines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fedaudit.types.game import Vantage
from fedaudit.types.world import ModelKind


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
# The same in words that need no statistics: how many can be picked out.
Grade = Literal["nearly everybody", "most", "some", "a little", "nothing found", "not known", "alarm"]
# Of epsilon: *claimed* is what the accountant says; nothing was measured for it.
Kind = Literal["measured", "proved", "model-based", "heuristic", "claimed"]
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
    guaranteed: Annotated[
        tuple[float, float] | None,
        "TPR and AUC: ends that hold for independent records whatever their scores' distribution is",
    ] = None


_ABOUT_MEMBERS = "auc|auc-other-party|accuracy|precision|recall|tpr@[0-9.e-]+|epsilon.*"
_ABOUT_SUBJECTS = "count-auc|(balanced-accuracy|f1)@[0-9]+"
_ABOUT_SOURCE = "(label|largest)-accuracy|excess-over-baselines"
_ABOUT_CANARIES = "score-sd|canary-norm"
_ABOUT_ATTRIBUTES = "(members|nonmembers|blind)-(auc|accuracy)|excess-over-blind|members-minus-nonmembers"
_EVERY = "|".join((_ABOUT_MEMBERS, _ABOUT_SUBJECTS, _ABOUT_SOURCE, _ABOUT_ATTRIBUTES, _ABOUT_CANARIES))
_NAMES = Rule("propertyNames", {"pattern": f"^({_EVERY})$"})
_BESIDE = Rule("propertyNames", {"pattern": "^(auc|tpr@[0-9.e-]+)-minus-primary$"})
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
    """`audit.costs` defines `epochs`."""

    epochs: Annotated[
        float,
        Rule("minimum", 0),
        "what running this attack alone takes a round, in local epochs on the parties' training records: every pass "
        "and every training that it needs; what it shares with other attacks is charged to each of them in full",
    ]
    queries: Annotated[
        float | None,
        "labels, where labels are what it costs: the mean over all candidates but the adversary's own, those that set "
        "thresholds among them",
    ] = None
    most_queries: Annotated[float | None, "labels that one of these candidates cost at most"] = None


@dataclass(frozen=True)
class Exhibit:
    """A canary, to be shown: a picture or other values with their shape, or a text; and its label."""

    kind: Literal["image", "values", "text"]
    shape: Sequence[int]
    values: Sequence[float]
    text: str
    label: str


@dataclass(frozen=True)
class AuditResult:
    """One attack from one vantage on one kind of model, for one party or pooled (party None)."""

    attack: str
    vantage: VantageName
    model: ModelKind
    unit: Annotated[str, "whom or what it is about: record, subject, user, attribute, or as its question says"]
    party: Annotated[str | None, "null = pooled over the parties"]
    round: Count
    estimates: Estimates
    cost: Cost
    warnings: Sequence[str] = field(default=(), metadata=ALWAYS)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    layer: Annotated[str | None, "the layer that the attack looked at, where it looks at one"] = None
    beside: Annotated[Mapping[str, Estimate], "minus the primary attack, on the same records", _BESIDE] = field(
        default_factory=dict
    )
    canary: Annotated[Exhibit | None, "the first canary, as it was crafted last"] = None
    question: Annotated[str, "what the result answers; empty: a former version wrote it"] = ""


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
    compared: Annotated[int, Rule("minimum", 1)]
    sentence: Annotated[str, "what may be said, the same everywhere"] = ""
    tone: Tone = "unknown"
    primary: Annotated[str, "the attack that was fixed before looking; empty: the quoted one"] = ""
    grade: Annotated[Grade | None, "the finding in two words, by the lower end of its interval"] = None
    details: Annotated[Sequence[str], "since when, what is not settled, what else was found"] = ()

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
    own: float
    others: float
    value: float
    low: float
    high: float
    confidence: Annotated[float, "for all parties together"]


@dataclass(frozen=True)
class Audit:
    """Everything that one audit found."""

    results: Sequence[AuditResult]
    headlines: Sequence[Headline]
    accuracy: Mapping[str, Estimate]
    warnings: Sequence[str]
    notices: Sequence[str] = ()
    failed: Mapping[str, str] = field(default_factory=dict)  # attacks without a result, and why
    glossary: Mapping[str, str] = field(default_factory=dict)  # what each attack does, in a line
    useless: str = ""  # why the model itself is worth nothing
    more_exposed: Sequence[MoreExposed] = ()
