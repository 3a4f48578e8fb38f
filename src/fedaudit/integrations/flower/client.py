"""Flower, a party's side: a client mod that audits what leaves this party, before it leaves.

    audit = PartyAudit(Net, game=lambda context: my_game(context), halt_if="tpr@0.01 > 0.05")
    app = ClientApp(mods=[audit])                                   # with others: first, so that it is outermost
    app = ClientApp(mods=[audit, LocalDpMod(...), audit.inside])    # also: what it would have been without them

Between rounds, the state of the audit is kept in the Flower context, as arrays and JSON. In every round, the model that
leaves the party is audited as a server could attack it, and the global model as it arrived. Wrong use is refused in the
first round, before training; later errors of the audit do not stop the party, unless `strict` is set. Results are also
written during the run, because a party does not know which round is its last.
"""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Unpack

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage

from fedaudit.audit import Auditor
from fedaudit.errors import FedauditError
from fedaudit.integrations.flower.server import EPOCH_SECONDS
from fedaudit.integrations.options import Model, PartyOptions, checked, make_auditor, report_into
from fedaudit.integrations.states import matched
from fedaudit.results.limits import check_reachable, crossed, party_rule, rates
from fedaudit.session.about import About
from fedaudit.session.session import Session
from fedaudit.types import UNSEEN, Estimate, Game, ModelKind, Round, State, Trained, Vantage

log = logging.getLogger("flwr")  # a ClientApp's own log, so that it appears where its owner looks

ATTACKS = ("fta-confidence", "fta-loss", "fta-logit", "loss", "gradient-norm")
AS_SENT, INSIDE, HALTED = "fedaudit.as-sent", "fedaudit.inside", "fedaudit.halted"
WITHHELD = "fedaudit: this party withholds its update"
EVERY = 5  # rounds between two results at most: writing them costs a small model about a local epoch


class _Watch:
    """One audit in one round: of what leaves (AS_SENT), or of what would have left without defences (INSIDE)."""

    def __init__(self, key: str, auditor: Auditor, out: Path | None, strict: bool):
        self.key, self.auditor, self.out = key, auditor, out
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

    def load(self, context: Context) -> None:
        """Go on from where the last round left it."""
        if f"{self.key}.json" in context.state:
            arrays = {name: array.numpy() for name, array in context.state.array_records[f"{self.key}.arrays"].items()}
            kept = context.state.config_records[f"{self.key}.json"]
            self.session.restore(arrays, str(kept["json"]))
            self.written = int(str(kept["written"]))

    def save(self, context: Context, write: bool) -> None:
        """Into the context what the next round goes on from; what interim results lack is none of its business."""
        account = self.session.account()
        try:
            if write and self.out is not None:
                self.written = self.auditor.last_round
                self.session.finish(self.out)
        finally:
            arrays, text = self.session.state(account)
            context.state[f"{self.key}.arrays"] = ArrayRecord({name: Array(value) for name, value in arrays.items()})
            context.state[f"{self.key}.json"] = ConfigRecord({"json": text, "written": self.written})


