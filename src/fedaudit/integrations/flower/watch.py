"""One audit of a party in one round: taken up where the last round left it, asked about a limit, and put away again.

Flower keeps a node's context in the memory of its SuperNode. One that is restarted has forgotten it: a party that had
halted would send again, and its audit would start over and end as if it were whole. So both also go to disk, in a
folder of the party and under the number of the run:

    memory-RUN     arrays and JSON, with a checksum; nothing executable
    halted-RUN     the round in which the party halted; nothing is sent from then on
"""

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from flwr.supercore.utils import get_flwr_home
from numpy.typing import NDArray

from fedaudit.audit import Auditor
from fedaudit.files import write_atomically
from fedaudit.integrations.options import report_into
from fedaudit.results import document as results
from fedaudit.results.document import Withheld
from fedaudit.results.gate import Rule
from fedaudit.results.limits import crossed
from fedaudit.session.recording import About
from fedaudit.session.session import Finished, Session
from fedaudit.trace.segments import DamagedError, read_bytes
from fedaudit.types import ModelKind, Notice, gap, notice

AS_SENT, INSIDE = "fedaudit.as-sent", "fedaudit.inside"
EVERY = 5  # rounds between two results at most: writing them costs a small model about a local epoch
CHECK = 64  # characters of the checksum before the rest


@dataclass(frozen=True)
class Remembered:
    arrays: Mapping[str, NDArray[Any]]
    text: str  # the rest, as JSON
    written: int  # the round after which results were last written


def node_folder() -> Path:
    """Where a party without `out=` keeps its memory: beside what Flower itself keeps of this node."""
    return get_flwr_home() / "fedaudit"


class Memory:
    """Of one audit (`key`) of one party in one run."""

    def __init__(self, context: Context, key: str, folder: Path):
        self.context, self.key = context, key
        self.file, self.halt = folder / f"memory-{context.run_id}", folder / f"halted-{context.run_id}"

    # ------------------------------------------------------------------ in the context

    def recall(self) -> Remembered | None:
        """From the context; None in the first round, and after a restart."""
        state = self.context.state
        if f"{self.key}.json" not in state:
            return None
        kept = state.config_records[f"{self.key}.json"]
        arrays = {name: array.numpy() for name, array in state.array_records[f"{self.key}.arrays"].items()}
        return Remembered(arrays, str(kept["json"]), int(str(kept["written"])))

    def keep(self, what: Remembered) -> Notice | None:
        """In the context and on disk. Says what could not be written."""
        arrays = ArrayRecord({name: Array(value) for name, value in what.arrays.items()})
        self.context.state[f"{self.key}.arrays"] = arrays
        self.context.state[f"{self.key}.json"] = ConfigRecord({"json": what.text, "written": what.written})
        try:
            write_atomically(self.file, packed(what))
            return None
        except OSError as error:
            return gap("memory-unwritten", folder=str(self.file.parent), why=error.strerror)

    # ------------------------------------------------------------------ on disk

    def read(self) -> Remembered | None:
        """What is on disk; DamagedError if that is not what was written."""
        return unpacked(read_bytes(self.file)) if self.file.exists() else None

    @property
    def halted(self) -> int:
        """The round in which this party halted; 0 if it did not."""
        with suppress(FileNotFoundError, NotADirectoryError):
            text = self.halt.read_text(encoding="ascii", errors="replace").strip()
            return int(text) if text.isdecimal() else 1  # whatever it says, somebody halted
        return 0

    def stop(self, round: int) -> None:
        write_atomically(self.halt, f"{round}\n")


def packed(what: Remembered) -> bytes:
    about = json.dumps({"names": list(what.arrays), "json": what.text, "written": what.written})
    buffer = io.BytesIO()
    numbered = {f"{place}": value for place, value in enumerate(what.arrays.values())}
    np.savez(buffer, allow_pickle=False, about=np.frombuffer(about.encode(), np.uint8), **numbered)
    blob = buffer.getvalue()
    return hashlib.sha256(blob).hexdigest().encode() + blob


def unpacked(blob: bytes) -> Remembered:
    check, rest = blob[:CHECK], blob[CHECK:]
    if hashlib.sha256(rest).hexdigest().encode() != check:
        raise DamagedError("has another checksum than its content")
    with np.load(io.BytesIO(rest), allow_pickle=False) as found:
        about = json.loads(found["about"].tobytes())
        arrays = {name: found[f"{place}"] for place, name in enumerate(about["names"])}
    return Remembered(arrays, about["json"], about["written"])


