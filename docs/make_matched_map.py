"""Makes the section "Weights for each member: the map" of docs/matched-filter.md: with few weights for each member, is
the matched filter ahead of every other attack that an audit runs by default?

    python docs/make_matched_map.py run [BEGINNING...] --data FOLDER --work FOLDER
    python docs/make_matched_map.py tables

Each cell is a run of fedaudit with a configuration, all default attacks, and for each of them the difference to the
filter on the same records (the others share the error of its interval). FOLDER with the data: adult.npz, mnist.npz,
hapt_windows.npz, cifar10.npz, cifar100.npz. What was measured is in docs/matched_map.json; a cell that is there is not
run again. Five to sixty seconds each on one core.
"""

import argparse
import json
import shutil
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from make_matched_runs import Run, part_of

from fedaudit.config.schema import parse
from fedaudit.results.scores import blocks_of, load_scores
from fedaudit.session.run import run
from fedaudit.stats import auc, auc_difference, tpr_at_fpr, tpr_difference
from fedaudit.types import Estimate

STORED = Path(__file__).with_name("matched_map.json")
MODULE = Path(__file__).stem
FPR = 0.01
FILTERS = ("matched-filter", "subject-matched")
PEOPLE = {"partition": "subjects", "member_subjects": 0.4, "nonmember_subjects": 0.25}
FILES = {"adult": "adult.npz", "mnist": "mnist.npz", "hapt": "hapt_windows.npz", "cifar10": "cifar10.npz"}
DIGITS, CIFAR, CIFAR100 = (f"{MODULE}:small_{name}" for name in ("digits", "cifar", "cifar100"))
FILES |= {CIFAR: "cifar10.npz", CIFAR100: "cifar100.npz"}


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
        data: dict[str, Any] = {"name": self.data}
        if path:
            data |= {"options": {"path": str(path)}} if ":" in self.data else {"path": str(path)}
        return {"data": data, "federation": given, "model": self.model}


