"""The server: federated averaging that is recorded. It keeps its model after every round, and begins from the last."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg as OlderFedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedaudit.integrations.flower import record_strategy, record_sum
from tests.integrations.flower_world import as_state, initial
from tests.integrations.ward_parts import WARDS, name_of, own
from tests.integrations.worlds import games, net

app = ServerApp()


class Watched(FedAvg):
    """Writes down what came in each round: the reason of an error, or how many bytes of arrays."""

    def __init__(self, folder: Path, nodes: int):
        super().__init__(fraction_evaluate=0.0, min_available_nodes=nodes, min_train_nodes=nodes)
        self.folder = folder

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        found = list(replies)
        came = [m.error.reason if m.has_error() else sum(map(len, map(_text, m.content.values()))) for m in found]
        with (self.folder / "came.jsonl").open("a") as file:
            file.write(json.dumps([server_round, came]) + "\n")
        arrays, metrics = super().aggregate_train(server_round, found)
        if arrays is not None:
            np.savez(self.folder / "model.npz", **as_state(arrays))
        return arrays, metrics


def _text(record: object) -> str:
    return "" if isinstance(record, ArrayRecord) else str(record)


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    folder, rounds = Path(str(settings["folder"])), int(str(settings["num-server-rounds"]))
    start = initial()
    if (folder / "model.npz").exists():
        with np.load(folder / "model.npz") as kept:
            start = ArrayRecord({name: Array(kept[name]) for name in kept.files})
    if settings["secagg"]:
        names = as_state(start)
        older = OlderFedAvg(
            fraction_evaluate=0.0,
            min_fit_clients=3,
            min_available_clients=3,
            initial_parameters=ndarrays_to_parameters(list(names.values())),
            on_fit_config_fn=lambda round: {"server-round": round},
        )
        with record_sum(older, out=folder / "server", model=net, game=games(), rounds=rounds, attacks=["loss"]) as told:
            legacy = LegacyContext(context, config=ServerConfig(num_rounds=rounds), strategy=told)
            DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2))(grid, legacy)
        return
    every = [own(ward)[1] for ward in WARDS]
    strategy = record_strategy(
        Watched(folder, 3),
        out=folder / "server",
        model=net,
        game=every,
        rounds=int(str(settings["planned"])) or rounds,
        party=name_of,
        attacks=["loss"],
    )
    strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds, timeout=600)
