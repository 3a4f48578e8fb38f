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
from fedaudit.types import Game, Ints, Role, Task

TRIAL, SEARCHED, BUDGET = 1024, 64, 150  # records that are asked about and searched, to see how long it takes
TIME = "The search for decision boundaries may ask for"  # how the line begins that says how long it takes


def told(settings: Settings, task: Task, game: Game) -> tuple[list[str], dict[str, float]]:
    """Refuses a first party with too few records of its own, and options under which it would find nothing. Says how
    long the search will take, and what a distance means where inputs are binary. Returns these lines, and the seconds
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
    lines, seconds = list[str](), dict[str, float]()
    for variant, options in searches.items():
        asked = own_records(game, everyone, options.own) | ~game.of_first()
        records = int(asked[game.candidates.owner].sum())
        lines.append(duration(records, options.queries, per_second))
        seconds[variant] = records * options.queries / per_second
    return [*lines, *meaning(inputs_are(game.candidates.rows.x))], seconds


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


def duration(records: int, queries: int, per_second: float) -> str:
    seconds = records * queries / per_second
    about = f"about {seconds:.0f} seconds" if seconds < 120 else f"about {seconds / 60:.0f} minutes"
    length = about if seconds >= 5 else "a few seconds"
    given_up = f" The search of a round is given up after {limit(seconds) / 60:.0f} minutes."
    return (
        f"{TIME} {records * queries:,} labels ({records:,} records, at most "
        f"{queries:,} each over all rounds): {length} at {per_second:,.0f} labels a second; audit.tear.queries "
        f"sets how many.{given_up}"
    )


def meaning(kind: str) -> list[str]:
    if kind == "continuous":
        return []
    share = "Inputs" if kind == "binary" else "Some inputs"
    return [
        f"{share} are 0 or 1. Distances to decision boundaries are measured at points in between, which are no records "
        "themselves: an adversary whose queries must be records cannot ask about them."
    ]
