"""What may be said of a headline: estimates in, words out. Results, page and terminal show this sentence and no other.

The lower end of an interval decides, never the value. Chance is never called safe, a missing number is never called
chance, and an interval that begins at 0 for want of records is "not settled".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedaudit.stats.plan import Sizes, smallest_visible_auc, smallest_visible_tpr
from fedaudit.stats.strongest import RANK, Heard
from fedaudit.stats.wording import (
    behind,
    confidence,
    count,
    fpr_of,
    interval_text,
    main_tpr,
    plain_span,
    rate,
    share,
    since_round,
    value_of,
    value_text,
)
from fedaudit.types import AuditResult, Estimate, Grade, Headline, Tone

WHO = {
    "client": "Any party that sees the global models",
    "server": "Whoever runs the server",
    "outsider": "Anyone who can query the final model",
    "label-only-client": "A party that sees nothing but predicted labels",
    "secagg-server": "A server that sees only the sum of all updates",
}
# Whoever stands left sees all that those on the right see.
CONTAINS = {
    "server": ("secagg-server", "client", "label-only-client", "outsider"),
    "secagg-server": ("client", "label-only-client", "outsider"),
    "client": ("label-only-client", "outsider"),
}
UNITS = {
    "record": ("training records", "a training record"),
    "subject": ("subjects in the training data", "a subject of the training data"),
    "user": ("users behind the training data", "a user behind the training data"),
    "attribute": ("hidden attribute values", "a true attribute value"),
}
NOTHING = {"subject": "No evidence was found that {who} can tell who is in the training data"}
NOTHING_ON_AVERAGE = {"subject": "no evidence was found that it can tell who is in the training data"}
NEARLY_ALL, MOST = 0.9, 0.5  # lower ends from which on "nearly everybody" and "most" are said


@dataclass(frozen=True)
class Scene:
    """What is known beside the headlines. `name`: the TPR that they quote. `primary`: by vantage, what the attack that
    was fixed before looking found; empty where it is not known any more. `about`: what each attack does, in a line."""

    results: Sequence[AuditResult]
    rounds: int
    name: str | None
    primary: Mapping[str, Heard] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)


def worded(headlines: Sequence[Headline], scene: Scene) -> list[Headline]:
    """The headlines, each with its sentence, its grade and what else is to be said."""
    told = [_told(headline, scene) for headline in headlines]
    return [_not_less_than(headline, told, scene.name) for headline in told]


def of_former_version(headlines: Sequence[Headline], results: Sequence[AuditResult], rounds: int) -> list[Headline]:
    """Headlines without a sentence, as the first versions wrote them: their own intervals decide."""
    name = main_tpr([headline.estimates for headline in headlines])
    decided = [
        replace(h, tone=Heard(h.attack, h.model, h.estimates, h.estimates, True).tone(name))
        for h in headlines
        if h.attack != "blind"
    ]
    return worded(decided, Scene(results, rounds, name))


def grade(tone: Tone, tpr: Estimate | None) -> Grade:
    """By the lower end, as everything here."""
    low = 0.0 if tone != "found" or tpr is None or tpr.low is None else tpr.low
    some: Grade = "nearly everybody" if low >= NEARLY_ALL else "most" if low >= MOST else "some"
    grades: dict[Tone, Grade] = {"none": "nothing found", "unknown": "not known", "alarm": "alarm"}
    return grades.get(tone, some)


def _told(headline: Headline, scene: Scene) -> Headline:
    entry, name = behind(scene.results, headline), scene.name
    rounds = (entry.round if entry else 0) or scene.rounds
    what = re.split("[:;]", scene.about.get(headline.attack, ""))[0]
    how = f"; after {count(rounds)} round{'' if rounds == 1 else 's'}, by {headline.attack}{': ' * bool(what)}{what}"
    tone, sentence, details = _claim(headline, name, how, _nouns(headline, entry))
    if tone in ("none", "unknown") and entry and entry.unit == "subject":
        details += _smallest_seen(headline, name)
    if headline.primary and (fixed := scene.primary.get(headline.vantage)):
        details.append(_of_the_primary(fixed, name))
    if tone in ("found", "weak"):
        key, chance = (name, fpr_of(name)) if tone == "found" and name else ("auc", 0.5)
        since = since_round(entry.curves.get(key) if entry else None, chance or 0.5)
        details += [] if since is None else [f"It has been so since round {since}."]
        details += over_blind(scene.results, headline)
    details += _stronger(headline)
    graded = grade(tone, headline.estimates.get(name or ""))
    return replace(headline, sentence=sentence, tone=tone, grade=graded, details=tuple(details))


def _nouns(headline: Headline, entry: AuditResult | None) -> tuple[str, str, str, str]:
    """What is picked out, many and one; and how to say that nothing is, and that nothing is seen on average."""
    unit = entry.unit if entry else "record"
    many, one = UNITS.get(unit, UNITS["record"])
    nothing = NOTHING.get(unit, "Nothing beyond chance was found for {who} at this sample size")
    if headline.vantage == "server" and headline.model == "local":
        many = f"the parties' {many}"
    elif many == "training records":
        many = "the training records"
    return many, one, nothing, NOTHING_ON_AVERAGE.get(unit, "nothing beyond chance was found")


def _claim(
    headline: Headline, name: str | None, how: str, nouns: tuple[str, str, str, str]
) -> tuple[Tone, str, list[str]]:
    """The tone as it was decided (or "unknown" where it cannot be settled), one sentence, and what goes with it."""
    who, tone = _who(headline.vantage), headline.tone
    auc, tpr = headline.estimates.get("auc"), headline.estimates.get(name or "")
    fpr = fpr_of(name or "") or 0.0
    how = _wider(headline) + how
    if tone == "alarm":
        return tone, (
            f"{who} ranks outsiders above members (AUC {value_text('auc', auc)}, "
            f"{_interval('auc', auc)}{how}): look for swapped labels or a reversed score."
        ), []  # fmt: skip
    average = f"shown {nouns[1]} and an outsider, it tells which is which {share(value_of(auc), 1)} of the time"
    guessing = f"({_interval('tpr@', auc)}; guessing is 50 %"
    better = f"{who} does better than guessing: {average} {guessing}{how})."
    at_chance = [f"On average {nouns[3]}: {average} {guessing})."] if auc and auc.low is not None else []
    if tpr is None or tpr.value is None:
        why = f" ({tpr.reason})" if tpr and tpr.reason else " in this audit"
        absent = f"The share that {_lower(who)} can pick out could not be measured{why}."
        return ("weak", better, [absent]) if tone == "weak" else ("unknown", absent, at_chance)
    hits = f"about {count(round(tpr.value * tpr.n_pos))} of {count(tpr.n_pos)}"
    shares = f"{share(tpr.value)} of {nouns[0]} ({hits}) while wrongly accusing {rate(fpr)} of outsiders"
    shares += f" ({_interval(name or 'tpr@', tpr)}"
    if tone == "found":
        return tone, f"{who} can pick out {shares}{how}).", []
    begins = tpr.reason or f"the interval begins at {share(tpr.low)}, which is not above {rate(fpr)}"
    if tpr.low is not None and tpr.low > fpr:
        begins = "among all the figures of this audit, one like it is to be expected by chance"
    open_question = f"ow much {_lower(who)} can pick out is not settled: {shares}"
    if tone == "weak":
        return tone, better, [f"H{open_question}); {begins}."]
    if (tpr.low is not None and tpr.low > fpr) or (tpr.reason and tpr.value > fpr):
        return "unknown", f"H{open_question}{how}); {begins}.", at_chance
    why = f" ({tpr.reason})" if tpr.reason else ""
    start = f"{nouns[2].format(who=_lower(who))}{why}: it picked out {shares}{how})."
    return "none", start, [f"That is no proof of safety: up to {share(tpr.high)} remains possible."]


def _wider(headline: Headline) -> str:
    """Why an interval has another confidence than the audit, where more than the primary attack was compared."""
    return f", corrected for the {count(headline.compared)} results of this audit" if headline.primary else ""


def _stronger(headline: Headline) -> list[str]:
    """The same where a server's two kinds of models were."""
    if headline.primary or headline.compared == 1:
        return []
    kinds = f"the stronger of {count(headline.compared)} kinds of models is quoted, the {headline.model} ones"
    return [f"The intervals are wider, because {kinds}."]


