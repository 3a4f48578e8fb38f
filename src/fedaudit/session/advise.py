"""`fedaudit advise`: which change brings a federation below a limit, and what does it cost?

1. Every change that fits is trained for a quarter of the rounds, with the attacks that the limit speaks of.
2. Successive halving. A change whose lower end is already above the limit is dropped: early on, risks are lower than
   they will be. At most half of the changes go on to half of the rounds, and at most half of those to the end. Half of
   the places go to the most accurate among those within the limit, half to those with the lowest risk: a ranking by
   accuracy alone would keep only defences that are too weak. A run that goes on is resumed, so no round is trained
   twice.
3. The most accurate change whose upper end is below the limit is trained again with another seed, with all attacks;
   if that run does not confirm it, the next best one is tried, and then no more. Only the intervals of these runs
   should be quoted, because choosing among many favours what looked good by chance. They share their error among the
   confirming runs that may be made.

"Within the limit" is what the gate calls safe: every upper end below it, the guaranteed ones.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

from fedaudit.config.schema import Config
from fedaudit.errors import FedauditError
from fedaudit.files import write_atomically
from fedaudit.results import advice as results
from fedaudit.results.advice import Advice, Confirmed, Risk, Tried
from fedaudit.results.compare import accuracy_difference, risk_difference
from fedaudit.results.document import Document, load
from fedaudit.results.gate import ANY, PASSED, Decision, Gate, Rule, judge, sees
from fedaudit.results.schema import SCHEMA
from fedaudit.session.levers import NO_CHANGE, Change, changed, changes
from fedaudit.session.prepare import Prepared, refuse_unauthorised
from fedaudit.session.run import Progress, rounds, run
from fedaudit.session.workers import News, Tell, reason, work
from fedaudit.stats.strongest import proved_ends
from fedaudit.stats.wording import fpr_of
from fedaudit.types import AuditResult, Estimate, Moment, Round, State

CONFIRMING = 2  # changes that are tried again with another seed, at most
# How a confirming run lies to the limit. The gate's word for the first is not repeated: no run proves that.
LIES = {Decision.SAFE: "below the limit", Decision.UNDECIDED: "undecided", Decision.VIOLATED: "above the limit"}


@dataclass(frozen=True)
class Contender:
    """A change on its way through the halving: how far it has come, and what was found there."""

    change: Change
    config: Config | None
    folder: Path
    _: KW_ONLY
    status: str = ""
    rounds: int = 0
    risk: Risk | None = None
    accuracy: Estimate | None = None
    within: bool = False  # every upper end is below the limit

    def told(self, planned: int) -> Tried:
        of = self.config.federation.rounds if self.config else planned
        change, found = self.change, results.named(accuracy=self.accuracy)
        return Tried(
            name=change.name,
            words=change.words,
            overrides=change.overrides,
            rounds=self.rounds,
            of=of,
            status=self.status,
            risk=self.risk,
            estimates=found,
        )


# ------------------------------------------------------------------ the search


def advise(
    config: Config, limit: Rule, out: Path, workers: int, progress: Progress, tell: Callable[[str], None]
) -> tuple[Advice, Config | None]:
    """The advice, and the configuration that it comes to: the recommended one, or what comes nearest."""
    refuse_unauthorised(config)
    planned = config.federation.rounds
    attacks, rate = _asked(config, limit)
    contenders = _contenders(config, attacks, rate, out)
    rungs = sorted({min(planned, max(2, math.ceil(planned * part))) for part in (0.25, 0.5, 1.0)})
    with progress(f"Trying {len(contenders)} changes", _total(len(contenders), rungs, planned)) as step:
        bench = Bench(out, workers, step, tell)
        field = {contender.change.name: contender for contender in contenders}
        alive = [c for c in contenders if c.config]
        for rung in rungs:
            looked_at = [_looked_at(bench, c, wrong, limit) for c, wrong in _trained(bench, alive, rung)]
            fitting = [c for c in looked_at if not c.status]
            alive = halved(fitting, limit.limit) if rung < planned else fitting
            end = "trained to the end" if rung == planned else f"left after round {rung}"
            field |= {c.change.name: c if c.status else replace(c, status=end) for c in looked_at}
        confirmed = _confirm(bench, config, alive, limit, rate)
    return _advice(config, limit, rungs, list(field.values()), confirmed, bench)


def _asked(config: Config, limit: Rule) -> tuple[list[str] | None, float | None]:
    """The attacks that the limit speaks of (None: all), and its false-positive rate."""
    rate = fpr_of(limit.metric)
    if limit.metric != "auc" and rate is None:
        what = f"--limit {limit.text!r}: advice is about an AUC or a TPR at an FPR between 0 and 1"
        raise FedauditError("limit-metric", what, 'Write "tpr@0.01 < 0.02" or "auc < 0.6".')
    return (None if limit.attack in (None, ANY) else [limit.attack]), rate


def _contenders(config: Config, attacks: list[str] | None, rate: float | None, out: Path) -> list[Contender]:
    found: list[Contender] = []
    for change in (NO_CHANGE, *changes(config)):
        try:
            new = looking_at(changed(config, change), attacks, rate)
            folder = out / TRIALS / new.hash()
            if folder not in {contender.folder for contender in found}:  # a change that changes nothing
                found.append(Contender(change, new, folder))
        except FedauditError as error:
            found.append(Contender(change, None, out, status=f"does not fit: {error.what}"))
    return found


def _total(count: int, rungs: Sequence[int], planned: int) -> int:
    """Rounds to train, at most."""
    total, before = (CONFIRMING + 1) * planned, 0
    for rung in rungs:
        total += count * (rung - before)
        count, before = math.ceil(count / 2), rung
    return total


def _trained(bench: Bench, alive: Sequence[Contender], rung: int) -> list[tuple[Contender, News | None]]:
    """All of them up to this round, each with what went wrong if that was not possible."""
    known = [(c, c.config) for c in alive if c.config is not None]
    failed = bench.run([Trial(c.folder, config, min(rung, config.federation.rounds)) for c, config in known])
    return [(c, failed.get(c.folder)) for c, _ in known]


def _looked_at(bench: Bench, contender: Contender, wrong: News | None, limit: Rule) -> Contender:
    """With what was found so far; with a status if it does not fit or failed."""
    try:
        if wrong is None:
            gate, document = judge(contender.folder, [limit]), load(contender.folder)
            return replace(
                contender,
                rounds=document.run.rounds,
                risk=worst(gate),
                accuracy=document.accuracy,
                within=all(f.high is not None and f.high < limit.limit for f in gate.findings),
            )
        why, unfit = wrong.why, wrong.what == UNFIT and not contender.rounds
    except FedauditError as error:
        why, unfit = error.what, False
    after = f" after round {contender.rounds}" if contender.rounds else ""
    status = f"does not fit: {why}" if unfit else f"failed{after}: {why}"
    bench.tell(f"{contender.change.name}: {status}")
    return replace(contender, status=status)


def worst(gate: Gate) -> Risk | None:
    """The largest of the risks that the limit speaks of, by what is certain. None if one of them has no value."""
    if not gate.findings or any(finding.value is None for finding in gate.findings):
        return None
    f = max(gate.findings, key=lambda finding: (-1.0 if finding.low is None else finding.low, finding.value or 0.0))
    assert f.value is not None
    return Risk(attack=f.attack, vantage=f.vantage, model=f.model, party=f.party, value=f.value, low=f.low, high=f.high)


def halved(alive: Sequence[Contender], limit: float) -> list[Contender]:
    """At most half of them, but at least two. Those whose lower end is above the limit are dropped, because their risk
    will hardly become lower. Places go in turn to the most accurate within the limit and to the lowest risk."""
    places = math.ceil(len(alive) / 2)
    by_risk = sorted(alive, key=lambda c: (_value(c.risk), -_right(c)))
    promising = [c for c in by_risk if not (c.risk and c.risk.low is not None and c.risk.low > limit)]
    accurate = sorted((c for c in promising if _value(c.risk) <= limit), key=lambda c: -_right(c))
    orders = [iter(accurate), iter(promising)]
    kept: list[Contender] = []
    turn = 0
    while len(kept) < min(places, len(promising)):
        chosen = next((c for c in orders[turn % 2] if c not in kept), None)
        kept += [chosen] if chosen else []
        turn += 1
    kept += [c for c in by_risk if c not in kept][: max(0, CONFIRMING - len(kept))]
    return [contender for contender in alive if contender in kept]


def _value(risk: Risk | None) -> float:
    return math.inf if risk is None else risk.value


def _right(contender: Contender) -> float:
    return contender.accuracy.value or 0.0 if contender.accuracy else 0.0


# ------------------------------------------------------------------ another seed


def _confirm(
    bench: Bench, config: Config, alive: Sequence[Contender], limit: Rule, rate: float | None
) -> list[Confirmed]:
    """Trains the best again (or, if none is within the limit, the nearest) with the next seed and all attacks."""
    # What meets the limit without a change comes first: nobody needs to change anything then.
    order = sorted((c for c in alive if c.within), key=lambda c: (c.change.name != NO_CHANGE.name, -_right(c)))
    order = order[:CONFIRMING] or sorted(alive, key=lambda c: c.risk.high or 1.0 if c.risk else math.inf)[:1]
    before = _again(config, NO_CHANGE, rate)
    found: list[Confirmed] = []
    for contender in order:
        after = _again(config, contender.change, rate)
        wanted = {bench.folder(one): one for one in (before, after)}
        failed = bench.run([Trial(folder, one, one.federation.rounds) for folder, one in wanted.items()])
        if failed:
            bench.tell(f"{contender.change.name} could not be trained again: {next(iter(failed.values())).why}")
            continue
        found.append(compared(contender.change.name, bench.folder(after), bench.folder(before), limit))
        if found[-1].meets:
            break
    return found


def _again(config: Config, change: Change, rate: float | None) -> Config:
    """With the next seed. The error of the intervals is shared among the confirming runs, before any is made."""
    new = looking_at(changed(config, change), None, rate)
    sure = 1 - (1 - config.audit.confidence) / CONFIRMING
    federation = new.federation.model_copy(update={"seed": config.federation.seed + 1})
    audit = new.audit.model_copy(update={"confidence": sure})
    return new.model_copy(update={"federation": federation, "audit": audit})


def compared(name: str, after: Path, before: Path, limit: Rule) -> Confirmed:
    """The largest risk after the change, beside what the same attack finds from the same vantage without it. The
    largest risk without the change may come from another attack, and is reported separately."""
    gate, documents = judge(after, [limit]), {folder: load(folder) for folder in (after, before)}
    verdicts = {finding.verdict for finding in gate.findings}
    verdict = next(v for v in reversed(LIES) if v in verdicts)
    risk = worst(gate)
    ours, theirs = (_result(documents[folder], risk) for folder in (after, before))
    difference = risk_difference((after, ours), (before, theirs), limit.metric) if ours and theirs else None
    notes = [finding.note for finding in gate.findings if finding.note]
    return Confirmed(
        name=name,
        seed=documents[after].run.seed,
        verdict=LIES[verdict],
        meets=gate.exit_code == PASSED,
        why_not=notes[0] if notes else "",
        risk=risk,
        risk_before=_risk_of(theirs, limit.metric),
        largest_before=worst(judge(before, [limit])),
        strongest=most_found(documents[after], limit),
        guarantee=documents[after].run.guarantee,
        estimates=results.named(
            accuracy=documents[after].accuracy,
            accuracy_before=documents[before].accuracy,
            accuracy_difference=accuracy_difference(documents[after], documents[before]),
            risk_difference=difference,
        ),
    )


def _result(document: Document, risk: Risk | None) -> AuditResult | None:
    """What this run found at the place of a risk. None if it has no such place, for example no secagg server."""
    return next((r for r in document.results if risk and (r.attack, r.vantage, r.model, r.party) == risk.place), None)


def most_found(document: Document, limit: Rule) -> Risk | None:
    """The largest risk from the vantages of the limit, by any attack, even one that the limit does not name."""
    seen = [r for r in document.results if r.party == limit.party and r.attack != "blind"]
    seen = [r for r in seen if limit.vantage in (None, ANY) or sees(limit.vantage, r)]
    found = [risk for r in seen if (risk := _risk_of(r, limit.metric))]
    return max(found, key=lambda risk: (-1.0 if risk.low is None else risk.low, risk.value), default=None)


def _risk_of(result: AuditResult | None, metric: str) -> Risk | None:
    estimate = result.estimates.get(metric) if result else None
    if result is None or estimate is None or estimate.value is None:
        return None
    low, high = proved_ends(estimate)
    return Risk(
        attack=result.attack, vantage=result.vantage, model=result.model, party=result.party,
        value=estimate.value, low=low, high=high,
    )  # fmt: skip


# ------------------------------------------------------------------ the advice


def _advice(
    config: Config,
    limit: Rule,
    rungs: Sequence[int],
    contenders: Sequence[Contender],
    confirmed: Sequence[Confirmed],
    bench: Bench,
) -> tuple[Advice, Config | None]:
    by_name = {contender.change.name: contender.change for contender in contenders}
    recommended = next((one for one in confirmed if one.meets), None)
    nearest = recommended or min(confirmed, key=lambda one: _upper(one.risk), default=None)
    advice = Advice(
        schema=SCHEMA,
        limit=limit.text.replace(">", "<"),
        confidence=1 - (1 - config.audit.confidence) / CONFIRMING,
        rungs=rungs,
        tried=[contender.told(config.federation.rounds) for contender in contenders],
        confirmed=confirmed,
        recommended=recommended.name if recommended else None,
        nearest=nearest.name if nearest else None,
        sentences=(),
        cost=bench.cost(bench.folder(_again(config, NO_CHANGE, fpr_of(limit.metric)))),
        about=_about(contenders[0].folder),
    )
    words: Mapping[str, str] = {name: change.words for name, change in by_name.items()}
    advice = replace(advice, sentences=results.sentences(advice, limit, words))
    return advice, changed(config, by_name[nearest.name]) if nearest else None


def _about(unchanged: Path) -> str | None:
    """As it was recorded: with what was decided when the data were read."""
    with contextlib.suppress(FedauditError):
        return results.federation_of(load(unchanged).run.config)
    return None


def _upper(risk: Risk | None) -> float:
    return math.inf if risk is None or risk.high is None else risk.high


def looking_at(config: Config, attacks: Sequence[str] | None, rate: float | None) -> Config:
    """The same federation, audited with these attacks (None: its own), and at this false-positive rate."""
    audit: dict[str, Any] = {}
    if attacks is not None:
        audit["attacks"] = tuple(attacks)
    if rate is not None and (config.audit.fpr is None or rate not in config.audit.fpr):
        audit["fpr"] = (*(config.audit.fpr or ()), rate)
    return config.model_copy(update={"audit": config.audit.model_copy(update=audit)})


# ------------------------------------------------------------------ trials: runs up to a round, in other processes

TRIALS = "trials"  # a run for each, in the advice's folder
SECONDS = ".seconds"  # beside each run: the processor time that it took, in all the times it was begun
OF_THE_FOLDER = ("locked", "not-writable", "not-empty", "orphaned", "other-run")  # errors that no configuration caused
UNFIT = "unfit"  # said of a trial that was refused before anything was trained


@dataclass(frozen=True)
class Trial:
    """A run up to a round, in its folder."""

    folder: Path
    config: Config
    until: int


@dataclass(frozen=True)
class Bench:
    """Where trials are run: the folder, the processes, the progress so far, and which runs were needed."""

    out: Path
    workers: int
    step: Callable[[], None]
    tell: Callable[[str], None]
    needed: set[Path] = field(default_factory=set)

    def folder(self, config: Config) -> Path:
        return self.out / TRIALS / config.hash()

    def run(self, trials: Sequence[Trial]) -> dict[Path, News]:
        """Runs them all. Returns those that failed, with the reason, and whether it is that they do not fit."""
        failed: dict[Path, News] = {}
        self.needed.update(trial.folder for trial in trials)
        with contextlib.closing(work(trials, train_until, self.workers)) as news:
            for one in news:
                if one.kind == "failed":
                    failed[trials[one.piece].folder] = one
                elif one.kind == "step":
                    self.step()
        return failed

    def cost(self, own: Path) -> float | None:
        """Of all runs, in units of one of them. None if the time that one took is not known."""
        spent, unit = sum(seconds(folder) for folder in self.needed), seconds(own)
        return spent / unit if math.isfinite(spent) and unit > 0 else None  # what is not known is NaN


def train_until(trial: Trial, tell: Tell) -> None:
    """In a process of its own. A run that has come this far is left as it is."""
    if _rounds(trial.folder) >= trial.until:
        return
    begun: list[Moment] = []
    before, started = seconds(trial.folder) if trial.folder.exists() else 0.0, time.process_time()

    def spent() -> None:
        write_atomically(trial.folder.with_suffix(SECONDS), f"{before + time.process_time() - started:.3f}\n")

    def step() -> None:
        spent()  # after every round: a search that is killed and begun again still knows what it cost
        tell("step", "", "")

    def engine(prepared: Prepared, after: Moment, model: State | None) -> Iterator[Round]:
        begun.append(after)
        return rounds(prepared, after, model, trial.until)

    def progress(_: str, steps: int) -> contextlib.AbstractContextManager[Callable[[], None]]:
        return contextlib.nullcontext(step if steps else (lambda: None))

    spent()  # from now on the time is known, whenever it is killed
    try:
        quiet = trial.config.model_copy(update={"track": None})  # trials are not the federation that is tracked
        run(quiet, trial.folder, progress, tell=lambda _: None, engine=engine)
    except FedauditError as error:
        if begun or error.code in OF_THE_FOLDER:
            raise
        tell("failed", UNFIT, reason(error))
    spent()


def seconds(folder: Path) -> float:
    """Of processor time that a run took; NaN if nobody wrote it down."""
    try:
        return float(folder.with_suffix(SECONDS).read_text())
    except (OSError, ValueError):
        return math.nan


def _rounds(folder: Path) -> int:
    try:
        return load(folder).run.rounds
    except FedauditError:
        return 0
