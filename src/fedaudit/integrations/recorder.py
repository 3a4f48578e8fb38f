"""Rounds of a training that is not ours: taken in one by one, whatever goes wrong said at the end, nothing let out.

A fault of the audit (F4), a full disk (F2), a round that is sent twice (F5), is empty (F6), or starts from an older
model (F7) never reaches the training, unless `strict`. What is missing is written into results and report.
"""

import hashlib
import json
import logging
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit import __version__, results
from fedaudit.audit import Auditor
from fedaudit.errors import FedauditError
from fedaudit.types import Game, Role, Round, State, Vantage

log = logging.getLogger("fedaudit")

TOLD = 50  # gaps listed in a report; the rest are counted


class Recorder:
    """Feeds an auditor with rounds, and keeps an account of what it could not feed it with."""

    def __init__(self, auditor: Auditor | None, out: Path | None, *, strict: bool = False, lineage: bool = True):
        self.auditor, self.out, self.strict = auditor, out, strict
        self.lineage = lineage  # False where only the models that arrive are seen, not what becomes of them
        self.gaps: list[str] = []  # what is missing from the audit
        self.notes: list[str] = []  # what happened, and was taken in all the same
        self.seen: dict[int, dict[str, str]] = {}  # round -> who sent -> digest
        self.starts: dict[int, str] = {}  # round -> digest of the model it started from
        self.aggregates: dict[str, int] = {}  # digest of a model -> the last round that made it
        self.document: dict[str, Any] | None = None
        self.started = time.perf_counter()

    @property
    def last(self) -> int:
        return max(self.seen, default=0)

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

    def observe(self, round: Round) -> None:
        """One round, in the order in which the training makes them."""
        with self.guard(f"round {round.index} is missing"):
            if self._is_new(round):
                if self.lineage:
                    self._follow(round)
                if self.auditor is not None:
                    self.auditor.observe(round)

    def _is_new(self, round: Round) -> bool:
        """False for a round that was seen before: the first delivery counts."""
        digests = {name: digest(trained.state) for name, trained in round.sent.items()}
        digests[""] = digest(round.aggregate)
        before = self.seen.get(round.index)
        if before is None:
            self.seen[round.index] = digests
            return True
        if before == digests:
            self.note(f"round {round.index} came twice, the same both times: counted once")
        else:
            self.gap(f"round {round.index} came again with other content: the first is audited, the second is not")
        return False

    def _follow(self, round: Round) -> None:
        """Does a round start where the last one ended?"""
        start, made = digest(round.broadcast), digest(round.aggregate)
        self.starts[round.index] = start
        origin = self.aggregates.get(start)
        if self.aggregates and origin != max(self.aggregates.values()):
            from_where = f"the model after round {origin}" if origin else "a model that was not seen before"
            self.note(f"round {round.index} starts from {from_where}, not from the last one: a new branch")
        self.aggregates[made] = round.index

    # ------------------------------------------------------------------ the end

    def finish(self, name: str, extra: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Results and report of what was observed. None when there is nothing to say (and `gaps` says why)."""
        with self.guard("there are no results"):
            self.document = self._document(name, extra or {})
        if self.document is not None and self.out is not None:
            with self.guard(f"results could not be written to {self.out}"):
                self._write(self.document, self.out)
        return self.document

    def _document(self, name: str, extra: dict[str, Any]) -> dict[str, Any] | None:
        if self.auditor is None:
            return None
        self._drop_what_was_never_seen(self.auditor)
        found = self.auditor.finish()
        run = describe(self.auditor, name, time.perf_counter() - self.started) | extra
        run["status"] = "recorded with gaps" if self.gaps else "complete"
        told = self.gaps[:TOLD]
        if len(self.gaps) > TOLD:
            told.append(f"and {len(self.gaps) - TOLD} more like these")
        lines = [line[0].upper() + line[1:] + "." for line in told]
        notes = [line[0].upper() + line[1:] + "." for line in self.notes[:TOLD]]
        found = replace(found, warnings=[*found.warnings, *lines], notices=[*found.notices, *notes])
        return results.as_document(found, run)

    def _drop_what_was_never_seen(self, auditor: Auditor) -> None:
        """Without any local model there is nothing to say about a server that sees local models."""
        if not auditor.each or any(panel.epoch_seconds for panel in auditor.each.values()):
            return
        self.gap("no party's own model was observed, so nothing is said about the server")
        rest = tuple(v for v in auditor.settings.vantages if v is not Vantage.SERVER)
        auditor.settings = replace(auditor.settings, vantages=rest or (Vantage.CLIENT,))
        auditor.each = {}

    def _write(self, document: dict[str, Any], out: Path) -> None:
        from fedaudit.report.html import write

        results.save(document, out)
        if self.auditor is not None:
            results.save_scores(self.auditor.score_table(), out)
        write(document, out / results.REPORT)


def digest(state: State) -> str:
    """A model's identity: names, types, shapes and bits, whatever the order of names."""
    found = hashlib.sha256()
    for name in sorted(state):
        array = np.asarray(state[name], order="C")
        found.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        found.update(array.tobytes())
    return found.hexdigest()


def describe(auditor: Auditor, name: str, seconds: float) -> dict[str, Any]:
    """The `run` part of results.json for a training that no configuration of ours describes."""
    game, settings = auditor.game, auditor.settings
    rows = game.candidates.rows
    subjects = None if rows.subject is None else len(np.unique(rows.subject))
    return {
        "name": name,
        "fedaudit": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": {},
        "config_hash": "",
        "seed": settings.seed,
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("torch", "numpy", "scipy")}},
        "rounds": auditor.last_round,
        "seconds": float(f"{seconds:.3g}"),
        "data": {
            "name": name,
            "records": len(rows),
            "classes": auditor.task.classes,
            "subjects": subjects,
            "input_shape": list(rows.x.shape[1:]),
        },
        "parties": [{"name": party, **_sizes(game, party)} for party in game.parties],
        "guarantee": None,
    }


def _sizes(game: Game, party: str) -> dict[str, int]:
    mine = game.candidates.party == party
    names = {Role.MEMBER: "members", Role.EVALUATION: "evaluation", Role.CALIBRATION: "calibration"}
    return {name: int((game.truth.mask(role) & mine).sum()) for role, name in names.items()}


def _in_words(error: Exception) -> str:
    """Our own errors say what to do; a foreign one may quote data, so only its kind is told."""
    if isinstance(error, FedauditError):
        return f"{error.what} [{error.code}]"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__} in {_place(error)}"


def _place(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "an unknown place" if trace is None else f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
