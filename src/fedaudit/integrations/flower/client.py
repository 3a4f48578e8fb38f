"""Flower, a party's side: a client mod that audits what leaves this party, before it leaves.

    audit = PartyAudit(Net, game=lambda context: my_game(context), halt_if="tpr@0.01 > 0.05")
    app = ClientApp(mods=[audit])                                   # with others: first, so that it is outermost
    app = ClientApp(mods=[audit, LocalDpMod(...), audit.inside])    # also: what it would have been without them

Between rounds, the state of the audit is kept in the Flower context and on disk (`watch.Memory`). In every round, the
model that leaves the party is audited as a server could attack it, and the global model as it arrived. Unless `strict`
is set, nothing here stops the training, wrong use included: log and report say from the first round on that nothing is
audited. The exception is a party with `halt_if` whose limit can never be checked: it asked for protection and sends
nothing. What leaves is the update or an error without details; those are in the party's own log and report. Results are
also written during the run, because a party does not know which round is its last.
"""

import json
import logging
import re
import time
from collections.abc import Callable
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
from fedaudit.integrations.flower.server import EPOCH_SECONDS, is_about, report_unaudited, tell_unaudited
from fedaudit.integrations.flower.watch import AS_SENT, INSIDE, Memory, Watch, node_folder
from fedaudit.integrations.options import Model, PartyOptions, as_task, checked
from fedaudit.integrations.plain import matched
from fedaudit.results.document import Withheld
from fedaudit.results.gate import Rule
from fedaudit.results.limits import UndecidableError, left_out, party_rule, rates
from fedaudit.results.schema import plain, read
from fedaudit.session.assemble import Request, settled
from fedaudit.session.session import in_words
from fedaudit.stats.wording import fpr_of
from fedaudit.trace.store import safe_name
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
    notice,
)
from fedaudit.words import line

log = logging.getLogger("flwr")  # a ClientApp's own log, so that it appears where its owner looks

