"""Makes the figures of docs/tear.md that compare the label-only search with exact distances.

    python -m docs.make_tear_exact small      # ReLU networks with 2 to 20 inputs: one search, and a whole audit
    python -m docs.make_tear_exact linear     # a linear model with 600 inputs

The networks, and their exact distances, are those of tests/adversary/signals/nets.py. About a minute each on one core.
"""

import argparse
from collections.abc import Iterator

import numpy as np

from fedaudit.adversary.signals.searching import SearchOptions
from fedaudit.stats import clopper_pearson
from fedaudit.types import Bools, Floats, Records
from tests.adversary.signals.nets import Net, distances_over_rounds, rounds_of_training
from tests.adversary.signals.test_boundary import exact_linear, linear, look

NETWORKS = ((2, (10,), 3), (5, (10,), 3), (10, (10,), 3), (20, (10,), 3), (8, (5, 5), 4), (16, (5, 5), 4))
SEEDS = (200, 300)
RECORDS = 40
ROUNDS = (1, 2, 5, 10)


def worlds() -> Iterator[tuple[list[Net], Records]]:
    for seed in SEEDS:
        for inputs, hidden, classes in NETWORKS:
            yield rounds_of_training(inputs, hidden, classes, seed + inputs)


def small() -> None:
    asked = np.arange(600) < RECORDS
    single: dict[int, list[Floats]] = {budget: [] for budget in (300, 600, 2000, 6000)}
    audit: dict[int, list[Floats]] = {number: [] for number in ROUNDS}
    for nets, rows in worlds():
        x, pool = rows.x[:RECORDS], rows.x[100:400]
        reaches = {budget: look(nets[-1], x, pool, budget).reach for budget in single}
        exact = nets[-1].distance(x, np.min(list(reaches.values()), axis=0) * (1 + 1e-6))
        for budget, reach in reaches.items():
            single[budget].append(reach / exact)
        for number, reach in enumerate(over_rounds(nets, rows, asked), start=1):
            if number in audit:
                right = asked & (nets[number - 1].labels(rows.x) == rows.y)
                exact = nets[number - 1].distance(rows.x[right], reach[right] * (1 + 1e-6))
                audit[number].append(reach[right] / exact)
    for title, found in (("one search, labels a record", single), ("audit at its default, round", audit)):
        print(f"| {title} | records | within 1.05 of exact | largest ratio | below exact |\n|---|---|---|---|---|")
        for of, ratios in found.items():
            print(f"| {of:,} | {line(np.concatenate(ratios))} |")


def over_rounds(nets: list[Net], rows: Records, asked: Bools) -> Iterator[Floats]:
    own = (np.arange(600) >= 100) & (np.arange(600) < 400)
    return distances_over_rounds(nets, rows, asked, own, SearchOptions().queries)


def line(ratio: Floats) -> str:
    """An exact distance that is infinite lies farther than the search claims: a ratio of 0."""
    near = int(np.sum(ratio <= 1.05))
    low, high = clopper_pearson(near, len(ratio), 0.025, 0.025)
    share = f"{near / len(ratio):.1%} ({low:.1%}–{high:.1%})"
    return f"{len(ratio)} | {share} | {ratio.max():.2f} | {int(np.sum(ratio < 1 - 1e-6))}"


def six_hundred() -> None:
    net, data = linear(600, 5, 3)
    x, pool = data[:200], data[200:]
    exact = exact_linear(net, x)
    print("| labels a record | asked | ratio to exact: quarter, median, three quarters |\n|---|---|---|")
    for budget in (150, 300, 600, 1200, 2000, 6000):
        rays = look(net, x, pool, budget)
        quarters = ", ".join(f"{q:.2f}" for q in np.quantile(rays.reach / exact, (0.25, 0.5, 0.75)))
        print(f"| {budget:,} | {rays.queries.mean():,.0f} | {quarters} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["small", "linear"])
    {"small": small, "linear": six_hundred}[parser.parse_args().what]()


if __name__ == "__main__":
    main()
