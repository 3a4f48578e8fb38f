"""What repeated training runs found together: the mean over them, with an interval that includes their spread."""

from collections.abc import Sequence
from dataclasses import replace

from fedaudit.questions import metric
from fedaudit.results.document import AttackOverRuns, OverRuns, Repeat
from fedaudit.stats import over_runs
from fedaudit.stats.intervals import at_confidence
from fedaudit.stats.wording import several_kinds
from fedaudit.types import AuditResult, Estimate, Estimates, Missing, ModelKind

MEASURED = "measured"


def spread_over(repeats: Sequence[Repeat], confidence: float = 0.95) -> list[OverRuns]:
    """For each vantage of the first run, every measured estimate that all runs have. One run alone has no spread. What
    a run proves (`epsilon-one-run`) is a bound with one end, and its mean over runs is no bound."""
    if len(repeats) < 2:
        return []
    found = []
    for headline in repeats[0].headlines:
        quoted = [h for run in repeats for h in run.headlines if h.vantage == headline.vantage]
        level = min((e.confidence for h in quoted if not h.primary for e in h.estimates.values()), default=confidence)
        # Runs that quote another attack than the primary one have corrected intervals, which a mean need not have.
        each = [{name: at_confidence(e, level) for name, e in h.estimates.items()} for h in quoted]
        measured = [name for name, estimate in headline.estimates.items() if estimate.kind == MEASURED]
        names = [name for name in measured if len(each) > 1 and all(name in own for own in each)]
        if names:
            together = {
                name: replace(over_runs(own), missing=missing_of(own))
                for name in names
                for own in [[one[name] for one in each]]
            }
            mixed = several_kinds(quoted)
            told = {
                name: replace(e, method=f"{e.method}; {mixed}" if mixed else e.method) for name, e in together.items()
            }
            found.append(OverRuns(headline.vantage, told))
    return found


def missing_of(each: Sequence[Estimate]) -> tuple[Missing, ...]:
    """Who is missing from a mean: for each reason, as in the run where most are."""
    found: dict[str, Missing] = {}
    for missing in (one for estimate in each for one in estimate.missing):
        known = found.get(missing.why)
        found[missing.why] = missing if known is None or missing.count > known.count else known
    return tuple(found.values())


def every_attack(runs: Sequence[Sequence[AuditResult]]) -> list[AttackOverRuns]:
    """Each attack, vantage and kind of model, pooled over the parties: every measured estimate, over the runs that have
    it. `runs` holds the results of each run."""
    if len(runs) < 2:
        return []
    found: dict[tuple[str, str, ModelKind], list[Estimates]] = {}
    for entry in (entry for results in runs for entry in results if entry.party is None):
        found.setdefault((entry.attack, entry.vantage, entry.model), []).append(entry.estimates)
    return [
        _of_one(who, each)
        for who, each in found.items()
        if any(e.kind == MEASURED for own in each for e in own.values())
    ]


def _of_one(who: tuple[str, str, ModelKind], each: Sequence[Estimates]) -> AttackOverRuns:
    names = dict.fromkeys(name for own in each for name, e in own.items() if e.kind == MEASURED)
    measured = {name: [own[name] for own in each if name in own] for name in names}
    values = {name: [e.value for e in own if e.value is not None] for name, own in measured.items()}
    return AttackOverRuns(
        *who,
        runs=len(each),
        estimates={
            name: replace(over_runs(own, metric(name).least, metric(name).most), missing=missing_of(own))
            for name, own in measured.items()
        },
        smallest={name: min(own) for name, own in values.items() if own},
        largest={name: max(own) for name, own in values.items() if own},
    )
