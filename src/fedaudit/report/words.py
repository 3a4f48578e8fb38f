"""The results in plain language, with the same wording for the report and the command line.

Everything here works on cleaned results (`values.cleaned`), so its output may be printed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedaudit.questions import main_figure, metric, of, of_membership
from fedaudit.report.taken import readings
from fedaudit.report.values import Results
from fedaudit.results.document import Withheld
from fedaudit.stats import wording
from fedaudit.stats.strongest import quoted_figures
from fedaudit.stats.wording import (
    NONE,
    confidence,
    fpr_of,
    full_text,
    interval_text,
    number_text,
    point_text,
    rate,
    several_kinds,
    share,
    value_of,
    value_text,
)
from fedaudit.types import AuditResult, Curve, Estimate, Headline, Tone
from fedaudit.words import words
from fedaudit.words.headlines import blind_auc, interval


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The headline of one vantage as a sentence. `tone` decides its appearance, never its wording."""

    vantage: str
    attack: str
    model: str
    tone: Tone
    sentence: str
    headline: Headline
    entry: AuditResult | None  # the pooled result behind it

    @property
    def curves(self) -> Mapping[str, Curve]:
        return self.entry.curves if self.entry else {}


@dataclass(frozen=True)
class ValueText:
    """A value with its interval; without one a dash, and why."""

    text: str
    why: str = ""

    @classmethod
    def of(cls, name: str, found: Estimate | None) -> "ValueText":
        if found is None or found.value is None:
            return cls(NONE, (found.reason if found else None) or "")
        return cls(point_text(name, found.value, found.low, found.high), wording.without(found))

    def __str__(self) -> str:
        return f"{self.text} ({self.why})" if self.why else self.text


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One pooled result as the table shows it; `primary` marks what was fixed before looking, or is quoted. `further`
    has the TPR and the realised FPR at each other rate that was asked for."""

    attack: str
    vantage: str
    model: str
    auc: ValueText
    tpr: ValueText
    realised_fpr: str
    cost: str
    warnings: tuple[str, ...]
    primary: bool
    further: tuple[tuple[ValueText, str], ...] = ()


# ------------------------------------------------------------------ finding one's way in the results


def measure(name: str) -> str:
    fpr = fpr_of(name)
    return f"Picked out at {rate(fpr)} false accusations" if fpr else name.upper()


def pooled(results: Results) -> list[AuditResult]:
    """The pooled results of attacks on membership; other questions have sections of their own."""
    return [r for r in results.results if r.party is None and of_membership(r)]


def others(results: Results) -> list[AuditResult]:
    """The pooled results of all other questions; without a pooled one, those of the parties."""
    found = [r for r in results.results if r.attack != "blind" and not of_membership(r)]
    whole = {r.attack for r in found if r.party is None}
    return [r for r in found if r.party is None or r.attack not in whole]


def selftested(results: Results) -> str:
    tested = results.run.selftest
    if tested is None:
        return "not run with these versions and this confidence; fedaudit selftest takes about a minute"
    untried = {result.attack for result in results.results if of_membership(result)} - {*tested.attacks}
    but = f"; not tried: {', '.join(sorted(untried))}" if untried else ""
    outcome = "passed" if tested.sound else "FAILED"
    return (
        f"{outcome} on {tested.created[:10]}: {tested.false_alarms} audits raised a false alarm where there is nothing "
        f"to find, {tested.found} planted leaks were found, {tested.bounds_above} proved bounds lay above a known "
        f"epsilon and {tested.fits_around} fitted intervals held it (at confidence {tested.confidence:.4g}{but})"
    )


def summed_up(results: Results) -> list[str]:
    """What other questions than membership found, a sentence for each result: its main figure beside guessing."""
    told = []
    for entry in others(results):
        if (name := main_figure(entry)) is None:
            continue
        figure, about = entry.estimates[name], metric(name)
        place = f"{entry.attack}, seen from {entry.vantage} on {entry.model} models"
        if figure.value is None:
            told.append(f"{place}: {about.title} has no value: {(figure.reason or 'not measured').rstrip('.')}.")
            continue
        said = f"{place}: {about.title} {full_text(name, figure)}, with {confidence(figure)} confidence"
        question = of(entry)
        if beside := question.claim_in_words(entry, name) if question else "":
            said += f"; {beside}"
        elif about.chance is not None:
            said += f"; guessing gives {number_text(name, about.chance)}, {beside_guessing(figure, about.chance)}"
        told.append(f"{said}.")
    return told


def beside_guessing(figure: Estimate, chance: float) -> str:
    """On which side of guessing an interval lies; an end that is not known excludes nothing."""
    if figure.low is not None and figure.low > chance:
        return "which this exceeds"
    if figure.high is not None and figure.high < chance:
        return "and this lies below it"
    return "which is not excluded"


def figures_of(entry: AuditResult) -> list[tuple[str, ValueText]]:
    """Each figure of a result by its title, with its interval."""
    return [(metric(name).title, ValueText.of(name, estimate)) for name, estimate in entry.estimates.items()]


def about_people(results: Results) -> bool:
    return any(entry.unit == "subject" for entry in results.results)


def nonmembers(results: Results) -> str:
    people = about_people(results)
    return "people with no record in the federation" if people else "records outside the federation"


def blind(results: Results) -> AuditResult | None:
    return next((r for r in results.results if r.attack == "blind" and not r.party), None)


def headlines(results: Results) -> list[Headline]:
    """One per vantage."""
    return [headline for headline in results.headlines if headline.attack != "blind"]


def main_tpr(results: Results) -> str | None:
    return wording.main_tpr([headline.estimates for headline in headlines(results)])


# ------------------------------------------------------------------ sentences


def verdict(results: Results) -> list[str]:
    """What comes first, and one sentence for each vantage: who can learn what about whom, and how certain it is."""
    quoted = []
    for found in findings(results):  # where nothing was found, the sentence begins with that
        graded = f"{found.headline.grade}. ".capitalize() if found.tone in ("found", "weak") else ""
        quoted += [f"{graded}{found.sentence}", *([found.headline.most_exposed] if found.headline.most_exposed else [])]
    return [*preface(results), *quoted, *beside_findings(results), *summed_up(results)]


def beside_findings(results: Results) -> list[str]:
    """What bears on all findings: what is read off updates beside them, what the model is worth, and which attacks that
    may find more were not run."""
    return [*(one.sentence for one in readings(results)), *usefulness(results), *not_run(results)]


LEADS, FOLLOWS = ("unmix", "subject-unmix"), ("matched-filter", "subject-matched")


def not_run(results: Results) -> list[str]:
    """Strong attacks that cost too much to be run unasked, with their price; and unmix, which `plan` recommends, where
    nobody tried it."""
    dear = [words(one) for one in results.all_told() if one.code in ("attacks-dear", "unmix-not-run")]
    audit = results.run.config.get("audit")
    by_name = isinstance(audit, Mapping) and audit.get("attacks")
    tried = {entry.attack for entry in pooled(results)} | {one.attack for one in results.failed}
    everybody = all(headline.grade in ("nearly everybody", None) for headline in headlines(results))
    if dear or by_name or everybody or not results.run.config or tried & {*LEADS} or not tried & {*FOLLOWS}:
        return dear
    lead = LEADS[about_people(results)]
    return [
        f"{lead} was not run. It finds about as much as the matched filter or more, in narrow models much more, and "
        f"costs more than a local epoch a round (docs/unmix.md): name it in audit.attacks."
    ]


def usefulness(results: Results) -> list[str]:
    """What the model is right on, beside what needs no model; empty where it gives no labels."""
    found, commonest = results.run.accuracy.get("evaluation"), results.run.commonest
    if found is None or found.value is None or commonest is None:
        return []
    span = f"{confidence(found)} interval {interval_text('accuracy', found)}"
    return [
        f"The model is right on {share(found.value)} of the outsiders ({span}); always naming the commonest label is "
        f"right on {share(commonest)}."
    ]


def details(results: Results) -> list[str]:
    """What is to be said beside the sentences, each vantage's in one paragraph."""
    found = findings(results)
    told = [(f"{f.vantage}: " if len(found) > 1 else "", f.headline.details) for f in found]
    return [f"{who}{' '.join(lines)}" for who, lines in told if lines]


