"""A site's script as NVIDIA FLARE's client API has it: a loop that receives a model, trains it and sends it back."""

import nvflare.client as flare
import torch
from torch.optim import SGD
from torch.utils.data import DataLoader

from fedaudit.types import Game
from tests.integrations.picture_apps import Net, Pictures, fit, load_data


def game(site: str) -> Game:
    return load_data(site)[1]


def main() -> None:
    flare.init()
    site = flare.system_info()["site_name"]
    torch.manual_seed(len(site))
    loader = DataLoader(Pictures(load_data(site)[0]), batch_size=16, shuffle=True)
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.02, momentum=0.9)
    while flare.is_running():
        received = flare.receive()
        model.load_state_dict({name: torch.as_tensor(value) for name, value in received.params.items()})
        fit(model, loader, 3, optimizer)
        params = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
        steps = 3 * len(loader)
        flare.send(flare.FLModel(params=params, metrics={"accuracy": 1.0}, meta={"NUM_STEPS_CURRENT_ROUND": steps}))


if __name__ == "__main__":
    main()
