"""Flower, a party's side: a client mod that audits what leaves this party, before it leaves.

    audit = PartyAudit(Net, game=lambda context: my_game(context), halt_if="tpr@0.01 > 0.05")
    app = ClientApp(mods=[audit])                                   # with others: first, so that it is outermost
    app = ClientApp(mods=[audit, LocalDpMod(...), audit.inside])    # also: what it would have been without them

Between rounds, the state of the audit is kept in the Flower context and on disk (`memory`). In every round, the model
that leaves the party is audited as a server could attack it, and the global model as it arrived. Unless `strict` is
set, nothing here stops the training, wrong use included: log and report say from the first round on that nothing is
audited. The exception is a party with `halt_if` whose limit can never be checked: it asked for protection and sends
nothing. What leaves is the update or an error without details; those are in the party's own log and report. Results are
also written during the run, because a party does not know which round is its last.
"""

import logging
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from flwr.app import ConfigRecord, Context, Error, Message
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage

from fedaudit.audit import Auditor, Settings
from fedaudit.errors import FedauditError
from fedaudit.integrations.flower import unaudited
from fedaudit.integrations.flower.memory import Memory, Remembered, node_folder
from fedaudit.integrations.flower.server import EPOCH_SECONDS
from fedaudit.integrations.options import Model, PartyOptions, as_task, checked, report_into, suited
from fedaudit.integrations.states import matched
from fedaudit.results.limits import check_reachable, crossed, party_rule, rates
from fedaudit.results.rules import Rule
from fedaudit.session.about import About
from fedaudit.session.session import Session
from fedaudit.stats.strongest import Heard, Shares
from fedaudit.trace.segments import DamagedError
from fedaudit.trace.store import safe_name
from fedaudit.types import UNSEEN, Estimate, Game, ModelKind, Moment, Round, State, Trained, Vantage

log = logging.getLogger("flwr")  # a ClientApp's own log, so that it appears where its owner looks

AS_SENT, INSIDE = "fedaudit.as-sent", "fedaudit.inside"
HALTED, UNAUDITED = "fedaudit.halted", "fedaudit.unaudited"
WITHHELD = "fedaudit: this party withholds its update"
EVERY = 5  # rounds between two results at most: writing them costs a small model about a local epoch


