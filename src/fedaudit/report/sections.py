"""The content of the page, section by section. A section without data is None, and the page leaves it out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedaudit.questions import MINUS, Question, every, metric, of
from fedaudit.report import taken, words
from fedaudit.report.shapes import Matrix, MatrixCell, PageSection, Panel, Recipe, Table, Tile
from fedaudit.report.values import Results
from fedaudit.report.words import ADVERSARIES, Adversary, Finding, ValueText, adversary
from fedaudit.stats.wording import (
    DECISIONS,
    NONE,
    confidence,
    count,
    fpr_of,
    full_text,
    interval_text,
    number_text,
    rate,
    share,
    share_span,
    value_text,
    without,
)
from fedaudit.toml import written
from fedaudit.types import AuditResult, Estimate
from fedaudit.words.headlines import GRADED, GRADES

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
        ("Took", "" if seconds is None else f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"),
    ]
    return [(name, value) for name, value in rows if value]


def tone(results: Results, found: Sequence[Finding]) -> str:
    tones = {f.tone for f in found}
    if "alarm" in tones or words.sets_differ(results):
        return "warn"
    if any(f.headline.most_exposed for f in found):
        tones.add("weak")
    if taken.readings(results):
        tones.add("found")
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
        note = "; ".join(filter(None, (note, without(tpr))))
        shown.append(Tile(f"picked out at {rate(fpr)} false accusations", value_text(name, tpr), sure, note))
    if auc:
        sure = f"{confidence(auc)} interval {interval_text('auc', auc)}" if auc.low is not None else ""
        note = auc.reason or "how often a member outranks an outsider; chance is 0.5"
        note = "; ".join(filter(None, (note, without(auc))))
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
    looking = {v: adversary(v, words.about_people(results)) for v in attacks}
    return [(looking[v], ", ".join(dict.fromkeys(names))) for v, names in attacks.items()]


def holds(results: Results) -> str:
    """What every adversary has of the people it asks about; empty in a game about records."""
    if not words.about_people(results):
        return ""
    federation = results.run.config.get("federation", {})
    fresh = federation.get("fresh") if isinstance(federation, dict) else None
    theirs = "the very records that were trained on" if fresh == 0 else "other records, none of which was trained on"
    return (
        f"This audit asks about people. Of each person the adversaries have {theirs}, at most 100, and of a few people "
        "they know whether they are in the training data. Those few are not reported on."
    )


def of_questions(results: Results) -> list[PageSection]:
    """What each question shows of its results. One without a section of its own, or whose package is not installed
    here, has a table of its figures."""
    found = [section for question in every().values() for section in question.sections(results)]
    drawn = {question.name for question in every().values() if type(question).sections is not Question.sections}
    plain = [e for e in words.others(results) if (asked := of(e)) is None or asked.name not in drawn]
    for name in dict.fromkeys(e.attack for e in plain):
        entries = [e for e in results.results if e.attack == name]
        about = results.glossary.get(name, "")
        rows = [
            [e.vantage, e.model, e.party or "all", *_figures(key, est), est.method, est.reason or ""]
            for e in entries
            for key, est in e.estimates.items()
        ]
        head = ("vantage", "models", "party", "figure", "value", "interval", "chance", "method", "remark")
        lead = _sentence(about) if about else ""
        found.append(PageSection(f"question-{name}", name, name, [Panel(lead, tables=[("", Table(head, rows))])]))
    return found


def other_notices(results: Results) -> list[str]:
    """Those that no question shows in a section of its own."""
    codes = {code for question in every().values() for code in question.shown}
    return [said for one, said in results.said() if one.code not in codes]


def _figures(name: str, est: Estimate) -> list[str]:
    """What it is, the value, its interval, and what guessing gives."""
    about = metric(name)
    return [about.title, value_text(name, est), interval_text(name, est), number_text(name, about.chance)]


# ------------------------------------------------------------------ attacks beside one another


WORDS = (
    "Loss: how wrong the model is about a record. Confidence: how sure it is of the right label. Gradient: in which "
    "direction a record would pull the model's weights. Update: what a round of training changed in them. Whitened: in "
    "units of its usual spread, so that what is rare counts. Layer: one of the model's stages."
)


NO_MODEL = "a classifier that sees the records and no model: what it finds is not given away by training"


def glossary(results: Results) -> Table | None:
    """A sentence for each attack that the page names, and the words that these sentences use."""
    known = {**results.glossary, **({"blind": NO_MODEL} if words.blind(results) else {})}
    rows = [(name, _sentence(about)) for name, about in known.items() if about]
    return Table(("attack", "what it looks at"), rows, WORDS) if results.glossary else None


def grades() -> Table:
    """What each grade means."""
    return Table(("grade", "when it is said"), [(grade, _sentence(about)) for grade, about in GRADES.items()], GRADED)


def _sentence(about: str) -> str:
    return f"{about[0].upper()}{about[1:]}{'' if about.endswith(('.', '?')) else '.'}"


def level(name: str, est: Estimate | None) -> int:
    """How far the interval's lower end lies above chance, 0 (not at all) to 5; -1 without a value."""
    fpr = fpr_of(name)
    if est is None or est.low is None:
        return -1
    low = est.low
    if fpr is not None:
        return sum(low / fpr > step for step in (1, 2, 5, 10, 30))
    return sum(low > step for step in (0.5, 0.55, 0.6, 0.7, 0.85))