def small_digits() -> tuple[Any, Any]:
    """The digits of scikit-learn as pictures, for a convolutional network."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return (x / 16).reshape(-1, 1, 8, 8).astype(np.float32), y


def small_cifar(path: str) -> tuple[Any, Any]:
    """CIFAR with 8 x 8 pixels, each the mean of sixteen: a network with few weights in its head learns it by heart
    in seconds."""
    with np.load(path, allow_pickle=False) as stored:
        x = np.concatenate([stored["x_train"], stored["x_test"]]).astype(np.float32) / 255
        y = np.concatenate([stored["y_train"], stored["y_test"]])
    return x.reshape(-1, 8, 4, 8, 4, 3).mean((2, 4)).transpose(0, 3, 1, 2), y


small_cifar100 = small_cifar  # in files of the same form


def mlps(*widths: int) -> list[dict[str, Any]]:
    return [{"name": "mlp", "hidden": [width]} for width in widths]


LINEAR, RESNET, CNN = {"name": "linear"}, {"name": "resnet8"}, {"name": "cnn"}
HALF = {"members": 0.5, "nonmembers": 0.2}
MOST = {"members": 0.4, "nonmembers": 0.3}
LONG = {"rounds": 40}
LEARNT = {"rounds": 20, "local_epochs": 5}  # few members, learnt by heart
DEEP = {"rounds": 8, "local_epochs": 4}
LONGER, FAST = {"rounds": 20, "local_epochs": 10}, {"lr": 0.005}
CELLS = [
    *(Cell("map", "baskets", model, 0, {"parties": 4}) for model in mlps(2, 8, 64)),
    *(Cell("map", "adult", model, 8000) for model in (*mlps(4, 16, 64, 256), LINEAR)),
    *(Cell("map", "mnist", model, 8000, HALF) for model in (*mlps(2, 4, 16, 32), LINEAR)),
    *(Cell("people", "baskets", model, 0, PEOPLE) for model in mlps(2, 8, 32)),
    *(Cell("people", "baskets", model, 0, PEOPLE | LEARNT) for model in mlps(8, 32)),
    *(Cell("held-out", "digits", model, 0, MOST) for model in (*mlps(4, 16, 128), LINEAR)),
    *(Cell("held-out", "breast-cancer", model, 0, MOST) for model in mlps(2, 8, 64)),
    *(Cell("held-out", "hapt", model, 0, {"split_subjects": True}) for model in mlps(2, 16)),
    *(Cell("held-out", "cifar10", model, 4000, MOST) for model in mlps(1, 4)),
    *(Cell("long", "baskets", model, 0, {"parties": 4} | LONG) for model in mlps(2, 8)),
    *(Cell("long", "adult", model, 8000, LONG) for model in mlps(4, 64)),
    *(Cell("long", "mnist", model, 8000, HALF | LONG) for model in mlps(2, 16)),
    *(Cell("by-heart", "baskets", model, 0, {"parties": 4, "members": 0.1} | LEARNT) for model in mlps(4, 16)),
    Cell("by-heart", "adult", mlps(32)[0], 2000, MOST | LEARNT),
    Cell("by-heart", "mnist", mlps(8)[0], 4000, MOST | LEARNT),
    Cell("by-heart", "digits", mlps(16)[0], 0, MOST | LEARNT),
    Cell("small-head", DIGITS, RESNET, 0, MOST | DEEP),
    Cell("small-head", CIFAR, RESNET, 1600, MOST | DEEP),
    Cell("small-head", CIFAR, RESNET, 1600, MOST | DEEP | {"local_epochs": 1}),
    Cell("small-head", CIFAR, RESNET, 1600, MOST | DEEP | {"members": 0.1}),
    Cell("small-head", CIFAR, RESNET, 1600, MOST | DEEP | {"members": 0.04}),
    Cell("small-head", CIFAR100, RESNET, 1600, MOST | DEEP),
    Cell("small-head", CIFAR, CNN, 1600, MOST | LONGER),
    Cell("small-head", CIFAR, CNN, 1600, MOST | LONGER | FAST),
    Cell("by-heart", CIFAR, mlps(32)[0], 1600, MOST | LONGER | {"local_epochs": 20}),
    Cell("by-heart", CIFAR, mlps(32)[0], 1600, MOST | LONGER | FAST),
]
SEEDS = {"long": (0,)}


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
    rates = {name: tpr_at_fpr(found, FPR) for name, found in blocks.items()}
    filtered, interval = rates[own], rates[own].realised_fpr_interval
    realised = [filtered.realised_fpr, *interval] if interval and filtered.realised_fpr is not None else None
    counts = [sum(len(side) for side in sides) for sides in zip(*map(sides_of, blocks[own]), strict=True)]
    found: dict[str, Any] = {
        "attack": own, "auc": ends(auc(blocks[own])), "tpr": ends(filtered), "members, calibration, evaluation": counts,
        "fpr": realised and [round(float(end), 4) for end in realised], "others": {},
    }  # fmt: skip
    for name in others:
        mine, theirs = blocks[own], blocks[name]
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
        folder = work / f"{path.stem}-{cell.records}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "part.npz"
        if not path.exists():
            part_of(Run(cell.data, FILES[cell.data], cell.records, ""), data, folder)
    work.mkdir(parents=True, exist_ok=True)
    out = Path(tempfile.mkdtemp(dir=work))
    document = run(parse(cell.config(seed, path)), out, lambda _, __: nullcontext(lambda: None), tell=lambda _: None)
    weights = {model: round(value, 3) for model, value in document.run.weights_per_member.items()}
    accuracy = {side: ends(estimate) for side, estimate in document.run.accuracy.items()}
    found = {model: judged(out, model) for model in ("local", "global")}
    shutil.rmtree(out)
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


# ------------------------------------------------------------------ tables

BINS = (0, 0.3, 1, 3, 10, 30)
GROUPS = {
    "map": "The three data sets, ten rounds of one epoch",
    "long": "The same over forty rounds",
    "by-heart": "Few members, learnt almost by heart",
    "held-out": "Held-out data",
    "people": "People (subject-matched)",
    "small-head": "Convolutional networks, whose only linear layer is a small head",
}
AHEAD = (1, 0, -1)


def verdict(found: dict[str, Any], metric: str) -> int | None:
    """Of one run: 1 if the filter is ahead of every other attack by more than its interval, -1 if one is ahead of the
    filter, 0 otherwise; None where there is no estimate."""
    if found[metric] is None:
        return None
    leads = [other[f"{metric} lead"] for other in found["others"].values() if other[f"{metric} lead"]]
    return -1 if any(high < 0 for _, _, high in leads) else int(all(low > 0 for _, low, _ in leads))


def by_weights() -> None:
    """In how many runs the filter is ahead, by weights per member."""
    told = "the filter ahead of all / not settled / another ahead"
    print(f"\n| runs | weights per member | AUC: {told} | TPR: {told} |\n|---|---|---|---|")
    for groups in (("map", "long", "by-heart"), ("held-out",), ("people",), ("small-head",)):
        for low, high in pairwise(BINS):
            found = [
                cell[model]
                for name, cell in stored().items()
                for model in ("local", "global")
                if name.split("/")[0] in groups and low <= cell["weights"][model] < high
            ]
            verdicts = ([verdict(one, metric) for one in found] for metric in ("auc", "tpr"))
            counts = [" / ".join(str(known.count(one)) for one in AHEAD) for known in verdicts]
            if found:
                print(f"| {', '.join(groups)} | {low:g} to {high:g} | {' | '.join(counts)} |")


def spread(runs: list[dict[str, Any]], metric: str) -> str:
    values = [found[metric][0] for found in runs]
    scale, digits = (100, 1) if metric in ("tpr", "fpr") else (1, 3)
    if len(runs) == 1:
        return f"{scale * values[0]:.{digits}f}"
    return "{:.{d}f} ({:.{d}f}–{:.{d}f})".format(
        *(scale * float(v) for v in (np.mean(values), min(values), max(values))), d=digits
    )


def beside(runs: list[dict[str, Any]], metric: str) -> str:
    """The filter, the other attack that is best on average, and the filter's lead over it."""
    if any(found[metric] is None for found in runs):
        return "too few to calibrate | – | –"
    # Attacks that use calibration records up may have too few left.
    names = [name for name in runs[0]["others"] if all(found["others"][name][metric] for found in runs)]
    best = max(names, key=lambda name: float(np.mean([found["others"][name][metric][0] for found in runs])))
    others = [found["others"][best] for found in runs]
    leads = np.array([other[f"{metric} lead"] for other in others]) * (100 if metric == "tpr" else 1)
    digits = 1 if metric == "tpr" else 3
    value, low, high = leads[:, 0].mean(), leads[:, 1].min(), leads[:, 2].max()
    lead = f"{value:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"
    bold = "**" if low > 0 else ""
    return f"{spread(runs, metric)} | {best} {spread(others, metric)} | {bold}{lead}{bold}"


