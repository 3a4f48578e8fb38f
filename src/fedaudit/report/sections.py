"""The content of the page, section by section. A section without data is None, and the page leaves it out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedaudit.report import words
from fedaudit.report.adversaries import ADVERSARIES, Adversary, adversary
from fedaudit.report.values import Results, toml
from fedaudit.report.words import Finding
from fedaudit.stats.wording import (
    NONE,
    confidence,
    count,
    fpr_of,
    full_text,
    interval_text,
    plain_span,
    rate,
    share,
    share_span,
    value_of,
    value_text,
)
from fedaudit.types import AuditResult, Estimate

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
    run, data = results.run, results.run.data
    sizes = ((data.records, "records"), (data.subjects, "subjects"))
    shown = " · ".join(f"{count(n)} {what}" for n, what in sizes if n)
    seconds = run.seconds
    rows = [
        ("Data", " · ".join(part for part in (data.name, shown) if part)),
        ("Parties", count(len(run.parties)) if run.parties else ""),
        ("Rounds", count(run.rounds)),
        ("Status", run.status),
        ("Made", run.created.replace("T", " ")[:16]),
        ("Took", f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"),
    ]
    return [(name, value) for name, value in rows if value]


def tone(results: Results, found: Sequence[Finding]) -> str:
    tones = {f.tone for f in found}
    if "alarm" in tones or words.sets_differ(results):
        return "warn"
    return next((t for t in ("found", "weak", "unknown", "none") if t in tones), "unknown")


def tiles(found: Finding, name: str | None) -> list[Tile]:
    """The three numbers of a vantage."""
    fpr = fpr_of(name or "")
    tpr, auc = found.headline.estimates.get(name or ""), found.headline.estimates.get("auc")
    shown = []
    if name and fpr:
        sure = f"{confidence(tpr)} interval {interval_text(name, tpr)} %" if tpr and tpr.low is not None else ""
        tested = count(tpr.n_pos if tpr else None)
        note = (tpr and tpr.reason) or f"of {tested} members tested; chance is {rate(fpr)}"
        shown.append(Tile(f"picked out at {rate(fpr)} false accusations", value_text(name, tpr), sure, note))
    if auc:
        sure = f"{confidence(auc)} interval {interval_text('auc', auc)}" if auc.low is not None else ""
        note = auc.reason or "how often a member outranks an outsider; chance is 0.5"
        shown.append(Tile("AUC, the average picture", value_text("auc", auc), sure, note))
    if fpr and tpr and tpr.value is not None:
        span = tpr.realised_fpr_interval
        base = f"{confidence(tpr)} interval {share_span(*span)} %" if span else ""
        note = f"of {count(tpr.n_neg)} outsiders; the threshold was set for {rate(fpr)} on {count(tpr.n_cal)} others"
        shown.append(Tile("wrongly accused in this test", share(tpr.realised_fpr), base, note))
    return shown


def who_looks(results: Results, found: Sequence[Finding]) -> list[tuple[Adversary, str]]:
    """Every vantage that was tested, with the attacks that were run from it."""
    attacks: dict[str, list[str]] = {f.vantage: [] for f in found}
    for entry in words.pooled(results):
        attacks.setdefault(entry.vantage, []).append(entry.attack)
    return [(adversary(v), ", ".join(dict.fromkeys(names))) for v, names in attacks.items()]


# ------------------------------------------------------------------ attacks beside one another


def level(name: str, est: Estimate | None) -> int:
    """How far the interval's lower end lies above chance, 0 (not at all) to 5; -1 without a value."""
    fpr = fpr_of(name)
    if est is None or est.low is None:
        return -1
    low = est.low
    if fpr is not None:
        return sum(low / fpr > step for step in (1, 2, 5, 10, 30))
    return sum(low > step for step in (0.5, 0.55, 0.6, 0.7, 0.85))


def _cell(name: str, est: Estimate | None) -> Cell:
    if est is None or est.value is None:
        return Cell(NONE, "", "heat-none", (est and est.reason) or "")
    shade = level(name, est)
    below = name == "auc" and est.high is not None and est.high < 0.5
    klass = "heat-alarm" if below else "heat-none" if shade < 0 else f"heat-{shade}"
    return Cell(value_text(name, est), interval_text(name, est), klass, est.reason or "")


