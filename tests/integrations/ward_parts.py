"""The app in three_wards: whose records are whose."""

from functools import cache

import numpy as np
from flwr.app import Context, Message
from sklearn.datasets import load_digits

from fedaudit.data.set_aside import set_aside
from fedaudit.types import Game, Records
from tests.integrations.worlds import PARTIES, part

WARDS = (*PARTIES, "east")
WARD = "ward"  # the metric that says which of them a reply is from


@cache
def own(ward: str) -> tuple[Records, Game]:
    """East has digits of its own: those of south in a mirror."""
    if ward in PARTIES:
        return part(ward)
    x, y = load_digits(return_X_y=True)
    mirrored = x.reshape(-1, 8, 8)[1::2, :, ::-1].reshape(-1, 64)
    return set_aside((mirrored / 16).astype(np.float32), y[1::2], party=ward, seed=1)


def number_of(context: Context) -> int:
    return int(str(context.node_config["partition-id"]))


def name_of(message: Message) -> str:
    return WARDS[int(str(message.content.metric_records["metrics"][WARD]))]
