"""Distances to the decision boundary for somebody who holds the weights: DeepFool, batched over records.

Moosavi-Dezfooli, Fawzi and Frossard, "DeepFool: a simple and accurate method to fool deep neural networks", 2016.

1. The outputs are taken as linear around the current point. For each class k: the gap to the record's own class over
   the norm of the difference of the two gradients is the distance to the boundary between them.
2. The classes with the smallest such distance at the record itself are the targets.
3. For each target, go to that boundary, a little past it (`OVERSHOOT`), and repeat until the target's output is the
   larger of the two, or `STEPS` times.
4. Bisect between the record and the point that was reached.

Deviation: the paper's untargeted steps change the target on the way; here each target keeps its own, and the distance
to it is that to the boundary between the two classes, whether or not a third one is larger still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedaudit.errors import FedauditError
from fedaudit.types import Floats, Records, State

if TYPE_CHECKING:
    import torch

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
