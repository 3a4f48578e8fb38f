"""What one update says by itself, on the page: in sentences of a data owner, and in figures beside the blind guess."""

from collections.abc import Sequence

from fedaudit.questions.update import QUESTION
from fedaudit.report.sections import every_estimate
from fedaudit.report.shapes import PageSection, Panel, Table
from fedaudit.report.values import Results
from fedaudit.report.words import adversary
from fedaudit.stats.wording import NONE, full_text
from fedaudit.types import AuditResult, Notice
from fedaudit.words import CANNOT

TITLE = "What one update says by itself"
LEAD = (
    "What whoever receives an update reads off it, without any training or threshold. The tables say how often that is "
    "right, beside the best guess from outsiders alone, which never sees the update. Which values these are is left "
    "out unless it is asked for ([audit.questions.update] names = true): the list is itself a leak."
)
BLIND, CANNOT_TELL = "-blind", "update-cannot-tell"
FOUND = frozenset({"update-presence", "update-inputs", "update-labels", "update-incoming", "update-tampered"})
LISTS = {
    "presence": "nobody has it",
    "singletons": "one record has it",
    "twins": "the same bearers",
    "exact-inputs": "whole records",
    "exact-words": "words",
}


def sections(results: Results) -> Sequence[PageSection]:
    both = [(one, said) for one, said in results.said() if one.code in QUESTION.shown]
    sentences = list(dict.fromkeys(said for one, said in both if one.code != CANNOT_TELL))
    unknown = _unknown([one for one, _ in both if one.code == CANNOT_TELL])
    entries = [entry for entry in results.results if entry.question == QUESTION.name and entry.party is None]
    tables = [("", table) for entry in entries for table in (_lists(entry), _others(entry)) if table.rows]
    folded = [("All figures, with counts and methods", every_estimate(entries))] if entries else []
    found = bool(tables) or any(one.code in FOUND for one, _ in both)
    if unknown.rows:
        folded.append((f"What cannot be told from an update, and why ({len(unknown.rows)})", unknown))
    if not sentences and not folded:
        return []
    panel = Panel(LEAD if found else "", sentences=sentences, tables=tables, folded=folded)
    return [PageSection("update", TITLE, "One update", [panel], first=found)]


def _unknown(told: Sequence[Notice]) -> Table:
    rows = [[*CANNOT[one.data["why"]], str(one.data["updates"])] for one in told if one.data.get("why") in CANNOT]
    return Table(("what", "why not", "updates"), rows)


def _lists(entry: AuditResult) -> Table:
    """What was listed against what is true, and the same of the guess."""
    ends = ("-precision", "-recall", "", BLIND)
    names = [name.removesuffix(ends[0]) for name in entry.estimates if name.endswith(ends[0])]
    rows = [[LISTS.get(name, name), *(_shown(entry, f"{name}{end}") for end in ends)] for name in names]
    head = ("right, of those listed", "listed, of all there are", "both at once", "guessed from outsiders")
    return Table((_who(entry), *head), rows)


def _others(entry: AuditResult) -> Table:
    """Figures that stand beside a guess and are no lists."""
    names = [name.removesuffix(BLIND) for name in entry.estimates if name.endswith(BLIND)]
    titles = {metric.name: metric.title for metric in QUESTION.metrics}
    rows = [
        [titles.get(name, name), _shown(entry, name), _shown(entry, f"{name}{BLIND}")]
        for name in names
        if f"{name}-precision" not in entry.estimates
    ]
    return Table((_who(entry), "read off", "guessed from outsiders"), rows)


def _shown(entry: AuditResult, name: str) -> str:
    found = entry.estimates.get(name)
    return full_text(name, found) if found else NONE


def _who(entry: AuditResult) -> str:
    return (
        f"{adversary(entry.vantage).title}: {'the sum of all parties' if entry.model == 'global' else 'every update'}"
    )
