"""User-level DP: the whole contribution of a party is clipped and noised.

McMahan et al., "Learning differentially private recurrent language models", ICLR 2018.

Central: 1. each party takes part in a round by its own coin (participation = q, sampling = "poisson"); 2. its update is
clipped to norm C as it leaves; 3. the server *sums* them, adds Gaussian noise of standard deviation noise x C, and
divides by the constant q N. Weighting by examples would change the sensitivity, and dividing by the number of parties
in the round would depend on who took part. The server sees clipped updates without noise, so the promise holds against
everybody except the server.

Local: each party adds the noise to its own clipped update, so the promise also holds against the server. The server
knows who took part, so sampling gives no amplification.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from fedaudit.config.registry import DEFENCES
from fedaudit.defences.shared import COUNTS, Defence, NoisyOptions, Setting, noise_of, parties_of_one, promise_of
from fedaudit.errors import FedauditError
from fedaudit.types import State, Trained, notice

if TYPE_CHECKING:
    from fedaudit.defences.shared import Slot

Delta = dict[str, np.ndarray[Any, Any]]

NOT_AMPLIFIED = notice("not-amplified")


class DPFedAvgOptions(NoisyOptions):
    local: bool | None = Field(None, description="whether each party adds noise itself; not set: the server adds it")

    @property
    def slots(self) -> tuple[Slot, ...]:
        return ("update",) if self.local else ("update", "aggregate")


@DEFENCES.register(
    "dp-fedavg",
    "user-level DP: clipped updates, noisy sum at the server; or noise at the party (local = true)",
    DPFedAvgOptions,
)
def dp_fedavg(asked: DPFedAvgOptions, setting: Setting) -> Defence:
    from fedaudit.privacy.accounting import check_clip
    from fedaudit.privacy.statement import Process

    check_clip(asked.clip)
    refuse_unfit(setting.initial)
    local, parties, rate = bool(asked.local), len(setting.sources), setting.federation.participation
    amplified = rate < 1 and setting.federation.sampling == "poisson" and not local
    processes = [Process("user", 1.0, 1, "poisson" if amplified else "full", rate if amplified else 1.0)]
    noise = noise_of(asked, processes, setting.rounds)
    against = "everybody, the server included" if local else "whoever sees the noisy sum; not the server that adds it"
    people = parties_of_one(setting, processes[0])
    promise = promise_of(asked, processes, noise, setting.rounds, parties, against, people)
    notices = (NOT_AMPLIFIED,) if rate < 1 and not amplified else ()
    if local:
        return Defence(asked.name, update=Clip(asked.clip, noise), promises=promise, notices=(*notices, COUNTS))
    total = NoisySum(asked.clip, noise, rate * parties)
    return Defence(asked.name, update=Clip(asked.clip), aggregate=total, promises=promise, notices=notices)


@dataclass(frozen=True)
class Clip:
    """Fills the update slot: what leaves differs from the broadcast by C at most. With noise: the local variant."""

    clip: float
    noise: float = 0.0

    def __call__(self, broadcast: State, trained: Trained, rng: np.random.Generator) -> Trained:
        change = clipped(difference(broadcast, trained.state), self.clip)
        if self.noise:
            change = {k: v + rng.normal(0, self.noise * self.clip, v.shape) for k, v in change.items()}
        return replace(trained, state=added(broadcast, change))


@dataclass(frozen=True)
class NoisySum:
    """Fills the aggregate slot: sum, noise, constant denominator; also in a round without any party."""

    clip: float
    noise: float
    denominator: float

    def __call__(self, broadcast: State, sent: Mapping[str, Trained], rng: np.random.Generator) -> State:
        changes = [difference(broadcast, sent[name].state) for name in sorted(sent)]
        total: Delta = {}
        for key in sorted(k for k, v in broadcast.items() if np.issubdtype(v.dtype, np.floating)):
            noise = rng.normal(0, self.noise * self.clip, broadcast[key].shape)
            total[key] = (np.sum([change[key] for change in changes], axis=0) + noise) / self.denominator
        return added(broadcast, total)


def difference(broadcast: State, state: State) -> Delta:
    """The change in float64, for all floating-point arrays."""
    floating = (k for k, v in broadcast.items() if np.issubdtype(v.dtype, np.floating))
    return {key: state[key].astype(np.float64) - broadcast[key] for key in floating}


def norm(change: Mapping[str, Any]) -> float:
    return float(np.sqrt(sum(float(np.sum(np.square(v, dtype=np.float64))) for v in change.values())))


def clipped(change: Delta, clip: float) -> Delta:
    scale = clip / max(norm(change), clip)  # a zero update is left alone
    return {key: value * scale for key, value in change.items()}


def added(broadcast: State, change: Mapping[str, Any]) -> State:
    return {
        key: (value + change[key]).astype(value.dtype) if key in change else value for key, value in broadcast.items()
    }


def refuse_unfit(state: State) -> None:
    """Every released array must be clipped and noised, which is not possible for counters."""
    whole = [name for name, value in state.items() if not np.issubdtype(value.dtype, np.floating)]
    if whole:
        raise FedauditError(
            "dp-buffers",
            f"{whole[0]!r} does not hold floating-point numbers, so it would leave every party without noise",
            "Use layers without counters (nn.GroupNorm instead of BatchNorm).",
        )
