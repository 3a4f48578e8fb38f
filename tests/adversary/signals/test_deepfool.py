"""DeepFool: exact where the model is linear, never below the exact distance elsewhere, 0 where the label is wrong."""

import numpy as np
import torch
from torch import nn

from fedaudit.adversary.signals.searching import distances
from fedaudit.types import Floats, Records, State
from tests.adversary.signals.nets import Net, trained


class Task:
    """A network of the tests, as a task."""

    def __init__(self, net: Net):
        self.net, self.classes = net, len(net.layers[-1][1])

    def fresh(self, state: State) -> nn.Module:
        parts: list[nn.Module] = []
        for weight, bias in self.net.layers:
            layer = nn.Linear(weight.shape[1], weight.shape[0]).double()
            layer.weight.data, layer.bias.data = torch.from_numpy(weight), torch.from_numpy(bias)
            parts += [layer, nn.ReLU()]
        return nn.Sequential(*parts[:-1])


def found(net: Net, x: np.ndarray, y: np.ndarray, targets: int | str) -> Floats:
    rows = Records(x.astype(np.float64), y, np.array([str(i) for i in range(len(x))]))
    return distances(Task(net), {}, rows, "all" if targets == "all" else int(targets))


def test_linear_models_exactly_and_each_class_in_its_column() -> None:
    rng = np.random.default_rng(0)
    net = Net([(rng.normal(size=(4, 7)), rng.normal(size=4))])
    x = rng.normal(size=(30, 7))
    y = net.labels(x)
    weight, outputs = net.layers[0][0], net.outputs(x)
    exact = np.full((30, 4), np.nan)
    for i, k in np.ndindex(30, 4):
        if k != y[i]:
            exact[i, k] = (outputs[i, y[i]] - outputs[i, k]) / np.linalg.norm(weight[y[i]] - weight[k])
    assert np.allclose(found(net, x, y, "all"), exact, rtol=2e-3, equal_nan=True)
    assert np.allclose(found(net, x, y, 2), np.sort(exact, axis=1)[:, :2], rtol=2e-3)


def test_never_below_the_exact_distance_and_mostly_near_it() -> None:
    net, data = trained(5, (8,), 3, seed=11)
    x = data[:40]
    nearest = found(net, x, net.labels(x), 2)[:, 0]
    exact = net.distance(x, np.full(len(x), np.inf))
    reached = np.isfinite(nearest)  # where no unit is active the slope is 0, and DeepFool stands still
    assert reached.mean() > 0.85
    assert (nearest >= exact * (1 - 1e-6))[reached].all()
    assert np.median((nearest / exact)[reached]) < 1.1


def test_a_record_on_the_wrong_side_has_no_distance_to_go() -> None:
    net, data = trained(4, (6,), 3, seed=12)
    x = data[:20]
    wrong = (net.labels(x) + 1) % 3
    assert (found(net, x, wrong, 2) == 0).all()
