"""A claim of differential privacy, as somebody makes it: declared in a file, or by a run's own configuration."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedaudit.config.schema import Config
from fedaudit.config.toml import read_toml
from fedaudit.defences.shared import NoisyOptions
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.privacy.accounting import epsilon
from fedaudit.privacy.statement import Group, PerPerson, Process, Promise, Sampler, Statement
from fedaudit.types import Unit

# Where the noise is added: to gradients inside the party, to the update as it leaves, or to the sum at the server.
Where = Literal["gradient", "update", "aggregate"]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Epsilon = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Declared(BaseModel):
    """[claim] in a TOML file: what is claimed about a training that fedaudit did not configure."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epsilon: _Epsilon
    delta: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
    clip: _Positive
    noise: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # standard deviation / sensitivity
    where: Where
    unit: Literal["record", "subject", "user"] | None = None
    adjacency: Literal["add-remove", "replace"] | None = None
    sensitivity: _Positive | None = None  # what the noise is scaled by; the clip norm unless declared otherwise
    epsilon_one_round: _Epsilon | None = None
    rounds: Annotated[int, Field(ge=1)] | None = None  # that the accountant counted
    releases: Annotated[int, Field(ge=1)] = 1  # a unit can influence in one round
    sampler: Literal["poisson", "uniform", "shuffled", "full"] = "full"  # in use
    accounted_as: Literal["poisson", "uniform", "shuffled", "full"] | None = None
    rate: Annotated[float, Field(gt=0, le=1)] = 1.0  # of sampling, as accounted
    parties: Annotated[int, Field(ge=1)] | None = None
    denominator: _Positive | None = None  # of the noisy sum
    clipped: Literal["party", "server"] = "party"  # by whom; a server clips after the updates were recorded
    server_lr: _Positive = 1.0  # by which the server multiplies the noisy mean


@dataclass(frozen=True)
class Claim:
    said: Declared
    rounds_done: int
    name: str = ""  # whose claim, where there are several
    people: tuple[Group, ...] = ()  # what one person has at most, where that is known
    per_person: PerPerson | None = None  # as stated

    @property
    def sensitivity(self) -> float:
        return self.said.clip if self.said.sensitivity is None else self.said.sensitivity

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise that is added, before any division."""
        return self.said.noise * self.sensitivity

    @property
    def honest(self) -> Process:
        """The process as an accountant must see it: against the clip norm, amplified by Poisson sampling only."""
        said = self.said
        poisson = said.sampler == "poisson" and said.rate < 1
        multiplier = self.noise_std / said.clip / (2 if said.adjacency == "replace" else 1)
        sampler: Sampler = "poisson" if poisson else "full"
        return Process(
            cast(Unit, said.unit or "record"), multiplier, said.releases, sampler, said.rate if poisson else 1
        )

    def spent(self, rounds: int) -> float:
        """The correct epsilon of so many rounds; infinite without noise."""
        return math.inf if self.noise_std == 0 else epsilon(self.honest, rounds, self.said.delta)


def read_claim(path: Path, rounds_done: int) -> Claim:
    raw = read_toml(path, "claim")
    try:
        return Claim(Declared.model_validate(raw.get("claim", {})), rounds_done)
    except ValidationError as error:
        first = error.errors()[0]
        spot = ".".join(["claim", *(str(part) for part in first["loc"])])
        known = ", ".join(Declared.model_fields)
        raise FedauditError("claim", f"{spot}: {first['msg']}", f"Known keys: {known}.", where=str(path)) from None


def claimed_by(config: Config, promise: Promise, stated: Statement | None, rounds_done: int) -> Claim:
    """The claim that fedaudit itself makes for a run; `stated` is the part of `run.guarantee` about this promise."""
    noisy = (each for each in config.defences if isinstance(each, NoisyOptions))
    asked = next(each for each in noisy if each.name == promise.defence)
    where, federation = asked.slots[-1], config.federation
    try:
        if stated is None or not stated.curve.round:
            raise ValueError(f"it does not say what {promise.defence} has spent")
        said = {
            "epsilon": stated.epsilon,
            "delta": stated.delta,
            "clip": asked.clip,
            "noise": promise.process.noise,
            "where": where,
            "unit": stated.unit,
            "adjacency": stated.adjacency,
            "epsilon_one_round": stated.epsilon_one_round,
            "rounds": stated.curve.round[-1],
            "releases": promise.process.releases,
            # Batches are drawn inside the party, parties by the federation.
            "sampler": promise.process.sampler if where == "gradient" else federation.sampling or "full",
            "accounted_as": stated.process.sampler,
            "rate": stated.process.rate,
            "parties": federation.parties,
            "denominator": federation.participation * federation.parties if where == "aggregate" else None,
        }
        name = f"{promise.defence}, one {promise.process.unit}"
        return Claim(Declared.model_validate(said), rounds_done, name, promise.people, stated.per_person)
    except ValueError as error:  # pydantic's are ValueErrors, too
        what = str(error).splitlines()[0]
        raise FedauditError(
            "run-guarantee", f"the guarantee that this run states cannot be read: {what}", "Run it again.",
            exit_code=REFUSED,
        ) from None  # fmt: skip