def summary(results: Results) -> list[tuple[str, str, str, str]]:
    """One line for each vantage: who, the grade, its figure, and the attack that found it."""
    return [(q.headline.vantage, q.headline.grade or "", q.text, q.by) for q in quoted_figures(results.headlines)]


def summary_of_others(results: Results) -> list[tuple[str, str, str, str]]:
    """The same for what is read off updates, and for each result of another question than membership: its main figure,
    which has no grade."""
    found = [(entry, name, of(entry)) for entry in others(results) if (name := main_figure(entry))]
    figures = [
        (
            e.vantage,
            question.claim_in_words(e, name) if question else "",
            f"{full_text(name, e.estimates[name])} {metric(name).title}",
            f"{e.attack}, {e.model} models",
        )
        for e, name, question in found
        if e.estimates[name].value is not None
    ]
    return [*(one.line for one in readings(results)), *figures]


NOT_ASKED_ABOUT = ("single-record",)  # whom no figure is about


def preface(results: Results) -> list[str]:
    """Sentences that come before any finding."""
    parts = withheld_updates(results.run.withheld)
    leaked = "what had leaked by then" + (", and what the withheld update would have" if parts else "")
    ending = results.run.ending
    if ending == "degraded":
        parts.append("Part of the record of this run is damaged; the following rests on the rounds that are intact.")
    elif ending == "not-audited":
        parts.append("This run was not audited. The warnings say why; nothing can be said about what it gives away.")
    elif ending != "complete":
        parts.append(f"This run was {results.run.status}; the following describes only {leaked}.")
    parts += [said for one, said in results.said() if one.code in NOT_ASKED_ABOUT]
    if sets_differ(results):
        est = blind_auc(results.results)
        parts.append(
            "Warning: members and outsiders differ even without the model. A blind guess that never sees it reaches an "
            f"AUC of {value_text('auc', est)} ({interval('auc', est)}), so only what exceeds the blind guess counts."
        )
    if results.useless:
        parts.append(results.useless)
    if not headlines(results):
        asked = dict.fromkeys(entry.attack for entry in others(results))
        parts.append(
            "No attack on membership has a result, so there is no statement about who was trained on."
            if asked
            else "No attack has a result, so there is no statement about what this federation gives away."
        )
        if asked:
            parts.append(f"What was found by {' and '.join(asked)} is a section of its own.")
    return parts


