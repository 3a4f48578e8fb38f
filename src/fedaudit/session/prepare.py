"""From a configuration to a federation that is ready to train. What cannot work is refused here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedaudit import data
from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.shadow import References, is_outside
from fedaudit.audit import Auditor, Settings
from fedaudit.audit.outlooks import Shadow, own_of_party, split_own
from fedaudit.audit.settings import Legend
from fedaudit.config.schema import Config
from fedaudit.data import beside, partition, subjects
from fedaudit.errors import FedauditError
from fedaudit.federation import plans as sampled
from fedaudit.privacy.statement import Promise
from fedaudit.questions import Ground, Planting, every
from fedaudit.session.assemble import Ours, Request, chosen, settled
from fedaudit.types import Audit, Dataset, Game, Notice, Party, Plan, Records, Role, as_notices, notice

if TYPE_CHECKING:  # torch is needed to train, not to look again at what was recorded
    from fedaudit.defences.shared import Defence
    from fedaudit.learn.tasks import TorchTask
    from fedaudit.session.isolation import Isolation


@dataclass(frozen=True)
class Staged:
    """The game that the configuration describes, without a model, and what is asked about it."""

    dataset: Dataset
    own: Records | None  # set aside for an adversary, or for a question
    request: Request

    @property
    def config(self) -> Config:
        return self.request.config

    @property
    def game(self) -> Game:
        return self.request.game

    @property
    def ground(self) -> Ground:
        shadow = self.request.ours.shadow if self.request.ours else None
        return Ground(config=self.config, dataset=self.dataset, game=self.game, own=self.own, shadow=shadow)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A federation that has passed all checks and may start training."""

    config: Config
    dataset: Dataset
    game: Game
    task: TorchTask
    parties: list[Party]
    plans: list[Plan]
    auditor: Auditor
    defence: Defence
    isolation: Isolation | None = None  # what a malicious aggregator does instead
    gaps: list[Notice] = field(default_factory=list)  # planned work that an engine could not do

    @property
    def settings(self) -> Settings:
        return self.auditor.settings

    @property
    def promises(self) -> tuple[Promise, ...]:
        return self.defence.promises

    def snapshot(self) -> Audit:
        """The results, including those of isolated parties if there are any."""
        found = self.auditor.snapshot()
        return self.isolation.add_to(found) if self.isolation else found


def stage(config: Config, recorded: Sequence[str] = ()) -> Staged:
    """`recorded`: the attacks of a run that is resumed, if its configuration names none."""
    config = config.decided()
    attacks = chosen(config, recorded)
    loaded = data.load(config.data)
    config = decided(config, loaded)
    federation = config.federation
    dataset = asked_about(config, loaded)
    dataset, own = reserved(dataset, attacks, config, loaded)
    rng = np.random.default_rng([federation.seed, 0])
    game = partition.build(dataset, federation, rng, config.audit.unit or "record")
    game = calibrated(game, config, loaded)
    how = training(config, len(dataset.records))
    shadow = shadow_of(config, game, own, how)
    ground = Ground(config=config, dataset=dataset, game=game, own=own, shadow=shadow)
    made = {name: found for name, question in every().items() if (found := question.prepare(ground))}
    implied = [told for one in made.values() for told in one.notices]
    references = References(**config.audit.reference.bank(), training=how, seed=federation.seed, own=own)
    request = Request(
        config=config,
        game=game,
        attacks=attacks,
        notices=(
            *left_out(dataset, game, federation.fresh or 0.0),
            *in_several(config, game),
            *few_aside(game),
            *implied,
            *as_notices(dataset.notices),
        ),
        asked={name: one.asked for name, one in made.items()},
        ours=Ours(references, shadow),
        legend=Legend(dataset.values, frozenset(name for name in (dataset.session, dataset.holder) if name)),
    )
    return Staged(dataset, own, request)


def decided(config: Config, dataset: Dataset) -> Config:
    """Decides what is trained on, if nothing says it; and whether people may be split, if the data say whose a record
    is. They may not, unless that was asked for, directly or by a coin for each record."""
    federation, known = config.federation, dataset.records.subject is not None
    split = bool(federation.split_subjects) or (bool(federation.coins) and federation.partition != "subjects")
    shares = partition.shares_of(federation, dataset.records)
    return config.sharing(*shares).splitting(split if known else None)


def asked_about(config: Config, dataset: Dataset) -> Dataset:
    """The data as questions want them to be trained on."""
    for question in every().values():
        dataset = question.data(config, dataset)
    return dataset


def read_beside(config: Config, path: Path, loaded: Dataset, key: str) -> Records:
    return asked_about(config, beside.read_beside(config.data, path, loaded, key)).records