def label(name: str, runs: int) -> str:
    """What differs between the cells of a group, and how many seeds there are."""
    group, data, *rest = name.split("/")
    same = rest[1:] if group in ("map", "held-out", "long") else [f"{key}={value}" for key, value in MOST.items()]
    told = [word.replace("_", " ").replace("=", " ") for word in rest if word not in same]
    return f"{data.removeprefix(f'{MODULE}:').replace('_', ' ')}, {', '.join(told)} ({runs})"


def tables() -> None:
    """One line for each cell and kind of model, over its seeds."""
    cells: dict[str, list[dict[str, Any]]] = {}
    for name, cell in stored().items():
        cells.setdefault(name.rpartition("/")[0], []).append(cell)
    head = "data, width (runs) | seen | weights per member | AUC | best other | lead"
    head += " | TPR at 1 % FPR | realised FPR | best other | lead"
    for group, title in GROUPS.items():
        print(f"\n**{title}**\n\n| {head} |\n" + "|---" * 10 + "|")
        mine = (name for name in cells if name.startswith(f"{group}/"))
        for name in sorted(mine, key=lambda name: (name.split("/")[1], cells[name][0]["weights"]["local"], name)):
            for model in ("local", "global"):
                runs = cells[name]
                found = [run[model] for run in runs]
                weights = f"{np.mean([run['weights'][model] for run in runs]):.2g}"
                tpr = beside(found, "tpr").split(" | ")
                realised = "–" if any(one["fpr"] is None for one in found) else spread(found, "fpr")
                first = label(name, len(runs)) if model == "local" else ""
                print(f"| {' | '.join([first, model, weights, beside(found, 'auc'), tpr[0], realised, *tpr[1:]])} |")
    by_weights()


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
    else:
        tables()


if __name__ == "__main__":
    main()
