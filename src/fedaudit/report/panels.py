"""The sections in the lower half of the page. One without data is left out."""

from __future__ import annotations

from collections.abc import Sequence

from fedaudit.questions import MINUS
from fedaudit.report import charts, figures, words
from fedaudit.report.figures import PlottedSeries
from fedaudit.report.helps import ruled_out
from fedaudit.report.sections import every_attack
from fedaudit.report.shapes import Figure, PageSection, Panel, Table
from fedaudit.report.values import Results
from fedaudit.report.words import Finding, adversary
from fedaudit.stats.strongest import allowed, epsilon_for
from fedaudit.stats.wording import (
    NONE,
    count,
    fpr_of,
    full_text,
    plain_span,
    rate,
    share,
    value_of,
    without,
)
from fedaudit.types import AuditResult, GroupResult
from fedaudit.words.headlines import group_title

MOST_ROWS = 50


def lower_half(results: Results, found: Sequence[Finding], name: str | None) -> list[PageSection]:
    table = every_attack(results)
    over_runs = Panel("", tables=[("Every attack over the runs", table)]) if table else None
    return [
        *_section("groups", "Who is more exposed than others", "Groups", groups(results, name)),
        *_section("exposed", "Most exposed", "Most exposed", exposed(results)),
        *_section("labels-only", "With labels alone", "Labels alone", labels_only(results)),
        *_section("blind", "Blind check", "Blind check", blind_panel(results, found)),
        *_section("cost", "What an attack costs", "Cost", costs(results)),
        *_section("utility", "What the model is good for", "Usefulness", _figure(charts.utility(results))),
        *_section("repeats", "Other training runs", "Other runs", _figure(charts.repeats(results, name)), over_runs),
        *_section("strength", "Why the strongest attack works here", "Why it works", strength(results)),
        *_section("guarantee", "Claimed guarantee", "Guarantee", guarantee(results, name)),
    ]


def _section(id: str, title: str, short: str, *panels: Panel | None) -> list[PageSection]:
    shown = [panel for panel in panels if panel]
    return [PageSection(id, title, short, shown)] if shown else []


def _figure(drawn: Figure | None) -> Panel | None:
    return Panel("", figures=[drawn]) if drawn else None


def blind_panel(results: Results, found: Sequence[Finding]) -> Panel | None:
    entry = words.blind(results)
    if entry is None:
        return None
    auc = entry.estimates.get("auc")
    shown = [("Blind guess, AUC", full_text("auc", auc))]
    if counted := entry.estimates.get("count-auc"):
        shown.append(("From the number of a person's records alone, AUC", full_text("auc", counted)))
    if value_of(auc) is None:
        return Panel("The blind check has no value, so it is not known whether the sets differ.", shown, tone="warn")
    for finding in found:
        gap = words.excess(results, finding.headline)
        if gap is not None:
            who = adversary(finding.vantage).title
            title = f"Excess of {who[0].lower()}{who[1:]}, AUC"
            shown.append((title, f"{gap[0]:+.3f} (both intervals together allow {plain_span(*gap[1:])})"))
    if words.sets_differ(results):
        lead = (
            "A guess that never sees a model tells members from outsiders. The two sets were drawn differently, and an "
            "attack may be measuring that difference. Only the excess over the blind guess can be attributed to the "
            "federation. It is better to draw members and outsiders from the same population and audit again."
        )
        return Panel(lead, shown, tone="warn")
    lead = (
        "A guess that never sees a model cannot tell members from outsiders: its interval contains 0.5. What the "
        "attacks find is therefore not explained by a difference between the two sets that this check can see."
    )
    return Panel(lead, shown)


