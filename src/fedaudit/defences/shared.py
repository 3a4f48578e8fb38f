"""A defence: up to four slots, and what it promises. An empty slot does nothing; two defences in one slot is an error.

gradient   inside the party: how it trains                       (task, state, records, training, rng) -> Trained
update     what leaves the party                                 (broadcast, trained, rng) -> Trained
aggregate  at the server, instead of the weighted mean           (broadcast, {party: trained}, rng) -> State
serve      the answers of the released model                     (task, state, outputs) -> outputs
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from pydantic import Field

from fedaudit.config.registry import Options
from fedaudit.errors import FedauditError
from fedaudit.types import Floats, Notice, Records, State, Trained, notice

if TYPE_CHECKING:
    from fedaudit.config.schema import FederationSection
    from fedaudit.learn.tasks import TorchTask, Training
    from fedaudit.privacy.statement import Group, Process, Promise
    from fedaudit.types import Records, State

Gradient = Callable[["TorchTask", State, Records, "Training", np.random.Generator], Trained]
Update = Callable[[State, Trained, np.random.Generator], Trained]
Aggregate = Callable[[State, Mapping[str, Trained], np.random.Generator], State]
Serve = Callable[[Any, State, Floats], Floats]

Slot = Literal["gradient", "update", "aggregate", "serve"]
SLOTS: tuple[Slot, ...] = get_args(Slot)


@dataclass(frozen=True)
class Defence:
    name: str
    _: KW_ONLY
    gradient: Gradient | None = None
    update: Update | None = None
    aggregate: Aggregate | None = None
    serve: Serve | None = None
    promises: tuple[Promise, ...] = ()
    notices: tuple[Notice | str, ...] = ()

    def __or__(self, other: Defence) -> Defence:
        for slot in SLOTS:
            if getattr(self, slot) and getattr(other, slot):
                raise FedauditError(
                    "defence-conflict",
                    f"{self.name!r} and {other.name!r} both fill the slot {slot!r}",
                    "Remove one of them from [[defences]].",
                )
        return Defence(
            name=" | ".join(part.name for part in (self, other) if part is not NONE) or NONE.name,
            promises=self.promises + other.promises,
            notices=self.notices + other.notices,
            **{slot: getattr(self, slot) or getattr(other, slot) for slot in SLOTS},
        )


NONE = Defence("none")


@dataclass(frozen=True)
class Guarded:
    """An honest party that trains with the defence in the gradient slot. The stacked trainer must not train it."""

    name: str
    source: Callable[[], Records]
    training: Training
    gradient: Gradient

    def update(self, task: TorchTask, model: State, rng: np.random.Generator) -> Trained:
        return self.gradient(task, model, self.source(), self.training, rng)


# ------------------------------------------------------------------ what several share: options, noise, promise

# Given `epsilon` and `delta`, a defence finds the noise for the planned rounds. Given `noise`, it states the epsilon.


DELTA = 1e-5  # unless given

COUNTS = notice("counts-public")


@dataclass(frozen=True)
class Setting:
    """What a defence must know about the federation, to find its noise and to refuse what it cannot protect."""

    task: TorchTask
    initial: State
    sources: Mapping[str, Callable[[], Records]]  # what each party trains on
    training: Training
    federation: FederationSection  # how many rounds are planned, and who takes part in them

    @property
    def rounds(self) -> int:
        return self.federation.rounds

    @property
    def few(self) -> Records:
        """A few records to try a model on."""
        records = next(iter(self.sources.values()))()
        return records.take(np.arange(min(4, len(records))))


class DefenceOptions(Options):
    """Numbers are checked when the defence is built, so that each error has its own code."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots that it fills, in the order in which they act. If it adds noise, it does so in the last of them."""
        return ("gradient",)


class NoisyOptions(DefenceOptions):
    """The options of a defence that adds noise: epsilon (and delta) or noise, and clip."""

    epsilon: float | None = Field(None, description="the guarantee to reach over all rounds; or set noise instead")
    delta: float | None = Field(None, description=f"delta of the guarantee; not set: {DELTA:g}")
    noise: float | None = Field(None, description="noise in units of clip; or set epsilon instead")
    clip: float = Field(description="the largest norm allowed; larger ones are scaled down")


