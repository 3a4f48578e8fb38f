"""A guard that the site owns: a SuperNode of Flower that lets nothing out which its site has not audited.

    fedaudit guard site.toml -- flower-supernode --superlink HOST:PORT ...

A mod is part of the app, and whoever writes the app may leave it out. The guard is part of the node. It stands where
messages leave the machine, in the process of the SuperNode; the code of an app runs in another one (`flwr-clientapp`),
in both of Flower's modes of isolation. So an app can remove mods, change fedaudit, catch exceptions or end its process:
what it hands over for sending is looked at after that. The site's file is read once, before any app runs.

1. A message arrives: it is kept, with the model in it.
2. The app hands over its reply. It must be the reply to that message, with one set of arrays: the audited model's.
3. The update is audited as a server could attack it, as by `PartyAudit(strict=True)`. No audit, no update: whatever
   goes wrong on the way, an error without details is sent in its place.

What goes with an update (metrics, names) is counted in bytes and limited, replies to other messages may carry no
arrays, and the text of an app's own errors does not leave.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from flwr.app import Array, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Stage
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from pydantic import Field, ValidationError

from fedaudit.config import code
from fedaudit.config.schema import explain, read_toml
from fedaudit.config.section import Section
from fedaudit.data.game_file import load_game
from fedaudit.errors import FedauditError
from fedaudit.integrations.flower.client import (
    is_masked,
    node_folder,
    round_of,
    single,
    stage_of,
    withheld,
)
from fedaudit.integrations.options import PartyOptions, as_task
from fedaudit.integrations.outgoing import Sends
from fedaudit.integrations.party import OwnShelf, Reaction, Refused, Seat, SelfAudit, Watch
from fedaudit.types import Game, State, Vantage

log = logging.getLogger("flwr")  # the SuperNode's own log
NODE = "flower-supernode"
PATIENCE = 600.0  # seconds for which the parts of a reply may be on their way
FAILED = "fedaudit: the app failed"  # in place of whatever an app says of its failure


class GuardFile(Section):
    """The site's own file. Relative paths and modules are looked for beside it."""

    game: Path = Field(description="the site's game, as fedaudit.data.game_file.save_game writes it")
    model: str = Field(description='the model that may leave: "package.module:factory"')
    rounds: int = Field(gt=0, description="how many rounds are planned: the intervals share their error among them")
    out: Path | None = Field(None, description="the folder for results, reports and the audit's memory")
    halt_if: str | None = Field(
        None, description='the limit at which the site stops sending, such as "tpr@0.01 > 0.05"'
    )
    warn_if: str | None = Field(None, description="a limit that is only logged")
    incoming: Reaction = Field(
        "warn", description="what is done about a model that looks prepared to give single records away"
    )
    unaudited: Literal["withhold", "send"] = Field("withhold", description="what becomes of an update without audit")
    secagg: bool = Field(False, description="may an app mask its update? It can then only be audited as a sum")
    sends: Sends = Field("weights", description="what an app sends: its weights, or their changes")
    beside: int = Field(1024, ge=0, description="how many bytes may leave beside the model, in metrics and names")
    attacks: list[str | dict[str, Any]] | None = Field(None, description="as in [audit]")
    fpr: list[float] | None = Field(None, description="as in [audit]")
    confidence: float = Field(0.95, description="of every interval")
    seed: int = Field(0, description="everything random follows from it")
    max_cost: float | None = Field(None, gt=0, description="as in [audit]")
    local_epochs: int = Field(1, gt=0, description="how many the site makes in a round: the unit of all costs")


def read_site(path: Path) -> GuardFile:
    """Everything that can be refused is refused here, before the node starts."""
    raw = read_toml(path, "guard")
    try:
        site = GuardFile.model_validate(raw)
    except ValidationError as error:
        raise explain(error, str(path)) from None
    code.found_in(str(path.parent.resolve()))
    beside = {key: path.parent.resolve() / value for key, value in site if isinstance(value, Path)}
    return site.model_copy(update=beside)


@dataclass(frozen=True)
class Unanswered:
    """A message that an app was asked to answer, and what is in it, as far as that could be read."""

    message: Message
    content: Message | None
    clock: float


