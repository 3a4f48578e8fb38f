"""Smartphone sensors worn by 30 people (HAPT, Reyes-Ortiz et al. 2016), from the user's own copy.

A record is a window of 128 samples of six channels (acceleration and rotation along three axes), its class what the
person was doing. People are the subjects. The attribute `experiment` numbers the sessions that were recorded:
windows of one session overlap, so that a record has neighbours that are nearly the same. In a game about people,
windows of one session are never both trained on and held by the adversary.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import Field

from fedaudit.config.registry import DATA, Options
from fedaudit.data import npz
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.types import Dataset

KEYS = ("x", "activity", "subject", "experiment")


class HaptOptions(Options):
    path: Path = Field(description=f"your copy, relative to this file: npz with {', '.join(KEYS)}")


@DATA.register(
    "hapt",
    f"your copy of HAPT, sensor windows of 30 people, 6 activities: path = npz with {', '.join(KEYS)}",
    HaptOptions,
)
def load(options: HaptOptions) -> Dataset:
    stored = npz.read(options.path, KEYS, KEYS)
    person, experiment = stored["subject"], stored["experiment"]
    if person.shape != experiment.shape or person.ndim != 1:
        what = f"{options.path}: subject has shape {person.shape}, experiment {experiment.shape}"
        raise FedauditError("shape", what, "Give one of each for every window.")
    # Experiments are numbered anew for every person.
    pairs = np.stack([person.astype(np.str_), experiment.astype(np.str_)], axis=1)
    session = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    attributes = {"experiment": session}
    found = dataset(options.name, stored["x"], stored["activity"], subject=person, attributes=attributes)
    return replace(found, session="experiment")
