"""What the numbers say, in plain language: one wording for the report and for the command line.

Every public function takes the parsed `results.json` and cleans what it quotes, so its answers may be printed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedaudit.report.adversaries import adversary
from fedaudit.report.values import (
    NONE,
    clean_tree,
    confidence,
    count,
    estimate,
    full_text,
    listing,
    mapping,
    mappings,
    number,
    plain_span,
    rate,
    share,
    span_text,
    text,
    value_text,
)

Results = Mapping[str, Any]
Tone = Literal["found", "weak", "none", "unknown", "alarm"]

PRIMARY = ("fta-confidence", "gradient-cosine", "fusion", "tear")
UNITS = {
    "record": ("training records", "a training record"),
    "subject": ("subjects in the training data", "a subject of the training data"),
    "user": ("users behind the training data", "a user behind the training data"),
    "attribute": ("hidden attribute values", "a true attribute value"),
}
TPR = re.compile(r"tpr@(\d+(?:\.\d+)?(?:e-\d+)?)", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """What one vantage's headline says; `tone` decides its looks, never its wording."""

    vantage: str
    attack: str
    model: str
    tone: Tone
    sentence: str
    since: int | None
    headline: Mapping[str, Any]
    entry: Mapping[str, Any]  # the pooled result behind it, with its curves


@dataclass(frozen=True)
class Row:
    """One pooled result as the table shows it; `primary` marks the attack that was fixed before looking."""

    attack: str
    vantage: str
    model: str
    auc: str
    tpr: str
    realised_fpr: str
    cost: str
    warnings: tuple[str, ...]
    primary: bool


# ------------------------------------------------------------------ finding one's way in the results


def fpr_of(name: str) -> float | None:
    """The false-positive rate in an estimate's name, `tpr@0.01`."""
    found = TPR.fullmatch(name)
    value = float(found[1]) if found else 0.0
    return value if 0 < value < 1 else None


def measure(name: str) -> str:
    fpr = fpr_of(name)
    return f"Picked out at {rate(fpr)} false accusations" if fpr else name.upper()


def pooled(results: Results) -> list[Mapping[str, Any]]:
    """Of attacks on membership; what is guessed of attributes is another question (`attributes`)."""
    whole = [r for r in mappings(results.get("results")) if r.get("party") is None and r.get("attack") != "blind"]
    return [r for r in whole if not guesses_attribute(r)]


def guesses_attribute(entry: Mapping[str, Any]) -> bool:
    return entry.get("attack") == "attribute"


def attributes(results: Results) -> list[Mapping[str, Any]]:
    """What was guessed of a hidden attribute: pooled first, then by party."""
    return [r for r in mappings(results.get("results")) if guesses_attribute(r)]


ATTRIBUTE_TITLES = ("party", "excess over blind", "members minus non-members", "AUC members", "non-members", "blind")


def attribute_rows(results: Results) -> list[list[str]]:
    """Under `ATTRIBUTE_TITLES`: the two differences that count come first, each with its interval."""
    names = ("excess-over-blind", "members-minus-nonmembers", "members-auc", "nonmembers-auc", "blind-auc")
    return [
        [text(entry.get("party"), "all"), *(_signed(name, estimate(entry, name)) for name in names)]
        for entry in attributes(clean_tree(results))
    ]


def _signed(name: str, est: Mapping[str, Any]) -> str:
    value, low, high = (number(est.get(key)) for key in ("value", "low", "high"))
    if name.endswith("auc") or value is None or low is None or high is None:
        return full_text(name, est)
    return f"{value:+.3f} ({low:+.3f} to {high:+.3f})"


def blind(results: Results) -> Mapping[str, Any] | None:
    return next(
        (r for r in mappings(results.get("results")) if r.get("attack") == "blind" and not r.get("party")), None
    )


def headlines(results: Results) -> list[Mapping[str, Any]]:
    """One per vantage. Where none were stored: the primary attack if it ran, else the first, never the strongest."""
    stored = [h for h in mappings(results.get("headlines")) if h.get("attack") != "blind"]
    if stored:
        return stored
    chosen: dict[str, Mapping[str, Any]] = {}
    order = {name: place for place, name in enumerate(PRIMARY)}
    for entry in sorted(pooled(results), key=lambda r: order.get(str(r.get("attack")), len(order))):
        chosen.setdefault(str(entry.get("vantage")), entry)
    return list(chosen.values())


