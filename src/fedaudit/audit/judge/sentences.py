"""What may be said of a headline: estimates in, words out. Results, page and terminal show this sentence and no other.

The lower end of an interval decides, never the value. Chance is never called safe, a missing number is never called
chance, and an interval that begins at 0 for want of records is "not settled".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedaudit.stats.plan import Sizes, smallest_visible_auc, smallest_visible_tpr
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
from fedaudit.types import AuditResult, Estimate, Headline, Tone

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
STRENGTH: dict[Tone, int] = {"unknown": 0, "none": 0, "alarm": 0, "weak": 1, "found": 2}


@dataclass(frozen=True)
class Beyond:
    """An attack that is not quoted and found more than chance, its error shared among all `looked_at`."""

    attack: str
    model: str
    estimate: Estimate
    looked_at: int


@dataclass(frozen=True)
class Scene:
    """What is known beside a headline. `beyond`: by vantage; None where other attacks cannot be judged again."""

    results: Sequence[AuditResult]
    rounds: int
    beyond: Mapping[str, Sequence[Beyond]] | None = None
    useless: str = ""  # why the model itself is worth nothing


def worded(headlines: Sequence[Headline], scene: Scene) -> list[Headline]:
    """The headlines, each with its sentence and tone."""
    name = main_tpr(headlines)
    told = [_told(headline, name, scene) for headline in headlines]
    return [_not_less_than(headline, told, name) for headline in told]


def _told(headline: Headline, name: str | None, scene: Scene) -> Headline:
    entry = behind(scene.results, headline)
    rounds = (entry.round if entry else 0) or scene.rounds
    how = f"; {headline.attack}, after {count(rounds)} round{'' if rounds == 1 else 's'}"
    tone, sentence = _claim(headline, name, how, _nouns(headline, entry))
    others = None if scene.beyond is None else scene.beyond.get(headline.vantage, ())
    if tone in ("none", "unknown") and entry and entry.unit == "subject":
        sentence += _smallest_seen(headline, name)
    if tone in ("none", "unknown") and others:
        tone, sentence = "weak", f"{sentence} {_others(others)}"
    if tone in ("found", "weak"):
        key, chance = (name, fpr_of(name)) if tone == "found" and name else ("auc", 0.5)
        since = since_round(entry.curves.get(key) if entry else None, chance or 0.5)
        sentence += "" if since is None else f" It has been so since round {since}."
        sentence += over_blind(scene.results, headline)
    sentence += f" {scene.useless}" if scene.useless else ""
    return replace(headline, sentence=sentence, tone=tone)


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


def _claim(headline: Headline, name: str | None, how: str, nouns: tuple[str, str, str, str]) -> tuple[Tone, str]:
    who = _who(headline.vantage)
    auc, tpr = headline.estimates.get("auc"), headline.estimates.get(name or "")
    fpr = fpr_of(name or "") or 0.0
    chosen = headline.compared
    kinds = f"the stronger of {count(chosen)} kinds of models is quoted, the {headline.model} ones"
    how = (f", wider because {kinds}" if chosen > 1 else "") + how
    if auc and auc.high is not None and auc.high < 0.5:
        return "alarm", (
            f"Alarm: {_lower(who)} ranks outsiders above members (AUC {value_text('auc', auc)}, "
            f"{_interval('auc', auc)}{how}). That should not happen: look for swapped labels or a reversed score."
        )
    average = (
        f"shown {nouns[1]} and an outsider, it tells which is which {share(value_of(auc), 1)} of the time "
        f"({_interval('tpr@', auc)}; guessing is 50 %{'' if value_of(tpr) is not None else how})"
    )
    better = auc is not None and auc.low is not None and auc.low > 0.5
    at_chance = f" On average {nouns[3]}: {average}." if auc and auc.low is not None else ""
    if tpr is None or tpr.value is None:
        why = f" ({tpr.reason})" if tpr and tpr.reason else " in this audit"
        absent = f"The share that {_lower(who)} can pick out could not be measured{why}."
        if better:
            return "weak", f"{absent} Yet on average it does better than guessing: {average}."
        return "unknown", absent + at_chance
    hits = f"about {count(round(tpr.value * tpr.n_pos))} of {count(tpr.n_pos)}"
    shares = f"{share(tpr.value)} of {nouns[0]} ({hits}) while wrongly accusing {rate(fpr)} of outsiders"
    shares += f" ({_interval(name or 'tpr@', tpr)}{how})"
    if tpr.low is not None and tpr.low > fpr > 0:
        return "found", f"{who} can pick out {shares}."
    if better or (tpr.reason and tpr.value > fpr):
        begins = tpr.reason or f"the interval begins at {share(tpr.low)}, which is not above {rate(fpr)}"
        said = f"How much {_lower(who)} can pick out is not settled: {shares}; {begins}."
        if not better:
            return "unknown", said + at_chance
        return "weak", f"{said} On average it does better than guessing: {average}."
    why = f" ({tpr.reason})" if tpr.reason else ""
    start = f"{nouns[2].format(who=_lower(who))}{why}: it picked out {shares}."
    return "none", f"{start} That is no proof of safety: up to {share(tpr.high)} remains possible."


def _smallest_seen(headline: Headline, name: str | None) -> str:
    """Of a person nobody may say "safe": what is not found may be smaller than what could have been."""
    auc, tpr = headline.estimates.get("auc"), headline.estimates.get(name or "")
    if auc is None or not (auc.n_pos and auc.n_neg):
        return ""
    calibration = (tpr.n_cal if tpr else None) or 0
    sizes = Sizes(auc.n_pos, auc.n_neg, calibration)
    least = smallest_visible_auc(sizes, auc.confidence)
    fpr = fpr_of(name or "")
    rate_seen = smallest_visible_tpr(sizes, fpr, auc.confidence) if fpr and calibration else None
    seen = [f"an AUC of {least:.3f}"] if least is not None else []
    seen += [f"{share(rate_seen)} picked out at {rate(fpr)} false accusations"] if fpr and rate_seen is not None else []
    counts = f"{count(auc.n_pos)} members and {count(auc.n_neg)} outsiders"
    if not seen:
        return f" With {counts}, this audit could have seen no risk at all."
    return f" The smallest risk that this audit could have seen, with {counts}, is {' or '.join(seen)}."


def _others(found: Sequence[Beyond]) -> str:
    """Nothing was found by the attack that was fixed before looking; that is not nothing at all."""
    first = found[0]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    name, estimate = first.estimate.name, first.estimate
    measure = "AUC" if name == "auc" else f"TPR at {rate(fpr_of(name) or 0)} FPR"
    return (
        f"Yet other attacks found more than chance: {first.attack} on {first.model} models ({measure} "
        f"{value_text(name, estimate)}, {_interval(name, estimate)}, corrected for {first.looked_at} looked at){more}."
    )


def _not_less_than(headline: Headline, told: Sequence[Headline], name: str | None) -> Headline:
    """Whoever sees more can do at least as much, however its own attack came out."""
    inside = [other for other in told if other.vantage in CONTAINS.get(headline.vantage, ())]

    def strength(other: Headline) -> tuple[int, float]:
        return STRENGTH[other.tone], value_of(other.estimates.get(name or "auc")) or 0.0

    strongest = max(inside, key=strength, default=None)
    if strongest is None or STRENGTH[strongest.tone] == 0 or strength(strongest) <= strength(headline):
        return headline
    estimate = strongest.estimates.get(name or "")
    figure = ""
    if strongest.tone == "found" and estimate is not None:
        figure = f" ({share(estimate.value)} by {strongest.attack}, {_interval(name or 'tpr@', estimate)})"
    weaker = _lower(_who(strongest.vantage))
    least = f"{_who(headline.vantage)} sees all that is seen by {weaker}, and can do at least as much{figure}."
    return replace(headline, sentence=f"{least} {headline.sentence}", tone=strongest.tone)


# ------------------------------------------------------------------ beside a blind guess


def blind_auc(results: Sequence[AuditResult]) -> Estimate | None:
    found = next((r for r in results if r.attack == "blind" and not r.party), None)
    return found.estimates.get("auc") if found else None


def over_blind(results: Sequence[AuditResult], headline: Headline) -> str:
    """Said where a guess without any model beats chance: only what exceeds it can come from training."""
    blind, ours = blind_auc(results), headline.estimates.get("auc")
    if blind is None or blind.low is None or blind.low <= 0.5 or ours is None:
        return ""
    ends = ours.value, ours.low, ours.high, blind.value, blind.high
    value, low, high, guess, guess_high = (0.0 if end is None else end for end in ends)
    if low - guess_high <= 0:
        return " Its AUC is not clearly above the blind guess, so this audit cannot put it down to the federation."
    span = plain_span(low - guess_high, high - blind.low)
    return f" Its AUC exceeds the blind guess by {value - guess:.3f} (both intervals together allow {span})."


def _interval(name: str, est: Estimate | None) -> str:
    return f"{confidence(est)} interval {interval_text(name, est)}"


def _who(vantage: str) -> str:
    return WHO.get(vantage, f"An adversary at the vantage “{vantage}”")


def _lower(phrase: str) -> str:
    return phrase[0].lower() + phrase[1:]
