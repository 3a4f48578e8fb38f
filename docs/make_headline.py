"""CANIFE's headline for a perfect canary: makes the table and canary-headline.svg of docs/canaries.md.

    python -m docs.make_headline

Scores of a canary that is orthogonal to everybody else: N(1, sigma) with it, N(0, sigma) without it. By the recipe of
the paper (the largest plug-in epsilon over all thresholds at delta 1/n, the noise that a Gaussian mechanism would have
at that epsilon, all rounds composed by Renyi accounting), for more and more probes. A minute or two on one core.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from fedaudit.files import write_atomically
from fedaudit.privacy.accounting import composed, rdp_epsilon
from fedaudit.privacy.statement import Process
from fedaudit.stats.epsilon import maximised_epsilon
from fedaudit.types import Floats

# Rate and rounds of the paper's CelebA experiment (100 of 8,408 users, 30 epochs of 85 rounds). It does not print that
# noise: this one is of its CIFAR-10 example. Together they claim 48.2, and CelebA is trained to an epsilon of 50.
NOISE, RATE, ROUNDS, DELTA = 0.423, 100 / 8408, 2550, 1e-5
PROBES = (20, 50, 100, 400, 2_000, 10_000, 100_000, 1_000_000)
DRAWN = 200  # sets of probes, or as many as make ten million scores
PICTURE = Path(__file__).with_name("canary-headline.svg")


def rounds_of(probes: int, rng: np.random.Generator) -> Floats:
    """What the recipe finds for one round, in several sets of so many probes."""
    half = probes // 2
    sets = max(10, min(DRAWN, 10_000_000 // probes))
    return np.array(
        [
            maximised_epsilon(rng.normal(1, NOISE, half), rng.normal(0, NOISE, half), 1 / probes).value
            for _ in range(sets)
        ]
    )


def main() -> None:
    rng = np.random.default_rng(0)
    process = Process("user", NOISE, 1, "poisson", RATE)
    one = rdp_epsilon(Process("user", NOISE, 1, "full"), 1, DELTA)
    whole = rdp_epsilon(process, ROUNDS, DELTA)
    print("| probes | one round, mean (5 % to 95 % of the sets) | claimed / shown | whole training | claimed / shown |")
    print("|---|---|---|---|---|")
    drawn = []
    for probes in PROBES:
        found = rounds_of(probes, rng)
        low, middle, high = np.quantile(found, 0.05), float(found.mean()), np.quantile(found, 0.95)
        all_rounds = composed([middle], [ROUNDS], RATE, DELTA, "renyi", found_at=[1 / probes])
        drawn.append((probes, middle, all_rounds))
        print(
            f"| {probes:,} | {middle:.2f} ({low:.2f} to {high:.2f}) | {one / middle:.1f} | {all_rounds:.1f} "
            f"| {whole / all_rounds:.1f} |"
        )
    print(f"\nclaimed: {one:.1f} for one round, {whole:.1f} for the training, at delta {DELTA:g}")
    write_atomically(PICTURE, picture(drawn, one, whole))


def picture(drawn: list[tuple[int, float, float]], one: float, whole: float) -> str:
    """Two panels: shown over claimed, against the number of probes, for a round and for the whole training."""
    wide, high, pad = 340, 240, 44
    marks = []
    for panel, (title, claimed, column) in enumerate((("one round", one, 1), ("whole training", whole, 2))):
        left = panel * wide + pad
        across, up = wide - pad - 14, high - 2 * pad

        def x(probes: float, left: int = left, across: int = across) -> float:
            return left + across * math.log(probes / PROBES[0]) / math.log(PROBES[-1] / PROBES[0])

        def y(value: float, claimed: float = claimed, up: int = up) -> float:
            return high - pad - up * value / claimed

        points = " ".join(f"{x(row[0]):.1f},{y(row[column]):.1f}" for row in drawn)
        marks += [
            f'<text x="{left}" y="{pad - 22}">{title}: epsilon by the paper\'s recipe</text>',
            f'<path class="axis" d="M{left},{pad}V{high - pad}H{left + across}"/>',
            f'<path class="claim" d="M{left},{y(claimed):.1f}H{left + across}"/>',
            f'<text x="{left + 4}" y="{y(claimed) - 5:.1f}">claimed: {claimed:.1f}</text>',
            f'<polyline points="{points}"/>',
            f'<text x="{left + across / 2}" y="{high - 8}" text-anchor="middle">probes</text>',
        ]
        marks += [f'<circle cx="{x(row[0]):.1f}" cy="{y(row[column]):.1f}" r="3"/>' for row in drawn]
        marks += [
            f'<text x="{x(n):.1f}" y="{high - pad + 15}" text-anchor="middle">{n:,}</text>'
            for n in (20, 1_000, 100_000)
        ]
        hundred = next(row for row in drawn if row[0] == 100)
        marks.append(
            f'<text x="{x(100) + 6:.1f}" y="{y(hundred[column]) + 14:.1f}">{hundred[column]:.1f} at 100</text>'
        )
    style = (
        "text{font:12px sans-serif;fill:#555}polyline{fill:none;stroke:#0072b2;stroke-width:2}circle{fill:#0072b2}"
        ".axis{fill:none;stroke:#999}.claim{stroke:#d55e00;stroke-dasharray:5 4}"
        "@media(prefers-color-scheme:dark){text{fill:#bbb}}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * wide} {high}" role="img">'
    named = "<title>What a perfect canary shows, by how often it is probed</title>"
    return f"{head}{named}<style>{style}</style>{''.join(marks)}</svg>\n"


if __name__ == "__main__":
    main()
