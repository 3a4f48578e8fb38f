"""From a configuration to a federation that is ready to train. What cannot work is refused here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import ValidationError

from fedaudit import data
from fedaudit.adversary.attacks.fusion import Fusion
from fedaudit.adversary.attacks.matched import MatchedFilter
from fedaudit.adversary.shadow import References
from fedaudit.adversary.signals.references import SIGNALS as OF_REFERENCES
from fedaudit.adversary.signals.searching import NEEDS as OF_LABELS
from fedaudit.adversary.signals.searching import SearchOptions
from fedaudit.adversary.signals.updates import NEEDS as OF_UPDATES
from fedaudit.adversary.signals.updates import FilterOptions
from fedaudit.adversary.signals.variants import options_of, variants
from fedaudit.audit import Auditor, Settings, patience
from fedaudit.audit.settings import Coins, reference_half
from fedaudit.config.attack_registry import plain
from fedaudit.config.attacks import Matched
from fedaudit.config.schema import Config, explain
from fedaudit.config.section import Section
from fedaudit.config.tear import Tear
from fedaudit.data import partition, subjects
from fedaudit.federation.sampling import plans as sampled
from fedaudit.privacy.statement import Promise
from fedaudit.session import adversaries, attributes, canaries, label_only
from fedaudit.types import Audit, Dataset, Game, Party, Plan, Records, Role, Task, Vantage

if TYPE_CHECKING:  # torch is needed to train, not to look again at what was recorded
    from fedaudit.defences.slots import Defence
    from fedaudit.learn.tasks import TorchTask
    from fedaudit.session.isolation import Isolation


@dataclass(frozen=True)
class Staged:
    """The game that the configuration describes, without a model."""

    config: Config
    dataset: Dataset
    game: Game
    settings: Settings
    promises: tuple[Promise, ...] = ()  # of its defences, where these are known
    own: Records | None = None  # set aside for an adversary: its own data, or the design pool of canaries


@dataclass(frozen=True)
class Prepared:
    """A federation that has passed all checks and may start training."""

    config: Config
    dataset: Dataset
    game: Game
    task: TorchTask
    parties: list[Party]
    settings: Settings
    auditor: Auditor
    defence: Defence
    isolation: Isolation | None = None  # what a malicious aggregator does instead
    gaps: list[str] = field(default_factory=list)  # planned work that an engine could not do
    canaries: canaries.Planned | None = None

    @property
    def promises(self) -> tuple[Promise, ...]:
        return self.defence.promises

    def snapshot(self) -> Audit:
        """The results, including those of isolated parties if there are any."""
        found = self.auditor.snapshot()
        return self.isolation.add_to(found) if self.isolation else found


def stage(config: Config, recorded: Sequence[str] = (), former: bool = False) -> Staged:
    """`recorded`: the attacks of a run that is resumed, if its configuration names none. `former`: it is from before
    parties bore the names of their column and tables were searched for ids, and stays as it was."""
    config = config.decided()
    federation, audit = config.federation, config.audit
    patience.allow(audit.patience)
    chosen = adversaries.chosen(config, recorded)
    settings = Settings(audit.vantages, chosen, federation.rounds, audit.fpr, audit.confidence, federation.seed)
    dataset, asked = data.load(data.as_before(config.data) if former else config.data), audit.attribute
    config = decided(config, dataset)
    federation = config.federation
    if asked:
        dataset = attributes.with_attribute(dataset, asked.name, asked.column)
    dataset, own = adversaries.reserved(dataset, chosen, config)
    rng = np.random.default_rng([federation.seed, 0])
    game = partition.build(dataset, federation, rng, audit.unit or "record", named=not former)
    coins, implied = fair_coins(config)
    settings = replace(settings, notices=(*left_out(dataset, game), *implied), coins=coins)
    how = training(config, len(dataset.records))
    references = References(**audit.reference.bank(), training=how, seed=federation.seed, own=own)
    shadow = adversaries.shadow(config, game, own, how)
    settings = replace(settings, references=references, shadow=shadow, notices=(*settings.notices, *dataset.notices))
    if asked and shadow:
        settings = replace(settings, attribute=attributes.probe(dataset, shadow.game, asked.name, asked.column))
    return Staged(config, dataset, game, settings, own=own)


def decided(config: Config, dataset: Dataset) -> Config:
    """Decides whether people may be split, if the data say whose a record is. They may not, unless that was asked for,
    directly or by a coin for each record."""
    federation, known = config.federation, dataset.records.subject is not None
    split = bool(federation.split_subjects) or (bool(federation.coins) and federation.partition != "subjects")
    return config.splitting(split if known else None)


def fair_coins(config: Config) -> tuple[Coins | None, tuple[str, ...]]:
    """The coins of the configuration, if it has any, and a notice about what they imply."""
    federation = config.federation
    if not federation.coins:
        return None, ()
    if federation.partition == "subjects":
        return Coins("subject"), ()
    return Coins("record"), () if federation.split_subjects is None else (COINS_SPLIT,)


def at_delta_of(settings: Settings, promises: Sequence[Promise]) -> Settings:
    """The bound from coins at the delta of the promise about the same unit, so that the two can be compared."""
    if settings.coins is None:
        return settings
    mine = [promise.delta for promise in promises if promise.process.unit == settings.coins.unit]
    return replace(settings, coins=replace(settings.coins, delta=mine[0])) if mine else settings


COINS_SPLIT = (
    "federation.coins = true flips a coin for each record, so that people may have records on both sides "
    '(split_subjects = true is implied). For one coin a person, set federation.partition = "subjects".'
)


def left_out(dataset: Dataset, game: Game) -> tuple[str, ...]:
    """People with a single record, or session, who cannot both be trained on and have one that is not."""
    if game.candidates.unit != "subject":
        return ()
    everybody = len(subjects.people(dataset.records)[0])
    missing, of = everybody - len(game.candidates), "record" if dataset.session is None else "session"
    return (f"{missing:,} of {everybody:,} people have a single {of}: left out on both sides.",) if missing else ()


def training(config: Config, records: int) -> dict[str, Any]:
    """How a party trains: the fields of `tasks.Training`."""
    federation = config.federation
    if federation.algorithm == "fedsgd":  # one step on all records of a party
        return {"optimizer": "sgd", "lr": federation.lr, "epochs": 1, "batch_size": records}
    return {
        "optimizer": federation.optimizer,
        "lr": federation.lr,
        "epochs": federation.local_epochs,
        "batch_size": federation.batch_size,
    }


def build(staged: Staged) -> TorchTask:
    from fedaudit.learn.models.own import forward_of
    from fedaudit.learn.tasks import build_task

    model, dataset = staged.config.model, staged.dataset
    frozen = staged.config.federation.freeze or 0
    shape = dataset.input_shape
    return build_task(model.name, shape, dataset.classes, model.arguments(), forward_of(model), frozen)


def defend(staged: Staged, task: TorchTask) -> Defence:
    """The configured defences, in their slots."""
    from fedaudit import defences
    from fedaudit.learn.tasks import Training

    config, game = staged.config, staged.game
    sources = {name: partial(game.members, name) for name in game.parties}
    how = Training(**training(config, len(staged.dataset.records)))
    initial = task.initial(config.federation.seed)
    return defences.build(config.defences, defences.Setting(task, initial, sources, how, config.federation))


def prepare(config: Config, recorded: Sequence[str] = (), former: bool = False) -> Prepared:
    """`recorded`: the attacks of a run that is resumed, because the defaults may have changed since it began; `former`:
    whether it is from before what `stage` names."""
    from fedaudit import defences
    from fedaudit.federation.simulate import Trainer
    from fedaudit.learn.tasks import Training
    from fedaudit.session.isolation import Isolation

    staged = stage(config, recorded, former)
    config, dataset, game = staged.config, staged.dataset, staged.game
    federation = config.federation
    asked = config.audit.attacks is not None
    staged.settings.checked(asked)
    task = build(staged)
    initial = task.initial(federation.seed)
    task.check(initial, dataset.records)
    task.check_trains(initial, dataset.records)
    how = Training(**training(config, len(dataset.records)))
    sources = {name: partial(game.members, name) for name in game.parties}
    defence = defend(staged, task)
    settings = with_options(replace(staged.settings, serve=defence.serve), config, defence.promises)
    settings = at_delta_of(settings, defence.promises)
    settings = fitting(settings, task, game, federation.seed, asked)
    notices = (*settings.notices, *defence.notices, *unread(config, settings))
    settings = replace(adversaries.defended(settings, config, defence), notices=notices)
    parties: list[Party] = [
        defences.Guarded(name, source, how, defence.gradient) if defence.gradient else Trainer(name, source, how)
        for name, source in sources.items()
    ]
    isolation = None
    if config.audit.adversary == "agg-mal":
        learning = [attack for attack in settings.attacks if "shadow" in attack.fitted_on]
        isolation = Isolation(task, game, parties, replace(settings, attacks=learning), defence, how)
        others = [attack for attack in settings.attacks if attack not in learning]
        settings = replace(settings, attacks=others, shadow=None)
    planted = canaries.plan(config, game, task, defence, staged.own, dataset.vocabulary)
    if planted:
        parties += planted.parties
        settings = replace(settings, canaries=planted.game)
    auditor = Auditor(task, game, settings)
    return Prepared(config, dataset, game, task, parties, settings, auditor, defence, isolation, canaries=planted)


def unread(config: Config, settings: Settings) -> list[str]:
    """Notices about sections of [audit] that were set and that no attack reads."""
    given = config.audit.model_dump(exclude_defaults=True)
    signals = set(map(plain, settings.signals))
    readers = {
        "fusion": ("fusion", any(isinstance(attack, Fusion) for attack in settings.attacks)),
        "reference": ("lira or another attack with reference models", not signals.isdisjoint(OF_REFERENCES)),
        "canary": ("canife or one-shot", any(attack.question == "canary" for attack in settings.attacks)),
        "matched": ("matched-filter", not signals.isdisjoint(OF_UPDATES)),
        "tear": ("tear or boundary", not signals.isdisjoint(OF_LABELS)),
    }
    return [
        f"[audit.{section}] has no effect, because no attack reads it: add {who} to audit.attacks."
        for section, (who, read) in readers.items()
        if section in given and not read
    ]


# By where noise is added: inside the parties (for records, people), or to whole updates (docs/matched-filter.md).
DAMPING = {"record": 10.0, "subject": 10.0, "user": 1.0}


def with_options(settings: Settings, config: Config, promises: tuple[Promise, ...] = ()) -> Settings:
    """The settings with how its signals are measured: as [audit] says, and as single attacks have it set."""
    filters = {v: filter_options(config, promises, v) for v in variants(settings.signals, OF_UPDATES) if v}
    searches = {v: search_options(config, v) for v in variants(settings.signals, OF_LABELS) if v}
    settings = replace(settings, filter=filter_options(config, promises), search=search_options(config))
    return replace(settings, filters=filters, searches=searches)


Asked = TypeVar("Asked", bound=Section)


def _asked(section: Asked, variant: str) -> Asked:
    """A section of [audit], with what a variant of the signals sets."""
    if not variant:
        return section
    try:
        return type(section).model_validate(section.model_dump() | options_of(variant))
    except ValidationError as error:
        raise explain(error, f"an attack with the options {variant[1:]}") from None


def filter_options(config: Config, promises: tuple[Promise, ...], variant: str = "") -> FilterOptions:
    """The matched filter's options. What is not set follows from the configuration, never from a result."""
    asked, federation = _asked(config.audit.matched or Matched(), variant), config.federation
    noisy = [DAMPING[promise.process.unit] for promise in promises if promise.process.unit in DAMPING]
    damping = max(noisy, default=FilterOptions.damping) if asked.damping == "auto" else float(asked.damping)
    adam = federation.algorithm == "fedavg" and federation.optimizer == "adam"
    return FilterOptions(asked.fit, damping, None if asked.layer == "auto" else asked.layer, adam and not noisy)