def sets_differ(results: Results) -> bool:
    """Does the blind baseline beat chance? Below chance it has learnt nothing that an attack could use."""
    est = blind_auc(results.results)
    return est is not None and est.low is not None and est.low > 0.5


def excess(results: Results, headline: Headline) -> tuple[float, float, float] | None:
    """AUC over the blind guess, or over chance where that is more: value, and the ends that both intervals allow."""
    ours, theirs = _ends(headline.estimates.get("auc")), _ends(blind_auc(results.results))
    if ours is None or theirs is None:
        return None
    (a, a_low, a_high), (b, b_low, b_high) = ours, (max(end, 0.5) for end in theirs)
    return a - b, a_low - b_high, a_high - b_low


def _ends(est: Estimate | None) -> tuple[float, float, float] | None:
    if est is None or est.value is None or est.low is None or est.high is None:
        return None
    return est.value, est.low, est.high


def findings(results: Results) -> list[Finding]:
    return [
        Finding(
            vantage=h.vantage,
            attack=h.attack,
            model=h.model,
            tone=h.tone,
            sentence=h.sentence,
            headline=h,
            entry=wording.behind(results.results, h),
        )
        for h in headlines(results)
    ]


def drawn(results: Results, found: Sequence[Finding]) -> list[Finding]:
    """One line per vantage and kind of model, for charts: the results behind the headlines, and those of the primary
    attacks on other kinds of models.

    If a server's headline is about the global models, its local models are still drawn.
    """
    lines: dict[tuple[str, str], Finding] = {}
    quoted = {(f.vantage, attack) for f in found for attack in (f.attack, f.headline.fixed)}
    fixed = {f.headline.fixed for f in found}
    beside = [e for e in pooled(results) if (e.vantage, e.attack) in quoted]
    beside += [e for e in pooled(results) if e.attack in fixed and set(e.curves) - {"roc"}]
    for entry in [*(f.entry for f in found if f.entry), *beside]:
        headline = Headline(entry.vantage, entry.attack, entry.model, entry.estimates, 1)
        line = Finding(
            vantage=entry.vantage,
            attack=entry.attack,
            model=entry.model,
            tone="none",
            sentence="",
            headline=headline,
            entry=entry,
        )
        lines.setdefault((entry.vantage, entry.model), line)
    return list(lines.values())


# ------------------------------------------------------------------ rows and lists


def headline_rows(results: Results) -> list[ResultRow]:
    """Every pooled result, the blind baseline last, ready to print."""
    names = asked_tprs(results) or [""]
    primary = {(h.vantage, attack) for h in headlines(results) for attack in (h.attack, h.fixed)}
    baseline = blind(results)
    return [_row(entry, names, primary) for entry in [*pooled(results), *([baseline] if baseline else [])]]


