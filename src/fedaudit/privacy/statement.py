"""What a run promises and states about privacy. `accounting` computes it; these types need no scipy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from fedaudit.errors import FedauditError
from fedaudit.types import Unit
from fedaudit.types.stored import Many, Number, OrNull, Positive, Whole, if_any, if_known

LEAST_NOISE, MOST_NOISE = 1e-6, 1e100  # beyond these, accountants lose their digits

ELSEWHERE = "it is not known whose records lie at other sites, too"
Sampler = Literal["poisson", "shuffled", "full"]


@dataclass(frozen=True)
class Process:
    """`noise` is the standard deviation divided by the sensitivity. A unit can influence `releases` releases a
    round."""

    unit: Unit
    noise: Number
    releases: Whole
    sampler: Sampler
    # the chance of a unit to be drawn into a release; below 1 for Poisson sampling only
    rate: Number = 1.0

    def check(self) -> None:
        check_noise(self.noise)
        if not 0 < self.rate <= 1:
            raise FedauditError(
                "dp-rate", f"the sampling rate must be above 0 and at most 1, got {self.rate}", "Correct it."
            )
        if self.sampler != "poisson" and self.rate < 1:
            raise FedauditError(
                "dp-sampler",
                f"{self.sampler} sampling gives no amplification, but a rate of {self.rate:g} is given",
                "Sample each unit independently (Poisson), or account with rate 1.",
            )
        if self.releases < 1:
            raise FedauditError("dp-releases", f"there are {self.releases} releases in a round", "Give at least 1.")


@dataclass(frozen=True)
class Group:
    """What one person has of the units of a promise: so many records or parties, none of which takes part more often
    than `process` does."""

    process: Process
    size: int
    replaced: bool = False  # they stay without the person and contribute something else: parties that hold others, too


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A claim about noise: the process of the unit that is worst off, the delta, and the number of units."""

    defence: str
    process: Process
    delta: float
    units: int
    against: str  # the adversaries that it holds against
    people: tuple[Group, ...] = ()  # everybody has at most what one of these has; empty where that is not known


def check_noise(noise: float) -> None:
    if not (math.isfinite(noise) and noise >= 0):
        raise FedauditError(
            "dp-noise", f"noise must be a finite number above 0, got {noise}", "Set, for example, noise = 1.0."
        )
    if noise == 0:
        raise FedauditError(
            "dp-noise-zero",
            "noise 0 gives no finite epsilon",
            "Set noise above 0, or use clip-only, which claims nothing.",
        )
    if noise < LEAST_NOISE:
        raise FedauditError(
            "dp-noise-small",
            f"noise {noise:g} hides nothing: its epsilon is beyond {1 / LEAST_NOISE**2:.0e}",
            f"Set noise of at least {LEAST_NOISE:g}, or use clip-only, which claims nothing.",
        )
    if noise > MOST_NOISE:
        raise FedauditError("dp-noise", f"noise {noise:g} leaves nothing to learn", "Set, for example, noise = 1.0.")


@dataclass(frozen=True)
class Spent:
    """Epsilon over the rounds: what had been spent after each."""

    round: Many[Whole]
    epsilon: Many[OrNull[Number]]


@dataclass(frozen=True, kw_only=True)
class PerPerson:
    """What a promise for records or parties promises a person, by group privacy. Nothing if there is no epsilon."""

    k: Annotated[Positive, Field(description="the most records of one person, or the most parties that hold some")]
    counted: Literal["records", "parties"]
    epsilon: OrNull[Number]
    delta: Number
    method: str
    reason: Annotated[str | None, if_known("why there is no epsilon")] = None

    @property
    def text(self) -> str:
        """A sentence without its full stop, to follow "per person"."""
        one = self.k == 1
        if self.counted == "records":
            held = "nobody has more than one record" if one else f"one person has up to {self.k:,} records"
        else:
            held = f"the records of one person lie in {'one party' if one else f'up to {self.k:,} parties'}"
        if self.epsilon is None:
            return f"no promise, because {held} and {self.reason}"
        return f"epsilon {self.epsilon:.4g} at delta {self.delta:.3g} ({held})"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """`run.guarantee` of results.json: a promise with its epsilon, which is None if it is not finite.

    A file may hold null for unit or adjacency, so that `fedaudit verify` can read it and report the failure.
    """

    unit: Unit | None
    epsilon: OrNull[Number]
    delta: Number
    adjacency: Literal["add-remove", "replace"] | None
    accountant: str
    scope: str
    epsilon_one_round: OrNull[Number]
    epsilon_rdp: OrNull[Number]
    defence: str
    against: str
    process: Process
    curve: Spent
    problems: Many[str] = ()
    further: "Annotated[Many[Statement], if_any()]" = ()  # promises for other units
    per_person: Annotated[PerPerson | None, if_known("where it is known whose the records are")] = None

    @property
    def binding(self) -> float | None:
        """The epsilon that bounds what an audit measures: where people are known, they are in or out as a whole."""
        if self.per_person is None:
            return self.epsilon
        return math.inf if self.per_person.epsilon is None else self.per_person.epsilon


def weakest(claims: Sequence[Statement | None]) -> Statement | None:
    """What all of these trainings promise; None unless all promise the same units the same kind of protection."""
    told = [{_kind(each): each for each in (claim, *claim.further)} if claim else {} for claim in claims]
    if not told or any(each.keys() != told[0].keys() for each in told):
        return None
    found = [_weakest([each[kind] for each in told]) for kind in told[0]]
    return replace(found[0], further=found[1:]) if found else None


def _kind(claim: Statement) -> tuple[str | None, str | None, str, str]:
    return claim.unit, claim.adjacency, claim.against, claim.defence


def _weakest(claims: Sequence[Statement]) -> Statement:
    """The largest epsilon, at the largest delta. A person may have records in several of the trainings."""
    found = max(claims, key=lambda claim: math.inf if claim.epsilon is None else claim.epsilon)
    delta = max(claim.delta for claim in claims)
    problems = tuple(dict.fromkeys(problem for claim in claims for problem in claim.problems))
    persons = [claim.per_person for claim in claims if claim.per_person]
    most = max(persons, key=lambda person: person.k, default=None)
    person = most and replace(most, epsilon=None, delta=delta, reason=ELSEWHERE)
    return replace(found, delta=delta, problems=problems, per_person=person, further=())
