"""What a run promises and states about its privacy. `accounting` computes it; reading it needs no scipy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from fedaudit.errors import FedauditError
from fedaudit.types import ALWAYS, Unit

LEAST_NOISE = 1e-6

Sampler = Literal["poisson", "shuffled", "full"]


@dataclass(frozen=True)
class Process:
    """`noise` is the standard deviation over the sensitivity; a unit can influence `releases` of them a round."""

    unit: Unit
    noise: float
    releases: int
    sampler: Sampler
    # the chance of a unit to be drawn into a release; below 1 for Poisson sampling only
    rate: float = field(default=1.0, metadata=ALWAYS)

    def check(self) -> None:
        check_noise(self.noise)
        if not 0 < self.rate <= 1:
            raise FedauditError(
                "dp-rate", f"a sampling rate lies above 0 and at most at 1, got {self.rate}", "Give one that does."
            )
        if self.sampler != "poisson" and self.rate < 1:
            raise FedauditError(
                "dp-sampler",
                f"{self.sampler} batches are not amplified by a sampling rate of {self.rate:g}",
                "Sample each unit independently (Poisson), or account with rate 1.",
            )
        if self.releases < 1:
            raise FedauditError("dp-releases", f"{self.releases} releases a round", "There is at least one.")


@dataclass(frozen=True)
class Promise:
    """What noise is claimed to buy: the process of the worst-off unit, at which delta, for how many units."""

    defence: str
    process: Process
    delta: float
    units: int
    against: str  # who may look without breaking it


def check_noise(noise: float) -> None:
    if not (math.isfinite(noise) and noise >= 0):
        raise FedauditError("dp-noise", f"noise must be a finite number above 0, got {noise}", "Change it.")
    if noise == 0:
        raise FedauditError(
            "dp-noise-zero",
            "noise 0 keeps no finite epsilon",
            "Give noise above 0, or use clip-only and claim nothing.",
        )
    if noise < LEAST_NOISE:
        raise FedauditError(
            "dp-noise-small",
            f"noise {noise:g} hides nothing: its epsilon is beyond {1 / LEAST_NOISE**2:.0e}",
            f"Give noise of at least {LEAST_NOISE:g}, or use clip-only and claim nothing.",
        )


@dataclass(frozen=True)
class Spent:
    """Epsilon over the rounds: what had been spent after each."""

    round: Sequence[int]
    epsilon: Sequence[float | None]


@dataclass(frozen=True)
class Statement:
    """`run.guarantee` of results.json: a promise, accounted for. Epsilon is None where it is not finite.

    A file may say null for unit or adjacency: `fedaudit verify` then fails the statement instead of not reading it.
    """

    unit: Unit | None
    epsilon: float | None
    delta: float
    adjacency: Literal["add-remove", "replace"] | None
    accountant: str
    scope: str
    epsilon_one_round: float | None
    epsilon_rdp: float | None
    defence: str
    against: str
    process: Process
    curve: Spent
    problems: Sequence[str] = field(default=(), metadata=ALWAYS)
    further: "Sequence[Statement]" = ()  # promises for other units
