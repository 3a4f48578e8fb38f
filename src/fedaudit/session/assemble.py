"""One way to a checked audit, for everybody who wants one: run, replay, import, loops, Flower and studies.

A `Request` holds what is asked for, and what is known of the training. The steps and their order are the same for all:

1. The attacks are chosen (`choose`).
2. All that is asked for and known becomes settings (`Request.settings`).
3. What no vantage can feed is refused, or left out (`Request.checked`). That needs no model.
4. What the model cannot give is refused, or left out, and what the audit must know of the model is added (`settled`).
5. False-positive rates that cannot be calibrated are refused, or left out: by the auditor itself (`assemble`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from pydantic import ValidationError

from fedaudit.adversary import attacks
from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.attacks.fusion import Fusion
from fedaudit.adversary.attacks.matched import MatchedFilter
from fedaudit.adversary.attacks.series import ATTRIBUTE, AttributeGuess
from fedaudit.adversary.attacks.tear import FEWEST as FEWEST_OWN
from fedaudit.adversary.shadow import SIGNALS as OF_REFERENCES
from fedaudit.adversary.signals import options_of, variants
from fedaudit.adversary.signals.boundary import Box, Points, Rays, any_starts, search
from fedaudit.adversary.signals.searching import DEEPFOOL, DISTANCE, SearchOptions, inputs_are, width
from fedaudit.adversary.signals.searching import NEEDS as OF_LABELS
from fedaudit.adversary.signals.updates import ALL, OF_UNMIXING, UNMIX, FilterOptions, UnmixOptions
from fedaudit.adversary.signals.updates import NEEDS as OF_UPDATES
from fedaudit.audit import Auditor, Settings, patience
from fedaudit.audit.observer import Asked
from fedaudit.audit.outlooks import PLACES, Shadow
from fedaudit.audit.settings import SMALL_HEAD, Legend, Most, calibrating, own_records, reference_half
from fedaudit.config.attack_registry import plain
from fedaudit.config.attacks import MatchedSection, TearSection, UnmixSection
from fedaudit.config.schema import AuditSection, Config, explain
from fedaudit.config.section import Section
from fedaudit.defences.update_cut import UPDATE_RANK, UPDATE_SPARSE
from fedaudit.defences.update_noise import UPDATE_NOISE
from fedaudit.errors import OF_OTHERS, FedauditError
from fedaudit.privacy.statement import Promise
from fedaudit.questions import asked_by, every
from fedaudit.stats import needed_for_value
from fedaudit.types import Game, Ints, Notice, Records, Role, State, Task, Unit, Vantage, as_notices, notice, once

if TYPE_CHECKING:  # torch is needed to train, not to look again at what was recorded
    from fedaudit.adversary.shadow import References
    from fedaudit.audit.outlooks import Shadow
    from fedaudit.defences.shared import Defence


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
    told_outcome: bool = True  # what a round came to: the global model after it
    legend: Legend = field(default_factory=Legend)

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
            local_epochs=federation.local_epochs,
            told_outcome=self.told_outcome,
            server_lr=federation.step,
            notices=self.notices,
            serve=self.defence.serve if self.defence else None,
            filter=filter_options(self.config, promises),
            search=search_options(self.config),
            filters={v: filter_options(self.config, promises, v) for v in variants(signals, OF_UPDATES) if v},
            searches={v: search_options(self.config, v) for v in variants(signals, OF_LABELS) if v},
            unmixings={v: unmix_options(self.config, promises, v) for v in variants(signals, OF_UNMIXING)},
            asked={**looking(audit, audit.attacks), **at_delta_of(self.promises, self.asked)},
            legend=self.legend,
            most=self.most,
            **known,
        )

    @property
    def most(self) -> Most:
        """What the audit may cost. Somebody else's training does not wait for what nobody asked for; a run of ours is
        made for the audit, and waits a while."""
        if self.recorded is not None and not self.recorded.repeated:
            return Most()
        if (asked := self.config.audit.max_cost) is not None:
            return Most(together=asked)
        if self.named:
            return Most()
        return Most(each=1.0, seconds=3.0 if self.ours is None and self.recorded is None else 60.0)

    @property
    def disturbed(self) -> bool:
        """Does a defence that was declared add noise to updates, or cut them? Everybody knows of it then."""
        return bool(noisy_units(self.config, self.promises)) or bool(cut_by(self.config))

    def with_leader(self, task: Task) -> Request:
        """With unmix, where it is known to find much more and attacks were not asked for by name: under noise, where
        updates are cut, where the filter's layer is a small head, and where a part of the model is exchanged. Elsewhere
        it runs on request, because it costs more than an epoch."""
        known = self.named or self.recorded is not None or self.config.audit.unit == "subject"
        small = filter_share(task, self.settings().filter.layer) < SMALL_HEAD
        if known or not (self.disturbed or small or task.base):
            return self
        return replace(self, attacks=[*self.attacks, attacks.made(UNMIX, self.config.audit)])

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
    if task is None:
        return request.checked()
    request = request.with_leader(task)
    settings = request.checked()
    game, initial = request.game, task.initial(settings.seed)
    if request.ours is None:  # nobody has looked at this model before
        task.check(initial, game.candidates.rows)
    settings = settings.suited_to(task, initial, game.candidates.rows, request.named)
    settings = without_dear_leader(request, settings, task, game)
    told, seconds = told_of_searches(settings, task, game)
    told += too_few_to_whiten(settings, game)
    if request.recorded is None:  # a trace has told them
        told += part_exchanged(initial, task.base)
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
    if not request.named:
        settings = that_calibrate(settings, game)
    return settings


def without_dear_leader(request: Request, settings: Settings, task: Task, game: Game) -> Settings:
    """Where nobody asked for attacks by name and unmix is not run, or would take far more than it may, so that it is
    not even tried: the settings without it, and a notice of what it would cost."""
    if request.named or request.recorded is not None or game.candidates.unit == "subject":
        return settings
    unmix = attacks.made(UNMIX, request.config.audit)
    priced = price_of_unmix(request, settings, task, game)
    if priced is None or not any(settings.feeds(*place, unmix) for place in settings.watched()):
        return settings
    epochs, seconds = priced
    runs = any(attack.name == UNMIX for attack in settings.attacks)
    most = settings.most
    limit = most.each or most.together or 1.0
    if runs and (epochs < FAR * limit or seconds < FAR * most.seconds):
        return settings  # it is measured
    kept = [attack for attack in settings.attacks if attack.name != UNMIX]
    told = notice("unmix-not-run", epochs=float(f"{epochs:.2g}"))
    return replace(settings, attacks=kept, notices=(*settings.notices, told))


FAR, PER_SECOND = 4.0, 5e9  # times its limit that it may be predicted to take, and multiplications in a second


def price_of_unmix(request: Request, settings: Settings, task: Task, game: Game) -> tuple[float, float] | None:
    """Local epochs and seconds of a round of unmixing, predicted; None where there is none."""
    from fedaudit.adversary.signals import ghost, unmix
    from fedaudit.adversary.signals.updates import fresh
    from fedaudit.learn.tasks import TorchTask, tensor

    if not isinstance(task, TorchTask):
        return None
    few = game.candidates.rows.take(np.arange(min(ghost.FEW, len(game.candidates.rows))))
    options = unmix_options(request.config, request.promises if request.ours else None)
    try:
        module = fresh(task, task.initial(settings.seed), settings.unseen)
        work = unmix.prepare(
            module,
            task.losses,
            tensor(few.x),
            tensor(few.y),
            damping=options.damping,
            ridge=options.ridge,
            sketch=options.sketch,
        ).work
    except OF_OTHERS:  # whoever asks for it by name is told why
        return None
    members = sum(game.size(party) for party in game.parties)
    if not work.epoch or not members:
        return None
    operations = work.of(len(game.candidates.rows))
    return operations / (work.epoch * members), operations / PER_SECOND


# ------------------------------------------------------------------ what follows from the configuration


def at_delta_of(promises: Sequence[Promise], asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """The bound from coins at the delta of the promise about the same unit, so that the two can be compared."""
    if "coins" not in asked:
        return asked
    deltas = [promise.delta for promise in promises if promise.process.unit == asked["coins"].unit]
    return {**asked, "coins": replace(asked["coins"], delta=deltas[0])} if deltas else asked


# By where noise is added: inside the parties (for records, people), or to whole updates (docs/matched-filter.md).
DAMPING = {"record": 10.0, "subject": 10.0, "user": 1.0}
WHITE, RIDGE_UNDER_NOISE = 10.0, 1.0  # damping and ridge of unmix under noise, wherever it is added (docs/unmix.md)
# Matched-filter and unmix where updates are cut. What is missing from a sparse update is spread over all directions,
# as noise is. What is missing from one of low rank is not, and the small directions that are left say the most.
CUT = {UPDATE_RANK: (FilterOptions.damping, 0.1), UPDATE_SPARSE: (DAMPING["user"], WHITE)}


Given = TypeVar("Given", bound=Section)


def with_variant(section: Given, variant: str) -> Given:
    """A section of [audit], with what an attack sets that has a variant of the signals measured."""
    if not variant:
        return section
    try:
        return type(section).model_validate(section.model_dump() | options_of(variant))
    except ValidationError as error:
        raise explain(error, f"an attack with the options {variant[1:]}") from None


def noisy_units(config: Config, promises: tuple[Promise, ...] | None) -> list[Unit]:
    """What the noise of the declared defences is added for: records, people, or whole updates. Noise that promises
    nothing is noise on updates."""
    promised = [promise.process.unit for promise in promises or () if promise.process.unit in DAMPING]
    return promised + ["user" for defence in config.defences if defence.name == UPDATE_NOISE]


def cut_by(config: Config) -> list[str]:
    """The declared defences that send a part of each update."""
    return [defence.name for defence in config.defences if defence.name in CUT]


def filter_options(config: Config, promises: tuple[Promise, ...] | None, variant: str = "") -> FilterOptions:
    """The matched filter's options. What is not set follows from the configuration, never from a result.

    `promises`: of the defences; None if somebody else trains, of whom it is not known whether they use Adam."""
    asked, federation = with_variant(config.audit.matched or MatchedSection(), variant), config.federation
    noisy = [DAMPING[unit] for unit in noisy_units(config, promises)]
    known = [*noisy, *(CUT[name][0] for name in cut_by(config))]
    damping = max(known, default=FilterOptions.damping) if asked.damping == "auto" else float(asked.damping)
    adam = promises is not None and federation.algorithm == "fedavg" and federation.optimizer == "adam"
    return FilterOptions(asked.fit, damping, None if asked.layer == "auto" else asked.layer, adam and not noisy)


def unmix_options(config: Config, promises: tuple[Promise, ...] | None, variant: str = "") -> UnmixOptions:
    """Noise that a defence adds is white, and not of the colour of gradients: more damping (`CUT`: where updates are
    cut). It also hides how the candidates overlap: a larger ridge. Adam is done under noise as well, because it is the
    templates that are divided. Where somebody else trains, their updates say whether they use it."""
    asked, federation = with_variant(UnmixSection(), variant), config.federation
    noisy = noisy_units(config, promises)
    known = [*(WHITE for _ in noisy), *(CUT[name][1] for name in cut_by(config))]
    usual = RIDGE_UNDER_NOISE if noisy else UnmixOptions.ridge
    damping = max(known, default=UnmixOptions.damping) if asked.damping == "auto" else float(asked.damping)
    adam = federation.algorithm == "fedavg" and federation.optimizer == "adam" if promises is not None else None
    return UnmixOptions(
        damping=damping,
        ridge=usual if asked.ridge == "auto" else float(asked.ridge),
        layer=asked.layer,
        sketch=asked.sketch,
        coverage=asked.coverage,
        adaptive=adam,
    )


def search_options(config: Config, variant: str = "") -> SearchOptions:
    """How the boundary is searched by labels."""
    asked = with_variant(config.audit.tear or TearSection(), variant)
    return SearchOptions(asked.queries, asked.targets, own=asked.own, bounds=asked.bounds)


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
    """Leaves out attacks that nobody asked for, if they leave too few records to calibrate a rate that is asked for."""
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
    first = next((attack for attack in filters if "nonmembers" in attack.fitted_on), filters[0])
    known = "nonmembers" in first.fitted_on
    fewest = min(int(reference_half(game, index).sum()) if known else len(index) for index in panels)
    if fewest >= FEWEST:
        return []
    return [notice("plain-cosine", attack=first.name, needed=FEWEST, fewest=fewest, known=known)]


def part_exchanged(exchanged: State, base: State) -> list[Notice]:
    """Where a part of the model is exchanged, how much of it."""
    if not base:
        return []
    sent, kept = (sum(value.size for value in part.values()) for part in (exchanged, base))
    return [notice("part-exchanged", weights=sent, whole=sent + kept)]


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
    """How many weights the layer has that the matched filter looks at, or all layers that it looks at; 0 where there is
    none."""
    from fedaudit.adversary.signals.matched import largest_linear, rules

    module = getattr(task, "architecture", None)
    known = rules(module) if module is not None else []
    if module is None or not known or layer not in (None, ALL, *known):  # the filter refuses a layer that it has not
        return 0
    looked_at = known if layer == ALL else [layer or largest_linear(module)]
    return sum(int(module.get_submodule(name).weight.numel()) for name in looked_at)


def filter_share(task: Task, layer: str | None) -> float:
    """The share of the model's weights that lie in that layer; 1 where there is none."""
    weights = filtered_weights(task, layer)
    module = getattr(task, "architecture", None)
    if module is None or not weights:
        return 1.0
    return weights / sum(int(p.numel()) for name, p in module.named_parameters() if name not in task.base)


