"""Every attack minus the primary one of its vantage: what two overlapping intervals do not say."""

from fedaudit.questions import MINUS
from fedaudit.report import words
from fedaudit.report.adversaries import adversary
from fedaudit.report.shapes import Table
from fedaudit.report.values import Results
from fedaudit.stats.wording import NONE, full_text
from fedaudit.types import Estimate

NOTE = (
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
    return Table(("attack", "seen by", f"minus the primary attack: {measure}", ""), rows, NOTE) if rows else None


def _verdict(found: Estimate) -> str:
    if found.low is not None and found.low > 0:
        return "stronger"
    return "weaker" if found.high is not None and found.high < 0 else NONE
