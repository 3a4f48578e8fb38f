"""Views of single models and rounds, for tests that look at signals without a whole audit."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fedaudit.adversary.shadow import References, metrics_by_bank
from fedaudit.adversary.signals import measure
from fedaudit.adversary.vantage import View, look, view
from fedaudit.types import Floats, Moment, Records, Round, State, Strings, Task, Vantage


def one_model(task: Task, state: State, received: State | None = None, round: int = 1) -> View:
    """A party's local model, as the server has it."""
    return view(Vantage.SERVER, "local", Moment(round), task, state, received, party="party-0")


def global_view(round: Round, task: Task, vantage: Vantage = Vantage.CLIENT) -> View:
    return next(look(vantage, "global", round, task))


def local_views(round: Round, task: Task, parties: Sequence[str] = ()) -> Iterator[View]:
    return look(Vantage.SERVER, "local", round, task, parties=parties)


def signals(names: Iterable[str], seen: View, rows: Records) -> dict[str, Floats]:
    """Nobody is known to be a non-member."""
    return measure(names, seen, rows, np.zeros(len(rows), bool))


def banks(references: References, task: Any, names: Iterable[str], rows: Records, party: Strings) -> list[Any]:
    return [references.bank(task, name, metrics, rows, party) for name, metrics in metrics_by_bank(names).items()]
