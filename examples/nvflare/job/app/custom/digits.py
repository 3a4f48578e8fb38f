"""A job of NVIDIA FLARE: sites site-1, site-2, ... train a small network on handwritten digits.

What fedaudit needs of it are `net` and `game`. The rest is an ordinary job.
"""

import numpy as np
import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.executor import Executor
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.abstract.model_persistor import ModelPersistor
from sklearn.datasets import load_digits
from torch import nn

import fedaudit

SITES = 2


def net():
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))


def load(site):
    """Your own loader; the last line is new. Train on the records that it returns, and on no others."""
    x, y = load_digits(return_X_y=True)
    mine = slice(int(site.removeprefix("site-")) - 1, None, SITES)
    return fedaudit.set_aside((x[mine] / 16).astype(np.float32), y[mine], party=site, seed=1)


def game(site):
    return load(site)[1]


def games():
    """For a server that may see the records of all sites, as in a simulation."""
    return [game(f"site-{number}") for number in range(1, SITES + 1)]


class Trainer(Executor):
    """Trains two epochs on this site's records, and sends the change of the weights."""

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        records, _ = load(fl_ctx.get_identity_name())
        received, module = from_shareable(shareable).data, net()
        module.load_state_dict({name: torch.from_numpy(value) for name, value in received.items()})
        x, y = torch.from_numpy(records.x), torch.from_numpy(records.y)
        optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
        for _ in range(2):
            for batch in torch.split(torch.randperm(len(x)), 32):
                optimizer.zero_grad()
                nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
                optimizer.step()
        change = {name: value.numpy() - received[name] for name, value in module.state_dict().items()}
        meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: len(records)}
        return DXO(DataKind.WEIGHT_DIFF, data=change, meta=meta).to_shareable()


class Start(ModelPersistor):
    """The model that the training starts from."""

    def load_model(self, fl_ctx):
        torch.manual_seed(0)
        return make_model_learnable({name: value.numpy() for name, value in net().state_dict().items()}, {})

    def save_model(self, model, fl_ctx):
        """What comes of it is in the recorder's folder."""
