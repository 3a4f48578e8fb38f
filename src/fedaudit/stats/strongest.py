"""The strongest finding of a vantage: what a verdict, a gate, a halt and an advice rest on.

One attack of each vantage, its primary one, was fixed before looking. Everything else that was run counts as well: a
leak does not matter less because another attack was expected to find it. So that looking at many attacks does not raise
the number of false alarms, the error is shared: the primary attacks get one half of it, all the others together the
other half. Raising the scores of any attack can then never make a verdict milder (`tests/results/test_strongest.py`).
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, replace

from fedaudit.stats.wording import fpr_of, main_tpr
from fedaudit.types import Estimate, Grade, Headline, ModelKind, Notice, Tone, Vantage, VantageName

Estimates = Mapping[str, Estimate]
NEARLY_ALL, MOST = 0.9, 0.5  # lower ends from which on "nearly everybody" and "most" are said
RANK: dict[Tone, int] = {"unknown": 0, "none": 0, "alarm": 0, "weak": 1, "found": 2}


@dataclass(frozen=True)
class Shares:
    """The confidence of each interval that decides, so that all lower ends hold together at the audit's level."""

    primary: float
    other: float

    @classmethod
    def among(cls, confidence: float, primaries: int, others: int) -> "Shares":
        """Halves of the error (Bonferroni within each half); if there are only primary results, they have all of it."""
        error = 1 - confidence
        halves = 2 if primaries and others else 1
        return cls(1 - error / halves / max(primaries, 1), 1 - error / halves / max(others, 1))

    def of(self, primary: bool) -> float:
        return self.primary if primary else self.other


@dataclass(frozen=True)
class Heard:
    """What one attack on one kind of model says to a verdict: `estimates` are quoted, `decisive` share the error."""

    attack: str
    model: ModelKind
    estimates: Estimates
    decisive: Estimates
    primary: bool

    def tone(self, name: str | None) -> Tone:
        """Is it better than chance: at the rate that is quoted (found), or on average (weak)?"""
        auc, tpr, fpr = self.decisive.get("auc"), self.decisive.get(name or ""), fpr_of(name or "")
        if fpr is not None and _above(tpr, fpr):
            return "found"
        if _above(auc, 0.5):
            return "weak"
        if auc is not None and auc.high is not None and auc.high < 0.5:
            return "alarm"
        return "none" if tpr is not None and tpr.value is not None and tpr.doubt is None else "unknown"

    def strength(self, name: str | None) -> tuple[int, float, float]:
        """By what is certain, never by the value alone: many attacks were run, and one of them is always lucky."""
        tone, auc = self.tone(name), _low(self.decisive.get("auc"))
        return RANK[tone], _low(self.decisive.get(name or "")) if tone == "found" else auc, auc


def strongest(heard: Iterable[Heard], name: str | None) -> Heard:
    """The one to quote: the primary, unless another attack certainly finds more than the primary certainly does.

    `name`: the TPR that is quoted, if there is one.
    """
    ordered = sorted(heard, key=lambda one: not one.primary)  # the first of equals stays the first
    primary = next(one for one in ordered if one.primary)
    best = max(ordered, key=lambda one: one.strength(name))
    return best if RANK[best.tone(name)] else primary


# ------------------------------------------------------------------ from all that was run to what is quoted


@dataclass(frozen=True)
class LookedAt:
    """How many results share the error: of primary attacks, of others, and of both (one may be primary at one vantage
    and not at another)."""

    primaries: int
    others: int
    all: int


@dataclass(frozen=True)
class Speaker:
    """One attack on one kind of models, from one vantage. `seen`: what it looks at; where two vantages see the same, it
    is one result. `pooled`: its estimates at a confidence."""

    vantage: VantageName
    attack: str
    model: ModelKind
    _: KW_ONLY
    seen: Hashable
    primary: bool
    pooled: Callable[[float], Estimates]


@dataclass(frozen=True)
class Quoted:
    """The headline of each vantage with what the primary attack said there, and the TPR that all of them quote."""

    headlines: Sequence[Headline]
    primary: Mapping[str, Heard]  # by vantage
    average: Mapping[str, Heard]  # by vantage, the attack that certainly has the largest AUC
    name: str | None
    notices: Sequence[Notice] = ()


def models_of(vantage: Vantage) -> list[ModelKind]:
    """The kinds of models that a vantage sees; a server receives the global ones as well."""
    return ["local", "global"] if vantage is Vantage.SERVER else ["global"]