def matrix(results: Results, name: str | None) -> Matrix | None:
    entries = words.pooled(results)
    if not entries:
        return None
    order = [h.vantage for h in words.headlines(results)]
    keys = sorted(
        dict.fromkeys((e.vantage, e.model) for e in entries),
        key=lambda key: order.index(key[0]) if key[0] in order else len(order),
    )
    chosen = {(h.attack, h.vantage) for h in words.headlines(results)}
    by_place = {(e.attack, e.vantage, e.model): e for e in entries}
    rows = []
    for attack in dict.fromkeys(e.attack for e in entries):
        cells = []
        for vantage, model in keys:
            entry = by_place.get((attack, vantage, model))
            if entry is None:
                cells += [Cell("", "", "absent")] * (3 if name else 2)
                continue
            cells += [_cell(n, entry.estimates.get(n)) for n in ([name] if name else []) + ["auc"]]
            cells.append(Cell(words.cost_text(entry.cost.epochs), "", "plain"))
        rows.append((attack, any((attack, vantage) in chosen for vantage, _ in keys), cells))
    groups = [(adversary(v).title, f"{m} models", adversary(v).colour) for v, m in keys]
    return Matrix(groups, rows, rate(fpr_of(name) or 0) if name else "", _everything(entries))


def _everything(entries: Sequence[AuditResult]) -> Table:
    rows = []
    for entry in entries:
        for name, est in entry.estimates.items():
            fpr = fpr_of(name)
            label = f"TPR at {rate(fpr)} FPR" if fpr else name.upper()
            shown = [value_text(name, est), interval_text(name, est), share(est.realised_fpr)]
            sizes = [count(size) for size in (est.n_pos, est.n_neg, est.n_cal)]
            rows.append([entry.attack, entry.vantage, entry.model, label, *shown, *sizes, est.method, est.reason or ""])
    head = ("attack", "vantage", "model", "measure", "value", "interval", "realised FPR")
    return Table((*head, "members", "outsiders", "calibration", "method", "remark"), rows)


# ------------------------------------------------------------------ panels


def blind_panel(results: Results, found: Sequence[Finding]) -> Panel | None:
    entry = words.blind(results)
    if entry is None:
        return None
    auc = entry.estimates.get("auc")
    shown = [("Blind guess, AUC", full_text("auc", auc))]
    if value_of(auc) is None:
        return Panel("The blind check has no value, so it is not known whether the sets differ.", shown, tone="warn")
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
            "attack may be measuring that difference. Only the excess over the blind guess can be attributed to the "
            "federation. It is better to draw members and outsiders from the same population and audit again."
        )
        return Panel(lead, shown, tone="warn")
    lead = (
        "A guess that never sees a model cannot tell members from outsiders: its interval contains 0.5. What the "
        "attacks find is therefore not explained by a difference between the two sets that this check can see."
    )
    return Panel(lead, shown)


