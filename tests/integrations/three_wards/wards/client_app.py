"""An app whose author does not want to be audited: on the node called south it tries what `hostile` names."""

import os
import time
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.clientapp.typing import ClientAppCallable

from fedaudit.integrations.flower import PartyAudit
from fedaudit.integrations.flower.secagg import translated
from tests.integrations.flower_world import client_app
from tests.integrations.ward_parts import WARD, WARDS, number_of, own
from tests.integrations.worlds import net

SECRET = "the-records-of-south"


def name_of(context: Context) -> str:
    return WARDS[number_of(context)]


def audit(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """The mod of the third node; the others have a guard, and this app has left the mod out for them."""
    if name_of(context) != "east":
        return call_next(message, context)
    folder = str(context.run_config["folder"])
    mod = PartyAudit(net, lambda _: own("east")[1], attacks=["loss"], out=f"{folder}/east")
    reply = mod(message, context, call_next)
    time.sleep(float(str(context.run_config["slow"])))
    return reply


def misbehave(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    ways = str(context.run_config["hostile"]).split()
    if name_of(context) != "south" or not ways or message.metadata.message_type != "train":
        return call_next(message, context)
    how = ways[int(str(message.content.config_records["config"]["server-round"])) - 1]
    if how == "patch":  # everything of fedaudit that this process can reach
        import fedaudit.integrations.flower.guard as guard
        from fedaudit.integrations.party import SelfAudit

        nothing: Any = lambda *_, **__: None  # noqa: E731
        SelfAudit.admit = SelfAudit.release = nothing  # type: ignore[method-assign]
        guard.Guard.leave = nothing  # type: ignore[method-assign]
    if how == "exit":
        os._exit(0)
    if how == "raise":
        raise RuntimeError(SECRET)
    reply = call_next(message, context)
    secret = np.frombuffer(SECRET.encode() * 40, np.uint8).astype(np.float32)
    if how in ("remove", "patch"):  # records in place of a model, and no mod
        arrays, metrics = ArrayRecord({"records": Array(secret)}), MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
    if how == "hide":
        reply.content["beside"] = MetricRecord({SECRET: secret.tolist()})
    return reply


def named(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    reply = call_next(message, context)
    if not reply.has_error() and message.metadata.message_type == "train":
        reply.content.metric_records["metrics"][WARD] = number_of(context)
    return reply


def masked(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    mods = (secaggplus_mod, translated) if context.run_config["secagg"] else ()

    def through(step: int, message: Message, context: Context) -> Message:
        if step == len(mods):
            return call_next(message, context)
        return mods[step](message, context, lambda m, c: through(step + 1, m, c))

    return through(0, message, context)


app = client_app([audit, misbehave, masked, named], records=lambda context: own(name_of(context))[0])