def listen(
    places: Sequence[Speaker],
    confidence: float,
    figures: int,
    blamed_on: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> tuple[dict[VantageName, list[Heard]], LookedAt]:
    """By vantage, everything that was run there, with the error shared among all of it: of `figures` each, the AUC and
    the TPR that is quoted. What several vantages see is one: a server's global models are any party's."""
    counted = {own: {(p.attack, p.seen) for p in places if p.primary is own} for own in (True, False)}
    shares = Shares.among(confidence, figures * len(counted[True]), figures * len(counted[False]))
    heard: dict[VantageName, list[Heard]] = {place.vantage: [] for place in places}
    for place in places:
        kinds = sum((p.vantage, p.attack) == (place.vantage, place.attack) for p in places)
        with blamed_on(place.attack):
            decisive = place.pooled(shares.of(place.primary))
            own = place.pooled(1 - (1 - confidence) / kinds) if place.primary else decisive
            heard[place.vantage].append(Heard(place.attack, place.model, own, decisive, place.primary))
    audible = {vantage: said for vantage, said in heard.items() if any(one.primary for one in said)}
    return audible, LookedAt(len(counted[True]), len(counted[False]), len(counted[True] | counted[False]))


def chosen(heard: Mapping[VantageName, Sequence[Heard]], looked_at: int) -> Quoted:
    """What is quoted of all that was heard. `looked_at`: how many results the attacks beside the primary ones share
    their error with."""
    name = main_tpr([one.estimates for all_of in heard.values() for one in all_of if one.primary])
    found: list[Headline] = []
    primary: dict[str, Heard] = {}
    average: dict[str, Heard] = {}
    for vantage, all_of in heard.items():
        best = strongest(all_of, name)
        average[vantage] = max(all_of, key=lambda one: one.strength(None))
        primary[vantage] = strongest([one for one in all_of if one.primary], name)
        of = sum(one.primary for one in all_of) if best.primary else looked_at
        doubted = any(estimate.doubt for one in all_of for estimate in one.decisive.values())
        tone = best.tone(name)
        tone = "unknown" if tone == "none" and doubted else tone
        quoted = Headline(vantage, best.attack, best.model, best.estimates, of, tone=tone)
        quoted = replace(quoted, grade=grade(tone, best.decisive.get(name or "")))
        found.append(quoted if best.primary else replace(quoted, primary=primary[vantage].attack))
    return Quoted(found, primary, average, name)


def grade(tone: Tone, tpr: Estimate | None) -> Grade:
    """By the lower end, as everything here. "A little" is better than guessing on average, and no more."""
    low = 0.0 if tpr is None or tpr.low is None else tpr.low
    some: Grade = "nearly everybody" if low >= NEARLY_ALL else "most" if low >= MOST else "some"
    others: dict[Tone, Grade] = {"weak": "a little", "none": "nothing found", "unknown": "not known", "alarm": "alarm"}
    return others.get(tone, some)


def certain(headline: Headline, name: str | None) -> tuple[int, float]:
    """How strong a quoted finding certainly is, to compare it with others. `name`: the TPR that is quoted."""
    key = name if name is not None and headline.tone == "found" else "auc"
    return RANK[headline.tone], _low(headline.estimates.get(key))


def proved_ends(estimate: Estimate) -> tuple[float | None, float | None]:
    """A verdict on a limit rests on the guaranteed ends, where an estimate has them: they hold for every distribution
    of scores of independent records. Where people have several records, those of a TPR rest on estimated design
    effects, those of an AUC on the effective number of people."""
    return estimate.guaranteed or (estimate.low, estimate.high)


def _above(estimate: Estimate | None, chance: float) -> bool:
    return estimate is not None and estimate.low is not None and estimate.low > chance


def _low(estimate: Estimate | None) -> float:
    return -1.0 if estimate is None or estimate.low is None else estimate.low


# ------------------------------------------------------------------ what (epsilon, delta)-DP allows anybody to find


def allowed(epsilon: float, delta: float, fpr: float) -> float:
    """The largest TPR that (epsilon, delta)-DP lets any test reach at this FPR."""
    return min(math.exp(min(epsilon, 50.0)) * fpr + delta, 1 - math.exp(-epsilon) * (1 - delta - fpr), 1.0)


def epsilon_for(most: float, delta: float, fpr: float) -> float:
    """The largest epsilon at which nobody can pick out more than `most` of the members."""
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if allowed(middle, delta, fpr) <= most else (low, middle)
    return low
