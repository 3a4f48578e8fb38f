"""The server: federated averaging, and nothing that has to do with the audit."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quickstart.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    rounds = context.run_config["num-server-rounds"]
    strategy = FedAvg(fraction_evaluate=0.0)
    strategy.start(grid=grid, initial_arrays=ArrayRecord(Net().state_dict()), num_rounds=rounds)
