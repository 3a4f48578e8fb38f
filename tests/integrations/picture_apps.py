"""Flower apps in the shape of those that people start from: pictures of 3 x 32 x 32, loaders of dicts, a network that
flattens by `view`, and settings from the run's configuration. The pictures are made here, in place of a download."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import fedaudit
from fedaudit.types import Game, Records

CLASSES = 4
RUN = {"num-server-rounds": 2, "local-epochs": 3, "learning-rate": 0.02, "batch-size": 16}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 5), nn.Conv2d(4, 8, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1, self.fc2 = nn.Linear(8 * 5 * 5, 32), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 8 * 5 * 5)
        return torch.as_tensor(self.fc2(F.relu(self.fc1(x))))


class Pictures(Dataset[dict[str, Any]]):
    """Row by row a dict, as Hugging Face's data sets give it."""

    def __init__(self, records: Records):
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"img": torch.from_numpy(self.records.x[index]), "label": int(self.records.y[index])}


@functools.cache
def load_data(party: str, many: int = 200) -> tuple[Records, Game]:
    """The last line is what an audit asks for: train on the records that it returns, and on no others."""
    rng = np.random.default_rng([ord(letter) for letter in party])
    y = rng.integers(0, CLASSES, many)
    shades = np.linspace(-1, 1, CLASSES)[y][:, None, None, None] * [[[1]], [[-0.5]], [[0.25]]]
    x = (shades + 0.5 * rng.normal(size=(many, 3, 32, 32))).astype(np.float32)
    records, game = fedaudit.set_aside(x, y, party=party, seed=0)
    return records, game


def party_of(context: Context) -> str:
    return f"party-{context.node_config['partition-id']}"


def game_of(context: Context) -> Game:
    return load_data(party_of(context))[1]


def fit(net: nn.Module, loader: Any, epochs: int, optimizer: torch.optim.Optimizer) -> float:
    criterion, total = nn.CrossEntropyLoss(), 0.0
    net.train()
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss = criterion(net(batch["img"]), batch["label"])
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * max(1, len(loader)))


def client_app(mods: list[Mod], private: bool = False) -> ClientApp:
    """`private`: with Opacus around the model, as its example has it: what leaves is the module inside."""
    app = ClientApp(mods=mods)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        torch.manual_seed(int(str(context.node_config["partition-id"])))
        model: nn.Module = Net()
        model.load_state_dict(msg.content.array_records["arrays"].to_torch_state_dict())
        mine = Pictures(load_data(party_of(context))[0])
        loader: Any = DataLoader(mine, batch_size=int(str(context.run_config["batch-size"])), shuffle=True)
        rate = float(str(msg.content.config_records["config"]["lr"]))
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        metrics: dict[str, float] = {"num-examples": len(mine)}
        engine: Any = None
        if private:
            from opacus import PrivacyEngine

            engine = PrivacyEngine(secure_mode=False)
            model, optimizer, loader = engine.make_private(
                module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
            )
        metrics["train_loss"] = fit(model, loader, int(str(context.run_config["local-epochs"])), optimizer)
        if engine is not None:
            metrics["epsilon"] = float(engine.get_epsilon(delta=1e-5))
        plain: Any = getattr(model, "_module", model)
        arrays = ArrayRecord(plain.state_dict())
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({**metrics})}), reply_to=msg)

    @app.evaluate()
    def evaluate(msg: Message, context: Context) -> Message:
        metrics = {"eval_acc": accuracy(msg.content.array_records["arrays"], party_of(context)), "num-examples": 1}
        return Message(RecordDict({"metrics": MetricRecord({**metrics})}), reply_to=msg)

    return app


def accuracy(arrays: ArrayRecord, party: str) -> float:
    model, mine = Net(), load_data(party)[0]
    model.load_state_dict(arrays.to_torch_state_dict())
    with torch.no_grad():
        return float((model(torch.from_numpy(mine.x)).argmax(1).numpy() == mine.y).mean())


def server_app(wrapped: Callable[[Strategy], Strategy]) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        torch.manual_seed(0)
        rate = ConfigRecord({"lr": float(str(context.run_config["learning-rate"]))})
        rounds = int(str(context.run_config["num-server-rounds"]))
        strategy = wrapped(FedAvg(fraction_evaluate=0.5))
        given = ArrayRecord(Net().state_dict())
        strategy.start(
            grid=grid, initial_arrays=given, train_config=rate, num_rounds=rounds, evaluate_fn=global_evaluate
        )

    return app


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"accuracy": accuracy(arrays, "party-0")})


def metrics_mod(folder: Path) -> Mod:
    """Somebody's own mod: it writes down what each reply's metrics are, and how long the app took."""

    def mod(msg: Message, context: Context, app: ClientAppCallable) -> Message:
        number = int(str(msg.content.config_records["config"]["server-round"]))
        reply = app(msg, context)
        if reply.has_content() and msg.metadata.message_type.startswith("train"):
            found = dict(reply.content.metric_records["metrics"])
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{context.node_id}-{number}.txt").write_text(f"{found}")
        return reply

    return mod
