"""One audit of one federation, from the first round to the results. Everything that watches rounds uses it: `run`,
`audit`, `import`, training loops, Flower's mod and strategy.

Unless `strict` is set, nothing that goes wrong here disturbs the training: an error in the audit, a full disk, a round
that arrives twice, is empty or starts from an older model. What is missing is listed in the results.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from fedaudit.adversary.reductions import flatten, unflatten
from fedaudit.audit import Auditor
from fedaudit.data.partition import understated
from fedaudit.errors import DEGRADED, OF_OTHERS, FedauditError, printable, say
from fedaudit.federation import START
from fedaudit.questions import named
from fedaudit.results import document as results
from fedaudit.results.document import Document, Withheld
from fedaudit.results.exposure import most_exposed, new_salt, stored_salt
from fedaudit.results.run_errors import save_errors
from fedaudit.results.schema import plain, read
from fedaudit.results.scores import COINS_TOLD, save_scores
from fedaudit.results.selftest import kept_for
from fedaudit.session.recording import About, TraceWriter, feed, unbroken
from fedaudit.trace import journal
from fedaudit.trace.journal import unchecked
from fedaudit.trace.lineage import Place
from fedaudit.trace.segments import digest, digest_of_seen
from fedaudit.trace.store import RUN, Store
from fedaudit.types import (
    Audit,
    Ending,
    Moment,
    Notice,
    Observation,
    Round,
    State,
    Stored,
    UnitErrors,
    as_notices,
    gap,
    notice,
    once,
)
from fedaudit.words import line

if TYPE_CHECKING:
    from fedaudit.session.tracking import How, Tracking


@dataclass(frozen=True)
class RoundDone:
    """A round, or a probe, was observed."""

    moment: Moment


@dataclass(frozen=True)
class Note:
    """Something happened, but nothing is missing because of it."""

    what: Notice


@dataclass(frozen=True)
class Finished:
    """The results are complete, and written if there is a folder for them."""

    document: Document


Event = RoundDone | Note | Finished
Listener = Callable[[Event], None]

log = logging.getLogger("fedaudit")

TOLD = 50  # number of gaps listed in the results; further ones are only counted


def nobody(event: Event) -> None:
    """A listener that ignores all events."""


class Session:
    """Without an auditor it only records; without a trace it only audits. `snapshot` replaces the auditor's own, if
    more was found than the auditor knows."""

    def __init__(
        self,
        auditor: Auditor | None,
        trace: TraceWriter | None = None,
        about: About | None = None,
        *,
        strict: bool = False,
        listen: Listener = nobody,
        snapshot: Callable[[], Audit] | None = None,
        results_in: Path | None = None,
        tracking: Tracking | None = None,
    ):
        self.auditor, self.trace, self.strict, self.listen = auditor, trace, strict, listen
        self.tracking = tracking
        self.about = about or (About.foreign("recorded", auditor) if auditor else None)
        self.snapshot = snapshot
        self.results_in = results_in  # instead of the folder that `finish` is given
        self.gaps: list[Notice] = []  # what is missing from the audit
        self.notes: list[Notice] = []  # events after which nothing is missing
        self.withheld: list[Withheld] = []  # updates that the audited party did not send
        self.odd: list[Notice] = []  # warnings about stored rounds
        self.damaged: list[Notice] = []  # stored rounds that are not as they were written
        self.salt: str | None = None  # of the recorded run that is replayed
        self.seen: dict[Moment, str] = {}  # digests of what was exchanged, if no trace keeps them
        self.document: Document | None = None
        self.errors: Mapping[tuple[str, str, str], UnitErrors] = {}  # behind the figures of the document
        self.started = time.perf_counter()
        self.closed = False

    @property
    def last(self) -> int:
        """The last round that was observed."""
        stored = self.trace.store.lineage.newest if self.trace else 0
        return max([stored, *(moment.round for moment in self.seen)])

    # ------------------------------------------------------------------ gaps and notes

    @contextmanager
    def guard(self, code: str, **data: Any) -> Iterator[None]:
        """An error inside the block becomes a gap, so that the training is not disturbed, unless `strict` is set.

        `code`: one of `words.FAULTS`, which says what is missing then."""
        try:
            yield
        except OF_OTHERS as error:
            if self.strict:
                raise
            self.gap(gap(code, **data, error=code_of(error), why=in_words(error)))

    def gap(self, what: Notice) -> None:
        self.gaps.append(what)
        with suppress(Exception):  # a handler of the training's log that fails
            log.warning("fedaudit: %s", printable(line(what)))

    def note(self, what: Notice) -> None:
        log.info("fedaudit: %s", printable(line(what)))
        self.notes.append(what)
        self.listen(Note(what))

    def _tell(self, told: Sequence[Notice]) -> None:
        for one in told:
            self.note(one)

    def withhold(self, what: Withheld) -> None:
        """Kept for the verdict; once, however often it is told."""
        if what not in self.withheld:
            self.withheld.append(what)

    @property
    def halted(self) -> bool:
        """Does the audited party send nothing any more?"""
        return any(update.onwards for update in self.withheld)

    def broke_off(self, error: type[BaseException], settle: Callable[[], None] = lambda: None) -> None:
        """The training itself failed. Errors of the audit must not hide that error.

        `settle` waits for rounds that are still being recorded: they belong to what was seen before the failure.
        """
        self.strict = False
        with suppress(Exception):
            settle()
        self.gap(gap("training-failed", error=error.__name__, round=self.last))

    # ------------------------------------------------------------------ resuming

    def resume(self) -> tuple[Moment, State | None]:
        """Brings the audit to the end of the trace. Returns the moment and the model from which training continues."""
        if self.trace is None or self.auditor is None:
            return START, None
        # That one of our runs was resumed is not noted in its results: they are the same as without the interruption.
        ours = self.about is not None and self.about.is_ours
        return self.trace.resume(self.auditor, (lambda what: self.listen(Note(what))) if ours else self.note)

    def replay(self, store: Store, step: Callable[[], None]) -> None:
        """All rounds of a recorded trace, as if they happened now. `step` is called after each of them."""
        if self.auditor is not None:
            self.odd += store.warnings()
            self.damaged += [*store.damage(), *feed(store, self.auditor, step)]
            self.salt = stored_salt(store.directory)
            for told in unchecked(store.directory / RUN):
                self.note(told)

    def account(self) -> Stored:
        """The gaps, notes, withheld updates and digests so far."""
        seen = [[moment.round, moment.probe, digests] for moment, digests in self.seen.items()]
        withheld = [plain(each) for each in self.withheld]
        gaps, notes = ([each.stored() for each in told] for told in (self.gaps, self.notes))
        return {"gaps": gaps, "notes": notes, "withheld": withheld, "seen": seen}

    def state(self, account: Stored | None = None) -> tuple[dict[str, NDArray[Any]], str]:
        """Everything needed to continue in another process: arrays, and the rest as JSON."""
        assert self.auditor is not None
        arrays, rest = flatten({"auditor": self.auditor.state(), "account": account or self.account()})
        return arrays, json.dumps(rest)

    def restore(self, arrays: Mapping[str, NDArray[Any]], text: str) -> None:
        assert self.auditor is not None
        kept = unflatten(arrays, json.loads(text))
        self.auditor.restore(kept["auditor"])
        account = kept["account"]
        self.gaps, self.notes = [*as_notices(account["gaps"])], [*as_notices(account["notes"])]
        self.withheld = [read(Withheld, each) for each in account["withheld"]]
        self.seen = {Moment(round, probe): digests for round, probe, digests in account["seen"]}

    # ------------------------------------------------------------------ rounds

    def watch(self, rounds: Iterable[Round]) -> None:
        """Observes all rounds as they happen. After Ctrl-C, the rounds so far are reported."""
        try:
            for round in rounds:
                self.observe(round)
        except SystemExit as error:  # its code is not the audit's: 0 would say that all was done
            what = f"the code of a model, a defence or the data ended the training after round {self.last}"
            todo = "Take sys.exit out of it. The same command goes on from the last complete round."
            raise FedauditError("training-exited", what, todo, exit_code=DEGRADED) from error
        except KeyboardInterrupt:
            if self.auditor is None or self.auditor.last_round < 2:
                raise  # nothing to report yet
            sights = [sight for _, sight in self.auditor.outlooks if sight.pending]
            if waiting := sorted({name for sight in sights for name in sight.later - sight.settled}):
                self.listen(Note(notice("still-looking", round=self.auditor.last_round, attacks=waiting)))

    def observe(self, round: Round) -> None:
        """Takes in one round, or one probe, when it ends."""
        with self.guard("round-missing", round=round.index):
            start, made = digest_of_seen(round.broadcast), digest_of_seen(round.aggregate)
            place = self.trace.store.lineage.place(round.moment, start, made) if self.trace else Place()
            if self._is_repeated(round, place, start, made):
                return
            seen = self.auditor.measure(round) if self.auditor else None
            with unbroken():
                if self.auditor and not place.opens:
                    seen = self.auditor.absorb(seen, round)
                self._record(round, seen, place)
            if self.auditor and place.opens:
                self._start_over(self.auditor)
            if self.tracking:
                self._tell(self.tracking.send())
            if self.auditor:
                self.listen(RoundDone(round.moment))

    def _is_repeated(self, round: Round, place: Place, start: str, made: str) -> bool:
        """Was this round delivered before? The first delivery counts; the trace also keeps what a later one changes."""
        if self.trace is not None and not self.trace.trouble:
            if place.known is None:
                return False
            sent = {name: digest(trained.state) for name, trained in round.sent.items()}
            same = {name: of.state for name, of in place.known.parties.items()} == sent
            self.trace.append(round, None)
        else:
            sent = {name: digest(trained.state) for name, trained in round.sent.items()}
            whole = json.dumps([start, sent, made], sort_keys=True)
            before = self.seen.setdefault(round.moment, whole)
            if place.known is None and before is whole:
                return False
            same = before == whole
        if same:
            self.note(notice("round-twice", round=round.index))
        else:
            self.gap(gap("round-again", round=round.index))
        return True

    def _record(self, round: Round, seen: Observation | None, place: Place) -> None:
        if self.trace is not None:
            before = self.trace.trouble
            judged = self.auditor and not round.probe and not place.opens  # else what is known is of an abandoned round
            found = self.auditor.risks(round.index) if self.auditor and judged else []
            self.trace.append(round, seen, found)
            if self.trace.trouble and not before:
                log.warning("fedaudit: %s", line(self.trace.trouble))

    def _start_over(self, former: Auditor) -> None:
        """The server went back to an older model: rebuilds the audit from the rounds that lead to the newest one."""
        assert self.trace is not None
        self.auditor = former.fresh()
        for damaged in feed(self.trace.store, self.auditor):
            self.gap(damaged)

    # ------------------------------------------------------------------ the end

    def finish(self, out: Path | None, incomplete: str | None = None) -> Document | None:
        """Writes the results to `out`. Returns None if there are none; `gaps` then says why.

        `incomplete`: why the run is not complete although all rounds were seen.
        """
        self.document, out = None, self.results_in or out
        if self.tracking:
            self._tell(self.tracking.close(self._how(incomplete)))
        with self.guard("no-results"):
            self.document = self._document(incomplete, out)
        if self.document is not None and out is not None:
            with self.guard("results-unwritten"):
                self.document = self._saved(self.document, out)
        if self.trace is not None:
            with self.guard("record-without-end"), closing(self.trace.store):
                right = self.auditor.right_answers() if self.auditor else None
                self.trace.end(self._ended(), right)
        self.closed = True
        if self.document is not None:
            with self.guard("results-not-passed-on"):
                self.listen(Finished(self.document))
        return self.document

    def _how(self, incomplete: str | None) -> How:
        """In the words of those who keep track of experiments."""
        if any(one.code == "training-failed" for one in self.gaps):
            return "failed"
        short = self.auditor is not None and self.auditor.last_round < self.auditor.settings.rounds
        return "interrupted" if incomplete or short else "finished"

    def _ended(self) -> str:
        if self.about is not None and self.about.is_ours and self.document is not None:
            return self.document.run.status
        return "with gaps" if self.gaps else "complete"

    def _document(self, incomplete: str | None, out: Path | None) -> Document | None:
        auditor, about, trace = self.auditor, self.about, self.trace
        if auditor is None or about is None:
            return None
        found = self.snapshot() if self.snapshot else auditor.snapshot()
        self.errors = found.errors
        exposed = None
        vocabulary = about.dataset.vocabulary
        if about.is_ours or vocabulary:
            mine = [headline for headline in found.headlines if headline.vantage in auditor.settings.vantages]
            exposed = most_exposed(auditor, mine, self._salt(out), vocabulary)
        odd = [*self.odd, *(trace.store.warnings() if trace else [])]
        damaged = [*self.damaged, *([*trace.store.damage(), *trace.damaged] if trace else [])]
        missing = some([*self.gaps, *([gap("no-local-model")] if auditor.unseen else [])])
        missing += [*([trace.trouble] if trace and trace.trouble else []), *damaged]
        seen, planned = auditor.last_round, auditor.settings.rounds
        partly = f"up to round {seen} of {planned}" if seen < planned else ""
        ended: Ending
        if about.is_ours:
            status, ended = incomplete or "complete", "interrupted" if incomplete else "complete"
            if partly:
                status, ended = f"interrupted at round {seen}", "interrupted"
            if damaged:
                status = ended = "degraded"
        else:
            lost = ["with damaged rounds"] if damaged else ["with gaps"] if missing else []
            short = [*lost, *([partly] if partly else [])]
            status, ended = (f"recorded {', '.join(short)}", "recorded") if short else ("complete", "complete")
            missing += [gap("seen-partly", seen=seen, planned=planned)] if partly else []
        understates = understated(auditor.game)
        warnings = once([*found.warnings, *understates, *odd, *missing])
        found = replace(found, warnings=warnings, notices=[*found.notices, *some(self.notes)])
        info = about.info(auditor, status, max(0.0, time.perf_counter() - self.started))
        names = [attack.name for attack in auditor.settings.attacks]
        tested = kept_for(info.fedaudit, info.versions, names, auditor.settings.confidence)
        info = replace(info, ended=ended, withheld=tuple(self.withheld), selftest=tested)
        for name, asked in auditor.settings.asked.items():
            told = as_notices(named(name).warned(asked, found.headlines, info.guarantee), "warning")
            found = replace(found, warnings=[*told, *found.warnings])
        return Document.of(found, info, missing, exposed, understates)

    def _salt(self, out: Path | None) -> str:
        """The salt of the run, even if its trace is replayed into another folder."""
        folder = self.trace.store.directory if self.trace else out
        return self.salt or (stored_salt(folder) if folder else None) or new_salt(folder)

    def _saved(self, document: Document, out: Path) -> Document:
        """Writes the results. If that fails, it returns them with a warning."""
        assert self.auditor is not None
        store = self.trace.store if self.trace and self.trace.store.directory == out else None
        seal = store.seal if store else partial(journal.seal, out)
        try:
            save_scores(self.auditor.score_parts(), out, flipped_about(self.auditor), seal)
            save_errors(self.errors, out, seal)
            results.save(document, out, seal)
        except OSError as error:
            if self.strict and not (self.about and self.about.is_ours):
                raise
            lost = gap("results-shown-only", folder=str(out), why=error.strerror)
            self.gap(lost)
            return document.lacking(lost)
        return document


def flipped_about(auditor: Auditor) -> str | None:
    """What scores.parquet says of coins: their unit; or that attacks were told coins, which the file cannot show."""
    coins = auditor.settings.asked.get("coins")
    tuned = any("known" in attack.fitted_on for attack in auditor.settings.attacks)
    return None if coins is None else COINS_TOLD if tuned else coins.unit


def some(told: Sequence[Notice]) -> list[Notice]:
    """The first of them, and how many more there are."""
    rest = [Notice("more", told[0].level, {"count": len(told) - TOLD})] if len(told) > TOLD else []
    return [*told[:TOLD], *rest]


def code_of(error: BaseException) -> str:
    return error.code if isinstance(error, FedauditError) else "fault"


def in_words(error: Exception | SystemExit) -> str:
    """An error as text. Other libraries' errors may quote data, so only their type and place are given."""
    if isinstance(error, FedauditError):
        return f"{error.what} [{error.code}]"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return say(error)
