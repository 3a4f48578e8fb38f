"""Makes the figures of docs/matched-filter.md: light federations, scored round by round by pure functions.

    python docs/make_matched.py run baskets cifar100-mlp --data FOLDER --out FOLDER
    python docs/make_matched.py tables --out FOLDER            (or false-positives, or null)

A cell (a setting with a seed) is one JSON file; one that is there is not made again. Fitting, calibration and
evaluation records are disjoint sets of every party; `fit = "all"` takes the moments from all candidates without their
labels.
FOLDER with the data: cifar10.npz, cifar100.npz, mnist.npz and adult.npz; `baskets` comes with the package.
"""

import argparse
import copy
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache, reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matched_cells import OURS, Cell, Way, cells
from scipy import special, stats
from torch import Tensor, nn

from fedaudit.adversary.signals import matched
from fedaudit.adversary.signals.outputs import rescaled_logit
from fedaudit.adversary.signals.updates import cosine, statistics, with_all
from fedaudit.config.registry import Options
from fedaudit.data import baskets
from fedaudit.defences.dp_sgd import DPSGD
from fedaudit.defences.shared import NONE, Defence, Guarded
from fedaudit.federation.simulate import Trainer, federate
from fedaudit.learn.tasks import TorchTask, build_task
from fedaudit.stats import Block, auc, tpr_at_fpr
from fedaudit.types import Floats, Ints, Party, Plan, Records, Round, State, Trained

FPR = 0.01
MEMBER, FITTING, CALIBRATION, EVALUATION = range(4)


# ------------------------------------------------------------------ the federation


@cache
def records(name: str, folder: Path) -> tuple[Floats, Ints, int]:
    if name == "baskets":
        own = baskets.load(Options(name="baskets"))
        return own.records.x.astype(np.float32), own.records.y, own.classes
    with np.load(folder / f"{name}.npz", allow_pickle=False) as stored:
        z = dict(stored)
    if name == "adult":
        numbers = (z["numeric"] - z["numeric"].mean(0)) / z["numeric"].std(0)
        hot = [np.eye(column.max() + 1)[column] for column in z["categorical"].T]
        return np.concatenate([numbers, *hot], axis=1).astype(np.float32), z["y"].astype(np.int64), 2
    x = np.concatenate([z["x_train"], z["x_test"]]).astype(np.float32) / 255
    y = np.concatenate([z["y_train"], z["y_test"]]).astype(np.int64)
    x = x[:, None] if x.ndim == 3 else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    return x, y, int(y.max()) + 1


def dealt(y: Ints, cell: Cell) -> list[Ints]:
    """The records of each party, in random order. With skew, classes come in shares that are drawn for each party."""
    rng = np.random.default_rng([cell.seed, 0])
    each = sum(cell.sizes) + cell.sizes[MEMBER] * cell.null
    order = rng.permutation(len(y))
    if not cell.skew:
        parts = [order[i * each : (i + 1) * each] for i in range(cell.parties)]
        assert len(parts[-1]) == each, "too little data for these parties"
        return parts
    left = [order[y[order] == label] for label in range(int(y.max()) + 1)]
    parts = []
    for _ in range(cell.parties):
        shares, own = rng.dirichlet(np.full(len(left), cell.skew)), np.empty(0, np.int64)
        while len(own) < each:  # a class that is used up leaves its place to the party's other classes
            open_ = shares * [len(rows) > 0 for rows in left]
            assert open_.sum() > 0, "too little data of these classes"
            for label, wanted in enumerate(rng.multinomial(each - len(own), open_ / open_.sum())):
                own, left[label] = np.append(own, left[label][:wanted]), left[label][wanted:]
        parts.append(rng.permutation(own))
    return parts


def small_cnn(classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 128), nn.ReLU(), nn.Linear(128, classes))


def without_first(module: nn.Module) -> nn.Module:
    """The same model, whose first linear layer is not trained."""
    own = copy.deepcopy(module)
    first = next(layer for layer in own.modules() if isinstance(layer, nn.Linear))
    first.requires_grad_(False)
    return own


