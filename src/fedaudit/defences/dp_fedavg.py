"""User-level DP: the whole contribution of a party is clipped and noised.

McMahan et al., "Learning differentially private recurrent language models", ICLR 2018.

Central: 1. each party takes part in a round by its own coin (participation = q, sampling = "poisson"); 2. its update is
clipped to norm C as it leaves; 3. the server *sums* them, adds Gaussian noise of standard deviation noise x C, and
divides by the constant q N. Weighting by examples would change the sensitivity, and dividing by how many came would
depend on who did. The server sees clipped updates without noise: the promise holds against everybody else.

Local: each party adds the noise to its own clipped update, so the promise holds against the server, too; the server
knows who took part, so sampling amplifies nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedaudit.errors import FedauditError
from fedaudit.types import State, Trained

Delta = dict[str, np.ndarray[Any, Any]]


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
    """Fills the aggregate slot: sum, noise, constant denominator. Also when nobody came."""

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
    """In float64, of everything that is a floating number."""
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
    """Every released array must be covered by clipping and noise (D5); counters cannot be."""
    whole = [name for name, value in state.items() if not np.issubdtype(value.dtype, np.floating)]
    if whole:
        raise FedauditError(
            "dp-buffers",
            f"{whole[0]!r} is not a floating number: it would leave every party without noise",
            "Use layers without counters (nn.GroupNorm instead of BatchNorm).",
        )
