"""Checks on data on which no choice was based: people of other seeds, tables that crafting had not seen, null worlds of
other kinds.

    python -m docs.make_held_out people                 # docs/subjects.md: configuration C, other seeds
    python -m docs.make_held_out tables                 # docs/canaries.md: canaries crafted for made-up tables
    python -m docs.make_held_out null                   # docs/numbers.md: few people a side, alike in distribution

About ten, five and two minutes on one core. Each prints the figures of its page.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from docs.make_reproduction import figure_of
from docs.reproduction_settings import synthetic
from fedaudit.config.schema import parse
from fedaudit.results.document import Document
from fedaudit.session.run import run
from fedaudit.stats import Block, auc, clopper_pearson
from fedaudit.types import Floats


def audited(raw: dict[str, Any]) -> Document:
    with tempfile.TemporaryDirectory() as folder:
        return run(parse(raw), Path(folder) / "run", lambda *_: nullcontext(lambda: None), tell=lambda _: None)


# ------------------------------------------------------------------ people


def people() -> None:
    """Configuration C, whose rows are all different, with a thousand records of a person and with fifty."""
    for items in (10_000, 500):
        for seed in (61, 62, 63):
            raw = synthetic("C", items_per_user=items)(Path())
            raw = raw | {"data": raw["data"] | {"data_seed": seed}, "federation": raw["federation"] | {"seed": seed}}
            document = audited(raw | {"audit": raw["audit"] | {"attacks": ["subject-loss"]}})
            result = next(one for one in document.results if one.attack == "subject-loss" and one.party is None)
            found = figure_of(document, result, "auc")
            assert found is not None
            print(f"{items // 10:,} records of a person, seed {seed}: AUC {found.value:.3f} ({found.low:.3f} to "
                  f"{found.high:.3f})", flush=True)  # fmt: skip


# ------------------------------------------------------------------ tables


def incomes(rng: np.random.Generator) -> pd.DataFrame:
    """Ten columns whose scales differ by eight orders of magnitude, all with long tails."""
    hidden = rng.normal(size=(4000, 3))
    values = np.exp(hidden @ rng.normal(size=(3, 10)) + rng.normal(size=(4000, 10))) * 10.0 ** np.linspace(-2, 6, 10)
    return pd.DataFrame(values, columns=[f"income {i}" for i in range(10)]).assign(
        group=np.digitize(hidden[:, 0], [-0.5, 0.5])
    )


def visits(rng: np.random.Generator) -> pd.DataFrame:
    """Counts, of which most are zero, three columns of words, and something that one in two hundred has."""
    ward = rng.integers(12, size=4000)
    counts = rng.poisson(np.exp(rng.normal(-1.5, 1.0, size=(4000, 6)) + 0.2 * (ward % 3)[:, None]))
    table = pd.DataFrame(counts, columns=[f"visits {i}" for i in range(6)])
    words = {"ward": ward, "shift": rng.integers(5, size=4000), "district": rng.integers(25, size=4000)}
    table = table.assign(**{name: [f"{name} {value}" for value in values] for name, values in words.items()})
    return table.assign(rare=(rng.random(4000) < 0.005).astype(int), group=ward % 3)


def sensors(rng: np.random.Generator) -> pd.DataFrame:
    """Fifty-six columns mix the same three signals; four are zero except in some ten records each."""
    signals = rng.normal(size=(4000, 3))
    values = signals @ rng.normal(size=(3, 60)) + 0.02 * rng.normal(size=(4000, 60))
    values[:, :4] = 0.0
    values[rng.integers(4000, size=40), rng.integers(4, size=40)] = 50.0
    return pd.DataFrame(values, columns=[f"sensor {i}" for i in range(60)]).assign(
        group=(signals[:, 0] > 0).astype(int)
    )


TABLES: dict[str, Callable[[np.random.Generator], pd.DataFrame]] = {
    "incomes": incomes, "visits": visits, "sensors": sensors,
}  # fmt: skip


def tables() -> None:
    """Four canaries for each table, seed and age of the model."""
    for name, make in TABLES.items():
        for rounds in (2, 20):
            for seed in (61, 62, 63):
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "table.csv"
                    make(np.random.default_rng(seed)).to_csv(path, index=False)
                    found = audited(with_canaries(path, rounds, seed))
                (result,) = (one for one in found.results if one.attack == "canife")
                health, length = (result.estimates[key] for key in ("canary-health", "canary-norm"))
                right = found.run.accuracy["evaluation"].value
                print(f"{name}, {rounds} rounds (right on {right:.2f}), seed {seed}: health {health.value:.3f} "
                      f"({health.low:.3f} to {health.high:.3f}), length {length.value:.3f} ({length.low:.3f} to "
                      f"{length.high:.3f})", flush=True)  # fmt: skip


def with_canaries(path: Path, rounds: int, seed: int) -> dict[str, Any]:
    return {
        "data": {"name": "table", "path": str(path), "label": "group"},
        "federation": {
            "parties": 40, "participation": 0.5, "sampling": "poisson", "algorithm": "fedsgd", "lr": 0.3,
            "members": 0.4, "nonmembers": 0.2, "rounds": rounds, "seed": seed,
        },
        "audit": {"attacks": ["canife"], "canary": {"canaries": 4, "probes": 40, "steps": 400, "every": rounds}},
        "defences": [{"name": "dp-fedavg", "noise": 0.5, "clip": 0.1, "delta": 1e-3}],
    }  # fmt: skip


# ------------------------------------------------------------------ null worlds

WORLDS = 3000
SIDES = ((3, 3), (3, 30), (4, 9), (5, 5), (7, 7), (9, 9), (9, 40))
KINDS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "heavy tails": lambda rng, n: rng.standard_t(1.5, size=n),
    "two heaps": lambda rng, n: rng.normal(4.0 * rng.integers(2, size=n), 0.5),
    "three values": lambda rng, n: rng.choice([0.0, 1.0, 2.0], size=n, p=[0.6, 0.3, 0.1]),
    "one side long": lambda rng, n: rng.lognormal(sigma=2.0, size=n),
}


def null() -> None:
    """How often people are called better found than by guessing where members and others are alike."""
    for kind, draw in KINDS.items():
        for sides in SIDES:
            wrong = sum(lies_above(kind, draw, sides))
            low, high = clopper_pearson(wrong, WORLDS, 0.025, 0.025)
            print(f"{kind}, {sides[0]} against {sides[1]}: {wrong / WORLDS:.2%} ({low:.2%} to {high:.2%})", flush=True)


def lies_above(kind: str, draw: Callable[[np.random.Generator, int], Floats], sides: tuple[int, int]) -> Iterator[bool]:
    rng = np.random.default_rng([61, list(KINDS).index(kind), *sides])
    for _ in range(WORLDS):
        found = auc([Block(draw(rng, sides[0]), draw(rng, sides[1]), draw(rng, 50))])
        yield found.low is not None and found.low > 0.5


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", choices=["people", "tables", "null"])
    {"people": people, "tables": tables, "null": null}[asked.parse_args().what]()


if __name__ == "__main__":
    main()