# ------------------------------------------------------------------ which attacks are asked for


SERIES = ("gradient-series", "logit-series", "cs-mia")  # what an adversary with a shadow model does unless told


def choose(audit: AuditSection, names: Sequence[str] | None) -> list[BaseAttack]:
    """The named attacks (None: the default ones), with the options that [audit] gives them. Attacks on people are
    refused in a game about records, and the other way round."""
    guessing = ATTRIBUTE in (names or ())
    if guessing and audit.attribute is None:
        raise FedauditError(
            "no-attribute",
            "the attack 'attribute' guesses a hidden attribute, but the configuration names none",
            'Set [audit.attribute] name, and audit.adversary to "agg-sh" or "do-sh".',
        )
    no_attacks = {ATTRIBUTE, *asked_by()}
    others = None if names is None else [_asked(audit, name) for name in names if name not in no_attacks]
    found = attacks.choose(others, audit)
    check_unit(audit, found)
    return [*found, AttributeGuess()] if guessing else found


def _asked(audit: AuditSection, name: str) -> str:
    """An attack as the configuration names it: the user's own as "package.module:name". A trace has just the names."""
    own = [asked for asked in audit.attacks or () if ":" in asked and asked != name]
    return next((asked for asked in own if attacks.made(asked).name == name), name)


