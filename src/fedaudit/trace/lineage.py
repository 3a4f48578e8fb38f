"""Which rounds follow one another. A round is identified by its index and by its first and its resulting model.

A round that is delivered twice is recorded once. A party with two different answers is a conflict. A round that does
not start from the last aggregate opens a branch: the server went back to an older model.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from fedaudit.trace.segments import UNSEEN_DIGEST, Key, Part
from fedaudit.types import Moment, Notice, RoundRisk, warning

# What `Lineage.apply` raises for a line that nobody of ours wrote; JSON as Python reads it has infinite numbers.
NO_EVENT = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)
MOST_ROUNDS = 10**9  # as many as may be planned


@dataclass(frozen=True)
class Delivered:
    """What is recorded about a party's answer."""

    state: str  # digest
    examples: int
    epoch_seconds: float
    is_model: bool = True


@dataclass(frozen=True, kw_only=True)
class RecordedRound:
    """One recorded round. Models are named by their digests."""

    round: int
    branch: int
    commit: bool
    broadcast: str
    aggregate: str
    parties: dict[str, Delivered]
    signals: str | None  # checksum of the signals file; None: nothing was measured
    names: tuple[str, ...]
    parts: tuple[Part, ...]
    kept: bool  # the models themselves are on disk
    probe: int = 0
    unobserved: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by part: signals of what nobody saw
    layers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by part: signals of one layer, and which
    spent: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by part: seconds, by what took them
    at: float | None = None  # seconds since 1970; a former version did not say
    risks: tuple[RoundRisk, ...] = ()

    @property
    def moment(self) -> Moment:
        return Moment(self.round, self.probe)

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        spent = event.get("spent", {})
        return cls(
            round=_whole(event["round"]),
            branch=_whole(event["branch"]),
            commit=event["commit"],
            broadcast=event["broadcast"],
            aggregate=event["aggregate"],
            parties={name: Delivered(**sent) for name, sent in event["parties"].items()},
            signals=event["signals"],
            names=tuple(event["names"]),
            parts=tuple(Part(*part) for part in event["parts"]),
            kept=event["kept"],
            probe=_moment(event).probe,
            unobserved=event.get("unobserved", {}),
            layers=event.get("layers", {}),
            spent={
                part: {on: float(s) for on, s in zip(spent["on"], seconds, strict=True) if s}
                for part, seconds in spent.get("of", {}).items()
            },
            at=_number(event.get("at")),
            risks=tuple(_risk(found) for found in event.get("risks", ())),
        )


@dataclass(frozen=True)
class Place:
    """Where a delivered round belongs: it is known, it continues the current branch, or it opens another."""

    known: RecordedRound | None = None
    opens: bool = False
    origin: int | None = None  # the round whose aggregate it starts from; 0: the first broadcast; None: unknown


