"""What may be said of a headline: estimates in, words out. Results, page and terminal show this sentence and no other.

The lower end of an interval decides, never the value. Chance is never called safe, a missing number is never called
chance, and an interval that begins at 0 for want of records is "not settled".
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from fedaudit.questions import of_membership
from fedaudit.stats.strongest import (
    LITTLE,
    RANK,
    SEVERITY,
    SLIGHT_AUC,
    STRICT,
    Heard,
    certain,
    grade,
    level,
    slight,
)
from fedaudit.stats.wording import (
    behind,
    confidence,
    count,
    fpr_of,
    interval_text,
    plain_span,
    rate,
    share,
    share_span,
    since_round,
    value_of,
    value_text,
    without,
)
from fedaudit.types import AuditResult, Estimate, Grade, GroupFindings, GroupResult, Headline, Subgroup, Tone

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
}
NOTHING = {"subject": "No evidence was found that {who} can tell who is in the training data"}
NOTHING_ON_AVERAGE = {"subject": "no evidence was found that it can tell who is in the training data"}
GRADES: dict[Grade, str] = {
    "nearly everybody": "the lower end of a TPR is 90 % or more at an FPR of at most 10 %, or that of an AUC is .995",
    "most": "the lower end of a TPR is 50 % or more at an FPR of at most 10 %, or that of an AUC is .875",
    "some": "the lower end of a TPR is above its FPR at a rate that was measured, or that of an AUC is .6",
    "at least a little": "better than guessing on average for certain; how much more is not settled",
    "a little": "better than guessing on average for certain, and for every attack from there the upper ends leave at "
    "most 5 points of TPR above the FPR, at rates of at most 10 %, and an AUC of .6",
    "nothing found": "no lower end is above chance, which is no proof of safety",
    "not known": "it could not be measured, or it is not settled whether there is anything",
    "alarm": "outsiders rank above members for certain: something is wrong with the data or the audit",
}
GRADED = (
    "Lower ends decide: all of them hold together at the level of the audit, because the error is shared among all "
    "attacks, the AUC and every rate. An AUC counts as the share that it stands for: whatever a ROC curve is like, an "
    "AUC of .6, .875 and .995 means that at some rate the TPR exceeds the FPR by a tenth, a half, nine tenths."
)
BY_CHANCE = "with the error shared among all figures of this audit, the interval includes chance"


@dataclass(frozen=True)
class Scene:
    """What is known beside the headlines. `name`: the TPR that they quote. `primary`: by vantage, what the attack that
    was fixed before looking found; `average`: the one that certainly has the largest AUC. `about`: what each attack
    does, for the middle of a sentence."""

    results: Sequence[AuditResult]
    rounds: int
    name: str | None
    _: KW_ONLY
    primary: Mapping[str, Heard] = field(default_factory=dict)
    average: Mapping[str, Heard] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)
    groups: GroupFindings | None = None


def worded(headlines: Sequence[Headline], scene: Scene) -> list[Headline]:
    """The headlines, each with its sentence, its grade and what else is to be said."""
    told = [_told(headline, scene) for headline in headlines]
    least = [_not_less_than(headline, told, scene.name) for headline in told]
    return [replace(headline, most_exposed=_most_exposed_group(headline, scene)) for headline in least]


def _told(headline: Headline, scene: Scene) -> Headline:
    entry, name = behind(scene.results, headline), quoted_rate(headline, scene.name)
    rounds = (entry.round if entry else 0) or scene.rounds
    what = scene.about.get(headline.attack, "")
    how = f"; after {count(rounds)} round{'' if rounds == 1 else 's'}, by {headline.attack}{': ' * bool(what)}{what}"
    possible = _most_possible(headline, scene, name)
    tone, sentence, details = _claim(
        headline, name, how, _nouns(headline, entry, name), possible, _why_doubted(headline, scene)
    )
    if tone in ("none", "unknown") and entry and entry.unit == "subject":
        details += _smallest_seen(headline, name)
    if headline.primary and (fixed := scene.primary.get(headline.vantage)):
        details.append(_of_the_primary(fixed, headline, name))
    details += _on_average(headline, scene)
    if tone in ("found", "weak"):
        by_share = tone == "found" and headline.figure != "auc" and name is not None
        key, chance = (name, fpr_of(name)) if by_share and name else ("auc", 0.5)
        since = since_round(entry.curves.get(key) if entry else None, chance or 0.5)
        details += [] if since is None else [f"{_which(key)} has been above chance since round {since}."]
        details += over_blind(scene.results, headline)
    details += _stronger(headline)
    same = headline.grade if tone == headline.tone else None  # decided with the tone
    sure = 0 if tone == "unknown" else max(map(level, headline.estimates.values()), default=0)
    graded = same or grade(tone, sure)
    if tone == "weak":
        figures = [(attack, e) for attack, own in seen_figures(headline, scene) for e in own.values()]
        bounded = slight(e for _, e in figures)
        graded = "a little" if bounded else "at least a little"
        said = {e.name: e.high or 0.0 for e in headline.estimates.values()}  # in the sentence or behind it
        others = [(attack, e) for attack, e in figures if (e.high or 0.0) > said.get(e.name, 0.0)]
        details += [] if bounded else _how_much(others)
    return replace(headline, sentence=sentence, tone=tone, grade=graded, details=tuple(details))


def quoted_rate(headline: Headline, name: str | None) -> str | None:
    """The TPR that is quoted for a vantage: the one on which its grade rests, or `name`, the one at 1 %."""
    return headline.figure if fpr_of(headline.figure) else name


def _which(name: str) -> str:
    fpr = fpr_of(name)
    return "Its AUC" if fpr is None else f"The share that is picked out at {rate(fpr)} false accusations"


def _how_much(figures: Sequence[tuple[str, Estimate]]) -> list[str]:
    """What the upper ends leave possible, where that is more than a little: the figure that leaves most."""
    of_shares = [(e.high or 0.0, attack, e) for attack, e in figures if 0 < (fpr_of(e.name) or 1) <= STRICT]
    over = [one for one in of_shares if one[0] > (fpr_of(one[2].name) or 0) + LITTLE]
    if over:
        high, attack, tpr = max(over, key=lambda one: one[0])
        most = f"picks out up to {share(high)} while wrongly accusing {rate(fpr_of(tpr.name) or 0)} of outsiders"
        return [f"How much is not settled: the intervals allow that {attack} {most}."]
    areas = [(e.high, attack) for attack, e in figures if e.name == "auc" and e.high is not None]
    high, attack = max(areas, default=(0.0, ""))
    if high > SLIGHT_AUC:
        return [f"How much is not settled: the intervals allow that {attack} has an AUC of up to {high:.3f}."]
    return []


def _nouns(headline: Headline, entry: AuditResult | None, name: str | None) -> tuple[str, str, str, str]:
    """What is picked out, many and one; and how to say that nothing is, and that nothing is seen on average. A share is
    of the parties that the figure speaks of."""
    unit = entry.unit if entry else "record"
    many, one = UNITS.get(unit, UNITS["record"])
    nothing = NOTHING.get(unit, "Nothing beyond chance was found for {who} at this sample size")
    if headline.vantage == "server" and headline.model == "local":
        many = f"the parties' {many}"
    elif unit not in UNITS or unit == "record":
        many = f"the {many}"
    tpr = headline.estimates.get(name or "")
    if tpr is not None and tpr.missing:
        of = tpr.missing[0].of
        many = (
            f"the {UNITS.get(unit, UNITS['record'])[0]} of {of - sum(one.count for one in tpr.missing)} of {of} parties"
        )
    return many, one, nothing, NOTHING_ON_AVERAGE.get(unit, "nothing beyond chance was found")


def _claim(
    headline: Headline,
    name: str | None,
    how: str,
    nouns: tuple[str, str, str, str],
    possible: tuple[float, str] | None,
    doubted: str,
) -> tuple[Tone, str, list[str]]:
    """The tone as it was decided (or "unknown" where it cannot be settled), one sentence, and what goes with it.

    `possible`: the largest share that some attack from this vantage leaves possible, and which. `doubted`: why it is
    not known of one of them what it finds, if so.
    """
    who, tone = _who(headline.vantage), headline.tone
    auc, tpr = headline.estimates.get("auc"), headline.estimates.get(name or "")
    fpr = fpr_of(name or "") or 0.0
    if headline.primary:  # more than the primary attack was compared
        how = f", corrected for the {count(headline.compared)} results of this audit{how}"
    if tone == "alarm":
        return tone, (
            f"{who} ranks outsiders above members (AUC {value_text('auc', auc)}, "
            f"{interval('auc', auc)}{how}): look for swapped labels or a reversed score."
        ), []  # fmt: skip
    average = f"shown {nouns[1]} and an outsider, it tells which is which {share(value_of(auc), 1)} of the time"
    guessing = f"({interval('tpr@', auc)}; guessing is 50 %"
    better = f"{who} does better than guessing: {average} {guessing}{how})."
    at_chance = [f"On average {nouns[3]}: {average} {guessing})."] if auc and auc.low is not None else []
    if auc and auc.low is not None and auc.low > 0.5:  # and yet nothing was found, by the shared error
        open_average = f"Whether {_lower(who)} does better than guessing is not settled: {average} {guessing}"
        at_chance = [f"{open_average}); {BY_CHANCE}."]
    if tpr is None or tpr.value is None:
        why = ", ".join(filter(None, (tpr.reason, without(tpr)))) if tpr else ""
        why = f" ({why})" if why else " in this audit"
        absent = f"The share that {_lower(who)} can pick out could not be measured{why}."
        return (tone, better, [absent]) if tone in ("weak", "found") else ("unknown", absent, at_chance)
    hits = f"about {count(round(tpr.value * tpr.n_pos))} of {count(tpr.n_pos)}"
    shares = f"{share(tpr.value)} of {nouns[0]} ({hits}) while wrongly accusing {rate(fpr)} of outsiders"
    shares += f" ({interval(name or 'tpr@', tpr)}"
    if tone == "found" and headline.figure != "auc":
        return tone, f"{who} can pick out {shares}{how}){'; ' * bool(tpr.reason)}{tpr.reason or ''}.", []
    begins = tpr.reason or f"the interval begins at {share(tpr.low)}, which is not above {rate(fpr)}"
    if tpr.low is not None and tpr.low > fpr:
        begins = BY_CHANCE
    open_question = f"How much {_lower(who)} can pick out is not settled: {shares}"
    if tone == "found" and level(tpr):
        return tone, better, [f"It can pick out {shares})."]
    if tone in ("found", "weak"):
        return tone, better, [f"{open_question}); {begins}."]
    if (tpr.low is not None and tpr.low > fpr) or (tpr.reason and tpr.value > fpr):
        return "unknown", f"{open_question}{how}); {begins}.", at_chance
    if auc and auc.low is not None and auc.low > 0.5:
        return "unknown", f"{open_average}{how}); {BY_CHANCE}.", [f"It picked out {shares})."]
    if tone == "unknown":
        return tone, f"{open_question}{how}){'; ' * bool(doubted)}{doubted}.", at_chance
    why = f" ({tpr.reason})" if tpr.reason else ""  # who is missing is said with the interval
    start = f"{nouns[2].format(who=_lower(who))}{why}: it picked out {shares}{how})"
    most, other = possible or (None, "")
    by_other = f"by {other}, " if other and (tpr.high or 0.0) < (most or 0.0) else ""  # why it is not this interval's
    return "none", f"{start}, which is no proof of safety: {by_other}up to {share(most)} remains possible.", []


def _stronger(headline: Headline) -> list[str]:
    """Why intervals are wider where a server's two kinds of models were compared."""
    if headline.primary or headline.compared == 1:
        return []
    kinds = f"the stronger of {count(headline.compared)} kinds of models is quoted, the {headline.model} ones"
    return [f"The intervals are wider, because {kinds}."]