HALTED, UNAUDITED = "fedaudit.halted", "fedaudit.unaudited"
WITHHELD = "fedaudit: this party withholds its update"
WITHHELD_CODE = "unaudited"  # of an update that a strict party does not send


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
        self._suited: dict[tuple[int, int, Vantage], Settings | UndecidableError] = {}
        self._inner: dict[int, State] = {}  # what the mods inside were given, by node; only while a message is handled

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if not message.metadata.message_type.startswith("train"):
            return call_next(message, context)
        if HALTED in context.state:
            return _withheld(message, str(context.state.config_records[HALTED].get("code", "")))
        stage = message.content.config_records.get(RECORD_KEY_CONFIGS, ConfigRecord()).get(Key.STAGE)
        if stage is not None and stage != Stage.COLLECT_MASKED_VECTORS:
            return call_next(message, context)
        try:
            watch = self._open(AS_SENT, context, Vantage.SERVER if stage is None else Vantage.SECAGG_SERVER, message)
            if halted := watch.memory.halted:
                log.warning("fedaudit: this party halted in round %d; nothing is sent", halted)
                context.state[HALTED] = ConfigRecord({"round": halted})
                return _withheld(message)
            received = _single(message, watch, "the message")
        except Exception as error:
            withheld = self.strict or (self.protects and not _begun(context))
            self._not_audited(context, _round(message, 0), error, withheld)
            return _withheld(message, _code(error)) if withheld else call_next(message, context)
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
        self, message: Message, context: Context, reply: Message, watch: Watch, received: State, elapsed: float
    ) -> Message:
        """The reply as it came, or its refusal."""
        index, fault = _round(message, watch.session.last + 1), None
        try:
            masked = RECORD_KEY_CONFIGS in reply.content.config_records
            seconds = _epoch_seconds(reply, elapsed)
            leaves = None if masked else _single(reply, watch, f"round {index}")
            self._observe(watch, index, received, leaves, seconds)
            inner = self._inner.pop(context.node_id, None)
            if inner is not None:
                other = self._open(INSIDE, context, Vantage.SERVER, message)
                shown = matched(inner, other.like, f"round {index}", other.base)
                self._observe(other, index, received, shown, seconds)
        except Exception as error:
            fault = error
            self._not_audited(context, index, error, self.strict, watch)
        if watch.session.halted:
            return self._halt(message, context, watch, index)
        return _withheld(message, _code(fault)) if fault and self.strict else reply

    def _halt(self, message: Message, context: Context, watch: Watch, index: int) -> Message:
        context.state[HALTED] = ConfigRecord({"round": index})
        try:
            watch.memory.stop(index)
        except OSError as error:
            log.error("fedaudit: the halt is not on disk (%s): a restarted node would send again", error.strerror)
        return _withheld(message)

    def _observe(self, watch: Watch, index: int, received: State, leaves: State | None, seconds: float) -> None:
        """Audit one round, log it, keep it, and write results where they are due or the last of this party."""
        party = watch.party
        sent = {} if leaves is None else {party: Trained(leaves, len(watch.auditor.game.members(party)), seconds)}
        planned = watch.auditor.settings.rounds
        if index == planned + 1:
            watch.session.note(notice("beyond-plan", planned=planned))
        gaps, again = len(watch.session.gaps), Moment(index) in watch.session.seen
        watch.session.observe(Round(index, received, sent, UNSEEN))  # nobody tells a party what the round came to
        model: ModelKind = "local" if sent else "global"
        found = watch.auditor.after(index, watch.vantage, model)
        what = f"what leaves {party}" if watch.key == AS_SENT else f"what would leave {party} without the mods inside"
        what = what if sent else f"{party} is masked, so only the global model is seen"
        figures = [estimate for one in found[:1] if one.primary for estimate in one.estimates.values()]
        log.info("fedaudit: round %d, %s: %s", index, what, "; ".join(map(_words, figures)) or "too early to say")
        withheld = self._judge(watch, index, model, gaps) if watch.key == AS_SENT else ""
        due = watch.due or watch.session.halted or bool(withheld)
        watch.save(write=due and not again)  # a repeat adds nothing, and the models that it could be asked are gone
        if withheld:
            if again:
                watch.amend()
            raise FedauditError(WITHHELD_CODE, withheld, "This update is withheld, because the audit is strict.")

    def _judge(self, watch: Watch, index: int, model: ModelKind, gaps: int) -> str:
        """Is a limit crossed, and could it be checked? What is withheld is noted at once, before anything can fail.

        `gaps`: how many there were before this round. Returns why an update is withheld that was not audited.
        """
        if halted := watch.crossing(self.halt_if, index, model):
            watch.session.withhold(halted)
            watch.session.note(notice("limit-crossed", round=index))
            what = "this update and all later ones are withheld"
            log.warning("fedaudit: round %d crosses the limit %r: %s; %s", index, halted.rule, _figures(halted), what)
        if warned := watch.crossing(self.warn_if, index, model):
            log.warning("fedaudit: round %d crosses the limit %r: %s", index, warned.rule, _figures(warned))
        if len(watch.session.gaps) == gaps and (why := watch.unchecked(self.halt_if, index, model)):
            watch.session.gap(why)
        missing = "; ".join(map(line, watch.session.gaps[gaps:]))
        if halted or not missing or not self.strict:
            return ""
        watch.session.withhold(Withheld(index, "not audited", reason=missing))
        return missing

    def _not_audited(
        self, context: Context, index: int, error: Exception, withheld: bool, watch: Watch | None = None
    ) -> None:
        """Said in the log now, and in the report of every later round; if there is none, this makes one. A limit that
        no attack can decide is said once: if it withholds an update, it withholds all."""
        told, updates = _told(context)
        again, for_good = any(is_about(one, error) for one in told), isinstance(error, UndecidableError)
        if not (again and for_good):
            told.append(tell_unaudited(None if for_good else index, error, withheld, again))
        if _code(error) == WITHHELD_CODE:
            return  # its audit keeps it
        if isinstance(error, UndecidableError) and withheld:
            why = f"{error.why}. {error.todo}"
            updates.append(Withheld(index, "limit undecidable", onwards=True, rule=error.rule.text, reason=why))
            context.state[HALTED] = ConfigRecord({"round": index, "code": error.code})
        elif withheld:
            updates.append(Withheld(index, "not audited", reason=in_words(error)))
        kept = [json.dumps(plain(update)) for update in updates]
        lines = [json.dumps(one.stored()) for one in told]
        context.state[UNAUDITED] = ConfigRecord({"told": lines, "withheld": kept})
        if watch is not None and withheld:
            with suppress(Exception):  # what could not be audited may not be reported on either
                watch.tell(told, updates)
                watch.save(write=True)
        elif not _begun(context):
            name = self._name(context)
            report_unaudited(self._folder(context, name), name, told, index, updates)

    def _name(self, context: Context) -> str:
        with suppress(Exception):  # the game may be what is wrong
            return self.game(context).parties[0]
        return f"node-{context.node_id}"

    def _open(self, key: str, context: Context, vantage: Vantage, message: Message) -> Watch:
        """The audit as the last round left it; in the first round, everything that can be refused is."""
        if self.wrong is not None:
            raise self.wrong
        game = self.game(context)
        if len(game.parties) != 1:
            what = f"the game is about {len(game.parties)} parties"
            raise FedauditError("party-game", what, "Give the game of this party alone, from fedaudit.set_aside.")
        asked = checked(self._rounds(context), **self.options)
        whose = (context.run_id, context.node_id, vantage)
        task = as_task(self.model, game, self.options.get("forward"), self.options.get("exchanged"))
        if whose not in self._suited:
            fit = settled(Request.beside(asked, game, vantages=(vantage,)), task)
            self._suited[whose] = self._limited(fit, game, _begun(context)) if key == AS_SENT else fit
        settings = self._suited[whose]
        if isinstance(settings, UndecidableError):
            raise settings
        auditor = Auditor(task, game, settings)
        (party,) = game.parties
        inside = "" if key == AS_SENT else "without-defences"
        folder = self._folder(context, party)
        out = None if folder is None else folder / inside
        memory = Memory(context, key, out or node_folder() / _folder_name(party) / inside)
        watch = Watch(key, auditor, out, memory, self.strict)
        watch.load(_round(message, 0))
        watch.tell(*_told(context))
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
            log.warning("fedaudit: %s", line(each))
        return replace(settings, left_out_of=names, notices=(*settings.notices, *told))

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


