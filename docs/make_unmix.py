"""Makes the tables of docs/unmix.md: unmix beside the matched filter, on other data and models, with fewer of the
members among the candidates, and under noise.

    python docs/make_unmix.py run [BEGINNING...] --data FOLDER --work FOLDER
    python docs/make_unmix.py null [BEGINNING...] --data FOLDER
    python docs/make_unmix.py chosen [NAMES...] --data FOLDER
    python docs/make_unmix.py ridges [--seed 102]
    python docs/make_unmix.py tables

Each cell is a run of fedaudit with a configuration; what it measured is in docs/unmix_map.json, and a cell that is
there is not run again. In a cell of the null the parties train on other records than those that are asked about.
FOLDER with the data: adult.npz, mnist.npz, cifar10.npz, cifar100.npz. Seconds to two minutes a cell on one core.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from make_matched import CALIBRATION, EVALUATION, MEMBER, World
from make_matched_map import ends, sides_of
from matched_cells import Cell as Light
from matched_cells import Training
from scipy import stats

from fedaudit.adversary.signals import matched, unmix
from fedaudit.config.schema import parse
from fedaudit.results.document import load
from fedaudit.results.scores import blocks_of, load_scores
from fedaudit.session.run import run
from fedaudit.stats import Block, auc, auc_difference, tpr_at_fpr, tpr_difference
from fedaudit.stats.wording import full_text
from fedaudit.types import Records

STORED = Path(__file__).with_name("unmix_map.json")
FPR = 0.01
COVERED = ("0.5", "0.2", "0.05")
OTHERS = ("matched-filter", "matched-filter+layer=all", "gradient-cosine", "fta-confidence", "round-gain", "loss")
PEOPLE = {"partition": "subjects", "member_subjects": 0.4, "nonmember_subjects": 0.25}


@dataclass(frozen=True)
class Cell:
    group: str
    data: str
    model: dict[str, Any]
    limit: int
    federation: dict[str, Any] = field(default_factory=dict)
    defence: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> str:
        return "-".join(map(str, self.model["hidden"])) if "hidden" in self.model else str(self.model["name"])

    @property
    def people(self) -> bool:
        return "partition" in self.federation

    def name(self, seed: int) -> str:
        rest = [f"{key}={value}" for key, value in self.federation.items() if key not in PEOPLE]
        noise = (
            [f"{self.defence['name']}={self.defence.get('strength') or self.defence['noise']}"] if self.defence else []
        )
        return "/".join([self.group, self.data, self.shape, str(self.limit), *rest, *noise, f"seed={seed}"])

    def config(self, seed: int, folder: Path) -> dict[str, Any]:
        data: dict[str, Any] = {"name": self.data, "limit": self.limit}
        if self.data == "small-cifar":  # CIFAR-10 with 8 x 8 pixels
            options = {"path": str(folder / "cifar10.npz")}
            data |= {"name": "make_matched_map:small_cifar", "options": options}
        elif self.data != "baskets":
            data["path"] = str(folder / f"{self.data}.npz")
        usual = {} if self.people else {"members": 0.35, "nonmembers": 0.25}
        named = ["unmix", *(f"unmix+coverage={share}" for share in COVERED), *OTHERS]
        if self.group == "pictures":  # these take longer
            named = ["unmix", "unmix+coverage=0.2", *(name for name in OTHERS if name != "loss")]
        if self.people:
            named = ["subject-unmix", "subject-matched", "subject-cosine", "subject-fta", "subject-loss"]
        given = {"parties": 2, "rounds": 4, "seed": seed} | usual | self.federation
        return {"data": data, "federation": given, "model": self.model, "audit": {"attacks": named},
                "defences": [self.defence] if self.defence else []}  # fmt: skip


def mlp(*hidden: int) -> dict[str, Any]:
    return {"name": "mlp", "hidden": list(hidden)}


def noise(strength: float) -> dict[str, Any]:
    return {"name": "update-noise", "strength": strength}


CELLS = [
    *(Cell("pictures", "small-cifar", {"name": name}, 500, {"rounds": 3}) for name in ("resnet8", "cnn")),
    Cell("tables", "adult", mlp(16), 500, {"rounds": 2}),
    Cell("pictures", "cifar100", {"name": "resnet20"}, 320, {"rounds": 2}),
    Cell("noise", "baskets", mlp(256), 800, {"rounds": 6}, noise(10.0)),
    Cell("tables", "adult", mlp(64), 1000, {"rounds": 3}),
    Cell("pictures", "cifar100", {"name": "cnn"}, 480, {"rounds": 2}),
    *(Cell("tables", "baskets", mlp(width), 1000, {"rounds": 3}) for width in (8, 1, 32)),
    Cell("tables", "mnist", mlp(64), 1000, {"rounds": 3}),
    Cell("noise", "baskets", mlp(64), 800, {"rounds": 4}, {"name": "dp-sgd", "noise": 0.3, "clip": 1.0}),
    Cell("noise", "baskets", mlp(256), 800, {"rounds": 4}, noise(3.0)),
    Cell("people", "baskets", mlp(32), 1500, PEOPLE | {"rounds": 3}),
    Cell("tables", "baskets", mlp(1), 5000, {"rounds": 3}),
    Cell("tables", "baskets", mlp(512, 256, 128), 2000, {"rounds": 2}),
]
SEEDS = range(3)


# ------------------------------------------------------------------ measuring


def judged(folder: Path, model: str) -> dict[str, Any]:
    """Every attack, and beside it the lead of unmix on the same records."""
    scores = load_scores(folder)
    assert scores is not None
    names = sorted({*scores["attack"][scores["model"] == model].tolist()} - {"blind"})
    own = next(name for name in ("unmix", "subject-unmix") if name in names)
    blocks = {name: blocks_of(scores, name, model) for name in names}
    found: dict[str, Any] = {
        "members, calibration, evaluation": [
            sum(len(side) for side in sides) for sides in zip(*map(sides_of, blocks[own]), strict=True)
        ]
    }
    for name, of in blocks.items():
        rate, kept = tpr_at_fpr(of, FPR), (blocks[own], of)
        found[name] = {
            "auc": ends(auc(of)),
            "tpr": ends(rate),
            "fpr": rate.realised_fpr and round(rate.realised_fpr, 4),
        }
        if name != own:
            found[name]["auc lead"] = ends(auc_difference(blocks[own], of, 0.95))
            found[name]["tpr lead"] = ends(tpr_difference(*kept, FPR, 0.95))
    return found


def made(cell: Cell, seed: int, data: Path, work: Path) -> dict[str, Any]:
    started = time.process_time()
    work.mkdir(parents=True, exist_ok=True)
    out = Path(tempfile.mkdtemp(dir=work))
    asked = parse(cell.config(seed, data))
    document = run(asked, out, lambda _, __: nullcontext(lambda: None), tell=lambda _: None)
    weights = {model: round(value, 3) for model, value in document.run.weights_per_member.items()}
    pooled = [result for result in document.results if result.party is None]
    explained = {f"{one.attack}, {one.model}": [round(value or 0.0, 3) for value in one.curves["explained"].value]
                 for one in pooled if "explained" in one.curves}  # fmt: skip
    cost = {f"{one.attack}, {one.model}": round(one.cost.epochs, 2) for one in pooled if "unmix" in one.attack}
    found = {model: judged(out, model) for model in ("local", "global")}
    shutil.rmtree(out)
    seconds = round(time.process_time() - started)
    return {"weights": weights, "explained": explained, "cost": cost, "seconds": seconds} | found


def stored() -> dict[str, Any]:
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def store(name: str, cell: Any) -> None:
    content = stored() | {name: cell}
    lines = (f"{json.dumps(key)}: {json.dumps(of, separators=(',', ':'))}" for key, of in sorted(content.items()))
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def measure(beginnings: list[str], data: Path, work: Path) -> None:
    for cell, seed in ((cell, seed) for seed in SEEDS for cell in CELLS):
        name = cell.name(seed)
        if name not in stored() and (not beginnings or any(name.startswith(b) for b in beginnings)):
            store(name, made(cell, seed, data, work))
            print(name, flush=True)


# ------------------------------------------------------------------ the null

FEW = Light("baskets", (150, 0, 150, 150), options={"hidden": (32,)}, parties=2, rounds=2, null=True, looked_at=2)
NULLS = {
    "mlp": FEW,
    "noise 10": replace(FEW, update_noise=10.0),
    "cnn": Light("cifar10", (60, 0, 60, 60), "small-cnn", parties=2, rounds=1, null=True, looked_at=1,
                 training=Training("adam", 1e-3, 1, 32)),
}  # fmt: skip


def nothing(cell: Light, data: Path) -> dict[str, Any]:
    """AUC, TPR and realised FPR of unmix where none of the candidates was trained on: local and global models."""
    world = World.of(cell, data)
    names = list(world.rows)[: cell.looked_at]
    series: dict[str, list[Any]] = {}
    for round_ in world.rounds():
        for name in (*names, "global"):
            mine = names if name == "global" else [name]
            rows = [world.rows[one] for one in mine]
            x, y, id = (np.concatenate([getattr(one, key) for one in rows]) for key in ("x", "y", "id"))
            sent = round_.aggregate if name == "global" else round_.sent[name].state
            series.setdefault(name, []).append(_of_round(world, cell, Records(x, y, id), round_.broadcast, sent))
    scores = {name: np.mean(of, axis=0) for name, of in series.items()}
    local = [_block(scores[name], world.role) for name in names]
    found = {"local": local, "global": [_block(scores["global"], np.tile(world.role, len(names)))]}
    return {model: _rates(of) for model, of in found.items()}


def _of_round(world: World, cell: Light, rows: Records, received: Any, sent: Any) -> Any:
    module = world.task.fresh(matched.halfway(received, sent))
    update = {name: torch.from_numpy(received[name] - sent[name]) for name, _ in module.named_parameters()}
    damping, ridge = (10.0, 1.0) if cell.update_noise else (1.0, 0.1)
    x, y = torch.from_numpy(rows.x), torch.from_numpy(rows.y)
    setup = unmix.prepare(module, world.task.losses, x, y, damping=damping, ridge=ridge, sketch=80, adaptive=True)
    return matched.standardised(unmix.unmix(setup, module, update).score, slice(None)).numpy()


def _block(score: Any, role: Any) -> Block:
    return Block(score[role == MEMBER], score[role == EVALUATION], score[role == CALIBRATION])


def _rates(blocks: list[Block]) -> dict[str, Any]:
    area, rate = auc(blocks), tpr_at_fpr(blocks, FPR)
    return {"auc": ends(area), "tpr": ends(rate), "fpr": rate.realised_fpr}


def measure_null(beginnings: list[str], data: Path) -> None:
    for name, cell in NULLS.items():
        for seed in range(20):
            key = f"null/{name}/seed={seed}"
            if key not in stored() and (not beginnings or any(key.startswith(b) for b in beginnings)):
                store(key, nothing(replace(cell, seed=seed), data))
        print(name, flush=True)


# ------------------------------------------------------------------ what the rules were chosen by

DRAFT = Light("baskets", (350, 0, 250, 250), rounds=2, seed=100, looked_at=1)
DRAFTS = {
    "plain": DRAFT,
    "narrow": replace(DRAFT, options={"hidden": (16,)}, rounds=5),
    "noise": replace(DRAFT, options={"hidden": (256,)}, update_noise=10.0, rounds=4),
    "dp": replace(DRAFT, noise=0.3, rounds=4),
    "adult": replace(DRAFT, data="adult", rounds=4),
    "mnist": replace(DRAFT, data="mnist", rounds=3),
    "sgd": replace(DRAFT, training=Training("sgd", 0.1, 1, 64)),
}


def chosen(names: list[str], data: Path) -> None:
    """One party's candidates, by its local models and by the global ones: AUC and TPR of each way of scoring."""
    for name in names or DRAFTS:
        world, found = World.of(DRAFTS[name], data), dict[tuple[str, str], list[Any]]()
        party, rows = next(iter(world.rows.items()))
        for round_ in world.rounds():
            for model, sent in (("local", round_.sent[party].state), ("global", round_.aggregate)):
                for way, score in _ways(world, rows, round_.broadcast, sent):
                    found.setdefault((model, way), []).append(score)
        for (model, way), series in found.items():
            block = _block(np.mean(series, axis=0), world.role)
            area, rate = auc([block]).value, tpr_at_fpr([block], FPR).value
            print(f"{name} {model} {way}: AUC {area:.3f}, TPR {100 * (rate or 0.0):.1f}", flush=True)