@dataclass(frozen=True)
class World:
    cell: Cell
    task: TorchTask
    rows: dict[str, Records]  # of each party, the candidates
    role: Ints  # of each of them
    trained: dict[str, Records]  # what each party trains on

    @classmethod
    def of(cls, cell: Cell, folder: Path) -> "World":
        x, y, classes = records(cell.data, folder)
        if cell.standard:
            axes = (0, *range(2, x.ndim))
            x = ((x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)).astype(np.float32)
        parts = dealt(y, cell)
        every = {f"party-{i:02d}": Records(x[p], y[p], p.astype(np.str_)) for i, p in enumerate(parts)}
        role = np.repeat(np.arange(4), cell.sizes)
        rows = {name: own.take(np.arange(len(role))) for name, own in every.items()}
        others = np.arange(len(role), len(parts[0]))
        members = others if cell.null else np.flatnonzero(role == MEMBER)
        own = cell.model == "small-cnn"
        options = dict(cell.options)
        task = TorchTask(lambda: small_cnn(classes), classes) if own else build_task(
            cell.model, x.shape[1:], classes, options
        )  # fmt: skip
        if cell.frozen:
            whole = task.architecture
            task = TorchTask(lambda: without_first(whole), classes)
        return cls(cell, task, rows, role, {name: own.take(members) for name, own in every.items()})

    def rounds(self) -> Iterator[Round]:
        cell, members = self.cell, self.trained
        parties: list[Party] = [Trainer(name, own, cell.training) for name, own in members.items()]
        if cell.noise:
            dp = DPSGD(1.0, cell.noise)
            parties = [Guarded(name, lambda own=own: own, cell.training, dp) for name, own in members.items()]  # type: ignore[misc]
        defence = Defence("noise", update=self._noisy) if cell.update_noise else NONE
        return federate(self.task, parties, [Plan(tuple(self.rows))] * cell.rounds, cell.seed, defence=defence)

    def _noisy(self, broadcast: State, trained: Trained, rng: np.random.Generator) -> Trained:
        size = np.sqrt(sum(float(((trained.state[k] - broadcast[k]) ** 2).sum()) for k in broadcast))
        each = self.cell.update_noise * size / np.sqrt(sum(v.size for v in broadcast.values()))
        state = {k: (v + each * rng.standard_normal(v.shape)).astype(v.dtype) for k, v in trained.state.items()}
        return replace(trained, state=state)


# ------------------------------------------------------------------ scores


@dataclass
class Target:
    """One party's local models, or the global ones: what is scored over the rounds."""

    world: World
    rows: Records
    role: Ints
    prepared: dict[Way, matched.MatchedSetup] = field(default_factory=dict)
    series: dict[str, list[tuple[Floats, Floats]]] = field(default_factory=dict)  # way -> (z, whitened norm) by round
    rivals: dict[str, list[Floats]] = field(default_factory=dict)

    def observe(self, received: State, sent: State) -> None:
        task, cell = self.world.task, self.world.cell
        update = {n: torch.from_numpy((received[n] - sent[n])[None]) for n, _ in task.architecture.named_parameters()}
        for at in dict.fromkeys(way.at for way in cell.ways):
            module = task.fresh(matched.halfway(received, sent) if at == "halfway" else received)
            seen: dict[str, matched.Seen | None] = {}
            for way in (way for way in cell.ways if way.at == at):
                if way not in self.prepared:
                    self.prepared[way] = self._prepare(way, module)
                own = self.prepared[way]
                if way.layer not in seen:
                    seen[way.layer] = matched.look(own, module)
                self._keep(way, own, matched.statistics(own, module, update, seen[way.layer]))
        if cell.rivals:
            self._watch(received, sent)

    def _prepare(self, way: Way, module: nn.Module) -> matched.MatchedSetup:
        fitting = np.arange(len(self.role))
        if way.fit == "nonmembers":
            parties = len(self.role) // sum(self.world.cell.sizes)
            by_party = np.flatnonzero(self.role == FITTING).reshape(parties, -1)
            fitting = by_party[:, : way.known].ravel()
        layer = matched.largest_linear(module) if way.layer == "largest" else None
        adam = way.adaptive and self.world.cell.training.optimizer == "adam"
        x, y = torch.from_numpy(self.rows.x), torch.from_numpy(self.rows.y)
        return matched.prepare(
            module, self.world.task.losses, x, y, torch.from_numpy(fitting), way.damping, layer, adam
        )

    def _keep(self, way: Way, own: matched.MatchedSetup, found: Any) -> None:
        def add(name: str, score: Tensor, norm2: Tensor) -> None:
            z = matched.standardised(score, own.fitting).numpy()
            self.series.setdefault(name, []).append((z, norm2.sqrt().numpy()))

        add(way.name, matched.together(found)[:, 0], found.norm2.sum(1))
        if way.layer == "all":
            for column, layer in enumerate(found.layers):
                add(f"{way.name}: {layer}", matched.scores(found)[:, column, 0], found.norm2[:, column])

    def _watch(self, received: State, sent: State) -> None:
        task = self.world.task
        before, after = (rescaled_logit(task.outputs(state, self.rows.x), self.rows.y) for state in (received, sent))
        found = statistics(task, received, [sent], self.rows)
        product, g2, u2 = with_all(found.inner[:, :, 0]), with_all(found.norm2), with_all(found.update2[None, :, 0])
        module = task.fresh(received)
        layer = matched.largest_linear(module)
        weight = torch.from_numpy(received[f"{layer}.weight"] - sent[f"{layer}.weight"])
        self.rivals.setdefault("cosine", []).append(cosine(product, g2, u2))
        self.rivals.setdefault("logit", []).append(after)
        self.rivals.setdefault("gain", []).append(np.logaddexp(0, -before) - np.logaddexp(0, -after))
        projected = matched.projection(module, torch.from_numpy(self.rows.x), weight, layer)
        self.rivals.setdefault("projres", []).append(projected.numpy())

    def scores(self) -> Iterator[tuple[str, Floats]]:
        for name, series in self.series.items():
            z, norm = np.array([s for s, _ in series]), np.array([n for _, n in series])
            yield name, z.mean(0)
            yield f"{name}; weighted", (z * norm).sum(0) / np.sqrt((norm**2).sum(0)).clip(1e-30)
        if self.rivals:
            yield from self._rival_scores()

    def _rival_scores(self) -> Iterator[tuple[str, Floats]]:
        known = self.role == FITTING

        def z(values: Floats) -> Floats:
            return np.asarray((values - values[known].mean()) / (values[known].std() or 1.0))

        by_layer, logit = np.mean(self.rivals["cosine"], axis=0), np.array(self.rivals["logit"])
        one = by_layer[:, int(by_layer[known, :-1].var(axis=0).argmin())]
        abscissa = np.arange(len(logit)) - (len(logit) - 1) / 2
        slope = abscissa @ special.expit(logit)
        yield "gradient-cosine", one
        yield "fta-confidence", slope
        yield "fusion", z(one) + z(slope)
        yield "loss", logit[-1]
        yield "round-gain", np.mean(self.rivals["gain"], axis=0)
        yield "projres", np.mean(self.rivals["projres"], axis=0)


