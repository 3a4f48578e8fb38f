"""Small networks whose distance to the decision boundary is known exactly."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import nnls
from torch import nn

from fedaudit.adversary.signals.searching import DISTANCE, QUERIES, Searching, SearchOptions
from fedaudit.adversary.vantage import View
from fedaudit.types import Bools, Floats, Ints, Moment, Records, Vantage


@dataclass(frozen=True)
class Net:
    """ReLU layers given as pairs of weights and biases; the last is linear."""

    layers: list[tuple[Floats, Floats]]

    def outputs(self, x: np.ndarray) -> Floats:
        h = x.astype(np.float64)
        for weight, bias in self.layers[:-1]:
            h = np.maximum(h @ weight.T + bias, 0.0)
        weight, bias = self.layers[-1]
        return np.asarray(h @ weight.T + bias)

    def labels(self, x: np.ndarray) -> Ints:
        return np.asarray(self.outputs(x).argmax(axis=1))

    def regions(self) -> list[tuple[Floats, Floats, Floats, Floats]]:
        """For each pattern of active units: where it holds (a z <= b), and the outputs there (w z + c)."""
        sizes = [len(bias) for _, bias in self.layers[:-1]]
        found = []
        for pattern in itertools.product((0.0, 1.0), repeat=sum(sizes)):
            active = np.split(np.array(pattern), np.cumsum(sizes)[:-1])
            w, c = np.eye(self.layers[0][0].shape[1]), np.zeros(self.layers[0][0].shape[1])
            rows, ends = [], []
            for (weight, bias), on in zip(self.layers[:-1], active, strict=True):
                w, c = weight @ w, weight @ c + bias
                sign = np.where(on > 0, -1.0, 1.0)  # an active unit is not negative, an idle one not positive
                rows.append(sign[:, None] * w)
                ends.append(-sign * c)
                w, c = on[:, None] * w, on * c
            weight, bias = self.layers[-1]
            found.append((np.concatenate(rows), np.concatenate(ends), weight @ w, weight @ c + bias))
        return found

    def distance(self, x: np.ndarray, within: Floats) -> Floats:
        """For each record the distance to the nearest point where another class has the largest output; infinite where
        there is none nearer than `within`, which spares the regions that lie farther."""
        found = np.asarray(within, np.float64).copy()
        seen = np.zeros(len(x), bool)
        label, classes = self.labels(x), len(self.layers[-1][1])
        for (a, b, w, c), k in itertools.product(self.regions(), range(classes)):
            others = [j for j in range(classes) if j != k]
            rows, ends = np.concatenate([a, w[others] - w[k]]), np.concatenate([b, c[k] - c[others]])
            faces = (x @ rows.T - ends) / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)
            for i in np.flatnonzero((faces.max(axis=1) < found) & (label != k)):
                nearest = projection(rows, ends, x[i].astype(np.float64))
                seen[i] |= nearest <= found[i]
                found[i] = min(found[i], nearest)
        return np.where(seen, found, np.inf)


def projection(a: Floats, b: Floats, x: Floats) -> float:
    """The distance from x to the polyhedron a z <= b, by Lawson and Hanson's least-distance programme; infinite if it
    is empty."""
    h = a @ x - b  # g v >= h with g = -a, v = z - x
    if np.all(h <= 0):
        return 0.0
    e = np.vstack([-a.T, h])
    target = np.zeros(len(e))
    target[-1] = 1.0
    dual, residual = nnls(e, target)
    if residual < 1e-9:
        return np.inf
    rest = e @ dual - target
    return float(np.linalg.norm(rest[:-1] / rest[-1]))


def trained(inputs: int, hidden: tuple[int, ...], classes: int, seed: int) -> tuple[Net, np.ndarray]:
    """A network trained on clusters, several to a class; and records like those it was trained on."""
    nets, rows = rounds_of_training(inputs, hidden, classes, seed)
    return nets[-1], rows.x


def rounds_of_training(
    inputs: int, hidden: tuple[int, ...], classes: int, seed: int, rounds: int = 10
) -> tuple[list[Net], Records]:
    """The same network after each of some equal parts of its training; and the records."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 1.5, (3 * classes, inputs))
    which = rng.integers(0, len(centres), 600)
    x = (centres[which] + rng.normal(0, 0.7, (600, inputs))).astype(np.float32)
    y = torch.from_numpy(which % classes)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        widths = [inputs, *hidden, classes]
        linear = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    module = nn.Sequential(*[part for layer in linear for part in (layer, nn.ReLU())][:-1])
    optimiser = torch.optim.Adam(module.parameters(), 0.02)
    nets = []
    for _ in range(rounds):
        for _ in range(300 // rounds):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(torch.from_numpy(x)), y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        weights = [(layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()) for layer in linear]
        nets.append(Net([(weight.copy(), bias.copy()) for weight, bias in weights]))
    return nets, Records(x, y.numpy(), np.array([str(i) for i in range(len(x))]))


def seen(net: Net, round: int) -> View:
    """The network as somebody sees it who may ask for labels."""
    return View(
        moment=Moment(round), vantage=Vantage.LABEL_ONLY_CLIENT, model="global", party=None,
        classes=len(net.layers[-1][1]), _answer=net.labels, _held={},
    )  # fmt: skip


def distances_over_rounds(nets: list[Net], rows: Records, asked: Bools, own: Bools, queries: int) -> Iterator[Floats]:
    """The nearest distance of each record in each round, as an audit of so many rounds finds it with so many queries;
    NaN for records that are not asked about."""
    search = Searching(SearchOptions(queries, rounds=len(nets)), own, asked)
    for number, net in enumerate(nets, start=1):
        found = search.measure(
            [DISTANCE, QUERIES], seen(net, number), rows, np.zeros(len(rows), bool), np.random.default_rng(number)
        )
        search.remember(found)
        yield np.where(
            np.isnan(found[DISTANCE]).all(axis=1), np.nan, np.nan_to_num(found[DISTANCE], nan=np.inf).min(axis=1)
        )
