"""What a host claims about differential privacy, read from the objects that keep it. Nobody types it into a file again.

A claim has the keys of [claim] in a TOML file. After every round it goes to `claim.toml` beside the trace, with the
epsilon that the host's own accountant has counted until then; `fedaudit verify RUN` reads it there and checks it
against the recorded rounds.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedaudit.config.schema import read_toml
from fedaudit.errors import FedauditError
from fedaudit.files import write_atomically
from fedaudit.session.verify.evidence import HOST_CLAIM
from fedaudit.toml import written


def write_claim(folder: Path, claim: Mapping[str, Any], round: int) -> None:
    """The claim as it is after this round. What was spent before is kept."""
    path = folder / HOST_CLAIM
    before = read_toml(path, "claim").get("spent", []) if path.exists() else []
    spent = [*(each for each in before if each["round"] != round), {"round": round, "epsilon": claim["epsilon"]}]
    one = {"epsilon_one_round": spent[0]["epsilon"]} if spent[0]["round"] == 1 else {}
    write_atomically(path, written({"claim": {**claim, **one}, "spent": spent}))


def of_opacus(engine: Any, optimizer: Any, delta: float, rounds: int) -> dict[str, Any]:
    """Of Opacus' engine after so many rounds, with the optimizer that it made. Each must have had as many steps."""
    history = engine.accountant.history
    kinds = {(noise, rate) for noise, rate, _ in history}
    steps = sum(count for *_, count in history)
    if len(kinds) != 1 or steps % rounds:
        what = f"the engine counted {steps} steps of {len(kinds)} kinds in {rounds} rounds"
        raise FedauditError("claim-opacus", what, "A claim is about rounds that are alike: check the number of rounds.")
    ((noise, rate),) = kinds
    return {
        "epsilon": float(engine.get_epsilon(delta)),
        "delta": delta,
        "clip": float(optimizer.max_grad_norm),
        "noise": float(noise),
        "where": "gradient",
        "unit": "record",
        "adjacency": "add-remove",
        "rounds": rounds,
        "releases": steps // rounds,
        "sampler": "poisson",
        "accounted_as": "poisson",
        "rate": float(rate),
    }