def _ways(world: World, rows: Records, received: Any, sent: Any) -> Iterator[tuple[str, Any]]:
    module = world.task.fresh(matched.halfway(received, sent))
    update = {name: torch.from_numpy(received[name] - sent[name]) for name, _ in module.named_parameters()}
    x, y = torch.from_numpy(rows.x), torch.from_numpy(rows.y)
    adam = world.cell.training.optimizer == "adam"
    given = {"losses": world.task.losses, "x": x, "y": y}
    for layer in (None, matched.largest_linear(module)):
        for damping in (0.1, 1.0, 10.0, torch.inf):
            setup = unmix.prepare(module, **given, damping=damping, ridge=0.1, sketch=80, layer=layer, adaptive=adam)
            blocks = unmix.templates(setup, module, update)
            for ridge in (0.1, 1.0, 10.0):
                of = unmix.regression(blocks, ridge, len(x))
                where = f"{layer or 'all layers'}, damping {damping:g}, ridge {ridge:g}"
                yield f"{where}, coefficient", matched.standardised(of.coefficient, slice(None)).numpy()
                yield f"{where}, over its error", matched.standardised(of.score, slice(None)).numpy()
    every = torch.arange(len(x))
    for damping, undone in ((0.1, adam), (1.0, False), (10.0, False)):
        prepared = matched.prepare(module, **given, fitting=every, damping=damping, layer=layer, adaptive=undone)
        of_layer = matched.statistics(prepared, module, {name: one[None] for name, one in update.items()})
        score = matched.standardised(matched.scores(of_layer)[:, 0, 0], every).numpy()
        yield f"matched filter, damping {damping:g}{', Adam undone' if undone else ''}", score


