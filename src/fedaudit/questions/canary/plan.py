"""From [audit.canary] to canary parties, their schedule, and what the audit must know of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedaudit.config.schema import Config
from fedaudit.errors import FedauditError
from fedaudit.questions import Ground, Planting
from fedaudit.questions.canary import QUESTION, CanarySection
from fedaudit.questions.canary.vectors import parameter_count
from fedaudit.questions.canary.watch import ALIVE, CanaryGame, CraftedCanaries, Mechanism, RandomCanaries, TableColumns
from fedaudit.types import Game, Party, Plan, Records

if TYPE_CHECKING:
    from fedaudit.defences.shared import Defence
    from fedaudit.learn.tasks import TorchTask
    from fedaudit.questions.canary.parties import Design, Probing, Schedule

DELTA = 1e-5  # without an accountant
INCLUDED_STREAM = 34
RECIPE = ("objective", "starts", "batch", "reach")  # keys of [audit.canary] that have their default in the recipe


def plan(names: Sequence[str], ground: Ground, task: TorchTask, defence: Defence, rounds: Sequence[Plan]) -> Planting:
    """The canaries of a run with these rounds. Refuses what cannot be measured."""
    from fedaudit.questions.canary.crafting import check_target, check_text
    from fedaudit.questions.canary.parties import Probing, with_random

    config, game, pool = ground.config, ground.game, ground.own
    asked, federation = config.audit.canary or CanarySection(), config.federation
    honest, sampling = game.parties, federation.sampling or "uniform"
    if asked.canaries is not None and asked.canaries > len(honest):
        what = f"audit.canary asks for {asked.canaries} canaries among {len(honest)} parties"
        raise FedauditError("canary-count", what, "Canaries must not outnumber the parties: ask for fewer.")
    how = Probing(honest, federation.participation, sampling, federation.seed)
    claim = claim_of(game, defence)
    parties: list[Party] = []
    random = crafted = None
    if "one-shot" in names:
        random, senders = _random(config, task, claim, asked.canaries or len(honest))
        parties += senders
        rounds = with_random(rounds, [party.name for party in senders], how)
    if "canife" in names:
        assert pool is not None
        check_target(asked.target, task.classes)
        if pool.x.dtype.kind in "iu":
            check_text(task, pool, asked.starts)
        crafted, made, schedule = _crafted(config, game, defence, task, pool, claim, rounds, how)
        parties += made
        rounds = schedule.plans
        columns = None
        if pool.x.ndim == 2 and pool.x.dtype.kind == "f":  # a table
            mean, spread = pool.x.mean(axis=0, dtype=np.float64), pool.x.std(axis=0, dtype=np.float64)
            columns = TableColumns(ground.dataset.columns, mean, np.where(spread > 0, spread, 1.0))
        crafted = replace(crafted, vocabulary=ground.dataset.vocabulary, columns=columns)
    of_all = QUESTION.ask(names, {})
    assert isinstance(of_all, CanaryGame)
    return Planting(parties, rounds, replace(of_all, claim=claim, crafted=crafted, random=random))


# How many times its rate Adam's step can be at most: the first one, and any other ((1 - b1) / sqrt(1 - b2)).
ADAM_FIRST, ADAM_MOST = 1.0, 3.17


def check_length(task: TorchTask, design: Design) -> None:
    """Adam moves a weight by about its rate, whatever the gradient is. So there is a limit to the update of one record,
    and where it is far below the clip norm no canary can be crafted."""
    own, clip = design.training, design.clip
    if clip is None or own.optimizer != "adam":
        return
    weights = sum(weight.numel() for weight in task.architecture.parameters() if weight.requires_grad)
    longest = own.lr * (ADAM_FIRST + ADAM_MOST * (own.epochs - 1)) * weights**0.5
    if longest < ALIVE * clip:
        what = (
            f"with Adam at a rate of {own.lr:g}, one record moves this model by {longest:.2g} at most, and updates are "
            f"clipped to {clip:g}: a canary would be too short to be found"
        )
        todo = (
            f'Set a clip of {float(f"{longest:.1g}") / 2:g} or less, or federation.optimizer = "sgd" with a larger lr.'
        )
        raise FedauditError("canary-short", what, todo)


def stretch(asked: CanarySection, rounds: int) -> int:
    if asked.mode == "running":
        return rounds
    every = asked.every or max(1, rounds // 5)
    if every > rounds:
        what = f"audit.canary.every is {every}, and there are {rounds} rounds: nothing would be measured"
        raise FedauditError("canary-every", what, "Set a smaller one, or leave it out.")
    return every


def claim_of(game: Game, defence: Defence) -> Mechanism:
    """What is publicly known: clip norm and denominator, and the promise about whole parties, if there is one."""
    from fedaudit.defences.dp_fedavg import Clip, NoisySum

    promise = next((one for one in defence.promises if one.process.unit == "user"), None)
    delta = promise.delta if promise else DELTA
    if delta >= 1 / len(game.parties):
        what = f"delta {delta:g} is not below 1/{len(game.parties)}: publishing one party at random would satisfy it"
        raise FedauditError("canary-delta", what, "Set a smaller delta in [[defences]], or use more parties.")
    clip = defence.update.clip if isinstance(defence.update, Clip) else None
    if isinstance(defence.update, Clip) and defence.update.noise:
        what = "canaries are looked for in a sum, and here each party adds noise of its own"
        raise FedauditError("canary-local", what, "Take local = true out of dp-fedavg, or the canaries out of [audit].")
    total = defence.aggregate.denominator if isinstance(defence.aggregate, NoisySum) else None
    return Mechanism(delta, clip, total, promise.process if promise else None)


def probes_that_refute(config: Config, game: Game, defence: Defence) -> list[str]:
    """How many probes refute the claim if the noise is really a half or a third of what is claimed."""
    from fedaudit.stats.canary import MOST_PROBES, MOST_ROUNDS, probes_needed, rounds_needed
    from fedaudit.stats.gaussian import gaussian_epsilon

    asked, claim = config.audit.canary or CanarySection(), claim_of(game, defence)
    rounds = config.federation.rounds
    running = asked.mode == "running"
    spent, most, unit = asked.probes * (rounds // stretch(asked, rounds)), MOST_PROBES, "probes"
    if running:
        spent, most, unit = rounds, MOST_ROUNDS, "rounds"
    if claim.process is None:
        return [f"canife: {spent} {unit}. No noise is claimed for whole parties, so no claim can be refuted."]
    noise, told = claim.process.noise, []
    claimed = gaussian_epsilon(1 / noise, claim.delta)
    for share, words in ((2, "half"), (3, "a third")):
        how_many = rounds_needed if running else probes_needed
        needed = how_many(noise, noise / share, claim.delta, config.audit.confidence)
        takes = f"more than {most:,} {unit}" if needed is None else f"{needed:,} {unit}"
        told.append(
            f"canife: if the noise is {words} of what is claimed, it takes {takes} to refute the epsilon claimed for "
            f"one round ({claimed:.3g} at delta {claim.delta:g}) four times in five; {spent:,} are planned."
        )
    return told


def _crafted(
    config: Config,
    game: Game,
    defence: Defence,
    task: TorchTask,
    pool: Records,
    claim: Mechanism,
    rounds: Sequence[Plan],
    how: Probing,
) -> tuple[CraftedCanaries, list[Party], Schedule]:
    from fedaudit.learn.tasks import Training
    from fedaudit.questions.canary.crafting import CraftingRecipe
    from fedaudit.questions.canary.parties import Canaries, CanaryParty, Design, running, with_probes
    from fedaudit.session.prepare import training

    asked, federation = config.audit.canary or CanarySection(), config.federation
    sizes = [len(game.members(party)) for party in game.parties]
    chosen = {key: value for key in RECIPE if (value := getattr(asked, key)) is not None}
    recipe = CraftingRecipe(asked.canaries or 1, asked.steps, target=asked.target, initial=asked.initial, **chosen)
    own = Training(**training(config, max(sizes)))
    design = Design(
        pool=pool,
        mocks=asked.pool,
        size=int(np.median(sizes)),
        training=own,
        clip=claim.clip,
        recipe=recipe,
        seed=federation.seed,
        gradient=defence.gradient,
    )
    check_length(task, design)
    canaries = Canaries(design)
    names, live = canaries.names, asked.mode == "running"
    if live:
        schedule = running(rounds, names, federation.seed)
    else:
        schedule = with_probes(rounds, names, asked.probes, stretch(asked, federation.rounds), how)
    expected = federation.participation * len(game.parties)
    made: list[Party] = [CanaryParty(name, number, canaries) for number, name in enumerate(names)]
    return (
        CraftedCanaries(
            names=np.array(names),
            present=schedule.present,
            fair=live,
            parties=expected,
            canaries=canaries,
            of_a_record=asked.initial == "data",
        ),
        made,
        schedule,
    )


def _random(config: Config, task: TorchTask, claim: Mechanism, count: int) -> tuple[RandomCanaries, list[Party]]:
    """Each random canary is included by a fair coin; those that are not are never sent, and show the null."""
    from fedaudit.questions.canary.parties import RandomParty, check_directions, directions

    if claim.clip is None:
        what = "a random canary sends an update of the clip norm, and here nothing is clipped"
        raise FedauditError("canary-clip", what, "Add the defence dp-fedavg, or take one-shot out of audit.attacks.")
    seed, start = config.federation.seed, task.initial(config.federation.seed)
    seeds = [seed * 1_000_003 + number for number in range(count)]
    parameters = parameter_count(start)
    included = np.random.default_rng([seed, INCLUDED_STREAM]).random(count) < 0.5
    names = np.array([f"random-canary-{number}" for number in range(count)])

    @lru_cache(maxsize=1)
    def units() -> np.ndarray:
        drawn = directions(seeds, parameters)
        check_directions(drawn)
        return drawn

    sent: list[Party] = [RandomParty(str(names[i]), seeds[i], claim.clip) for i in np.flatnonzero(included).tolist()]
    return RandomCanaries(names, included, parameters, start, units), sent