class Watch:
    """Of what leaves (AS_SENT), or of what would have left without defences (INSIDE)."""

    def __init__(self, key: str, auditor: Auditor, out: Path | None, memory: Memory, strict: bool):
        self.key, self.auditor, self.out, self.memory = key, auditor, out, memory
        (self.party,), (self.vantage,) = auditor.game.parties, auditor.settings.vantages
        about = About.foreign(self.party, auditor)
        self.session = Session(auditor, None, about, strict=strict, listen=report_into(out))
        assert auditor.task is not None
        self.like, self.base = auditor.task.initial(0), auditor.task.base
        self.written = 0  # the round after which results were last written

    @property
    def due(self) -> bool:
        """Is it time for results? From the second round on, about ten times in a plan or more, and at its end."""
        planned, last = self.auditor.settings.rounds, self.auditor.last_round
        pause = min(EVERY, -(-planned // 10)) if self.written else 2
        return last >= planned or last - self.written >= pause

    # ------------------------------------------------------------------ from round to round

    def tell(self, gaps: Iterable[Notice], withheld: Iterable[Withheld]) -> None:
        """What became of rounds in which there was no audit to tell."""
        for told in gaps:
            if told not in self.session.gaps:
                self.session.gap(told)
        for update in withheld:
            self.session.withhold(update)

    def load(self, index: int) -> None:
        """Go on from where the last round left it; after a restart of the node from what is on disk."""
        if (kept := self.memory.recall()) is not None:
            self._restore(kept)
            return
        try:
            kept = self.memory.read()
        except DamagedError as error:
            self.session.gap(gap("memory-lost", why=str(error), round=index))
            return
        if kept is not None:
            self._restore(kept)
            self.session.note(notice("node-restarted", round=self.session.last))
        elif index > 1:
            self.session.note(notice("first-seen", round=index))

    def _restore(self, kept: Remembered) -> None:
        self.session.restore(kept.arrays, kept.text)
        self.written = kept.written

    def save(self, write: bool) -> None:
        """Keeps what the next round goes on from; what interim results lack is none of its business."""
        account = self.session.account()
        try:
            if write and self.out is not None:
                self.written = self.auditor.last_round
                self.session.finish(self.out)
        finally:
            arrays, text = self.session.state(account)
            trouble = self.memory.keep(Remembered(arrays, text, self.written))
            if trouble and trouble not in self.session.gaps:
                self.session.gap(trouble)
                arrays, text = self.session.state()
                self.memory.keep(Remembered(arrays, text, self.written))

    def amend(self) -> None:
        """Adds to results that are written what was withheld since, where they cannot be computed again."""
        if self.out is not None and self.written:
            found = results.load(self.out)
            found = replace(found, run=replace(found.run, withheld=tuple(self.session.withheld)))
            results.save(found, self.out)
            self.session.listen(Finished(found))

    # ------------------------------------------------------------------ the party's limit

    def crossing(self, rule: Rule | None, index: int, model: ModelKind) -> Withheld | None:
        """Which attack crosses a limit in this round, with its figures."""
        found = None if rule is None else crossed(rule, self.auditor.after(index, self.vantage, model, rule.text))
        if rule is None or found is None:
            return None
        figures = {rule.metric: found.decisive[rule.metric]}
        return Withheld(index, "limit crossed", onwards=True, rule=rule.text, attack=found.attack, estimates=figures)

    def unchecked(self, rule: Rule | None, index: int, model: ModelKind) -> Notice | None:
        """Why nobody can say whether a limit is crossed, though enough rounds were seen to say so."""
        auditor = self.auditor

        def because(cause: str, attack: str = "", why: str = "", rounds: int = 0) -> Notice:
            limit = None if rule is None else rule.text
            return gap("limit-unchecked", round=index, limit=limit, cause=cause, attack=attack, why=why, rounds=rounds)

        if rule is None:
            return None if auditor.deciding(self.vantage) else because("all-failed")
        settings = auditor.settings
        attack = settings.primary(self.vantage, settings.left_out_of.get(rule.text, ()))
        if attack is None:
            return because("nobody")
        if attack.name in auditor.failed:
            return because("failed", attack.name, auditor.failed[attack.name])
        said = auditor.after(index, self.vantage, model, rule.text)
        estimate = next((one.decisive.get(rule.metric) for one in said if one.primary), None)
        if estimate is not None:
            return None if estimate.low is not None else because("no-interval", why=estimate.reason or "")
        seen = auditor.outlooks.sight(self.vantage, model, self.party).rounds
        needed = getattr(attack, "degree", 1) + 1  # one point has no slope, two have no curvature
        return None if seen < needed else because("no-value", attack.name, rounds=seen)
