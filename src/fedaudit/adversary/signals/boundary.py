"""How far a record lies from the model's decision boundary, found by asking for labels and nothing else.

After TEAR (`adversary.attacks.tear`), HopSkipJump and SurFree; batched over records, starts and directions.

1. Start from points that are labelled otherwise: the last round's boundary point, or records of the adversary's own.
   A start is a ray from the record; bisection brings its reach down to the boundary. Of many rays the shortest few go
   on, as many as the budget can turn; of these the shorter half, again and again, until one is left.
2. Ask for labels around the end of the ray, across it, at a radius tied to the reach. The mean of the directions,
   weighted by whether the label changed, is the part of the boundary's normal that lies across the ray. Earlier
   estimates count on, less and less.
3. Turn the ray that way: a step that increases its cosine with the normal. On a flat boundary, points at the same
   reach lie past it for all angles up to twice the best one, so that half of the largest such angle is taken.
4. Bisect along the new ray. Repeat from 2 until the budget is used up or the reach stands still.

The end of a ray was labelled otherwise when it was asked about, so that no distance is ever less than the true one.

All records are probed in the same directions, drawn anew for each wave of starts: how long others took over the last
wave does not matter. A record's distance therefore depends on nothing but the record, the model, its starts, the budget
and the seed: not on which other records are searched, nor on how many at once (rounding of the model's outputs aside).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaudit.types import Bools, Floats, Ints

Points = NDArray[np.float32]
Labels = Callable[[Points], NDArray[np.integer]]  # the model: points in, predicted labels out
Box = tuple[float, float]
Starts = Callable[[slice], Points]  # which records in, their starts out

PROBES, FEWEST_PROBES = 24, 4  # directions in one estimate of the normal: as many as there are inputs, within these
RADIUS = 0.05  # how far probes lie from the end of the ray, as a share of its reach
FADING = 0.7  # how much an estimate of the normal counts in the next step
LADDER = np.array([0.25, 0.5, 1.0, 2.0])  # angles that are tried, in units of the last one that led past the boundary
WIDEST = 1.3  # the largest angle, in radians
FIRST_ANGLE = 0.4
PRECISION = 1e-3  # of a bisection, as a share of the reach
COARSE = 0.05  # the same where rays are only compared
GAIN, PATIENCE = 1e-3, 4  # a ray is left alone after so many steps that each shortened it by less than this share
OUTWARD = (1.0, 1.15, 1.5, 2.5)  # how far along its old ray a boundary point is looked for under a new model
PER_START = 40  # queries of the budget for which one more start is tried, up to WAVE at once
WAVE = 8
PER_RAY, PER_INPUT = 120, 2  # queries for which one more ray is turned: these, or these for each input if that is more
ENOUGH = 150  # queries that must be left for another wave
FARTHEST = 3.0  # a start is taken up if its ray ends within so many times the shortest reach
IDLE_WAVES = 2  # no more starts are tried after so many waves without a shorter ray
STEPS_BEFORE_HALVING = 2
BISECTION = 10  # queries that the bisection of a step may need
AT_ONCE = 2**22  # numbers in one batch of points


@dataclass(frozen=True)
class Rays:
    """One ray for each record: from the record in a unit `direction`, past the boundary at `reach`.

    The reach is NaN where no start was known. `label`: how the end is labelled. `queries`: what the record cost.
    """

    direction: Points
    reach: Floats
    label: Ints
    queries: Ints

    @staticmethod
    def none(n: int, width: int) -> Rays:
        return Rays(np.zeros((n, width), np.float32), np.full(n, np.nan), np.full(n, -1), np.zeros(n, np.int64))


def search(
    labels: Labels,
    x: Points,
    allowed: Bools,
    starts: Points | Starts,
    warm: Rays,
    budget: int | Ints,
    seed: int,
    box: Box | None,
) -> Rays:
    """For each record (a flat row of x) the shortest ray to a point whose label is `allowed` (records x classes).

    starts: records x starts x inputs, points with such labels (NaN: none); or a function that gives those of some
    records, so that there need not be room for all at once. warm: rays under an earlier model (a reach of NaN: none).
    Costs at most `budget` queries a record: the same for all, or its own for each.
    """
    found, budgets = Rays.none(*x.shape), np.broadcast_to(budget, len(x))
    chunk = max(1, AT_ONCE // (PROBES * x.shape[1]))
    for first in range(0, len(x), chunk):
        part = slice(first, first + chunk)
        one = Search(labels=labels, x=x[part], allowed=allowed[part], budget=budgets[part], seed=seed, box=box)
        one.take_up(warm.direction[part], warm.reach[part])
        one.explore(starts(part) if callable(starts) else starts[part])
        best = one.best()
        for field in ("direction", "reach", "label", "queries"):
            getattr(found, field)[part] = getattr(best, field)
    return found


class Search:
    """The rays of some records while they are searched. A record may have several; `owner` says whose each is."""

    def __init__(self, *, labels: Labels, x: Points, allowed: Bools, budget: Ints, seed: int, box: Box | None):
        self.labels, self.x, self.allowed, self.box = labels, x, allowed, box
        self.seed, self.rng = seed, np.random.default_rng(seed)
        self.probes = max(min(PROBES, x.shape[1]), FEWEST_PROBES)
        self.budget, self.left = budget, budget.astype(np.int64)
        self.spent = np.zeros(len(x), np.int64)
        self.owner = np.zeros(0, np.int64)
        self.direction = np.zeros((0, x.shape[1]), np.float32)
        self.reach = np.zeros(0)
        self.normal = np.zeros((0, x.shape[1]), np.float32)
        self.angle = np.zeros(0)
        self.still = np.zeros(0, np.int64)  # steps in a row that gained nothing
        self.end = np.zeros(0, np.int64)  # the label at the end of the ray

    # ------------------------------------------------------------------ asking

    def ask(self, owner: Ints, points: NDArray[np.floating]) -> tuple[Bools, Ints]:
        """For each owner a few points: which lie past the boundary, and how they are labelled."""
        several = points.shape[1]
        if len(owner) == 0:
            return np.zeros((0, several), bool), np.zeros((0, several), np.int64)
        np.add.at(self.spent, owner, several)
        np.subtract.at(self.left, owner, several)
        flat = points.reshape(-1, points.shape[-1]).astype(np.float32)
        if self.box is not None:
            flat = np.clip(flat, *self.box)
        found = np.asarray(self.labels(flat), np.int64).reshape(len(owner), several)
        return self.allowed[owner[:, None], found] & (found >= 0), found  # -1: the model has no label for it

    def affordable(self, rays: Ints, cost: int) -> Ints:
        """Those rays whose owners can pay for all of their own that are among these."""
        demand = np.bincount(self.owner[rays], minlength=len(self.x)) * cost
        return rays[demand[self.owner[rays]] <= self.left[self.owner[rays]]]

    def at(self, rays: Ints, reach: Floats) -> Points:
        """The points at these reaches, one for each ray."""
        return np.asarray(self.x[self.owner[rays]] + reach[:, None] * self.direction[rays], np.float32)

    # ------------------------------------------------------------------ where rays come from

    def take_up(self, direction: Points, reach: Floats) -> None:
        """Rays under an earlier model: their ends, or points a little farther out if these have changed sides."""
        waiting = np.flatnonzero(np.isfinite(reach) & (reach > 0))
        for factor in OUTWARD:
            waiting = waiting[self.left[waiting] > 0]
            if len(waiting) == 0:
                break
            ends = self.x[waiting] + (factor * reach[waiting])[:, None] * direction[waiting]
            past, end = self.ask(waiting, ends[:, None])
            ready = past[:, 0]
            self._add(waiting[ready], direction[waiting[ready]], factor * reach[waiting[ready]], end[ready, 0])
            waiting = waiting[~ready]
        self.bisect(np.arange(len(self.owner)), PRECISION)

    def explore(self, starts: Points) -> None:
        """Takes up one wave of starts after the other, while the record can pay for them and they still help."""
        wave, many = np.clip(self.budget // PER_START, 1, WAVE), starts.shape[1]  # for each record its own
        idle, place = np.zeros(len(self.x), np.int64), np.arange(wave.max())
        for number in range(-(-many // wave.min())):
            before = self._shortest()
            able = (self.left >= ENOUGH) & (idle < IDLE_WAVES)
            able |= np.isinf(before) | (number == 0)  # who has no ray yet needs one before anything else
            able &= number * wave < many
            if not able.any():
                break
            self.rng = np.random.default_rng([self.seed, number])
            which = number * wave[:, None] + place
            mine = np.take_along_axis(starts, np.minimum(which, many - 1)[:, :, None], axis=1)
            mine[(place >= wave[:, None]) | (which >= many)] = np.nan
            self.cast(mine, able)
            self.compete(able)
            idle += self._shortest() > (1 - GAIN) * before

    def cast(self, starts: Points, able: Bools) -> None:
        """A ray to each of these points. One query tells whether it ends within reach of the owner's shortest ray."""
        shortest = self._shortest()
        for start in starts.transpose(1, 0, 2):
            way = start - self.x
            length = np.linalg.norm(way, axis=1).astype(np.float64)
            known = np.flatnonzero(able & np.isfinite(length) & (length > 0) & (self.left > 0))
            direction = way[known] / length[known, None].astype(np.float32)
            reach = np.minimum(length[known], FARTHEST * shortest[known])
            past, end = self.ask(known, (self.x[known] + reach[:, None] * direction)[:, None])
            taken = np.flatnonzero(past[:, 0])
            new = len(self.owner) + np.arange(len(taken))
            self._add(known[taken], direction[taken], reach[taken], end[taken, 0])
            self.bisect(new, COARSE)
            shortest = self._shortest()

    def _shortest(self) -> Floats:
        found = np.full(len(self.x), np.inf)
        np.minimum.at(found, self.owner, self.reach)
        return found

    def _add(self, owner: Ints, direction: Points, reach: Floats, end: Ints) -> None:
        self.owner = np.concatenate([self.owner, owner])
        self.direction = np.concatenate([self.direction, direction])
        self.reach = np.concatenate([self.reach, reach])
        self.end = np.concatenate([self.end, end])
        self.normal = np.concatenate([self.normal, np.zeros_like(direction)])
        self.angle = np.concatenate([self.angle, np.full(len(owner), FIRST_ANGLE)])
        self.still = np.concatenate([self.still, np.zeros(len(owner), np.int64)])

    # ------------------------------------------------------------------ shortening them

    def compete(self, able: Bools) -> None:
        """Steps for the shortest rays of able records that still move, the longer half left behind after every few."""
        several = np.clip(self.left // max(PER_RAY, PER_INPUT * self.x.shape[1]), 1, WAVE)
        live = self._shortest_few(np.flatnonzero(able[self.owner] & (self.still < PATIENCE)), several)
        self.bisect(live, PRECISION)
        while len(live):
            for _ in range(STEPS_BEFORE_HALVING):
                live = live[self.still[live] < PATIENCE]
                live = self.affordable(live, self.probes + len(LADDER) + BISECTION)
                self.step(live)
            count = np.bincount(self.owner[live], minlength=len(self.x))
            live = self._shortest_few(live, np.maximum((count + 1) // 2, 1))

    def _shortest_few(self, rays: Ints, several: Ints) -> Ints:
        """Of each record's rays among these, as many as it is allowed."""
        order = rays[np.lexsort((rays, self.reach[rays], self.owner[rays]))]
        whose = self.owner[order]
        count = np.bincount(whose, minlength=len(self.x))
        rank = np.arange(len(order)) - (np.cumsum(count) - count)[whose]
        return np.sort(order[rank < several[whose]])

    def step(self, rays: Ints) -> None:
        """One estimate of the normal, one turn towards it."""
        directions = self._directions()
        if len(rays) == 0:
            return
        before = self.reach[rays].copy()
        self._probe(rays, directions)
        across = _across(self.normal[rays], self.direction[rays])
        angles = np.minimum(self.angle[rays, None] * LADDER, WIDEST)
        turned = _turned(self.direction[rays], across, angles)
        past, end = self.ask(self.owner[rays], self.x[self.owner[rays], None] + before[:, None, None] * turned)
        largest = np.where(past, angles, 0.0).max(axis=1)
        hit = np.flatnonzero(largest > 0)
        self.angle[rays] = np.where(largest > 0, np.clip(largest, 1e-3, 1.0), self.angle[rays] / 4)
        self._turn(rays[hit], across[hit], largest[hit], end[hit, past[hit].cumsum(axis=1).argmax(axis=1)])
        gained = 1 - self.reach[rays] / before
        self.still[rays] = np.where(gained < GAIN, self.still[rays] + 1, 0)

    def _directions(self) -> Points:
        """Orthonormal directions, as many as there are inputs or as are asked for; then another such set."""
        width = self.x.shape[1]
        sets = [
            np.linalg.qr(self.rng.standard_normal((width, min(width, self.probes - first))))[0].T
            for first in range(0, self.probes, width)
        ]
        return np.concatenate(sets).astype(np.float32)

    def _probe(self, rays: Ints, directions: Points) -> None:
        """Adds to the normal what the labels around the rays' ends tell of it."""
        ray, radius = self.direction[rays], (RADIUS * self.reach[rays]).astype(np.float32)
        across = directions[None] - (ray @ directions.T)[:, :, None] * ray[:, None]
        ends = self.at(rays, self.reach[rays])
        past, _ = self.ask(self.owner[rays], ends[:, None] + radius[:, None, None] * across)
        sign = np.where(past, 1.0, -1.0)
        mean = sign.mean(axis=1, keepdims=True)
        weight = np.where(np.abs(mean) < 1, sign - mean, sign).astype(np.float32)
        self.normal[rays] = FADING * self.normal[rays] + weight @ directions / len(directions)

    def _turn(self, rays: Ints, across: Points, largest: Floats, end: Ints) -> None:
        """Turns rays by half of the angle that led past the boundary, or, where that does not, by all of it."""
        if len(rays) == 0:
            return
        half, whole = (_turned(self.direction[rays], across, (share * largest)[:, None])[:, 0] for share in (0.5, 1.0))
        reach = self.reach[rays]
        past, ends = self.ask(self.owner[rays], (self.x[self.owner[rays]] + reach[:, None] * half)[:, None])
        self.direction[rays] = np.where(past, half, whole)
        self.end[rays] = np.where(past[:, 0], ends[:, 0], end)
        # A flat boundary lies at least this far out on the new ray.
        self.bisect(rays, PRECISION, np.cos(largest) * (1 - 2 * PRECISION))

    def bisect(self, rays: Ints, precision: float, guess: Floats | None = None) -> None:
        """Brings the reach down to where the label changes. `guess`: a share of it that may still lie inside."""
        high, low = self.reach[rays].copy(), np.zeros(len(rays))
        if guess is not None:
            low = self._inside(rays, high, guess)
        going = np.arange(len(rays))
        while True:
            going = going[high[going] - low[going] > precision * high[going]]
            going = going[np.isin(rays[going], self.affordable(rays[going], 1))]
            if len(going) == 0:
                break
            middle = (high[going] + low[going]) / 2
            past, end = self.ask(self.owner[rays[going]], self.at(rays[going], middle)[:, None])
            high[going] = np.where(past[:, 0], middle, high[going])
            low[going] = np.where(past[:, 0], low[going], middle)
            self.end[rays[going]] = np.where(past[:, 0], end[:, 0], self.end[rays[going]])
        self.reach[rays] = high

    def _inside(self, rays: Ints, high: Floats, guess: Floats) -> Floats:
        """Where a bisection may begin: at the guess if that still lies inside, otherwise at the record."""
        low = np.zeros(len(rays))
        able = np.flatnonzero(np.isin(rays, self.affordable(rays, 1)))
        asked = high[able] * guess[able]
        past, end = self.ask(self.owner[rays[able]], self.at(rays[able], asked)[:, None])
        high[able] = np.where(past[:, 0], asked, high[able])
        low[able] = np.where(past[:, 0], 0.0, asked)
        self.end[rays[able]] = np.where(past[:, 0], end[:, 0], self.end[rays[able]])
        return low

    def best(self) -> Rays:
        """The shortest ray of each record, its reach measured to the very point that was asked about."""
        found = Rays.none(*self.x.shape)
        found.queries[:] = self.spent
        order = np.lexsort((np.arange(len(self.owner)), self.reach, self.owner))
        whose, first = np.unique(self.owner[order], return_index=True)
        rays = order[first]
        ends = self.at(rays, self.reach[rays])
        way = (np.clip(ends, *self.box) if self.box else ends).astype(np.float64) - self.x[whose]
        found.reach[whose] = np.linalg.norm(way, axis=1)
        found.direction[whose] = way / np.maximum(found.reach[whose], 1e-30)[:, None]
        found.label[whose] = self.end[rays]
        return found


def _across(normal: Points, ray: Points) -> Points:
    """The unit vector across the ray towards the normal."""
    rest = normal - np.sum(normal * ray, axis=1, keepdims=True) * ray
    return np.asarray(rest / np.maximum(np.linalg.norm(rest, axis=1, keepdims=True), 1e-30), np.float32)


def _turned(ray: Points, across: Points, angles: Floats) -> Points:
    """Each ray, turned by each of its angles."""
    turned = np.cos(angles)[:, :, None] * ray[:, None] + np.sin(angles)[:, :, None] * across[:, None]
    return np.asarray(turned / np.linalg.norm(turned, axis=2, keepdims=True), np.float32)


# ------------------------------------------------------------------ starts


def nearest_of_each_label(x: Points, pool: Points, label: Ints, classes: int) -> tuple[Floats, Ints]:
    """For each record and label the squared distance to the nearest record of the pool with that label (infinite: none
    has it), and which one it is."""
    squared = np.sum(x.astype(np.float64) ** 2, axis=1)[:, None] + np.sum(pool.astype(np.float64) ** 2, axis=1)
    squared -= 2 * (x @ pool.T)
    distance, which = np.full((len(x), classes), np.inf), np.zeros((len(x), classes), np.int64)
    for k in np.unique(label[label >= 0]):
        mine = np.flatnonzero(label == k)
        nearest = squared[:, mine].argmin(axis=1)
        which[:, k] = mine[nearest]
        distance[:, k] = squared[np.arange(len(x)), which[:, k]]
    return distance, which


def starts_among(pool: Points, distance: Floats, which: Ints, allowed: Bools, many: int) -> Points:
    """For each record up to `many` records of the pool with allowed labels, each another label, the nearest first."""
    distance = np.where(allowed, distance, np.inf)
    chosen = np.argsort(distance, axis=1, kind="stable")[:, :many]
    points = pool[np.take_along_axis(which, chosen, axis=1)].astype(np.float32)
    points[~np.isfinite(np.take_along_axis(distance, chosen, axis=1))] = np.nan
    return points


def any_starts(pool: Points, label: Ints, allowed: Bools, many: int, seed: int) -> Points:
    """For each record up to `many` records of the pool with allowed labels, in an order drawn once for all records."""
    order = np.random.default_rng(seed).permutation(len(pool))
    fits = allowed[:, label[order]] & (label[order] >= 0)
    points = np.full((len(allowed), many, pool.shape[1]), np.nan, np.float32)
    rank = np.cumsum(fits, axis=1) - 1
    record, place = np.nonzero(fits & (rank < many))
    points[record, rank[record, place]] = pool[order[place]]
    return points