def _on_average(headline: Headline, scene: Scene) -> list[str]:
    """Few may be picked out for certain, and yet another attack tells almost everybody apart on average."""
    other, ours = scene.average.get(headline.vantage), headline.estimates.get("auc")
    found = other.decisive.get("auc") if other else None
    if other is None or found is None or found.low is None or ours is None or ours.high is None:
        return []
    if headline.tone != "found" or found.low <= ours.high:
        return []
    figure = f"{value_text('auc', found)} ({interval('auc', found)})"
    return [f"On average {other.attack} on {other.model} models finds more: it has an AUC of {figure}."]


def _most_possible(headline: Headline, scene: Scene, name: str | None) -> tuple[float, str] | None:
    """The largest upper end of the quoted rate, over all attacks from this vantage, and whose it is: one of them may be
    the stronger. Where one has no value, that is everybody."""
    found = [(tpr, attack) for attack, own in seen_figures(headline, scene) if (tpr := own.get(name or ""))]
    ends = [(1.0 if tpr.doubt or tpr.value is None else tpr.high, attack) for tpr, attack in found]
    return max(((end, attack) for end, attack in ends if end is not None), key=lambda one: one[0], default=None)


def _why_doubted(headline: Headline, scene: Scene) -> str:
    """Which attack from this vantage has a figure by a threshold from records of another kind; empty if none."""
    figures = [(attack, tpr) for attack, estimates in seen_figures(headline, scene) for tpr in estimates.values()]
    return next((f"by {attack}, {tpr.reason}" for attack, tpr in figures if tpr.doubt and tpr.reason), "")


