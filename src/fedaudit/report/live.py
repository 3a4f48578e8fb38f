"""The pages of `fedaudit serve`: runs as they stand on disk, as sections that look like those of the report.

A page is made once; later its sections alone are sent, and the page takes over those that changed (`live.js`). What
changes with the clock alone is not shown, so that nothing is sent while nothing happens.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import cast

from markupsafe import Markup

from fedaudit.report import charts, figures, html, pages, sections, words
from fedaudit.report.figures import PlottedSeries
from fedaudit.report.shapes import Figure, PageSection, Panel, Table
from fedaudit.report.taken import readings
from fedaudit.report.values import clean, cleaned
from fedaudit.report.words import Finding, adversary
from fedaudit.results.document import Document
from fedaudit.results.running import Kind, RecordedRound, Running, epsilons, uncounted
from fedaudit.results.study import Outcome
from fedaudit.stats.wording import NONE, count, fpr_of, point_text, rate
from fedaudit.types import AuditResult, Cost, Curve, Headline, ModelKind, RoundRisk
from fedaudit.words.times import spoken

LAST = 12  # rounds that are listed one by one
SAYS = {
    "starting": "starting",
    "running": "running",
    "computing": "computing its statistics",
    "quiet": "quiet",
    "ended": "ended",
    "damaged": "damaged",
}
QUIET = (
    "Nothing was written for a while: its rounds are long, or it was killed. "
    "Start it again with the same command, and it continues."
)
BLIND = "What a guess without the model scores on these records is in the report, when the run has ended."

Place = tuple[str, str, str]  # vantage, model, attack


@dataclass(frozen=True)
class ListedRun:
    """A folder in the list. `id` names it in addresses: never a path."""

    id: str
    name: str
    kind: Kind
    run: Running
    _: KW_ONLY
    document: Document | None = None
    cells: tuple[int, int] = (0, 0)  # of a study: ended, and all

    @property
    def address(self) -> str:
        return f"/{self.kind}/{self.id}"


@dataclass(frozen=True)
class LiveSection:
    """A section, and where its links lead."""

    section: PageSection
    links: Sequence[tuple[str, str]] = ()
    tone: str = ""


# ------------------------------------------------------------------ pages and what is sent later


def page(title: str, name: str, events: str, shown: Sequence[LiveSection], *, top: bool = False) -> str:
    return html.page(
        "live.html", html.LIVE, title=title, name=clean(name), events=events, body=parts(shown), listing=top
    )


def parts(shown: Sequence[LiveSection]) -> Markup:
    """The sections alone, each with a mark by which the page sees whether it changed."""
    made = [(one, html.fragment("live-section.html", live=one)) for one in shown]
    return Markup("\n").join(
        Markup('<section id="{}" class="{}" data-mark="{}">{}</section>').format(
            one.section.id, one.tone, hashlib.sha256(inner.encode()).hexdigest()[:16], Markup(inner)
        )
        for one, inner in made
    )


@lru_cache(maxsize=64)
def instead(sentence: str) -> list[LiveSection]:
    """In the place of sections that there are no longer: the same object for the same words, so it is sent once."""
    return [LiveSection(PageSection("now", "Not here", "Not here", [Panel("", sentences=[clean(sentence, 600)])]))]


def refusal(title: str, sentence: str) -> str:
    """A page without anything that changes."""
    return html.page("refusal.html", title=title, sentence=clean(sentence, 600))


# ------------------------------------------------------------------ the list


HEAD = ("name", "state", "rounds", "found so far", "last written", "compare")
EMPTY = "There is no run in this folder yet. One that is started appears here by itself."


def listing(entries: Sequence[ListedRun]) -> list[LiveSection]:
    if not entries:
        return [LiveSection(PageSection("runs", "Runs", "Runs", [Panel(EMPTY)]))]
    lead = "A run that is started anywhere on this disk appears by itself. Choose several to compare them."
    rows = [
        (
            Markup('<a href="{}">{}</a>').format(entry.address, clean(entry.name)),
            state(entry),
            _progress(entry),
            _found(entry),
            _clock(entry.run.heard),
            _choice(entry) if entry.kind == "run" else "",
        )
        for entry in sorted(entries, key=_order)
    ]
    return [LiveSection(PageSection("runs", "Runs", "Runs", [Panel(lead, tables=[("", Table(HEAD, rows))])]))]


def _order(entry: ListedRun) -> tuple[bool, float, str]:
    """What is being written first, then the newest."""
    return entry.run.over, -entry.run.heard, entry.name


def state(entry: ListedRun) -> Markup:
    told = SAYS[entry.run.state]
    if entry.run.state == "ended":
        told = clean(entry.run.why) or ("finished" if entry.kind == "run" else "")
    badge = Markup('<span class="state {}">{}</span>').format(entry.run.state, told) if told else Markup("")
    return badge + (f" {clean(entry.run.why, 600)}" if entry.run.state == "damaged" else "")


def _progress(entry: ListedRun) -> str:
    if entry.kind == "study":
        return f"{entry.cells[0]} of {entry.cells[1]} cells"
    if entry.document and not entry.run.rounds:
        return count(entry.document.run.rounds)
    return so_far(entry.run) if entry.kind == "run" else NONE


def so_far(run: Running) -> str:
    return f"{run.newest} of {run.planned}" if run.planned else count(run.newest)


def _found(entry: ListedRun) -> str:
    if entry.document is not None:
        results = cleaned(entry.document)
        told = [*words.summary(results), *(one.line for one in readings(results))]
        figures = [(adversary(who).title, ", ".join(filter(None, (grade, figure)))) for who, grade, figure, _ in told]
        return "; ".join(f"{title}: {said}" for title, said in figures)
    newest = next((round.risks for round in reversed(entry.run.rounds) if round.risks), ())
    shown = [f"{who(risk)}: {_figure(risk)}" for risk in newest if risk.metric == _main(newest)]
    return "; ".join(shown) or NONE


def _choice(entry: ListedRun) -> Markup:
    label = f"compare {clean(entry.name)}"
    return Markup('<input type="checkbox" form="compare" name="run" value="{}" aria-label="{}">').format(
        entry.id, label
    )


# ------------------------------------------------------------------ one run


def of_run(entry: ListedRun) -> list[LiveSection]:
    run = entry.run
    shown = [_now(entry)]
    if figures_ := _over_rounds(entry):
        lead = "The leading attack of each vantage after each round, as it was found then."
        lead += f" {BLIND}" if entry.document is None else ""
        shown.append(LiveSection(PageSection("rounds", "Round by round", "Rounds", [Panel(lead, figures=figures_)])))
    if (budget := _epsilon(run)) is not None:
        shown.append(LiveSection(PageSection("epsilon", "Epsilon spent", "Epsilon", [budget])))
    if run.parties and run.rounds:
        shown.append(LiveSection(PageSection("parties", "Who took part", "Parties", [_parties(run)])))
    if run.rounds:
        shown.append(LiveSection(PageSection("last", "The last rounds", "Last rounds", [_last(run)])))
    return shown


def _over_rounds(entry: ListedRun) -> list[Figure]:
    """From the results, where there are any; a former version wrote nothing else."""
    if entry.document is None:
        return charts.over_rounds(_findings(entry.run), _tpr(entry.run))
    results = cleaned(entry.document)
    return charts.over_rounds(words.drawn(results, words.findings(results)), words.main_tpr(results))


def _now(entry: ListedRun) -> LiveSection:
    run = entry.run
    facts = [("state", str(state(entry).striptags())), ("rounds", _progress(entry))]
    if run.left is not None:
        facts.append(("time left", f"about {spoken(run.left)}"))
    facts += [("attacks", clean(", ".join(run.attacks)))] if run.attacks else []
    facts += [("begun", _begun(run.created))] if run.created else []
    facts += [("last written", _clock(run.heard))] if run.heard else []
    sentences = [QUIET] if run.state == "quiet" else []
    if run.damaged_lines:
        sentences.append(f"{count(run.damaged_lines)} damaged lines of the journal were left out.")
    if entry.document is None:
        newest = run.rounds[-1].risks if run.rounds else ()
        sentences += [f"{who(risk)}: {_figure(risk)}, by {clean(risk.attack)}." for risk in newest]
        return LiveSection(PageSection("now", "Now", "Now", [Panel("", facts, sentences=sentences)]), tone="verdict")
    results = cleaned(entry.document)
    panel = Panel("", facts, sentences=[*sentences, *words.verdict(results)])
    links = [(f"{entry.address}/report", "The full report")]
    return LiveSection(
        PageSection("now", "Verdict", "Verdict", [panel]),
        links,
        f"verdict {sections.tone(results, words.findings(results))}",
    )


def who(risk: RoundRisk) -> str:
    return f"{adversary(clean(risk.vantage)).title}, {clean(risk.model)} models"


def _figure(risk: RoundRisk) -> str:
    """The figure, and of which kind it is."""
    fpr = fpr_of(risk.metric)
    kind = f"at {rate(fpr)} FPR" if fpr else "AUC" if risk.metric == "auc" else clean(risk.metric)
    return f"{point_text(risk.metric, risk.value, risk.low, risk.high)} {kind}"


def _main(risks: Sequence[RoundRisk]) -> str:
    """A TPR where there is one."""
    metrics = [risk.metric for risk in risks]
    return next((metric for metric in metrics if fpr_of(metric)), metrics[0] if metrics else "auc")


def _tpr(run: Running) -> str | None:
    return next((risk.metric for round in run.rounds for risk in round.risks if fpr_of(risk.metric)), None)


def curves(run: Running) -> dict[Place, dict[str, Curve]]:
    """What was found after each round, as the report draws it."""
    found: dict[Place, dict[str, list[tuple[int, RoundRisk]]]] = {}
    for round in run.rounds:
        for risk in round.risks:
            place = clean(risk.vantage), clean(risk.model), clean(risk.attack)
            found.setdefault(place, {}).setdefault(risk.metric, []).append((round.round, risk))
    return {place: {name: _curve(run, points) for name, points in of.items()} for place, of in found.items()}


def band(*runs: Running) -> str:
    """What the bands of these runs promise."""
    known = {run.confidence for run in runs}
    at = f"at {rate(sure)} confidence " if len(known) == 1 and (sure := known.pop()) else ""
    return f"{at}it holds for all planned rounds at once, and later rounds do not change it"


def _curve(run: Running, points: Sequence[tuple[int, RoundRisk]]) -> Curve:
    return Curve(
        [float(number) for number, _ in points],
        [risk.value for _, risk in points],
        [risk.low for _, risk in points],
        [risk.high for _, risk in points],
        band(run),
        simultaneous=True,
    )


def _findings(run: Running) -> list[Finding]:
    made = []
    for (vantage, model, attack), of in curves(run).items():
        kind = cast(ModelKind, model)
        entry = AuditResult(
            attack, vantage, kind, "record", None, round=run.newest, estimates={}, cost=Cost(0.0), curves=of
        )
        quoted = Headline(vantage, attack, kind, {}, 1)
        made.append(
            Finding(
                vantage=vantage, attack=attack, model=model, tone="unknown", sentence="", headline=quoted, entry=entry
            )
        )
    return made


def _epsilon(run: Running) -> Panel | None:
    if why := uncounted(run):
        return Panel(why)
    counted = sorted(epsilons(run, [run.newest]).items())
    known = [(float(r), e) for r, e in counted if e is not None and math.isfinite(e)]
    if not known:
        return None
    now = [(r, e) for r, e in known if r <= run.newest]
    x = figures.round_axis([r for r, _ in known], "round")
    y = figures.linear_axis([e for _, e in known], "epsilon", percent=False, include=(0.0,), most=float("inf"))
    later = [*now[-1:], *((r, e) for r, e in known if r > run.newest)]
    lines = [*([_line("spent", "s1", now)] if now else []), _line("still to be spent", "claim", later)]
    svg = figures.lines("Epsilon, round by round", "What is spent, and what the plan allows.", lines, x, y, [])
    table = Table(("round", "epsilon"), [(count(r), f"{e:.4g}") for r, e in known])
    caption = "What the noise of the declared defence promises, not what was measured."
    drawn = Figure(svg, [("s1", "spent"), ("claim", "still to be spent")], caption, table)
    so_far = f"{now[-1][1]:.4g}" if now else "nothing yet"
    return Panel("", [("spent so far", so_far), ("in the end", f"{known[-1][1]:.4g}")], figures=[drawn])


def _line(name: str, colour: str, points: Sequence[tuple[float, float]]) -> PlottedSeries:
    none = [None] * len(points)
    tips = [f"round {x:.0f} · epsilon {y:.4g}" for x, y in points]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return PlottedSeries(name, colour, x=xs, value=ys, low=none, high=none, tips=tips)


def _parties(run: Running) -> Panel:
    newest, rows = run.rounds[-1], []
    for party in run.parties:
        took = [round.round for round in run.rounds if party in round.parties]
        last = count(took[-1]) if took else NONE
        examples = newest.parties[party].examples if party in newest.parties else None
        number = NONE if examples is None else f"{examples:,}"
        rows.append((clean(party), f"{len(took)} of {len(run.rounds)}", last, number))
    absent = run.absent(newest)
    lead = f"In round {newest.round}: {len(run.parties) - len(absent)} of {len(run.parties)} parties."
    lead += f" Without {_some([clean(party) for party in absent])}." if absent else ""
    head = ("party", "rounds with it", "last in round", "records in the newest round")
    return Panel(lead, tables=[("", Table(head, rows))])


def _some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _last(run: Running) -> Panel:
    places = list(curves(run))
    metric = _main([risk for round in run.rounds for risk in round.risks])
    heads = [f"{adversary(vantage).title}, {model} models" for vantage, model, _ in places]
    rows = [
        [count(round.round), _clock(round.at), count(len(round.parties)), *_told(round, places, metric)]
        for round in reversed(run.rounds[-LAST:])
    ]
    note = "" if not places else f"By {_some(sorted({attack for _, _, attack in places}))}: {words.measure(metric)}."
    return Panel("", tables=[("", Table(("round", "recorded", "parties", *heads), rows, clean(note)))])


def _told(round: RecordedRound, places: Sequence[Place], metric: str) -> Iterator[str]:
    for place in places:
        found = [r for r in round.risks if (clean(r.vantage), clean(r.model), clean(r.attack)) == place]
        risk = next((r for r in found if r.metric == metric), None)
        yield point_text(metric, risk.value, risk.low, risk.high) if risk else NONE


# ------------------------------------------------------------------ several runs


MOST = len(charts.COLOURS)


def of_several(entries: Sequence[ListedRun]) -> list[LiveSection]:
    """Their lines in one chart for each vantage and kind of model, as far as they have come."""
    drawn = entries[:MOST]
    rows = [
        (Markup('<a href="{}">{}</a>').format(e.address, clean(e.name)), state(e), _progress(e), _found(e))
        for e in entries
    ]
    lead = f"Of {len(entries)} runs, the first {MOST} are drawn." if len(entries) > MOST else ""
    table = Table(("name", "state", "rounds", "found so far"), rows)
    over = [e for e in entries if e.document is not None]
    links = [
        ("/compared?" + "&".join(f"run={e.id}" for e in over), "Compare those that ended on the records in common")
    ]
    first = LiveSection(
        PageSection("runs", "The runs", "Runs", [Panel(lead, tables=[("", table)])]), links[: len(over) > 1]
    )
    charts_ = [figure for place, names in _in_common(drawn).items() for figure in _overlaid(drawn, place, names)]
    if not charts_:
        return [first]
    told = "Each line is the leading attack of its run. A band is about its own run: two that overlap may still differ."
    return [first, LiveSection(PageSection("rounds", "Round by round", "Rounds", [Panel(told, figures=charts_)]))]


def _in_common(entries: Sequence[ListedRun]) -> Mapping[tuple[str, str], Sequence[str]]:
    """By vantage and kind of model: the figures of at least one of these runs, a TPR first."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for entry in entries:
        for (vantage, model, _), of in curves(entry.run).items():
            found.setdefault((vantage, model), {}).update(dict.fromkeys(of))
    return {place: sorted(names, key=lambda name: not fpr_of(name)) for place, names in found.items()}


