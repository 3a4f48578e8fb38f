"""Pictures are handed to a model as it takes them: with the channels last where it can, else as they came."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedaudit
from fedaudit.adversary.signals import ghost, matched, unmix
from fedaudit.learn.tasks import loss_of_records
from fedaudit.results.document import load


class ByView(nn.Module):
    """Flattened by `view`, as in Flower's quickstart: that takes one layout only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 6, 3), nn.Linear(6 * 12 * 12, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.conv(x))
        return torch.as_tensor(self.head(h.view(len(h), -1)))


class ByReshape(ByView):
    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(torch.relu(self.conv(x)).flatten(1)))


def world(kind: type[nn.Module]) -> tuple[nn.Module, Tensor, Tensor, dict[str, Tensor]]:
    torch.manual_seed(0)
    module = kind()
    x, y = torch.randn(40, 3, 14, 14), torch.arange(40) % 4
    return module, x, y, {name: torch.randn(1, *p.shape) for name, p in module.named_parameters()}


def losses(out: Tensor, y: Tensor) -> Tensor:
    return loss_of_records(out, y, 4)


def test_a_model_that_flattens_by_view_has_the_same_signals() -> None:
    found = []
    for kind in (ByView, ByReshape):
        module, x, y, updates = world(kind)
        plain = ghost.statistics(module, losses, x, y, updates)
        filtered = matched.statistics(matched.prepare(module, losses, x, y, torch.arange(40), 0.1), module, updates)
        setup = unmix.prepare(module, losses, x, y, damping=1.0, ridge=0.1, sketch=80)
        mixed = unmix.unmix(setup, module, {name: u[0] for name, u in updates.items()})
        found.append((plain.norm2, plain.inner, filtered.inner, mixed.score))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_the_channels_come_last_where_the_model_takes_them_so() -> None:
    for kind, last in ((ByView, False), (ByReshape, True)):
        module, x, _, _ = world(kind)
        with ghost.evaluating(module):
            _, given = ghost.examined(module, ghost.trained_layers(module), x)
        assert given.is_contiguous(memory_format=torch.channels_last) == last


def test_such_a_model_is_audited(tmp_path: Path) -> None:
    module, x, y, _ = world(ByView)
    x, y = x.repeat(8, 1, 1, 1) + 0.1 * torch.randn(320, 3, 14, 14), y.repeat(8)
    members, game = fedaudit.set_aside(x.numpy(), y.numpy())
    with fedaudit.record(module, game, out=tmp_path, rounds=2, vantages=["client"]) as audit:
        audit.observe(0, module.state_dict())
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for number in (1, 2):
            loss = F.cross_entropy(module(torch.from_numpy(members.x)), torch.from_numpy(np.asarray(members.y)))
            torch.autograd.backward(loss)
            optimizer.step()
            audit.observe(number, module.state_dict())
    document = load(tmp_path / "results.json")
    assert "matched-filter" in {result.attack for result in document.results}
    assert not document.degraded