def seen_figures(headline: Headline, scene: Scene) -> list[tuple[str, Mapping[str, Estimate]]]:
    """What is quoted, and all pooled figures of membership from this vantage."""
    seen = (headline.vantage, *(("client",) if headline.vantage == "server" else ()))
    entries = [r for r in scene.results if r.vantage in seen and r.party is None and r.attack != "blind"]
    own = (headline.attack, headline.estimates)
    return [own, *((r.attack, r.estimates) for r in entries if of_membership(r))]


def _of_the_primary(fixed: Heard, headline: Headline, name: str | None) -> str:
    """Said where another attack is quoted: what the one that was fixed before looking found, by the same measure."""
    said = [key for key in (name, "auc") if key and value_of(fixed.estimates.get(key)) is not None]
    said = ["auc", *said[:-1]] if headline.tone == "weak" or headline.figure == "auc" else said
    figures = [
        f"{_measure(key)} {value_text(key, e)} ({interval(key, e)})" for key in said if (e := fixed.estimates[key])
    ]
    return f"The attack that was fixed before looking, {fixed.attack}, has {' and '.join(figures)}."


def _measure(name: str) -> str:
    fpr = fpr_of(name)
    return "an AUC of" if fpr is None else f"a share picked out at {rate(fpr)} false accusations of"