def groups(results: Results, name: str | None) -> Panel | None:
    """The groups that were looked at, the most exposed first, and those that are too small."""
    found = results.groups
    if found is None:
        return None
    people = words.about_people(results)
    out = len({one.group for one in found.results if one.stands_out})
    verdict = f"{count(out)} stand out." if out != 1 else "One stands out."
    lead = (
        f"{count(len(found.looked_at))} groups were fixed before any score was seen, and share the error. "
        f"{verdict if out else 'None stands out from the others.'} Members are compared with outsiders of their own "
        "group: a group whose outsiders score as high gives nobody away. A group that does not stand out may still be "
        "more exposed, by less than this audit can see."
    )
    if not found.looked_at:
        lead = "No group was looked at: none could be that is large enough."
    key = name if any(name in one.inside for one in found.results) else None
    tables, folded = [], []
    for place in dict.fromkeys((one.vantage, one.model, one.attack) for one in found.results):
        mine = [one for one in found.results if (one.vantage, one.model, one.attack) == place]
        own = key if all(key in one.inside for one in mine) else None  # small parties have AUCs alone
        ordered = sorted(mine, key=lambda one: (not one.stands_out, -(one.beyond[own or "auc"].low or -9.0)))
        title = f"{adversary(place[0]).title}, {place[1]} models, by {place[2]}"
        tables.append((title, _of_groups(ordered, own, people)))
        folded.append((f"Beside everybody else: {title[0].lower()}{title[1:]}", _beside_others(ordered, own, people)))
    gone = dict.fromkeys(without(e) for one in found.results for e in one.beyond.values() if e.missing)
    small = [group_title(group, people) for group in found.too_small]
    many = [group.attribute or "class" for group in found.too_many]
    shown = [("Confidence", f"{100 * found.confidence:.4g} %, all {count(found.comparisons)} comparisons together")]
    shown += [("Compared", "; ".join(gone))] if gone else []
    shown += [("Too small to be shown", "; ".join(small))] if small else []
    shown += [("Too many values to look at each", ", ".join(many))] if many else []
    return Panel(lead, shown, tables, folded=folded)


def _of_groups(ordered: Sequence[GroupResult], key: str | None, people: bool) -> Table:
    head = ["group", "", "AUC", *(["picked out", "own outsiders accused"] if key else []), "members, outsiders"]
    rows = []
    for one in ordered:
        auc, found = one.inside["auc"], one.inside.get(key or "")
        shares = [full_text(found.name, found), share(found.realised_fpr)] if found else []
        verdict = "stands out" if one.stands_out else ""
        sizes = f"{count(auc.n_pos)}, {count(auc.n_neg)}"
        rows.append([group_title(one.group, people), verdict, full_text("auc", auc), *shares, sizes])
    return Table(head, rows)


def _beside_others(ordered: Sequence[GroupResult], key: str | None, people: bool) -> Table:
    """Everybody who is not in the group, and the difference that decides."""
    rows = []
    for one in ordered:
        cells = [full_text("auc", one.outside["auc"]), full_text(f"auc{MINUS}", one.beyond["auc"])]
        if key:
            cells += [full_text(key, one.outside[key]), full_text(f"{key}{MINUS}", one.beyond[key])]
        rows.append([group_title(one.group, people), *cells])
    shares = ("picked out elsewhere", "excess over own outsiders: difference in points") if key else ()
    return Table(("group", "AUC elsewhere", "difference", *shares), rows)


def exposed(results: Results) -> Panel | None:
    found = results.exposed
    if found is None:
        return None
    tables = []
    for kind, units in (("record", found.records), ("subject", found.subjects or ())):
        if not units:
            continue
        more = f"{count(len(units) - MOST_ROWS)} more are in results.json." if len(units) > MOST_ROWS else ""
        ranked = sorted(units, key=lambda u: (u.share_of_calibration_above, -(u.score or 0.0)))
        cells, texts = [], any(each.text for each in ranked)
        for place, u in enumerate(ranked[:MOST_ROWS], start=1):
            score = NONE if u.score is None else f"{u.score:#.4g}".rstrip(".")
            own = [str(place), u.id_hash, u.party, share(u.share_of_calibration_above), score]
            cells.append([*own, u.text] if texts else own)
        head = ("rank", f"{kind} (hashed)", "party", "outsiders scoring as high", "score", *["how it begins"] * texts)
        tables.append((f"Most exposed {kind}s", Table(head, cells, more)))
    if not tables:
        return None
    these = "these records" if found.records else "records of these people"
    lead = (
        "The training data that the strongest quoted attack would name first, sorted by the share of outsiders of the "
        f"same party that score as high, then by score. This table is itself membership data: it says that {these} "
        "were trained on. The command “fedaudit report RUN --redact” writes the page without it, to be passed on. An "
        "id is hashed with the file “salt” of the run, without which a list of names does not undo it."
    )
    if any(each.text for each in found.records):
        lead += " Of a text its beginning is shown, without words that fewer than ten of the records set aside have."
    shown = [("Ranked by", found.attack), ("Seen from", adversary(found.vantage).title)]
    return Panel(lead, shown, tables, tone="warn")


def costs(results: Results) -> Panel | None:
    shown = []
    for vantage, own in words.costs(results).items():
        low, high = words.cost_text(min(own)), words.cost_text(max(own))
        shown.append((adversary(vantage).title, f"{low} E" if low == high else f"{low} to {high} E"))
    if not shown:
        return None
    lead = (
        "Measured per round, in units of one local epoch on a party's own training records (1 E). Each attack is "
        "charged what running it alone takes, with every model that must be trained for it; what several attacks share "
        "is charged to each of them, so that their costs add up to more than the audit took. The cheaper an attack is, "
        "the more likely somebody will try it."
    )
    chart = charts.cost(results)
    return Panel(lead, shown, figures=[chart] if chart else [])


