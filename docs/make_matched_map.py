"""Makes the section "Weights for each member: the map" of docs/matched-filter.md: from 0.2 to 30 weights for each member,
is the matched filter ahead of every other attack that an audit runs by default?

    python docs/make_matched_map.py run [BEGINNING...] --data FOLDER --work FOLDER
    python docs/make_matched_map.py tables

Each cell is a run of fedaudit with a configuration, all default attacks, and for each of them the difference to the
filter on the same records (the others share the error of its interval). FOLDER with the data: adult.npz, mnist.npz,
hapt_windows.npz, cifar10.npz. What was measured is in docs/matched_map.json; a cell that is there is not run again. Ten
to sixty seconds each on one core.
"""

import argparse
import json
import shutil
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from make_matched_runs import Run, part_of

from fedaudit.config.schema import parse
from fedaudit.results.scores import blocks_of, load_scores
from fedaudit.session.run import run
from fedaudit.stats import auc, auc_difference, tpr_at_fpr, tpr_difference
from fedaudit.stats.pooled import able
from fedaudit.types import Estimate

STORED = Path(__file__).with_name("matched_map.json")
FPR = 0.01
FILTERS = ("matched-filter", "subject-matched")
PEOPLE = {"partition": "subjects", "member_subjects": 0.4, "nonmember_subjects": 0.25}
FILES = {"adult": "adult.npz", "mnist": "mnist.npz", "hapt": "hapt_windows.npz", "cifar10": "cifar10.npz"}


@dataclass(frozen=True)
class Cell:
    group: str
    data: str
    model: dict[str, Any]
    records: int = 0  # so many at random; 0: all
    federation: dict[str, Any] = field(default_factory=dict)  # what differs from ten rounds of two parties

    @property
    def shape(self) -> str:
        return "-".join(map(str, self.model["hidden"])) if "hidden" in self.model else str(self.model["name"])

    def name(self, seed: int) -> str:
        rest = [f"{key}={value}" for key, value in self.federation.items() if key not in PEOPLE]
        return "/".join([self.group, self.data, self.shape, *rest, f"seed={seed}"])

    def config(self, seed: int, path: Path | None) -> dict[str, Any]:
        given = {"parties": 2, "rounds": 10, "seed": seed} | self.federation
        data = {"name": self.data} | ({"path": str(path)} if path else {})
        return {"data": data, "federation": given, "model": self.model}


def mlps(*widths: int) -> list[dict[str, Any]]:
    return [{"name": "mlp", "hidden": [width]} for width in widths]


LINEAR, RESNET = {"name": "linear"}, {"name": "resnet8"}
HALF = {"members": 0.5, "nonmembers": 0.2}
MOST = {"members": 0.4, "nonmembers": 0.3}
LONG = {"rounds": 40}
LEARNT = {"rounds": 20, "local_epochs": 5}  # few members, learnt by heart
CELLS = [
    *(Cell("map", "baskets", model, 0, {"parties": 4}) for model in mlps(2, 4, 8, 16, 64)),
    *(Cell("map", "adult", model, 8000) for model in (*mlps(4, 16, 64, 256), LINEAR)),
    *(Cell("map", "mnist", model, 16000, HALF) for model in (*mlps(2, 4, 16, 64), LINEAR)),
    *(Cell("people", "baskets", model, 0, PEOPLE) for model in mlps(2, 8, 32)),
    *(Cell("held-out", "digits", model, 0, MOST) for model in (*mlps(4, 16, 128), LINEAR)),
    *(Cell("held-out", "breast-cancer", model, 0, MOST) for model in mlps(2, 8, 64)),
    *(Cell("held-out", "hapt", model, 0, {"split_subjects": True}) for model in mlps(2, 8, 32)),
    *(Cell("held-out", "cifar10", model, 8000, MOST) for model in mlps(1, 4)),
    *(Cell("long", "baskets", model, 0, {"parties": 4} | LONG) for model in mlps(2, 8)),
    *(Cell("long", "adult", model, 8000, LONG) for model in mlps(4, 64)),
    *(Cell("long", "mnist", model, 16000, HALF | LONG) for model in mlps(2, 16)),
    *(Cell("by-heart", "baskets", model, 0, {"parties": 4, "members": 0.1} | LEARNT) for model in mlps(4, 16)),
    Cell("by-heart", "adult", mlps(32)[0], 2000, MOST | LEARNT),
    Cell("by-heart", "mnist", mlps(8)[0], 4000, MOST | LEARNT),
    Cell("by-heart", "digits", mlps(16)[0], 0, MOST | LEARNT),
    *(Cell("small-head", data, RESNET, 1600, MOST | {"local_epochs": 4}) for data in ("mnist", "cifar10")),
]
SEEDS = {"long": (0,), "small-head": (0,)}


