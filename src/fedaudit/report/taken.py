"""What was read off single updates. The figures of membership say nothing of it, so that it is said beside them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedaudit.questions import metric
from fedaudit.report.values import Results
from fedaudit.stats.wording import confidence, full_text, interval_text, value_text
from fedaudit.types import AuditResult, Estimate
from fedaudit.words import CANNOT
from fedaudit.words.headlines import WHO

QUESTION = "update"
# What is read, by the figure that says so.
WHOLE = {"exact-inputs": "whole records", "exact-words": "words of the records"}
LISTS = {
    **WHOLE,
    "presence": "values that nobody has",
    "singletons": "values that one record alone has",
    "twins": "pairs of values of the same records",
}
OF_PARTY = ("presence", "twins")  # of all records of a party together
LABELS = {"label-auc": "which classes a party has", "label-error": "how many records of each class a party has"}


@dataclass(frozen=True, kw_only=True)
class ReadOff:
    """What an adversary read off updates, more of it than the best guess from outsiders gives."""

    vantage: str
    model: str
    figure: str
    value: Estimate
    guess: Estimate | None
    prepared: bool = False  # by a dishonest server, in a simulation

    @property
    def what(self) -> str:
        return {**LISTS, **LABELS}[self.figure]

    @property
    def sentence(self) -> str:
        guess = f"; a guess from outsiders gives {full_text(self.figure, self.guess)}" if self.guess else ""
        span = f"{confidence(self.value)} interval {interval_text(self.figure, self.value)}{guess}"
        figure = f"{value_text(self.figure, self.value)} ({span})"
        who = WHO.get(self.vantage, f"An adversary at the vantage “{self.vantage}”")
        off = "single updates" if self.model == "local" else "the sum of all updates"
        off += " of a model that a dishonest server prepared, in a simulation" if self.prepared else ""
        if self.figure in LISTS:
            of = "of all that are there or were listed, where this could be told"
            return f"{who} reads {self.what} off {off}, without any training or threshold: {figure} {of}."
        return f"{who} reads off {off} {self.what}: {metric(self.figure).title}, {figure}."

    @property
    def line(self) -> tuple[str, str, str, str]:
        """As the summary says it of a vantage: who, what, the figure, and by what."""
        told = full_text(self.figure, self.value)
        return self.vantage, f"{self.what} read off updates", told, f"{QUESTION}, {self.model} models"


def readings(results: Results) -> list[ReadOff]:
    """A record or a word that is rightly listed is read, however few there are. Values and labels are read where both
    intervals say so."""
    prepared = any(one.code == "update-tampered" for one in results.all_told())
    return [one for entry in _pooled(results) for one in _of(entry, prepared)]


def _of(entry: AuditResult, prepared: bool) -> Iterator[ReadOff]:
    for name in (*LISTS, *LABELS):
        found, guess = entry.estimates.get(name), entry.estimates.get(f"{name}-blind")
        if found is None or found.value is None:
            continue
        beyond = _above_guess(found, guess) if name in WHOLE else _certainly(found, guess, less=name == "label-error")
        if beyond:
            yield ReadOff(
                vantage=entry.vantage, model=entry.model, figure=name, value=found, guess=guess, prepared=prepared
            )


def _above_guess(found: Estimate, guess: Estimate | None) -> bool:
    return (found.value or 0.0) > ((guess.value if guess else None) or 0.0)


def _certainly(found: Estimate, guess: Estimate | None, *, less: bool) -> bool:
    if guess is None:
        return False
    low, high = (found, guess) if less else (guess, found)
    return low.high is not None and high.low is not None and low.high < high.low


def _pooled(results: Results) -> list[AuditResult]:
    return [entry for entry in results.results if entry.question == QUESTION and entry.party is None]


def whole(results: Results) -> list[ReadOff]:
    """Whole records, or words of them."""
    return [one for one in readings(results) if one.figure in WHOLE]


def was_looked_for(results: Results, figures: Sequence[str]) -> bool:
    """Has one of these figures a value?"""
    own = [entry.estimates.get(name) for entry in results.results for name in figures if entry.question == QUESTION]
    return any(found is not None and found.value is not None for found in own)


def not_told(results: Results, *whats: str) -> list[str]:
    """Why it could not be told from some updates, of what is named so in `CANNOT`; empty where it could, or where
    nobody tried."""
    given = [str(one.data.get("why")) for one in results.all_told() if one.code == "update-cannot-tell"]
    return [CANNOT[why][1] for why in dict.fromkeys(given) if why in CANNOT and CANNOT[why][0] in whats]


OF_WHOLE = ("Whole records", "Words", "What it says by itself")
OF_VALUES = ("Which values nobody has", "How many records each class has", "What it says by itself")


def about_records(results: Results) -> str:
    """Was anybody's record read? Nothing is said to be absent that was not looked for."""
    found, unknown = whole(results), not_told(results, *OF_WHOLE)
    if found:
        return " ".join(one.sentence for one in found)
    why = "; ".join(unknown)
    if was_looked_for(results, tuple(WHOLE)):
        but = f" From some updates it could not be told: {why}." if why else ""
        return (
            "It does not read anybody's record: whole records were looked for in updates, and none was found beyond "
            f"what a guess from outsiders gives.{but}"
        )
    if why:
        return f"Whole records were looked for in updates, and it could not be told whether they hold any: {why}."
    return "Whether anybody's record can be read out of the model, or off an update, was not tried in these results."