def looking(audit: AuditSection, names: Sequence[str] | None) -> dict[str, Asked]:
    """The questions that look for themselves: those of [audit.questions], and those that names in audit.attacks ask."""
    found: dict[str, Asked] = {}
    for question in every().values():
        by_name = question.asked_in(names)
        given = (audit.questions or {}).get(question.name)
        if by_name or given is not None:
            asked = question.ask(by_name, given or {})
            found |= {} if asked is None else {question.name: asked}
    return found


def chosen(config: Config, recorded: Sequence[str] = ()) -> list[BaseAttack]:
    """The attacks asked for. An adversary brings attacks of its own, and series attacks need an adversary; all others
    are kept beside them."""
    audit = config.audit
    asked = choose(audit, audit.attacks if audit.attacks is not None else list(recorded) or None)
    check(audit, asked)
    if audit.adversary is None:
        return asked
    series = [attack for attack in asked if "shadow" in attack.fitted_on and not isinstance(attack, AttributeGuess)]
    others = [attack for attack in asked if "shadow" not in attack.fitted_on]
    if not series and not (audit.attacks and audit.attribute):
        series = attacks.choose(SERIES, audit)
    return [*others, *series, *([AttributeGuess()] if audit.attribute else [])]


def check_unit(audit: AuditSection, asked: Sequence[BaseAttack]) -> None:
    """Refuses attacks on records in a game about people, and the other way round."""
    people = audit.unit == "subject"
    for attack in asked:
        if (attack.question == "subject") == people:
            continue
        if people:
            suited = ", ".join(attacks.every("subject"))
            todo = f'Use {suited}; or set audit.unit = "record".'
            raise FedauditError("attack-unit", f"{attack.name} asks about records, and this game about people", todo)
        todo = 'Set audit.unit = "subject" and federation.partition = "subjects" or "column", or name another attack.'
        raise FedauditError("attack-unit", f"{attack.name} asks about people, and this game about records", todo)
    if people and (audit.adversary or audit.attribute):
        what = "audit.adversary and [audit.attribute] are about records, and this game is about people"
        raise FedauditError("attack-unit", what, 'Remove them, or set audit.unit = "record".')