def search_options(config: Config, variant: str = "") -> SearchOptions:
    asked = _asked(config.audit.tear or Tear(), variant)
    return SearchOptions(asked.queries, asked.targets, asked.own, asked.bounds)


def fitting(settings: Settings, task: Task, game: Game, seed: int, asked: bool) -> Settings:
    """The only way to settings that can be audited: attacks for every vantage, with signals that the task can give."""
    suited = settings.checked(asked).suited_to(task, task.initial(seed), game.candidates.rows, asked)
    lines, seconds = label_only.told(suited, task, game, seed)
    told = dict.fromkeys((*suited.notices, *lines, *too_few_to_whiten(suited, game)))  # a trace brings its own along
    searches = {v: replace(options, seconds=seconds.get(v, 0.0)) for v, options in suited.searches.items()}
    search = replace(suited.search, seconds=seconds.get("", 0.0))
    suited = replace(suited, notices=tuple(told), search=search, searches=searches)
    layer, by_coins = settings.filter.layer, settings.coins is not None
    weights = weights_per_member(task, game, layer, by_coins)
    return replace(suited, weights_per_member=weights, filter_share=filter_share(task, layer))


def too_few_to_whiten(settings: Settings, game: Game) -> list[str]:
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
    whose = 'known non-members; audit.matched.fit = "all" needs none' if known else "candidates"
    return [
        f"{filters[0].name} is the plain cosine where it has fewer than {FEWEST} records to fit its whitening on, and "
        f"the smallest set has {fewest} ({whose})."
    ]


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


def planned(prepared: Prepared) -> list[Plan]:
    if prepared.canaries:
        return prepared.canaries.plans
    federation = prepared.config.federation
    names = [party.name for party in prepared.parties]
    sampling = federation.sampling or "uniform"
    return sampled(names, federation.rounds, federation.participation, sampling, federation.seed)
