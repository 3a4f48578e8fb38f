"""Makes the figures that README and docs/matched-filter.md quote of the demo: its federation, trained and audited with
several seeds, with people whole (the default) and with single records dealt out.

    python docs/make_demo.py run --out FOLDER [--seeds 0 1 2 3 4] [--splits whole split] [--attacks ...]
    python docs/make_demo.py table --out FOLDER

Each run is `fedaudit demo` in a process of its own; one that is finished is not made again.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

ATTACKS = ["matched-filter", "fusion", "gradient-cosine", "fta-confidence", "loss"]
NONE = {"value": None, "low": None, "high": None}  # of an attack that was not run
SPLITS = {"whole": "false", "split": "true"}
SEEN = {"local": "local models (server)", "global": "global models (any party)"}


def make(out: Path, seeds: list[int], splits: list[str], attacks: list[str]) -> None:
    for seed in seeds:
        for name in splits:
            settings = [f"federation.seed={seed}", f"federation.split_subjects={SPLITS[name]}"]
            options = [part for setting in (*settings, f"audit.attacks={attacks}") for part in ("--set", setting)]
            command = [sys.executable, "-m", "fedaudit", "demo", "--out", str(out / f"{name}-{seed}"), *options]
            subprocess.run(command, check=True)


def pooled(path: Path) -> dict[tuple[str, str], Any]:
    results = json.loads((path / "results.json").read_text())["results"]
    return {(entry["attack"], entry["model"]): entry for entry in results if entry["party"] is None}


def share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def ends(found: dict[str, Any]) -> str:
    return f"{share(found['value'])} ({share(found['low'])}–{share(found['high'])})"


def at_round(entry: dict[str, Any], round: int) -> dict[str, Any]:
    curve = entry["curves"]["tpr@0.01"]
    place = curve["x"].index(round)
    return {key: curve[key][place] for key in ("value", "low", "high")}


def over_seeds(found: list[dict[str, Any]]) -> str:
    """The mean and its 95 % interval by Student's t: a run with another seed is another split and another training."""
    values = np.array([entry["value"] for entry in found])
    if len(values) < 2:
        return share(float(values.mean()))
    reach = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"**{share(values.mean())}** ({share(max(0, values.mean() - reach))}–{share(min(1, values.mean() + reach))})"


def table(out: Path) -> None:
    for name in SPLITS:
        paths = [path for path in out.glob(f"{name}-*") if (path / "results.json").exists()]
        paths.sort(key=lambda path: int(path.name.rpartition("-")[2]))
        if not paths:
            continue
        runs = [pooled(path) for path in paths]
        print(f"\n### {name}: {len(runs)} runs\n")
        print("| seen | what | " + " | ".join(path.name for path in paths) + " | mean (95 % interval over seeds) |")
        print("|---" * (3 + len(runs)) + "|")
        for model, seen in SEEN.items():
            for what, found in rows(runs, model):
                there = [entry for entry in found if entry["value"] is not None]
                print(f"| {seen} | {what} | " + " | ".join(map(ends, found)) + f" | {over_seeds(there)} |")


def rows(runs: list[dict[tuple[str, str], Any]], model: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """What is shown of all runs: TPR at 1 % FPR of each attack, then the matched filter's other figures."""
    for attack in ATTACKS:
        yield attack, [run[attack, model]["estimates"]["tpr@0.01"] if (attack, model) in run else NONE for run in runs]
    entries = [run["matched-filter", model] for run in runs]
    for rounds in (1, 5):
        yield f"matched-filter, after {rounds} rounds", [at_round(entry, rounds) for entry in entries]
    yield "matched-filter, at 0.1 % FPR", [entry["estimates"]["tpr@0.001"] for entry in entries]
    for rate in ("0.01", "0.001"):
        estimates = [entry["estimates"][f"tpr@{rate}"] for entry in entries]
        intervals = [entry["realised_fpr_interval"] for entry in estimates]
        yield (
            f"matched-filter, realised FPR at {rate}",
            [
                {"value": entry["realised_fpr"], "low": low, "high": high}
                for entry, (low, high) in zip(estimates, intervals, strict=True)
            ],
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--splits", nargs="+", choices=list(SPLITS), default=list(SPLITS))
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=ATTACKS)
    given = parser.parse_args()
    if given.what == "run":
        make(given.out, given.seeds, given.splits, given.attacks)
    table(given.out)


if __name__ == "__main__":
    main()