# How much ridge under noise: few members, and noise that is as strong for them as 5 and 10 norms are for 6,000.
RIDGES = tuple(f"unmix+damping={damping}+ridge={ridge:g}" for damping in (1, 10, 100) for ridge in (0.1, 1.0, 10.0))
UNDER_NOISE: dict[str, tuple[float, dict[str, Any]]] = {
    "20 norms, SGD": (20.0, {"optimizer": "sgd", "lr": 0.3}),
    "20 norms, Adam": (20.0, {"lr": 0.001}),
    "40 norms, SGD": (40.0, {"optimizer": "sgd", "lr": 0.3}),
}


def ridges(seed: int) -> None:
    """By what global models give away."""
    for name, (strength, training) in UNDER_NOISE.items():
        config = parse({
            "data": {"name": "baskets", "limit": 1200},
            "federation": {"rounds": 12, "seed": seed, **training},
            "model": {"hidden": [128]},
            "defences": [{"name": "update-noise", "strength": strength}],
            "audit": {"attacks": [*RIDGES, "matched-filter+damping=10"], "vantages": ["client"], "fpr": [0.05]},
        })  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            run(config, Path(folder) / "run", lambda *_: nullcontext(lambda: None), tell=lambda _: None)
            found = load(Path(folder) / "run")
        print(f"{name}: {full_text('accuracy', found.accuracy)}", flush=True)
        for result in (r for r in found.results if r.party is None and "tpr@0.05" in r.estimates):
            told = [full_text(key, result.estimates[key]) for key in ("auc", "tpr@0.05")]
            print(f"  {result.attack}: {'; '.join(told)}", flush=True)