def judged(scores: list[Floats], role: Ints) -> dict[str, Any]:
    blocks = [Block(v[role == MEMBER], v[role == EVALUATION], v[role == CALIBRATION]) for v in scores]
    rate, area = tpr_at_fpr(blocks, FPR), auc(blocks)
    return {"tpr": rate.value, "low": rate.low, "high": rate.high, "fpr": rate.realised_fpr,
            "fpr_interval": rate.realised_fpr_interval, "auc": area.value, "auc_interval": (area.low, area.high),
            "members": rate.n_pos,
            "calibration": rate.n_cal, "evaluation": rate.n_neg, "reason": rate.reason}  # fmt: skip


def made(cell: Cell, folder: Path) -> dict[str, Any]:
    started = time.process_time()
    world = World.of(cell, folder)
    names = list(world.rows)[: cell.looked_at]
    local = {name: Target(world, world.rows[name], world.role) for name in names}
    some = [world.rows[name] for name in names]
    x, y, id = (np.concatenate([getattr(own, key) for own in some]) for key in ("x", "y", "id"))
    joined = Records(x, y, id)
    everybody = Target(world, joined, np.tile(world.role, len(names)))
    found: dict[str, Any] = {"local": {}, "global": {}}
    for round in world.rounds():
        for name, target in local.items():
            target.observe(round.broadcast, round.sent[name].state)
        everybody.observe(round.broadcast, round.aggregate)
        if round.index in cell.shown:
            by_party = [dict(target.scores()) for target in local.values()]
            found["local"][round.index] = {n: judged([p[n] for p in by_party], world.role) for n in by_party[0]}
            found["global"][round.index] = {n: judged([v], everybody.role) for n, v in everybody.scores()}
    accuracy = float(
        (world.task.outputs(round.aggregate, joined.x).argmax(1) == joined.y)[everybody.role == EVALUATION].mean()
    )
    return {"cell": asdict(cell), "accuracy": accuracy, "seconds": time.process_time() - started, **found}


# ------------------------------------------------------------------ tables and picture


def stored(out: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(out.glob("*.json"))}


