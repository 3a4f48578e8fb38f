"""Like beside like: the same attack, from the same vantage, on the same kind of model, in several runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedaudit.questions import metric as described
from fedaudit.questions import of_membership
from fedaudit.results.document import Document
from fedaudit.results.gate import sees
from fedaudit.types import Estimate, Headline, ModelKind

Key = tuple[str, str, str]  # vantage, attack, model


@dataclass(frozen=True)
class Like:
    vantage: str
    attack: str
    model: str
    risks: Mapping[str, Estimate]  # by run, of those that have it
    metric: str


def alike(documents: Mapping[str, Document], metrics: Sequence[str]) -> list[Like]:
    """By each of the metrics, what every run found of whatever some run quotes, or had fixed before looking."""
    return [*(like for metric in metrics for like in _alike(documents, metric)), *_other_questions(documents)]


def _other_questions(documents: Mapping[str, Document]) -> list[Like]:
    """What other questions than membership found, by every figure that says of a risk how large it is."""
    found: dict[tuple[str, str, ModelKind, str], dict[str, Estimate]] = {}
    for run, document in documents.items():
        for entry in document.results:
            if entry.party is None and entry.attack != "blind" and not of_membership(entry):
                for name, estimate in entry.estimates.items():
                    if described(name).gated and estimate.kind != "claimed":
                        found.setdefault((entry.vantage, entry.attack, entry.model, name), {})[run] = estimate
    return [Like(*key[:3], risks, key[3]) for key, risks in found.items() if len(risks) > 1]


def _alike(documents: Mapping[str, Document], metric: str) -> list[Like]:
    """A server sees the global models that a client sees: these are named once."""
    found: list[Like] = []
    quoted = [headline for document in documents.values() for headline in document.headlines]
    for key in dict.fromkeys(key for headline in quoted for key in _keys(headline)):
        risks = {name: risk for name, document in documents.items() if (risk := risk_of(document, key, metric))}
        named = key[2] == "global" and key[1:] in [(like.attack, like.model) for like in found]
        if len(risks) > 1 and not named:
            found.append(Like(*key, risks, metric))
    return found


def _keys(headline: Headline) -> list[Key]:
    return [(headline.vantage, attack, headline.model) for attack in dict.fromkeys((headline.attack, headline.fixed))]


def risk_of(document: Document, key: Key, metric: str) -> Estimate | None:
    """As a headline quotes it, or as it stands among the pooled results."""
    for headline in document.headlines:
        if (headline.vantage, headline.attack, headline.model) == key and metric in headline.estimates:
            return headline.estimates[metric]
    for entry in document.results:
        same = (entry.attack, entry.model, entry.party) == (*key[1:], None)
        if same and sees(key[0], entry) and metric in entry.estimates:
            return entry.estimates[metric]
    return None