def guarantee(results: Results, name: str | None) -> Panel | None:
    claim = results.run.guarantee
    if claim is None:
        return None
    epsilon, delta, one, rdp = claim.epsilon, claim.delta, claim.epsilon_one_round, claim.epsilon_rdp
    shown = [
        ("Protected unit", claim.unit or NONE),
        ("Epsilon", NONE if epsilon is None else f"{epsilon:.4g}"),
        ("Delta", f"{delta:.3g}"),
        ("Adjacency", claim.adjacency or NONE),
        ("Accountant", claim.accountant),
        *_per_person(results),
    ]
    extra = [
        ("Scope", claim.scope),
        ("Epsilon of one round", "" if one is None else f"{one:.4g}"),
        ("Epsilon by Renyi accounting", "" if rdp is None else f"{rdp:.4g}"),
        ("Holds against", claim.against),
        *(("Problem", problem) for problem in claim.problems),
    ]
    shown += [(title, value) for title, value in extra if value]
    fpr = fpr_of(name or "")
    meaning = ""
    if claim.binding is not None and fpr:
        most, whose = allowed(claim.binding, delta, fpr), ", of people" * (claim.per_person is not None)
        shown.append((f"Most it allows at {rate(fpr)} FPR{whose}", f"{share(most)} picked out"))
        meaning = _allows(most, fpr, delta)
    lead = (
        "The training claims differential privacy. A claim is a promise about every adversary it covers, an audit is a "
        "measurement of a few attacks: the two may be compared only where they speak of the same unit."
    )
    return Panel(f"{lead}{meaning}", shown)


def _per_person(results: Results) -> list[tuple[str, str]]:
    """A promise for records is a weaker one for a person who has several, or none at all."""
    claim = results.run.guarantee
    if found := claim and claim.per_person:
        return [("Per person", found.text), ("Per person, by", found.method)]
    unknown = claim and claim.unit == "record" and results.run.data.subjects is not None
    return [("Per person", "not stated in these results")] if unknown else []


def _allows(most: float, fpr: float, delta: float) -> str:
    """What an epsilon permits, in words: a promise that allows everything is no protection at this rate."""
    at, target = rate(fpr), ruled_out(fpr)
    to = f"At most {share(target)} is allowed from an epsilon of {epsilon_for(target, delta, fpr):.2g} downwards."
    if most >= 0.995:
        return (
            f" At {at} false accusations this epsilon allows {share(most)}: a training in which every member can be "
            f"picked out keeps the promise, too, so at this rate it protects nobody. {to}"
        )
    return f" It bounds every adversary, whatever the attack: at {at} false accusations nobody picks out more. {to}"


# ------------------------------------------------------------------ the place on the measured map of the matched filter


# Weights for each member in the sum, and the share of members found at 1 % FPR after eight rounds of one epoch:
# smallest and largest of all measured federations there (docs/matched-filter.md, "Where it stops").
MAP = (
    (80.0, "97 to 100 %"),
    (40.0, "69 to 99 %"),
    (20.0, "50 to 84 %"),
    (10.0, "11 to 74 %"),
    (5.0, "16 to 44 %"),
    (2.0, "2 to 28 %"),
    (0.0, "2 to 10 %"),
)
SUMS = {"local": "one party's update", "global": "the sum of all parties' updates"}


def strength(results: Results) -> Panel | None:
    weights = results.run.weights_per_member
    looked_for = [entry for entry in results.results if entry.attack == "matched-filter" and entry.layer]
    if not weights or not looked_for:
        return None
    lead = (
        "The matched filter looks for a record's own gradient in an update of one layer. "
        "What counts is how many weights that layer has for each record in the update, not whether the model has "
        "memorised anything. Below is where this federation lies among 12 that were measured, with three seeds each "
        "(docs/matched-filter.md): the smallest and the largest share found, a guide and not a result."
    )
    shown = [("Layer", looked_for[0].layer or "")]
    rows = []
    for model, title in SUMS.items():
        if model in weights:
            rows.append((title, count(round(weights[model])), found_there(weights[model])))
    head = ("seen", "weights per member", "members found at 1 % FPR in measured federations like it")
    return Panel(lead, shown, [("Place on the map", Table(head, rows))])


