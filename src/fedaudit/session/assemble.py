"""One way to a checked audit, for everybody who wants one: run, replay, import, loops, Flower and studies.

A `Request` holds what is asked for, and what is known of the training. The steps and their order are the same for all:

1. The attacks are chosen (`session.adversaries.choose`).
2. All that is asked for and known becomes settings (`Request.settings`).
3. What no vantage can feed is refused, or left out (`Request.checked`). That needs no model.
4. What the model cannot give is refused, or left out, and what the audit must know of the model is added (`settled`).
5. False-positive rates that cannot be calibrated are refused, or left out: by the auditor itself (`assemble`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from pydantic import ValidationError

from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.attacks.fusion import Fusion
from fedaudit.adversary.attacks.matched import MatchedFilter
from fedaudit.adversary.signals.references import SIGNALS as OF_REFERENCES
from fedaudit.adversary.signals.searching import NEEDS as OF_LABELS
from fedaudit.adversary.signals.searching import SearchOptions
from fedaudit.adversary.signals.updates import NEEDS as OF_UPDATES
from fedaudit.adversary.signals.updates import FilterOptions
from fedaudit.adversary.signals.variants import options_of, variants
from fedaudit.audit import Auditor, Settings, patience
from fedaudit.audit.settings import calibrating, reference_half
from fedaudit.config.attack_registry import plain
from fedaudit.config.attacks import MatchedSection
from fedaudit.config.schema import Config, explain
from fedaudit.config.section import Section
from fedaudit.config.tear import TearSection
from fedaudit.errors import FedauditError
from fedaudit.privacy.statement import Promise
from fedaudit.session import label_only
from fedaudit.session.adversaries import choose, looking
from fedaudit.stats import needed_for_value
from fedaudit.types import Game, Notice, Records, Role, State, Task, Vantage, as_notices, notice, once

if TYPE_CHECKING:  # torch is needed to train, not to look again at what was recorded
    from fedaudit.adversary.shadow import References
    from fedaudit.audit.shadows import Shadow
    from fedaudit.defences.slots import Defence


@dataclass(frozen=True)
class Ours:
    """What is known of a federation only if fedaudit trains it, or has trained it."""

    references: References
    shadow: Shadow | None = None
    defence: Defence | None = None  # once it is built, which takes a model


@dataclass(frozen=True)
class Recorded:
    """What a trace says about its run."""

    promises: tuple[Promise, ...]  # of its defences
    weights_per_member: Mapping[str, float]
    filter_share: float
    repeated: bool  # its own attacks, and no others: that each can be run from somewhere was checked when it began


@dataclass(frozen=True, kw_only=True)
class Request:
    """What an audit is asked to do, and what is known of the training that it looks at."""

    config: Config
    game: Game
    attacks: Sequence[BaseAttack]
    vantages: tuple[Vantage, ...] | None = None  # None: those of the configuration
    rounds: int | None = None  # planned; None: those of the configuration
    notices: tuple[Notice, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)  # by question: what was prepared for it
    ours: Ours | None = None  # None: somebody else's training, of which nothing is known but its models
    recorded: Recorded | None = None

    @classmethod
    def beside(cls, config: Config, game: Game, **known: Any) -> Request:
        """An audit beside somebody else's training."""
        return cls(config=config, game=game, attacks=choose(config.audit, config.audit.attacks), **known)

    def under(self, defence: Defence) -> Request:
        """The same once the defence is built: it may bend answers, and references may have to train under it."""
        assert self.ours is not None
        references = self.ours.references
        if self.config.audit.reference.defended:
            if defence.gradient is None:
                raise FedauditError(
                    "reference-undefended",
                    "audit.reference.defended is set, but no defence changes how the parties train",
                    "Remove it, or add a defence that does, such as dp-sgd, to [[defences]].",
                )
            references = replace(references, gradient=defence.gradient)
        return replace(self, ours=replace(self.ours, references=references, defence=defence))

    @property
    def named(self) -> bool:
        """Were attacks asked for by name? What cannot be done is then refused, and otherwise left out."""
        return self.config.audit.attacks is not None

    @property
    def defence(self) -> Defence | None:
        return self.ours.defence if self.ours else None

    @property
    def promises(self) -> tuple[Promise, ...]:
        """Of the defences, as far as they are known."""
        if self.recorded:
            return self.recorded.promises
        return self.defence.promises if self.defence else ()

    def settings(self) -> Settings:
        """All that is asked for and known, not checked yet. Nobody else makes settings."""
        audit, federation, known = self.config.audit, self.config.federation, dict[str, Any]()
        promises = self.promises if self.ours else None
        signals = {signal for attack in self.attacks for signal in attack.signals}
        if self.ours:
            known |= {"references": self.ours.references, "shadow": self.ours.shadow}
        if self.recorded:
            weights, share = self.recorded.weights_per_member, self.recorded.filter_share
            known |= {"weights_per_member": weights, "filter_share": share}
        return Settings(
            vantages=audit.vantages if self.vantages is None else self.vantages,
            attacks=self.attacks,
            rounds=federation.rounds if self.rounds is None else self.rounds,
            fpr=audit.fpr or None,
            confidence=audit.confidence,
            seed=federation.seed,
            notices=self.notices,
            serve=self.defence.serve if self.defence else None,
            filter=filter_options(self.config, promises),
            search=search_options(self.config),
            filters={v: filter_options(self.config, promises, v) for v in variants(signals, OF_UPDATES) if v},
            searches={v: search_options(self.config, v) for v in variants(signals, OF_LABELS) if v},
            asked={**looking(audit, audit.attacks), **at_delta_of(self.promises, self.asked)},
            **known,
        )

    def checked(self) -> Settings:
        """The settings without what no vantage can feed. What was asked for by name is refused."""
        settings = self.settings()
        if self.recorded is None:
            return settings.checked(self.named)
        return settings.without_idle_vantages().checked(self.named and not self.recorded.repeated)