def _cell(name: str, est: Estimate | None) -> MatrixCell:
    if est is None or est.value is None:
        return MatrixCell(NONE, "", "heat-none", (est and est.reason) or "")
    shade = level(name, est)
    below = name == "auc" and est.high is not None and est.high < 0.5
    klass = "heat-alarm" if below else "heat-none" if shade < 0 else f"heat-{shade}"
    return MatrixCell(value_text(name, est), interval_text(name, est), klass, est.reason or "")


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
                cells += [MatrixCell("", "", "absent")] * (3 if name else 2)
                continue
            cells += [_cell(n, entry.estimates.get(n)) for n in ([name] if name else []) + ["auc"]]
            cells.append(MatrixCell(words.cost_text(entry.cost.epochs), "", "plain"))
        rows.append((attack, any((attack, vantage) in chosen for vantage, _ in keys), cells))
    groups = [(adversary(v).title, f"{m} models", adversary(v).colour) for v, m in keys]
    gone: dict[str, dict[str, None]] = {}
    for entry in entries:
        for key in (name, "auc"):
            if missing := without(entry.estimates.get(key or "")):
                gone.setdefault(missing, {}).update({entry.attack: None})
    notes = [f"{', '.join(attacks)}: {missing}." for missing, attacks in gone.items()]
    return Matrix(groups, rows, rate(fpr_of(name) or 0) if name else "", every_estimate(entries), notes)


def every_estimate(entries: Sequence[AuditResult]) -> Table:
    rows = []
    for entry in entries:
        for name, est in entry.estimates.items():
            shown = [value_text(name, est), interval_text(name, est), share(est.realised_fpr)]
            sizes = [count(size) for size in (est.n_pos, est.n_neg, est.n_cal)]
            what = [entry.attack, entry.vantage, entry.model, metric(name).title]
            rows.append([*what, *shown, *sizes, est.method, "; ".join(filter(None, (est.reason, without(est))))])
    head = ("attack", "vantage", "model", "measure", "value", "interval", "realised FPR")
    return Table((*head, "members", "outsiders", "calibration", "method", "remark"), rows)


def untested_questions(results: Results) -> str:
    asked = {question.name for entry in results.results if (question := of(entry))}
    untried = "" if "attribute" in asked else " and attribute"
    looked = taken.was_looked_for(results, tuple(taken.WHOLE)) or taken.not_told(results, *taken.OF_WHOLE)
    rebuilt = (
        "Gradient inversion by optimisation (a trace with snapshots has what tools for it read)"
        if looked
        else "Reconstruction of records and gradient inversion"
    )
    of_party = taken.was_looked_for(results, (*taken.OF_PARTY, *taken.LABELS))
    known = " (but for which values and classes a party has)" if of_party else ""
    audit = results.run.config.get("audit")
    malicious = isinstance(audit, Mapping) and audit.get("adversary") == "agg-mal"
    active = (
        "adversaries who change the training to learn more, but for an aggregator that isolates each party (agg-mal)"
        if malicious
        else "adversaries who change the training to learn more"
    )
    return (
        f"{rebuilt}; property{known}{untried} inference; several parties, or a party and the server, working together; "
        f"{active}."
    )


def untested_vantages(results: Results, found: Sequence[Finding]) -> str:
    """Who might attack, and was not asked for; "" if all were."""
    tested = {f.vantage for f in found} | {e.vantage for e in results.results if e.attack != "blind"}
    return "; ".join(a.title[0].lower() + a.title[1:] for v, a in ADVERSARIES.items() if v not in tested)


KEPT = "The sites handed over scores of membership alone. What else they tested is in their own reports."