def found_there(weights: float) -> str:
    return next(found for least, found in MAP if weights >= least)


# ------------------------------------------------------------------ an adversary who sees only labels


SIDES = {"distance-members": ("members", "s1"), "distance-nonmembers": ("non-members", "s2")}


def labels_only(results: Results) -> Panel | None:
    """None where nobody was limited to labels."""
    entries = [e for e in results.results if e.party is None and e.cost.queries is not None]
    if not entries:
        return None
    lead = (
        "This adversary is a party that may ask each round's model for predicted labels, and sees nothing else. It "
        "learns from its own records, on which it is not judged. A distance is how far a record must be moved, in "
        "units of the inputs, before its label changes; one that is labelled wrongly has distance 0."
    )
    searched = next((e for e in entries if "distance-members" in e.curves), None)
    drawn = [f for f in (_distances(searched), _accuracy(searched)) if f] if searched else []
    rows = [
        [
            e.attack,
            *map(_labels, (e.cost.queries, e.cost.most_queries)),
            *(full_text(n, e.estimates.get(n)) for n in ("accuracy", "auc")),
        ]
        for e in entries
    ]
    head = ("attack", "labels asked per record", "at most", "accuracy, balanced", "AUC")
    table = Table(head, rows, "The threshold of the accuracy was fixed on its own records.")
    return Panel(lead, tables=[("", table)], figures=drawn)


def _distances(entry: AuditResult) -> Figure | None:
    series, rows = [], []
    for name, (title, colour) in SIDES.items():
        curve = entry.curves[name]
        tips = [f"round {x:.0f} · {title}: {_number(v)}" for x, v in zip(curve.x, curve.value, strict=True)]
        series.append(
            PlottedSeries(
                title, colour, x=curve.x, value=curve.value, low=curve.low, high=curve.high, tips=tips, since=None
            )
        )
        for x, value, low, high in zip(curve.x, curve.value, curve.low, curve.high, strict=True):
            rows.append([count(round(x)), title, _number(value), f"{_number(low)}–{_number(high)}"])
    values = [v for s in series for v in (*s.value, *s.low, *s.high)]
    if all(value is None for value in values):
        return None
    across = figures.round_axis(entry.curves["distance-members"].x, "round")
    y = figures.linear_axis(values, "distance to the boundary", percent=False, include=[0.0], most=float("inf"))
    title = "Distance to the decision boundary over the rounds"
    svg = figures.lines(title, "Medians with intervals, for members and non-members.", series, across, y, [])
    caption = f"{entry.attack}: {entry.curves['distance-members'].method}."
    table = Table(("round", "records", "distance", "interval"), rows)
    return Figure(svg, [(s.colour, s.name) for s in series], caption, table, title)


def _accuracy(entry: AuditResult) -> Figure | None:
    """The accuracy after each round over the labels that were asked for until then."""
    accuracy, queries = entry.curves.get("accuracy"), entry.curves.get("queries")
    if accuracy is None or queries is None:
        return None
    spent = dict(zip(queries.x, queries.value, strict=True))
    points = [
        (float(spent[x] or 0.0), v, low, high)
        for x, v, low, high in zip(accuracy.x, accuracy.value, accuracy.low, accuracy.high, strict=True)
        if x in spent
    ]
    if len(points) < 2 or all(v is None for _, v, _, _ in points):
        return None
    xs, values, lows, highs = zip(*points, strict=True)
    tips = [f"{x:,.0f} labels a record: accuracy {_number(v)}" for x, v in zip(xs, values, strict=True)]
    series = [PlottedSeries(entry.attack, "s1", x=xs, value=values, low=lows, high=highs, tips=tips, since=None)]
    x_axis = figures.linear_axis(list(xs), "labels asked per record", percent=False, include=[0.0], most=float("inf"))
    y_axis = figures.linear_axis([*values, *lows, *highs], "accuracy, balanced", percent=True, include=[0.5], most=1.0)
    chance = [(x_axis.low, 0.5), (x_axis.high, 0.5)]
    title = "Accuracy against queries"
    svg = figures.lines(title, "One point for each round, with its interval.", series, x_axis, y_axis, chance)
    rows = [[f"{x:,.0f}", _number(v), f"{_number(a)}–{_number(b)}"] for x, v, a, b in points]
    caption = f"After each round; {accuracy.method}. Later points have seen more rounds as well as more labels."
    return Figure(
        svg, [("s1", entry.attack), ("chance", "guessing")], caption,
        Table(("labels a record", "accuracy", "interval"), rows), title,
    )  # fmt: skip


def _labels(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3g}"
