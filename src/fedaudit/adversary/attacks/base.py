"""The base class of all attacks, with defaults. An attack implements `signals`, `reduce`, and often `score`."""

from dataclasses import dataclass
from inspect import get_annotations
from typing import Any, ClassVar, Literal, Self

from numpy.typing import NDArray

from fedaudit.adversary.reductions import Kept
from fedaudit.adversary.signals import NEEDS
from fedaudit.config.attack_registry import called, plain, set_on, written
from fedaudit.config.schema import AuditSection
from fedaudit.types import Floats, Grant, Vantage

Gather = Literal["mean", "sorted"]
FittedOn = Literal["nonmembers", "known", "own", "shadow"]


@dataclass(frozen=True)
class Own:
    """Records whose answer the adversary knows: their features and that answer."""

    features: Floats
    label: NDArray[Any]


@dataclass(frozen=True)
class Evidence:
    """What an adversary may learn from before it scores. An attack says in `fitted_on` what it needs of it; the rest is
    None.

    nonmembers  known non-members: half of the calibration records, which then set no threshold.
    known       a few candidates of known membership, which are not reported on.
    own         the first party's own records, seen like everybody else's.
    shadow      records of the adversary's own, seen under its shadow model.
    """

    nonmembers: Floats | None = None
    known: Own | None = None
    own: Own | None = None
    shadow: Own | None = None


@dataclass(frozen=True)
class BaseAttack:
    """Frozen hyperparameters, no state. Subclasses orient their scores: higher = member.

    What is a property here may be a class variable in a subclass: `every_round: ClassVar[bool] = False`.
    """

    question: ClassVar[str] = "record"  # the name of the question (`fedaudit.questions`) that judges its scores
    gather: ClassVar[Gather] = "mean"  # how the rows of one candidate are brought together
    by_first_party: ClassVar[bool] = False  # True: the first party about the others; its own records are not judged

    def __init_subclass__(cls, **given: Any) -> None:
        """A class that gives itself a name gets its options added to it, as every other: results are found by them."""
        super().__init_subclass__(**given)
        own = vars(cls).get("name")
        if isinstance(own, str | property) and "name" not in get_annotations(cls):
            cls.name = property(lambda self: _with_options(self, own))  # type: ignore[method-assign,assignment]

    @property
    def name(self) -> str:
        """What results call it. It follows from the name under which it is registered, and from its options; it is
        found out once, because it is asked for all the time."""
        return str(self.__dict__.get("_name") or self.__dict__.setdefault("_name", called(self)))

    @property
    def signals(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def every_round(self) -> bool:
        """False: it needs only the last model."""
        return True

    @property
    def deferred(self) -> bool:
        """Only the last round counts and its signals are expensive, so they are measured when a score is needed."""
        return False

    @property
    def vantage(self) -> Vantage | None:
        """The only one it is run from; None: all that grant what it needs."""
        return None

    @property
    def fitted_on(self) -> tuple[FittedOn, ...]:
        """What `fit` uses of the evidence."""
        return ()

    @property
    def own(self) -> int | None:
        """Fitted on the first party's own records: on how many of them; None: as [audit.tear] says."""
        return None

    @property
    def calibrates_less(self) -> bool:
        """Some of the calibration records set no threshold, because it is fitted on them."""
        return "nonmembers" in self.fitted_on or "known" in self.fitted_on

    @property
    def needs(self) -> frozenset[Grant]:
        """What a view must grant: all that the signals need, and every round where the series counts."""
        of_signals = frozenset[Grant]().union(*(NEEDS.get(plain(signal), frozenset()) for signal in self.signals))
        return of_signals | {Grant.EVERY_ROUND} if self.every_round else of_signals

    def configured(self, audit: AuditSection) -> Self:
        """The same with what [audit] says where its own options say nothing."""
        return self

    def reduce(self, n: int) -> Kept:
        raise NotImplementedError

    def fit(self, evidence: Evidence) -> Self:
        return self

    def score(self, features: Floats) -> Floats:
        return features[:, 0]


def _with_options(attack: BaseAttack, own: str | property) -> str:
    return written(plain(own if isinstance(own, str) else own.__get__(attack)), set_on(attack))


class OneSignal(BaseAttack):
    """An attack that looks at one signal."""

    signal: ClassVar[str]

    @property
    def signals(self) -> tuple[str, ...]:
        return (self.signal,)
