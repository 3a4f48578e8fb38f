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

from fedaudit.stats.wording import fpr_of, from_one_percent, main_tpr, point_text, short_measure, without
from fedaudit.types import Estimate, Grade, Headline, ModelKind, Notice, Tone, Vantage, VantageName

Estimates = Mapping[str, Estimate]
RANK: dict[Tone, int] = {"unknown": 0, "none": 0, "alarm": 0, "weak": 1, "found": 2}
# How grave a grade is; "at least a little" may be more than "a little".
SEVERITY: dict[Grade, int] = {
    **dict.fromkeys(("alarm", "not known", "nothing found"), 0),
    **{"a little": 1, "at least a little": 2, "some": 3, "most": 4, "nearly everybody": 5},
}
# Lower ends from which on "some", "most" and "nearly everybody" are said. Of a share: at an FPR of at most STRICT; more
# than the FPR is "some" at every rate. Of an AUC: a ROC curve with an AUC of a has a point where the TPR exceeds the
# FPR by 1 - sqrt(2 - 2a), whatever its shape, which is a tenth, half and nine tenths here.
SHARES, AREAS = (0.5, 0.9), (0.6, 0.875, 0.995)
STRICT = 0.1
LITTLE, SLIGHT_AUC = 0.05, 0.6  # "a little": upper ends leave this much beside the FPR at most, and this AUC


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

    @property
    def level(self) -> int:
        """How much is certain: 0 nothing, 1 that it beats guessing on average, 2 some, 3 most, 4 nearly everybody."""
        return max(map(level, self.decisive.values()), default=0)

    def figure(self, name: str | None) -> str:
        """Which figure the grade rests on, a TPR if one suffices: the one at 1 %, or at the nearest rate. `name`: the
        TPR that is quoted where nothing is certain."""
        rates = sorted((each for each in self.decisive if fpr_of(each)), key=from_one_percent)
        reaching = [each for each in (*rates, "auc") if self.level and level(self.decisive.get(each)) == self.level]
        return next(iter(reaching), name or "auc")

    def tone(self, name: str | None) -> Tone:
        """Is something certain: a share, or an AUC that stands for one (found), or an average (weak)?"""
        auc, tpr = self.decisive.get("auc"), self.decisive.get(name or "")
        if self.level:
            return "found" if self.level > 1 else "weak"
        if auc is not None and auc.high is not None and auc.high < 0.5:
            return "alarm"
        return "none" if tpr is not None and tpr.value is not None and tpr.doubt is None else "unknown"

    def strength(self, name: str | None) -> tuple[float, ...]:
        """By what is certain, never by the value alone: many attacks were run, and one of them is always lucky. First
        the grade, then the TPR that is quoted, then those at other rates, then the AUC; none falls where ends rise."""
        beyond = {key: _low(e) - fpr for key, e in self.decisive.items() if (fpr := fpr_of(key))}
        above = {key: max(most, 0.0) for key, most in beyond.items()}
        return self.level, above.get(name or "", 0.0), max(above.values(), default=0.0), _low(self.decisive.get("auc"))


def level(estimate: Estimate | None) -> int:
    """How much the lower end of an AUC or a TPR shows (`Heard.level`)."""
    low, fpr = _low(estimate), fpr_of(estimate.name if estimate else "")
    if estimate is not None and estimate.name == "auc":
        return (low > 0.5) + sum(low >= least for least in AREAS) if low > 0.5 else 0
    if fpr is None or low <= fpr:
        return 0
    return 2 + sum(low >= least for least in SHARES if fpr <= STRICT)


