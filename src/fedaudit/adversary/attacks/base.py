"""The base class of all attacks, with defaults. An attack implements `name`, `signals`, `reduce`, and often `score`."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from numpy.typing import NDArray

from fedaudit.adversary.reductions import Kept
from fedaudit.adversary.signals import NEEDS
from fedaudit.types import Floats, Grant, Vantage

Gather = Literal["mean", "sorted", "count"]


@dataclass(frozen=True)
class Own:
    """Records of the adversary's own whose answer it knows: their features and that answer."""

    features: Floats
    label: NDArray[Any]


@dataclass(frozen=True)
class Evidence:
    """What an adversary may learn from before it scores: known non-members, labelled records of its own, and candidates
    of whom it knows whether they are members."""

    nonmembers: Floats | None = None
    own: Own | None = None
    known: Own | None = None


@dataclass(frozen=True)
class BaseAttack:
    """Frozen hyperparameters, no state. Subclasses orient their scores: higher = member."""

    question: ClassVar[str] = "record"  # the name of the question (`fedaudit.questions`) that judges its scores
    every_round: ClassVar[bool] = True  # False: it needs only the last model
    probes: ClassVar[bool] = False  # True: it looks at probes only, not at rounds that are kept
    gather: ClassVar[Gather] = "mean"  # how the rows of one candidate are brought together
    fits: ClassVar[bool] = False  # True: `fit` uses known non-members, which then set no threshold
    tunes: ClassVar[bool] = False  # True: `fit` uses a few candidates of known membership, which are not reported on
    learns: ClassVar[bool] = False  # True: `fit` uses records of the adversary's own, seen under its shadow model
    by_first_party: ClassVar[bool] = False  # True: the first party about the others; its own records are not judged
    taught: ClassVar[bool] = False  # True: `fit` uses the first party's own records, seen like everybody else's
    vantage: ClassVar[Vantage | None] = None  # the only one it is run from; None: all that grant what it needs
    # True: only the last round counts and its signals are expensive, so they are measured when a score is needed.
    deferred: ClassVar[bool] = False

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def signals(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def needs(self) -> frozenset[Grant]:
        """What a view must grant: all that the signals need, and every round where the series counts."""
        of_signals = frozenset[Grant]().union(*(NEEDS.get(signal, frozenset()) for signal in self.signals))
        return of_signals | {Grant.EVERY_ROUND} if self.every_round else of_signals

    def reduce(self, n: int) -> Kept:
        raise NotImplementedError

    def fit(self, evidence: Evidence) -> Self:
        return self

    def score(self, features: Floats) -> Floats:
        return features[:, 0]


class OneSignal(BaseAttack):
    """An attack that looks at one signal, and has its name unless it says otherwise."""

    signal: ClassVar[str]

    @property
    def name(self) -> str:
        return self.signal

    @property
    def signals(self) -> tuple[str, ...]:
        return (self.signal,)