def behind(results: Results, headline: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pooled result a headline rests on; results on global models stand under `client` for the server too."""
    same = [r for r in pooled(results) if all(r.get(k) == headline.get(k) for k in ("attack", "model"))]
    return next((r for r in same if r.get("vantage") == headline.get("vantage")), same[0] if same else {})


def main_tpr(results: Results) -> str | None:
    """The TPR everything quotes: at 1 % where that has a value, else at the nearest rate that has one."""
    entries = headlines(results)
    names = {n: f for e in entries for n in mapping(e.get("estimates")) if (f := fpr_of(n)) is not None}
    valued = {n for n in names if any(number(estimate(e, n).get("value")) is not None for e in entries)}
    ranked = sorted(names, key=lambda n: (n not in valued, max(names[n] / 0.01, 0.01 / names[n]), names[n]))
    return ranked[0] if ranked else None


def since_round(curve: Mapping[str, Any], chance: float) -> int | None:
    """The first round from which on the simultaneous band's lower end exceeds chance; unobserved rounds are gaps."""
    if "simultaneous" not in str(curve.get("method")).lower():
        return None
    first: int | None = None
    for x, low in zip(listing(curve.get("x")), listing(curve.get("low")), strict=False):
        round_, end = number(x), number(low)
        if end is None or round_ is None:
            continue
        first = None if end <= chance else int(round_) if first is None else first
    return first


# ------------------------------------------------------------------ sentences


def verdict(results: Results) -> str:
    """Who can learn what about whom, since when, and how sure that is."""
    return " ".join([*preface(results), *(f.sentence for f in findings(results))])


def preface(results: Results) -> list[str]:
    """What has to be said before any finding."""
    results = clean_tree(results)
    parts = []
    status = text(mapping(results.get("run")).get("status"), "complete")
    if status != "complete":
        parts.append(f"This run was {status}; what follows describes only what had leaked by then.")
    if sets_differ(results):
        est = estimate(blind(results) or {}, "auc")
        parts.append(
            "Warning: members and outsiders differ even without the model. A blind guess that never sees it reaches an "
            f"AUC of {value_text('auc', est)} ({interval('auc', est)}), so only what exceeds the blind guess counts."
        )
    if not headlines(results):
        parts.append(
            "No attack on membership has a result, so nothing can be said about who was trained on."
            if attributes(results)
            else "No attack has a result, so nothing can be said about what this federation gives away."
        )
    return parts


def interval(name: str, est: Mapping[str, Any]) -> str:
    return f"{confidence(est)} interval {span_text(name, est)}"


def sets_differ(results: Results) -> bool:
    """Does the blind baseline's interval exclude 0.5?"""
    est = estimate(blind(results) or {}, "auc")
    low, high = number(est.get("low")), number(est.get("high"))
    return (low is not None and low > 0.5) or (high is not None and high < 0.5)


def excess(results: Results, headline: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """AUC over the blind guess: value, and the ends that both intervals together allow."""
    ours, theirs = estimate(headline, "auc"), estimate(blind(results) or {}, "auc")
    a, a_low, a_high = (number(ours.get(k)) for k in ("value", "low", "high"))
    b, b_low, b_high = (number(theirs.get(k)) for k in ("value", "low", "high"))
    if a is None or b is None or a_low is None or a_high is None or b_low is None or b_high is None:
        return None
    # What a blind guess gains by guessing the other way round is a difference between the sets all the same.
    b, b_low, b_high = (b, b_low, b_high) if b >= 0.5 else (1 - b, 1 - b_high, 1 - b_low)
    return a - b, a_low - b_high, a_high - b_low


def findings(results: Results) -> list[Finding]:
    results = clean_tree(results)
    name = main_tpr(results)
    return [_finding(results, headline, name) for headline in headlines(results)]


def _finding(results: Results, headline: Mapping[str, Any], name: str | None) -> Finding:
    entry = behind(results, headline)
    tone, sentence = _claim(headline, entry, name, _when(results, entry), _whose(headline, entry))
    since = None
    if tone in ("found", "weak"):
        curves = mapping(entry.get("curves"))
        key, chance = (name, fpr_of(name)) if tone == "found" and name else ("auc", 0.5)
        since = since_round(mapping(curves.get(key)), chance or 0.5)
        if since is not None:
            sentence += f" It has been so since round {since}."
        if sets_differ(results):
            sentence += _over_blind(results, headline)
    vantage, attack, model = (text(headline.get(key)) for key in ("vantage", "attack", "model"))
    return Finding(vantage, attack, model, tone, sentence, since, headline, entry)


def drawn(results: Results, found: Sequence[Finding]) -> list[Finding]:
    """One line per vantage and kind of model, for charts: the result behind each headline, and those fixed beside it.

    A server's headline may rest on the global models; its local models are drawn all the same.
    """
    lines: dict[tuple[str, str], Finding] = {}
    primary = {(f.vantage, f.attack) for f in found}
    beside = [e for e in pooled(results) if (e.get("vantage"), e.get("attack")) in primary]
    beside += [e for e in pooled(results) if set(mapping(e.get("curves"))) - {"roc"}]  # only a primary has such curves
    for entry in [*(f.entry for f in found if f.entry), *beside]:
        vantage, attack, model = (text(entry.get(key)) for key in ("vantage", "attack", "model"))
        lines.setdefault((vantage, model), Finding(vantage, attack, model, "none", "", None, entry, entry))
    return list(lines.values())


def _when(results: Results, entry: Mapping[str, Any]) -> str:
    rounds = number(entry.get("round")) or number(mapping(results.get("run")).get("rounds"))
    return "" if rounds is None else f"; after {count(rounds)} round{'' if rounds == 1 else 's'}"


def _whose(headline: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[str, str]:
    many, one = UNITS.get(text(entry.get("unit"), text(headline.get("unit"), "record")), UNITS["record"])
    if headline.get("vantage") == "server" and headline.get("model") == "local":
        many = f"the parties' {many}"
    elif many == "training records":
        many = "the training records"
    return many, one


def _claim(
    headline: Mapping[str, Any], entry: Mapping[str, Any], name: str | None, when: str, nouns: tuple[str, str]
) -> tuple[Tone, str]:
    """The sentence for one headline. Chance is never called safe, and a missing number is never called chance."""
    who = adversary(text(headline.get("vantage"))).who
    auc, tpr = estimate(headline, "auc"), estimate(headline, name or "")
    fpr = fpr_of(name or "") or 0.0
    value, low, high = (number(tpr.get(k)) for k in ("value", "low", "high"))
    auc_low, auc_high = number(auc.get("low")), number(auc.get("high"))
    chosen = number(headline.get("compared")) or 1
    when = (f", wider because the strongest of {count(chosen)} is quoted" if chosen > 1 else "") + when
    if auc_high is not None and auc_high < 0.5:
        return "alarm", (
            f"Alarm: {_lower(who)} ranks outsiders above members (AUC {value_text('auc', auc)}, "
            f"{interval('auc', auc)}{when}). That should not happen: look for swapped labels or a reversed score."
        )
    shares = f"{share(value)} of {nouns[0]} while wrongly accusing {rate(fpr)} of outsiders"
    shares += f" ({interval(name or 'tpr@', tpr)}{when})"
    if low is not None and low > fpr > 0:
        return "found", f"{who} can pick out {shares}."
    lacking = f" ({tpr['reason']})" if tpr.get("reason") else ""
    absent = f"What share {_lower(who)} can pick out could not be measured{lacking or ' in this audit'}."
    average = (
        f"shown {nouns[1]} and an outsider, it tells which is which {share(number(auc.get('value')), 1)} of the time "
        f"({interval('tpr@', auc)}; guessing is 50 %{'' if value is not None else when})"
    )
    if auc_low is not None and auc_low > 0.5:
        start = f"{who} did no better than chance at picking out single cases at this sample size{lacking}: {shares}."
        return "weak", f"{absent if value is None else start} Yet on average it does better than guessing: {average}."
    if value is None:
        rest = f" On average nothing beyond chance was found: {average}." if auc_low is not None else ""
        return "unknown", absent + rest
    start = f"Nothing beyond chance was found for {_lower(who)} at this sample size{lacking}: it picked out {shares}."
    return "none", f"{start} That is no proof of safety: up to {share(high)} remains possible."


def _over_blind(results: Results, headline: Mapping[str, Any]) -> str:
    gap = excess(results, headline)
    if gap is None:
        return ""
    if gap[1] <= 0:
        return " Its AUC is not clearly above the blind guess, so this audit cannot put it down to the federation."
    return f" Its AUC exceeds the blind guess by {gap[0]:.3f} (both intervals together allow {plain_span(*gap[1:])})."


def _lower(phrase: str) -> str:
    return phrase[0].lower() + phrase[1:]


# ------------------------------------------------------------------ rows and lists


def headline_rows(results: Results) -> list[Row]:
    """Every pooled result, the blind baseline last, ready to print."""
    results = clean_tree(results)
    name = main_tpr(results) or ""
    primary = {(h.get("vantage"), h.get("attack")) for h in headlines(results)}
    baseline = blind(results)
    return [_row(entry, name, primary) for entry in [*pooled(results), *([baseline] if baseline else [])]]


def _row(entry: Mapping[str, Any], name: str, primary: set[tuple[Any, Any]]) -> Row:
    vantage, attack, model = (entry.get(key) for key in ("vantage", "attack", "model"))
    tpr, realised = estimate(entry, name), number(estimate(entry, name).get("realised_fpr"))
    epochs = number(mapping(entry.get("cost")).get("epochs"))
    sees_none = attack == "blind"
    return Row(
        text(attack),
        NONE if sees_none else text(vantage),
        NONE if sees_none else text(model),
        full_text("auc", estimate(entry, "auc")),
        full_text(name, tpr),
        share(realised),
        cost_text(epochs),
        tuple(map(str, listing(entry.get("warnings")))),
        (vantage, attack) in primary,
    )


def row_titles(results: Results) -> tuple[str, ...]:
    """Headings of the first seven columns of `headline_rows`."""
    fpr = fpr_of(main_tpr(results) or "")
    at = f"TPR at {rate(fpr)} FPR" if fpr else "TPR"
    return ("attack", "vantage", "model", "AUC", at, "realised FPR", "cost in E")


def costs(results: Results) -> dict[str, list[float]]:
    """What the attacks of each vantage cost, in E per round."""
    found: dict[str, list[float]] = {}
    for entry in pooled(results):
        epochs = number(mapping(entry.get("cost")).get("epochs"))
        if epochs is not None:
            found.setdefault(text(entry.get("vantage")), []).append(epochs)
    return found


def cost_text(epochs: float | None) -> str:
    return NONE if epochs is None else "0" if epochs == 0 else f"{epochs:.2g}" if epochs < 10 else f"{epochs:,.0f}"


def warnings(results: Results) -> list[str]:
    """The run's warnings and every result's, each once, with where it arose."""
    results = clean_tree(results)
    found: dict[str, list[str]] = {str(w): [] for w in listing(results.get("warnings"))}
    for entry in mappings(results.get("results")):
        where = ", ".join(str(entry[k]) for k in ("attack", "vantage", "party") if entry.get(k))
        for warning in listing(entry.get("warnings")):
            found.setdefault(str(warning), []).append(where)
    return [f"{w} [{_some(places)}]" if places else w for w, places in found.items()]


def _some(places: list[str], most: int = 4) -> str:
    more = f"; and {len(places) - most} more" if len(places) > most else ""
    return "; ".join(places[:most]) + more


def spread(results: Results) -> list[str]:
    """What other training runs gave, a line for each vantage: intervals hold for one run, and runs differ."""
    runs = mappings(mapping(results.get("run")).get("repeats"))
    name = main_tpr(results) or "auc"
    lines = []
    for headline in headlines(results) if len(runs) > 1 else ():
        found = [
            h for run in runs for h in mappings(run.get("headlines")) if h.get("vantage") == headline.get("vantage")
        ]
        values = ", ".join(full_text(name, estimate(h, name)) for h in found)
        lines.append(f"{len(found)} training runs, {text(headline.get('vantage'))}, {measure(name)}: {values}")
    return lines
