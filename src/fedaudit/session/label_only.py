"""What is known before training about an adversary who asks for labels: whether it can learn, what that costs, and what
its distances mean."""

from __future__ import annotations

import time

import numpy as np

from fedaudit.adversary.attacks.tear import FEWEST
from fedaudit.adversary.signals.boundary import Box, Points, Rays, any_starts, search
from fedaudit.adversary.signals.searching import DEEPFOOL, DISTANCE, SearchOptions, inputs_are, width
from fedaudit.adversary.signals.variants import variants
from fedaudit.audit import Settings
from fedaudit.audit.patience import limit
from fedaudit.audit.settings import own_records
from fedaudit.errors import FedauditError
from fedaudit.types import Game, Ints, Notice, Role, Task, notice

TRIAL, SEARCHED, BUDGET = 1024, 64, 150  # records that are asked about and searched, to see how long it takes
TIME = "search-time"  # the code of the notice that says how long it takes


def told(settings: Settings, task: Task, game: Game) -> tuple[list[Notice], dict[str, float]]:
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
        notices.append(notice(TIME, **known, given_up=limit(seconds[variant])))
    kind = inputs_are(game.candidates.rows.x)
    return [*notices, *([] if kind == "continuous" else [notice("inputs-binary", kind=kind)])], seconds


def check_own(name: str, members: int, game: Game) -> None:
    if members < FEWEST:
        raise FedauditError(
            "few-own",
            f"{name} learns from the first party's own records, and {game.first!r} has {members} members with as "
            f"many non-members; {FEWEST} of each are needed",
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
