"""What repeated training runs found together: the mean over them, with an interval that includes their spread."""

from collections.abc import Sequence
from dataclasses import replace

from fedaudit.questions import metric
from fedaudit.results.document import AttackOverRuns, OverRuns, Repeat
from fedaudit.results.run_errors import NOT_KNOWN, RunErrors
from fedaudit.stats import over_runs
from fedaudit.stats.intervals import at_confidence
from fedaudit.stats.wording import several_kinds
from fedaudit.types import AuditResult, Estimates, ModelKind

MEASURED = "measured"


def spread_over(
    repeats: Sequence[Repeat], confidence: float = 0.95, errors: Sequence[RunErrors] = ()
) -> list[OverRuns]:
    """For each vantage of the first run, every measured estimate that all runs have. One run alone has no spread. What
    a run proves (`epsilon-one-run`) is a bound with one end, and its mean over runs is no bound. `errors`: those of
    each run, where its scores are at hand."""
    if len(repeats) < 2:
        return []
    found = []
    for headline in repeats[0].headlines:
        of_each = [
            (h, known)
            for run, known in zip(repeats, errors or [NOT_KNOWN] * len(repeats), strict=True)
            for h in run.headlines
            if h.vantage == headline.vantage
        ]
        quoted = [h for h, _ in of_each]
        level = min((e.confidence for h in quoted if not h.primary for e in h.estimates.values()), default=confidence)
        # Runs that quote another attack than the primary one have corrected intervals, which a mean need not have.
        each = [{name: at_confidence(e, level) for name, e in h.estimates.items()} for h in quoted]
        measured = [name for name, estimate in headline.estimates.items() if estimate.kind == MEASURED]
        names = [name for name in measured if len(each) > 1 and all(name in own for own in each)]
        if names:
            together = {
                name: over_runs(
                    [own[name] for own in each],
                    errors=[known.of(h.attack, h.model, h.estimates[name]) for h, known in of_each],
                )
                for name in names
            }
            mixed = several_kinds(quoted)
            told = {
                name: replace(e, method=f"{e.method}; {mixed}" if mixed else e.method) for name, e in together.items()
            }
            found.append(OverRuns(headline.vantage, told))
    return found


def every_attack(runs: Sequence[Sequence[AuditResult]], errors: Sequence[RunErrors] = ()) -> list[AttackOverRuns]:
    """Each attack, vantage and kind of model, pooled over the parties: every measured estimate, over the runs that have
    it. `runs` holds the results of each run, `errors` the errors of each, where its scores are at hand."""
    if len(runs) < 2:
        return []
    found: dict[tuple[str, str, ModelKind], list[tuple[Estimates, RunErrors]]] = {}
    for results, known in zip(runs, errors or [NOT_KNOWN] * len(runs), strict=True):
        for entry in (entry for entry in results if entry.party is None):
            found.setdefault((entry.attack, entry.vantage, entry.model), []).append((entry.estimates, known))
    return [
        _of_one(who, each)
        for who, each in found.items()
        if any(e.kind == MEASURED for own, _ in each for e in own.values())
    ]


def _of_one(who: tuple[str, str, ModelKind], each: Sequence[tuple[Estimates, RunErrors]]) -> AttackOverRuns:
    attack, _, model = who
    names = dict.fromkeys(name for own, _ in each for name, e in own.items() if e.kind == MEASURED)
    measured = {name: [(own[name], known) for own, known in each if name in own] for name in names}
    values = {name: [e.value for e, _ in own if e.value is not None] for name, own in measured.items()}
    return AttackOverRuns(
        *who,
        runs=len(each),
        estimates={
            name: over_runs(
                [e for e, _ in own],
                metric(name).least,
                metric(name).most,
                [known.of(attack, model, e) for e, known in own],
            )
            for name, own in measured.items()
        },
        smallest={name: min(own) for name, own in values.items() if own},
        largest={name: max(own) for name, own in values.items() if own},
    )