def check(audit: AuditSection, asked: Sequence[BaseAttack]) -> None:
    """Refuses attacks without the adversary they need, and an adversary without its vantage."""
    if audit.attribute and audit.adversary not in ("agg-sh", "do-sh"):
        raise FedauditError(
            "no-adversary",
            "guessing an attribute needs a semi-honest adversary with a shadow model, but none is set",
            'Set audit.adversary to "agg-sh" or "do-sh".',
        )
    if audit.adversary is None:
        if learning := [attack.name for attack in asked if "shadow" in attack.fitted_on]:
            raise FedauditError(
                "no-adversary",
                f"{learning[0]} needs an adversary with a shadow model, but none is set",
                'Set audit.adversary to "agg-sh", "agg-mal" or "do-sh".',
            )
        return
    vantage, _ = PLACES[audit.adversary]
    if vantage not in audit.vantages:
        raise FedauditError(
            "adversary-vantage",
            f"the adversary {audit.adversary!r} needs the vantage {vantage.value!r}",
            f"Add {vantage.value!r} to audit.vantages.",
        )


# ------------------------------------------------------------------ an adversary who asks for labels


TRIAL, SEARCHED, BUDGET = 1024, 64, 150  # records that are asked about and searched, to see how long it takes
SEARCH_TIME = "search-time"  # the code of the notice that says how long it takes