def asked_tprs(results: Results) -> list[str]:
    """The TPR that everything quotes, then those at the other rates that were asked for. Where no configuration says
    what was asked for, all that were estimated."""
    quoted, config = main_tpr(results), results.run.config
    there = {name: at for h in headlines(results) for name in h.estimates if (at := fpr_of(name)) is not None}
    if config:
        audit = config.get("audit")
        rates = audit.get("fpr") if isinstance(audit, Mapping) else None
        asked = {f"tpr@{rate:g}" for rate in rates or () if isinstance(rate, float)}
        there = {name: at for name, at in there.items() if name in asked}
    further = sorted(there.keys() - {quoted}, key=lambda name: -there[name])
    return [quoted, *further] if quoted else []


def _row(entry: AuditResult, names: Sequence[str], primary: set[tuple[str, str]]) -> ResultRow:
    (name, *others), sees_none = names, entry.attack == "blind"
    tpr, further = entry.estimates.get(name), [(other, entry.estimates.get(other)) for other in others]
    return ResultRow(
        attack=entry.attack,
        vantage=NONE if sees_none else entry.vantage,
        model=NONE if sees_none else entry.model,
        auc=ValueText.of("auc", entry.estimates.get("auc")),
        tpr=ValueText.of(name, tpr),
        realised_fpr=share(tpr.realised_fpr if tpr else None),
        cost=cost_text(entry.cost.epochs),
        warnings=tuple(entry.warnings),
        primary=(entry.vantage, entry.attack) in primary,
        further=tuple((ValueText.of(other, at), share(at.realised_fpr if at else None)) for other, at in further),
    )


def row_titles(results: Results, short: bool = False) -> tuple[str, ...]:
    """Headings of the columns of `headline_rows`: seven, and two for each further rate."""
    rates = [fpr_of(name) for name in asked_tprs(results)] or [None]
    at, *further = (f"TPR at {rate(fpr)} FPR" if fpr else "TPR" for fpr in rates)
    realised, cost = ("FPR", "E") if short else ("realised FPR", "cost in E")
    pairs = (title for each in further for title in (each, realised))
    return ("attack", "vantage", "model", "AUC", at, realised, cost, *pairs)


def costs(results: Results) -> dict[str, list[float]]:
    """What the attacks of each vantage cost, in E per round."""
    found: dict[str, list[float]] = {}
    for entry in pooled(results):
        if entry.cost.epochs is not None:
            found.setdefault(entry.vantage, []).append(entry.cost.epochs)
    return found


def cost_text(epochs: float | None) -> str:
    if epochs is None:
        return NONE
    return "0" if epochs == 0 else f"{epochs:.2g}" if epochs < 10 else f"{epochs:,.0f}"


def warnings(results: Results) -> list[str]:
    """The warnings of the run and of every result, each once, with the results that it is about. First those that make
    figures too small, then what is missing from the audit."""
    first = [*results.understates, *results.degraded]
    ranked = sorted(results.warnings, key=lambda said: first.index(said) if said in first else len(first))
    found: dict[str, list[str]] = {warning: [] for warning in ranked}
    for entry in results.results:
        where = ", ".join(part for part in (entry.attack, entry.vantage, entry.party) if part)
        for warning in entry.warnings:
            found.setdefault(warning, []).append(where)
    return [f"{w} [{_some(places)}]" if places else w for w, places in found.items()]


def _some(places: list[str], most: int = 4) -> str:
    more = f"; and {len(places) - most} more" if len(places) > most else ""
    return "; ".join(places[:most]) + more


QUOTED = (
    "The sentences quote the run with seed {} alone, and their intervals hold for that run. The interval of the mean "
    "includes how much training runs differ."
)


def spread(results: Results) -> list[str]:
    """The results of other training runs, one line for each vantage, and which interval is quoted."""
    runs = results.run.repeats
    together = {own.vantage: own.estimates for own in results.run.over_runs}
    lines = []
    for quoted in quoted_figures(results.headlines) if len(runs) > 1 else ():
        headline, whose, name = quoted.headline, quoted.whose, quoted.name
        found = [h for run in runs for h in run.headlines if h.vantage == whose.vantage]
        values = ", ".join(full_text(name, h.estimates.get(name)) for h in found)
        mean = together.get(whose.vantage, {}).get(name)
        over = "" if value_of(mean) is None else f"; mean over runs {full_text(name, mean)}, {confidence(mean)}"
        mixed = several_kinds(found)
        over += f"; {mixed}" if mixed else ""
        lines.append(f"{len(found)} training runs, {headline.vantage}, {measure(name)}: {values}{over}")
    return [*lines, QUOTED.format(runs[0].seed)] if lines else []