# ------------------------------------------------------------------ measuring


def ends(found: Estimate) -> list[float] | None:
    values = (found.value, found.low, found.high)
    return None if any(v is None for v in values) else [round(float(v or 0.0), 4) for v in values]


def judged(folder: Path, model: str) -> dict[str, Any]:
    """The filter, and every other attack with the filter's lead over it."""
    scores = load_scores(folder)
    assert scores is not None
    names = sorted({*scores["attack"][scores["model"] == model].tolist()} - {"blind"})
    own = next(name for name in FILTERS if name in names)
    others = [name for name in names if name != own]
    blocks = {name: blocks_of(scores, name, model) for name in names}
    shared = 1 - 0.05 / len(others)
    rates = {name: tpr_at_fpr(able(found, FPR), FPR) for name, found in blocks.items()}
    filtered, interval = rates[own], rates[own].realised_fpr_interval
    realised = [filtered.realised_fpr, *interval] if interval and filtered.realised_fpr is not None else None
    counts = [sum(len(side) for side in sides) for sides in zip(*map(sides_of, blocks[own]), strict=True)]
    found: dict[str, Any] = {
        "attack": own, "auc": ends(auc(blocks[own])), "tpr": ends(filtered), "members, calibration, evaluation": counts,
        "fpr": realised and [round(float(end), 4) for end in realised], "others": {},
    }  # fmt: skip
    for name in others:
        mine, theirs = able(blocks[own], FPR), able(blocks[name], FPR)
        found["others"][name] = {
            "auc": ends(auc(blocks[name])), "auc lead": ends(auc_difference(blocks[own], blocks[name], shared)),
            "tpr": ends(rates[name]), "tpr lead": ends(tpr_difference(mine, theirs, FPR, shared)),
        }  # fmt: skip
    return found


def sides_of(block: Any) -> tuple[Any, Any, Any]:
    return block.members, block.calibration, block.evaluation


def made(cell: Cell, seed: int, data: Path, work: Path) -> dict[str, Any]:
    started = time.perf_counter()
    path = data / FILES[cell.data] if cell.data in FILES else None
    if path and cell.records:
        folder = work / f"{cell.data}-{cell.records}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "part.npz"
        if not path.exists():
            part_of(Run(cell.data, FILES[cell.data], cell.records, ""), data, folder)
    out = work / "run"
    shutil.rmtree(out, ignore_errors=True)
    document = run(parse(cell.config(seed, path)), out, lambda _, __: nullcontext(lambda: None), tell=lambda _: None)
    weights = {model: round(value, 3) for model, value in document.run.weights_per_member.items()}
    accuracy = {side: ends(estimate) for side, estimate in document.run.accuracy.items()}
    found = {model: judged(out, model) for model in ("local", "global")}
    return {"weights": weights, "accuracy": accuracy, "seconds": round(time.perf_counter() - started)} | found


def stored() -> dict[str, Any]:
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def store(content: dict[str, Any]) -> None:
    lines = (f"{json.dumps(name)}: {json.dumps(cell, separators=(',', ':'))}" for name, cell in content.items())
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def measure(beginnings: list[str], data: Path, work: Path) -> None:
    for cell, seed in ((cell, seed) for seed in range(3) for cell in CELLS if seed in SEEDS.get(cell.group, range(3))):
        name = cell.name(seed)
        if name not in stored() and (not beginnings or any(name.startswith(b) for b in beginnings)):
            found = made(cell, seed, data, work)
            store(stored() | {name: found})
            print(name, found["weights"], f"{found['seconds']} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "tables"])
    parser.add_argument("beginnings", nargs="*", help="of the names of cells; none: all")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--work", type=Path, default=Path("matched-map"), help="for parts of the data, and runs")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "run":
        measure(given.beginnings, given.data, given.work)


if __name__ == "__main__":
    main()
