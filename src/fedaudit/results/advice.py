"""What `fedaudit advise` found: advice.json as a tree of frozen dataclasses."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.privacy.statement import Statement
from fedaudit.results.compare import in_points
from fedaudit.results.gate import Rule
from fedaudit.results.schema import read_file, save_as
from fedaudit.stats.wording import number_text, span_text
from fedaudit.trace import journal
from fedaudit.types import ByName, Estimate
from fedaudit.types.stored import Flag, Many, Number, OrNull, Whole

NO_CHANGE = "as it is"  # the name of the federation without a change
ADVICE, PAGE, ADVISED = "advice.json", "advice.html", "advised.toml"
FREE, CHEAP, LIMIT = "free", "cheap", "limit"  # the points of a search that have a name
HALF = 0.5  # of an accuracy: what has less is an answer to nobody
OF_RUN = "advice"  # the folder in a run's own, where advice about it is looked for


@dataclass(frozen=True, kw_only=True)
class Risk:
    """The largest risk that the limit speaks of, in one run. The ends are those that a gate judges by."""

    attack: str
    vantage: str
    model: str
    party: str | None
    value: Number
    low: OrNull[Number]
    high: OrNull[Number]

    @property
    def place(self) -> tuple[str, str, str, str | None]:
        return self.attack, self.vantage, self.model, self.party

    @property
    def whose(self) -> str:
        """Which attack it is, by whom, on what: for a reader."""
        party = f" of {self.party}" if self.party is not None else ""
        return f"{self.attack} ({self.vantage}, {self.model} models{party})"


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One change, and what was seen of it after so many rounds: a federation that stops there."""

    name: str
    words: str
    overrides: Mapping[str, Any]
    rounds: Whole  # that it was trained for
    of: Whole  # planned
    status: str
    risk: Risk | None
    upper: OrNull[Number] = None  # the largest of all upper ends that the limit speaks of; None: one has none
    estimates: ByName = field(default_factory=dict)  # accuracy

    @property
    def accuracy(self) -> Estimate | None:
        return self.estimates.get("accuracy")


@dataclass(frozen=True, kw_only=True)
class Confirmed:
    """A change in a run that was not used for choosing it, beside the unchanged federation with the same seed."""

    name: str
    points: Many[str]  # free, cheap, limit: what it stands for
    words: str
    overrides: Mapping[str, Any]
    seed: Whole
    verdict: str  # below the limit, undecided, above the limit
    meets: Flag  # every upper end is below the limit, and nothing speaks against believing it
    why_not: str
    risk: Risk | None
    risk_before: Risk | None  # of the same attack from the same vantage; None: there is none without the change
    largest_before: Risk | None  # which may be another attack's, or another vantage's
    strongest: Risk | None  # of all attacks, also of those that the limit does not speak of
    guarantee: Statement | None
    unmasked: Risk | None = None  # the largest for a server that sees every update, where the change masks them
    # accuracy, accuracy-before, accuracy-difference, risk-difference
    estimates: ByName = field(default_factory=dict)

    @property
    def accuracy(self) -> Estimate | None:
        return self.estimates.get("accuracy")

    @property
    def accuracy_before(self) -> Estimate | None:
        return self.estimates.get("accuracy-before")

    @property
    def accuracy_difference(self) -> Estimate | None:
        return self.estimates.get("accuracy-difference")

    @property
    def risk_difference(self) -> Estimate | None:
        return self.estimates.get("risk-difference")


def right(look: Tried) -> float:
    return look.accuracy.value or 0.0 if look.accuracy else 0.0


def beats(one: Tried, other: Tried) -> bool:
    """Is it better in risk or accuracy, and worse in neither?"""
    assert one.risk is not None
    assert other.risk is not None
    mine, yours = (one.risk.value, -right(one)), (other.risk.value, -right(other))
    return mine != yours and mine[0] <= yours[0] and mine[1] <= yours[1]


def frontier(tried: Sequence[Tried]) -> set[str]:
    """The changes that no other beats in both accuracy and risk."""
    seen = {one.name: one for one in tried if one.risk and one.accuracy and one.accuracy.value is not None}
    return {name for name, mine in seen.items() if not any(beats(other, mine) for other in seen.values())}


