"""The loss of a record, against its definition: one record and one position at a time."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from fedaudit.learn.tasks import loss_of_batch, loss_of_records


def slowly(z: torch.Tensor, y: torch.Tensor, soft: bool) -> list[float]:
    log_p = log_softmax(z.numpy(), axis=-1).reshape(len(z), -1, z.shape[-1])
    labels = y.numpy().reshape(len(z), log_p.shape[1], -1)
    return [
        sum(-(labels[i, s] @ log_p[i, s]) if soft else -log_p[i, s, labels[i, s, 0]] for s in range(log_p.shape[1]))
        for i in range(len(z))
    ]


@pytest.mark.parametrize("positions", [(), (6,)])
@pytest.mark.parametrize("soft", [False, True])
def test_cross_entropy_is_summed_over_positions_and_averaged_over_records(
    positions: tuple[int, ...], soft: bool
) -> None:
    rng = np.random.default_rng(0)
    z = torch.from_numpy(rng.normal(size=(9, *positions, 4)))
    y = torch.from_numpy(rng.dirichlet(np.ones(4), (9, *positions)) if soft else rng.integers(0, 4, (9, *positions)))
    expected = slowly(z, y, soft)
    assert loss_of_records(z, y, 4).tolist() == pytest.approx(expected, rel=1e-12)
    assert float(loss_of_batch(z, y, 4)) == pytest.approx(np.mean(expected), rel=1e-12)
    assert loss_of_records(z[:0], y[:0], 4).shape == (0,)


@pytest.mark.parametrize("shape", [(9,), (9, 1)])
def test_a_value_has_its_squared_error(shape: tuple[int, ...]) -> None:
    z, y = torch.randn(9), torch.randn(9)
    assert torch.equal(loss_of_records(z.reshape(shape), y, 0), (z - y) ** 2)
    assert float(loss_of_batch(z.reshape(shape), y, 0)) == pytest.approx(float(((z - y) ** 2).mean()), rel=1e-6)
