"""Draws docs/matched-filter.svg: one party, one round of `baskets`; what the cosine sees, and what the filter sees.

python docs/make_matched_picture.py
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from make_matched import EVALUATION, MEMBER, Target, World
from matched_cells import BASKETS, OURS

from fedaudit.files import write_atomically
from fedaudit.types import Floats

HERE = Path(__file__).parent
EDGES = np.linspace(-4, 9, 66)
WIDE, HIGH, LEFT, BASE = 320, 200, 10, 170
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#57606a}.t{font-weight:600}.m{fill:#c2410c;fill-opacity:.55}"
    ".o{fill:#1d4ed8;fill-opacity:.45}.axis{stroke:#8b949e;stroke-width:1}.mt{fill:#c2410c}.ot{fill:#1d4ed8}"
)


def main() -> None:
    torch.set_num_threads(1)
    plain = replace(OURS, damping=float("inf"), at="received", adaptive=False)
    world = World.of(replace(BASKETS, rounds=1, ways=(plain, OURS)), Path())
    name, rows = next(iter(world.rows.items()))
    target = Target(world, rows, world.role)
    for round in world.rounds():
        target.observe(round.broadcast, round.sent[name].state)
    marks = []
    for place, (way, title) in enumerate(((plain, "cosine, no whitening"), (OURS, "matched filter"))):
        z = target.series[way.name][0][0]
        z = (z - z[world.role == EVALUATION].mean()) / z[world.role == EVALUATION].std()
        marks.append(panel(LEFT + place * WIDE, title, z[world.role == MEMBER], z[world.role == EVALUATION]))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDE + LEFT} {HIGH}" role="img">'
    title = "<title>Scores of members and of outsiders after one round, before and after whitening</title>"
    write_atomically(HERE / "matched-filter.svg", f"{head}{title}<style>{STYLE}</style>{''.join(marks)}</svg>\n")


def panel(left: float, title: str, members: Floats, outsiders: Floats) -> str:
    parts = [f'<text class="t" x="{left}" y="16">{title}</text>']
    for kind, values in (("o", outsiders), ("m", members)):
        share = np.histogram(values.clip(EDGES[0], EDGES[-1]), EDGES)[0] / len(values)
        step = (WIDE - 20) / len(share)
        path = "".join(f"V{BASE - 1100 * s:.1f}h{step:.2f}" for s in share)
        parts.append(f'<path class="{kind}" d="M{left} {BASE}{path}V{BASE}z"/>')
    parts.append(f'<path class="axis" d="M{left} {BASE}h{WIDE - 20}"/>')
    for tick in range(-4, 10, 2):
        x = left + (tick - EDGES[0]) / (EDGES[-1] - EDGES[0]) * (WIDE - 20)
        parts.append(f'<text x="{x:.0f}" y="{BASE + 16}" text-anchor="middle">{tick}</text>')
    parts.append(f'<text class="ot" x="{left + WIDE - 110}" y="40">outsiders</text>')
    parts.append(f'<text class="mt" x="{left + WIDE - 110}" y="58">members</text>')
    return "".join(parts)


if __name__ == "__main__":
    main()
