"""Makes the table "The product on other data and models" of docs/matched-filter.md: `fedaudit run` with a
configuration, as anybody would start it, one run for each line.

    python docs/make_matched_runs.py run NAME... --data FOLDER --out FOLDER
    python docs/make_matched_runs.py table --out FOLDER

FOLDER with the data: cifar100.npz, mnist.npz, adult.npz and shakespeare_roles.json.gz. Of each data set a part is taken
(so many at random; of Shakespeare's roles twenty records each), so that a run takes one to three minutes. Pictures of
`cifar100-mlp` come from an npz file in which every channel has mean 0 and standard deviation 1. Each run has a folder
with its configuration beside it; one that is finished is not made again.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

HERE = Path(__file__).parent
ATTACKS = '["matched-filter", "round-gain", "fta-confidence", "loss"]'


def small_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """For CIFAR-100: conv 16, conv 32, linear 2048-128-100."""
    layers: list[nn.Module] = []
    for before, after in ((input_shape[0], 16), (16, 32)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 128), nn.ReLU(), nn.Linear(128, classes))


@dataclass(frozen=True)
class Run:
    data: str  # name in the configuration
    file: str
    records: int
    model: str  # lines of [model]
    rounds: int = 5
    epochs: int = 1
    batch: int = 32
    more: str = ""  # further lines of [data]

    def toml(self, path: Path) -> str:
        return f"""[data]
name = "{self.data}"
path = "{path.name}"
{self.more}
[federation]
parties = 4
members = 0.25
nonmembers = 0.25
rounds = {self.rounds}
local_epochs = {self.epochs}
batch_size = {self.batch}

[model]
{self.model}

[audit]
attacks = {ATTACKS}
"""


RUNS = {
    "cifar100-mlp": Run("npz", "cifar100.npz", 16000, 'name = "mlp"\nhidden = [256, 128]', 10),
    "cifar100-mlp-raw": Run("cifar100", "cifar100.npz", 16000, 'name = "mlp"\nhidden = [256, 128]', 10),
    "cifar100-own-cnn": Run("cifar100", "cifar100.npz", 8000, 'name = "make_matched_runs:small_cnn"', epochs=4),
    "cifar100-cnn": Run("cifar100", "cifar100.npz", 4000, 'name = "cnn"'),
    "cifar100-resnet20": Run("cifar100", "cifar100.npz", 1600, 'name = "resnet20"', 3),
    "mnist-mlp": Run("mnist", "mnist.npz", 8000, 'name = "mlp"'),
    "adult-mlp": Run("adult", "adult.npz", 8000, 'name = "mlp"'),
    "shakespeare-lstm": Run(
        "shakespeare", "shakespeare_roles.json.gz", 1600, 'name = "lstm"\nunits = 64', 5,
        more="length = 80",
    ),
}  # fmt: skip


def part_of(run: Run, data: Path, out: Path) -> Path:
    """So many records of the data set, in the format in which it is stored."""
    rng = np.random.default_rng(0)
    source = data / run.file
    if source.suffix == ".gz":
        plays = json.loads(gzip.decompress(source.read_bytes()))
        texts = {role: "\n".join(speeches)[: 20 * 81] for role, speeches in sorted(plays.items())}
        roles = rng.permutation([role for role, text in texts.items() if len(text) == 20 * 81])[: run.records // 20]
        path = out / "part.json"
        path.write_text(json.dumps({role: [texts[role]] for role in roles.tolist()}))
        return path
    with np.load(source, allow_pickle=False) as stored:
        arrays = dict(stored)
    size = {name: len(values) for name, values in arrays.items() if values.ndim}
    if "x_train" in arrays:
        keep = np.sort(rng.permutation(size["x_train"] + size["x_test"])[: run.records])
        for name in ("x", "y", "writer"):
            if f"{name}_train" in arrays:
                both = np.concatenate([arrays.pop(f"{name}_train"), arrays.pop(f"{name}_test")])[keep]
                arrays |= {f"{name}_train": both[:-1], f"{name}_test": both[-1:]}
                arrays |= {name: both} if run.data == "npz" else {}
        if run.data == "npz":
            x = arrays["x"].transpose(0, 3, 1, 2).astype(np.float32)
            x = (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)
            arrays = {"x": x, "y": arrays["y"]}
    else:
        keep = np.sort(rng.permutation(size["y"])[: run.records])
        arrays = {name: a[keep] if name in ("numeric", "categorical", "y") else a for name, a in arrays.items()}
    path = out / "part.npz"
    np.savez(path, **arrays)
    return path


def make(name: str, data: Path, out: Path) -> None:
    run, folder = RUNS[name], out / name
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "fedaudit.toml"
    if not config.exists():
        config.write_text(run.toml(part_of(run, data, folder)))
    command = [sys.executable, "-m", "fedaudit", "run", str(config), "--out", str(folder / "run")]
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": path})


def ends(found: dict[str, Any]) -> str:
    if found["value"] is None:
        return "–"
    return f"{100 * found['value']:.1f} ({100 * found['low']:.1f}–{100 * found['high']:.1f})"


def table(out: Path) -> None:
    print("| run | weights per member | seen | members | matched filter | realised FPR | AUC | the strongest other |")
    print("|---" * 8 + "|")
    for name in RUNS:
        path = out / name / "run" / "results.json"
        if not path.exists():
            continue
        document = json.loads(path.read_text())
        pooled = [entry for entry in document["results"] if entry["party"] is None]
        for model in ("local", "global"):
            mine = [e for e in pooled if e["model"] == model and "tpr@0.01" in e["estimates"]]
            found = {e["attack"]: e["estimates"] for e in mine}
            ours = found.pop("matched-filter")
            tpr = ours["tpr@0.01"]
            best = max(found, key=lambda attack: found[attack]["tpr@0.01"]["value"] or 0)
            weights = document["run"]["weights_per_member"][model]
            low, high = tpr["realised_fpr_interval"] or (None, None)
            realised = ends({"value": tpr["realised_fpr"], "low": low, "high": high})
            print(
                f"| {name} | {weights:.0f} | {model} | {tpr['n_pos']} | {ends(tpr)} | {realised} "
                f"| {ours['auc']['value']:.3f} | {best} {ends(found[best]['tpr@0.01'])} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("names", nargs="*", help=f"none: all; or of {', '.join(RUNS)}")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.what == "run":
        for name in given.names or RUNS:
            make(name, given.data, given.out)
    table(given.out)


if __name__ == "__main__":
    main()
