"""What a host claims about differential privacy, read from the objects that keep it. Nobody types it into a file again.

A claim has the keys of [claim] in a TOML file. After every round it goes to `claim.toml` beside the trace, with the
epsilon that the host's own accountant has counted until then; `fedaudit verify RUN` reads it there and checks it
against the recorded rounds.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedaudit.config.schema import read_toml
from fedaudit.errors import FedauditError
from fedaudit.files import write_atomically
from fedaudit.toml import written
from fedaudit.trace.store import HOST_CLAIM


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


def ledger_of_svt(party: str, meta: Mapping[str, Any]) -> dict[str, Any] | None:
    """What NVIDIA FLARE's `SVTPrivacy` says beside an update: the cost of this call, and of all since the job began."""
    call, since = meta.get("svt_privacy_budget"), meta.get("svt_privacy_accountant")
    if not isinstance(call, Mapping) or not isinstance(since, Mapping):
        return None
    return {
        "party": party,
        "epsilon": float(since["epsilon_total"]),
        "calls": int(since["calls"]),
        "threshold": float(call["epsilon_threshold"]),
        "query": float(call["epsilon_query"]),
        "release": float(call["epsilon_release"]),
        "released": int(call["n_upload"]),
    }


def of_svt(ledgers: Iterable[Mapping[str, Any]], kind: str) -> dict[str, Any]:
    """A party's records are at that party alone: the claim is that of the party which has spent most."""
    found = sorted(ledgers, key=lambda one: str(one["party"]))
    return {
        "mechanism": "sparse-vector",
        "epsilon": max(one["epsilon"] for one in found),
        "unit": "user",
        "adjacency": "replace",
        "kind": kind,
        "ledgers": [dict(one) for one in found],
    }