class Guard:
    """Between the SuperNode and its connection to the SuperLink."""

    def __init__(self, site: GuardFile):
        self.site, self.strict = site, site.unaudited == "withhold"
        self.game: Game = load_game(site.game)
        options = PartyOptions(
            attacks=site.attacks,
            fpr=site.fpr,
            confidence=site.confidence,
            seed=site.seed,
            local_epochs=site.local_epochs,
            max_cost=site.max_cost,
            strict=self.strict,
            sends=site.sends,
        )
        self.audit = SelfAudit(
            site.model,
            log,
            rounds=site.rounds,
            halt_if=site.halt_if,
            warn_if=site.warn_if,
            incoming=site.incoming,
            **options,
        )
        as_task(site.model, self.game)  # a model that cannot be made is told before the node starts
        self.shelves: dict[int, OwnShelf] = {}  # by run
        self.held: dict[str, Unanswered] = {}  # by message

    # ------------------------------------------------------------------ one message and its reply

    def arrive(self, message: Message, content: Message | None) -> None:
        self.held[message.metadata.message_id] = Unanswered(message, content, time.perf_counter())

    def leave(self, asked: str, read: Callable[[], Message]) -> Error | None:
        """What is sent in place of a reply; None if it may leave. `asked`: which message it answers; `read` makes a
        message of what the app handed over."""
        held = self.held.pop(asked, None)
        try:
            if held is None:
                raise FedauditError("unasked", "a reply to a message that was not seen", "Answer what is asked, once.")
            return self._refusal(held, held.content, read())
        except Exception as error:
            log.error("fedaudit: a reply is withheld: %s", error, exc_info=not isinstance(error, FedauditError))
            told = error.code if isinstance(error, FedauditError) else "fault"
            return Error(ErrorCode.MOD_FAILED_PRECONDITION, str(Refused(told)))

    def _refusal(self, held: Unanswered, message: Message | None, reply: Message) -> Error | None:
        if reply.has_error():
            return Error(reply.error.code, FAILED)
        if message is None:
            raise FedauditError("unread", "the message that is answered could not be read", "See the log above.")
        if _address(reply) != _address(Message(RecordDict(), reply_to=message)):
            raise FedauditError("reply-address", "the reply is not addressed as a reply", "Use Message(reply_to=...).")
        training = message.metadata.message_type.startswith("train")
        stage = stage_of(message)
        masked = self.site.secagg and training and stage is not None
        if training and not masked and stage is not None:
            raise FedauditError("secagg", "the app asks for a masked update", "Allow it: secagg = true.")
        updates = training and (stage is None or stage == Stage.COLLECT_MASKED_VECTORS)
        hidden = masked and is_masked(reply)  # plain arrays beside masked ones would leave without an audit
        self._check_beside(reply, arrays=updates and not hidden, masked=hidden)
        if not updates:
            return None
        refused = self._audited(message, reply, masked, time.perf_counter() - held.clock)
        return None if refused is None else withheld(message, refused).error

    def _audited(self, message: Message, reply: Message, masked: bool, elapsed: float) -> Refused | None:
        run = message.metadata.run_id
        seat = Seat(
            run=f"{run}",
            node="guarded",
            shelf=self.shelves.setdefault(run, OwnShelf()),
            game=lambda: self.game,
            home=node_folder(),
            folder=self.site.out,
        )
        vantage = Vantage.SECAGG_SERVER if masked else Vantage.SERVER
        index = round_of(message, 0)
        admitted = self.audit.admit(seat, vantage, index, lambda watch: single(message, watch, "the message"))
        if admitted is None or isinstance(admitted, Refused):
            return admitted
        index = index or admitted.watch.session.last + 1

        def leaves(watch: Watch) -> State | None:
            if masked and is_masked(reply):
                return None
            _check_exact(reply, watch.like)
            return single(reply, watch, f"round {index}")

        return self.audit.release(seat, admitted, index, leaves, elapsed=elapsed)

    def _check_beside(self, reply: Message, *, arrays: bool, masked: bool) -> None:
        if any(reply.content.array_records.values()) and not arrays:
            what = f"{'plain ' if masked else ''}arrays in a reply to {reply.metadata.message_type!r}"
            raise FedauditError("arrays-beside", what, "Send models in replies to training messages only, and once.")
        size = beside(reply.content, without=RECORD_KEY_CONFIGS if masked else None)
        if size > self.site.beside:
            what = f"{size} bytes beside the model, and the site lets {self.site.beside} leave"
            raise FedauditError("too-much-beside", what, "Send fewer metrics, or raise `beside` in the site's file.")

    # ------------------------------------------------------------------ the connection

    def connected(self, connection: Sequence[Any], store: Any) -> tuple[Any, ...]:
        """Flower's own functions for a connection, guarded. `store`: where an app's reply waits to be sent."""
        node_id, receive, send, get_run, get_fab, pull_object, push_object, confirm = connection
        trees: dict[str, ObjectTree] = {}
        parts: dict[str, bytes] = {}
        allowed: set[str] = set()

        def guarded_receive() -> tuple[Message, ObjectTree] | None:
            parts.clear()
            got: tuple[Message, ObjectTree] | None = receive()
            if got is not None:
                trees[got[0].metadata.message_id] = got[1]
                self.arrive(got[0], None)
            return got

        def guarded_pull(run_id: int, object_id: str) -> bytes:
            content: bytes = pull_object(run_id, object_id)
            parts[object_id] = content
            return content

        def guarded_confirm(run_id: int, message_id: str) -> None:
            try:
                content = inflated(trees.pop(message_id), lambda part: parts.get(part) or store.get(part))
                self.arrive(self.held[message_id].message, _named(content, message_id))
            except Exception as error:
                log.error("fedaudit: a message could not be read", exc_info=error)
            confirm(run_id, message_id)

        def guarded_send(message: Message, tree: ObjectTree, seconds: float) -> tuple[set[str], str]:
            asked = message.metadata.reply_to_message_id
            before = self.held.get(asked)
            refusal = self.leave(asked, lambda: inflated(tree, lambda part: _patiently(store, part)))
            if refusal is None:
                ids, session = send(message, tree, seconds)
                allowed.update(ids)
                return ids, session
            if before is None:  # there is nothing to reply to
                raise RuntimeError("fedaudit: a reply to no message is not sent")
            reply = Message(refusal, reply_to=before.message)
            reply = _named(reply, reply.object_id)
            ids, session = send(reply, get_object_tree(reply), seconds)
            for object_id, made in get_all_nested_objects(reply).items():
                if object_id in ids:
                    push_object(reply.metadata.run_id, session, object_id, made.deflate())
            return set(), session

        def guarded_push(run_id: int, session: str, object_id: str, content: bytes) -> None:
            if object_id not in allowed:
                raise RuntimeError("fedaudit: a part of a reply that was not looked at is not sent")
            push_object(run_id, session, object_id, content)

        return (
            node_id, guarded_receive, guarded_send, get_run, get_fab, guarded_pull, guarded_push, guarded_confirm
        )  # fmt: skip