def told_of_searches(settings: Settings, task: Task, game: Game) -> tuple[list[Notice], dict[str, float]]:
    """Refuses a first party with too few records of its own, and options under which it would find nothing. Says how
    long the search will take, and what a distance means where inputs are binary. Returns these notices, and the seconds
    of each search, by variant."""
    everyone = np.arange(len(game.candidates))
    for attack in settings.attacks:
        if "own" in attack.fitted_on:
            own = own_records(game, everyone, attack.own or settings.search.own)
            check_own(attack.name, int((own & game.truth.mask(Role.MEMBER)).sum()), game)
    if not variants(settings.signals, (DISTANCE, DEEPFOOL)):
        return [], {}
    searches = {variant: settings.search_of(variant) for variant in variants(settings.signals, [DISTANCE])}
    for variant, options in searches.items():
        distance = f"{DISTANCE}{variant}"
        every_round = any(distance in attack.signals and not attack.deferred for attack in settings.attacks)
        check_queries(options, settings.rounds if every_round else 1, task.classes)
        check_bounds(options.bounds, game)
    per_second = speed(task, game, settings.seed) if searches else 0.0
    notices, seconds = list[Notice](), dict[str, float]()
    for variant, options in searches.items():
        asked = own_records(game, everyone, options.own) | ~game.of_first()
        records = int(asked[game.candidates.owner].sum())
        seconds[variant] = records * options.queries / per_second
        known = {"records": records, "queries": options.queries, "per_second": per_second}
        notices.append(notice(SEARCH_TIME, **known, given_up=patience.limit(seconds[variant])))
    kind = inputs_are(game.candidates.rows.x)
    return [*notices, *([] if kind == "continuous" else [notice("inputs-binary", kind=kind)])], seconds