def limits(results: Results, found: Sequence[Finding]) -> list[tuple[str, str]]:
    """What this audit cannot show, or did not test."""
    run, repeats = results.run, results.run.repeats
    runs = (
        "Every interval is conditional on this one training run. Train again and the model, and what it gives away, "
        "will differ; repeats (--repeats) show by how much."
    )
    if len(repeats) > 1:
        runs = (
            f"Training was run {len(repeats)} times. {words.QUOTED.format(repeats[0].seed)} What is said of records "
            "rests on the first run."
        )
    attacks = {e.attack for e in words.pooled(results)}
    elsewhere = (
        "is a different question, which `source` answers party by party."
        if "source" in attacks
        else "is a different question, and it was not asked."
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
            f"Non-members here are {words.nonmembers(results)}. Whether a record lies in this party or in another "
            f"one {elsewhere}",
        ),
        ("Not handed over", KEPT) if run.not_handed_over else ("Not tested", untested_questions(results)),
    ]
    if absent := untested_vantages(results, found):
        title = "Vantages not handed over" if run.not_handed_over else "Vantages not tested"
        items.append((title, f"{absent[0].upper()}{absent[1:]}."))
    if words.blind(results) is None and "blind" not in run.not_handed_over:
        items.append(("No blind check", "Whether members and outsiders differ even without the model was not tested."))
    return items


def recipe(results: Results) -> Recipe | None:
    run = results.run
    shown = [("fedaudit", run.fedaudit), ("Configuration hash", run.config_hash)]
    shown = [(k, v) for k, v in shown if v]
    if run.fedaudit:
        shown.append(("Self-test", words.selftested(results)))
    if not (run.config or run.versions or shown):
        return None
    repeatable = run.config and not run.not_handed_over
    command = "fedaudit run audit.toml" + (f" --repeats {len(run.repeats)}" if len(run.repeats) > 1 else "")
    return Recipe(written(run.config), command if repeatable else "", shown, list(run.versions.items()))


# ------------------------------------------------------------------ every attack minus the primary one of its vantage


SAME_RECORDS = (
    "Each interval holds for the difference, because both attacks are judged on the same records; those of one vantage "
    "and kind of models hold together. The primary attack was fixed before looking, whatever is quoted."
)


def beside(results: Results, name: str | None) -> Table | None:
    metric = (name or "auc") + MINUS
    rows = []
    for entry in words.pooled(results):
        found = entry.beside.get(metric)
        if found is not None and found.value is not None:
            who = adversary(entry.vantage).title
            rows.append([entry.attack, f"{who}, {entry.model} models", full_text(metric, found), _verdict(found)])
    measure = "picked out, in percentage points" if name else "AUC"
    return (
        Table(("attack", "seen by", f"minus the primary attack: {measure}", ""), rows, SAME_RECORDS) if rows else None
    )


def _verdict(found: Estimate) -> str:
    if found.low is not None and found.low > 0:
        return "stronger"
    return "weaker" if found.high is not None and found.high < 0 else NONE


# ------------------------------------------------------------------ every attack over repeated training runs


OVER_RUNS = (
    "Pooled over the parties. The interval of a mean includes how much training runs differ. It holds for its own row, "
    "not for all rows at once."
)


@dataclass(frozen=True, kw_only=True)
class RepeatedMeasure:
    """One measure of one attack. `main`: the measure that everything quotes, or the first that this attack has."""

    attack: str
    vantage: str
    model: str
    measure: str
    mean: ValueText
    smallest: str
    largest: str
    runs: str
    main: bool


def repeated(results: Results) -> Iterator[RepeatedMeasure]:
    """Of each attack the TPR that is quoted, AUC and what it decided; where it has none of these, everything it has."""
    quoted = [name for name in (words.main_tpr(results), "auc", *DECISIONS) if name]
    for entry in results.run.attacks_over_runs:
        names = [name for name in quoted if name in entry.estimates] or list(entry.estimates)
        blind = entry.attack == "blind"
        for place, name in enumerate(names):
            yield RepeatedMeasure(
                attack=entry.attack,
                vantage=NONE if blind else entry.vantage,
                model=NONE if blind else entry.model,
                measure=_measure(name),
                mean=ValueText.of(name, entry.estimates[name]),
                smallest=number_text(name, entry.smallest.get(name)),
                largest=number_text(name, entry.largest.get(name)),
                runs=count(entry.runs),
                main=place == 0,
            )


def every_attack(results: Results) -> Table | None:
    head = ("attack", "vantage", "model", "measure", "mean over runs", "smallest", "largest", "runs")
    shown = [
        [r.attack, r.vantage, r.model, r.measure, str(r.mean), r.smallest, r.largest, r.runs] for r in repeated(results)
    ]
    return Table(head, shown, OVER_RUNS) if shown else None


def _measure(name: str) -> str:
    fpr = fpr_of(name)
    return f"TPR at {rate(fpr)} FPR" if fpr else name.replace("auc", "AUC")