def _of_the_primary(fixed: Heard, name: str | None) -> str:
    """Said where another attack is quoted."""
    key = name if name and value_of(fixed.estimates.get(name)) is not None else "auc"
    estimate = fixed.estimates.get(key)
    measure = "an AUC of" if key == "auc" else "picks out"
    return (
        f"The attack that was fixed before looking, {fixed.attack}, finds less: {measure} {value_text(key, estimate)} "
        f"({_interval(key, estimate)})."
    )


def _smallest_seen(headline: Headline, name: str | None) -> list[str]:
    """Of a person nobody may say "safe": what is not found may be smaller than what could have been."""
    auc, tpr = headline.estimates.get("auc"), headline.estimates.get(name or "")
    if auc is None or not (auc.n_pos and auc.n_neg):
        return []
    calibration = (tpr.n_cal if tpr else None) or 0
    sizes = Sizes(auc.n_pos, auc.n_neg, calibration)
    least = smallest_visible_auc(sizes, auc.confidence)
    fpr = fpr_of(name or "")
    rate_seen = smallest_visible_tpr(sizes, fpr, auc.confidence) if fpr and calibration else None
    seen = [f"an AUC of {least:.3f}"] if least is not None else []
    seen += [f"{share(rate_seen)} picked out at {rate(fpr)} false accusations"] if fpr and rate_seen is not None else []
    counts = f"{count(auc.n_pos)} members and {count(auc.n_neg)} outsiders"
    if not seen:
        return [f"With {counts}, this audit could have seen no risk at all."]
    return [f"The smallest risk that this audit could have seen, with {counts}, is {' or '.join(seen)}."]