def _withheld(message: Message, code: str = "") -> Message:
    """What the server is told: that nothing comes, and at most the code of the reason. Counts, labels and rows in the
    text of an error would be about the party's records."""
    return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, WITHHELD + f" [{code}]" * bool(code)), reply_to=message)


def _code(error: Exception) -> str:
    return error.code if isinstance(error, FedauditError) else "fault"


def _begun(context: Context) -> bool:
    """Was a round of this party ever audited?"""
    return f"{AS_SENT}.json" in context.state


def _told(context: Context) -> tuple[list[Notice], list[Withheld]]:
    """Rounds that were not audited, and why; and updates that were withheld for it."""
    record = context.state.config_records.get(UNAUDITED, ConfigRecord())
    told, updates = record.get("told", []), record.get("withheld", [])
    assert isinstance(told, list)
    assert isinstance(updates, list)
    notices = as_notices(json.loads(str(one)) for one in told)
    return [*notices], [read(Withheld, json.loads(str(update))) for update in updates]


def _folder_name(party: str) -> str:
    """The party's own name where a file system takes it."""
    return party if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", party) else safe_name(party)


def _single(message: Message, watch: Watch, where: str) -> State:
    records = list(message.content.array_records.values())
    if len(records) != 1:
        what = f"{len(records)} array records in place of one"
        raise FedauditError("array-records", what, "Send the model as one ArrayRecord.", where=where)
    return matched({name: array.numpy() for name, array in records[0].items()}, watch.like, where, watch.base)


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


def _figures(crossing: Withheld) -> str:
    """Which attack crosses a limit, and by what: a limit on a TPR rests on the guaranteed lower end."""
    (found,) = crossing.estimates.values()
    proved = f", at least {found.guaranteed[0]:.4f} guaranteed" if found.guaranteed and fpr_of(found.name) else ""
    return f"{crossing.attack}, {_words(found)}{proved}"


def _words(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return f"{estimate.name}: no value ({estimate.reason})"
    return f"{estimate.name} {estimate.value:.4f} ({estimate.low:.4f}-{estimate.high:.4f})"