def calibrated(game: Game, config: Config, loaded: Dataset) -> Game:
    """With the non-members that are to set thresholds."""
    wanted = config.audit.calibration
    if wanted is None:
        return game
    if wanted.path is not None:
        if game.candidates.unit != "record":
            what = "audit.calibration.path has records, and the game is about people"
            raise FedauditError("beside-people", what, "Remove it, or set audit.unit = 'record'.")
        game = beside.calibrated_by(game, read_beside(config, wanted.path, loaded, "audit.calibration.path"))
    return beside.calibrated_with(game, wanted.records) if wanted.records else game


def left_out(dataset: Dataset, game: Game, fresh: float) -> tuple[Notice, ...]:
    """People with a single record, or session, who cannot both be trained on and have one that is not."""
    if game.candidates.unit != "subject":
        return ()
    everybody = len(subjects.people(dataset.records)[0])
    missing, sessions = everybody - len(game.candidates), dataset.session is not None
    return (notice("single-record", people=missing, of=everybody, sessions=sessions, fresh=fresh),) if missing else ()


def in_several(config: Config, game: Game) -> tuple[Notice, ...]:
    """People whom a column puts in more than one party. (Where records are dealt out at random, nearly all are.)"""
    if config.federation.partition != "column" or (found := partition.in_several(game)) is None:
        return ()
    return (notice("in-several-parties", people=found[0], of=found[1]),) if found[0] else ()


FEW_ASIDE = 5  # candidates of a party that are reported on, or that set thresholds: with fewer it is named


def few_aside(game: Game) -> tuple[Notice, ...]:
    """Parties that are so small that next to nobody is left to compare their members with."""
    few: list[dict[str, str | int]] = []
    for party in game.parties:
        own = game.truth.role[game.candidates.of_party(party)]
        evaluation, calibration = (int((own == role.value).sum()) for role in (Role.EVALUATION, Role.CALIBRATION))
        if 0 < min(evaluation, calibration) < FEW_ASIDE:
            few.append({"party": party, "evaluation": evaluation, "calibration": calibration})
    return (notice("few-aside", few=few),) if few else ()


def training(config: Config, records: int) -> dict[str, Any]:
    """How a party trains: the fields of `tasks.Training`."""
    federation = config.federation
    decay = {"weight_decay": federation.weight_decay} if federation.weight_decay else {}
    if federation.algorithm == "fedsgd":  # one step on all records of a party
        return {"optimizer": "sgd", "lr": federation.lr, "epochs": 1, "batch_size": records} | decay
    return {
        "optimizer": federation.optimizer,
        "lr": federation.lr,
        "epochs": federation.local_epochs,
        "batch_size": federation.batch_size,
    } | decay


def build(staged: Staged) -> TorchTask:
    from fedaudit.learn.models.own import exchanged_of, forward_of
    from fedaudit.learn.tasks import build_task

    model, dataset = staged.config.model, staged.dataset
    frozen = staged.config.federation.freeze or 0
    shape = dataset.input_shape
    exchanged, arguments = exchanged_of(model), model.arguments()
    if "tokens" in type(model).model_fields:
        known = len(dataset.vocabulary) or int(dataset.records.x.max()) + 1
        arguments = {"tokens": known} | arguments
    return build_task(model.name, shape, dataset.classes, arguments, forward_of(model), frozen, exchanged)


def defend(staged: Staged, task: TorchTask) -> Defence:
    """The configured defences, in their slots."""
    from fedaudit import defences
    from fedaudit.learn.tasks import Training

    config, game = staged.config, staged.game
    sources = {name: partial(game.members, name) for name in game.parties}
    how = Training(**training(config, len(staged.dataset.records)))
    initial = task.initial(config.federation.seed)
    return defences.build(config.defences, defences.Setting(task, initial, sources, how, config.federation))


def refuse_unauthorised(config: Config) -> None:
    """Whatever trains asks this, unless somebody said that they may."""
    for question in every().values():
        if what := question.unauthorised(config):
            todo = "If you are authorised, give it to `fedaudit run` with --i-am-authorised; or remove the key."
            raise FedauditError("not-authorised", what, todo)


