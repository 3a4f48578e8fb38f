"""Makes the figures of docs/incoming.md: how often honest models are flagged, and prepared ones are not.

    python docs/make_incoming.py limits --data FOLDER    # the figures of the models that the limits were set on
    python docs/make_incoming.py report --data FOLDER    # false alarms and tricks, on other data

FOLDER holds adult.npz, mnist.npz, hapt_windows.npz and cifar10.npz (docs/figures.md); what is not there is left out. A
federation of two parties with 200 records each makes 8 rounds of one epoch; the models that a third party receives in
rounds 1, 2, 4 and 9 are looked at with 300 records of its own. Models and optimisers change from seed to seed. The
server tunes its tricks on 300 other records.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedaudit.data.records import dataset
from fedaudit.federation.simulate import Trainer, federate
from fedaudit.learn.tasks import TorchTask, Training, build_task
from fedaudit.questions.update.incoming import LIMITS, Incoming, SeenLayer, figures_of, layers_of, suspicious
from fedaudit.questions.update.tampering import Trick, tampered
from fedaudit.stats import clopper_pearson
from fedaudit.types import Dataset, Floats, Plan, State

ROUNDS, STAGES = 8, (0, 1, 3, 8)
SET_ON = ("baskets", "adult", "mnist", "breast-cancer")
REPORTED = ("digits", "hapt", "cifar10")
MODELS = (("mlp", {"hidden": [512, 256, 128]}), ("mlp", {"hidden": [128]}), ("mlp", {"hidden": [256, 64]}))
TRICKS: tuple[tuple[Trick, float], ...] = (("imprint", 0.0), ("imprint", 0.5), ("trap", 0.0), ("fishing", 0.0))


def of_data(name: str, folder: Path) -> Dataset | None:
    if name == "cifar10":
        path = folder / "cifar10.npz"
        if not path.is_file():
            return None
        with np.load(path, allow_pickle=False) as file:
            x = file["x_test"].transpose(0, 3, 1, 2).astype(np.float32) / 255
            return dataset(name, x, file["y_test"])
    from make_inputs import of_data as others  # beside this script

    found: Dataset | None = others(name, folder)
    return found


@dataclass(frozen=True)
class Federation:
    """The models that a third party received, with what earlier ones said of each; and records of two outsiders."""

    task: TorchTask
    models: list[State]
    alarms: list[list[str]]
    own: Floats
    server: Floats


def federation(data: Dataset, seed: int) -> Federation:
    rng = np.random.default_rng([seed, 5])
    records, order = data.records, rng.permutation(len(data.records))
    each = 200 if len(records) > 1500 else 80
    kind, options = MODELS[seed % len(MODELS)]
    if data.name == "cifar10" and seed % 2:
        kind, options = "cnn", {}
    task = build_task(kind, data.input_shape, data.classes, options)
    how = Training("sgd", 0.1, 1, 64) if seed % 2 else Training("adam", 1e-3, 1, 64)
    parties = [Trainer(f"p{k}", records.take(np.sort(order[k * each : (k + 1) * each])), how) for k in range(2)]
    rest = records.x[order[2 * each :]]
    half = min(300, len(rest) // 2)
    models = [task.initial(seed)]
    models += [made.aggregate for made in federate(task, parties, [Plan(("p0", "p1"))] * ROUNDS, seed)]
    seen, alarms = Incoming(), []
    for model in models:
        found, seen = seen.look(model, layers_of(task, model, rest[:half]))
        alarms.append([alarm.figure for alarm in found])
    return Federation(task, models, alarms, rest[:half], rest[half : 2 * half])


def worlds(names: tuple[str, ...], folder: Path, seeds: int) -> Iterator[tuple[str, Federation]]:
    for name in names:
        data = of_data(name, folder)
        for seed in range(seeds) if data is not None else ():
            assert data is not None
            yield name, federation(data, seed)


def limits(folder: Path, seeds: int) -> None:
    most: dict[str, float] = {}
    flagged = looked = 0
    for _, world in worlds(SET_ON, folder, seeds):
        for stage in STAGES:
            for layer in layers_of(world.task, world.models[stage], world.own):
                for figure, value in figures_of(layer).items():
                    most[figure] = max(most.get(figure, 0.0), value)
            flagged, looked = flagged + bool(world.alarms[stage]), looked + 1
    print(f"{looked} models of {', '.join(SET_ON)}: {flagged} flagged. The largest figures, and the limits:")
    for figure, value in most.items():
        print(f"| {figure} | {value:.3g} | {dict(LIMITS)[figure]:g} |")


# ------------------------------------------------------------------ tricks that were made quieter


def quieter(world: Federation, model: State, own: list[SeenLayer], rng: np.random.Generator) -> dict[str, State]:
    first, last = own[0], own[-1]
    weight, bias = f"{first.name}.weight", f"{first.name}.bias"
    whole = tampered("imprint", model, own, rng)
    few = np.arange(len(first.weight)) % 25 == 0
    mixed = {
        weight: np.where(few[:, None], whole[weight], model[weight]),
        bias: np.where(few, whole[bias], model[bias]),
    }
    fished = tampered("fishing", model, own, rng)
    rows = f"{last.name}.weight"
    soft = {rows: np.where(fished[rows] == 0, 0.2 * model[rows], model[rows]).astype(np.float32)}
    trap = tampered("trap", model, own, rng)
    untuned = {weight: trap[weight], bias: model[bias]}
    return {
        "imprint in one unit of 25": {**model, **mixed},
        "fishing, other rows at a fifth": {**model, **soft},
        "trap weights without a tuned bias": {**model, **untuned},
    }


def report(folder: Path, seeds: int) -> None:
    honest: Counter[str] = Counter()
    of: Counter[str] = Counter()
    why: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for name, world in worlds(REPORTED, folder, seeds):
        for stage in STAGES:
            model = world.models[stage]
            honest[name] += bool(world.alarms[stage])
            why.update(set(world.alarms[stage]))
            of[name] += 1
            rng = np.random.default_rng(stage)
            own = layers_of(world.task, model, world.server)
            if len(own) < 2:  # a convolutional model with one dense layer: no trick is written for it
                continue
            bad = {f"{t}{', noise' if noise else ''}": tampered(t, model, own, rng, noise) for t, noise in TRICKS}
            for trick, state in (bad | quieter(world, model, own, rng)).items():
                tried[trick] += 1
                caught[trick] += bool(suspicious(layers_of(world.task, state, world.own)))
    print("| honest models | flagged |\n|---|---|")
    for name, many in of.items():
        print(f"| {name} | {counted(honest[name], many)} |")
    print(f"| all | {counted(sum(honest.values()), sum(of.values()))} |  (by {dict(why)})\n")
    print("| trick | caught |\n|---|---|")
    for trick, many in tried.items():
        print(f"| {trick} | {counted(caught[trick], many)} |")


def counted(hits: int, of: int) -> str:
    """A count with the 95 % interval of its share (Clopper-Pearson)."""
    low, high = clopper_pearson(hits, of, 0.025, 0.025)
    return f"{hits} of {of} ({100 * low:.0f}–{100 * high:.0f} %)"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["limits", "report"])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, default=9)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    (limits if asked.what == "limits" else report)(asked.data, asked.seeds)


if __name__ == "__main__":
    main()
