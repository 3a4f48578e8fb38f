"""What would help: measures that follow by rule from what was found, with the figures of this run where it has them.

A rule says what it rests on: "measured" where this run shows the effect itself, "rule" where another training must show
it, "tried" where one has (`fedaudit advise`). Nothing here is a promise; whoever trains again compares the two runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedaudit.report import words
from fedaudit.report.values import LONGEST, Results, clean
from fedaudit.report.words import Finding
from fedaudit.stats.strongest import allowed, epsilon_for
from fedaudit.stats.wording import count, fpr_of, full_text, rate, share, value_of

if TYPE_CHECKING:
    from fedaudit.results.advice import Advice

SMALLER = 0.75  # a figure below this part of another is worth a sentence


@dataclass(frozen=True)
class Help:
    title: str
    text: str
    basis: Literal["tried", "measured", "rule"]


def helps(results: Results, found: list[Finding], name: str | None) -> list[Help]:
    """The measures, in the order in which they should be taken; none where there is nothing to say."""
    given = [rule(results, found, name) for rule in RULES]
    return [one for one in given if one is not None]


def tried(advice: "Advice | None") -> list[Help]:
    """What was trained and attacked in the search for a change that keeps a limit."""
    if advice is None or not advice.sentences:
        return []
    title = f"To keep {clean(advice.limit)}"
    return [Help(title, " ".join(clean(one, LONGEST) for one in advice.sentences), "tried")]


# ------------------------------------------------------------------ the rules


def _same_population(results: Results, found: list[Finding], name: str | None) -> Help | None:
    if not words.sets_differ(results):
        return None
    text = (
        "Before anything else: members and outsiders are told apart without any model, so the figures above are not "
        "about training alone. Draw both from the same population, at the same time, and audit again."
    )
    return Help("Draw members and outsiders alike", text, "measured")


def _whole_audit(results: Results, found: list[Finding], name: str | None) -> Help | None:
    if not results.degraded:
        return None
    text = f"Part of this audit is missing ({results.degraded[0].rstrip('.')}). Repair that first, and audit again."
    return Help("Complete the audit", text, "measured")


def _like_thresholds(results: Results, found: list[Finding], name: str | None) -> Help | None:
    if not _doubts(results):
        return None
    text = (
        "The records that set thresholds are not like those that are reported on: far more outsiders are accused "
        "than was asked, or far fewer. A larger audit changes nothing of that. Draw both from the same population, "
        "at the same time, and audit again: audit.calibration says where they come from."
    )
    return Help("Thresholds from records like those that are reported on", text, "measured")


def _doubts(results: Results) -> bool:
    return any(estimate.doubt for entry in words.pooled(results) for estimate in entry.estimates.values())


def _secure_aggregation(results: Results, found: list[Finding], name: str | None) -> Help | None:
    """Under secure aggregation a server is left with what any party sees, and this run has measured that."""
    server = next((f for f in found if f.vantage == "server" and f.tone in ("found", "weak")), None)
    metric = name if server and server.tone == "found" else "auc"
    if server is None or server.model != "local" or metric is None:
        return None
    on_global = [e for entry in words.pooled(results) if entry.model == "global" and (e := entry.estimates.get(metric))]
    left = max((e for e in on_global if e.low is not None), key=lambda e: e.low or 0.0, default=None)
    if left is None:
        return None
    now = server.headline.estimates.get(metric)
    if now is None or now.low is None or now.high is None or left.low is None or left.high is None:
        return None
    figures = f"{full_text(metric, left)}, against {full_text(metric, now)} from the parties' own models"
    measure = f"{words.measure(metric)[0].lower()}{words.measure(metric)[1:]}" if metric != "auc" else "AUC"
    most = [1.0 if e.high is None else e.high for e in on_global if e.value is not None or e.doubt]
    if max(most) < now.low:  # of one attack alone it would say nothing about the others
        text = (
            "It hides each party's own model, and leaves the server with what any party sees. In this run that is "
            f"{figures} ({measure}). In a configuration: federation.secagg = true. For the parties themselves it "
            "changes nothing."
        )
        return Help("Secure aggregation", text, "measured")
    settled = left.low >= SMALLER * now.high
    how = "give away about as much" if settled else "may give away less, which this run does not settle"
    text = (
        f"It would hide each party's own model; in this run the global models, which everybody receives, {how}: "
        f"{figures} ({measure})."
    )
    title = "Secure aggregation alone would not help" if settled else "Secure aggregation may help"
    return Help(title, text, "measured")


def _search(results: Results, found: list[Finding], name: str | None) -> Help | None:
    if not any(f.tone in ("found", "weak") for f in found):
        return None
    text = (
        "“fedaudit advise CONFIG --limit ...” trains and attacks changes that keep the model: noise on the updates, "
        "other models, rates, epochs and rounds, alone and together. Do not rely on a smaller model alone: it "
        "hides from the matched filter, and hardly from unmix (docs/what-helps.md)."
    )
    return Help("A search for what keeps the model", text, "rule")


def _differential_privacy(results: Results, found: list[Finding], name: str | None) -> Help | None:
    fpr = fpr_of(name or "") or 0.01
    claim = results.run.guarantee
    if claim is None:
        unknown = "guarantee" in results.run.not_handed_over
        if unknown or not any(f.tone in ("found", "weak") for f in found):
            return None
        delta = 1e-5
        bounds = ", ".join(f"{share(allowed(eps, delta, fpr))} at epsilon {eps:g}" for eps in (0.5, 1.0, 2.0))
        text = (
            "The one measure that bounds every attack, also those that were not tried here: at a delta of 1e-5 nobody "
            f"picks out more than {bounds} ({rate(fpr)} false accusations). Its price is accuracy: add [[defences]] "
            'name = "dp-sgd" and compare the two runs.'
        )
        return Help("Differential privacy", text, "rule")
    target = ruled_out(fpr)
    if claim.epsilon is None or claim.binding is None or allowed(claim.binding, claim.delta, fpr) <= target:
        return None
    most, needed = allowed(claim.binding, claim.delta, fpr), epsilon_for(target, claim.delta, fpr)
    whose = f", {claim.per_person.text}," if claim.per_person else ""
    needed_of = " for a person" if claim.per_person else ""
    text = (
        f"The claimed epsilon of {claim.epsilon:.3g}{whose} still allows {share(most)} to be picked out at "
        f"{rate(fpr)} false accusations. To rule out more than {share(target)}, it would have to be {needed:.2g} or "
        f"less{needed_of}: more noise, fewer rounds, or a smaller share of the records in each step."
    )
    return Help("A smaller epsilon", text, "rule")


def ruled_out(fpr: float) -> float:
    """The share of members that a guarantee should keep from being picked out: a tenth, and no less than twice what
    guessing picks out; at a large FPR half way from guessing to all of them."""
    return min(max(0.1, 2 * fpr), (1 + fpr) / 2)


def _overfitting(results: Results, found: list[Finding], name: str | None) -> Help | None:
    inside, outside = (results.run.accuracy.get(key) for key in ("members", "evaluation"))
    if inside is None or outside is None or inside.low is None or outside.high is None or inside.low <= outside.high:
        return None
    text = (
        f"The model is right on {full_text('accuracy', inside)} of its training records and on "
        f"{full_text('accuracy', outside)} of outsiders. What narrows this gap leaves less to tell them apart by: more "
        "records, fewer local epochs, defences such as l2 or dropout. How much it helps, another run must show."
    )
    return Help("Less overfitting", text, "rule")


def _fewer_rounds(results: Results, found: list[Finding], name: str | None) -> Help | None:
    for finding in sorted(found, key=lambda f: -(value_of(f.headline.estimates.get(name or "auc")) or 0.0)):
        curve = finding.curves.get(name or "")
        if curve is None or finding.tone != "found":
            continue
        points = zip(curve.x, curve.value, curve.high, strict=False)
        seen = [(x, value, high) for x, value, high in points if value is not None]
        if len(seen) < 4:
            continue
        (middle, then, most), (end, now, _) = seen[len(seen) // 2 - 1], seen[-1]
        if most is not None and most < now and then < SMALLER * now:  # by a threshold far too high, all is possible
            text = (
                f"{words.measure(name or '')}: {share(then)} after round {middle:.0f} and {share(now)} after round "
                f"{end:.0f} (the chart under “Since when” has the bands). A training that stops earlier, or sends less "
                "often, gives away less; what it costs in accuracy was not measured."
            )
            return Help("Fewer rounds", text, "measured")
    return None


def _exposed_parties(results: Results, found: list[Finding], name: str | None) -> Help | None:
    worst = max(results.more_exposed, key=lambda one: one.own, default=None)
    if worst is None:
        return None
    sizes = {party.name: party.members for party in results.run.parties}
    fewest = min(sizes.values(), default=0)
    smallest = len(sizes) > 1 and sizes.get(worst.party) == fewest
    few = f" It has the fewest training records, {count(fewest)}." if smallest else ""
    text = (
        f"{worst.party} is more exposed than the others: {worst.attack} on {worst.model} models has an AUC of "
        f"{worst.own:.3f} there and {worst.others:.3f} elsewhere (difference {worst.low:.3f} to {worst.high:.3f}); see "
        f"“Party by party”.{few} Give it fewer local epochs, or more noise, than the others."
    )
    return Help("Begin with the most exposed party", text, "measured")


def _larger_audit(results: Results, found: list[Finding], name: str | None) -> Help | None:
    """Where nothing was found or the figure is open: how to learn more."""
    if any(finding.tone not in ("none", "unknown") for finding in found) or _doubts(results):
        return None
    for finding in found:
        tpr = finding.headline.estimates.get(name or "")
        if tpr is None:
            continue
        open_end = f"up to {share(tpr.high)} remains possible" if tpr.high is not None else tpr.reason or "no value"
        text = (
            f"No leak was found, but the evidence is limited: {open_end}, with {count(tpr.n_pos)} members "
            f"and {count(tpr.n_cal)} records to set the threshold. “fedaudit plan” says how many more would settle it."
        )
        return Help("A larger audit", text, "rule")
    return None


Rule = Callable[[Results, list[Finding], str | None], Help | None]
RULES: tuple[Rule, ...] = (
    _same_population,
    _whole_audit,
    _like_thresholds,
    _secure_aggregation,
    _search,
    _differential_privacy,
    _fewer_rounds,
    _overfitting,
    _exposed_parties,
    _larger_audit,
)
