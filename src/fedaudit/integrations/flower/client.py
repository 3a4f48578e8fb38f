"""Flower, a party's side: a client mod that audits what leaves this party, before it leaves.

    audit = PartyAudit(Net, game=lambda context: my_game(context), halt_if="tpr@0.01 > 0.05")
    app = ClientApp(mods=[audit])                                   # with others: first, so that it is outermost
    app = ClientApp(mods=[audit, LocalDpMod(...), audit.inside])    # also: what it would have been without them

Between rounds, the state of the audit is kept in the Flower context and on disk (`party.Memory`): Flower keeps a node's
context in the memory of its SuperNode. In every round, the model that leaves the party is audited as a server could
attack it, and the global model as it arrived. What leaves is the update or an error without details; those are in the
party's own log and report.
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
from flwr.supercore.utils import get_flwr_home
from numpy.typing import NDArray

from fedaudit.errors import FedauditError
from fedaudit.integrations.flower.server import EPOCH_SECONDS, LOCAL_EPOCHS
from fedaudit.integrations.options import Model, PartyOptions
from fedaudit.integrations.party import Reaction, Refused, Seat, SelfAudit, Watch
from fedaudit.types import Game, State, Vantage

log = logging.getLogger("flwr")  # a ClientApp's own log, so that it appears where its owner looks


class PartyAudit:
    """`game(context)` is this party's game, from `fedaudit.set_aside`. `rounds`, `out` and `local_epochs` may stand in
    the run's configuration instead, as num-server-rounds, audit-out and local-epochs; without a folder the audit only
    logs, and keeps its memory under FLWR_HOME. `incoming`: what is done about a model that looks prepared to give
    single records away: ignore, warn or refuse (it is then not trained)."""

    def __init__(
        self,
        model: Model,
        game: Callable[[Context], Game],
        *,
        rounds: int | None = None,
        halt_if: str | None = None,
        warn_if: str | None = None,
        incoming: Reaction = "warn",
        out: str | Path | None = None,
        **options: Unpack[PartyOptions],
    ):
        self.game, self.out = game, None if out is None else Path(out)
        self.audit = SelfAudit(
            model, log, rounds=rounds, halt_if=halt_if, warn_if=warn_if, incoming=incoming, **options
        )
        self._inner: dict[int, State] = {}  # what the mods inside were given, by node; only while a message is handled

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if not message.metadata.message_type.startswith("train"):
            return call_next(message, context)
        seat = self._seat(context)
        if refused := self.audit.refused(seat):
            return withheld(message, refused)
        stage = stage_of(message)
        if stage is not None and stage != Stage.COLLECT_MASKED_VECTORS:
            return call_next(message, context)
        vantage = Vantage.SERVER if stage is None else Vantage.SECAGG_SERVER
        admitted = self.audit.admit(
            seat, vantage, round_of(message, 0), lambda watch: single(message, watch, "the message")
        )
        if isinstance(admitted, Refused):
            return withheld(message, admitted)
        started = time.perf_counter()
        reply = call_next(message, context)
        if admitted is None or reply.has_error():
            return reply
        index = round_of(message, admitted.watch.session.last + 1)
        inner = self._inner.pop(context.node_id, None)
        refused = self.audit.release(
            seat,
            admitted,
            index,
            lambda watch: None if stage and is_masked(reply) else single(reply, watch, f"round {index}"),
            inner=None if inner is None else lambda watch: watch.matched(inner, f"round {index}"),
            elapsed=time.perf_counter() - started,
            epoch_seconds=epoch_seconds(reply),
        )
        return withheld(message, refused) if refused else reply

    def inside(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """A second mod, innermost: shows what the mods between it and the audit were given."""
        reply = call_next(message, context)
        if message.metadata.message_type.startswith("train") and reply.has_content():
            for record in reply.content.array_records.values():
                self._inner[context.node_id] = {name: array.numpy() for name, array in record.items()}
        return reply

    def _seat(self, context: Context) -> Seat:
        folder, planned, epochs = map(context.run_config.get, ("audit-out", "num-server-rounds", LOCAL_EPOCHS))
        return Seat(
            run=f"{context.run_id}",
            node=f"{context.node_id}",
            shelf=InContext(context),
            game=lambda: self.game(context),
            home=node_folder(),
            folder=self.out or (Path(str(folder)) if folder else None),
            rounds=planned,
            local_epochs=epochs,
        )


def node_folder() -> Path:
    """Where a party without `out=` keeps its memory: beside what Flower itself keeps of this node."""
    return get_flwr_home() / "fedaudit"


class InContext:
    """A shelf in Flower's context of a node, which outlives the process of a ClientApp."""

    def __init__(self, context: Context):
        self.state = context.state

    def values(self, key: str) -> Mapping[str, Any] | None:
        return self.state.config_records.get(key)

    def arrays(self, key: str) -> Mapping[str, NDArray[Any]]:
        return {name: array.numpy() for name, array in self.state.array_records[f"{key}.arrays"].items()}

    def keep(self, key: str, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> None:
        if arrays is not None:
            self.state[f"{key}.arrays"] = ArrayRecord({name: Array(value) for name, value in arrays.items()})
        self.state[key] = ConfigRecord(dict(values))


# ------------------------------------------------------------------ messages


def withheld(message: Message, refused: Refused) -> Message:
    return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, str(refused)), reply_to=message)


def stage_of(message: Message) -> object:
    """Of Flower's SecAgg+, if the server says that this message belongs to it."""
    return message.content.config_records.get(RECORD_KEY_CONFIGS, ConfigRecord()).get(Key.STAGE)


def is_masked(reply: Message) -> bool:
    return RECORD_KEY_CONFIGS in reply.content.config_records


def single(message: Message, watch: Watch, where: str) -> State:
    records = list(message.content.array_records.values())
    if len(records) != 1:
        what = f"{len(records)} array records in place of one"
        raise FedauditError("array-records", what, "Send the model as one ArrayRecord.", where=where)
    return watch.matched({name: array.numpy() for name, array in records[0].items()}, where)


def round_of(message: Message, otherwise: int) -> int:
    """FedAvg and all that follow it tell the round; for others it is counted."""
    told = [record["server-round"] for record in message.content.config_records.values() if "server-round" in record]
    return int(told[0]) if told and isinstance(told[0], int) else otherwise


def epoch_seconds(reply: Message) -> float | None:
    """How long a local epoch took, if the app says so among its metrics."""
    for record in reply.content.metric_records.values():
        value: Any = record.get(EPOCH_SECONDS)
        if isinstance(value, int | float):
            return float(value)
    return None
