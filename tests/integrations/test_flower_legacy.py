"""Flower's legacy API: a strategy of it is refused where it would end the training, and its clients can be audited."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.common.typing import NDArrays, Scalar
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow

from fedaudit.errors import FedauditError
from fedaudit.integrations.flower import PartyAudit, record_strategy, trace_strategy
from fedaudit.types import Game
from tests.integrations.flower_world import LocalGrid, as_state, initial
from tests.integrations.worlds import PARTIES, games, net, part, train


@pytest.mark.parametrize("wrapped", ["record", "trace"])
def test_a_legacy_strategy_is_refused_when_it_is_wrapped(tmp_path: Path, wrapped: str) -> None:
    wraps: dict[str, Callable[[], object]] = {
        "record": lambda: record_strategy(FedAvg(), out=tmp_path, rounds=3, model=net, game=games()),  # type: ignore[arg-type]
        "trace": lambda: trace_strategy(FedAvg(), out=tmp_path),  # type: ignore[arg-type]
    }
    with pytest.raises(FedauditError, match=r"PartyAudit") as refused:
        wraps[wrapped]()
    assert refused.value.code == "legacy-strategy"
    assert not list(tmp_path.iterdir())


class Trains(NumPyClient):
    def __init__(self, party: str):
        self.party, self.round = party, 0

    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
        module, mine = net(), part(self.party)[0]
        names = module.state_dict()
        module.load_state_dict({name: torch.from_numpy(a) for name, a in zip(names, parameters, strict=True)})
        train(module, mine, seed=1)
        return [value.numpy() for value in module.state_dict().values()], len(mine), {}


def test_clients_of_the_legacy_api_audit_themselves(tmp_path: Path) -> None:
    def game_of(context: Context) -> Game:
        return part(PARTIES[int(context.node_config["partition-id"])])[1]

    audit = PartyAudit(net, game_of, rounds=3, out=tmp_path, attacks=("loss", "gradient-cosine"))
    app = ClientApp(
        client_fn=lambda context: Trains(PARTIES[int(context.node_config["partition-id"])]).to_client(), mods=[audit]
    )
    start = ndarrays_to_parameters([np.array(value) for value in as_state(initial()).values()])
    strategy = FedAvg(fraction_evaluate=0.0, initial_parameters=start)
    context = LegacyContext(Context(1, 0, {}, RecordDict(), {}), config=ServerConfig(num_rounds=3), strategy=strategy)
    DefaultWorkflow()(LocalGrid(app), context)
    for party in PARTIES:
        document = json.loads((tmp_path / party / "results.json").read_text())
        assert document["run"]["status"] == "complete"
        assert document["run"]["rounds"] == 3
        found = {(one["attack"], one["model"]): one["estimates"]["auc"]["value"] for one in document["results"]}
        assert found["loss", "local"] > 0.5
