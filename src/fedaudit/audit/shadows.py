"""An adversary with a shadow model: who trains it, and the adversary's own records, which it learns from."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedaudit.adversary.vantage import view
from fedaudit.audit.costs import SHADOW_MODEL, timed
from fedaudit.types import (
    Bools,
    Candidates,
    Game,
    Measured,
    ModelKind,
    Records,
    Role,
    Round,
    State,
    Truth,
    Vantage,
)

if TYPE_CHECKING:
    from fedaudit.audit.collect import Sight
    from fedaudit.learn.tasks import TorchTask

Adversary = Literal["agg-sh", "agg-mal", "do-sh"]

SHADOW = "(shadow)"  # the key of the shadow model in an observation, beside the parties' names

# the vantage of each adversary, and the models that it attacks
PLACES: dict[Adversary, tuple[Vantage, ModelKind]] = {
    "agg-sh": (Vantage.SERVER, "local"),
    "agg-mal": (Vantage.SERVER, "local"),
    "do-sh": (Vantage.CLIENT, "global"),
}


@dataclass(frozen=True)
class Shadow:
    """`game`: the adversary's own records; its members are those that the shadow model is trained on.

    `party`: the party whose local model is the shadow. If None, the aggregator trains a shadow from every broadcast, as
    a party would (`training`: the fields of `tasks.Training`).
    """

    adversary: Adversary
    game: Game
    party: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def place(self) -> tuple[Vantage, ModelKind]:
        return PLACES[self.adversary]

    def measure(self, sight: Sight, round: Round, task: Any, last: bool) -> Measured | None:
        """The signals of the adversary's own records under the shadow model; None in a round without a shadow."""
        if (self.party is not None and self.party not in round.sent) or not round.broadcast:
            return None
        trained: dict[str, float] = {}
        if self.party is None:
            with timed(trained, SHADOW_MODEL):
                state = self._trained(round, task)
        else:
            state = round.sent[self.party].state
        seen = view(Vantage.SERVER, "local", round.moment, task, state, round.broadcast, party=SHADOW)
        measured = sight.measure(seen, 0.0, last)
        spent = {**measured.spent, **trained}
        return replace(measured, seconds=sum(spent.values()), spent=spent)

    def _trained(self, round: Round, task: TorchTask) -> State:
        from fedaudit.learn.tasks import Training

        rng = np.random.default_rng([self.seed, round.index, zlib.crc32(SHADOW.encode())])
        return task.train(round.broadcast, self.game.members(SHADOW), Training(**self.training), rng).state


def own_game(own: Records, member: Bools) -> Game:
    """The adversary's records as a game: those that its shadow is trained on are the members."""
    role = np.where(member, Role.MEMBER.value, Role.EVALUATION.value)
    whose = np.full(len(own), SHADOW)
    candidates = Candidates("record", own.id, whose, own, np.arange(len(own)), own.subject)
    return Game(candidates, Truth(own.id, role))


def split_own(own: Records, members: float, seed: int, split_subjects: bool = True) -> Game:
    """An aggregator's records: as large a share for training its shadow as the parties train on, the rest not.

    Unless people may be split the share is of people, as in the federation that it imitates.
    """
    rng = np.random.default_rng([seed, 2])
    whose = own.id if own.subject is None or split_subjects else own.subject
    unique, number = np.unique(whose, return_inverse=True)
    member = np.zeros(len(unique), bool)
    member[rng.permutation(len(unique))[: max(1, min(round(members * len(unique)), len(unique) - 1))]] = True
    return own_game(own, member[number])


def own_of_party(game: Game, party: str) -> Game:
    """A party's own records, and which of them it trained on."""
    mine = game.candidates.party == party
    return own_game(game.candidates.rows.take(mine), game.truth.mask(Role.MEMBER)[mine])
