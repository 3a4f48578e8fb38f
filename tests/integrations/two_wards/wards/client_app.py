"""The parties: north halts as soon as anything can be told, south only reports. North has no `out=`."""

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from fedaudit.integrations.flower import PartyAudit
from fedaudit.types import Game
from tests.integrations.flower_world import client_app
from tests.integrations.worlds import PARTIES, net, part

QUICK = ("fta-confidence", "loss")


def name_of(context: Context) -> str:
    return PARTIES[int(context.node_config["partition-id"])]


def game_of(context: Context) -> Game:
    return part(name_of(context))[1]


def audit(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    if name_of(context) == "north":
        mod = PartyAudit(net, game_of, attacks=QUICK, halt_if="auc > 0.01")
    else:
        mod = PartyAudit(net, game_of, attacks=QUICK, out=str(context.run_config["folder"]))
    return mod(message, context, call_next)


app = client_app([audit])
