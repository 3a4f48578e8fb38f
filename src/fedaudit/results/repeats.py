"""What repeated training runs found together: the mean over them, with an interval that includes their spread."""

from collections.abc import Sequence

from fedaudit.results.document import OverRuns, Repeat
from fedaudit.stats import over_runs


def spread_over(repeats: Sequence[Repeat]) -> list[OverRuns]:
    """For each vantage of the first run, every measured estimate that all runs have. One run alone has no spread. What
    a run proves (`epsilon-one-run`) is a bound with one end, and its mean over runs is no bound."""
    if len(repeats) < 2:
        return []
    found = []
    for headline in repeats[0].headlines:
        each = [h.estimates for run in repeats for h in run.headlines if h.vantage == headline.vantage]
        measured = [name for name, estimate in headline.estimates.items() if estimate.kind == "measured"]
        names = [name for name in measured if len(each) > 1 and all(name in own for own in each)]
        if names:
            found.append(OverRuns(headline.vantage, {name: over_runs([own[name] for own in each]) for name in names}))
    return found