def run(site: Path, command: Sequence[str]) -> None:
    """`flower-supernode` in this process, with everything that leaves it guarded."""
    if Path(command[0]).name != NODE:
        what = f"{command[0]!r} is no node of Flower"
        raise FedauditError("guard-command", what, f"Write: fedaudit guard {site} -- {NODE} --superlink HOST:PORT ...")
    guard = Guard(read_site(site))
    main = import_module("flwr.supernode.cli.flower_supernode")
    loop = import_module("flwr.supernode.start_client_internal")

    def start(**given: Any) -> None:
        store = given["state_factory"].objectstore_factory.store()
        connect = loop._init_connection

        @contextmanager
        def connection(*arguments: Any, **options: Any) -> Iterator[tuple[Any, ...]]:
            with connect(*arguments, **options) as made:
                yield guard.connected(made, store)

        with instead(loop, "_init_connection", connection):
            loop.start_client_internal(**given)

    with instead(main, "start_client_internal", start), instead(sys, "argv", [NODE, *command[1:]]):
        log.info("fedaudit: %s guards this node: nothing leaves it without an audit", site)
        main.flower_supernode()


@contextmanager
def instead(module: ModuleType, name: str, made: Any) -> Iterator[None]:
    """Something of Flower's, replaced. What is not there cannot be guarded, and the node does not start."""
    if not hasattr(module, name):
        what = f"this version of Flower has no {module.__name__}.{name}, where the guard stands"
        raise FedauditError("guard-flower", what, "Install flwr 1.41.")
    before = getattr(module, name)
    setattr(module, name, made)
    try:
        yield
    finally:
        setattr(module, name, before)


# ------------------------------------------------------------------ messages


def inflated(tree: ObjectTree, get: Callable[[str], bytes | None]) -> Message:
    """A message from its parts. Flower checks each against its name, which is its hash; nothing in them is run."""
    contents: dict[str, bytes] = {}
    for part in iterate_object_tree(tree):
        content = get(part.object_id)
        if not content:
            raise FedauditError("part-missing", "a part of a message is missing", "Send all of it.")
        contents[part.object_id] = content
    found = inflate_object_from_contents(tree.object_id, contents)
    if not isinstance(found, Message):
        raise FedauditError("no-message", f"a {type(found).__name__} in place of a message", "Send a message.")
    return found


def _patiently(store: Any, part: str) -> bytes | None:
    """Apps announce a reply before they hand over all of its parts."""
    deadline = time.monotonic() + PATIENCE
    while (content := store.get(part)) == b"" and time.monotonic() < deadline:
        time.sleep(0.1)
    found: bytes | None = content
    return found


def _named(message: Message, message_id: str) -> Message:
    """Flower's messages do not carry their own name, which is their hash, until somebody sets it."""
    message.metadata.__dict__["_message_id"] = message_id
    return message


def _address(message: Message) -> tuple[Any, ...]:
    about = message.metadata
    return about.run_id, about.dst_node_id, about.reply_to_message_id, about.group_id, about.message_type


def beside(content: RecordDict, without: str | None = None) -> int:
    """In bytes, what a reply holds beside its arrays: names, and eight for every number."""
    total = sum(len(str(name)) for name in content)
    records: list[Any] = [*content.metric_records.values()]
    records += [record for key, record in content.config_records.items() if key != without]
    for record in records:
        for name, value in record.items():
            values = value if isinstance(value, list) else [value]
            total += len(name) + sum(len(one) if isinstance(one, str | bytes) else 8 for one in values)
    return total


def _check_exact(reply: Message, like: State) -> None:
    """Arrays hold the numbers of the model and nothing else: no bytes after them, no more digits than it has."""
    digits = max((value.dtype.itemsize for value in like.values() if value.dtype.kind == "f"), default=0)
    for record in reply.content.array_records.values():
        for name, array in record.items():
            value = array.numpy()
            too_fine = value.dtype.kind == "f" and value.dtype.itemsize > digits
            if too_fine or Array(value).data != array.data:
                what = f"parameter {name!r} holds more than the numbers of the model"
                raise FedauditError("array-size", what, "Send it in the model's own type.")
