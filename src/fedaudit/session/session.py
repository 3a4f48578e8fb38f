"""One audit of one federation, from the first round to the results. Whoever watches rounds is a client of this:
`run`, `audit`, `import`, a loop of one's own, Flower's mod and strategy.

A fault of the audit (F4), a full disk (F2), a round that is sent twice (F5), is empty (F6) or starts from an older
model (F7) never reaches the training, unless `strict`. What is missing is written into the results.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedaudit.adversary.reductions import flatten, unflatten
from fedaudit.audit import Auditor
from fedaudit.audit.collect import say
from fedaudit.data.outsiders import understated
from fedaudit.errors import FedauditError
from fedaudit.federation.sampling import START
from fedaudit.results import document as results
from fedaudit.results.document import Document
from fedaudit.results.exposure import most_exposed
from fedaudit.session.about import About
from fedaudit.session.events import Event, Finding, Finished, Gap, Listener, Note, RoundDone
from fedaudit.session.recording import Recording, feed, fingerprint, unbroken
from fedaudit.trace.lineage import Place
from fedaudit.trace.segments import digest, digest_of_seen
from fedaudit.trace.store import Store
from fedaudit.types import Audit, ModelKind, Moment, Observation, Round, State, Stored, Vantage

log = logging.getLogger("fedaudit")

NO_LOCAL_MODEL = "no party's own model was observed, so nothing is said about the server"
TOLD = 50  # gaps listed in results; the rest are counted


def nobody(event: Event) -> None:
    """Listens to nothing."""


class Session:
    """Either half may be absent: a server without anybody's records only records; a party without a folder only
    audits. `snapshot`: what was found, where that is more than the auditor's own."""

    def __init__(
        self,
        auditor: Auditor | None,
        trace: Recording | None = None,
        about: About | None = None,
        *,
        strict: bool = False,
        listen: Listener = nobody,
        snapshot: Callable[[], Audit] | None = None,
    ):
        self.auditor, self.trace, self.strict, self.listen = auditor, trace, strict, listen
        self.about = about or (About.foreign("recorded", auditor) if auditor else None)
        self.snapshot = snapshot
        self.gaps: list[str] = []  # what is missing from the audit
        self.notes: list[str] = []  # what happened, and was taken in all the same
        self.odd: list[str] = []  # what was strange about stored rounds
        self.seen: dict[Moment, str] = {}  # digests of all that was exchanged, where no trace keeps them
        self.document: Document | None = None
        self.started = time.perf_counter()
        self.closed = False

    @property
    def last(self) -> int:
        """The last round that was taken in."""
        stored = self.trace.store.lineage.newest if self.trace else 0
        return max([stored, *(moment.round for moment in self.seen)])

    # ------------------------------------------------------------------ what is told

    @contextmanager
    def guard(self, doing: str) -> Iterator[None]:
        """What is inside belongs to the audit: it may fail, and the training does not notice."""
        try:
            yield
        except Exception as error:
            if self.strict:
                raise
            self.gap(f"{doing}: {_in_words(error)}")

    def gap(self, what: str) -> None:
        log.warning("fedaudit: %s", what)
        self.gaps.append(what)
        self.listen(Gap(what))

    def note(self, what: str) -> None:
        log.info("fedaudit: %s", what)
        self.notes.append(what)
        self.listen(Note(what))

    def broke_off(self, error: type[BaseException]) -> None:
        """The training itself failed. Its error must not be hidden behind one of ours."""
        self.gap(f"the training ended with {error.__name__} after round {self.last}")
        self.strict = False

    # ------------------------------------------------------------------ where it goes on

    def resume(self) -> tuple[Moment, State | None]:
        """Bring the audit to where the trace ends; the moment and the model from which training goes on."""
        if self.trace is None or self.auditor is None:
            return START, None
        # Where a run of ours goes on is no part of its results: they are the same as if it had never stopped.
        ours = self.about is not None and self.about.is_ours
        return self.trace.resume(self.auditor, (lambda what: self.listen(Note(what))) if ours else self.note)

    def replay(self, store: Store) -> None:
        """All rounds of a recorded trace, as if they happened now."""
        if self.auditor is not None:
            self.odd += [*store.warnings(), *feed(store, self.auditor)]

    def remark(self, lines: Iterable[str]) -> None:
        """Something strange about stored rounds, for the warnings."""
        self.odd += lines

    def account(self) -> Stored:
        """What happened so far."""
        seen = [[moment.round, moment.probe, digests] for moment, digests in self.seen.items()]
        return {"gaps": list(self.gaps), "notes": list(self.notes), "seen": seen}

    def state(self, account: Stored | None = None) -> tuple[dict[str, NDArray[Any]], str]:
        """Everything that the next round goes on from in another process: arrays, and the rest as JSON."""
        assert self.auditor is not None
        arrays, rest = flatten({"auditor": self.auditor.state(), "account": account or self.account()})
        return arrays, json.dumps(rest)

    def restore(self, arrays: Mapping[str, NDArray[Any]], text: str) -> None:
        assert self.auditor is not None
        kept = unflatten(arrays, json.loads(text))
        self.auditor.restore(kept["auditor"])
        account = kept["account"]
        self.gaps, self.notes = list(account["gaps"]), list(account["notes"])
        self.seen = {Moment(round, probe): digests for round, probe, digests in account["seen"]}

    # ------------------------------------------------------------------ rounds

    def watch(self, rounds: Iterable[Round]) -> None:
        """All rounds as they happen. Ctrl-C ends them early; what was seen is reported."""
        try:
            for round in rounds:
                self.observe(round)
        except KeyboardInterrupt:
            if self.auditor is None or self.auditor.last_round < 2:
                raise  # nothing to report yet

    def observe(self, round: Round) -> None:
        """One round, or one probe, as it ends."""
        with self.guard(f"round {round.index} is missing"):
            start, made = digest_of_seen(round.broadcast), digest_of_seen(round.aggregate)
            place = self.trace.store.lineage.place(round.moment, start, made) if self.trace else Place()
            if self._is_repeated(round, place, start, made):
                return
            seen = self.auditor.measure(round) if self.auditor else None
            with unbroken():
                if self.auditor and not place.opens:
                    seen = self.auditor.absorb(seen, round)
                self._record(round, seen)
            if self.auditor and place.opens:
                self._start_over(self.auditor)
            self._tell(round)

    def _is_repeated(self, round: Round, place: Place, start: str, made: str) -> bool:
        """The first delivery counts; the trace keeps what a later one adds or contradicts."""
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
            self.note(f"round {round.index} came twice, the same both times: counted once")
        else:
            self.gap(f"round {round.index} came again with other content: the first is audited, the second is not")
        return True

    def _record(self, round: Round, seen: Observation | None) -> None:
        if self.trace is not None:
            before = self.trace.trouble
            self.trace.append(round, seen)
            if self.trace.trouble and not before:
                log.warning("fedaudit: %s", self.trace.trouble)
                self.listen(Gap(self.trace.trouble))

    def _start_over(self, former: Auditor) -> None:
        """The server went back to an older model: the audit follows the branch that leads to the newest one."""
        assert self.trace is not None
        self.auditor = Auditor(former.task, former.game, former.settings)
        for line in feed(self.trace.store, self.auditor):
            self.gap(line.rstrip("."))

    def _tell(self, round: Round) -> None:
        if self.auditor is None:
            return
        if not round.probe:
            for (vantage, attack, model), found in self.auditor.history.items():
                if round.index in found:
                    kind: ModelKind = "local" if model == "local" else "global"
                    self.listen(Finding(round.index, Vantage(vantage), attack, kind, found[round.index]))
        self.listen(RoundDone(round.moment, self.auditor.settings.rounds))

    # ------------------------------------------------------------------ the end

    def finish(self, out: Path | None, incomplete: str | None = None) -> Document | None:
        """Results of what was observed, written to `out`. None when there is nothing to say (and `gaps` says why).

        `incomplete`: why the run is not complete though all rounds were seen.
        """
        self.document = None
        with self.guard("there are no results"):
            self.document = self._document(incomplete)
        if self.document is not None and out is not None:
            self.document = self._saved(self.document, out)
        if self.trace is not None:
            right = self.auditor.right_answers() if self.auditor else None
            self.trace.end(self._ended(), right)
            self.trace.store.close()
        self.closed = True
        if self.document is not None:
            with self.guard("whoever waits for the results could not use them"):
                self.listen(Finished(self.document))
        return self.document

    def _ended(self) -> str:
        if self.about is not None and self.about.is_ours and self.document is not None:
            return self.document.run.status
        return "with gaps" if self.gaps else "complete"

    def _document(self, incomplete: str | None) -> Document | None:
        auditor, about, trace = self.auditor, self.about, self.trace
        if auditor is None or about is None:
            return None
        found = self.snapshot() if self.snapshot else auditor.snapshot()
        exposed = None
        if about.is_ours:
            mine = [headline for headline in found.headlines if headline.vantage in auditor.settings.vantages]
            exposed = most_exposed(auditor, mine, fingerprint(auditor.game))
        odd = [*self.odd, *([*trace.store.warnings(), *trace.warnings] if trace else [])]
        missing = sentences([*self.gaps, *([NO_LOCAL_MODEL] if auditor.unseen else [])])
        missing += [trace.trouble] if trace and trace.trouble else []
        seen, planned = auditor.last_round, auditor.settings.rounds
        partly = f"up to round {seen} of {planned}" if seen < planned else ""
        if about.is_ours:
            status = f"interrupted at round {seen}" if partly else incomplete or "complete"
        else:
            short = [*(["with gaps"] if missing else []), *([partly] if partly else [])]
            status = f"recorded {', '.join(short)}" if short else "complete"
            missing += [f"Seen {partly} planned rounds."] if partly else []
        understates = understated(auditor.game)
        warnings = list(dict.fromkeys([*found.warnings, *understates, *odd, *missing]))
        found = replace(found, warnings=warnings, notices=[*found.notices, *sentences(self.notes)])
        info = about.info(auditor, status, time.perf_counter() - self.started)
        return Document.of(found, info, missing, exposed, understates)

    def _saved(self, document: Document, out: Path) -> Document:
        """What cannot be written is still returned, and listed as missing."""
        assert self.auditor is not None
        try:
            results.save_scores(self.auditor.score_parts(), out)
            results.save(document, out)
        except OSError as error:
            if self.strict and not (self.about and self.about.is_ours):
                raise
            lost = f"The results could not be written to {out} ({error.strerror}): what is shown here is all there is."
            self.gap(lost.rstrip("."))
            return replace(document, warnings=[*document.warnings, lost], degraded=[*document.degraded, lost])
        return document


def sentences(lines: list[str]) -> list[str]:
    told = lines[:TOLD]
    if len(lines) > TOLD:
        told = [*told, f"and {len(lines) - TOLD} more like these"]
    return [line[0].upper() + line[1:].rstrip(".") + "." for line in told]


def _in_words(error: Exception) -> str:
    """Our own errors say what to do; a foreign one may quote data, so only its kind and place are told."""
    if isinstance(error, FedauditError):
        return f"{error.what} [{error.code}]"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return say(error)