def _overlaid(entries: Sequence[ListedRun], place: tuple[str, str], metrics: Sequence[str]) -> Iterator[Figure]:
    vantage, model = place
    for metric in metrics:
        series, rows = [], []
        for entry, colour in zip(entries, charts.COLOURS, strict=False):
            for (at, kind, attack), of in curves(entry.run).items():
                if (at, kind) == place and metric in of and any(v is not None for v in of[metric].value):
                    name = clean(f"{entry.name}: {attack}")
                    series.append(_of(of[metric], name, colour, metric))
                    rows += [(name, count(x), said) for x, said in _points(of[metric], metric)]
        if series:
            fpr = fpr_of(metric)
            chance = fpr or 0.5
            values = [v for s in series for v in (*s.value, *s.low, *s.high)]
            x = figures.round_axis([v for s in series for v in s.x], "round")
            label = "members picked out (TPR)" if fpr else "AUC" if metric == "auc" else clean(metric)
            include = [0.0, chance] if fpr else [chance]
            y = figures.linear_axis(values, label, percent=bool(fpr), include=include, most=1.0)
            heading = f"{adversary(vantage).title}, {model} models: {words.measure(clean(metric))}"
            svg = figures.lines(heading, "One line per run.", series, x, y, [(x.low, chance), (x.high, chance)])
            legend = [*((s.colour, s.name) for s in series), ("chance", "chance")]
            caption = f"Band: {band(*(entry.run for entry in entries))}. {BLIND}"
            yield Figure(svg, legend, caption, Table(("run", "round", "value"), rows), heading)


