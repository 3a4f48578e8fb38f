"""Signals of an adversary who may ask for labels: is the label right, and how far is the nearest other one.

`label-right` is one query a record. `boundary` is the distance to each of a few decision boundaries
(`boundary.search`); beside it, `boundary-direction` keeps where their points lie, from which the next round's search
starts, and `boundary-queries` what each record cost. All three are stored with a round, so that a search that was
interrupted goes on as if it had not been. `deepfool` gives the same distances to an adversary who holds the weights.

A distance of NaN: no boundary was found. Where the model's outputs are NaN there is no label: `label-right` is NaN, and
a distance minus infinity, which no attack takes for far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.signals.boundary import (
    Box,
    Labels,
    Points,
    Rays,
    any_starts,
    nearest_of_each_label,
    search,
    starts_among,
)
from fedaudit.adversary.vantage import View, largest
from fedaudit.errors import FedauditError
from fedaudit.types import Bools, Floats, Grant, Ints, Records, State, Stored

if TYPE_CHECKING:
    import torch

RIGHT, DISTANCE, DIRECTION, QUERIES, DEEPFOOL = (
    "label-right",
    "boundary",
    "boundary-direction",
    "boundary-queries",
    "deepfool",
)
NEEDS: dict[str, frozenset[Grant]] = {
    RIGHT: frozenset({Grant.LABELS}),
    DISTANCE: frozenset({Grant.LABELS}),
    QUERIES: frozenset({Grant.LABELS}),
    DEEPFOOL: frozenset({Grant.WEIGHTS}),
}
# Signals that come out of one pass, and what they need.
PASSES = tuple({name: NEEDS[name] for name in names} for names in ((RIGHT,), (DISTANCE, QUERIES), (DEEPFOOL,)))
NOT_ASKED = -2  # instead of a label; -1: the model has none
LABELLED_STARTS, ANY_STARTS = 8, 24  # per record: the nearest of as many labels, and others

Targets = int | Literal["all"]


@dataclass(frozen=True)
class SearchOptions:
    """queries: all that a record may cost, over all targets and rounds, planned or not. targets: how many nearest
    boundaries, or `all`: one for each class. own: how many records of its own the adversary learns from. bounds: of
    every input that is asked about. rounds: among how many the queries are shared. seconds: how long all of it was said
    to take."""

    queries: int = 6000
    targets: Targets = 3
    _: KW_ONLY
    own: int = 500
    bounds: Box | None = None
    rounds: int = 1
    seconds: float = 0.0


class Searching:
    """The search of one sight. `own`: rows of the adversary's own, which others are searched from; `asked`: rows that
    are searched at all. Measuring changes nothing; what the next round starts from is taken in by `remember`."""

    def __init__(self, options: SearchOptions, own: Bools | None = None, asked: Bools | None = None):
        self.options, self.own, self.asked = options, own, asked
        self.direction: NDArray[Any] | None = None  # rows x (targets x inputs)
        self.reach: Floats | None = None  # rows x targets
        self.spent: Floats | None = None  # labels that each row has cost

    # ------------------------------------------------------------------ one round

    def measure(
        self, names: Iterable[str], view: View, rows: Records, known: Bools, rng: np.random.Generator
    ) -> dict[str, Floats]:
        wanted, found = set(names), dict[str, Any]()
        check_task(view.classes, rows, between=not wanted <= {RIGHT})
        if wanted & {RIGHT, DISTANCE, QUERIES}:
            able = (self._left(len(rows)) > 0) | (RIGHT in wanted)
            label = np.full(len(rows), NOT_ASKED)
            label[able] = _answers(view)(rows.x if able.all() else rows.x[able])
            if able.all():
                found[RIGHT] = np.where(label < 0, np.nan, np.asarray(label == rows.y, np.float64))
            if wanted & {DISTANCE, QUERIES}:
                found |= self._search(view, rows, label, int(rng.integers(2**63)))
        if DEEPFOOL in wanted:
            from fedaudit.adversary.signals.searching import distances

            found[DEEPFOOL] = np.full((len(rows), width(self.options.targets, view.classes)), np.nan)
            mine = self._asked(len(rows))
            found[DEEPFOOL][mine] = distances(view.task, view.weights, rows.take(mine), self.options.targets)
        return found

    def _asked(self, n: int) -> Bools:
        return np.ones(n, bool) if self.asked is None else self.asked

    def _left(self, n: int) -> Ints:
        """Labels that each row may still cost: fewer than a round's share if there are more rounds than planned."""
        return np.asarray(self.options.queries - (np.zeros(n) if self.spent is None else self.spent), np.int64)

    def _search(self, view: View, rows: Records, label: Ints, seed: int) -> dict[str, Any]:
        x = rows.x.reshape(len(rows), -1).astype(np.float32)
        pool = np.flatnonzero(self._asked(len(rows)) if self.own is None else self.own)
        left = self._left(len(rows))
        able = self._asked(len(rows)) & (left > 0)
        asked = np.flatnonzero(able & (label == rows.y))
        budget = np.maximum(np.minimum(self.options.queries // self.options.rounds, left[asked]) - 1, 0)
        labels = _flat(_answers(view), rows.x.shape[1:])
        whom = _Whom(
            labels=labels,
            x=x[asked],
            y=rows.y[asked],
            classes=view.classes,
            pool=x[pool],
            pool_label=label[pool],
            options=self.options,
            seed=seed,
        )
        warm = self._warm(asked, x.shape[1], view.classes)
        rays = whom.each_class(warm, budget) if self.options.targets == "all" else whom.nearest(warm, budget)
        many = width(self.options.targets, view.classes)
        distance, queries = np.full((len(rows), many), np.nan), np.asarray(left > 0, np.int64)
        direction = np.zeros((len(rows), many, x.shape[1]), np.float16)
        distance[able & (label != rows.y)] = 0.0  # on the wrong side already
        distance[able & (label < 0)] = -np.inf  # not far, which is what NaN means
        distance[asked] = np.stack([one.reach for one in rays], axis=1)
        direction[asked] = np.stack([one.direction for one in rays], axis=1)
        queries[asked] += np.sum([one.queries for one in rays], axis=0)
        found = {QUERIES: queries.astype(np.float64)}
        if np.array_equal(able, self._asked(len(rows))) or not np.isnan(distance).all():
            return found | {DISTANCE: distance, DIRECTION: direction.reshape(len(rows), -1)}
        return found  # for want of labels, no distance was observed

    def _warm(self, asked: Ints, inputs: int, classes: int) -> list[Rays]:
        """The last round's rays of these rows, one for each target."""
        many = width(self.options.targets, classes)
        if self.direction is None or self.reach is None:
            return [Rays.none(len(asked), inputs)] * many
        direction = self.direction[asked].reshape(len(asked), many, inputs).astype(np.float32)
        none = Rays.none(len(asked), inputs)
        return [replace(none, direction=direction[:, i], reach=self.reach[asked, i]) for i in range(many)]

    # ------------------------------------------------------------------ between two rounds

    def remember(self, values: Mapping[str, NDArray[Any]]) -> None:
        """What was measured, live or stored, is what the next round starts from."""
        if QUERIES in values:
            self.spent = np.nan_to_num(values[QUERIES]) + (0 if self.spent is None else self.spent)
        if DIRECTION in values:
            self.direction = values[DIRECTION].astype(np.float16)
            self.reach = values[DISTANCE].astype(np.float64)

    def state(self) -> Stored:
        kept = {"direction": self.direction, "reach": self.reach, "spent": self.spent}
        return {name: of for name, of in kept.items() if of is not None}

    def restore(self, state: Stored) -> None:
        self.direction, self.reach, self.spent = (state.get(name) for name in ("direction", "reach", "spent"))


@dataclass(frozen=True, kw_only=True)
class _Whom:
    """The records that are searched, whose label is right; and the adversary's own, which give the starts."""

    labels: Labels
    x: Points
    y: Ints
    classes: int
    pool: Points
    pool_label: Ints
    options: SearchOptions
    seed: int

    def nearest(self, warm: list[Rays], budget: Ints) -> list[Rays]:
        """The nearest boundaries, the nearest first. After each, its label no longer counts as another one."""
        many = len(warm)
        shares = [budget] if many == 1 else [budget // 2] + [budget // 2 // (many - 1)] * (many - 1)
        allowed = np.ones((len(self.x), self.classes), bool)
        allowed[np.arange(len(self.x)), self.y] = False
        found: list[Rays] = []
        for i, share in enumerate(shares):
            others = [one for j, one in enumerate(warm) if j != i]
            found.append(self._one(allowed, [*found[-1:], *others], warm[i], share))
            seen = np.flatnonzero(found[-1].label >= 0)
            allowed[seen, found[-1].label[seen]] = False
        return _in_order(found)

    def each_class(self, warm: list[Rays], budget: Ints) -> list[Rays]:
        """One boundary for each class. That of the record's own class has no distance."""
        found = []
        for k in range(self.classes):
            allowed = np.zeros((len(self.x), self.classes), bool)
            allowed[self.y != k, k] = True
            found.append(self._one(allowed, [], warm[k], budget // max(self.classes - 1, 1)))
        return found

    @cached_property
    def _nearest(self) -> tuple[Floats, Ints]:
        return nearest_of_each_label(self.x, self.pool, self.pool_label, self.classes)

    def _one(self, allowed: Bools, rays: list[Rays], warm: Rays, budget: Ints) -> Rays:
        """Starts are the ends of other rays, the nearest record with each label, and records with any."""
        distance, which = self._nearest

        def starts(part: slice) -> Points:
            ends = [
                (self.x[part] + one.reach[part, None] * one.direction[part]).astype(np.float32)[:, None] for one in rays
            ]
            fit = allowed[part]
            labelled = starts_among(self.pool, distance[part], which[part], fit, LABELLED_STARTS)
            more = any_starts(self.pool, self.pool_label, fit, ANY_STARTS, self.seed % 2**32)
            return np.concatenate([*ends, labelled, more], axis=1)

        return search(self.labels, self.x, allowed, starts, warm, budget, self.seed, self.options.bounds)


def _in_order(rays: list[Rays]) -> list[Rays]:
    """The rays of each record by their reach, the shortest first; those that found nothing last."""
    order = np.argsort(np.stack([one.reach for one in rays]), axis=0, kind="stable")
    stacked = {name: np.stack([getattr(one, name) for one in rays]) for name in ("direction", "reach", "label")}
    columns = np.arange(order.shape[1])
    return [
        Rays(**{name: of[place, columns] for name, of in stacked.items()}, queries=one.queries)
        for place, one in zip(order, rays, strict=True)
    ]


def width(targets: Targets, classes: int) -> int:
    """How many distances a record has."""
    return classes if targets == "all" else min(targets, max(classes - 1, 1))


def _answers(view: View) -> Callable[[NDArray[Any]], Ints]:
    """Labels, from whatever the view answers with."""

    def labels(x: NDArray[Any]) -> Ints:
        answers = view.ask(x)
        return np.asarray(answers if answers.ndim == 1 else largest(answers), np.int64)

    return labels


def _flat(labels: Callable[[NDArray[Any]], Ints], shape: tuple[int, ...]) -> Labels:
    return lambda x: labels(x.reshape(-1, *shape))


def check_task(classes: int, rows: Records, between: bool) -> None:
    """Refuses what has no single label and, if points `between` records are asked about, inputs without any."""
    if not classes or rows.y.ndim != 1:
        raise FedauditError(
            "label-only",
            "labels are asked for, and the records of this task do not have one label each",
            "Leave out gap, gap-rounds, boundary and tear.",
        )
    if between and rows.x.dtype.kind != "f":
        raise FedauditError(
            "label-only", "there are no points between two tokens to ask about", "Leave out boundary and tear."
        )


def inputs_are(x: NDArray[Any]) -> Literal["binary", "partly binary", "continuous"]:
    """Do the inputs take two values only, 0 and 1 (one-hot codes do)? All of them, some, or none."""
    flat = x.reshape(len(x), -1)
    binary = ((flat == 0) | (flat == 1)).all(axis=0)
    return (
        "binary" if binary.all() else "partly binary" if binary.any() and (flat[:, binary] == 1).any() else "continuous"
    )


# ---------------------- with the weights in hand: DeepFool, batched over records

# Moosavi-Dezfooli, Fawzi and Frossard, "DeepFool: a simple and accurate method to fool deep neural networks", 2016.
#
# 1. The outputs are taken as linear around the current point. For each class k: the gap to the record's own class over
#    the norm of the difference of the two gradients is the distance to the boundary between them.
# 2. The classes with the smallest such distance at the record itself are the targets.
# 3. For each target, go to that boundary, a little past it (`OVERSHOOT`), and repeat until the target's output is the
#    larger of the two, or `STEPS` times.
# 4. Bisect between the record and the point that was reached.
#
# Deviation: the paper's untargeted steps change the target on the way; here each target keeps its own, and the distance
# to it is that to the boundary between the two classes, whether or not a third one is larger still.


OVERSHOOT, STEPS, BISECTIONS = 0.02, 50, 12
AT_ONCE = 2**24  # numbers in the gradients of one batch


def distances(task: Any, state: State, rows: Records, targets: int | Literal["all"]) -> Floats:
    """Records x targets, the nearest first, or (all) one for each class. A record that is labelled wrongly has
    0, one without a label (the outputs are NaN) minus infinity."""
    import torch

    if not hasattr(task, "fresh"):
        what = "a model that is given without torch offers no gradients"
        raise FedauditError("no-gradients", what, "Take tear-deepfool out of audit.attacks; tear needs labels alone.")
    module = task.fresh(state).eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    x, y = torch.from_numpy(np.ascontiguousarray(rows.x)), torch.from_numpy(np.asarray(rows.y, np.int64))
    chunk = max(1, AT_ONCE // max(task.classes * x[0].numel(), 1)) if len(x) else 1
    many = task.classes if targets == "all" else min(targets, max(task.classes - 1, 1))
    parts = [_distances(module, x[i : i + chunk], y[i : i + chunk], many) for i in range(0, len(x), chunk)]
    return np.concatenate(parts) if parts else np.zeros((0, many))


def _distances(module: Any, x: torch.Tensor, y: torch.Tensor, many: int) -> Floats:
    import torch

    outputs, classes = _linear(module, x)
    row = torch.arange(len(x))
    gap = outputs[row, y][:, None] - outputs
    slope = (classes[row, y][:, None] - classes).flatten(2).norm(dim=2)
    near = torch.where(torch.nn.functional.one_hot(y, outputs.shape[1]).bool(), torch.inf, gap / slope.clamp(min=1e-12))
    every_class = many == outputs.shape[1]
    chosen = torch.arange(many).repeat(len(x), 1) if every_class else near.argsort(dim=1, stable=True)[:, :many]
    found = torch.stack([_targeted(module, x, y, chosen[:, i]) for i in range(many)], dim=1)
    if every_class:
        found[row, y] = torch.nan
    else:
        found = found.sort(dim=1).values
    found[outputs.argmax(dim=1) != y] = 0.0
    found[outputs.isnan().any(dim=1)] = -torch.inf  # no label
    return found.numpy()


def _targeted(module: Any, x: torch.Tensor, y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The distance to the boundary between the own class and the target; NaN where it was not reached."""
    import torch

    moved, row = x.clone(), torch.arange(len(x))
    going = row[target != y]
    for _ in range(STEPS):
        if len(going) == 0:
            break
        point = moved[going].requires_grad_(True)
        outputs = module(point)
        at = torch.arange(len(going))
        gap = outputs[at, y[going]] - outputs[at, target[going]]
        (slope,) = torch.autograd.grad(gap.sum(), point)
        still = gap.detach() >= 0
        size = slope.flatten(1).square().sum(dim=1).clamp(min=1e-20)
        step = (1 + OVERSHOOT) * (gap.detach() + 1e-6) / size
        shape = (-1, *[1] * (x.dim() - 1))
        moved[going[still]] -= (step.view(shape) * slope)[still]
        going = going[still]
    low, high = torch.zeros(len(x)), torch.ones(len(x))
    reached = torch.ones(len(x), dtype=torch.bool)
    reached[going] = False
    with torch.inference_mode():
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            outputs = module(x + middle.view(-1, *[1] * (x.dim() - 1)) * (moved - x))
            past = outputs[row, target] >= outputs[row, y]
            low, high = torch.where(past, low, middle), torch.where(past, middle, high)
    distance = high.double() * (moved - x).flatten(1).double().norm(dim=1)
    return torch.where(reached & (target != y), distance, torch.nan)


def _linear(module: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs, and the gradient of each by the inputs: records x classes x inputs."""
    import torch

    point = x.clone().requires_grad_(True)
    outputs = module(point)
    one_each = torch.eye(outputs.shape[1])[:, None].expand(-1, len(x), -1)
    (slopes,) = torch.autograd.grad(outputs, point, one_each, is_grads_batched=True)
    return outputs.detach(), slopes.transpose(0, 1)
