"""The party. What was added to an ordinary ClientApp is `audit`, and the import for it."""

from functools import cache

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from peft import get_peft_model_state_dict, set_peft_model_state_dict

from fedaudit.integrations.flower import PartyAudit
from notes.task import CHARACTERS, adapted, ask, load_data, train

load_data, model = cache(load_data), cache(adapted)


def mine(context: Context):
    return load_data(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))


audit = PartyAudit(adapted, lambda c: mine(c)[1], forward=ask, vocabulary=CHARACTERS, halt_if="auc > 0.7")
app = ClientApp(mods=[audit])


@app.train()
def training(message: Message, context: Context) -> Message:
    records, _ = mine(context)
    set_peft_model_state_dict(model(), message.content["arrays"].to_torch_state_dict())
    loss = train(model(), records.x, records.y, context.run_config["local-epochs"], context.run_config["lr"])
    metrics = MetricRecord({"num-examples": len(records), "loss": loss})
    sent = ArrayRecord(get_peft_model_state_dict(model()))  # the adapter, and nothing else
    return Message(RecordDict({"arrays": sent, "metrics": metrics}), reply_to=message)
