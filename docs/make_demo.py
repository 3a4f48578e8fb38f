"""Makes the figures that README and docs/matched-filter.md quote of the demo: its federation, trained and audited with
several seeds, with people whole (the default) and with single records dealt out.

    python docs/make_demo.py run --out FOLDER [--seeds 0 1 2 3 4]
    python docs/make_demo.py table --out FOLDER

Each run is `fedaudit demo` in a process of its own; one that is finished is not made again.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ATTACKS = ["matched-filter", "fusion", "gradient-cosine", "fta-confidence", "loss"]
SPLITS = {"whole": "false", "split": "true"}
SEEN = {"local": "local models (server)", "global": "global models (any party)"}


def make(out: Path, seeds: list[int]) -> None:
    for seed in seeds:
        for name, split in SPLITS.items():
            settings = [f"federation.seed={seed}", f"federation.split_subjects={split}", f"audit.attacks={ATTACKS}"]
            options = [part for setting in settings for part in ("--set", setting)]
            command = [sys.executable, "-m", "fedaudit", "demo", "--out", str(out / f"{name}-{seed}"), *options]
            subprocess.run(command, check=True)


def pooled(path: Path) -> dict[tuple[str, str], Any]:
    results = json.loads((path / "results.json").read_text())["results"]
    return {(entry["attack"], entry["model"]): entry for entry in results if entry["party"] is None}


def share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def ends(found: dict[str, Any]) -> str:
    return f"{share(found['value'])} ({share(found['low'])}–{share(found['high'])})"


def at_round(entry: dict[str, Any], round: int) -> str:
    curve = entry["curves"]["tpr@0.01"]
    place = curve["x"].index(round)
    return ends({key: curve[key][place] for key in ("value", "low", "high")})


def table(out: Path) -> None:
    for name in SPLITS:
        paths = sorted(out.glob(f"{name}-*"), key=lambda path: int(path.name.rpartition("-")[2]))
        runs = [pooled(path) for path in paths]
        print(f"\n### {name}: {len(runs)} runs\n")
        print("| seen | attack | " + " | ".join(path.name for path in paths) + " | mean |")
        print("|---" * (3 + len(runs)) + "|")
        for model, seen in SEEN.items():
            for attack in ATTACKS:
                found = [run[attack, model]["estimates"]["tpr@0.01"] for run in runs]
                mean = sum(e["value"] for e in found) / len(found)
                print(f"| {seen} | {attack} | " + " | ".join(map(ends, found)) + f" | **{share(mean)}** |")
            entries = [run["matched-filter", model] for run in runs]
            for rounds in (1, 5):
                print(
                    f"| {seen} | after {rounds} rounds | " + " | ".join(at_round(e, rounds) for e in entries) + " | |"
                )
            rare = [e["estimates"]["tpr@0.001"] for e in entries]
            print(f"| {seen} | at 0.1 % FPR | " + " | ".join(map(ends, rare)) + " | |")
            realised = [e["estimates"]["tpr@0.01"]["realised_fpr"] for e in entries]
            print(f"| {seen} | realised FPR | " + " | ".join(map(share, realised)) + " | |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    given = parser.parse_args()
    if given.what == "run":
        make(given.out, given.seeds)
    table(given.out)


if __name__ == "__main__":
    main()
