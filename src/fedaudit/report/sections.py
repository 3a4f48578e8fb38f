"""What the page shows, section by section. A section whose data is absent is None, and the page leaves it out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedaudit.report import words
from fedaudit.report.adversaries import ADVERSARIES, Adversary, adversary
from fedaudit.report.values import (
    NONE,
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
    share_span,
    span_text,
    text,
    toml,
    value_text,
)
from fedaudit.report.words import Finding, Results

MOST_ROWS = 50


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Tile:
    label: str
    value: str
    span: str
    note: str


@dataclass(frozen=True)
class Cell:
    value: str
    span: str
    shade: str
    reason: str = ""


@dataclass(frozen=True)
class Matrix:
    groups: Sequence[tuple[str, str, str]]  # title, model, colour
    rows: Sequence[tuple[str, bool, Sequence[Cell]]]
    rate: str
    table: Table
    blind: bool = False


@dataclass(frozen=True)
class Panel:
    """A short list of facts with a sentence before it."""

    lead: str
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[tuple[str, Table]] = ()
    tone: str = ""


@dataclass(frozen=True)
class Recipe:
    toml: str
    command: str
    facts: Sequence[tuple[str, str]]
    versions: Sequence[tuple[str, str]] = field(default=())


# ------------------------------------------------------------------ the top of the page


def facts(results: Results) -> list[tuple[str, str]]:
    run = mapping(results.get("run"))
    data = mapping(run.get("data"))
    parties = mappings(run.get("parties"))
    seconds = number(run.get("seconds"))
    sizes = [number(data.get(key)) for key in ("records", "subjects")]
    shown = " · ".join(f"{count(n)} {what}" for n, what in zip(sizes, ("records", "subjects"), strict=True) if n)
    rows = [
        ("Data", " · ".join(part for part in (text(data.get("name"), ""), shown) if part)),
        ("Parties", count(len(parties)) if parties else ""),
        ("Rounds", text(run.get("rounds"), "")),
        ("Status", text(run.get("status"), "")),
        ("Made", text(run.get("created"), "").replace("T", " ")[:16]),
        ("Took", "" if seconds is None else f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"),
    ]
    return [(name, value) for name, value in rows if value]


def tone(results: Results, found: Sequence[Finding]) -> str:
    tones = {f.tone for f in found}
    if "alarm" in tones or words.sets_differ(results):
        return "warn"
    return next((t for t in ("found", "weak", "unknown", "none") if t in tones), "unknown")


def tiles(found: Finding, name: str | None) -> list[Tile]:
    """The three numbers of a vantage."""
    fpr = words.fpr_of(name or "")
    tpr, auc = estimate(found.headline, name or ""), estimate(found.headline, "auc")
    shown = []
    if name and fpr:
        sure = f"{confidence(tpr)} interval {span_text(name, tpr)} %" if number(tpr.get("low")) is not None else ""
        note = text(tpr.get("reason"), f"of {count(number(tpr.get('n_pos')))} members tested; chance is {rate(fpr)}")
        shown.append(Tile(f"picked out at {rate(fpr)} false accusations", value_text(name, tpr), sure, note))
    if auc:
        sure = f"{confidence(auc)} interval {span_text('auc', auc)}" if number(auc.get("low")) is not None else ""
        note = text(auc.get("reason"), "how often a member outranks an outsider; chance is 0.5")
        shown.append(Tile("AUC, the average picture", value_text("auc", auc), sure, note))
    if name and fpr and number(tpr.get("value")) is not None:
        span = [number(end) for end in listing(tpr.get("realised_fpr_interval"))]
        base = f"{confidence(tpr)} interval {share_span(*span)} %" if len(span) == 2 else ""
        tested, tuned = count(number(tpr.get("n_neg"))), count(number(tpr.get("n_cal")))
        note = f"of {tested} outsiders; the threshold was set for {rate(fpr)} on {tuned} others"
        shown.append(Tile("wrongly accused in this test", share(number(tpr.get("realised_fpr"))), base, note))
    return shown


def who_looks(results: Results, found: Sequence[Finding]) -> list[tuple[Adversary, str]]:
    """Every vantage that was tested, with the attacks that were run from it."""
    attacks: dict[str, list[str]] = {f.vantage: [] for f in found}
    for entry in words.pooled(results):
        attacks.setdefault(text(entry.get("vantage")), []).append(text(entry.get("attack")))
    return [(adversary(v), ", ".join(dict.fromkeys(names))) for v, names in attacks.items()]


# ------------------------------------------------------------------ attacks beside one another


def level(name: str, est: Mapping[str, Any]) -> int:
    """How far the interval's lower end lies above chance, 0 (not at all) to 5; -1 without a value."""
    low, fpr = number(est.get("low")), words.fpr_of(name)
    if low is None:
        return -1
    if fpr is not None:
        return sum(low / fpr > step for step in (1, 2, 5, 10, 30))
    return sum(low > step for step in (0.5, 0.55, 0.6, 0.7, 0.85))