def check_own(name: str, members: int, game: Game) -> None:
    if members < FEWEST_OWN:
        raise FedauditError(
            "few-own",
            f"{name} learns from the first party's own records, and {game.first!r} has {members} members with as "
            f"many non-members; {FEWEST_OWN} of each are needed",
            "Share the records among fewer parties, raise federation.members, or raise audit.tear.own.",
        )


def check_queries(options: SearchOptions, rounds: int, classes: int) -> None:
    """Refuses a budget that leaves a boundary without a single label in a round."""
    many = width(options.targets, classes)
    needed = classes if options.targets == "all" else 2 * many - 1 if many > 1 else 2
    if options.queries // rounds < needed:
        raise FedauditError(
            "few-queries",
            f"audit.tear.queries = {options.queries} leaves {options.queries // rounds} labels for a record in each of "
            f"{rounds} rounds, and a search with audit.tear.targets = {options.targets!r} needs {needed}",
            f"Set audit.tear.queries to at least {rounds * needed}, better to ten times that.",
        )


def check_bounds(bounds: Box | None, game: Game) -> None:
    x = game.candidates.rows.x
    low, high = float(x.min()), float(x.max())
    if bounds is not None and not bounds[0] <= low <= high <= bounds[1]:
        raise FedauditError(
            "bounds",
            f"the records' values run from {low:g} to {high:g}, and audit.tear.bounds = [{bounds[0]:g}, {bounds[1]:g}] "
            "would keep the search away from some of them",
            "Set audit.tear.bounds to a range that holds them all, or remove it.",
        )


def speed(task: Task, game: Game, seed: int) -> float:
    """Labels a second in a short search under the initial model. That model may give all records the same label. Then
    there is no boundary to search for, and the speed of its answers is taken instead."""
    rows, state = game.candidates.rows, task.initial(seed)
    x = rows.x[np.resize(np.arange(len(rows)), TRIAL)]
    flat = x.reshape(TRIAL, -1)

    ask = task.asking(state)

    def labels(points: Points) -> Ints:
        return np.asarray(ask(points.reshape(-1, *x.shape[1:])).argmax(axis=1), np.int64)

    started = time.perf_counter()
    label = labels(flat)
    answering = TRIAL / max(time.perf_counter() - started, 1e-6)
    some = flat[:SEARCHED]
    allowed = ~np.eye(task.classes, dtype=bool)[label[:SEARCHED]]
    starts = any_starts(flat, label, allowed, 8, 0)
    started = time.perf_counter()
    asked = int(search(labels, some, allowed, starts, Rays.none(*some.shape), BUDGET, 0, None).queries.sum())
    return asked / max(time.perf_counter() - started, 1e-6) if asked > TRIAL else answering
