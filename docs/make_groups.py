"""How often a group stands out: in worlds without a leak, with the same leak everywhere, and with one leaking group.

    python -m docs.make_groups

Scores are simulated, thousands of people at a time, and go through `stats.groups.contrast` as those of an audit do.
Three kinds of worlds must stay silent: *null* (members score as outsiders do), *alike* (a leak that is the same in all
groups) and *odd* (one group's members and outsiders both score high, which gives nobody away). In *planted*, five per
cent of all people, who have something rare in common, are memorised.

Then ten whole audits of a table in which one patient of twenty has a rare diagnosis, with which the ward follows from
nothing: the model can only learn it by heart. And ten of a federation that never trained on any candidate.
"""

import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from fedaudit.config.schema import parse
from fedaudit.results.document import Document
from fedaudit.session.run import run
from fedaudit.session.selftest import null_world, watch
from fedaudit.stats import Block, clopper_pearson
from fedaudit.stats.groups import contrast
from fedaudit.types import Bools, Floats

FPR, CONFIDENCE, GROUPS, PLACES = 0.01, 0.95, 19, 2
KINDS = ("null", "alike", "odd", "planted")
PEOPLE = (1000,)
MEASURED = 20  # of each patient in the table


def scores(kind: str, member: bool, rare: Bools, rng: np.random.Generator) -> Floats:
    found = rng.normal(size=len(rare))
    if kind == "alike" and member:
        found += 0.7
    if kind == "odd":
        found += 2.0 * rare
    if kind == "planted" and member:
        found += 0.5 + 3.0 * rare
    return found


def world(kind: str, people: int, rng: np.random.Generator) -> tuple[Block, list[Bools]]:
    """The scores of all people, and the groups: the rare one, and others at random, half of them small."""
    rare = rng.random(people) < 0.05
    sides = np.split(rng.permutation(people), [int(0.3 * people), int(0.6 * people)])
    members, evaluation, calibration = (scores(kind, i == 0, rare[side], rng) for i, side in enumerate(sides))
    block = Block(members, evaluation, calibration, ids=(sides[0], sides[1], sides[2]))
    shares = [0.05, 0.1, 0.3, 0.5] * GROUPS
    return block, [rare, *(rng.random(people) < share for share in shares[: GROUPS - 1])]


def stands_out(kind: str, people: int, seed: int) -> tuple[bool, bool]:
    """Whether any group does, and whether it is the rare one."""
    rng = np.random.default_rng([seed, people, KINDS.index(kind)])
    confidence = 1 - (1 - CONFIDENCE) / (2 * GROUPS * PLACES)
    places = [world(kind, people, rng) for _ in range(PLACES)]
    found = [[bool(contrast([block], group, FPR, confidence).certain) for group in groups] for block, groups in places]
    return any(map(any, found)), any(one[0] for one in found)


def table(seed: int, folder: Path, patients: int = 2400) -> Path:
    """What is measured of a patient tells which of ten wards it is, but for patients with gout, who lie anywhere."""
    rng = np.random.default_rng(seed)
    ward, gout = rng.integers(0, 10, patients), rng.random(patients) < 0.05
    x = 2 * rng.normal(size=(10, MEASURED))[ward] + rng.normal(size=(patients, MEASURED))
    ward[gout] = rng.integers(0, 10, int(gout.sum()))
    lines = [",".join(["code", "ward", *(f"x{i}" for i in range(MEASURED))])]
    for sick, y, row in zip(gout, ward, x, strict=True):
        lines.append(f"{'gout' if sick else 'other'},{y},{','.join(f'{value:.4f}' for value in row)}")
    path = folder / "patients.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def planted(seed: int, folder: Path) -> Document:
    """A whole audit of a federation that learns its patients with gout by heart."""
    data = {"name": "table", "path": str(table(seed, folder)), "label": "ward", "attributes": ["code"]}
    federation = {"parties": 2, "rounds": 6, "local_epochs": 10, "batch_size": 16, "lr": 0.005, "seed": seed}
    audit = {"vantages": ["client"], "attacks": ["loss"]}
    config = parse({"data": data, "federation": federation, "model": {"hidden": [128]}, "audit": audit})
    return run(config, folder / "run", lambda *_: nullcontext(lambda: None), tell=lambda _: None)


def untrained(seed: int) -> bool:
    """Does a group stand out although no candidate was trained on? Of handwritten digits, ten classes."""
    federation = {"parties": 2, "rounds": 3, "batch_size": 32, "lr": 3e-3, "seed": seed}
    config = parse({"data": {"name": "digits"}, "federation": federation, "model": {"hidden": [64]}})
    found = watch(null_world(config)).groups
    assert found is not None
    return any(one.stands_out for one in found.results)


def audits(seeds: int) -> None:
    named = out = 0
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            found = planted(seed, Path(folder))
        print(f"seed {seed}: {found.headlines[0].most_exposed or 'no group stands out'}", flush=True)
        named += "code = gout" in found.headlines[0].most_exposed
        out += untrained(seed)
    print(f"whole audits: the planted group is named in the verdict in {named} of {seeds}")
    print(f"whole audits of null worlds: a group stands out in {out} of {seeds}")


def main(seeds: int) -> None:
    print(f"{GROUPS} groups in {PLACES} places, {seeds} seeds; 95 % intervals (Clopper-Pearson)")
    for people in PEOPLE:
        for kind in KINDS:
            out = [stands_out(kind, people, seed) for seed in range(seeds)]
            count = sum(one[kind == "planted"] for one in out)
            low, high = clopper_pearson(count, seeds, 0.025, 0.025)
            who = "the rare group" if kind == "planted" else "some group"
            print(f"{people:5d} people, {kind:8s}: {who} stands out in {count} of {seeds} ({low:.1%}-{high:.1%})")


if __name__ == "__main__":
    audits(10)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
