"""What one update says by itself, on the page: in sentences of a data owner, and in figures beside the blind guess."""

from collections.abc import Sequence

from fedaudit.questions.update import QUESTION
from fedaudit.report.sections import every_estimate
from fedaudit.report.shapes import PageSection, Panel, Table
from fedaudit.report.values import Results
from fedaudit.report.words import adversary
from fedaudit.stats.wording import NONE, full_text
from fedaudit.types import AuditResult

TITLE = "What one update says by itself"
LEAD = (
    "What whoever receives an update reads off it, without any training or threshold; how often that is right, beside "
    "the best guess from outsiders alone, which never sees the update. Which values these are is left out unless it is "
    "asked for ([audit.questions.update] names = true): the list is itself a leak."
)
BLIND = "-blind"


def sections(results: Results) -> Sequence[PageSection]:
    told = results.all_told()[len(results.warnings) :]
    sentences = [said for one, said in zip(told, results.notices, strict=True) if one.code in QUESTION.shown]
    entries = [entry for entry in results.results if entry.question == QUESTION.name and entry.party is None]
    if not sentences and not entries:
        return []
    tables = [("", Table(("what can be read",), [[said] for said in sentences]))] if sentences else []
    tables += [("", _figures(entry)) for entry in entries]
    folded = [("All figures, with counts and methods", every_estimate(entries))] if entries else []
    return [PageSection("update", TITLE, "One update", [Panel(LEAD, tables=tables, folded=folded)], first=True)]


def _figures(entry: AuditResult) -> Table:
    """Each figure beside the same of the guess."""
    titles = {metric.name: metric.title for metric in QUESTION.metrics}
    rows = []
    for name, estimate in entry.estimates.items():
        if not name.endswith(BLIND):
            guess = entry.estimates.get(f"{name}{BLIND}")
            shown = full_text(f"{name}{BLIND}", guess) if guess else NONE
            rows.append([titles.get(name, name), full_text(name, estimate), shown])
    return Table((f"{adversary(entry.vantage).title}, all parties", "read off", "guessed from outsiders"), rows)