class PartyAudit:
    """`game(context)` is this party's game, from `fedaudit.set_aside`. `rounds` and `out` may stand in the run's
    configuration instead, as num-server-rounds and audit-out; without a folder the audit only logs."""

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
        self.halt_if, self.warn_if = party_rule(halt_if), party_rule(warn_if)
        self.out = None if out is None else Path(out)
        self.rounds, self.strict = rounds, options.get("strict", False)
        # How many rounds are planned may come from the run; two are the fewest that say anything.
        asked = checked(2 if rounds is None else rounds, **options)
        wanted = sorted({*(asked.audit.fpr or ()), *rates([self.halt_if, self.warn_if])})
        self.options = PartyOptions(**{**options, "fpr": wanted or None})
        self._inner: dict[int, State] = {}  # what the mods inside were given, by node; only while a message is handled

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if not message.metadata.message_type.startswith("train"):
            return call_next(message, context)
        if HALTED in context.state:
            return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, WITHHELD), reply_to=message)
        stage = message.content.config_records.get(RECORD_KEY_CONFIGS, ConfigRecord()).get(Key.STAGE)
        if stage is not None and stage != Stage.COLLECT_MASKED_VECTORS:
            return call_next(message, context)
        first = f"{AS_SENT}.json" not in context.state
        received: State | None = None
        watch: _Watch | None = None
        try:
            watch = self._open(AS_SENT, context, Vantage.SERVER if stage is None else Vantage.SECAGG_SERVER)
            received = _single(message, watch.like, "the message")
        except Exception:
            if first or self.strict:
                raise
            log.exception("fedaudit: this round is not audited")
        started = time.perf_counter()
        reply = call_next(message, context)
        if watch is None or received is None or reply.has_error():
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
        halt = False
        try:
            index = _round(message, watch.session.last + 1)
            masked = RECORD_KEY_CONFIGS in reply.content.config_records
            seconds = _epoch_seconds(reply, elapsed)
            leaves = None if masked else _single(reply, watch.like, f"round {index}")
            found = self._observe(watch, context, index, received, leaves, seconds)
            inner = self._inner.pop(context.node_id, None)
            if inner is not None:
                other = self._open(INSIDE, context, Vantage.SERVER)
                self._observe(other, context, index, received, matched(inner, other.like, f"round {index}"), seconds)
            halt = crossed(self.halt_if, found)
            if self.warn_if is not None and crossed(self.warn_if, found):
                log.warning("fedaudit: round %d crosses the limit %r", index, self.warn_if.text)
        except Exception:
            if self.strict:
                raise
            log.exception("fedaudit: this round is not audited")
        if not halt:
            return reply
        log.warning("fedaudit: round %d crosses the limit; this update and all later ones are withheld", index)
        context.state[HALTED] = ConfigRecord({"round": index})
        return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, WITHHELD), reply_to=message)

    def _observe(
        self, watch: _Watch, context: Context, index: int, received: State, leaves: State | None, seconds: float
    ) -> Mapping[str, Estimate]:
        """Audit one round, log it, keep it, and write results where they are due or the last of this party."""
        party = watch.party
        sent = {} if leaves is None else {party: Trained(leaves, len(watch.auditor.game.members(party)), seconds)}
        planned = watch.auditor.settings.rounds
        if index == planned + 1:
            watch.session.note(f"more rounds than the {planned} planned: the band over rounds no longer covers all")
        gaps = len(watch.session.gaps)
        watch.session.observe(Round(index, received, sent, UNSEEN))  # nobody tells a party what the round came to
        model: ModelKind = "local" if sent else "global"
        found = watch.auditor.after(index, watch.auditor.settings.vantages[0], model)
        what = f"what leaves {party}" if watch.key == AS_SENT else f"what would leave {party} without the mods inside"
        what = what if sent else f"{party} is masked, so only the global model is seen"
        log.info(
            "fedaudit: round %d, %s: %s", index, what, "; ".join(map(_words, found.values())) or "too early to say"
        )
        unaudited, halted = "", False
        if watch.key == AS_SENT:
            unaudited = "; ".join(watch.session.gaps[gaps:])
            if not unaudited and (why := self._unchecked(watch, model, found)):
                unaudited = f"round {index}: {why}"
                watch.session.gap(unaudited)
            halted = crossed(self.halt_if, found)
        if halted:
            watch.session.note(f"the limit was crossed in round {index}: from then on nothing was sent")
        watch.save(context, write=watch.due or halted or (self.strict and bool(unaudited)))
        if self.strict and unaudited and not halted:
            raise FedauditError("unaudited", unaudited, "This update is withheld, because the audit is strict.")
        return found

    def _unchecked(self, watch: _Watch, model: ModelKind, found: Mapping[str, Estimate]) -> str | None:
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
        estimate = found.get(self.halt_if.metric)
        if estimate is not None:
            return None if estimate.low is not None else f"{limit}: {estimate.reason or 'it has no interval'}"
        seen = auditor.panels.sight(vantage, model, party).rounds
        needed = getattr(attack, "degree", 1) + 1  # one point has no slope, two have no curvature
        return None if seen < needed else f"{limit}: {attack.name} has no value after {seen} rounds"

    def _open(self, key: str, context: Context, vantage: Vantage) -> _Watch:
        """The audit as the last round left it; in the first round, everything that can be refused is."""
        game = self.game(context)
        if len(game.parties) != 1:
            what = f"the game is about {len(game.parties)} parties"
            raise FedauditError("party-game", what, "Give the game of this party alone, from fedaudit.set_aside.")
        asked = checked(self._rounds(context), **self.options)
        auditor = make_auditor(self.model, game, asked, (vantage,), ATTACKS)
        for rule in (self.halt_if, self.warn_if):
            shared = 1 - (1 - asked.audit.confidence) / auditor.settings.rounds
            check_reachable(rule, game, shared, auditor.settings.primary(vantage))
        (party,) = game.parties
        folder = self.out or context.run_config.get("audit-out") or None
        out = None if folder is None else Path(str(folder)) / party / ("" if key == AS_SENT else "without-defences")
        watch = _Watch(key, auditor, out, self.strict)
        watch.load(context)
        return watch

    def _rounds(self, context: Context) -> int:
        planned = self.rounds or context.run_config.get("num-server-rounds")
        if not isinstance(planned, int):
            what = "how many rounds are planned is neither given nor in the run's num-server-rounds"
            raise FedauditError(
                "rounds", what, "Give PartyAudit(rounds=...): the intervals share their error among them."
            )
        return planned


# ------------------------------------------------------------------ messages


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


def _words(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return f"{estimate.name}: no value ({estimate.reason})"
    return f"{estimate.name} {estimate.value:.4f} ({estimate.low:.4f}-{estimate.high:.4f})"