def _cell(name: str, est: Mapping[str, Any]) -> Cell:
    high, shade = number(est.get("high")), level(name, est)
    below = name == "auc" and high is not None and high < 0.5
    klass = "heat-alarm" if below else "heat-none" if shade < 0 else f"heat-{shade}"
    if number(est.get("value")) is None:
        return Cell(NONE, "", "heat-none", text(est.get("reason"), ""))
    return Cell(value_text(name, est), span_text(name, est), klass, text(est.get("reason"), ""))


def matrix(results: Results, name: str | None) -> Matrix | None:
    entries = words.pooled(results)
    if not entries:
        return None
    order = [text(h.get("vantage")) for h in words.headlines(results)]
    keys = sorted(
        dict.fromkeys((text(e.get("vantage")), text(e.get("model"))) for e in entries),
        key=lambda key: order.index(key[0]) if key[0] in order else len(order),
    )
    chosen = {(h.get("attack"), h.get("vantage")) for h in words.headlines(results)}
    by_place = {(text(e.get("attack")), text(e.get("vantage")), text(e.get("model"))): e for e in entries}
    rows = []
    for attack in dict.fromkeys(text(e.get("attack")) for e in entries):
        cells = []
        for vantage, model in keys:
            entry = by_place.get((attack, vantage, model))
            if entry is None:
                cells += [Cell("", "", "absent")] * (3 if name else 2)
                continue
            cells += [_cell(n, estimate(entry, n)) for n in ([name] if name else []) + ["auc"]]
            cells.append(Cell(words.cost_text(number(mapping(entry.get("cost")).get("epochs"))), "", "plain"))
        rows.append((attack, any((attack, vantage) in chosen for vantage, _ in keys), cells))
    groups = [(adversary(v).title, f"{m} models", adversary(v).colour) for v, m in keys]
    return Matrix(groups, rows, rate(words.fpr_of(name) or 0) if name else "", _everything(entries))