def noise_of(asked: NoisyOptions, processes: Iterable[Process], rounds: int) -> float:
    """The given noise, or the least that keeps the given epsilon for every unit over the planned rounds."""
    from fedaudit.privacy.accounting import check_target, epsilon, noise_for
    from fedaudit.privacy.statement import check_noise
    from fedaudit.stats.gaussian import check_delta

    delta = delta_of(asked)
    if (asked.epsilon is None) == (asked.noise is None):
        raise FedauditError(
            "dp-claim",
            f"{asked.name!r} needs either epsilon or noise",
            "Set one of the two; the other follows from it.",
        )
    if asked.noise is not None:
        check_noise(asked.noise)
        check_delta(delta, zero=False)
        return asked.noise
    assert asked.epsilon is not None
    check_target(asked.epsilon, delta)
    # The unit that is drawn most often comes first: its noise nearly always suffices for the others.
    noise = 0.0
    for process in sorted(processes, key=lambda p: -p.rate * p.releases):
        if not noise or epsilon(replace(process, noise=noise), rounds, delta) > asked.epsilon:
            noise = noise_for(asked.epsilon, delta, process, rounds)
    return noise


def delta_of(asked: NoisyOptions) -> float:
    return DELTA if asked.delta is None else asked.delta


def promise_of(
    asked: NoisyOptions,
    processes: Iterable[Process],
    noise: float,
    rounds: int,
    units: int,
    against: str,
    people: Iterable[Group] = (),
) -> tuple[Promise, ...]:
    """The promise for the unit that is worst off. `people`: see `records_of_one` and `parties_of_one`."""
    from fedaudit.privacy.accounting import epsilon
    from fedaudit.privacy.statement import Promise

    noisy = [replace(process, noise=noise) for process in processes]
    worst = max(noisy, key=lambda p: epsilon(p, rounds, delta_of(asked))) if len(noisy) > 1 else noisy[0]
    groups = tuple(replace(group, process=replace(group.process, noise=noise)) for group in people)
    return (
        Promise(defence=asked.name, process=worst, delta=delta_of(asked), units=units, against=against, people=groups),
    )


def records_of_one(setting: Setting, processes: Mapping[str, Process]) -> list[Group]:
    """How many training records one person has, and how often these take part; `processes` are those of the parties.

    Records in several parties are counted as if all of them lay in a party that draws as often as any of these, in as
    many batches as any of these. Only people who are not surpassed in every respect are kept.
    """
    from fedaudit.privacy.statement import Group

    held = _held(setting)
    found = set()
    for counts in held.values():
        mine = [processes[party] for party in counts]
        found.add((sum(counts.values()), max(p.rate for p in mine), max(p.releases for p in mine)))
    kept: list[tuple[int, float, int]] = []
    for one in sorted(found, reverse=True):
        if not any(all(a <= b for a, b in zip(one, other, strict=True)) for other in kept):
            kept.append(one)
    process = next(iter(processes.values()))
    return [Group(replace(process, rate=rate, releases=releases), size) for size, rate, releases in kept]


def parties_of_one(setting: Setting, process: Process) -> list[Group]:
    """In how many parties one person has training records. A party without anybody else contributes nothing if the
    person is not there; any other one stays, and contributes something else."""
    from fedaudit.privacy.statement import Group

    held = _held(setting)
    if not held:
        return []
    shared = len(setting.sources) < sum(len(counts) for counts in held.values())
    return [Group(process, max(len(counts) for counts in held.values()), replaced=shared)]


def _held(setting: Setting) -> dict[str, dict[str, int]]:
    """The number of each person's training records in each party that has some; empty if it is not known whose they
    are."""
    held: dict[str, dict[str, int]] = {}
    for party, source in setting.sources.items():
        subject = source().subject
        if subject is None:
            return {}
        for person, count in zip(*np.unique(subject, return_counts=True), strict=True):
            held.setdefault(str(person), {})[party] = int(count)
    return held


def within(name: str, value: float, low: float, high: float, *, key: str = "strength") -> float:
    """Returns the value of an option, or refuses it if it is out of range."""
    if not low < value < high:
        raise FedauditError(
            f"defence-{key}",
            f"{name!r}: {key} must lie between {low:g} and {high:g}, got {value:g}",
            "Correct it.",
        )
    return value
