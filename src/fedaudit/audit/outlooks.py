"""Who sees what: an outlook for each vantage, model and party, and the sights that they share. At the end of this file:
an adversary that trains a shadow model on records of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.signals.updates import Losses
from fedaudit.adversary.vantage import View, look, view
from fedaudit.audit.collect import Sight
from fedaudit.audit.costs import SHADOW_MODEL, timed
from fedaudit.audit.settings import Settings
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
    Task,
    Truth,
    Vantage,
)

if TYPE_CHECKING:
    from fedaudit.learn.tasks import TorchTask

# All who hold the global model's weights get the same answers; the first of these in the audit makes the view.
HOLDERS = (Vantage.CLIENT, Vantage.SECAGG_SERVER, Vantage.SERVER)

Key = str | None  # of a sight, as in an observation
Adversary = Literal["agg-sh", "agg-mal", "do-sh"]
SHADOW = "(shadow)"  # the key of the shadow model in an observation, beside the parties' names

# The vantage of each adversary, and the models that it attacks
PLACES: dict[Adversary, tuple[Vantage, ModelKind]] = {
    "agg-sh": (Vantage.SERVER, "local"),
    "agg-mal": (Vantage.SERVER, "local"),
    "do-sh": (Vantage.CLIENT, "global"),
}


@dataclass(frozen=True)
class Outlook:
    """One vantage on one model: its attacks, and the sight, shared by all who get the same answers."""

    vantage: Vantage
    model: ModelKind
    party: str | None
    attacks: tuple[BaseAttack, ...]
    sight: Sight


class Outlooks:
    def __init__(self, game: Game, settings: Settings, task: Task | None, like: Outlooks | None = None):
        self.game, self.settings, self.task = game, settings, task
        pairs = settings.watched()
        wanted: dict[Key, list[BaseAttack]] = {}
        for vantage, model in pairs:
            for party in self._parties(model):
                attacks = wanted.setdefault(self.key(vantage, model, party), [])
                attacks += [attack for attack in settings.on(vantage, model) if attack not in attacks]
        self.losses: Losses = like.losses if like else Losses()
        wanted.setdefault(None, [])  # always, to measure the accuracy of the released model
        self.sights = {key: self._sight(key, attacks, like) for key, attacks in wanted.items()}
        self.own = self._own()
        self.all = [
            Outlook(vantage, model, party, tuple(settings.on(vantage, model)), self.sight(vantage, model, party))
            for vantage, model in pairs
            for party in self._parties(model)
        ]

    def _parties(self, model: ModelKind) -> list[str | None]:
        return [*self.game.parties] if model == "local" else [None]

    def key(self, vantage: Vantage, model: ModelKind, party: str | None) -> Key:
        """A party's name: its local model. None: the global model. A name in brackets: the global model, other
        answers."""
        if model == "local":
            return party
        answered_differently = vantage is Vantage.LABEL_ONLY_CLIENT or self.settings.bent(vantage)
        return f"({vantage.value})" if answered_differently else None

    def _sight(self, key: Key, attacks: list[BaseAttack], like: Outlooks | None) -> Sight:
        local = key in self.game.parties
        candidates = self.game.candidates
        index = candidates.of_party(str(key)) if local else np.arange(len(candidates))
        lasting = key != f"({Vantage.OUTSIDER.value})"  # a defence changes its answers: it asks only the released model
        game = self.game.seen_by(str(key)) if local and candidates.held_by is not None else self.game
        return Sight(
            model="local" if local else "global",
            index=index,
            game=game,
            attacks=attacks,
            settings=self.settings,
            task=self.task,
            lasting=lasting,
            losses=self.losses,
            like=like.sights[key] if like else None,
        )

    def _own(self) -> Sight | None:
        """The adversary's own records, if an attack learns from them."""
        learning = [attack for attack in self.settings.attacks if "shadow" in attack.fitted_on]
        if self.settings.shadow is None or not learning:
            return None
        own, settings = self.settings.shadow.game, replace(self.settings, references=None)
        return Sight(
            model="local",
            index=np.arange(len(own.candidates)),
            game=own,
            attacks=learning,
            settings=settings,
            task=self.task,
        )

    # ------------------------------------------------------------------ looking them up

    def sight(self, vantage: Vantage, model: ModelKind, party: str | None = None) -> Sight:
        return self.sights[self.key(vantage, model, party)]

    def of(self, vantage: Vantage, model: ModelKind) -> list[Sight]:
        """All sights of a pooled result: one, or one for each party."""
        return [self.sight(vantage, model, party) for party in self._parties(model)]

    @property
    def everyone(self) -> Sight:
        """The global model, as seen by those who hold its weights."""
        return self.sights[None]

    def unit(self, local: Sequence[Sight] = ()) -> float:
        """What costs are divided by: the seconds of one local epoch in every round, of the parties with these local
        models, or, without any, of all. Where nobody says how long epochs took, the number of rounds."""
        if local:
            return sum(sight.epoch_seconds for sight in local) or sum(sight.rounds for sight in local) or 1
        seen = self.sights.values()  # not every one of them was looked at in every round
        return max(sight.epoch_seconds for sight in seen) or max(sight.rounds for sight in seen) or 1

    @property
    def local(self) -> dict[str, Sight]:
        return {key: self.sights[key] for key in self.game.parties if key in self.sights}

    def __iter__(self) -> Iterator[tuple[Key, Sight]]:
        """All sights, with that of the adversary's own records last."""
        yield from self.sights.items()
        if self.own:
            yield SHADOW, self.own

    # ------------------------------------------------------------------ looking

    def views(self, round: Round, task: Task) -> dict[Key, View]:
        """The view of every sight in a round. A party that took no part has none."""
        vantages = [*(v for v in HOLDERS if v in self.settings.vantages), *self.settings.vantages]
        views: dict[Key, View] = {}
        for vantage in vantages:  # those who see most come first
            key = self.key(vantage, "global", None)
            if key in self.sights and key not in views:
                serve, lr = self.settings.serve, self.settings.server_lr
                seen = next(look(vantage, "global", round, task, serve, self.game.parties, lr), None)
                views |= {key: seen} if seen else {}
        for seen in look(Vantage.SERVER, "local", round, task, parties=self.game.parties) if self.local else ():
            if seen.party in self.sights:
                views[seen.party] = seen
        return views


# ------------------------------------------------------------------ an adversary with a shadow model


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
        absent = self.party is not None and (self.party not in round.sent or not round.sent[self.party].is_model)
        if absent or not round.broadcast:
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
    candidates = Candidates("record", own.id, whose, own, np.arange(len(own)), subject=own.subject)
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