class Checkable(Task, Protocol):
    def check(self, state: State, records: Records) -> None:
        """Refuses, before training, a model that does not fit the records or whose answers are not reproducible."""
        ...


def assemble(request: Request, task: Checkable | None) -> Auditor:
    """A checked audit. Without a task, it can only be given what was recorded."""
    return Auditor(task, request.game, settled(request, task))


def settled(request: Request, task: Checkable | None) -> Settings:
    """The settings of an audit that may begin."""
    patience.allow(request.config.audit.patience)
    settings = request.checked()
    if task is None:
        return settings
    game, initial = request.game, task.initial(settings.seed)
    if request.ours is None:  # nobody has looked at this model before
        task.check(initial, game.candidates.rows)
    settings = settings.suited_to(task, initial, game.candidates.rows, request.named)
    told, seconds = label_only.told(settings, task, game)
    told += too_few_to_whiten(settings, game)
    if request.recorded is None:  # a trace has told them
        told += as_notices(request.defence.notices if request.defence else ())
        told += unread(request.config, settings)
    layer = settings.filter.layer
    settings = replace(
        settings,
        notices=tuple(once((*settings.notices, *told))),
        search=replace(settings.search, seconds=seconds.get("", 0.0)),
        searches={v: replace(options, seconds=seconds.get(v, 0.0)) for v, options in settings.searches.items()},
        weights_per_member=weights_per_member(task, game, layer, "coins" in settings.asked),
        filter_share=filter_share(task, layer),
    )
    if request.ours is None and not request.named:
        settings = that_calibrate(settings, game)
    return settings


# ------------------------------------------------------------------ what follows from the configuration


