"""The label-only search: against exact distances, within its budget, and independent of everything but the record."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedaudit.adversary.signals import boundary, searching
from fedaudit.adversary.signals.boundary import Rays, any_starts, nearest_of_each_label, search, starts_among
from fedaudit.adversary.signals.searching import DISTANCE, Searching, SearchOptions, Targets
from fedaudit.types import Ints
from tests.adversary.signals.nets import Net, distances_over_rounds, rounds_of_training, seen, trained

DEFAULT = SearchOptions().queries


def look(
    net: Net, x: np.ndarray, pool: np.ndarray, budget: int, seed: int = 0, warm: Rays | None = None, **more: object
) -> Rays:
    classes = len(net.layers[-1][1])
    label, allowed = net.labels(pool), ~np.eye(classes, dtype=bool)[net.labels(x)]
    distance, which = nearest_of_each_label(x, pool, label, classes)
    nearest = starts_among(pool, distance, which, allowed, 8)
    starts = np.concatenate([nearest, any_starts(pool, label, allowed, 56, 0)], axis=1)
    box = more.get("box")
    assert box is None or isinstance(box, tuple)
    return search(net.labels, x, allowed, starts, warm or Rays.none(*x.shape), budget, seed, box)


def linear(inputs: int, classes: int, seed: int) -> tuple[Net, np.ndarray]:
    rng = np.random.default_rng(seed)
    net = Net([(rng.normal(size=(classes, inputs)), rng.normal(size=classes))])
    return net, rng.normal(size=(260, inputs)).astype(np.float32)


def exact_linear(net: Net, x: np.ndarray) -> np.ndarray:
    """A class is nearest where its half-space begins: to that of the nearest class, no other class is in the way."""
    weight, _ = net.layers[0]
    outputs, label = net.outputs(x), net.labels(x)
    margin = outputs[np.arange(len(x)), label][:, None] - outputs
    size = np.linalg.norm(weight[label][:, None] - weight[None], axis=2)
    return np.asarray(np.where(size > 0, margin / np.maximum(size, 1e-12), np.inf).min(axis=1))


@pytest.mark.parametrize(("inputs", "classes"), [(2, 2), (5, 2), (10, 3), (20, 2), (20, 5)])
def test_linear_models_to_one_per_cent(inputs: int, classes: int) -> None:
    net, data = linear(inputs, classes, seed=inputs + classes)
    x, pool = data[:60], data[60:]
    ratio = look(net, x, pool, DEFAULT).reach / exact_linear(net, x)
    assert ratio.min() >= 1 - 1e-6
    assert ratio.max() <= 1.01


@pytest.mark.parametrize(
    ("inputs", "hidden", "classes"), [(2, (8,), 3), (5, (8,), 3), (10, (8,), 3), (20, (8,), 3), (8, (4, 4), 4)]
)
def test_relu_networks_never_below_and_mostly_at_the_exact_distance(
    inputs: int, hidden: tuple[int, ...], classes: int
) -> None:
    net, data = trained(inputs, hidden, classes, seed=inputs)
    x, pool = data[:40], data[100:400]
    reach = look(net, x, pool, DEFAULT).reach
    exact = net.distance(x, within=reach * (1 + 1e-6))
    assert np.isfinite(exact).all()  # infinite: the search claims less than there is
    assert np.mean(reach <= 1.05 * exact) >= 0.95


def test_an_audit_at_its_default_budget_comes_near_the_exact_distance_in_every_round() -> None:
    """Three networks together, in the first round, which has a tenth of the queries and nothing to start from, and in
    the last one."""
    near: dict[int, list[bool]] = {1: [], 10: []}
    for inputs, hidden in ((2, (8,)), (20, (8,)), (8, (4, 4))):
        nets, rows = rounds_of_training(inputs, hidden, 3, seed=40 + inputs)
        asked, own = np.arange(len(rows)) < 30, np.arange(len(rows)) >= 200
        for number, reach in enumerate(distances_over_rounds(nets, rows, asked, own, DEFAULT), start=1):
            if number in near:
                right = asked & (nets[number - 1].labels(rows.x) == rows.y)
                exact = nets[number - 1].distance(rows.x[right], within=reach[right] * (1 + 1e-6))
                assert np.isfinite(exact).all()
                near[number] += (reach[right] <= 1.05 * exact).tolist()
    assert all(np.mean(found) >= 0.95 for found in near.values())


def test_the_exact_distance_of_the_tests_is_that_of_a_fine_grid() -> None:
    net, data = trained(2, (6,), 3, seed=7)
    x = data[:12]
    exact = net.distance(x, np.full(len(x), np.inf))
    angles, radii = np.linspace(0, 2 * np.pi, 360, endpoint=False), np.linspace(0.01, 4, 400)
    offsets = (radii[:, None, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)).reshape(-1, 2)
    for record, distance in zip(x, exact, strict=True):
        other = net.labels(record + offsets) != net.labels(record[None])
        seen = np.linalg.norm(offsets[other], axis=1).min()
        assert distance - 1e-9 <= seen <= distance + 0.02


@pytest.mark.parametrize("budget", [1, 7, 40, 150, 333])
def test_the_budget_is_never_exceeded_and_every_query_is_counted(budget: int) -> None:
    net, data = linear(6, 4, seed=1)
    asked: list[int] = []

    class Counting(Net):
        def labels(self, x: np.ndarray) -> Ints:
            asked.append(len(x))
            return super().labels(x)

    counting = Counting(net.layers)
    rays = look(counting, data[:30], data[30:], budget)
    assert rays.queries.max() <= budget
    assert rays.queries.sum() == sum(asked[2:])  # the first two calls of `look` are about the pool and the records


def test_the_end_of_every_ray_is_labelled_otherwise_and_as_told() -> None:
    net, data = trained(6, (12,), 4, seed=3)
    x, pool = data[:50], data[100:300]
    for budget in (20, 200, 1000):
        rays = look(net, x, pool, budget)
        there = np.isfinite(rays.reach)
        ends = (x + rays.reach[:, None].astype(np.float32) * rays.direction)[there]
        slightly_on = x[there] + (1 + 1e-5) * (ends - x[there])
        assert (net.labels(slightly_on) != net.labels(x[there])).all()
        assert np.mean(net.labels(slightly_on) == rays.label[there]) > 0.95  # a third class may begin right there


def test_more_queries_never_lengthen_a_ray_on_average_and_seeds_agree() -> None:
    net, data = trained(20, (16,), 5, seed=5)
    x, pool = data[:80], data[100:400]
    means = [look(net, x, pool, budget).reach.mean() for budget in (100, 400, 1600)]
    assert means == sorted(means, reverse=True)
    first, second = (look(net, x, pool, 1600, seed).reach.argsort().argsort() for seed in (0, 1))
    assert np.corrcoef(first, second)[0, 1] > 0.9


@pytest.mark.parametrize(("inputs", "budget"), [(10, 3000), (2, 240)])
def test_a_record_does_not_depend_on_the_others(inputs: int, budget: int) -> None:
    """Neither in its first wave of starts nor in later ones, which others reach after more steps, or never."""
    net, data = trained(inputs, (12,), 3, seed=2)
    x, pool = data[:70], data[100:300]
    whole = look(net, x, pool, budget)
    order = np.random.default_rng(0).permutation(len(x))
    mixed = look(net, x[order], pool, budget)
    same(whole, mixed, order)
    for place in range(10, 18):
        same(whole, look(net, x[place : place + 1], pool, budget), np.array([place]))


@pytest.mark.parametrize("change", [0.02, 0.2])
def test_a_record_with_a_warm_start_does_not_depend_on_the_others(change: float) -> None:
    """Whether the old boundary points of all others are still past the boundary, or some are not."""
    net, data = trained(5, (8,), 3, seed=5)
    x, pool = data[:60], data[100:300]
    rng = np.random.default_rng(1)
    moved = Net([(w + change * rng.normal(size=w.shape), b) for w, b in net.layers])
    before = look(net, x, pool, 120)
    whole = look(moved, x, pool, 120, warm=before)
    for place in range(20):
        mine = np.array([place])
        alone = Rays(before.direction[mine], before.reach[mine], before.label[mine], before.queries[mine])
        same(whole, look(moved, x[mine], pool, 120, warm=alone), mine)


def same(whole: Rays, some: Rays, which: Ints) -> None:
    assert np.allclose(whole.reach[which], some.reach, rtol=1e-6, equal_nan=True)
    assert np.array_equal(whole.queries[which], some.queries)


def test_a_warm_start_keeps_what_was_found_and_costs_little() -> None:
    net, data = trained(15, (16,), 4, seed=4)
    x, pool = data[:50], data[100:400]
    good = look(net, x, pool, 2000)
    rng = np.random.default_rng(0)
    moved = Net([(w + 0.01 * rng.normal(size=w.shape), b) for w, b in net.layers])
    same = moved.labels(x) == net.labels(x)
    warm = look(moved, x, pool, 60, warm=good)
    cold = look(moved, x, pool, 60)
    assert np.median(warm.reach[same] / good.reach[same]) < 1.1
    assert warm.reach[same].mean() < 0.8 * cold.reach[same].mean()


def test_within_bounds_every_point_asked_about_lies_inside() -> None:
    net, data = linear(5, 3, seed=6)
    x, pool = np.clip(data[:40], -1, 1), np.clip(data[40:], -1, 1)

    class Strict(Net):
        def labels(self, x: np.ndarray) -> Ints:
            assert np.abs(x).max() <= 1
            return super().labels(x)

    rays = look(Strict(net.layers), x, pool, 600, box=(-1.0, 1.0))
    free = look(net, x, pool, 600)
    there = np.isfinite(rays.reach)
    ends = x[there] + rays.reach[there, None] * rays.direction[there]
    assert np.abs(ends).max() <= 1 + 1e-6
    assert (rays.reach[there] >= 0.98 * free.reach[there]).all()


def test_a_start_that_fails_is_followed_by_the_next_even_on_a_small_budget() -> None:
    net, data = linear(4, 2, seed=9)
    x = data[net.labels(data) == 0][:10]
    other = data[net.labels(data) == 1][:1]
    allowed = np.tile([False, True], (10, 1))
    starts = np.stack([data[net.labels(data) == 0][10:20], np.repeat(other, 10, axis=0)], axis=1)
    rays = search(net.labels, x, allowed, starts, Rays.none(*x.shape), 20, 0, None)
    assert np.isfinite(rays.reach).all()


def test_without_any_start_there_is_no_distance() -> None:
    net, data = linear(4, 2, seed=8)
    x = data[net.labels(data) == 0][:10]
    rays = look(net, x, x, 100)
    assert np.isnan(rays.reach).all()
    assert rays.queries.sum() == 0


@pytest.mark.parametrize("targets", [3, "all"])
def test_starts_are_made_for_a_few_records_at_a_time_and_the_nearest_looked_for_once(
    monkeypatch: pytest.MonkeyPatch, targets: Targets
) -> None:
    """Starts for all records at once took gigabytes. Records in small batches come out as together."""
    nets, rows = rounds_of_training(20, (8,), 4, seed=3, rounds=1)
    calls: list[int] = []

    def counted(of: Callable[..., Any], records: int) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            calls.append(len(given[records]))
            return of(*given)

        return call

    def distances() -> np.ndarray:
        asked, own = np.arange(len(rows)) < 80, np.arange(len(rows)) >= 300
        search = Searching(SearchOptions(300, targets), own, asked)
        return search.measure([DISTANCE], seen(nets[0], 1), rows, ~asked, np.random.default_rng(1))[DISTANCE]

    together = distances()
    monkeypatch.setattr(boundary, "AT_ONCE", 10 * 20 * boundary.PROBES)
    with monkeypatch.context() as patched:
        patched.setattr(searching, "any_starts", counted(any_starts, 2))
        few = distances()
        assert calls
        assert max(calls) <= 10
        calls.clear()
    with monkeypatch.context() as patched:
        patched.setattr(searching, "nearest_of_each_label", counted(nearest_of_each_label, 0))
        distances()
        assert len(calls) == 1
    assert np.allclose(together, few, rtol=1e-6, equal_nan=True)