def strongest(heard: Iterable[Heard], name: str | None) -> Heard:
    """The one to quote: the primary, unless another attack certainly finds more than the primary certainly does.

    `name`: the TPR that is quoted, if there is one.
    """
    ordered = sorted(heard, key=lambda one: not one.primary)  # the first of equals stays the first
    primary = next(one for one in ordered if one.primary)
    best = max(ordered, key=lambda one: one.strength(name))
    return best if best.level else primary


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
    the TPR at every rate. What several vantages see is one: a server's global models are any party's."""
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
        average[vantage] = max(all_of, key=lambda one: _low(one.decisive.get("auc")))
        primary[vantage] = strongest([one for one in all_of if one.primary], name)
        of = sum(one.primary for one in all_of) if best.primary else looked_at
        doubted = any(estimate.doubt for one in all_of for estimate in one.decisive.values())
        tone, figure, estimates = best.tone(name), best.figure(name), best.estimates
        tone = "unknown" if tone == "none" and doubted else tone
        if figure not in (name, "auc"):  # chosen among the rates, and so with the error shared among them
            estimates = {**estimates, figure: best.decisive[figure]}
        quoted = Headline(vantage, best.attack, best.model, estimates, of, tone=tone, figure=figure)
        quoted = replace(quoted, grade=grade(tone, best.level))
        found.append(quoted if best.primary else replace(quoted, primary=primary[vantage].attack))
    return Quoted(found, primary, average, name)


def grade(tone: Tone, level: int) -> Grade:
    """By lower ends, as everything here; `words.headlines` says "a little" where upper ends bound it."""
    if level > 1:
        return ("some", "most", "nearly everybody")[level - 2]
    others: dict[Tone, Grade] = {"weak": "at least a little", "none": "nothing found", "alarm": "alarm"}
    return others.get(tone, "not known")


def slight(estimates: Iterable[Estimate]) -> bool:
    """Do the upper ends of all these leave a little at most? Not where one of them has none, or leaves parties out."""
    judged = [e for e in estimates if e.name == "auc" or 0 < (fpr_of(e.name) or 1) <= STRICT]
    most = {e.name: SLIGHT_AUC if e.name == "auc" else (fpr_of(e.name) or 0) + LITTLE for e in judged}
    bounded = all(e.high is not None and e.high <= most[e.name] and not (e.doubt or e.missing) for e in judged)
    return bounded and any(fpr_of(e.name) for e in judged)


@dataclass(frozen=True)
class QuotedFigure:
    """What everything says of a vantage: `name` is the figure, `whose` the headline that it is from, which is that of a
    vantage that sees less where this one did more."""

    headline: Headline
    whose: Headline
    name: str

    @property
    def estimate(self) -> Estimate | None:
        return self.whose.estimates.get(self.name)

    @property
    def text(self) -> str:
        """The figure with its interval, what it is, and who is missing from it."""
        e = self.estimate
        if e is None or e.value is None:
            return ", ".join(filter(None, ("not measured", without(e))))
        figure = f"{point_text(self.name, e.value, e.low, e.high)} {short_measure(self.name)}"
        return ", ".join(filter(None, (figure, without(e))))

    @property
    def by(self) -> str:
        return f"{self.whose.attack}, {self.whose.model} models"


def quoted_figures(headlines: Iterable[Headline]) -> list[QuotedFigure]:
    """One for each vantage. Nothing else decides what is quoted of a run."""
    known = [headline for headline in headlines if headline.attack != "blind"]
    main = main_tpr([headline.estimates for headline in known])
    return [_quoted(headline, known, main) for headline in known]


def _quoted(headline: Headline, headlines: Sequence[Headline], main: str | None) -> QuotedFigure:
    whose = next((one for one in headlines if one.vantage == headline.lent_by), headline)
    wanted = [whose.figure] if whose.figure else ["auc"] if whose.tone == "weak" else [main or "auc"]
    valued = [name for name in (*wanted, "auc") if (e := whose.estimates.get(name)) and e.value is not None]
    return QuotedFigure(headline, whose, valued[0] if valued else wanted[0])


def leading(headlines: Iterable[Headline]) -> QuotedFigure | None:
    """That of the gravest headline of a run."""
    figures = quoted_figures(headlines)
    main = main_tpr([one.headline.estimates for one in figures])
    return max(figures, key=lambda one: certain(one.whose, main), default=None)


def certain(headline: Headline, name: str | None) -> tuple[float, ...]:
    """How strong a quoted finding certainly is, to compare it with others. `name`: the TPR that is quoted."""
    low, fpr = _low(headline.estimates.get(name or "")), fpr_of(name or "") or 0.0
    grave = SEVERITY.get(headline.grade or "not known", 0)
    return grave, max(low - fpr, 0.0), _low(headline.estimates.get("auc"))


def proved_ends(estimate: Estimate) -> tuple[float | None, float | None]:
    """A verdict on a limit rests on the guaranteed ends, where an estimate has them: they hold for every distribution
    of scores of independent records. Where people have several records, those of a TPR rest on estimated design
    effects, those of an AUC on the effective number of people."""
    return estimate.guaranteed or (estimate.low, estimate.high)


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
