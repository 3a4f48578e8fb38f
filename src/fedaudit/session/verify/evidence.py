"""A claim of differential privacy, and what a trace, or a probe of the mechanism itself, shows about noise, clipping
and averaging. No attack is needed."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy import stats

from fedaudit.config.schema import Config, read_toml
from fedaudit.defences.shared import NoisyOptions
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.privacy.accounting import epsilon
from fedaudit.privacy.statement import Group, PerPerson, Process, Promise, Sampler, Statement
from fedaudit.types import Floats, Records, Round, State, Trained, Unit

Kind = TypeVar("Kind", bound=BaseModel)


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


def read_table(path: Path) -> dict[str, Any]:
    return cast(dict[str, Any], read_toml(path, "claim").get("claim", {}))


def declared_as(kind: type[Kind], table: dict[str, Any], path: Path) -> Kind:
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        spot = ".".join(["claim", *(str(part) for part in first["loc"])])
        known = ", ".join(kind.model_fields)
        raise FedauditError("claim", f"{spot}: {first['msg']}", f"Known keys: {known}.", where=str(path)) from None


def read_claim(path: Path, rounds_done: int) -> Claim:
    return Claim(declared_as(Declared, read_table(path), path), rounds_done)


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


# ------------------------------------------------------------------ what the rounds show


ERROR = 1e-6  # chance of calling enough noise too little, for each array looked at
ROUNDING = 1e-3  # relative: what is declared is rounded, and models are kept in float32
MOST = 200_000  # coordinates of an array that are looked at
ROUNDS = 20  # rounds of a trace whose noise is looked at; norms and counts are taken of all

CONSTANT, BY_NUMBER, BY_EXAMPLES = "a constant denominator", "the number that came", "weights by examples"

Arrays = dict[str, Floats]
Way = tuple[str, bool]  # of averaging: what the sum is divided by, and whether the server clipped first


@dataclass(frozen=True)
class Noise:
    """Vectors that should be Gaussian of standard deviation `std`, plus something unknown of norm at most `slack`."""

    label: str
    arrays: Arrays
    std: float
    slack: float = 0.0

    def lacking(self, names: Iterable[str]) -> bool | None:
        """Do these arrays together hold less noise than declared? None: there are too few numbers to tell."""
        vectors = [self.arrays[name] for name in names]
        size = sum(v.size for v in vectors)
        floor = self.std * float(np.sqrt(stats.chi2.ppf(ERROR, size))) if size else 0.0
        if floor <= self.slack:
            return None
        return float(np.sqrt(sum(float(v @ v) for v in vectors))) + self.slack < floor

    def exceeding(self) -> bool:
        """Is there more than the declared noise can explain? Then something else is in it, and nobody knows what."""
        size = sum(v.size for v in self.arrays.values())
        ceiling = self.std * float(np.sqrt(stats.chi2.isf(ERROR, size))) if size else 0.0
        return _norm(self.arrays) > ceiling * (1 + ROUNDING) + self.slack

    def without(self, names: Collection[str]) -> "Noise":
        return replace(self, arrays={key: v for key, v in self.arrays.items() if key not in names})

    def measured(self) -> float:
        size = sum(v.size for v in self.arrays.values())
        return float(np.sqrt(sum(float(v @ v) for v in self.arrays.values()) / max(size, 1)))


@dataclass(kw_only=True)
class Observations:
    """Collected in one pass over the rounds."""

    noises: list[Noise] = field(default_factory=list)
    pairs: list[Noise] = field(default_factory=list)  # differences between draws that must be independent
    norms: list[tuple[str, float]] = field(default_factory=list)  # of what left each party, where it left without noise
    present: list[int] = field(default_factory=list)  # parties in each round
    fits: dict[Way, float] = field(default_factory=dict)  # energy left over under each way of averaging
    uncovered: set[str] = field(default_factory=set)  # arrays that changed and can carry no noise
    constant: set[str] = field(default_factory=set)  # arrays that nobody ever changed: they need no noise
    masked: bool = False  # some updates were recorded as a sum only
    abandoned: list[str] = field(default_factory=list)  # rounds that were released before the server went back
    lost: list[str] = field(default_factory=list)  # why rounds that were done may not be among these
    moved: float | None = None  # by how much replacing one unit moved one step, in units of the allowed 2C
    batches: list[int] = field(default_factory=list)  # their sizes inside a party, where they could be watched
    drawn_from: tuple[int, float] = (0, 1.0)  # how many records, and the chance of each
    rounds: int = 0


# ------------------------------------------------------------------ from a trace


def from_trace(claim: Claim, rounds: Iterable[Round]) -> Observations:
    return from_branches(claim, ((0, round) for round in rounds))


def from_branches(claim: Claim, rounds: Iterable[tuple[int, Round]]) -> Observations:
    """Rounds, each with the number of its branch: what a server took back was released all the same."""
    reading = _Reading(claim)
    for branch, round in rounds:
        if round.broadcast and round.aggregate:  # else nobody saw what changed
            reading.take(branch, round)
    return reading.evidence()


class _Reading:
    """One pass over the rounds of a trace."""

    def __init__(self, claim: Claim):
        self.claim, self.found = claim, Observations()
        self.changed: set[str] = set()
        self.seen: set[str] = set()
        self.masked = False
        self.draws: list[list[Noise]] = []
        self.noises: list[Noise] = []
        self.again: dict[int, Noise] = {}  # the first noise of each round number, whatever its branch
        self.looked_at: Counter[int] = Counter()

    def take(self, branch: int, round: Round) -> None:
        claim, found = self.claim, self.found
        label = f"round {round.index}" + (f" of branch {branch}" if branch else "")
        found.present.append(len(round.sent))
        readable = {party: trained for party, trained in round.sent.items() if trained.state}
        self.masked |= len(readable) < len(round.sent)
        moved = {key for key in round.broadcast if _changed(round, readable, key)}
        self.changed |= moved
        self.seen |= round.broadcast.keys()
        found.uncovered.update(key for key in moved if _is_whole(round.broadcast[key]))
        if claim.said.where == "aggregate":
            found.norms.extend(
                (f"{label}, {party}", _norm(_change(round.broadcast, trained.state, most=None)))
                for party, trained in readable.items()
            )
        self.looked_at[branch] += 1
        if self.looked_at[branch] > ROUNDS:
            return
        drawn = list(_drawn(claim, replace(round, sent=readable), label, None if self.masked else found.fits))
        if drawn and (twin := self.again.setdefault(round.index, drawn[0])) is not drawn[0]:
            self.draws.append([twin, drawn[0]])
        self.draws.append(drawn)
        self.noises += drawn

    def evidence(self) -> Observations:
        constant = self.seen - self.changed
        noises = [noise.without(constant) for noise in self.noises]
        draws = [[noise.without(constant) for noise in drawn] for drawn in self.draws if drawn]
        pairs = [_difference(a, b) for drawn in draws for a, b in pairwise(drawn)]  # of parties, of branches
        pairs += [_difference(a[0], b[0]) for a, b in pairwise(draws) if a[0].label != b[0].label]  # of two rounds
        pairs += [pair for noise in noises if not noise.slack for pair in _layers(noise)]
        rounds = len(self.found.present)
        return replace(self.found, rounds=rounds, masked=self.masked, constant=constant, noises=noises, pairs=pairs)


def _drawn(claim: Claim, round: Round, label: str, fits: dict[Way, float] | None) -> Iterator[Noise]:
    """`fits`: energy left over under each way of averaging, to be added to; None where only sums were recorded."""
    residual = None if fits is None else _averaging(claim, round, label, fits)
    if claim.said.where == "aggregate" and residual:
        yield residual
    elif claim.said.where == "update":
        for party in sorted(round.sent):
            change = _change(round.broadcast, round.sent[party].state)
            yield Noise(f"{label}, {party}", change, claim.noise_std, claim.said.clip)


def _averaging(claim: Claim, round: Round, label: str, fits: dict[Way, float]) -> Noise | None:
    """What the server added: the aggregate less the mean of what was sent, under each way of taking that mean.

    Updates are recorded as they arrive, and a server may clip them after that: each way is tried with and without.
    """
    if not round.sent:
        return None
    changes = {party: _change(round.broadcast, trained.state) for party, trained in round.sent.items()}
    scale = {
        party: claim.said.clip / max(_norm(_change(round.broadcast, trained.state, most=None)), claim.said.clip)
        for party, trained in round.sent.items()
    }
    total = sum(trained.examples for trained in round.sent.values())
    denominator = claim.said.denominator or float(claim.said.rate * (claim.said.parties or len(changes)))
    means = {
        CONSTANT: dict.fromkeys(changes, 1 / denominator),
        BY_NUMBER: dict.fromkeys(changes, 1 / len(changes)),
        BY_EXAMPLES: {p: round.sent[p].examples / max(total, 1) for p in changes},
    }
    applied = _change(round.broadcast, round.aggregate)
    left: dict[Way, Arrays] = {}
    for (mean, weights), clipped in product(means.items(), (False, True)):
        part = {p: w * (scale[p] if clipped else 1.0) for p, w in weights.items()}
        left[mean, clipped] = {
            key: applied[key] / claim.said.server_lr - sum(w * changes[p][key] for p, w in part.items())
            for key in applied
        }
    for way, residual in left.items():
        fits[way] = fits.get(way, 0.0) + _norm(residual) ** 2
    best = min(left, key=lambda way: _norm(left[way]))
    return Noise(label, left[best], claim.noise_std / denominator)


def _difference(a: Noise, b: Noise) -> Noise:
    """Independent noise leaves sqrt 2 of it in the difference; the same noise leaves none."""
    arrays = {key: a.arrays[key] - b.arrays[key] for key in a.arrays}
    return Noise(f"{a.label} and {b.label}", arrays, a.std * 2**0.5, a.slack + b.slack)


def _layers(noise: Noise) -> Iterator[Noise]:
    for (first, a), (second, b) in pairwise(sorted(noise.arrays.items())):
        size = min(a.size, b.size)
        difference = {first: a[:size] - b[:size]}
        yield Noise(f"{noise.label}: arrays {first} and {second}", difference, noise.std * 2**0.5)


# ------------------------------------------------------------------ from the mechanism itself

Train = Callable[[Records, np.random.Generator], Trained]  # one step of SGD with rate 1 on all records


def from_probe(
    claim: Claim, state: State, records: Records, train: Train, units: NDArray[Any], lr: float
) -> Observations:
    """One step, repeated with other noise, and then with the same noise but one unit replaced by an outlier.

    `units` says whose each record is. The step divides by the number of records.
    """
    size = len(records)
    same = train(records, np.random.default_rng(0)).state
    steps = [_change(state, train(records, np.random.default_rng(seed)).state) for seed in range(4)]
    std = claim.noise_std * lr / size
    constant = {key for key in steps[0] if not any(step[key].any() for step in steps)}
    noises = [
        Noise(f"probe {number}", {key: a[key] - b[key] for key in a}, std * 2**0.5).without(constant)
        for number, (a, b) in enumerate(pairwise(steps), start=1)
    ]
    pairs = [pair for noise in noises for pair in (noise, *_layers(noise))]
    moved = []
    for outlier in outliers(records.x, units == units[0]):
        x = records.x.copy()
        x[units == units[0]] = outlier
        other = train(replace(records, x=x), np.random.default_rng(0)).state
        moved.append(_norm(_change(same, other, most=None)))
    most = max(moved) / (2 * claim.said.clip * lr / size)
    return Observations(noises=noises, pairs=pairs, constant=constant, moved=most)


def outliers(x: NDArray[Any], chosen: NDArray[Any]) -> list[NDArray[Any]]:
    """What one unit is replaced by: itself, thirty times as large, in both directions. Tokens have no size, so text is
    replaced by a single token over and over: one that the unit holds, or the highest."""
    if x.dtype.kind == "f":
        return [x[chosen] * -30.0, x[chosen] * 30.0]
    return [np.full_like(x[chosen], token) for token in (x[chosen].flat[0], x.max())]


# ------------------------------------------------------------------ arithmetic


def _change(broadcast: State, state: State, most: int | None = MOST) -> Arrays:
    """The change of each array that can carry noise, flat and in float64; of very large arrays a random part, always
    the same."""
    found = {}
    for key, value in broadcast.items():
        if not _is_whole(value) and value.size:
            flat = state[key].astype(np.float64).ravel() - value.astype(np.float64).ravel()
            if most and flat.size > most:
                flat = flat[np.random.default_rng(0).choice(flat.size, most, replace=False)]
            found[key] = flat
    return found


def _norm(arrays: Mapping[str, Floats]) -> float:
    return float(np.sqrt(sum(float(v @ v) for v in arrays.values())))


def _is_whole(value: NDArray[Any]) -> bool:
    return not np.issubdtype(value.dtype, np.floating)


def _changed(round: Round, sent: Mapping[str, Trained], key: str) -> bool:
    states = (round.aggregate, *(trained.state for trained in sent.values()))
    return any(not np.array_equal(state[key], round.broadcast[key]) for state in states)
