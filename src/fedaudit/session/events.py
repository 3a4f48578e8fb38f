"""The events that a session sends to its listener, for example a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedaudit.results.document import Document
from fedaudit.types import Estimate, ModelKind, Moment, Notice, Vantage


@dataclass(frozen=True)
class RoundDone:
    """A round, or a probe, was observed."""

    moment: Moment
    planned: int  # rounds in all


@dataclass(frozen=True)
class RoundFinding:
    """What the primary attack of a vantage finds after a round; the error is shared among all rounds and attacks."""

    round: int
    vantage: Vantage
    attack: str
    model: ModelKind
    estimates: Mapping[str, Estimate]


@dataclass(frozen=True)
class Gap:
    """Something is missing from the audit, and why."""

    what: Notice


@dataclass(frozen=True)
class Note:
    """Something happened, but nothing is missing because of it."""

    what: Notice


@dataclass(frozen=True)
class Finished:
    """The results are complete, and written if there is a folder for them."""

    document: Document


Event = RoundDone | RoundFinding | Gap | Note | Finished
Listener = Callable[[Event], None]