def _not_less_than(headline: Headline, told: Sequence[Headline], name: str | None) -> Headline:
    """Whoever sees more can do at least as much, however its own attack came out."""
    inside = [other for other in told if other.vantage in CONTAINS.get(headline.vantage, ())]

    def strength(other: Headline) -> tuple[int, float]:
        return RANK[other.tone], value_of(other.estimates.get(name or "auc")) or 0.0

    strongest = max(inside, key=strength, default=None)
    if strongest is None or RANK[strongest.tone] == 0 or strength(strongest) <= strength(headline):
        return headline
    estimate = strongest.estimates.get(name or "")
    figure = ""
    if strongest.tone == "found" and estimate is not None:
        figure = f" ({share(estimate.value)} by {strongest.attack}, {_interval(name or 'tpr@', estimate)})"
    weaker = _lower(_who(strongest.vantage))
    least = f"{_who(headline.vantage)} sees all that is seen by {weaker}, and can do at least as much{figure}."
    details = (headline.sentence, *headline.details)
    return replace(headline, sentence=least, tone=strongest.tone, grade=strongest.grade, details=details)


# ------------------------------------------------------------------ beside a blind guess


def blind_auc(results: Sequence[AuditResult]) -> Estimate | None:
    found = next((r for r in results if r.attack == "blind" and not r.party), None)
    return found.estimates.get("auc") if found else None


def over_blind(results: Sequence[AuditResult], headline: Headline) -> list[str]:
    """Said where a guess without any model beats chance: only what exceeds it can come from training."""
    blind, ours = blind_auc(results), headline.estimates.get("auc")
    if blind is None or blind.low is None or blind.low <= 0.5 or ours is None:
        return []
    ends = ours.value, ours.low, ours.high, blind.value, blind.high
    value, low, high, guess, guess_high = (0.0 if end is None else end for end in ends)
    if low - guess_high <= 0:
        return ["Its AUC is not clearly above the blind guess, so this audit cannot put it down to the federation."]
    span = plain_span(low - guess_high, high - blind.low)
    return [f"Its AUC exceeds the blind guess by {value - guess:.3f} (both intervals together allow {span})."]


def _interval(name: str, est: Estimate | None) -> str:
    return f"{confidence(est)} interval {interval_text(name, est)}"


def _who(vantage: str) -> str:
    return WHO.get(vantage, f"An adversary at the vantage “{vantage}”")


def _lower(phrase: str) -> str:
    return phrase[0].lower() + phrase[1:]
