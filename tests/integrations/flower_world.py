"""A whole Flower federation in one process: strategies, messages, apps and mods are Flower's; the wire is absent."""

import copy
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedaudit.types import Records, State
from tests.integrations.worlds import PARTIES, net, part, train

NODES = {101: "north", 202: "south"}
RUNS = count(1)  # every federation is a run of its own


class LocalGrid(Grid):
    """Hands every message to the ClientApp of its node. `change` may drop, repeat or spoil replies."""

    def __init__(self, app: ClientApp, change: Callable[[list[Message]], list[Message]] | None = None):
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # messages name their sender
        self.app, self.change = app, change or (lambda replies: replies)
        run = next(RUNS)
        self.contexts = {
            node: Context(run, node, {"partition-id": PARTIES.index(party)}, RecordDict(), {})
            for node, party in NODES.items()
        }

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        return self.change([self.deliver(message) for message in messages])

    def deliver(self, message: Message) -> Message:
        own = copy.deepcopy(message)  # as if it had travelled: nothing is shared with the sender
        try:
            return self.app(own, self.contexts[message.metadata.dst_node_id])
        except Exception as error:
            from flwr.app import Error

            return Message(Error(code=2, reason=str(error)), reply_to=own)

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def set_run(self, run: Run) -> None: ...

    @property
    def run(self) -> Run:
        return Run.create_empty(1)

    def create_message(self, *arguments: Any, **options: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        raise NotImplementedError


def party_of(message: Message) -> str:
    return NODES[message.metadata.src_node_id]


def own_records(context: Context) -> Records:
    return part(PARTIES[int(str(context.node_config["partition-id"]))])[0]


def client_app(
    mods: list[Mod] | None = None, seeds_from: int = 0, records: Callable[[Context], Records] = own_records
) -> ClientApp:
    """An ordinary ClientApp: trains two epochs on its own digits."""
    app = ClientApp(mods=mods)

    @app.train()
    def training(message: Message, context: Context) -> Message:
        mine = records(context)
        module = net()
        arrays = message.content["arrays"]
        assert isinstance(arrays, ArrayRecord)
        # In order, because Flower's SecAgg+ numbers the arrays in place of naming them.
        module.load_state_dict(dict(zip(module.state_dict(), arrays.to_torch_state_dict().values(), strict=True)))
        config = message.content.config_records["config"]
        train(module, mine, seed=seeds_from + int(str(config["server-round"])))
        metrics = MetricRecord({"num-examples": len(mine)})
        content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluating(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1, "seen": 1.0})}), reply_to=message)

    return app


def initial() -> ArrayRecord:
    torch.manual_seed(0)
    return ArrayRecord(net().state_dict())


def arrays(state: State) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in state.items()})


def as_state(record: ArrayRecord) -> dict[str, Any]:
    return {name: array.numpy() for name, array in record.items()}
