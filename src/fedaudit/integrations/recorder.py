"""Rounds of a training that is not ours: taken in one by one, whatever goes wrong said at the end, nothing let out.

A fault of the audit (F4), a full disk (F2), a round that is sent twice (F5), is empty (F6), or starts from an older
model (F7) never reaches the training, unless `strict`. What is missing is written into results and report.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from fedaudit.audit import Auditor
from fedaudit.config.arguments import checked
from fedaudit.config.schema import Config
from fedaudit.data.twins import twins
from fedaudit.errors import FedauditError
from fedaudit.results import document as results
from fedaudit.results.document import Document, RunInfo
from fedaudit.session.recording import Recording, feed, fingerprint
from fedaudit.session.run import Staged, describe, origin
from fedaudit.trace.lineage import Place
from fedaudit.trace.segments import digest, digest_of_seen
from fedaudit.types import Dataset, Observation, Round

log = logging.getLogger("fedaudit")

NO_LOCAL_MODEL = "no party's own model was observed, so nothing is said about the server"
TOLD = 50  # gaps listed in a report; the rest are counted

Keep = Literal["signals", "snapshots"]


class Recorder:
    """Feeds an auditor and a trace with rounds, and keeps an account of what it could not feed them with.

    Either may be absent: a server without anybody's records only records; a party without a folder only audits.
    """

    def __init__(self, auditor: Auditor | None, trace: Recording | None = None, *, strict: bool = False):
        self.auditor, self.trace, self.strict = auditor, trace, strict
        self.gaps: list[str] = []  # what is missing from the audit
        self.notes: list[str] = []  # what happened, and was taken in all the same
        self.seen: dict[int, str] = {}  # round -> digests of all that was exchanged in it
        self.document: Document | None = None
        self.started = time.perf_counter()
        self.closed = False
        if trace is not None and auditor is not None:
            trace.resume(auditor, self.note)

    @property
    def last(self) -> int:
        """The last round that was taken in."""
        return max([*self.seen, self.trace.store.lineage.newest if self.trace else 0], default=0)

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

    def note(self, what: str) -> None:
        log.info("fedaudit: %s", what)
        self.notes.append(what)

    def broke_off(self, error: type[BaseException]) -> None:
        """The training itself failed. Its error must not be hidden behind one of ours."""
        self.gap(f"the training ended with {error.__name__} after round {self.last}")
        self.strict = False

    def account(self) -> dict[str, Any]:
        """What happened so far, for whoever goes on with it."""
        return {"gaps": list(self.gaps), "notes": list(self.notes), "seen": {str(r): d for r, d in self.seen.items()}}

    def take_over(self, account: Mapping[str, Any]) -> None:
        self.gaps, self.notes = list(account["gaps"]), list(account["notes"])
        self.seen = {int(round): digests for round, digests in account["seen"].items()}

    # ------------------------------------------------------------------ one round

    def observe(self, round: Round) -> None:
        with self.guard(f"round {round.index} is missing"):
            start, made = digest_of_seen(round.broadcast), digest_of_seen(round.aggregate)
            place = self.trace.store.lineage.place(round.moment, start, made) if self.trace else Place()
            if self._is_repeated(round, place, start, made):
                return
            seen = self.auditor.measure(round) if self.auditor else None
            if self.auditor and not place.opens:
                seen = self.auditor.absorb(seen, round)
            self._record(round, seen)
            if self.auditor and place.opens:
                self._start_over(self.auditor)

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
            before = self.seen.setdefault(round.index, whole)
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

    def _start_over(self, former: Auditor) -> None:
        """The server went back to an older model: the audit follows the branch that leads to the newest one."""
        assert self.trace is not None
        self.auditor = Auditor(former.task, former.game, former.settings)
        for line in feed(self.trace.store, self.auditor):
            self.gap(line.rstrip("."))

    # ------------------------------------------------------------------ the end

    def finish(self, name: str, out: Path | None) -> Document | None:
        """Results and report of what was observed. None when there is nothing to say (and `gaps` says why)."""
        self.document = None
        with self.guard("there are no results"):
            self.document = self._document(name)
        if self.document is not None and out is not None:
            with self.guard(f"results could not be written to {out}"):
                self._write(self.document, out)
        if self.trace is not None:
            self.trace.end(
                "with gaps" if self.gaps else "complete", self.auditor.right_answers() if self.auditor else None
            )
            self.trace.store.close()
        self.closed = True
        return self.document

    def _document(self, name: str) -> Document | None:
        if self.auditor is None:
            return None
        found = self.auditor.snapshot()
        lost = [self.trace.trouble] if self.trace and self.trace.trouble else []
        odd = [*self.trace.store.warnings(), *self.trace.warnings] if self.trace else []
        unseen = [NO_LOCAL_MODEL] if self.auditor.unseen else []
        missing = [*sentences([*self.gaps, *unseen]), *lost]
        seen, planned = self.auditor.last_round, self.auditor.settings.rounds
        partly = f"up to round {seen} of {planned}" if seen < planned else ""
        short = [*(["with gaps"] if missing else []), *([partly] if partly else [])]
        about = replace(self._about(name), status=f"recorded {', '.join(short)}" if short else "complete")
        found = replace(
            found,
            warnings=list(dict.fromkeys([*found.warnings, *twins(self.auditor.game), *missing, *odd])),
            notices=[*found.notices, *sentences(self.notes)],
        )
        return Document.of(found, about, [*missing, *([f"Seen {partly} planned rounds."] if partly else [])])

    def _about(self, name: str) -> RunInfo:
        """The `run` part of results.json, for a training that no configuration of ours describes."""
        assert self.auditor is not None
        game, task, settings = self.auditor.game, self.auditor.task, self.auditor.settings
        dataset = Dataset(name, game.candidates.rows, task.classes if task else 0)
        seconds = time.perf_counter() - self.started
        about = describe(Staged(Config(), dataset, game, settings), self.auditor, name, seconds)
        return replace(about, config={}, config_hash="", seed=settings.seed)

    def _write(self, document: Document, out: Path) -> None:
        from fedaudit.report.html import write

        assert self.auditor is not None
        results.save_scores(self.auditor.score_parts(), out)
        results.save(document, out)
        write(document, out / results.REPORT)


def open_trace(out: Path, auditor: Auditor | None, keep: Keep) -> Recording:
    """A new trace in `out`, or the one that is there, if it is of the same records: a restarted training goes on."""
    manifest: dict[str, Any] = {"keep": checked(keep=keep).audit.keep, "config": {}, "guarantee": None}
    if auditor is not None:
        manifest |= origin(Recorder(auditor)._about(out.name))
        manifest |= {
            "attacks": [attack.name for attack in auditor.settings.attacks],
            "notices": list(auditor.settings.notices),
            "data": fingerprint(auditor.game),
        }
    return Recording.start(out, manifest, force=False)


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
    return f"{type(error).__name__} in {_place_of(error)}"


def _place_of(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "an unknown place" if trace is None else f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
