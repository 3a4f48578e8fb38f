"""A party audits what leaves it, before it leaves, whichever framework carries it.

`SelfAudit` is what a Flower mod, an NVIDIA FLARE filter and the guard of a Flower node have in common. A host says
where its party sits (`Seat`), brings the model that arrived (`admit`) and the one that is about to leave (`release`),
and turns a refusal into whatever it sends in place of an update.

The model that arrived is looked at before it is trained (`questions.update.incoming`): one that looks prepared to give
single records away is told in log and report and, with `incoming="refuse"`, not trained.

Unless `strict` is set, nothing here stops the training, wrong use included: log and report say from the first round on
that nothing is audited. The exception is a party with `halt_if` whose limit can never be checked: it asked for
protection and sends nothing; so does one with `incoming="refuse"` in a round in which the model could not be looked at.
Results are also written during the run, because a party does not know which round is its
last.

Hosts keep a party's state in the memory of a process. One that is restarted has forgotten it: a party that had halted
would send again, and its audit would start over and end as if it were whole. So both also go to disk, in a folder of
the party and under the name of the run:

    memory-RUN     arrays and JSON, with a checksum; nothing executable
    halted-RUN     the round in which the party halted; nothing is sent from then on
    incoming-RUN   what the models that came in said: sums with random signs, as JSON (unless incoming = "ignore")
"""

import hashlib
import io
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit import Auditor, Settings
from fedaudit.audit.costs import an_epoch
from fedaudit.audit.settings import Most
from fedaudit.errors import FedauditError
from fedaudit.files import write_atomically
from fedaudit.integrations.options import Model, PartyOptions, as_task, checked, report_into
from fedaudit.integrations.outgoing import (
    NO_MODEL,
    NoModelError,
    Sends,
    added,
    check_model,
    checked_sends,
    tell_no_better,
)
from fedaudit.integrations.plain import matched
from fedaudit.integrations.recorder import is_about, report_unaudited, tell_unaudited
from fedaudit.questions.update.incoming import Incoming, layers_of, secret_of
from fedaudit.results import document as results
from fedaudit.results.document import Withheld
from fedaudit.results.gate import Rule
from fedaudit.results.limits import UndecidableError, crossed, left_out, party_rule, rates
from fedaudit.results.schema import plain, read
from fedaudit.session.assemble import Request, settled
from fedaudit.session.recording import About
from fedaudit.session.session import Finished, Session, in_words
from fedaudit.stats.wording import fpr_of
from fedaudit.trace import journal
from fedaudit.trace.segments import DamagedError, read_bytes
from fedaudit.trace.store import safe_name, told_of
from fedaudit.types import (
    UNSEEN,
    Estimate,
    Game,
    ModelKind,
    Moment,
    Notice,
    Round,
    State,
    Trained,
    Vantage,
    as_notices,
    gap,
    notice,
    warning,
)
from fedaudit.words import line, suspected

HALTED, UNAUDITED = "fedaudit.halted", "fedaudit.unaudited"
WITHHELD = "fedaudit: this party withholds its update"
WITHHELD_CODE = "unaudited"  # of an update that a strict party does not send
REFUSED_CODE = "incoming"  # of a model that a party does not train
INCOMING = "fedaudit.incoming"  # what earlier models said
Reaction = Literal["ignore", "warn", "refuse"]
AS_SENT, INSIDE = "fedaudit.as-sent", "fedaudit.inside"
WITHIN = {AS_SENT: "", INSIDE: "without-defences"}  # where in its folder each audit of a party writes
EVERY = 5  # rounds between two results at most: writing them costs a small model about a local epoch
CHECK = 64  # characters of the checksum before the rest


@dataclass(frozen=True)
class Remembered:
    arrays: Mapping[str, NDArray[Any]]
    text: str  # the rest, as JSON
    written: int  # the round after which results were last written