def _of(curve: Curve, name: str, colour: str, metric: str) -> PlottedSeries:
    tips = [f"round {x:.0f} · {name}: {said}" for x, said in _points(curve, metric)]
    return PlottedSeries(name, colour, x=curve.x, value=curve.value, low=curve.low, high=curve.high, tips=tips)


def _points(curve: Curve, metric: str) -> list[tuple[float, str]]:
    ends = zip(curve.value, curve.low, curve.high, strict=True)
    return [(x, point_text(metric, *found)) for x, found in zip(curve.x, ends, strict=True)]


# ------------------------------------------------------------------ a study


def of_study(found: Sequence[Outcome], parts: Sequence[pages.Part], going: Sequence[ListedRun]) -> list[LiveSection]:
    """What its own page shows, and the cells that are being trained."""
    rows = [
        (Markup('<a href="{}">{}</a>').format(e.address, clean(e.name)), state(e), _progress(e), _found(e))
        for e in going
        if not e.run.over
    ]
    tables = [("", Table(("cell", "state", "rounds", "found so far"), rows))] if rows else []
    now = Panel("" if rows else "No cell is being trained.", pages.study_facts(found), tables)
    shown = [LiveSection(PageSection("now", "Now", "Now", [now]), tone="verdict")]
    for id, heading, lead, figures_, tables_ in parts:
        panel = Panel(lead, tables=[("", table) for table in tables_], figures=figures_)
        shown.append(LiveSection(PageSection(id, heading, heading, [panel])))
    return shown


# ------------------------------------------------------------------ small parts


def _clock(seconds: float | None) -> str:
    """A moment, in UTC: whoever looks may be elsewhere."""
    try:
        return datetime.fromtimestamp(seconds or 0.0, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if seconds else NONE
    except (ValueError, OverflowError, OSError):
        return NONE


def _begun(created: str) -> str:
    try:
        return _clock(datetime.fromisoformat(created).timestamp())
    except (ValueError, OverflowError, OSError):
        return clean(created)