class Lineage:
    """All recorded rounds, and the branch that leads to the newest one. Built by applying the journal's events."""

    def __init__(self) -> None:
        self.entries: dict[tuple[int, Moment], RecordedRound] = {}
        self._known: dict[tuple[Moment, str, str], RecordedRound] = {}  # by moment, first and resulting model
        self.current: dict[int, RecordedRound] = {}  # rising
        self.probes: dict[Moment, RecordedRound] = {}  # of the current branch
        self.conflicts: set[tuple[int, Moment, Key, str]] = set()
        self.branch = 0
        self.resumed: list[int] = []
        self.ended: Mapping[str, Any] | None = None
        self.notes: list[Notice] = []

    @property
    def newest(self) -> int:
        return next(reversed(self.current), 0)

    @property
    def now(self) -> Moment:
        """The newest round or probe."""
        return max([Moment(self.newest), *self.probes])

    @property
    def released(self) -> RecordedRound | None:
        """The last round of the current branch whose result was kept."""
        kept = (e for e in reversed(self.current.values()) if e.commit and e.aggregate != UNSEEN_DIGEST)
        return next(kept, None)

    def place(self, moment: Moment, broadcast: str, aggregate: str) -> Place:
        if known := self._known.get((moment, broadcast, aggregate)):
            return Place(known=known)
        index = moment.round
        if moment.probe:
            return Place(known=self.probes.get(moment))  # with other content: its first delivery counts
        if not self.current:
            return Place()
        if broadcast == UNSEEN_DIGEST and index > self.newest:
            return Place()  # nobody saw what it started from, so nothing speaks against the last round
        origin = self._origin(index, broadcast)
        if index <= self.newest:
            return Place(opens=True, origin=origin)
        last = self.released.round if self.released else 0
        lost = origin is None and index > self.newest + 1  # rounds are missing in between, so nothing can be said
        return Place(opens=origin != last and not lost, origin=origin)

    def _origin(self, index: int, broadcast: str) -> int | None:
        for entry in reversed(self.current.values()):
            if entry.round < index and entry.commit and entry.aggregate == broadcast:
                return entry.round
        first = next(iter(self.current))
        return 0 if first == 1 and self.current[first].broadcast == broadcast else None

    # ------------------------------------------------------------------ events

    def apply(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == "round":
            self._round(event)
        elif kind == "late":
            moment = _moment(event)
            self.entries[event["branch"], moment].parties[event["party"]] = Delivered(**event["sent"])
            self._note(warning("answer-late", round=moment.round, probe=moment.probe, party=event["party"]))
        elif kind == "conflict":
            moment = _moment(event)
            self.conflicts.add((event["branch"], moment, event["party"], event["state"]))
            self._note(warning("answers-differ", round=moment.round, probe=moment.probe, party=event["party"]))
        elif kind == "resumed":
            self.resumed.append(event["round"])
        elif kind == "ended":
            self.ended = event

    def _round(self, event: Mapping[str, Any]) -> None:
        entry = RecordedRound.of(event)
        if event["opens"]:
            self._open(entry, event["origin"])
        self.branch = entry.branch
        self.entries[entry.branch, entry.moment] = entry
        self._known.setdefault((entry.moment, entry.broadcast, entry.aggregate), entry)
        if entry.probe:
            self.probes[entry.moment] = entry
        else:
            in_order = entry.round > self.newest
            self.current[entry.round] = entry
            if not in_order:  # a journal that has lost lines
                self.current = dict(sorted(self.current.items()))

    def _open(self, entry: RecordedRound, origin: int | None) -> None:
        last = entry.round - 1 if origin is None else min(origin, entry.round - 1)
        left_out = sorted(r for r in self.current if r > last)
        self._note(warning("went-back", round=entry.round, origin=origin, left_out=left_out))
        self.current = {r: e for r, e in self.current.items() if r <= last}
        self.probes = {moment: e for moment, e in self.probes.items() if moment.round <= last}

    def _note(self, told: Notice) -> None:
        if told not in self.notes:
            self.notes.append(told)

    def missing(self) -> list[int]:
        """The rounds before the newest that are not recorded."""
        known = {entry.round for entry in self.entries.values() if not entry.probe}
        return [r for r in range(1, self.newest) if r not in known]


def _risk(found: Mapping[str, Any]) -> RoundRisk:
    value, low, high = (_number(found[key]) for key in ("value", "low", "high"))
    vantage, model, attack, metric = (str(found[key]) for key in ("vantage", "model", "attack", "metric"))
    return RoundRisk(vantage=vantage, model=model, attack=attack, metric=metric, value=value, low=low, high=high)


def _number(value: Any) -> float | None:
    """We write no infinite numbers."""
    return float(value) if value is not None and math.isfinite(value) else None


def _moment(event: Mapping[str, Any]) -> Moment:
    """Only events of probes say which probe."""
    return Moment(_whole(event["round"]), _whole(event.get("probe", 0)))


def _whole(value: Any) -> int:
    number = int(value)
    if abs(number) > MOST_ROUNDS:
        raise ValueError("no number of a round")
    return number
