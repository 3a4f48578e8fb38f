"""What a part of this question is given, and what it gives: see the room's own text for how one is added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedaudit.questions.update import PARTS
from fedaudit.stats import proportion
from fedaudit.types import Bools, Estimate, Ints, Notice, Records, State

if TYPE_CHECKING:
    from fedaudit.questions.update import UpdateSection

Table = Mapping[str, NDArray[Any]]  # arrays of one length, at least one row
Made = TypeVar("Made")
OUTSIDERS = 2000  # that are looked at, at most


class Once:
    """What several looks need, made once."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __call__(self, what: str, make: Callable[[], Made]) -> Made:
        if what not in self._made:
            self._made[what] = make()
        found: Made = self._made[what]
        return found


class CannotTell(Exception):
    """Nothing may be concluded from this update. The code says why; `fedaudit.words` has its words."""

    def __init__(self, code: str):
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class OneUpdate:
    """What left one party in one round, or the mean of several, as whoever receives it has it.

    `examples`: how many records stand behind it, 0 where that is not known. `task`: the model with its loss; None where
    there are arrays alone. `parties`: whose it is; several where this is their mean.
    """

    received: State
    sent: State
    task: Any = None
    examples: int = 0
    parties: tuple[str, ...] = ("",)
    round: int = 1
    metrics: tuple[str, ...] = ()  # the names of figures that came with it
    by_records: bool = True  # a mean of several: is each weighed by its records?
    once: Once = field(default_factory=Once, compare=False, repr=False)

    @property
    def summed(self) -> bool:
        return len(self.parties) > 1

    @cached_property
    def finite(self) -> bool:
        """A model that diverged says nothing of records, and no part need be ready for it."""
        both = (*self.received.values(), *self.sent.values())
        return all(np.isfinite(value).all() for value in both if value.dtype.kind == "f")


@dataclass(frozen=True, kw_only=True)
class Known:
    """What whoever looks knows beside the update. `outsiders`: records that nobody trained on. `training`: the fields
    of `learn.tasks.Training`, as far as they are known. `defended`: a declared defence changes gradients or
    updates. `columns`: what each column, or token, is called."""

    outsiders: Records | None = None
    classes: int = 0
    training: Mapping[str, Any] = field(default_factory=dict)
    defended: bool = False
    columns: tuple[str, ...] = ()
    seed: int = 0
    models: dict[int, tuple[State, Once]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def some(self) -> Records | None:
        """The outsiders, or some of them, the same every time: enough to know what is usual."""
        if self.outsiders is None or len(self.outsiders) <= OUTSIDERS:
            return self.outsiders
        chosen = np.random.default_rng(self.seed).choice(len(self.outsiders), OUTSIDERS, replace=False)
        return self.outsiders.take(np.sort(chosen))

    def of_model(self, state: State) -> Once:
        """What outsiders say of a model: the same for every update that started from it."""
        return self.models.setdefault(id(state), (state, Once()))[1]  # the state is held: no other gets its id

    def column(self, number: int) -> str:
        return self.columns[number] if number < len(self.columns) else f"column {number + 1}"


@dataclass(frozen=True, kw_only=True)
class BesideTruth:
    """What a part found in one update, beside the records that were trained on. `party`: None where it is a sum."""

    party: str | None
    round: int
    vantage: str
    table: Table
    members: Records


class UpdatePart(Protocol):
    def look(self, update: OneUpdate, known: Known, options: UpdateSection) -> Table:
        """What is read off. Raises `CannotTell`."""
        ...

    def judge(self, seen: Sequence[BesideTruth], known: Known, confidence: float) -> Mapping[str, Estimate]:
        """Figures of all these updates together, each beside the guess from outsiders."""
        ...

    def say(self, one: BesideTruth, known: Known, options: UpdateSection) -> Notice | None:
        """What a data owner is told of one update."""
        ...


def steps_of(update: OneUpdate, known: Known) -> tuple[int, ...]:
    """How many steps were made; where it is not known, up to a hundred. Of a sum it is not."""
    epochs, batch = known.training.get("epochs"), known.training.get("batch_size")
    if update.examples and epochs and batch and (not update.summed or update.examples <= batch):
        return (int(epochs) * -(-update.examples // int(batch)),)
    return tuple(range(1, 101))


def seen_by(part: UpdatePart, update: OneUpdate, known: Known, options: UpdateSection) -> Table:
    """What a part reads off, of an update that can be looked at. Raises `CannotTell`."""
    if not update.finite:
        raise CannotTell("not-finite")
    return part.look(update, known, options)


def parts() -> dict[str, UpdatePart]:
    return {name: import_module(f"fedaudit.questions.update.{name}").PART for name in PARTS}


# ------------------------------------------------------------------ a list against the truth


@dataclass(frozen=True)
class Listed:
    """What one update lists, of all that it might have listed: what is true, and what the guess from outsiders lists.
    The guess is told how many to list. `which`: the same value has the same number in every round."""

    listed: Bools
    true: Bools
    blind: Bools
    which: Ints


def most_probable(probability: NDArray[Any], many: int) -> Bools:
    """The guess that lists as many as were read off: those that are likeliest without the update."""
    chosen = np.zeros(len(probability), bool)
    chosen[np.argsort(-probability, kind="stable")[:many]] = True
    return chosen


def compared(
    name: str, lists: Sequence[Listed], parties: Sequence[str | None], confidence: float
) -> dict[str, Estimate]:
    """The figures of a list: `name`, `name-precision`, `name-recall`, `name-blind`; none where nothing is true, or
    nothing is listed. What is said of one value of a party in several rounds counts as one cluster."""
    number = {party: place for place, party in enumerate(dict.fromkeys(parties))}
    whose = [number[party] * 2**40 + one.which for one, party in zip(lists, parties, strict=True)]

    def share(figure: str, counted: str, of: Callable[[Listed], Bools], hit: Callable[[Listed], Bools]) -> Estimate:
        asked = [of(one) for one in lists]
        hits = [hit(one)[mask] for one, mask in zip(lists, asked, strict=True)]
        groups = [own[mask] for own, mask in zip(whose, asked, strict=True)]
        return proportion(hits, groups, confidence, figure, counted, by="value")

    if not any(one.true.any() for one in lists) or not any(one.listed.any() for one in lists):
        return {}
    found = [
        share(
            name,
            "of all values that are listed or true, those that are both",
            lambda one: one.listed | one.true,
            lambda one: one.listed & one.true,
        ),
        share(f"{name}-precision", "of all that are listed, those that are true", lambda o: o.listed, lambda o: o.true),
        share(f"{name}-recall", "of all that are true, those that are listed", lambda o: o.true, lambda o: o.listed),
        share(
            f"{name}-blind",
            "the same of as many values, those that outsiders make likeliest",
            lambda one: one.blind | one.true,
            lambda one: one.blind & one.true,
        ),
    ]
    return {one.name: one for one in found}
