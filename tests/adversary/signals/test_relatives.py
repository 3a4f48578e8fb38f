"""The relatives of the matched filter against what they are defined as, written out for one record at a time."""

import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.adversary.signals import ghost, matched
from fedaudit.learn.tasks import Training, build_task
from fedaudit.types import Records
from tests.adversary.signals.test_ghost import Then, losses
from tests.adversary.signals.test_matched import DAMPING, slow_inverse


def test_the_loss_under_a_model_received_is_that_of_the_model() -> None:
    rng = np.random.default_rng(0)
    rows = Records(rng.random((37, 5), np.float32), rng.integers(0, 3, 37), np.arange(37).astype(np.str_))
    task = build_task("mlp", (5,), 3, {"hidden": (8,)})
    received = task.initial(0)
    sent = task.train(received, rows, Training("sgd", 0.5, 5, 37), rng).state

    def loss(state: dict[str, np.ndarray]) -> np.ndarray:
        with torch.no_grad():
            out = task.fresh(state)(torch.from_numpy(rows.x)).double()
        return nn.functional.cross_entropy(out, torch.from_numpy(rows.y), reduction="none").numpy()

    before, after = (matched.loss(task, state, rows) for state in (received, sent))
    assert before == pytest.approx(loss(dict(received)), abs=1e-6)
    assert after == pytest.approx(loss(dict(sent)), abs=1e-6)
    assert before.mean() > after.mean()


@pytest.mark.parametrize("shape", [(6,), (5, 6)])
def test_projection_is_zero_in_the_row_space_and_one_outside(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    module = Then(nn.Linear(6, 4)).double()
    x = torch.randn(13, *shape).double()
    module(x)
    update = torch.zeros(4, 6).double()
    update[0, :2] = torch.tensor([1.0, 1.0])
    update[1, :2] = torch.tensor([1.0, -1.0])  # the row space: the first two coordinates
    found = matched.projection(module, x, update, "layer")
    h = x.reshape(13, -1, 6)
    expected = -(h[..., 2:].norm(dim=2) / h.norm(dim=2)).mean(1)
    assert torch.allclose(found, expected, rtol=1e-9)
    weak = update.clone()
    weak[2, 2] = 1e-6  # below the cut
    assert torch.allclose(matched.projection(module, x, weak, "layer"), expected, rtol=1e-6)


def test_inverse_hessian_adds_loss_and_curvature_weighted_gradient() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 3)).double()
    x, y = torch.randn(31, 6).double(), torch.randint(0, 3, (31,))
    fitting = torch.arange(10, 31)
    prepared = matched.prepare(module, losses, x, y, fitting, DAMPING)
    h = torch.cat([x, torch.ones(31, 1)], dim=1)
    delta = torch.softmax(module(x), 1).detach() - nn.functional.one_hot(y, 3)
    right = slow_inverse(h[fitting].T @ h[fitting] / 21, DAMPING)
    left = slow_inverse(delta[fitting].T @ delta[fitting] / 21, DAMPING)
    gradients = [torch.cat([g["0.weight"], g["0.bias"][:, None]], dim=1) for g in ghost.naive(module, losses, x, y, ["0.weight", "0.bias"])]  # fmt: skip  # noqa: E501
    size = torch.stack([(left @ g @ right * g).sum() for g in gradients])
    loss = losses(module(x), y).detach()

    def z(values: torch.Tensor) -> torch.Tensor:
        return (values - values[fitting].mean()) / values[fitting].std()

    assert torch.allclose(matched.inverse_hessian(prepared, module), -(z(loss) + z(size)), rtol=1e-8)
