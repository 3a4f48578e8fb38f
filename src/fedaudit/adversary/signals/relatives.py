"""Relatives of the matched filter, as pure functions on the same things.

loss             Of a record under the model received: what round-gain compares with the loss under the model sent.
projection       Projection residuals (ProjRes, IEEE S&P 2026): how far a record's hidden vector lies from the row space
                 of the layer's update. Only its abstract was at hand, so this is our reading of it.
inverse_hessian  The inverse-Hessian attack on the final model (Suri et al. 2024), read from the abstract as well: the
                 curvature-weighted size of the record's gradient, with K-FAC's A (x) B of known non-members as the
                 Hessian, and the record's loss.
"""

import numpy as np
import torch
from torch import Tensor, nn

from fedaudit.adversary.signals import ghost, matched
from fedaudit.adversary.signals.outputs import from_answers, parts
from fedaudit.types import Floats, Records, State, Task


def loss(task: Task, state: State, rows: Records) -> Floats:
    found = [
        from_answers(task.outputs(state, rows.x[part]), rows.y[part], ["loss"], task.classes)["loss"]
        for part in parts(rows.y, task.classes)
    ]
    return np.concatenate(found)


def projection(module: nn.Module, x: Tensor, update: Tensor, layer: str, cut: float = 0.01) -> Tensor:
    """-|h - V V'h| / |h|, the mean over a record's positions, at the model received.

    `update`: of the layer's weight, out x width. V: its right singular vectors whose singular values are larger than
    `cut` times the largest. A linear layer.
    """
    _, values, right = torch.linalg.svd(update.double(), full_matrices=False)
    v = right[values > cut * values[0]]
    hidden: list[Tensor] = []

    def keep(_layer: nn.Module, args: tuple[Tensor, ...]) -> None:
        hidden.append(args[0].detach())

    handle = module.get_submodule(layer).register_forward_pre_hook(keep)
    found = []
    try:
        with ghost.evaluating(module), torch.no_grad():
            for part in torch.split(x, ghost.ROWS):
                hidden.clear()
                module(part)
                h = torch.cat([one.reshape(len(part), -1, update.shape[1]) for one in hidden], dim=1).double()
                outside = (h - (h @ v.T) @ v).norm(dim=2)
                found.append(-(outside / h.norm(dim=2).clamp_min(torch.finfo(h.dtype).tiny)).mean(1))
    finally:
        handle.remove()
    return torch.cat(found)


def inverse_hessian(prepared: matched.MatchedSetup, module: nn.Module) -> Tensor:
    """-(standardised loss + standardised <g, H^-1 g>) at the final model: both are small for a member."""
    nothing = {name: torch.zeros(1, *p.shape, dtype=p.dtype) for name, p in module.named_parameters()}
    size = matched.statistics(prepared, module, nothing).norm2.sum(1)
    rows = ghost.rows_at_once(prepared.x, prepared.y)
    parts = zip(torch.split(prepared.x, rows), torch.split(prepared.y, rows), strict=True)
    with ghost.evaluating(module), torch.no_grad():
        loss = torch.cat([prepared.losses(module(x), y).double() for x, y in parts])
    return -matched.standardised(torch.stack([loss, size], dim=1), prepared.fitting).sum(1)