def at_delta_of(promises: Sequence[Promise], asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """The bound from coins at the delta of the promise about the same unit, so that the two can be compared."""
    if "coins" not in asked:
        return asked
    deltas = [promise.delta for promise in promises if promise.process.unit == asked["coins"].unit]
    return {**asked, "coins": replace(asked["coins"], delta=deltas[0])} if deltas else asked


# By where noise is added: inside the parties (for records, people), or to whole updates (docs/matched-filter.md).
DAMPING = {"record": 10.0, "subject": 10.0, "user": 1.0}


Given = TypeVar("Given", bound=Section)


def with_variant(section: Given, variant: str) -> Given:
    """A section of [audit], with what an attack sets that has a variant of the signals measured."""
    if not variant:
        return section
    try:
        return type(section).model_validate(section.model_dump() | options_of(variant))
    except ValidationError as error:
        raise explain(error, f"an attack with the options {variant[1:]}") from None


def filter_options(config: Config, promises: tuple[Promise, ...] | None, variant: str = "") -> FilterOptions:
    """The matched filter's options. What is not set follows from the configuration, never from a result.

    `promises`: of the defences; None if somebody else trains, of whom it is not known whether they use Adam."""
    asked, federation = with_variant(config.audit.matched or MatchedSection(), variant), config.federation
    noisy = [DAMPING[promise.process.unit] for promise in promises or () if promise.process.unit in DAMPING]
    damping = max(noisy, default=FilterOptions.damping) if asked.damping == "auto" else float(asked.damping)
    adam = promises is not None and federation.algorithm == "fedavg" and federation.optimizer == "adam"
    return FilterOptions(asked.fit, damping, None if asked.layer == "auto" else asked.layer, adam and not noisy)


def search_options(config: Config, variant: str = "") -> SearchOptions:
    """How the boundary is searched by labels."""
    asked = with_variant(config.audit.tear or TearSection(), variant)
    return SearchOptions(asked.queries, asked.targets, asked.own, asked.bounds)


def unread(config: Config, settings: Settings) -> list[Notice]:
    """Notices about sections of [audit] that were set and that no attack reads."""
    given = config.audit.model_dump(exclude_defaults=True)
    signals = set(map(plain, settings.signals))
    is_read = {
        "fusion": any(isinstance(attack, Fusion) for attack in settings.attacks),
        "reference": not signals.isdisjoint(OF_REFERENCES),
        "canary": "canary" in settings.asked,
        "matched": not signals.isdisjoint(OF_UPDATES),
        "tear": not signals.isdisjoint(OF_LABELS),
    }
    unread = [section for section, read in is_read.items() if section in given and not read]
    return [notice("section-unread", section=section) for section in unread]


# ------------------------------------------------------------------ what follows from the game


def that_calibrate(settings: Settings, game: Game) -> Settings:
    """Without attacks that nobody asked for and that would leave too few records for a rate that somebody did."""
    needed = max(map(needed_for_value, settings.fpr or (1.0,)))
    left = calibrating(game, [game.candidates.of_party(party) for party in game.parties], fitted=True)
    kept = [attack for attack in settings.attacks if "nonmembers" not in attack.fitted_on]
    if left >= needed or not kept or len(kept) == len(settings.attacks):
        return settings
    names = [attack.name for attack in settings.attacks if "nonmembers" in attack.fitted_on]
    told = notice("few-to-calibrate", left=left, needed=needed, attacks=names)
    return replace(settings, attacks=kept, notices=(*settings.notices, told))


def too_few_to_whiten(settings: Settings, game: Game) -> list[Notice]:
    """A notice if the matched filter has so few records to fit on that it becomes the plain cosine."""
    filters = [attack for attack in settings.attacks if isinstance(attack, MatchedFilter)]
    if not filters:
        return []
    from fedaudit.adversary.signals.matched import FEWEST

    parties = [game.candidates.of_party(party) for party in game.parties]
    panels = parties if Vantage.SERVER in settings.vantages else [np.arange(len(game.candidates))]
    known = any("nonmembers" in attack.fitted_on for attack in filters)
    fewest = min(int(reference_half(game, index).sum()) if known else len(index) for index in panels)
    if fewest >= FEWEST:
        return []
    return [notice("plain-cosine", attack=filters[0].name, needed=FEWEST, fewest=fewest, known=known)]


def weights_per_member(task: Task, game: Game, layer: str | None, by_coins: bool) -> dict[str, float]:
    """Weights of the layer that the matched filter looks at, per member in the sum: a party's members, or all.

    This ratio helps to decide which attack is primary. With coins it must not depend on how they fell, so the expected
    number of members is used.
    """
    weights = filtered_weights(task, layer)
    if not weights:
        return {}
    if by_coins:
        owner, tossed = game.candidates.owner, ~game.truth.mask(Role.CALIBRATION)
        held = [np.isin(owner, game.candidates.of_party(party)) for party in game.parties]
        counts = [float((tossed[owner] & mine).sum()) / 2 for mine in held]
    else:
        counts = [float(game.size(party)) for party in game.parties]
    return {"local": weights / max(max(counts), 1), "global": weights / max(sum(counts), 1)}


def filtered_weights(task: Task, layer: str | None) -> int:
    """How many weights the layer has that the matched filter looks at; 0 where there is none."""
    from fedaudit.adversary.signals.matched import largest_linear, rules

    module = getattr(task, "architecture", None)
    if module is None or not rules(module):
        return 0
    return int(module.get_submodule(layer or largest_linear(module)).weight.numel())


def filter_share(task: Task, layer: str | None) -> float:
    """The share of the model's weights that lie in that layer; 1 where there is none."""
    weights = filtered_weights(task, layer)
    module = getattr(task, "architecture", None)
    return weights / sum(p.numel() for p in module.parameters()) if module is not None and weights else 1.0
