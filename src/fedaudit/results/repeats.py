"""What repeated training runs found together: the mean over them, with an interval that includes their spread."""

from collections.abc import Sequence
from dataclasses import replace

from fedaudit.results.document import OverRuns, Repeat
from fedaudit.stats import over_runs
from fedaudit.stats.wording import several_kinds


def spread_over(repeats: Sequence[Repeat]) -> list[OverRuns]:
    """For each vantage of the first run, every measured estimate that all runs have. One run alone has no spread. What
    a run proves (`epsilon-one-run`) is a bound with one end, and its mean over runs is no bound."""
    if len(repeats) < 2:
        return []
    found = []
    for headline in repeats[0].headlines:
        quoted = [h for run in repeats for h in run.headlines if h.vantage == headline.vantage]
        each = [h.estimates for h in quoted]
        measured = [name for name, estimate in headline.estimates.items() if estimate.kind == "measured"]
        names = [name for name in measured if len(each) > 1 and all(name in own for own in each)]
        if names:
            together = {name: over_runs([own[name] for own in each]) for name in names}
            mixed = several_kinds(quoted)
            told = {
                name: replace(e, method=f"{e.method}; {mixed}" if mixed else e.method) for name, e in together.items()
            }
            found.append(OverRuns(headline.vantage, told))
    return found