def share(entry: dict[str, Any]) -> str:
    low, high = entry["low"] or 0.0, 1.0 if entry["high"] is None else entry["high"]
    return f"{100 * entry['tpr']:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def tables(out: Path) -> None:
    """One table a group: a row for each way and number of rounds, a column for each cell."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for name, content in stored(out).items():
        groups.setdefault(name.rpartition("-")[0], {})[name.rpartition("-")[2]] = content
    for group, seeds in groups.items():
        print(
            f"\n### {group}\n\n| seen | score | rounds | mean | "
            + " | ".join(f"seed {s}" for s in seeds)
            + " | AUC | realised FPR |"
        )
        print("|---" * (6 + len(seeds)) + "|")
        first = next(iter(seeds.values()))
        for model in ("local", "global"):
            for rounds, ways in first[model].items():
                for way in ways:
                    entries = [content[model][rounds][way] for content in seeds.values()]
                    mean = {key: float(np.mean([e[key] for e in entries])) for key in ("tpr", "auc", "fpr")}
                    print(
                        f"| {model} | {way} | {rounds} | **{100 * mean['tpr']:.1f}** | "
                        + " | ".join(share(e) for e in entries)
                        + f" | {mean['auc']:.3f} | {100 * mean['fpr']:.2f} |"
                    )


def as_audited(cell: dict[str, Any]) -> str:
    """The score that an audit of this federation would use."""
    noisy = {"damping": 10.0} if cell["noise"] else {"damping": 1.0} if cell["update_noise"] else None
    return (replace(OURS, adaptive=False, **noisy) if noisy else OURS).name + "; weighted"


@cache
def usual(parties: int, calibration: int, evaluation: int) -> tuple[int, int]:
    """How many evaluation records are accused in 95 of 100 honest tests, with a threshold for each party: not only the
    records accused are a matter of chance, the calibration records that set the threshold are, too (beta-binomial)."""
    rank = math.floor(FPR * (calibration + 1) + 1e-9)
    one = stats.betabinom.pmf(np.arange(evaluation + 1), evaluation, rank, calibration + 1 - rank)
    chances = one[: np.flatnonzero(one > 1e-12)[-1] + 1]
    total = reduce(np.convolve, [chances] * parties)
    low, high = np.searchsorted(total.cumsum(), (0.025, 0.975))
    return int(low), int(high)


def false_positives(out: Path) -> None:
    """In how many cells the nominal rate is believable after the last round: given the threshold (the interval that
    reports show), and with the threshold's own error."""
    groups: dict[tuple[str, str], list[tuple[bool, bool, float]]] = {}
    for name, content in stored(out).items():
        parties = min(content["cell"]["looked_at"], content["cell"]["parties"])
        for model, thresholds in (("local", parties), ("global", 1)):
            found = list(content[model].values())[-1].get(as_audited(content["cell"]))
            if found is None:
                continue
            low, high = found["fpr_interval"]
            sizes = (found[key] // thresholds for key in ("calibration", "evaluation"))
            least, most = usual(thresholds, *sizes)
            honest = least <= round(found["fpr"] * found["evaluation"]) <= most
            for group in (name.partition("-")[0], "all"):
                groups.setdefault((group, model), []).append((low <= FPR <= high, honest, found["fpr"]))
    print("| cells | seen | how many | mean realised FPR, % | 1 % in its interval | and with the threshold's error |")
    print("|---" * 6 + "|")
    for (group, model), found in groups.items():
        given, honest, mean = np.mean(found, axis=0)
        print(f"| {group} | {model} | {len(found)} | {100 * mean:.2f} | {100 * given:.0f} % | {100 * honest:.0f} % |")


def null(out: Path) -> None:
    """Where no candidate was trained on: means over seeds with their 95 % intervals (Student's t)."""
    contents = [content for name, content in stored(out).items() if name.startswith("null-")]
    print("| seen | fit | seeds | TPR at 1 % FPR, % | realised FPR, % | AUC | intervals with TPR 1 % | with AUC 0.5 |")
    print("|---" * 8 + "|")
    for model in ("local", "global"):
        rounds = [list(content[model].values())[-1] for content in contents]
        for way in (way for way in rounds[0] if way.endswith("weighted")):
            entries = [found[way] for found in rounds]
            means = []
            for key, factor, digits in (("tpr", 100, 2), ("fpr", 100, 2), ("auc", 1, 4)):
                values = factor * np.array([entry[key] for entry in entries])
                reach = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
                means.append(f"{values.mean():.{digits}f} ± {reach:.{digits}f}")
            rates = sum(entry["low"] <= FPR <= entry["high"] for entry in entries)
            areas = sum(entry["auc_interval"][0] <= 0.5 <= entry["auc_interval"][1] for entry in entries)
            fit = way.split(", ")[1]
            print(f"| {model} | {fit} | {len(entries)} | {' | '.join(means)} | {rates} | {areas} |")


SHOW = {"tables": tables, "false-positives": false_positives, "null": null}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", *SHOW])
    parser.add_argument("cells", nargs="*", help="the beginning of their names")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("docs/matched"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what != "run":
        return SHOW[given.what](given.out)
    given.out.mkdir(parents=True, exist_ok=True)
    for name, cell in cells().items():
        path = given.out / f"{name}.json"
        if any(name.startswith(wanted) for wanted in given.cells) and not path.exists():
            content = made(cell, given.data)
            path.write_text(json.dumps(content, indent=1))
            print(name, f"{content['seconds']:.0f} s", flush=True)
    return None


if __name__ == "__main__":
    main()