def prepare(config: Config, recorded: Sequence[str] = (), authorised: bool = False) -> Prepared:
    """`recorded`: the attacks of a run that is resumed, because the defaults may have changed since it began."""
    from fedaudit import defences
    from fedaudit.federation.simulate import Trainer
    from fedaudit.learn.tasks import Training
    from fedaudit.session.isolation import Isolation, honest

    if not authorised:
        refuse_unauthorised(config)
    staged = stage(config, recorded)
    staged.request.checked()  # before the model is built: what is wrong with the request is told first
    config, dataset, game = staged.config, staged.dataset, staged.game
    task = build(staged)
    initial = task.initial(config.federation.seed)
    task.check(initial, dataset.records)
    task.check_trains(initial, dataset.records)
    defence = defend(staged, task)
    how = Training(**training(config, len(dataset.records)))
    sources = {name: partial(game.members, name) for name in game.parties}
    parties: list[Party] = [
        defences.Guarded(name, source, how, defence.gradient) if defence.gradient else Trainer(name, source, how)
        for name, source in sources.items()
    ]
    plans, added = planted(staged.ground, task, defence)
    refuse_server_lr(staged.config, defence, plans)
    refuse_two_decays(staged.config)
    asked = {**staged.request.asked, **{name: one.asked for name, one in added.items()}}
    settings = settled(replace(staged.request.under(defence), asked=asked), task)
    isolation = None
    if config.audit.adversary == "agg-mal":
        isolation = Isolation(task=task, game=game, parties=parties, settings=settings, defence=defence, how=how)
        settings = honest(settings)
    return Prepared(
        config=config,
        dataset=dataset,
        game=game,
        task=task,
        parties=[*parties, *(party for one in added.values() for party in one.parties)],
        plans=plans,
        auditor=Auditor(task, game, settings),
        defence=defence,
        isolation=isolation,
    )


def refuse_two_decays(config: Config) -> None:
    if config.federation.weight_decay and any(defence.name == "l2" for defence in config.defences):
        what = "federation.weight_decay is set, and the defence l2 decays the weights, too"
        raise FedauditError("two-decays", what, "Remove one of them.")


def refuse_server_lr(config: Config, defence: Defence, plans: Sequence[Plan]) -> None:
    """Where the server does not take the mean, or a round is no plain one, it has no step whose length could be set."""
    if config.federation.step == 1:
        return
    plain = all(plan.commit and plan.broadcast is None and plan.canaries is None for plan in plans)
    why = "a defence acts at the server" if defence.aggregate else "" if plain else "canaries or probes are planned"
    if config.audit.adversary == "agg-mal":
        why = "a malicious aggregator (agg-mal) does not average"
    if why:
        what = f"federation.server_lr is set, and {why}"
        raise FedauditError("server-lr", what, "Remove server_lr, or the other one.")


def planted(ground: Ground, task: TorchTask, defence: Defence) -> tuple[list[Plan], dict[str, Planting]]:
    """The plans of all rounds, and what questions plant in them, by the question's name."""
    federation, sampling = ground.config.federation, ground.config.federation.sampling or "uniform"
    plans = sampled(ground.game.parties, federation.rounds, federation.participation, sampling, federation.seed)
    found: dict[str, Planting] = {}
    for name, question in every().items():
        if added := question.plant(ground, task, defence, plans):
            plans, found[name] = list(added.plans), added
    return plans, found


# ------------------------------------------------------------------ adversaries with data and models of their own


def reserved(
    dataset: Dataset, using: Sequence[BaseAttack], config: Config, loaded: Dataset
) -> tuple[Dataset, Records | None]:
    """Sets aside records for an adversary outside the federation: as many as asked for, or as a party gets; more if a
    question asks. Or reads those of a file of its own, and sets nothing aside."""
    outside = any(is_outside(signal) for attack in using for signal in attack.signals)
    asked = max(question.set_aside(config) for question in every().values())
    given, federation = config.audit.own, config.federation
    learns = outside or config.audit.adversary is not None
    if not outside and not asked and config.audit.adversary not in ("agg-sh", "agg-mal"):
        if given is not None:
            what = "[audit.own] has no effect: no adversary outside the federation has data of its own"
            raise FedauditError("own-idle", what, 'Remove it, or set audit.adversary = "agg-sh" or "agg-mal".')
        return dataset, None
    if given is not None and given.path is not None:
        own = read_beside(config, given.path, loaded, "audit.own.path")
        if learns:
            beside.refuse_few(own, bool(federation.split_subjects), "audit.own.path")
        beside.refuse_shared_people(own.subject, dataset.records.subject, "audit.own.path")
        return dataset, own
    share = given.share if given is not None and given.share is not None else 1 / (federation.parties + 1)
    rng = np.random.default_rng([federation.seed, 1])
    records, own = partition.reserve(dataset.records, max(share, asked), rng)
    if learns and given is not None:
        beside.refuse_few(own, bool(federation.split_subjects), "audit.own.share")
    return replace(dataset, records=records), own


def shadow_of(config: Config, game: Game, own: Records | None, training: Mapping[str, Any]) -> Shadow | None:
    """The adversary's shadow: the first party's model for do-sh, otherwise one trained on the reserved data."""
    adversary, federation = config.audit.adversary, config.federation
    if adversary is None:
        return None
    if adversary == "do-sh":
        return Shadow(adversary, own_of_party(game, game.first), game.first)
    assert own is not None
    share = federation.member_subjects or federation.shares[0]
    own_game = split_own(own, share, federation.seed, bool(federation.split_subjects))
    return Shadow(adversary, own_game, None, training, federation.seed)