def named(**estimates: Estimate | None) -> dict[str, Estimate]:
    """Those that there are, by name."""
    dashed = {name.replace("_", "-"): estimate for name, estimate in estimates.items()}
    return {name: replace(estimate, name=name) for name, estimate in dashed.items() if estimate is not None}


@dataclass(frozen=True, kw_only=True)
class Advice:
    schema: Whole
    limit: str
    confidence: Number  # of every interval of a confirming run: the error is shared among those that may be made
    rungs: Many[Whole]
    tried: Many[Tried]
    confirmed: Many[Confirmed]
    recommended: str | None
    nearest: str | None
    sentences: Many[str]
    cost: OrNull[Number]  # of everything, in audits of the unchanged federation; None: partly done before
    about: str | None = None  # `federation_of` the unchanged federation's configuration


def load(directory: Path) -> Advice:
    path = directory / ADVICE
    try:
        return read_file(Advice, path, "run `fedaudit advise` again, in another folder.")
    except (ValueError, RecursionError, OSError):
        what = f"{path} cannot be read as advice"
        raise FedauditError("advice-unreadable", what, "Run `fedaudit advise` again.", exit_code=REFUSED) from None


def federation_of(config: Mapping[str, Any]) -> str:
    """A hash of what is trained, of a configuration as results have it. How it is audited is left out: advice may ask
    other attacks than the run."""
    trained = [config.get(section) for section in ("data", "federation", "model", "defences")]
    return hashlib.sha256(json.dumps(trained, sort_keys=True, default=list).encode()).hexdigest()[:16]


def of_run(run: Path, config: Mapping[str, Any]) -> Advice | None:
    """What `fedaudit advise CONFIG --out RUN/advice` found, if that was run. Refused if it is about another federation
    than that of this configuration."""
    folder = run / OF_RUN
    if not (folder / ADVICE).is_file():
        return None
    advice = load(folder)
    if advice.about != federation_of(config):
        what = f"{folder} has advice about another federation than this run's"
        todo = "Run `fedaudit advise` with the configuration of this run, and that folder as --out."
        raise FedauditError("advice-of-another", what, todo, exit_code=REFUSED)
    return advice


def save(advice: Advice, directory: Path) -> Path:
    """Whoever calls this holds the folder, or nobody does."""
    return save_as(advice, directory / ADVICE, partial(journal.append, directory))


# ------------------------------------------------------------------ in words


def sentences(advice: Advice, limit: Rule) -> list[str]:
    """What may be said. Never that something is safe: these attacks found no more, on this federation."""
    if not advice.confirmed and not any(one.risk for one in advice.tried):
        return [
            "No run has a risk that could be compared: an attack has no figure for this limit, or one by a threshold "
            "from records of another kind. Nothing is advised; the report of a run says more."
        ]
    if not advice.confirmed:
        return ["None of the changes could be trained again with another seed, so nothing is advised."]
    told: list[str] = []
    one = next((c for c in advice.confirmed if c.name == (advice.recommended or advice.nearest)), None)
    if one is None:
        told.append(f"No change could be trained again at {number_text(limit.metric, limit.limit)}.")
    else:
        searched = len(advice.tried) > 1
        told.append(_verdict(one, limit, advice.recommended is not None, searched))
        told += _of_the_limit(one, limit, advice.confidence)
    told += [_other(other, limit, one) for other in advice.confirmed if set(other.points) & set(PRICES)]
    told.append(
        "These are the attacks that were tried, on this federation and on one training run: a limit that is kept here "
        "is not proof that nobody can do better."
    )
    return told


NO_PRICE = "What it costs is not known: this model has no accuracy (a regression has none)."
PRICES = {FREE: "Without a loss of accuracy in the search", CHEAP: "For at most two points of accuracy in the search"}


