"""An audit between two rounds, as arrays and JSON: what a party's context keeps, and nothing executable.

An attack's reduction holds arrays and plain values only, so it is stored field by field and needs no code of its own.
"""

import dataclasses
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit import Auditor
from fedaudit.audit.panel import Panel
from fedaudit.errors import FedauditError
from fedaudit.integrations.recorder import Recorder
from fedaudit.types import Estimate

Arrays = dict[str, NDArray[Any]]
PLAIN = (bool, int, float, str, type(None))
BLIND = ("blind|scores", "blind|reported")


def freeze(recorder: Recorder, auditor: Auditor) -> tuple[Arrays, str]:
    arrays: Arrays = {}
    panels: dict[str, Any] = {}
    for name, panel in _panels(auditor).items():
        panels[name] = {"seconds": [panel.seconds, panel.epoch_seconds], "failed": panel.failed, "reductions": {}}
        panels[name] |= {"rounds": panel.rounds, "settled": sorted(panel.settled)}
        for attack, reduction in panel.reductions.items():
            fields = panels[name]["reductions"][attack] = {}
            for field, value in vars(reduction).items():
                if isinstance(value, np.ndarray):
                    arrays[f"{name}|{attack}|{field}"] = value
                elif _is_plain(value):
                    fields[field] = value
                else:
                    what = f"attack {attack!r} keeps a {type(value).__name__} between rounds, which cannot be stored"
                    raise FedauditError("attack-state", what, "Leave this attack out.")
    history = [
        [attack, model, round, {n: dataclasses.asdict(e) for n, e in found.items()}]
        for (attack, model), rounds in auditor.history.items()
        for round, found in rounds.items()
    ]
    account = {"gaps": recorder.gaps, "notes": recorder.notes, "seen": recorder.seen}
    kept = {"panels": panels, "history": history, "failed": auditor.failed, "last_round": auditor.last_round}
    return arrays, json.dumps(kept | account)


def thaw(recorder: Recorder, auditor: Auditor, arrays: Arrays, text: str) -> None:
    """The opposite: the same audit, in the process that handles the next round."""
    kept = json.loads(text)
    for name, panel in _panels(auditor).items():
        panel.seconds, panel.epoch_seconds = kept["panels"][name]["seconds"]
        panel.failed, panel.rounds = kept["panels"][name]["failed"], kept["panels"][name]["rounds"]
        panel.settled = set(kept["panels"][name]["settled"])
        for attack, reduction in panel.reductions.items():
            for field in vars(reduction):
                key = f"{name}|{attack}|{field}"
                value = arrays[key] if key in arrays else kept["panels"][name]["reductions"][attack][field]
                setattr(reduction, field, value)
    for attack, model, round, found in kept["history"]:
        estimates = {name: _estimate(fields) for name, fields in found.items()}
        auditor.history.setdefault((attack, model), {})[round] = estimates
    auditor.failed, auditor.last_round = kept["failed"], kept["last_round"]
    if set(BLIND) <= set(arrays):
        auditor.blind = arrays[BLIND[0]], arrays[BLIND[1]]
    recorder.gaps, recorder.notes = kept["gaps"], kept["notes"]
    recorder.seen = {int(round): digests for round, digests in kept["seen"].items()}


def blind_arrays(auditor: Auditor) -> Arrays:
    """The blind baseline is the same in every round, and dear: where it was fitted once, it is kept."""
    return {} if auditor.blind is None else dict(zip(BLIND, auditor.blind, strict=True))


def _panels(auditor: Auditor) -> dict[str, Panel]:
    """The global models under a name that no party can have."""
    return {"": auditor.everyone, **auditor.each}


def _is_plain(value: object) -> bool:
    return isinstance(value, PLAIN) or (isinstance(value, list) and all(isinstance(item, PLAIN) for item in value))


def _estimate(fields: dict[str, Any]) -> Estimate:
    interval = fields["realised_fpr_interval"]
    return Estimate(**fields | {"realised_fpr_interval": None if interval is None else (interval[0], interval[1])})
