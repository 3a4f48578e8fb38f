"""Optimizers without the compiler: the same numbers as torch's own, and nothing of the compiler is loaded."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

from fedaudit.learn.tasks import SGD, Adam

Make = Callable[..., torch.optim.Optimizer]


@pytest.mark.parametrize(("ours", "torchs"), [(Adam, torch.optim.Adam), (SGD, torch.optim.SGD)])
def test_every_step_is_torchs_own(ours: Make, torchs: Make) -> None:
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    found = []
    for make in (ours, torchs):
        torch.manual_seed(1)
        model = nn.Linear(5, 3)
        optimizer = make(model.parameters(), lr=0.01, weight_decay=0.1)
        for batch in torch.split(x, 8):
            optimizer.zero_grad(set_to_none=True)
            model(batch).square().sum().backward()
            optimizer.step()
        found.append(model.weight.detach().clone())
    assert torch.equal(*found)


def test_training_does_not_load_the_compiler() -> None:
    program = (
        "import sys, torch; from fedaudit.learn.tasks import Adam; w = torch.ones(2, requires_grad=True);"
        "o = Adam([w]); w.sum().backward(); o.step(); o.zero_grad(); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