def _smallest_seen(headline: Headline, name: str | None) -> list[str]:
    """Of a person nobody may say "safe": what is not found may be smaller than what could have been."""
    from fedaudit.stats.plan import Sizes, smallest_visible_auc, smallest_visible_tpr  # a page renders without scipy

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
    strongest = max(inside, key=lambda other: certain(other, name), default=None)
    if strongest is None or RANK[strongest.tone] == 0 or certain(strongest, name) <= certain(headline, name):
        return headline
    key = "auc" if strongest.tone == "weak" else strongest.figure or name or "auc"
    estimate, figure = strongest.estimates.get(key), ""
    if strongest.tone == "found" and estimate is not None:
        of_what = "an AUC of " if key == "auc" else ""
        at = "" if key in (name, "auc") else f" at {rate(fpr_of(key) or 0)} false accusations"
        figure = f" ({of_what}{value_text(key, estimate)}{at} by {strongest.attack}, {interval(key, estimate)})"
    weaker = _lower(_who(strongest.vantage))
    least = f"{_who(headline.vantage)} sees all that is seen by {weaker}, and can do at least as much{figure}."
    details = (headline.sentence, *headline.details)
    graded = max((headline.grade, strongest.grade), key=lambda one: SEVERITY.get(one or "not known", 0))
    return replace(
        headline, sentence=least, tone=strongest.tone, grade=graded, lent_by=strongest.vantage, details=details
    )


