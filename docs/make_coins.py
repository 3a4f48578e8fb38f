"""Makes the figures of docs/coins.md: what fair coins prove about training with and without noise.

    python docs/make_coins.py runs none 20
    python docs/make_coins.py runs dp-sgd 20
    python docs/make_coins.py table

`runs` prints one JSON line for each seed and appends it to coins-runs.jsonl in the working directory; `table` prints
the table of the page from that file. Setting: 2,000 baskets drawn by the seed, 4 parties, a fifth of each party's
records for calibration and 400 coins about the others, 3 rounds of one epoch of Adam at 3e-3 in batches of 32, an MLP
with 128 hidden units, matched-filter.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.audit.quoted import headlines
from fedaudit.config.schema import parse
from fedaudit.data import load
from fedaudit.privacy.accounting import stated
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.stats import clopper_pearson

RECORDS, ROUNDS, EPSILON = 2_000, 3, 8.0
FILE = Path("coins-runs.jsonl")
DEFENCES: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "dp-sgd": [{"name": "dp-sgd", "epsilon": EPSILON, "delta": 1e-5, "clip": 1.0}],
}


def one_run(defence: str, seed: int) -> dict[str, Any]:
    records = load(parse({"data": {"name": "baskets"}}).data).records
    chosen = records.take(np.sort(np.random.default_rng(seed).permutation(len(records))[:RECORDS]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "baskets.npz"
        np.savez(path, x=chosen.x, y=chosen.y, id=chosen.id)
        federation = {"coins": True, "members": 0.4, "nonmembers": 0.4, "rounds": ROUNDS, "lr": 3e-3, "batch_size": 32}
        config = parse({
            "data": {"name": "npz", "path": str(path)},
            "federation": federation | {"seed": seed},
            "model": {"hidden": [128]},
            "audit": {"attacks": ["matched-filter"]},
            "defences": DEFENCES[defence],
        })  # fmt: skip
        prepared = prepare(config)
    for round in rounds(prepared):
        prepared.auditor.observe(round)
    claim = stated(prepared.promises, ROUNDS)
    quoted, _ = headlines(prepared.auditor.case())  # all that is quoted of a run, without the other attacks
    found = {
        h.vantage: {
            "attack": h.attack,
            "model": h.model,
            "bound": h.estimates["epsilon-one-run"].value,
            "ceiling": h.estimates["epsilon-one-run"].ceiling,
            "auc": h.estimates["auc"].value,
        }
        for h in quoted
    }
    claimed = None if claim is None else claim.epsilon
    outside = prepared.auditor.accuracy()["evaluation"].value
    return {"defence": defence, "seed": seed, "claimed": claimed, "accuracy": outside, "found": found}


def table() -> None:
    lines = [json.loads(line) for line in FILE.read_text().splitlines()]
    print("| defence | seen from | runs | proved epsilon: mean (least to most) | above 1 | below the claim | AUC |")
    print("|---|---|---|---|---|---|---|")
    for defence in DEFENCES:
        mine = [line for line in lines if line["defence"] == defence]
        for vantage in ("client", "server"):
            of = [line["found"][vantage] for line in mine]
            bound = np.array([one["bound"] for one in of])
            above, claims = int((bound > 1).sum()), [line["claimed"] for line in mine]
            below = "–" if None in claims else counted(sum(b < c for b, c in zip(bound, claims, strict=True)), len(of))
            auc = float(np.mean([one["auc"] for one in of]))
            spread = f"{bound.mean():.2f} ({bound.min():.2f} to {bound.max():.2f})"
            print(f"| {defence} | {vantage} | {len(of)} | {spread} | {counted(above, len(of))} | {below} | {auc:.3f} |")


def counted(hits: int, of: int) -> str:
    """A count with the 95 % interval of its share (Clopper-Pearson)."""
    low, high = clopper_pearson(hits, of, 0.025, 0.025)
    return f"{hits} of {of} ({100 * low:.0f}–{100 * high:.0f} %)"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["runs", "table"])
    parser.add_argument("defence", nargs="?", choices=list(DEFENCES))
    parser.add_argument("seeds", nargs="?", type=int, default=20)
    asked = parser.parse_args()
    if asked.what == "table":
        table()
        return
    for seed in range(asked.seeds):
        line = json.dumps(one_run(asked.defence, seed))
        print(line, flush=True)
        with FILE.open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
