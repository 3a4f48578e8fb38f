"""The server: federated averaging that is recorded. Before its third round it waits for two nodes it never saw."""

import json
import time
from collections.abc import Iterable
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedaudit.integrations.flower import trace_strategy
from fedaudit.words import line
from tests.integrations.flower_world import initial

app = ServerApp()


class Watched(FedAvg):
    """Keeps whom it asked in each round and what came back: the reason of an error, or None for a model."""

    def __init__(self, folder: Path):
        super().__init__(fraction_evaluate=0.0)
        self.folder = folder
        self.asked: list[list[int]] = []
        self.came: list[list[tuple[int, str | None]]] = []

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if server_round == 3:
            (self.folder / "restart").write_text("now")
            while len(set(grid.get_node_ids()) - set(self.asked[0])) < 2:
                time.sleep(0.2)
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self.asked.append([message.metadata.dst_node_id for message in messages])
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        found = list(replies)
        self.came.append([(m.metadata.src_node_id, m.error.reason if m.has_error() else None) for m in found])
        return super().aggregate_train(server_round, found)


@app.main()
def main(grid: Grid, context: Context) -> None:
    folder = Path(str(context.run_config["folder"]))
    strategy = Watched(folder)
    recorded = trace_strategy(strategy, out=folder / "server")
    recorded.start(
        grid=grid, initial_arrays=initial(), num_rounds=int(str(context.run_config["num-server-rounds"])), timeout=600
    )
    told = {"asked": strategy.asked, "came": strategy.came, "gaps": [line(gap) for gap in recorded.session.gaps]}
    (folder / "seen.json").write_text(json.dumps(told))