# ------------------------------------------------------------------ groups of candidates


def group_title(group: Subgroup, people: bool) -> str:
    """Whom a group holds: `records of class 3`, `people with 4 to 7 records`."""
    who = "people" if people else "records"
    if group.kind == "class":
        return f"{who} with a record of class {group.value}" if people else f"records of class {group.value}"
    if group.kind == "attribute":
        return f"{who} with {group.attribute} = {group.value}"
    if group.kind == "rare-value":
        return f"{who} with a value that at most {rate(float(group.value))} have"
    number = group.value.replace("-", " to ")
    counted = f"{number} record{'' if number == '1' else 's'}"
    return f"people with {counted}" if people else f"records of people with {counted}"


def _most_exposed_group(headline: Headline, scene: Scene) -> str:
    """The group that stands out most, by the lower end of its difference from all others; empty where none does."""
    if scene.groups is None:
        return ""
    # Of the models that the headline quotes: beside "100 %" of local models, those of global ones contradict it.
    seen = (headline.vantage, *(("client",) if headline.vantage == "server" and headline.model == "global" else ()))
    out = [one for one in scene.groups.results if one.vantage in seen and one.stands_out]
    if not out:
        return ""

    def certainly(one: GroupResult) -> tuple[bool, float]:
        return fpr_of(one.stands_out) is not None, one.beyond[one.stands_out].low or 0.0

    worst = max(out, key=certainly)
    entry = behind(scene.results, headline)
    title = group_title(worst.group, entry is not None and entry.unit == "subject")
    name = worst.stands_out
    inside, outside, looked_at = worst.inside[name], worst.outside[name], len(scene.groups.looked_at)
    among = f"the most exposed of {count(looked_at)} groups, all of which share the error"
    among = ", ".join(filter(None, (among, without(worst.beyond[name]))))
    together = f"{100 * scene.groups.confidence:.4g} % for all groups together"
    # The card may quote other models, another rate and another attack; and the sentence stands elsewhere, too.
    where = " in the global models" if worst.model == "global" else " in the parties' own models"
    if (fpr := fpr_of(name)) is None:
        told = f"shown one of them that was trained on and one that was not, {worst.attack} tells which is which"
        times = f"{share(inside.value)} of the time{where} ({share_span(inside.low, inside.high)} %, {together})"
        return f"{_upper(title)} stand out: {told} {times}, elsewhere {share(outside.value)} ({among})."
    wrongly = f"of their own outsiders {share(inside.realised_fpr)} are accused"
    picked = f"{share(inside.value)} of them are picked out by {worst.attack}{where} at {rate(fpr)} false accusations"
    return (
        f"{_upper(title)} stand out: {picked} ({interval_text(name, inside)} %, {together}; {wrongly}), of all others "
        f"{share(outside.value)} ({among})."
    )


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


def interval(name: str, est: Estimate | None) -> str:
    """With who is missing from the figure: sentences show no figure but by this."""
    return ", ".join(filter(None, (f"{confidence(est)} interval {interval_text(name, est)}", without(est))))


def _who(vantage: str) -> str:
    return WHO.get(vantage, f"An adversary at the vantage “{vantage}”")


def _lower(phrase: str) -> str:
    return phrase[0].lower() + phrase[1:]


def _upper(phrase: str) -> str:
    return phrase[0].upper() + phrase[1:]
