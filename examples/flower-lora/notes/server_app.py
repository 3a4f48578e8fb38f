"""The server: federated averaging of adapters, and nothing that has to do with the audit."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from peft import get_peft_model_state_dict

from notes.task import adapted

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    rounds = context.run_config["num-server-rounds"]
    begun = ArrayRecord(get_peft_model_state_dict(adapted()))
    FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1).start(
        grid=grid, initial_arrays=begun, num_rounds=rounds
    )