class Shelf(Protocol):
    """What a host keeps for a party from one round to the next: values and arrays, under names."""

    def values(self, key: str) -> Mapping[str, Any] | None: ...

    def arrays(self, key: str) -> Mapping[str, NDArray[Any]]: ...

    def keep(self, key: str, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> None: ...


@dataclass
class OwnShelf:
    """In the memory of this process, for hosts whose process lives as long as the run."""

    kept: dict[str, tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]] = field(default_factory=dict)

    def values(self, key: str) -> Mapping[str, Any] | None:
        return self.kept[key][0] if key in self.kept else None

    def arrays(self, key: str) -> Mapping[str, NDArray[Any]]:
        return self.kept[key][1]

    def keep(self, key: str, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> None:
        self.kept[key] = dict(values), dict(arrays or {})


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A party's place in one run of its host."""

    run: str
    node: str
    shelf: Shelf
    game: Callable[[], Game]
    home: Path  # for the memory of a party without a folder
    folder: Path | None = None  # for the results of all parties on this machine, each in a folder of its own
    rounds: object = None  # as planned, if the host tells
    local_epochs: object = None  # that a round takes, if the host tells

    @property
    def begun(self) -> bool:
        """Was a round of this party ever audited?"""
        return self.shelf.values(AS_SENT) is not None

    @property
    def told(self) -> tuple[list[Notice], list[Withheld]]:
        """Rounds that were not audited, and why; and updates that were withheld for it."""
        kept = self.shelf.values(UNAUDITED) or {}
        notices = as_notices(json.loads(str(one)) for one in kept.get("told", []))
        return [*notices], [read(Withheld, json.loads(str(update))) for update in kept.get("withheld", [])]

    def of_party(self, party: str) -> Path | None:
        """Where its results go, if anywhere."""
        return None if self.folder is None else self.folder / _folder_name(party)

    def memory(self, key: str, party: str) -> "Memory":
        """Inside the party's folder; in one of its own for what would have left without defences."""
        return Memory(self, key, (self.of_party(party) or self.home / _folder_name(party)) / WITHIN[key])


class Memory:
    """Of one audit (`key`) of one party in one run."""

    def __init__(self, seat: Seat, key: str, folder: Path):
        self.shelf, self.key = seat.shelf, key
        self.file, self.halt = folder / f"memory-{seat.run}", folder / f"halted-{seat.run}"
        self.came = folder / f"incoming-{seat.run}"

    # ------------------------------------------------------------------ in the host

    def recall(self) -> Remembered | None:
        """From the host; None in the first round, and after a restart."""
        kept = self.shelf.values(self.key)
        if kept is None:
            return None
        return Remembered(self.shelf.arrays(self.key), str(kept["json"]), int(str(kept["written"])))

    def keep(self, what: Remembered) -> Notice | None:
        """In the host and on disk. Says what could not be written."""
        self.shelf.keep(self.key, {"json": what.text, "written": what.written}, what.arrays)
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

    def seen(self) -> Mapping[str, Any]:
        """What the models that came in said, in an earlier process."""
        with suppress(OSError, ValueError):
            found = json.loads(self.came.read_text(encoding="ascii"))
            return found if isinstance(found, dict) else {}
        return {}

    def saw(self, models: Mapping[str, Any]) -> None:
        write_atomically(self.came, json.dumps(models))


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

    def __init__(
        self,
        key: str,
        auditor: Auditor,
        out: Path | None,
        memory: Memory,
        *,
        strict: bool,
        vocabulary: Sequence[str] = (),
    ):
        self.key, self.auditor, self.out, self.memory = key, auditor, out, memory
        (self.party,), (self.vantage,) = auditor.game.parties, auditor.settings.vantages
        about = About.foreign(self.party, auditor, vocabulary)
        self.session = Session(auditor, None, about, strict=strict, listen=report_into(out))
        assert auditor.task is not None
        self.like, self._base = auditor.task.initial(0), auditor.task.base
        self.written = 0  # the round after which results were last written

    @property
    def due(self) -> bool:
        """Is it time for results? From the second round on, about ten times in a plan or more, and at its end."""
        planned, last = self.auditor.settings.rounds, self.auditor.last_round
        pause = min(EVERY, -(-planned // 10)) if self.written else 2
        return last >= planned or last - self.written >= pause

    def matched(self, given: State, where: str) -> State:
        """A state from elsewhere, as the audited model's."""
        return matched(given, self.like, where, self._base)

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
            lost = [notice("never-left", round=round) for round in self._broken_off(index)]
            for told in lost:
                if told not in self.session.notes:
                    self.session.note(told)
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

    def priced(self, took: float, epoch: float) -> str:
        """What the audit of the first round cost, and what makes it cheaper."""
        said = f"the audit of this round took {took:.3g} s"
        if epoch <= 0:
            return said
        said += f", {took / epoch:.2g} local epochs of {epoch:.3g} s"
        if dropped := self.auditor.dropped:
            dear = ", ".join(f"{name} ({cost:.2g})" for name, cost in dropped.items())
            said += f"; the next rounds are audited without what costs too much: {dear}"
        if took > epoch:
            said += "; max_cost=1 keeps the strongest attacks that take one local epoch a round together"
        return said

    def begin(self, index: int) -> None:
        """For whoever restarts this party: a round that was begun, and did not come out of its training, never left."""
        self._tell_watchers(lambda: {"event": "begun", "round": index, "run": self.memory.file.name})

    def came_out(self, index: int) -> None:
        """It was trained, and left, or was withheld by a decision that was told."""
        self._tell_watchers(lambda: {"event": "came out", "round": index, "run": self.memory.file.name})

    def _broken_off(self, index: int) -> list[int]:
        """The rounds before this one that an earlier process began, and that did not come out of their training."""
        if self.out is None:
            return []
        told = journal.read(self.out / journal.JOURNAL).events
        rounds = {
            kind: {e["round"] for e in told if (e["event"], e.get("run")) == (kind, self.memory.file.name)}
            for kind in ("begun", "came out")
        }
        return sorted(round for round in rounds["begun"] - rounds["came out"] if round < index)

    def record(self, round: Round, first: bool) -> None:
        """For those who watch the folder: how far this party is, and what was found by then."""
        settings, found = self.auditor.settings, self.auditor.risks(round.index)
        about = {"planned": settings.rounds, "confidence": settings.confidence}
        self._tell_watchers(lambda: told_of(round, found, first=first, **about))

    def end(self) -> None:
        """The same: this party is done, or sends nothing from now on."""
        last, halted = self.session.last, self.session.halted
        if halted or self.auditor.last_round >= self.auditor.settings.rounds:
            status = f"nothing is sent since round {last}" if halted else "complete"
            self._tell_watchers(lambda: {"event": "ended", "round": last, "status": status})

    def _tell_watchers(self, event: Callable[[], journal.Event]) -> None:
        """Nothing of the audit depends on it."""
        try:
            if self.out is not None:
                journal.record(self.out, event())
        except (OSError, FedauditError) as error:
            logging.getLogger("fedaudit").warning("fedaudit: whoever watches %s is not told: %s", self.out, error)

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
        heard = [(one, found) for one in said if (found := one.decisive.get(rule.metric))]
        for one, found in heard:
            if found.doubt:
                return because("doubted", one.attack, found.reason or "")
        estimate = next((found for one, found in heard if one.primary), None)
        if estimate is not None:
            return None if estimate.low is not None else because("no-interval", why=estimate.reason or "")
        seen = auditor.outlooks.sight(self.vantage, model, self.party).rounds
        needed = getattr(attack, "degree", 1) + 1  # one point has no slope, two have no curvature
        return None if seen < needed else because("no-value", attack.name, rounds=seen)


# ------------------------------------------------------------------ a party's audit, in any host


@dataclass(frozen=True)
class Refused:
    """Nothing leaves. As text, what the server may be told: at most the code of the reason. Counts, labels and rows in
    the text of an error would be about the party's records."""

    code: str = ""

    def __str__(self) -> str:
        return WITHHELD + f" [{self.code}]" * bool(self.code)


@dataclass(frozen=True)
class Admitted:
    """A round that is audited: its audit so far, and the model that arrived."""

    watch: Watch
    received: State


class SelfAudit:
    """`log`: where the owner of this party looks, which depends on the host."""

    def __init__(
        self,
        model: Model,
        log: logging.Logger,
        *,
        rounds: int | None = None,
        halt_if: str | None = None,
        warn_if: str | None = None,
        incoming: Reaction = "warn",
        **options: Unpack[PartyOptions],
    ):
        self.model, self.log, self.incoming = model, log, incoming
        self.rounds, self.strict, self.protects = rounds, options.get("strict", False), halt_if is not None
        self.sends: Sends = "weights"
        self.halt_if: Rule | None = None
        self.warn_if: Rule | None = None
        self.options = options
        self.wrong: FedauditError | None = None  # what is wrong with these arguments, told in every round
        try:
            if incoming not in get_args(Reaction):
                what = f"incoming={incoming!r}: what is to be done about a model that looks prepared?"
                raise FedauditError("bad-value", what, f"Give one of {', '.join(get_args(Reaction))}.")
            self.sends = checked_sends(options.get("sends", "weights"))
            self.halt_if, self.warn_if = party_rule(halt_if), party_rule(warn_if)
            # How many rounds are planned may come from the run; two are the fewest that say anything.
            asked = checked(2 if rounds is None else rounds, **options)
            wanted = sorted({*(asked.audit.fpr or ()), *rates([self.halt_if, self.warn_if])})
            self.options = PartyOptions(**{**options, "fpr": wanted or None})
        except FedauditError as error:
            if self.strict:
                raise
            self.wrong = error
            log.error("fedaudit: %s. Nothing will be audited%s", error, ", or sent." if self.protects else ".")
        # By run, node and vantage: trying out the attacks takes a large model about a local epoch.
        self._suited: dict[tuple[str, str, Vantage], Settings | UndecidableError] = {}
        self._last: tuple[str, str] | None = None  # run and node
        self._ready: dict[tuple[str, Vantage], Auditor] = {}  # theirs, before the first round

    def refused(self, seat: Seat) -> Refused | None:
        """Did this party halt, as far as its host remembers?"""
        halted = seat.shelf.values(HALTED)
        return None if halted is None else Refused(str(halted.get("code", "")))

    def admit(
        self, seat: Seat, vantage: Vantage, round: int, received: Callable[[Watch], State]
    ) -> Admitted | Refused | None:
        """Before a round; None if it goes on without an audit. `received` reads the model that arrived, by
        `Watch.matched`."""
        if refused := self.refused(seat):
            return refused
        try:
            watch = self._open(AS_SENT, seat, vantage, round)
            if halted := watch.memory.halted:
                self.log.warning("fedaudit: this party halted in round %d; nothing is sent", halted)
                seat.shelf.keep(HALTED, {"round": halted})
                return Refused()
            arrived = received(watch)
            self._look_at(arrived, seat, watch, round or watch.session.last + 1)
            watch.begin(round or watch.session.last + 1)
            return Admitted(watch, arrived)
        except Exception as error:
            withheld = self.strict or self.incoming == "refuse" or (self.protects and not seat.begun)
            self._not_audited(seat, round, error, withheld)
            return Refused(_code(error)) if withheld else None

    def release(
        self,
        seat: Seat,
        admitted: Admitted,
        index: int,
        leaves: Callable[[Watch], State | None],
        *,
        inner: Callable[[Watch], State] | None = None,
        sends: Sends | None = None,
        elapsed: float,
        epoch_seconds: float | None = None,
    ) -> Refused | None:
        """After a round: may what `leaves` do so? `leaves` reads the update, or says None where it is masked; `inner`
        reads what it was before the defences of this party; `sends`: what it is, where the host tells; `elapsed`:
        seconds that its training took; `epoch_seconds`: that one local epoch took, if the training says so.

        What cannot be read as the model, or is none, does not leave a party with a limit: else whoever writes an app
        could walk around the limit by sending weights in another form."""
        watch, received, fault = admitted.watch, admitted.received, None
        seconds = an_epoch(elapsed, watch.auditor.settings.local_epochs, epoch_seconds)
        sends, closed = sends or self.sends, self.strict or self.protects
        try:
            sent = leaves(watch)
            sent = None if sent is None else self._model(watch, received, sent, sends, index)
            closed = self.strict
            self._observe(watch, index, received, sent, seconds)
        except Exception as error:
            fault = error
            self._not_audited(seat, index, error, closed, watch)
        try:
            if inner is not None:
                other = self._open(INSIDE, seat, Vantage.SERVER, index)
                self._observe(other, index, received, self._model(other, received, inner(other), sends, index), seconds)
        except Exception as error:
            fault = fault or error
            self._not_audited(seat, index, error, self.strict, watch)
        watch.came_out(index)
        if watch.session.halted:
            self._halt(seat, watch, index)
            return Refused()
        return Refused(_code(fault)) if fault and closed else None

    # ------------------------------------------------------------------ one round

    @staticmethod
    def _model(watch: Watch, received: State, sent: State, sends: Sends, index: int) -> State:
        """What is sent, as a model; raises where it is none."""
        state, game = added(received, sent) if sends == "changes" else sent, watch.auditor.game
        members, where = game.members(watch.party), f"round {index}"
        better = check_model(received, state, task=watch.auditor.task, members=members, sends=sends, where=where)
        if not better and watch.key == AS_SENT:
            tell_no_better(watch.session, index, watch.party)
        return state

    def _look_at(self, arrived: State, seat: Seat, watch: Watch, index: int) -> None:
        """Does the model look prepared to give single records away? Raises where it is refused."""
        if self.incoming == "ignore":
            return
        own, task = watch.auditor.game.members(watch.party), watch.auditor.task
        kept = seat.shelf.values(INCOMING) or watch.memory.seen()
        seen = Incoming.of(kept) if kept else Incoming(secret=secret_of(own.x))
        alarms, after = seen.look(arrived, layers_of(task, arrived, own.x))
        seat.shelf.keep(INCOMING, after.plain())
        try:
            watch.memory.saw(after.plain())
        except OSError as error:
            self.log.error("fedaudit: what models came in is not on disk (%s)", error.strerror)
        if alarms:
            found = [alarm.plain() for alarm in alarms]
            if self.incoming == "refuse":
                what = f"the model that came in looks prepared to give single records away: {suspected(found)}"
                raise FedauditError(REFUSED_CODE, what, "Ask whoever runs the server what it is.")
            told = warning("update-incoming", round=index, alarms=found)
            self.log.warning("fedaudit: %s", line(told))
            watch.session.note(told)

    def _halt(self, seat: Seat, watch: Watch, index: int) -> None:
        seat.shelf.keep(HALTED, {"round": index})
        try:
            watch.memory.stop(index)
        except OSError as error:
            self.log.error("fedaudit: the halt is not on disk (%s): a restarted node would send again", error.strerror)

    def _observe(self, watch: Watch, index: int, received: State, leaves: State | None, seconds: float) -> None:
        """Audit one round, log it, keep it, and write results where they are due or the last of this party."""
        party = watch.party
        sent = {} if leaves is None else {party: Trained(leaves, len(watch.auditor.game.members(party)), seconds)}
        planned = watch.auditor.settings.rounds
        if index == planned + 1:
            watch.session.note(notice("beyond-plan", planned=planned))
        gaps, again, first = len(watch.session.gaps), Moment(index) in watch.session.seen, not watch.session.seen
        round = Round(index, received, sent, UNSEEN)  # nobody tells a party what the round came to
        started = time.perf_counter()
        watch.session.observe(round)
        if first and watch.key == AS_SENT:
            self.log.info("fedaudit: %s", watch.priced(time.perf_counter() - started, seconds))
        if not again:
            watch.record(round, first)
        model: ModelKind = "local" if sent else "global"
        found = watch.auditor.after(index, watch.vantage, model)
        what = f"what leaves {party}" if watch.key == AS_SENT else f"what would leave {party} without the mods inside"
        what = what if sent else f"{party} is masked, so only the global model is seen"
        figures = [estimate for one in found[:1] if one.primary for estimate in one.estimates.values()]
        self.log.info("fedaudit: round %d, %s: %s", index, what, "; ".join(map(_words, figures)) or "too early to say")
        withheld = self._judge(watch, index, model, gaps) if watch.key == AS_SENT else ""
        due = watch.due or watch.session.halted or bool(withheld)
        watch.save(write=due and not again)  # a repeat adds nothing, and the models that it could be asked are gone
        if not again:
            watch.end()
        if withheld:
            if again:
                watch.amend()
            raise FedauditError(WITHHELD_CODE, withheld, "This update is withheld, because the audit is strict.")

    def _judge(self, watch: Watch, index: int, model: ModelKind, gaps: int) -> str:
        """Is a limit crossed, and could it be checked? What is withheld is noted at once, before anything can fail.

        `gaps`: how many there were before this round. Returns why an update is withheld that was not audited.
        """
        crosses = "fedaudit: round %d crosses the limit %r: %s"
        if halted := watch.crossing(self.halt_if, index, model):
            watch.session.withhold(halted)
            watch.session.note(notice("limit-crossed", round=index))
            what = "this update and all later ones are withheld"
            self.log.warning(f"{crosses}; %s", index, halted.rule, _figures(halted), what)
        if warned := watch.crossing(self.warn_if, index, model):
            self.log.warning(crosses, index, warned.rule, _figures(warned))
        if len(watch.session.gaps) == gaps and (why := watch.unchecked(self.halt_if, index, model)):
            watch.session.gap(why)
        missing = "; ".join(map(line, watch.session.gaps[gaps:]))
        if halted or not missing or not self.strict:
            return ""
        watch.session.withhold(Withheld(index, "not audited", reason=missing))
        return missing

    def _not_audited(
        self, seat: Seat, index: int, error: Exception, withheld: bool, watch: Watch | None = None
    ) -> None:
        """Said in the log now, and in the report of every later round; if there is none, this makes one. A limit that
        no attack can decide is said once: if it withholds an update, it withholds all."""
        told, updates = seat.told
        again, for_good = any(is_about(one, error) for one in told), isinstance(error, UndecidableError)
        if not (again and for_good):
            told.append(tell_unaudited(self.log, None if for_good else index, error, withheld, again))
        if _code(error) == WITHHELD_CODE:
            return  # its audit keeps it
        if isinstance(error, UndecidableError) and withheld:
            why = f"{error.why}. {error.todo}"
            updates.append(Withheld(index, "limit undecidable", onwards=True, rule=error.rule.text, reason=why))
            seat.shelf.keep(HALTED, {"round": index, "code": error.code})
        elif withheld:
            refused = _code(error) == REFUSED_CODE
            updates.append(Withheld(index, "model refused" if refused else "not audited", reason=in_words(error)))
        kept = [json.dumps(plain(update)) for update in updates]
        seat.shelf.keep(UNAUDITED, {"told": [json.dumps(one.stored()) for one in told], "withheld": kept})
        if watch is not None and watch.auditor.last_round and (withheld or isinstance(error, NoModelError)):
            with suppress(Exception):  # what could not be audited may not be reported on either
                watch.tell(told, updates)
                watch.save(write=True)
        elif not seat.begun:
            name = self._name(seat)
            report_unaudited(seat.of_party(name), name, told, index, updates)

    def _name(self, seat: Seat) -> str:
        with suppress(Exception):  # the game may be what is wrong
            return seat.game().parties[0]
        return f"node-{seat.node}"

    def _open(self, key: str, seat: Seat, vantage: Vantage, index: int) -> Watch:
        """The audit as the last round left it; in the first round, everything that can be refused is."""
        if self.wrong is not None:
            raise self.wrong
        game = seat.game()
        if len(game.parties) != 1:
            what = f"the game is about {len(game.parties)} parties"
            raise FedauditError("party-game", what, "Give the game of this party alone, from fedaudit.set_aside.")
        options = self.options
        if isinstance(seat.local_epochs, int) and seat.local_epochs > 0 and "local_epochs" not in options:
            options = {**options, "local_epochs": seat.local_epochs}
        asked = checked(self._rounds(seat), **options)
        whose = (seat.run, seat.node, vantage)
        auditor = self._again(key, seat, vantage, game)
        if auditor is not None:
            return self._watch(key, seat, auditor, index)
        task = as_task(self.model, game, self.options.get("forward"), self.options.get("exchanged"))
        if whose not in self._suited:
            fit = settled(Request.beside(asked, game, vantages=(vantage,), told_outcome=False), task)
            self._suited[whose] = self._limited(fit, game, seat.begun) if key == AS_SENT else fit
        settings = self._suited[whose]
        if isinstance(settings, UndecidableError):
            raise settings
        auditor = Auditor(task, game, settings)
        self._ready[key, vantage] = auditor.fresh()
        return self._watch(key, seat, auditor, index)

    def _again(self, key: str, seat: Seat, vantage: Vantage, game: Game) -> Auditor | None:
        """What this process prepared from the same records in an earlier round; of one node, since a simulation has
        many."""
        if (seat.run, seat.node) != self._last:
            self._last, self._ready = (seat.run, seat.node), {}
        ready = self._ready.get((key, vantage))
        return ready.fresh() if ready is not None and alike(ready.game, game) else None

    def _watch(self, key: str, seat: Seat, auditor: Auditor, index: int) -> Watch:
        (party,) = auditor.game.parties
        folder = seat.of_party(party)
        out = None if folder is None else folder / WITHIN[key]
        memory, vocabulary = seat.memory(key, party), self.options.get("vocabulary", ())
        watch = Watch(key, auditor, out, memory, strict=self.strict, vocabulary=vocabulary)
        watch.load(index)
        told, updates = seat.told
        if key == INSIDE:  # a model that noise spoils is one before it
            told = [one for one in told if one.data.get("error") != NO_MODEL]
        watch.tell(told, updates)
        return watch

    def _limited(self, settings: Settings, game: Game, begun: bool) -> Settings | UndecidableError:
        """Leaves attacks that cannot decide a limit out of it, and says so once."""
        (vantage,) = settings.vantages
        rules = list(filter(None, (self.halt_if, self.warn_if)))
        attacks = settings.ranked(vantage)
        names: dict[str, frozenset[str]] = {}
        told: list[Notice] = []
        for rule in rules:
            try:
                names[rule.text], more = left_out(rule, game, attacks, settings.shares(len(attacks), len(rules)))
                told += more
            except UndecidableError as error:
                if rule is self.halt_if or len(rules) == 1:
                    return error
                names[rule.text] = frozenset(attack.name for attack in attacks)  # the other limit still protects
                told.append(notice("limit-undecidable", what=error.what, todo=error.todo))
        for each in told if not begun else ():
            self.log.warning("fedaudit: %s", line(each))
        # Unless the party set a budget, nothing that protects is left out for what it costs: costs are in units of the
        # time that a training takes, and whoever writes an app decides about that.
        most = settings.most if self.halt_if is None or self.options.get("max_cost") is not None else Most()
        return replace(settings, left_out_of=names, most=most, notices=(*settings.notices, *told))

    def _rounds(self, seat: Seat) -> int:
        planned = self.rounds or seat.rounds
        if not isinstance(planned, int):
            what = "how many rounds are planned is neither given nor told by the run"
            raise FedauditError("rounds", what, "Give rounds=...: the intervals share their error among them.")
        return planned


def alike(one: Any, other: Any) -> bool:
    """Do they hold the same? Arrays and what holds them have no plain ==."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if is_dataclass(one):
        return all(alike(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(alike(value, other[key]) for key, value in one.items())
    return bool(one == other)


def _code(error: Exception) -> str:
    return error.code if isinstance(error, FedauditError) else "fault"


def _folder_name(party: str) -> str:
    """The party's own name where a file system takes it."""
    return party if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", party) else safe_name(party)


def _figures(crossing: Withheld) -> str:
    """Which attack crosses a limit, and by what: a limit on a TPR rests on the guaranteed lower end."""
    (found,) = crossing.estimates.values()
    proved = f", at least {found.guaranteed[0]:.4f} guaranteed" if found.guaranteed and fpr_of(found.name) else ""
    return f"{crossing.attack}, {_words(found)}{proved}"


def _words(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return f"{estimate.name}: no value ({estimate.reason})"
    return f"{estimate.name} {estimate.value:.4f} ({estimate.low:.4f}-{estimate.high:.4f})"
