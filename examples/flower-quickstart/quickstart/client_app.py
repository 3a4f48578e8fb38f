"""The party. The line `app = ...` and the import for it are what was added to an ordinary ClientApp."""

from functools import cache

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedaudit.integrations.flower import PartyAudit
from quickstart.task import Net, load_data, train

load_data = cache(load_data)


def mine(context: Context):
    return load_data(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))


app = ClientApp(mods=[PartyAudit(Net, game=lambda context: mine(context)[1], warn_if="auc > 0.6")])


@app.train()
def training(message: Message, context: Context) -> Message:
    records, _ = mine(context)
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = train(net, records.x, records.y, context.run_config["local-epochs"], context.run_config["lr"])
    metrics = MetricRecord({"num-examples": len(records), "loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)
