"""The search over rounds and targets: its limits, its warm starts, and the second and third boundary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedaudit.adversary.reductions import flatten, unflatten
from fedaudit.adversary.signals.searching import (
    DISTANCE,
    QUERIES,
    RIGHT,
    Searching,
    SearchOptions,
    Targets,
)
from fedaudit.types import Bools, Floats, Records, Stored
from tests.adversary.signals.nets import Net, projection, rounds_of_training, seen


def linear(inputs: int, classes: int) -> tuple[Net, Records, Bools, Bools]:
    """A linear model, records that it labels rightly, 40 that are asked about, and others of the adversary's own."""
    rng = np.random.default_rng(3)
    net = Net([(rng.normal(size=(classes, inputs)), rng.normal(size=classes))])
    x = rng.normal(size=(400, inputs)).astype(np.float32)
    place = np.arange(len(x))
    return net, Records(x, net.labels(x), place.astype(str)), place < 40, place >= 100


def measured(search: Searching, net: Net, rows: Records, round: int = 1) -> dict[str, Any]:
    nobody = np.zeros(len(rows), bool)
    return search.measure([DISTANCE, QUERIES], seen(net, round), rows, nobody, np.random.default_rng(round))


def exact(net: Net, x: np.ndarray) -> Floats:
    """The distance to each class of a linear model; NaN for the record's own."""
    weight, bias = net.layers[0]
    found, classes = np.full((len(x), len(bias)), np.nan), range(len(bias))
    for i, k in np.ndindex(found.shape):
        if k != net.labels(x[i : i + 1])[0]:
            others = [j for j in classes if j != k]
            found[i, k] = projection(weight[others] - weight[k], bias[k] - bias[others], x[i].astype(np.float64))
    return found


# ------------------------------------------------------------------ the second and the third boundary


@pytest.mark.parametrize("targets", [3, "all"])
def test_every_distance_is_that_of_another_class(targets: Targets) -> None:
    net, rows, asked, own = linear(8, 5)
    found = measured(Searching(SearchOptions(6000, targets), own, asked), net, rows)[DISTANCE][asked]
    distances = exact(net, rows.x[asked])
    ratio = found / (distances if targets == "all" else np.sort(distances, axis=1)[:, :3])
    assert np.nanmin(ratio) >= 1 - 1e-6
    assert all(np.mean(of[np.isfinite(of)] <= 1.05) >= 0.85 for of in ratio.T)
    assert np.array_equal(np.isnan(found), np.isnan(distances[:, : found.shape[1]]) & (targets == "all"))


# ------------------------------------------------------------------ what a record may cost


@pytest.mark.parametrize("targets", [1, 3, "all"])
@pytest.mark.parametrize("queries", [60, 500])
def test_all_boundaries_together_cost_no_more_than_a_record_may(queries: int, targets: Targets) -> None:
    net, rows, asked, own = linear(8, 5)
    assert measured(Searching(SearchOptions(queries, targets), own, asked), net, rows)[QUERIES].max() <= queries


@pytest.mark.parametrize("targets", [1, 3, "all"])
def test_rounds_that_were_not_planned_cost_what_is_left(targets: Targets) -> None:
    """Three rounds are planned, and twelve come. The search is taken over by another one after every round."""
    nets, rows = rounds_of_training(5, (8,), 3, seed=1, rounds=12)
    asked, own = np.arange(len(rows)) < 40, np.arange(len(rows)) >= 300
    options = SearchOptions(240, targets, rounds=3)
    kept: Stored = {}
    spent = np.zeros(len(rows))
    for number, net in enumerate(nets, start=1):
        search, view = Searching(options, own, asked), seen(net, number)
        search.restore(unflatten(*flatten(kept)) if kept else {})
        nobody, rng = np.zeros(len(rows), bool), np.random.default_rng(number)
        found = search.measure([DISTANCE, QUERIES], view, rows, nobody, rng)
        assert view.queries.count == found[QUERIES].sum()
        search.remember(found)
        kept, spent = search.state(), spent + found[QUERIES]
        without = found[QUERIES] == 0
        assert np.array_equal(without & asked, (spent - found[QUERIES] >= 240) & asked)
        assert DISTANCE not in found or np.isnan(found[DISTANCE][without]).all()
    assert spent.max() == 240


def test_a_state_that_was_stored_without_what_was_spent_is_still_read() -> None:
    net, rows, asked, own = linear(8, 5)
    search = Searching(SearchOptions(240, rounds=2), own, asked)
    search.remember(measured(search, net, rows))
    other = Searching(search.options, own, asked)
    other.restore({name: of for name, of in search.state().items() if name != "spent"})
    first, second = (measured(one, net, rows, 2) for one in (search, other))
    assert np.array_equal(first[DISTANCE], second[DISTANCE], equal_nan=True)


def test_where_no_record_has_labels_left_nothing_was_observed() -> None:
    """Neither a distance nor its absence, which would look like a model that diverged."""
    net, rows, asked, own = linear(8, 5)
    search = Searching(SearchOptions(50), own, asked | own)
    search.remember({QUERIES: np.full(len(rows), 50.0)})
    found = measured(search, net, rows)
    assert DISTANCE not in found
    assert not found[QUERIES].any()
    right = search.measure([RIGHT], seen(net, 1), rows, asked, np.random.default_rng(0))[RIGHT]
    assert right.all()  # a label alone is not part of the search
