"""Several small federations trained side by side, one round of all at a time: a study's cells.

A study trains hundreds of federations of ten small models each. Their parties are one stack (`at_once`), whichever
federation they belong to; each federation draws from its own generators, so its rounds are those of `simulate.federate`
except for the last bits. These may depend on what is stacked, so the same federations must always be put together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedaudit.defences.slots import NONE
from fedaudit.federation import at_once
from fedaudit.federation.sampling import scheduled
from fedaudit.federation.simulate import Trainer, exchanged, party_rng
from fedaudit.learn.stacked import linear_layers
from fedaudit.learn.tasks import TorchTask, Training
from fedaudit.types import Party, Plan, Round, State


@dataclass(frozen=True)
class World:
    """One of the federations. None of them has a defence: those with one are trained alone."""

    task: TorchTask
    parties: Sequence[Party]
    plans: Sequence[Plan]
    seed: int

    def trainers(self) -> dict[str, Trainer]:
        """The parties by name, if all are honest and plain ones."""
        found = {p.name: p for p in self.parties if type(p) is Trainer and not p.training.weight_decay}
        return found if len(found) == len(self.parties) else {}


def alike(world: World) -> tuple[str, int, Training, int] | None:
    """Worlds for which this is equal can be trained together; None: this one must be trained alone."""
    module, trainers = world.task.architecture, world.trainers()
    if not trainers or linear_layers(module) is None or type(world.task) is not TorchTask:
        return None
    kinds = {party.training for party in trainers.values()}
    small = sum(p.numel() for p in module.parameters()) <= at_once.MAX_PARAMETERS
    plain = all(plan.commit and plan.broadcast is None for plan in world.plans)
    if len(kinds) != 1 or not small or not plain:
        return None
    return repr(module), world.task.classes, kinds.pop(), len(world.plans)


def federate_together(worlds: Sequence[World]) -> Iterator[list[Round]]:
    """One round of every world, in their order, until all rounds are made."""
    trainers = [world.trainers() for world in worlds]
    training = next(iter(trainers[0].values())).training
    models = [world.task.initial(world.seed) for world in worlds]
    schedule = [list(scheduled(world.plans)) for world in worlds]
    for now in zip(*schedule, strict=True):
        jobs: list[at_once.Job] = []
        for world, by_name, model, (moment, plan) in zip(worlds, trainers, models, now, strict=True):
            jobs += [
                at_once.Job(name, by_name[name].records, party_rng(world.seed, moment, name), model)
                for name in plan.parties
            ]
        sent = iter(at_once.train(worlds[0].task, jobs, training))
        rounds = []
        for world, model, (moment, plan) in zip(worlds, models, now, strict=True):
            own = {name: next(sent) for name in plan.parties}
            if own:
                rounds.append(exchanged(moment, plan, model, own, world.seed, NONE))
            else:  # nobody took part
                rounds.append(Round(moment.round, model, {}, model, commit=False))
        yield rounds
        models = [_next(model, round) for model, round in zip(models, rounds, strict=True)]


def _next(model: State, round: Round) -> State:
    return round.aggregate if round.commit else model
