"""How much of a known epsilon each proved bound shows: writes the table of dp.md.

    python -m docs.make_bounds

Every audit is simulated 40 times, with the same scores for every bound.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.stats import Explicit, Ranks, Split, proved_epsilon
from fedaudit.stats.epsilon import union_bound

PAGE = Path(__file__).parent / "dp.md"
BEGIN, END = "<!-- bounds -->", "<!-- end of bounds -->"
AUDITS, SIZES = 40, (20, 50, 100, 200, 1_000)

Draw = Callable[[np.random.Generator, int, bool], Any]


def randomised_response(rng: np.random.Generator, n: int, inside: bool) -> Any:
    truth = rng.random(n) < math.e / (1 + math.e)
    return np.where(truth, inside, not inside).astype(float)


CASES: tuple[tuple[str, str, float, Draw], ...] = (
    ("randomised response", "1", 0.0, randomised_response),
    ("Laplace", "1", 0.0, lambda rng, n, inside: rng.laplace(float(inside), 1.0, n)),
    ("Gaussian, mu = 1", "4.38", 1e-5, lambda rng, n, inside: rng.normal(float(inside), 1.0, n)),
    ("Gaussian, mu = 3", "16.7", 1e-5, lambda rng, n, inside: rng.normal(3.0 * inside, 1.0, n)),
)


def bounds(members: Any, nonmembers: Any, delta: float, middle: float) -> list[float]:
    chosen = (Explicit(middle), Split(), Ranks())
    proved = [proved_epsilon(members, nonmembers, delta, each).value or 0.0 for each in chosen]
    return [union_bound(members, nonmembers, delta, 0.05)[0], *proved]


def main() -> None:
    rows = []
    for name, truth, delta, draw in CASES:
        middle = 1.5 if "3" in name else 0.5
        for size in SIZES:
            rng = np.random.default_rng(size)
            found = [bounds(draw(rng, size, True), draw(rng, size, False), delta, middle) for _ in range(AUDITS)]
            means, errors = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(AUDITS)
            cells = " | ".join(f"{mean:.2f} ± {1.96 * error:.2f}" for mean, error in zip(means, errors, strict=True))
            rows.append(f"| {name} | {truth} | {size} + {size} | {cells} |")
            print(rows[-1], flush=True)
    head = (
        "| mechanism | true epsilon | trials | union bound over ranks | threshold fixed in the middle | split | "
        "`epsilon-ranks` |\n|---|---|---|---|---|---|---|"
    )
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(before + "\n".join([BEGIN, head, *rows, END]) + after)


if __name__ == "__main__":
    main()