# ------------------------------------------------------------------ what a party that audits itself did not send


def withheld_updates(withheld: Sequence[Withheld]) -> list[str]:
    """One for each rule that stopped this party, and one for all updates that could not be audited."""
    told = [_stopped(update) for update in withheld if update.because in ("limit crossed", "limit undecidable")]
    refused = sorted({update.round for update in withheld if update.because == "model refused"})
    if refused:
        told.append(
            f"This party sent no {_updates(refused)}: the model that came in looked prepared to give single records "
            "away. The warnings say how."
        )
    alone = sorted({update.round for update in withheld if update.because == "not audited"})
    if alone:
        told.append(f"This party withheld its {_updates(alone)}, which could not be audited; the warnings say why.")
    return told


def _stopped(update: Withheld) -> str:
    since = f"This party has sent nothing from round {update.round} on"
    if update.because == "limit undecidable":
        return f"{since}: no attack can decide its limit {update.rule}. {_sentence(update.reason)}"
    figures = "; ".join(_withheld_figure(name, found) for name, found in update.estimates.items())
    return (
        f"{since}: what was about to leave then crosses its limit {update.rule} (found by {update.attack}: {figures})."
    )


def _withheld_figure(name: str, found: Estimate) -> str:
    fpr = fpr_of(name)
    what = f"TPR {value_text(name, found)} at {rate(fpr)} FPR" if fpr else f"AUC {value_text(name, found)}"
    proved = f", at least {number_text(name, found.guaranteed[0])} guaranteed" if found.guaranteed and fpr else ""
    return f"{what}, {confidence(found)} interval {interval_text(name, found)}{proved}"


def _updates(rounds: Sequence[int]) -> str:
    """`update of round 3`, or `updates of rounds 1 to 4, 7 and 8`"""
    runs: list[list[int]] = []
    for number in rounds:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [part for run in runs for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    told = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"update of round {told}" if len(rounds) == 1 else f"updates of rounds {told}"


def _sentence(reason: str) -> str:
    return reason[:1].upper() + reason[1:].rstrip(".") + "."


# ------------------------------------------------------------------ the adversaries


@dataclass(frozen=True)
class Adversary:
    title: str  # as a label
    sees: str
    knows: str
    hidden: str
    colour: str  # the class its marks carry in every chart


CANDIDATE = "The candidate itself: the complete data and label of the record it asks about."
PERSON = "Records of the person it asks about, as said above, with their labels."


def _adversaries(candidate: str, lies: str) -> dict[str, Adversary]:
    """`candidate`: what it has of the one it asks about. `lies`: what is hidden where parties are."""
    return {
        "client": Adversary(
            "Any party",
            "The global model of every round, weights included, exactly as the federation sends it to its members.",
            f"{candidate} It also knows the model's architecture and can compute any output of the models it received.",
            f"The other parties' own updates, their data, and {lies}.",
            "s1",
        ),
        "server": Adversary(
            "The server",
            "Every party's own model in every round, as it arrives before averaging, and the global models as well.",
            f"{candidate} It also knows which party sent which update, so whatever it finds is about that party.",
            "The data themselves, and what happens inside a party between two rounds.",
            "s2",
        ),
        "outsider": Adversary(
            "An outsider",
            "The outputs (scores for every class) of the final model only.",
            candidate,
            "The models of earlier rounds, any weights, any update, and who took part.",
            "s3",
        ),
        "label-only-client": Adversary(
            "A party that sees labels only",
            "The predicted label, without scores, of every round's global model.",
            f"{candidate} It also knows which of its own records were trained on. It learns from these, and is not "
            "judged on them.",
            "Scores, weights, the other parties' updates and data.",
            "s4",
        ),
        "secagg-server": Adversary(
            "The server under secure aggregation",
            "The sum of the parties' updates in every round, with whatever noise was added before summing.",
            f"{candidate} It also knows who took part in which round.",
            f"Any single party's update, and so {lies}.",
            "s5",
        ),
    }


ADVERSARIES = _adversaries(CANDIDATE, "in which party a record lies")
# Where it asks about people, it need not have any record that was trained on.
OF_PEOPLE = _adversaries(PERSON, "in which party a person's records lie")


def adversary(vantage: str, people: bool = False) -> Adversary:
    known = (OF_PEOPLE if people else ADVERSARIES).get(vantage)
    if known is not None:
        return known
    return Adversary(
        f"Vantage “{vantage}”",
        "As this audit's configuration defines it.",
        PERSON if people else CANDIDATE,
        "Everything its vantage does not grant.",
        "s6",
    )