class _Watch:
    """One audit in one round: of what leaves (AS_SENT), or of what would have left without defences (INSIDE)."""

    def __init__(self, key: str, auditor: Auditor, out: Path | None, memory: Memory, strict: bool):
        self.key, self.auditor, self.out, self.memory = key, auditor, out, memory
        (self.party,) = auditor.game.parties
        about = About.foreign(self.party, auditor)
        self.session = Session(auditor, None, about, strict=strict, listen=report_into(out))
        assert auditor.task is not None
        self.like = auditor.task.initial(0)
        self.written = 0  # the round after which results were last written

    @property
    def due(self) -> bool:
        """Is it time for results? From the second round on, about ten times in a plan or more, and at its end."""
        planned, last = self.auditor.settings.rounds, self.auditor.last_round
        pause = min(EVERY, -(-planned // 10)) if self.written else 2
        return last >= planned or last - self.written >= pause

    def load(self, index: int) -> None:
        """Go on from where the last round left it; after a restart of the node from what is on disk."""
        if (kept := self.memory.recall()) is not None:
            self._restore(kept)
            return
        try:
            kept = self.memory.read()
        except DamagedError as error:
            what = f"this node was restarted, and the memory of its audit {error}"
            self.session.gap(f"{what}: what was seen before round {index} is lost")
            return
        if kept is not None:
            self._restore(kept)
            last = self.session.last
            self.session.note(f"this node was restarted after round {last}: its audit goes on from what is on disk")
        elif index > 1:
            why = "the party was not asked before, or its node was restarted without the folder of its memory"
            self.session.note(f"round {index} is the first that this audit saw: {why}")

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


class PartyAudit:
    """`game(context)` is this party's game, from `fedaudit.set_aside`. `rounds` and `out` may stand in the run's
    configuration instead, as num-server-rounds and audit-out; without a folder the audit only logs, and keeps its
    memory under FLWR_HOME."""

    def __init__(
        self,
        model: Model,
        game: Callable[[Context], Game],
        *,
        rounds: int | None = None,
        halt_if: str | None = None,
        warn_if: str | None = None,
        out: str | Path | None = None,
        **options: Unpack[PartyOptions],
    ):
        self.model, self.game = model, game
        self.out = None if out is None else Path(out)
        self.rounds, self.strict, self.protects = rounds, options.get("strict", False), halt_if is not None
        self.halt_if: Rule | None = None
        self.warn_if: Rule | None = None
        self.options = options
        self.wrong: FedauditError | None = None  # what is wrong with these arguments, told in every round
        try:
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
        self._suited: dict[tuple[int, int, Vantage], Settings] = {}
        self._inner: dict[int, State] = {}  # what the mods inside were given, by node; only while a message is handled

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if not message.metadata.message_type.startswith("train"):
            return call_next(message, context)
        if HALTED in context.state:
            return _withheld(message)
        stage = message.content.config_records.get(RECORD_KEY_CONFIGS, ConfigRecord()).get(Key.STAGE)
        if stage is not None and stage != Stage.COLLECT_MASKED_VECTORS:
            return call_next(message, context)
        try:
            watch = self._open(AS_SENT, context, Vantage.SERVER if stage is None else Vantage.SECAGG_SERVER, message)
            if halted := watch.memory.halted:
                log.warning("fedaudit: this party halted in round %d; nothing is sent", halted)
                context.state[HALTED] = ConfigRecord({"round": halted})
                return _withheld(message)
            received = _single(message, watch.like, "the message")
        except Exception as error:
            never = f"{AS_SENT}.json" not in context.state
            self._not_audited(context, _round(message, 0), error, report=never)
            if self.strict or (self.protects and never):
                return _withheld(message, error)
            return call_next(message, context)
        started = time.perf_counter()
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        return self._audit(message, context, reply, watch, received, time.perf_counter() - started)

    def inside(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """A second mod, innermost: shows what the mods between it and the audit were given."""
        reply = call_next(message, context)
        if message.metadata.message_type.startswith("train") and reply.has_content():
            for record in reply.content.array_records.values():
                self._inner[context.node_id] = {name: array.numpy() for name, array in record.items()}
        return reply

    # ------------------------------------------------------------------ one round

    def _audit(
        self, message: Message, context: Context, reply: Message, watch: _Watch, received: State, elapsed: float
    ) -> Message:
        """The reply as it came, or its refusal."""
        index, halt = _round(message, watch.session.last + 1), False
        try:
            masked = RECORD_KEY_CONFIGS in reply.content.config_records
            seconds = _epoch_seconds(reply, elapsed)
            leaves = None if masked else _single(reply, watch.like, f"round {index}")
            found = self._observe(watch, index, received, leaves, seconds)
            halt = crossed(self.halt_if, found) is not None  # before anything else can fail
            inner = self._inner.pop(context.node_id, None)
            if inner is not None:
                other = self._open(INSIDE, context, Vantage.SERVER, message)
                self._observe(other, index, received, matched(inner, other.like, f"round {index}"), seconds)
            if self.warn_if is not None and (by := crossed(self.warn_if, found)):
                log.warning("fedaudit: round %d crosses the limit %r, by %s", index, self.warn_if.text, by.attack)
        except Exception as error:
            self._not_audited(context, index, error)
            if self.strict:
                return _withheld(message, error)
        if not halt:
            return reply
        log.warning("fedaudit: round %d crosses the limit; this update and all later ones are withheld", index)
        context.state[HALTED] = ConfigRecord({"round": index})
        try:
            watch.memory.stop(index)
        except OSError as error:
            log.error("fedaudit: the halt is not on disk (%s): a restarted node would send again", error.strerror)
        return _withheld(message)

    def _not_audited(self, context: Context, index: int, error: Exception, report: bool = False) -> None:
        """Said in the log now, and in the report of every later round. `report`: there is none, so this makes one."""
        line = unaudited.say(f"round {index}" if index else "a round", error)
        told = [*_told(context), line]
        context.state[UNAUDITED] = ConfigRecord({"lines": told})
        if report:
            with suppress(Exception):  # the game may be what is wrong
                name = self.game(context).parties[0]
                unaudited.write(self._folder(context, name), name, told, index)
                return
            name = f"node-{context.node_id}"
            unaudited.write(self._folder(context, name), name, told, index)

    def _observe(self, watch: _Watch, index: int, received: State, leaves: State | None, seconds: float) -> list[Heard]:
        """Audit one round, log it, keep it, and write results where they are due or the last of this party."""
        party = watch.party
        sent = {} if leaves is None else {party: Trained(leaves, len(watch.auditor.game.members(party)), seconds)}
        planned = watch.auditor.settings.rounds
        if index == planned + 1:
            watch.session.note(f"more rounds than the {planned} planned: the band over rounds no longer covers all")
        gaps, again = len(watch.session.gaps), Moment(index) in watch.session.seen
        watch.session.observe(Round(index, received, sent, UNSEEN))  # nobody tells a party what the round came to
        model: ModelKind = "local" if sent else "global"
        found = watch.auditor.after(index, watch.auditor.settings.vantages[0], model)
        what = f"what leaves {party}" if watch.key == AS_SENT else f"what would leave {party} without the mods inside"
        what = what if sent else f"{party} is masked, so only the global model is seen"
        log.info("fedaudit: round %d, %s: %s", index, what, "; ".join(map(_words, _first(found))) or "too early to say")
        unaudited, halted = "", None
        if watch.key == AS_SENT:
            unaudited = "; ".join(watch.session.gaps[gaps:])
            if not unaudited and (why := self._unchecked(watch, model, found)):
                unaudited = f"round {index}: {why}"
                watch.session.gap(unaudited)
            halted = crossed(self.halt_if, found)
        if halted:
            by = f"{halted.attack} on {halted.model} models"
            watch.session.note(f"the limit was crossed in round {index} (by {by}): from then on nothing was sent")
        due = watch.due or halted is not None or (self.strict and bool(unaudited))
        watch.save(write=due and not again)  # a repeat adds nothing, and the models that it could be asked are gone
        if self.strict and unaudited and not halted:
            raise FedauditError("unaudited", unaudited, "This update is withheld, because the audit is strict.")
        return found

    def _unchecked(self, watch: _Watch, model: ModelKind, found: Sequence[Heard]) -> str | None:
        """Why nobody can say whether the limit is crossed, though enough rounds were seen to say so."""
        auditor = watch.auditor
        (vantage,), (party,) = auditor.settings.vantages, auditor.game.parties
        if self.halt_if is None:
            return None if auditor.case().primary(vantage) else "every attack failed"
        attack, limit = auditor.settings.primary(vantage), f"the limit {self.halt_if.text!r} is not checked"
        if attack is None:
            return f"{limit}: nobody attacks"
        if attack.name in auditor.failed:
            return f"{limit}: {attack.name} failed ({auditor.failed[attack.name]})"
        estimate = next((one.decisive.get(self.halt_if.metric) for one in found if one.primary), None)
        if estimate is not None:
            return None if estimate.low is not None else f"{limit}: {estimate.reason or 'it has no interval'}"
        seen = auditor.panels.sight(vantage, model, party).rounds
        needed = getattr(attack, "degree", 1) + 1  # one point has no slope, two have no curvature
        return None if seen < needed else f"{limit}: {attack.name} has no value after {seen} rounds"

    def _open(self, key: str, context: Context, vantage: Vantage, message: Message) -> _Watch:
        """The audit as the last round left it; in the first round, everything that can be refused is."""
        if self.wrong is not None:
            raise self.wrong
        game = self.game(context)
        if len(game.parties) != 1:
            what = f"the game is about {len(game.parties)} parties"
            raise FedauditError("party-game", what, "Give the game of this party alone, from fedaudit.set_aside.")
        asked = checked(self._rounds(context), **self.options)
        whose = (context.run_id, context.node_id, vantage)
        task = as_task(self.model, game, self.options.get("forward"))
        if whose not in self._suited:
            self._suited[whose] = suited(task, game, asked, (vantage,))
        limited = self.halt_if is not None or self.warn_if is not None
        auditor = Auditor(task, game, replace(self._suited[whose], limited=limited))
        for rule in (self.halt_if, self.warn_if):
            error = (1 - asked.audit.confidence) / auditor.settings.rounds
            shared = Shares.among(1 - error, 1, len(auditor.settings.attacks) - 1)
            check_reachable(rule, game, shared.primary, auditor.settings.primary(vantage))
        (party,) = game.parties
        inside = "" if key == AS_SENT else "without-defences"
        folder = self._folder(context, party)
        out = None if folder is None else folder / inside
        memory = Memory(context, key, out or node_folder() / _folder_name(party) / inside)
        watch = _Watch(key, auditor, out, memory, self.strict)
        watch.load(_round(message, 0))
        for line in _told(context):
            if line not in watch.session.gaps:
                watch.session.gap(line)
        return watch

    def _folder(self, context: Context, party: str) -> Path | None:
        """Where results and memory of this party go, if anywhere."""
        folder = self.out or context.run_config.get("audit-out") or None
        return None if folder is None else Path(str(folder)) / _folder_name(party)

    def _rounds(self, context: Context) -> int:
        planned = self.rounds or context.run_config.get("num-server-rounds")
        if not isinstance(planned, int):
            what = "how many rounds are planned is neither given nor in the run's num-server-rounds"
            raise FedauditError(
                "rounds", what, "Give PartyAudit(rounds=...): the intervals share their error among them."
            )
        return planned


# ------------------------------------------------------------------ messages


def _withheld(message: Message, error: Exception | None = None) -> Message:
    """What the server is told: that nothing comes, and at most the code of the reason. Counts, labels and rows in the
    text of an error would be about the party's records."""
    code = f" [{error.code}]" if isinstance(error, FedauditError) else " [fault]" if error else ""
    return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, f"{WITHHELD}{code}"), reply_to=message)


def _told(context: Context) -> list[str]:
    """Rounds that were not audited, and why."""
    record = context.state.config_records.get(UNAUDITED, ConfigRecord())
    lines = record.get("lines", [])
    return [str(line) for line in lines] if isinstance(lines, list) else []


def _folder_name(party: str) -> str:
    """The party's own name where a file system takes it."""
    return party if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", party) else safe_name(party)


def _single(message: Message, like: State, where: str) -> State:
    records = list(message.content.array_records.values())
    if len(records) != 1:
        what = f"{len(records)} array records in place of one"
        raise FedauditError("array-records", what, "Send the model as one ArrayRecord.", where=where)
    return matched({name: array.numpy() for name, array in records[0].items()}, like, where)


def _round(message: Message, otherwise: int) -> int:
    """FedAvg and all that follow it tell the round; for others it is counted."""
    told = [record["server-round"] for record in message.content.config_records.values() if "server-round" in record]
    return int(told[0]) if told and isinstance(told[0], int) else otherwise


def _epoch_seconds(reply: Message, elapsed: float) -> float:
    for record in reply.content.metric_records.values():
        value: Any = record.get(EPOCH_SECONDS)
        if isinstance(value, int | float):
            return float(value)
    return elapsed


def _first(heard: Sequence[Heard]) -> list[Estimate]:
    """What the primary attack says."""
    return [estimate for one in heard[:1] if one.primary for estimate in one.estimates.values()]


def _words(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return f"{estimate.name}: no value ({estimate.reason})"
    return f"{estimate.name} {estimate.value:.4f} ({estimate.low:.4f}-{estimate.high:.4f})"
