"""Who trains on what, and what is exchanged: records, tasks, parties, rounds, guarantees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedaudit.types.notices import Notice

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Strings = NDArray[np.str_]

# A model's parameters and buffers by name. numpy, so that traces, Flower and the report need no torch.
State = Mapping[str, NDArray[Any]]
UNSEEN: State = {}  # stands for a model that the observer never saw: masked, or not sent to it

Unit = Literal["record", "subject", "user", "attribute"]
ModelKind = Literal["global", "local"]


@dataclass(frozen=True)
class Records:
    """Rows with stable ids, sorted by id, so that the order in which they were stored cannot change a result."""

    x: NDArray[Any]  # float32; tokens are int64
    y: NDArray[Any]  # one label a record, or records x positions; values (float32) for regression
    id: Strings
    subject: Strings | None = None
    attributes: Mapping[str, Ints] = field(default_factory=dict)  # -1 = unknown

    def __len__(self) -> int:
        return len(self.id)

    def take(self, index: Ints | Bools) -> Records:
        subject = None if self.subject is None else self.subject[index]
        attributes = {name: values[index] for name, values in self.attributes.items()}
        return Records(self.x[index], self.y[index], self.id[index], subject, attributes)


@dataclass(frozen=True)
class Dataset:
    """Records and what a model must know of them. `classes` is 0 for regression; for text, the size of its
    vocabulary.

    Two attributes of the records may have a meaning of their own. `session`: records of one session are nearly the
    same, and stay together. `holder`: which party holds a record; -1: none, so that only an adversary has it.
    """

    name: str
    records: Records
    classes: int
    session: str | None = None
    holder: str | None = None
    notices: tuple[Notice | str, ...] = ()  # what the report must say about how they were read
    vocabulary: tuple[str, ...] = ()  # of text, where it is known: what each token stands for
    # What the numbers of an attribute, or of the classes (under "label"), stand for, where they had been others.
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.records.x.shape[1:])


@dataclass(frozen=True)
class Trained:
    """What a party sends: its model, how many records it was trained on, and how long one local epoch took."""

    state: State
    examples: int
    epoch_seconds: float


class PlainModel(Protocol):
    """What a model of any framework offers, in plain arrays, so that it can be audited."""

    @property
    def classes(self) -> int:
        """How many; 0 for regression."""
        ...

    def initial(self, seed: int) -> State:
        """A first state: the names, shapes and types of what parties exchange."""
        ...

    def outputs(self, state: State, x: NDArray[Any]) -> Floats:
        """Logits, one row for each record; for regression one value."""
        ...


class Task(PlainModel, Protocol):
    """Computes the outputs of a model, given as a state, for records."""

    def asking(self, state: State) -> Callable[[NDArray[Any]], Floats]:
        """`outputs` of one model, for many small questions: its weights are loaded once."""
        ...

    def last_layer(self, state: State, x: NDArray[Any]) -> tuple[Floats, Floats]:
        """Outputs, and the inputs of the last linear layer (a 1 for its bias included), from one forward pass."""
        ...


class Party(Protocol):
    """A member of the federation with its own data. A client that plants canaries is also a party."""

    @property
    def name(self) -> str: ...

    def update(self, task: Any, model: State, rng: np.random.Generator) -> Trained: ...


# ------------------------------------------------------------------ what was exchanged


@dataclass(frozen=True, order=True)
class Moment:
    """A point in time. Probe 0 is the round itself; probes 1, 2, ... start from the model that the round produced.

    A probe is observed and then discarded: it changes neither the model nor the round number.
    """

    round: int
    probe: int = 0


@dataclass(frozen=True)
class Plan:
    """One round: who takes part, what is broadcast (None: the current model), and whether the result is kept.

    A plan that is not kept is a probe: the parties train, the result is observed, and the model stays as it was.
    `canaries` take part in a round that is kept, are seen in a probe of it, and are taken out of what is kept; None:
    there is no such probe.
    """

    parties: tuple[str, ...]
    commit: bool = True
    broadcast: State | None = None
    canaries: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Round:
    """What was exchanged in one round, after defences. Rounds count from 1.

    A state that was not observed is `UNSEEN`. It is not the same as a model that did not change. `commit` is False if
    the result was not kept.
    """

    index: int
    broadcast: State
    sent: Mapping[str, Trained]
    aggregate: State
    commit: bool = True
    probe: int = 0

    @property
    def moment(self) -> Moment:
        return Moment(self.index, self.probe)


@dataclass(frozen=True)
class Guarantee:
    """A differential-privacy claim. It may be compared with an empirical epsilon only if unit and adjacency agree."""

    unit: Unit
    epsilon: float
    delta: float
    adjacency: Literal["add-remove", "replace"]
    accountant: str