# ------------------------------------------------------------------ tables


def of_group(group: str) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Cell by cell, local and global models: what its seeds found."""
    for cell in (cell for cell in CELLS if cell.group == group):
        runs = [stored()[name] for seed in SEEDS if (name := cell.name(seed)) in stored()]
        for model in ("local", "global") if runs else ():
            yield cell.name(0).split("/", 1)[1].rpartition("/")[0], model, [{**run[model], "run": run} for run in runs]


def mean(runs: list[dict[str, Any]], attack: str, key: str, percent: bool = False) -> str:
    values = [run[attack][key] for run in runs if attack in run and run[attack].get(key)]
    if not values:
        return "–"
    scale, digits = (100, 1) if percent else (1, 3)
    sign = "+" if "lead" in key else ""
    shown = f"{scale * np.mean([v[0] for v in values]):{sign}.{digits}f}"
    low, high = (scale * f(v[i] for v in values) for f, i in ((min, 1), (max, 2)))
    return f"{shown} ({low:{sign}.{digits}f} to {high:{sign}.{digits}f})"


def tables() -> None:
    for group in ("tables", "pictures", "noise", "people"):
        own, other = ("subject-unmix", "subject-matched") if group == "people" else ("unmix", "matched-filter")
        print(f"\n**{group}**\n")
        head(
            "data, model, records (runs)", "seen", "weights per member", "explained", "unmix, AUC", "filter, AUC",
            "lead", "unmix, TPR at 1 %", "filter, TPR", "lead", "realised FPR",
        )  # fmt: skip
        for name, model, runs in of_group(group):
            weights = np.mean([run["run"]["weights"][model] for run in runs])
            said = [np.mean(run["run"]["explained"][f"{own}, {model}"]) for run in runs
                    if f"{own}, {model}" in run["run"]["explained"]]  # fmt: skip
            fpr = np.mean([run[own]["fpr"] or 0.0 for run in runs])
            cells = [
                f"{name} ({len(runs)})", model, f"{weights:.2g}", f"{np.mean(said):.2f}" if said else "–",
                mean(runs, own, "auc"), mean(runs, other, "auc"), mean(runs, other, "auc lead"),
                mean(runs, own, "tpr", True), mean(runs, other, "tpr", True), mean(runs, other, "tpr lead", True),
                f"{100 * fpr:.1f}",
            ]  # fmt: skip
            print("| " + " | ".join(cells) + " |")
    print("\n**coverage**: AUC\n")
    head("data, model, records (runs)", "seen", "100 %", "50 %", "20 %", "5 %", "matched filter", "over all layers")
    for group in ("tables", "pictures", "noise"):
        for name, model, runs in of_group(group):
            attacks = ["unmix", *(f"unmix+coverage={share}" for share in COVERED), *OTHERS[:2]]
            print(f"| {name} ({len(runs)}) | {model} | " + " | ".join(mean(runs, a, "auc") for a in attacks) + " |")
    print("\n**null**: mean over the seeds with its 95 % interval\n")
    head("setting", "seen", "seeds", "AUC", "TPR at 1 %, %", "realised FPR, %", "intervals with AUC 0.5")
    for name in NULLS:
        for model in ("local", "global"):
            found = [cell[model] for key, cell in stored().items() if key.startswith(f"null/{name}/")]
            if found:
                held = sum(f["auc"][1] <= 0.5 <= f["auc"][2] for f in found)
                rates = [100 * f["tpr"][0] for f in found if f["tpr"]], [100 * f["fpr"] for f in found if f["tpr"]]
                shown = " | ".join(over_seeds(values) for values in ([f["auc"][0] for f in found], *rates))
                print(f"| {name} | {model} | {len(found)} | {shown} | {held} of {len(found)} |")


def head(*columns: str) -> None:
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")


def over_seeds(values: list[float]) -> str:
    """Student's t."""
    if len(values) < 2:
        return "–"
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):.3f} ± {half:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "null", "chosen", "ridges", "tables"])
    parser.add_argument("beginnings", nargs="*")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "make_unmix")
    parser.add_argument("--seed", type=int, default=102)
    given = parser.parse_args()
    if given.what == "run":
        measure(given.beginnings, given.data, given.work)
    elif given.what == "null":
        measure_null(given.beginnings, given.data)
    elif given.what == "chosen":
        chosen(given.beginnings, given.data)
    elif given.what == "ridges":
        ridges(given.seed)
    else:
        tables()


if __name__ == "__main__":
    main()
