"""Makes the figures of docs/tear.md.

    python docs/make_tear.py run --seeds 0 1 2 --out FOLDER [--queries 6000] [--targets 3] [--defence dp-sgd]
    python docs/make_tear.py tables --out FOLDER

A cell (a seed with its options) is one JSON file; one that is there is not made again. Baskets: five parties with 2,000
members each, 10 rounds of 8 epochs. Of the others' records 250 members and 250 non-members are reported on, and 500
calibrate; the first party learns from 500 of its own.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.audit import Auditor
from fedaudit.config.schema import Config, parse
from fedaudit.session.engines import rounds
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.stats import accuracy_difference, auc_difference, hash_order
from fedaudit.types import Candidates, Estimate, Game, Role, Truth

LABEL_ONLY = ("gap", "gap-rounds", "boundary", "tear", "tear-last")
WHITE_BOX = ("tear-deepfool", "loss")
EVALUATED, CALIBRATING, PARTIES = 250, 500, 5
MEMBERS = 0.488  # of a party's records: 2,000


def config(seed: int, queries: int, targets: int | str, defence: str | None) -> Config:
    return parse({
        "data": {"name": "baskets"},
        "federation": {
            "parties": PARTIES, "rounds": 10, "local_epochs": 8, "seed": seed, "split_subjects": True,
            "members": MEMBERS, "nonmembers": 0.25,
        },
        "audit": {
            "vantages": ["label-only-client", "client"], "attacks": [*LABEL_ONLY, *WHITE_BOX], "fpr": [0.01, 0.1],
            "tear": {"queries": queries, "targets": targets, "own": 500},
        },
        "defences": [{"name": defence, "epsilon": 8.0}] if defence else [],
    })  # fmt: skip


def fewer(prepared: Prepared) -> Game:
    """Everything that is trained on stays so; of the candidates only some are looked at."""
    game = prepared.game
    first, kept = game.parties[0], np.zeros(len(game.candidates), bool)
    others = game.candidates.party != first
    for role, many in ((Role.MEMBER, EVALUATED), (Role.EVALUATION, EVALUATED), (Role.CALIBRATION, CALIBRATING)):
        mine = np.flatnonzero(others & game.truth.mask(role))
        kept[mine[hash_order(game.candidates.id[mine], "evaluated")[:many]]] = True
    for inside in (True, False):
        mine = np.flatnonzero(~others & (game.truth.mask(Role.MEMBER) == inside))
        kept[mine[hash_order(game.candidates.id[mine], "own")[:250]]] = True
    rows = game.candidates.rows.take(kept)
    some = Candidates("record", rows.id, game.candidates.party[kept], rows, np.arange(len(rows)), rows.subject)
    return Game(some, Truth(rows.id, game.truth.role[kept]))


def cell(seed: int, queries: int, targets: int | str, defence: str | None) -> dict[str, Any]:
    prepared = prepare(config(seed, queries, targets, defence))
    started = time.process_time()
    auditor = Auditor(prepared.task, fewer(prepared), prepared.settings)
    for round in rounds(prepared):
        auditor.observe(round)
    found = auditor.snapshot()
    pooled = {r.attack: r for r in found.results if r.party is None}
    trained_on = [len(prepared.game.members(party)) for party in prepared.game.parties]
    return {
        "seed": seed, "queries": queries, "targets": targets, "defence": defence, "members": trained_on,
        "estimates": {a: {n: plain(e) for n, e in r.estimates.items()} for a, r in pooled.items()},
        "cost": {a: r.cost.queries for a, r in pooled.items()},
        "curves": {n: [list(c.x), list(c.value)] for n, c in pooled["tear"].curves.items() if n != "roc"},
        "over gap": differences(auditor), "accuracy": {n: plain(e) for n, e in found.accuracy.items()},
        "failed": dict(found.failed), "cpu seconds": time.process_time() - started,
    }  # fmt: skip


def differences(auditor: Auditor) -> dict[str, dict[str, Any]]:
    """Each label-only attack minus gap, on the same records."""
    scores = auditor.case().scores
    sight = auditor.panels.sights["(label-only-client)"]
    by_name = {attack.name: attack for attack in sight.attacks}
    blocks = {}
    for name, attack in by_name.items():
        block = scores.block(sight, attack)
        judged = scores.judged(sight, attack)
        roles = (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)
        ids = [sight.id[judged & (sight.role == role.value)] for role in roles]
        blocks[name] = [replace(block, ids=(ids[0], ids[1], ids[2]))]
    at = {name: scores.threshold([sight], attack) or 0.0 for name, attack in by_name.items()}
    return {
        name: {
            "auc": plain(auc_difference(blocks[name], blocks["gap"])),
            "accuracy": plain(accuracy_difference(blocks[name], blocks["gap"], (at[name], at["gap"]))),
        }
        for name in by_name
        if name != "gap"
    }


def plain(estimate: Estimate) -> list[float | None]:
    return [estimate.value, estimate.low, estimate.high]


def text(ends: list[float | None] | None) -> str:
    if not ends or ends[0] is None:
        return "–"
    return f"{ends[0]:.3f} ({ends[1] or 0:.3f}–{ends[2] or 0:.3f})"


def tables(folder: Path) -> None:
    for path in sorted(folder.glob("*.json")):
        made = json.loads(path.read_text())
        head = (
            "attack",
            "labels a record",
            "accuracy",
            "AUC",
            "TPR at 1 %",
            "TPR at 10 %",
            "accuracy − gap",
            "AUC − gap",
        )
        print(f"\n{path.stem}: members {made['members']}, {made['cpu seconds']:.0f} s of CPU, failed: {made['failed']}")
        print(f"| {' | '.join(head)} |")
        print("|---|---|---|---|---|---|---|---|")
        for name in (*LABEL_ONLY, *WHITE_BOX):
            of = made["estimates"].get(name, {})
            cells = [text(of.get(n)) for n in ("accuracy", "auc", "tpr@0.01", "tpr@0.1")]
            more = made["over gap"].get(name, {})
            cells += [text(more.get("accuracy")), text(more.get("auc"))]
            cost = made["cost"].get(name)
            print(f"| {name} | {'–' if cost is None else f'{cost:,.0f}'} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["run", "tables"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--queries", type=int, default=6000)
    parser.add_argument("--targets", default="3")
    parser.add_argument("--defence")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.what == "tables":
        return tables(asked.out)
    targets = asked.targets if asked.targets == "all" else int(asked.targets)
    for seed in asked.seeds:
        name = f"baskets-{seed}-{asked.queries}-{targets}" + (f"-{asked.defence}" if asked.defence else "")
        path = asked.out / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(cell(seed, asked.queries, targets, asked.defence)))
            print(path, flush=True)


if __name__ == "__main__":
    main()