def _of_the_limit(one: Confirmed, limit: Rule, confidence: float) -> list[str]:
    told = [_risk(one, limit, confidence)] if one.risk else []
    if one.risk and one.strongest and one.strongest.place != one.risk.place:
        found = _span(limit.metric, one.strongest)
        told.append(f"Of all attacks that were made on it, {one.strongest.whose} finds most: {found}.")
    told += [_accuracy(one)] if one.accuracy and one.accuracy_before else [NO_PRICE]
    if one.accuracy and one.accuracy_before and (one.accuracy.value or 0) < HALF * (one.accuracy_before.value or 0):
        told.append("That is less than half of what the model was right on: hardly a model any more.")
    if one.unmasked is not None:
        found = f"{_span(limit.metric, one.unmasked)}, by {one.unmasked.whose}"
        told.append(f"A server that sees every update, without secure aggregation, would have {found}.")
    if one.guarantee and one.guarantee.epsilon is not None:
        g = one.guarantee
        promise = f"epsilon {g.epsilon:.3g} at delta {g.delta:g}, against {g.against}"
        told.append(f"It comes with {g.unit}-level differential privacy: {promise}.")
    elif one.name != NO_CHANGE:
        told.append("It promises nothing: the figures were measured.")
    return told


def _other(one: Confirmed, limit: Rule, at_limit: Confirmed | None) -> str:
    price = PRICES[FREE if FREE in one.points else CHEAP]
    if at_limit is not None and one.name == at_limit.name:
        return f"{price}, nothing lower was found than that."
    risk = _span(limit.metric, one.risk) if one.risk else "no value"
    text = f"{price}: {one.words}. With another seed the largest risk is {risk}"
    if one.largest_before is not None:
        text += f", without the change {_span(limit.metric, one.largest_before)}"
    if one.accuracy_difference is not None and one.accuracy_difference.value is not None:
        text += f"; accuracy changes by {in_points('accuracy', one.accuracy_difference)}"
    return f"{text}."


def _verdict(one: Confirmed, limit: Rule, meets: bool, searched: bool) -> str:
    bound = number_text(limit.metric, limit.limit)
    if meets and one.name == NO_CHANGE:
        return f"Nothing has to be changed to stay below {bound}: a fresh run with another seed confirms it."
    if meets:
        return f"To stay below {bound}, {one.words}: a fresh run with another seed confirms it."
    why = f" ({one.why_not})" if one.why_not else ""
    if one.name == NO_CHANGE and not searched:
        return (
            f"No attack found anything in this federation as it is, so nothing was searched. It was not confirmed to "
            f"stay below {bound}{why}: an audit of this size cannot show so little. `fedaudit plan` says what can."
        )
    return f"None of the changes was confirmed to stay below {bound}{why}. What comes nearest is to {one.words}."


def _risk(one: Confirmed, limit: Rule, confidence: float) -> str:
    assert one.risk is not None
    what = "AUC" if limit.metric == "auc" else f"share of training records picked out ({limit.metric})"
    text = f"In that run the largest {what} is {_span(limit.metric, one.risk)}, by {one.risk.whose}"
    if one.name != NO_CHANGE:
        text += _without(one, limit.metric)
    return f"{text}. All intervals are at {100 * confidence:.4g} %."


def _without(one: Confirmed, metric: str) -> str:
    """What the same attack finds without the change, and what the strongest one does if that is another."""
    text, before, largest = "", one.risk_before, one.largest_before
    if before is not None:
        text += f"; without the change the same attack finds {_span(metric, before)}"
    if one.risk_difference is not None and one.risk_difference.value is not None:
        text += f", a difference of {in_points(metric, one.risk_difference)}"
    if largest is not None and (before is None or largest.place != before.place):
        text += f". The largest without the change is {_span(metric, largest)}, by {largest.whose}"
    return text


def _accuracy(one: Confirmed) -> str:
    assert one.accuracy is not None
    text = f"The model is right on {_span('accuracy', one.accuracy)} of the records it was not trained on"
    if one.name == NO_CHANGE or one.accuracy_before is None:
        return f"{text}."
    text += f", without the change on {_span('accuracy', one.accuracy_before)}"
    if one.accuracy_difference is not None:
        text += f": a difference of {in_points('accuracy', one.accuracy_difference)}"
    return f"{text}."


def _span(metric: str, found: Risk | Estimate) -> str:
    return f"{number_text(metric, found.value)} ({span_text(metric, found.low, found.high)})"
