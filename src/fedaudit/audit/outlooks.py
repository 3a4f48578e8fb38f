"""Who sees what: an outlook for each vantage, model and party, and the sights that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.vantage import View, look
from fedaudit.audit.collect import Sight
from fedaudit.audit.settings import Settings
from fedaudit.audit.shadows import SHADOW
from fedaudit.types import Game, ModelKind, Round, Task, Vantage

# All who hold the global model's weights get the same answers; the first of these in the audit makes the view.
HOLDERS = (Vantage.CLIENT, Vantage.SECAGG_SERVER, Vantage.SERVER)

Key = str | None  # of a sight, as in an observation


@dataclass(frozen=True)
class Outlook:
    """One vantage on one model: its attacks, and the sight, shared by all who get the same answers."""

    vantage: Vantage
    model: ModelKind
    party: str | None
    attacks: tuple[BaseAttack, ...]
    sight: Sight


class Outlooks:
    def __init__(self, game: Game, settings: Settings, task: Task | None):
        self.game, self.settings, self.task = game, settings, task
        pairs = settings.watched()
        wanted: dict[Key, list[BaseAttack]] = {}
        for vantage, model in pairs:
            for party in self._parties(model):
                attacks = wanted.setdefault(self.key(vantage, model, party), [])
                attacks += [attack for attack in settings.on(vantage, model) if attack not in attacks]
        wanted.setdefault(None, [])  # always, to measure the accuracy of the released model
        self.sights = {key: self._sight(key, attacks) for key, attacks in wanted.items()}
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

    def _sight(self, key: Key, attacks: list[BaseAttack]) -> Sight:
        local = key in self.game.parties
        candidates = self.game.candidates
        index = candidates.of_party(str(key)) if local else np.arange(len(candidates))
        lasting = key != f"({Vantage.OUTSIDER.value})"  # a defence changes its answers: it asks only the released model
        game = self.game.seen_by(str(key)) if local and candidates.held_by is not None else self.game
        return Sight("local" if local else "global", index, game, attacks, self.settings, self.task, lasting)

    def _own(self) -> Sight | None:
        """The adversary's own records, if an attack learns from them."""
        learning = [attack for attack in self.settings.attacks if "shadow" in attack.fitted_on]
        if self.settings.shadow is None or not learning:
            return None
        own, settings = self.settings.shadow.game, replace(self.settings, references=None)
        return Sight("local", np.arange(len(own.candidates)), own, learning, settings, self.task)

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
                seen = next(look(vantage, "global", round, task, self.settings.serve, self.game.parties), None)
                views |= {key: seen} if seen else {}
        for view in look(Vantage.SERVER, "local", round, task, parties=self.game.parties) if self.local else ():
            if view.party in self.sights:
                views[view.party] = view
        return views