def _everything(entries: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for entry in entries:
        for name in mapping(entry.get("estimates")):
            est = estimate(entry, name)
            fpr = words.fpr_of(name)
            sizes = [count(number(est.get(k))) for k in ("n_pos", "n_neg", "n_cal")]
            label = f"TPR at {rate(fpr)} FPR" if fpr else name.upper()
            where = [text(entry.get(k)) for k in ("attack", "vantage", "model")]
            shown = [value_text(name, est), span_text(name, est), share(number(est.get("realised_fpr")))]
            rows.append([*where, label, *shown, *sizes, text(est.get("method")), text(est.get("reason"), "")])
    head = ("attack", "vantage", "model", "measure", "value", "interval", "realised FPR")
    return Table((*head, "members", "outsiders", "calibration", "method", "remark"), rows)


# ------------------------------------------------------------------ panels


def blind_panel(results: Results, found: Sequence[Finding]) -> Panel | None:
    entry = words.blind(results)
    if entry is None:
        return None
    auc = estimate(entry, "auc")
    shown = [("Blind guess, AUC", full_text("auc", auc))]
    if number(auc.get("value")) is None:
        return Panel("The blind check gave no value, so it is not known whether the sets differ.", shown, tone="warn")
    for finding in found:
        gap = words.excess(results, finding.headline)
        if gap is not None:
            title = (
                f"Excess of {adversary(finding.vantage).title[0].lower()}{adversary(finding.vantage).title[1:]}, AUC"
            )
            shown.append((title, f"{gap[0]:+.3f} (both intervals together allow {plain_span(*gap[1:])})"))
    if words.sets_differ(results):
        lead = (
            "A guess that never sees a model tells members from outsiders. The two sets were drawn differently, and an "
            "attack may be measuring that difference. Only the excess over the blind guess can be put down to the "
            "federation; better, draw members and outsiders from the same population and audit again."
        )
        return Panel(lead, shown, tone="warn")
    lead = (
        "A guess that never sees a model cannot tell members from outsiders: its interval contains 0.5. What the "
        "attacks find is therefore not explained by a difference between the two sets that this check can see."
    )
    return Panel(lead, shown)


def attribute(results: Results) -> Panel | None:
    """What is guessed of a hidden attribute, beside the two guesses it must beat."""
    rows = words.attribute_rows(results)
    if not rows:
        return None
    lead = (
        "An attribute can often be guessed from the rest of the record by anybody. Training gives it away only as far "
        "as the attack beats a guess that never sees a model (excess over blind), and does so better for members than "
        "for people who were not trained on. Each interval holds for its own row."
    )
    everything = _everything(words.attributes(results)[:1])
    head = ("attack", "vantage", "model", "measure", "value", "interval", "realised FPR", "people", "compared with")
    details = Table((*head, *everything.head[9:]), everything.rows)
    tables = [
        ("Hidden attribute, AUC", Table(words.ATTRIBUTE_TITLES, rows)),
        ("Counts and methods, all parties", details),
    ]
    return Panel(lead, tables=tables)


def naming(results: Results) -> Table | None:
    """Whose record is it? Party by party, what `source` says."""
    entries = [e for e in mappings(results.get("results")) if e.get("attack") == "source" and e.get("party")]
    rows = []
    for entry in entries:
        named, elsewhere = estimate(entry, "accuracy"), estimate(entry, "auc-other-party")
        sizes = [count(number(elsewhere.get(key))) for key in ("n_pos", "n_neg")]
        rows.append([text(entry.get("party")), full_text("accuracy", named), full_text("auc", elsewhere), *sizes])
    if not rows:
        return None
    note = (
        "Seen by the server: how often the right party is named for a training record, and how well a party's records "
        "are told from the other parties' (chance is 0.5). There is no such AUC for all parties together: every record "
        "would stand on both sides."
    )
    head = ("party", "rightly named", "AUC against other parties' records", "own records", "others' records")
    return Table(head, rows, note)


def exposed(results: Results) -> Panel | None:
    source = mapping(results.get("exposed"))
    tables = []
    for kind in ("records", "subjects"):
        rows = mappings(source.get(kind))
        if not rows:
            continue
        scores = [number(r.get("score")) for r in rows]
        above = [number(r.get("share_of_calibration_above")) for r in rows]
        more = f"{count(len(rows) - MOST_ROWS)} more are in results.json." if len(rows) > MOST_ROWS else ""
        cells = [
            [text(r.get("id_hash")), text(r.get("party")), NONE if s is None else f"{s:.4g}", share(a)]
            for r, s, a in zip(rows, scores, above, strict=True)
        ]
        head = (f"{kind[:-1]} (hashed)", "party", "score", "outsiders scoring higher")
        tables.append((f"Most exposed {kind}", Table(head, cells[:MOST_ROWS], more)))
    if not tables:
        return None
    seen = adversary(text(source.get("vantage"))).title if source.get("vantage") else ""
    shown = [("Ranked by", text(source.get("attack"), "")), ("Seen from", seen)]
    lead = (
        "This table is itself membership data: it says that these records were trained on. Keep it from anybody who "
        "must not know that, and remove it before passing the report on."
    )
    return Panel(lead, [(k, v) for k, v in shown if v], tables, tone="warn")


def costs(results: Results) -> Panel | None:
    shown = []
    for vantage, own in words.costs(results).items():
        low, high = words.cost_text(min(own)), words.cost_text(max(own))
        shown.append((adversary(vantage).title, f"{low} E" if low == high else f"{low} to {high} E"))
    if not shown:
        return None
    lead = (
        "Measured per round, in units of one local epoch on a party's own training records (1 E). Attacks that share "
        "their signals share the cost. What costs little will be tried."
    )
    return Panel(lead, shown)


def guarantee(results: Results, name: str | None) -> Panel | None:
    claim = mapping(mapping(results.get("run")).get("guarantee"))
    if not claim:
        return None
    epsilon, delta = number(claim.get("epsilon")), number(claim.get("delta"))
    shown = [
        ("Protected unit", text(claim.get("unit"))),
        ("Epsilon", NONE if epsilon is None else f"{epsilon:.4g}"),
        ("Delta", NONE if delta is None else f"{delta:.3g}"),
        ("Adjacency", text(claim.get("adjacency"))),
        ("Accountant", text(claim.get("accountant"))),
    ]
    one, rdp = number(claim.get("epsilon_one_round")), number(claim.get("epsilon_rdp"))
    extra = [
        ("Scope", text(claim.get("scope"), "")),
        ("Epsilon of one round", "" if one is None else f"{one:.4g}"),
        ("Epsilon by Renyi accounting", "" if rdp is None else f"{rdp:.4g}"),
        ("Holds against", text(claim.get("against"), "")),
        *(("Problem", str(problem)) for problem in listing(claim.get("problems"))),
    ]
    shown += [(title, value) for title, value in extra if value]
    fpr = words.fpr_of(name or "")
    if epsilon is not None and delta is not None and fpr:
        most = min(math.exp(min(epsilon, 50)) * fpr + delta, 1 - math.exp(-epsilon) * (1 - delta - fpr), 1.0)
        shown.append((f"Most it allows at {rate(fpr)} FPR", f"{share(most)} picked out"))
    lead = (
        "The training claims differential privacy. A claim is a promise about every adversary it covers, an audit is a "
        "measurement of a few attacks: the two may be compared only where they speak of the same unit."
    )
    return Panel(lead, shown)


def limits(results: Results, found: Sequence[Finding]) -> list[tuple[str, str]]:
    """What this audit cannot show, or did not try."""
    repeats = mappings(mapping(results.get("run")).get("repeats"))
    runs = (
        "Every interval is conditional on this one training run. Train again and the model, and what it gives away, "
        "will differ; repeats (--repeats) show by how much."
    )
    if len(repeats) > 1:
        runs = f"Training was run {len(repeats)} times and the spread is shown; each interval still holds for its run."
    tested = {f.vantage for f in found} | {text(e.get("vantage")) for e in words.pooled(results)}
    absent = [a.title[0].lower() + a.title[1:] for v, a in ADVERSARIES.items() if v not in tested]
    untried = "" if words.attributes(results) else " and attribute"
    attacks = {text(e.get("attack")) for e in words.pooled(results)}
    elsewhere = (
        "is a different question, which `source` answers party by party."
        if "source" in attacks
        else "is a different question, and it was not asked."
    )
    malicious = mapping(mapping(mapping(results.get("run")).get("config")).get("audit")).get("adversary") == "agg-mal"
    active = (
        "adversaries who change the training to learn more, but for an aggregator that isolates each party (agg-mal)"
        if malicious
        else "adversaries who change the training to learn more"
    )
    items = [
        ("Other runs" if len(repeats) > 1 else "One run", runs),
        (
            "Stronger attacks",
            "Finding nothing is no proof of safety: it bounds these attacks at this sample size, not those that nobody "
            "ran. What was found is a lower limit of what can be found.",
        ),
        (
            "Outside the federation",
            "Non-members here are records outside the federation. Whether a record lies in this party or in another "
            f"one {elsewhere}",
        ),
        (
            "Not tested",
            f"Reconstruction of records and gradient inversion; property{untried} inference; several parties, or a "
            f"party and the server, working together; {active}.",
        ),
    ]
    if absent:
        items.append(("Not looked from", f"{'; '.join(absent)[0].upper()}{'; '.join(absent)[1:]}."))
    if words.blind(results) is None:
        items.append(("No blind check", "Whether members and outsiders differ even without the model was not tested."))
    return items


def recipe(results: Results) -> Recipe | None:
    run = mapping(results.get("run"))
    config = mapping(run.get("config"))
    versions = [(str(k), text(v)) for k, v in mapping(run.get("versions")).items()]
    shown = [("fedaudit", text(run.get("fedaudit"), "")), ("Configuration hash", text(run.get("config_hash"), ""))]
    shown = [(k, v) for k, v in shown if v]
    if not (config or versions or shown):
        return None
    repeats = len(mappings(run.get("repeats")))
    command = "fedaudit run audit.toml" + (f" --repeats {repeats}" if repeats > 1 else "")
    return Recipe(toml(config), command if config else "", shown, versions)


def notes(results: Results, key: str) -> list[str]:
    return words.warnings(results) if key == "warnings" else [str(n) for n in listing(results.get(key))]