def attribute(results: Results) -> Panel | None:
    """The results for a hidden attribute, with the two guesses that the attack must beat."""
    rows = words.attribute_rows(results)
    if not rows:
        return None
    lead = (
        "An attribute can often be guessed from the rest of the record by anybody. Training reveals it only as far as "
        "the attack beats a guess that never sees a model (excess over blind), and does better for members than for "
        "people who were not trained on. Each interval holds for its own row."
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
    """Whose record is it? The results of `source`, party by party."""
    rows = []
    for entry in results.results:
        if entry.attack == "source" and entry.party:
            named, elsewhere = entry.estimates.get("accuracy"), entry.estimates.get("auc-other-party")
            sizes = (elsewhere.n_pos, elsewhere.n_neg) if elsewhere else (None, None)
            row = [entry.party, full_text("accuracy", named), full_text("auc", elsewhere), *map(count, sizes)]
            rows.append(row)
    if not rows:
        return None
    note = (
        "Seen by the server: how often the right party is named for a training record, and how well a party's records "
        "are told from the other parties' (chance is 0.5). There is no such AUC for all parties together: every record "
        "would be on both sides."
    )
    head = ("party", "rightly named", "AUC against other parties' records", "own records", "others' records")
    return Table(head, rows, note)


def exposed(results: Results) -> Panel | None:
    found = results.exposed
    if found is None:
        return None
    tables = []
    for kind, units in (("record", found.records), ("subject", found.subjects or ())):
        if not units:
            continue
        more = f"{count(len(units) - MOST_ROWS)} more are in results.json." if len(units) > MOST_ROWS else ""
        cells = [
            [u.id_hash, u.party, NONE if u.score is None else f"{u.score:.4g}", share(u.share_of_calibration_above)]
            for u in units[:MOST_ROWS]
        ]
        head = (f"{kind} (hashed)", "party", "score", "outsiders scoring higher")
        tables.append((f"Most exposed {kind}s", Table(head, cells, more)))
    if not tables:
        return None
    lead = (
        "This table is itself membership data: it says that these records were trained on. Keep it from anybody who "
        "must not know that, and remove it before passing the report on."
    )
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
        "Measured per round, in units of one local epoch on a party's own training records (1 E). Attacks that share "
        "their signals share the cost. The cheaper an attack is, the more likely somebody will try it."
    )
    return Panel(lead, shown)


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
    if epsilon is not None and fpr:
        most = min(math.exp(min(epsilon, 50)) * fpr + delta, 1 - math.exp(-epsilon) * (1 - delta - fpr), 1.0)
        shown.append((f"Most it allows at {rate(fpr)} FPR", f"{share(most)} picked out"))
    lead = (
        "The training claims differential privacy. A claim is a promise about every adversary it covers, an audit is a "
        "measurement of a few attacks: the two may be compared only where they speak of the same unit."
    )
    return Panel(lead, shown)


def limits(results: Results, found: Sequence[Finding]) -> list[tuple[str, str]]:
    """What this audit cannot show, or did not test."""
    repeats = results.run.repeats
    runs = (
        "Every interval is conditional on this one training run. Train again and the model, and what it gives away, "
        "will differ; repeats (--repeats) show by how much."
    )
    if len(repeats) > 1:
        runs = f"Training was run {len(repeats)} times and the spread is shown; each interval still holds for its run."
    tested = {f.vantage for f in found} | {e.vantage for e in words.pooled(results)}
    absent = [a.title[0].lower() + a.title[1:] for v, a in ADVERSARIES.items() if v not in tested]
    untried = "" if words.attributes(results) else " and attribute"
    attacks = {e.attack for e in words.pooled(results)}
    elsewhere = (
        "is a different question, which `source` answers party by party."
        if "source" in attacks
        else "is a different question, and it was not asked."
    )
    audit = results.run.config.get("audit")
    malicious = isinstance(audit, Mapping) and audit.get("adversary") == "agg-mal"
    active = (
        "adversaries who change the training to learn more, but for an aggregator that isolates each party (agg-mal)"
        if malicious
        else "adversaries who change the training to learn more"
    )
    items = [
        ("Other runs" if len(repeats) > 1 else "One run", runs),
        (
            "Stronger attacks",
            "Finding nothing does not prove safety: the result bounds these attacks at this sample size, and says "
            "nothing about attacks that were not run. What was found is a lower limit of what can be found.",
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
        items.append(("Vantages not tested", f"{'; '.join(absent)[0].upper()}{'; '.join(absent)[1:]}."))
    if words.blind(results) is None:
        items.append(("No blind check", "Whether members and outsiders differ even without the model was not tested."))
    return items


def recipe(results: Results) -> Recipe | None:
    run = results.run
    shown = [("fedaudit", run.fedaudit), ("Configuration hash", run.config_hash)]
    shown = [(k, v) for k, v in shown if v]
    if not (run.config or run.versions or shown):
        return None
    command = "fedaudit run audit.toml" + (f" --repeats {len(run.repeats)}" if len(run.repeats) > 1 else "")
    return Recipe(toml(run.config), command if run.config else "", shown, list(run.versions.items()))
