"""Makes the figures of docs/tear.md that compare with gradients, with Nasr et al., and by angles (figure 7 of TEAR).

    python docs/make_tear_compare.py run --seeds 0 1 2 --out FOLDER
    python docs/make_tear_compare.py tables --out FOLDER

The federation on baskets, and the records of it, are those of make_tear.py. A seed is one npz file; one that is there
is not made again. About 6 minutes a seed on one core. No search here comes from a package: each is a few lines
after its paper, and its docstring says what it leaves out.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from make_tear import OVER_SEEDS, ROLES, SETTINGS, Cell, Setting, blocks, cell, learnt, over_seeds
from torch import Tensor

from fedaudit.adversary.attacks.tear import best_threshold
from fedaudit.adversary.signals.boundary import Rays, any_starts, nearest_of_each_label, search, starts_among
from fedaudit.adversary.signals.searching import _linear
from fedaudit.config.schema import parse
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import rounds
from fedaudit.stats import over_runs
from fedaudit.types import Estimate, Role, Round, State

ATTACKS = ("gap", "boundary", "tear", "tear-deepfool", "loss", "gradient-norm-all")
QUERIES = 3000  # labels that a record may cost the audit, over all rounds
ONE_MODEL = (600, 6_000, 60_000, 250_000)  # labels for one distance under the last model; the paper spends the last
RANDOM_PLANES = 6_000  # the same, for the search that estimates no normal
COMPARED = 100  # records of a seed whose directions are compared, half of them members
NAMES = {
    "gap": "gap (one label)",
    "boundary": "boundary, last model (labels)",
    "tear": "tear, all rounds (labels)",
    "tear-deepfool": "tear-deepfool, all rounds (weights)",
    "gradients": "distance by gradients, last model (weights)",
    "nasr": "Nasr as in the paper: auto-encoder, last model (outputs)",
    "norms": "gradient norms of all layers and rounds, learnt (weights)",
    "gradient-norm-all": "gradient-norm-all, mean over rounds (weights)",
    "loss": "loss, last model (outputs)",
}


# ------------------------------------------------------------------ searches with gradients; each gives x~ - x


def nearest_by_projection(module: Any, x: Tensor, y: Tensor, targets: int = 5, restarts: int = 4) -> Tensor:
    """Stands in for Auto-Attack; ours. Its step is the one of that suite's minimum-norm part (FAB): take the boundary
    as flat at the current point, go to that point of it which is nearest to the record. Towards each of the nearest
    classes, and from random points around the record towards whatever class comes second there."""
    torch.manual_seed(0)
    best = torch.full_like(x, torch.nan)
    second = runner_up(module, x, y, targets)
    for i in range(targets):
        best = shorter(best, projected(module, x, y, torch.zeros_like(x), second[:, i]))
    for _ in range(restarts):
        away = torch.randn_like(x)
        start = best.norm(dim=1, keepdim=True).nan_to_num(1.0) * away / away.norm(dim=1, keepdim=True)
        best = shorter(best, projected(module, x, y, start, None))
    return best


def projected(module: Any, x: Tensor, y: Tensor, start: Tensor, target: Tensor | None, steps: int = 25) -> Tensor:
    """The shortest way past the boundary that the steps came by; NaN: none. Later steps go half of the way."""
    way, best = start.clone(), torch.full_like(x, torch.nan)
    for step in range(steps):
        gap, slope = between(module, x + way, y, target)
        share = ((slope * way).sum(dim=1) - gap) / slope.square().sum(dim=1).clamp(min=1e-20)
        flat = share[:, None] * slope
        best = shorter(best, where_past(module, x, y, 1.01 * flat))
        way = flat if step < steps // 3 else (way + flat) / 2
    return to_the_boundary(module, x, y, best)


def carlini_wagner(module: Any, x: Tensor, y: Tensor, weights: int = 8, steps: int = 100) -> Tensor:
    """The baseline of figure 7 (Carlini and Wagner 2017, l2), without the change of variables that keeps inputs in a
    box: |d|^2 + c max(gap, 0) by Adam, its rate fading; c is bisected."""
    torch.manual_seed(0)
    low, high = torch.zeros(len(x)), torch.full((len(x),), torch.inf)
    c, best = torch.ones(len(x)), torch.full_like(x, torch.nan)
    for _ in range(weights):
        way = (1e-3 * torch.randn_like(x)).requires_grad_(True)
        optimiser, reached = torch.optim.Adam([way], 0.003), torch.zeros(len(x), dtype=torch.bool)
        rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        for _ in range(steps):
            gap = gaps(module, x + way, y, None)[0]
            here = torch.where((gap < 0)[:, None], way.detach(), torch.nan)
            best, reached = shorter(best, here), reached | (gap < 0)
            optimiser.zero_grad()
            (way.square().sum(dim=1) + c * gap.clamp(min=-0.01)).sum().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            rate.step()
        low, high = torch.where(reached, low, c), torch.where(reached, c, high)
        c = torch.where(high.isinf(), 10 * c, (low + high) / 2)
    return to_the_boundary(module, x, y, best)


def deepfool(module: Any, x: Tensor, y: Tensor, steps: int = 50) -> Tensor:
    """Moosavi-Dezfooli et al. 2016, as printed: the nearest of all flat boundaries at every step, and 0.02 too far."""
    way, row = torch.zeros_like(x), torch.arange(len(x))
    for _ in range(steps):
        inside = row[gaps(module, x + way, y, None)[0] >= 0]
        if len(inside) == 0:
            break
        at = torch.arange(len(inside))
        outputs, slopes = _linear(module, x[inside] + way[inside])
        gap, slope = outputs[at, y[inside]][:, None] - outputs, slopes[at, y[inside]][:, None] - slopes
        size = slope.norm(dim=2).clamp(min=1e-12)
        near = (gap / size).index_put((at, y[inside]), torch.tensor(torch.inf)).argmin(dim=1)
        way[inside] -= 1.02 * ((gap[at, near] + 1e-6) / size[at, near].square())[:, None] * slope[at, near]
    return where_past(module, x, y, way)


def fast_minimum_norm(module: Any, x: Tensor, y: Tensor, steps: int = 300) -> Tensor:
    """Pintor et al. 2021: steps along the gradient, cut to a ball that shrinks when past the boundary and grows when
    not; both step and change of the ball fade."""
    way, radius, best = torch.zeros_like(x), torch.full((len(x),), torch.inf), torch.full_like(x, torch.nan)
    for step in range(steps):
        fade = (1 + np.cos(np.pi * step / steps)) / 2
        gap, slope = between(module, x + way, y, None)
        size, length = slope.norm(dim=1).clamp(min=1e-12), way.norm(dim=1)
        best = shorter(best, torch.where((gap < 0)[:, None], way, torch.nan))
        found, change = ~best.isnan().any(dim=1), 0.001 + 0.05 * fade
        outside = torch.where(found, radius * (1 + change), length + gap / size)
        shortest = best.norm(dim=1).nan_to_num(torch.inf)
        radius = torch.where(gap < 0, torch.minimum(radius * (1 - change), shortest), outside)
        way = way - (0.01 + 0.99 * fade) * slope / size[:, None]
        way = way * (radius / way.norm(dim=1).clamp(min=1e-12)).clamp(max=1)[:, None]
    return to_the_boundary(module, x, y, best)


def gaps(module: Any, points: Tensor, y: Tensor, target: Tensor | None) -> tuple[Tensor, Tensor]:
    """By how much the output of the own class exceeds that of the target, or of the largest other; and all outputs."""
    outputs, row = module(points), torch.arange(len(points))
    others = outputs.index_put((row, y), torch.tensor(-torch.inf))
    other = others.max(dim=1).values if target is None else outputs[row, target]
    return outputs[row, y] - other, outputs


def between(module: Any, points: Tensor, y: Tensor, target: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gap, and its gradient."""
    points = points.detach().requires_grad_(True)
    gap = gaps(module, points, y, target)[0]
    return gap.detach(), torch.autograd.grad(gap.sum(), points)[0]


def runner_up(module: Any, x: Tensor, y: Tensor, many: int) -> Tensor:
    """The classes whose boundaries are nearest if the outputs are taken as linear."""
    found = []
    for i in range(0, len(x), 200):
        part, own = x[i : i + 200], y[i : i + 200]
        outputs, slopes = _linear(module, part)
        at = torch.arange(len(part))
        near = (outputs[at, own][:, None] - outputs) / (slopes[at, own][:, None] - slopes).norm(dim=2).clamp(min=1e-12)
        found.append(near.index_put((at, own), torch.tensor(torch.inf)).argsort(dim=1)[:, :many])
    return torch.cat(found)


def shorter(one: Tensor, other: Tensor) -> Tensor:
    a, b = (way.norm(dim=1).nan_to_num(torch.inf) for way in (one, other))
    return torch.where((b < a)[:, None], other, one)


def where_past(module: Any, x: Tensor, y: Tensor, way: Tensor) -> Tensor:
    with torch.no_grad():
        past = gaps(module, x + way, y, None)[0] < 0
    return torch.where(past[:, None], way, torch.nan)


def to_the_boundary(module: Any, x: Tensor, y: Tensor, way: Tensor) -> Tensor:
    low, high = torch.zeros(len(x)), torch.ones(len(x))
    for _ in range(12):
        middle = (low + high) / 2
        past = ~where_past(module, x, y, middle[:, None] * way).isnan().any(dim=1)
        low, high = torch.where(past, low, middle), torch.where(past, middle, high)
    return high[:, None] * way


# ------------------------------------------------------------------ searches by labels alone


def by_labels(module: Any, x: Tensor, y: Tensor, pool: Tensor, budget: int) -> Tensor:
    """The audit's search, all of its labels spent on one model and one boundary."""
    allowed, starts, labels = beginning(module, x, y, pool)
    points = x.numpy()
    rays = search(labels, points, allowed, starts, Rays.none(*points.shape), budget, 0, None)
    return torch.from_numpy(rays.direction * rays.reach[:, None].astype(np.float32))


def random_planes(module: Any, x: Tensor, y: Tensor, pool: Tensor, budget: int) -> Tensor:
    """After SurFree (Maho et al. 2021): turn the ray in the plane of it and a random direction, on the circle that a
    flat boundary would allow; no normal is estimated. Directions are Gaussian, not low frequencies, which baskets do
    not have. Starts as in `by_labels`, the nearest one."""
    _, starts, labels = beginning(module, x, y, pool)
    ways = torch.from_numpy(starts) - x[:, None]
    nearest = ways.norm(dim=2).nan_to_num(torch.inf).argmin(dim=1)
    way = to_the_boundary(module, x, y, ways[torch.arange(len(x)), nearest])
    left, own, rng = np.full(len(x), budget - 12), y.numpy(), torch.Generator().manual_seed(0)

    def past(which: Tensor, at: Tensor) -> Tensor:
        left[which.numpy()] -= 1
        return torch.from_numpy(labels((x[which] + at).numpy()) != own[which.numpy()])

    while len(going := torch.from_numpy(np.flatnonzero(left > 30))):
        old = way[going]
        length = old.norm(dim=1, keepdim=True)
        ray, side = old / length, torch.randn(old.shape, generator=rng)
        side -= (side * ray).sum(dim=1, keepdim=True) * ray
        side /= side.norm(dim=1, keepdim=True)
        best = torch.zeros(len(going))
        for angle in (0.4, -0.4, 0.2, -0.2, 0.1, -0.1, 0.05, -0.05):
            still = (best == 0).nonzero()[:, 0]
            at = on_circle(length[still], ray[still], side[still], torch.full((len(still),), angle))
            best[still[past(going[still], at)]] = angle
        hit = best.nonzero()[:, 0]
        low, high = best[hit], 2 * best[hit]
        for _ in range(4):
            middle = (low + high) / 2
            beyond = past(going[hit], on_circle(length[hit], ray[hit], side[hit], middle))
            low, high = torch.where(beyond, middle, low), torch.where(beyond, high, middle)
        way[going[hit]] = on_circle(length[hit], ray[hit], side[hit], low)
    return way


def on_circle(length: Tensor, ray: Tensor, side: Tensor, angle: Tensor) -> Tensor:
    turn = angle[:, None]
    return length * turn.cos() * (turn.cos() * ray + turn.sin() * side)


def beginning(module: Any, x: Tensor, y: Tensor, pool: Tensor) -> tuple[Any, Any, Callable[[Any], Any]]:
    """Which labels count as others, starts among the adversary's own records, and the model as answers."""

    def labels(points: Any) -> Any:
        with torch.inference_mode():
            return module(torch.from_numpy(points)).argmax(dim=1).numpy()

    label = labels(pool.numpy())
    classes = module(x[:1]).shape[1]
    allowed = ~np.eye(classes, dtype=bool)[y.numpy()]
    distance, which = nearest_of_each_label(x.numpy(), pool.numpy(), label, classes)
    near = starts_among(pool.numpy(), distance, which, allowed, 8)
    return allowed, np.concatenate([near, any_starts(pool.numpy(), label, allowed, 24, 0)], axis=1), labels


# ------------------------------------------------------------------ figure 7: angles


def angles(module: Any, x: Tensor, y: Tensor, pool: Tensor) -> Cell:
    """Of each search: its ways' angles with those of the baseline, and with the boundary's normal where they end; their
    lengths, and the labels there."""
    ways = {"C&W (baseline; weights)": carlini_wagner(module, x, y)}
    for budget in ONE_MODEL:
        ways[f"ours, {budget:,} labels"] = by_labels(module, x, y, pool, budget)
    ways[f"random planes, {RANDOM_PLANES:,} labels"] = random_planes(module, x, y, pool, RANDOM_PLANES)
    ways["minimum norm (weights)"] = fast_minimum_norm(module, x, y)
    ways["DeepFool (weights)"] = deepfool(module, x, y)
    ways["projection (weights)"] = nearest_by_projection(module, x, y)
    baseline, kept = next(iter(ways.values())), dict[str, Any]()
    for name, way in ways.items():
        end = x + way * 1.001
        others = module(end).detach().index_put((torch.arange(len(x)), y), torch.tensor(-torch.inf))
        normal = -between(module, end, y, others.argmax(dim=1))[1]
        kept[f"angle/{name}"] = np.stack([
            degrees(way, baseline), degrees(way, normal), way.norm(dim=1).numpy(), others.argmax(dim=1).numpy()
        ])  # fmt: skip
    return kept


def degrees(one: Tensor, other: Tensor) -> np.ndarray:
    cosine = torch.nn.functional.cosine_similarity(one.double(), other.double(), dim=1)
    return np.asarray(np.degrees(np.arccos(np.clip(cosine.numpy(), -1, 1))))


def angle_table(cells: Sequence[Cell]) -> None:
    """Angles to the baseline are means over seeds; all else is of all records together."""
    names = [name.removeprefix("angle/") for name in cells[0] if name.startswith("angle/")]
    found = {name: np.concatenate([made[f"angle/{name}"] for made in cells], axis=1) for name in names}
    shortest = np.nanmin([one[2] for one in found.values()], axis=0)
    print("| search | found | mean angle to C&W | same label there, and then | angle to the normal at its own end | "
          "length over the shortest: quarter, median, three quarters |\n|---|---|---|---|---|---|")  # fmt: skip
    for name, (angle, normal, length, label) in found.items():
        there = ~np.isnan(angle)
        same = there & (label == found[names[0]][3])
        quarters = ", ".join(f"{q:.2f}" for q in np.nanquantile(length / shortest, (0.25, 0.5, 0.75)))
        to_cw = "–" if name == names[0] else mean_angle([made[f"angle/{name}"][0] for made in cells])
        and_then = "–" if name == names[0] else f"{same[there].mean():.0%}, {angle[same].mean():.1f}°"
        print(f"| {name} | {there.sum()} of {len(there)} | {to_cw} | {and_then} | "
              f"{np.nanmean(normal):.1f}° | {quarters} |")  # fmt: skip


def mean_angle(each: Sequence[np.ndarray]) -> str:
    """Over seeds; within one, as if records were independent."""
    means = []
    for angles in each:
        known = angles[~np.isnan(angles)]
        mean, spread = known.mean(), 1.96 * known.std(ddof=1) / np.sqrt(len(known))
        ends = float(mean), float(mean - spread), float(mean + spread)
        means.append(Estimate("angle", *ends, 0.95, "normal", "measured", len(known), len(known)))
    found = over_runs(means, most=180.0)
    return f"{found.value:.1f}° ({found.low:.1f} to {found.high:.1f})"


# ------------------------------------------------------------------ Nasr et al.


def auto_encoder(outputs: np.ndarray, y: np.ndarray, epochs: int = 300) -> np.ndarray:
    """As this paper runs Nasr et al. 2019, without any known member: four layers make one number of the last model's
    outputs, two make of it what tells members; spectral clustering parts the numbers in two, and the surer part are
    taken for members. Scores of 1 and more: in that part. The label goes in, too; the paper gives no sizes."""
    from sklearn.cluster import SpectralClustering

    torch.manual_seed(0)
    surety = torch.softmax(torch.from_numpy(outputs).float(), dim=1)
    label = torch.from_numpy(y)
    of_label = surety[torch.arange(len(y)), label].clamp(min=1e-12)
    entropy = -(surety * surety.clamp(min=1e-12).log()).sum(dim=1)
    right = (surety.argmax(dim=1) == label).float()
    signals = torch.stack([right, of_label, entropy, of_label.log()], dim=1)
    signals = (signals - signals.mean(dim=0)) / signals.std(dim=0).clamp(min=1e-6)
    x = torch.cat([surety, torch.nn.functional.one_hot(label, surety.shape[1])], dim=1)
    encoder, decoder = layers(x.shape[1], 64, 32, 16, 1), layers(1, 16, signals.shape[1])
    optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 3e-3)
    for _ in range(epochs):
        optimiser.zero_grad()
        (decoder(encoder(x)) - signals).square().mean().backward()
        optimiser.step()
    code = encoder(x).detach()[:, 0].numpy()
    code = (code - code.mean()) / max(code.std(), 1e-9)
    part = SpectralClustering(2, random_state=0).fit_predict(code[:, None])
    means = [float(entropy.numpy()[part == k].mean()) for k in (0, 1)]
    member = part == int(np.argmin(means))
    code = code if code[member].mean() > code[~member].mean() else -code
    return np.asarray(member + (code.argsort(kind="stable").argsort(kind="stable") + 0.5) / len(code))


def layers(*sizes: int) -> torch.nn.Sequential:
    made: list[torch.nn.Module] = []
    for one, other in pairwise(sizes):
        made += [torch.nn.Linear(one, other), torch.nn.ReLU()]
    return torch.nn.Sequential(*made[:-1])


def norms(module: Any, x: Tensor, y: Tensor) -> np.ndarray:
    """Of each record, the norm of its loss's gradient in every layer."""
    weights = {name: value.detach() for name, value in module.named_parameters()}

    def loss(weights: Any, point: Tensor, label: Tensor) -> Tensor:
        outputs = torch.func.functional_call(module, weights, (point[None],))
        return torch.nn.functional.cross_entropy(outputs, label[None])

    def one(point: Tensor, label: Tensor) -> Tensor:
        return torch.stack([g.square().sum().sqrt() for g in torch.func.grad(loss)(weights, point, label).values()])

    return torch.func.vmap(one, chunk_size=50)(x, y).numpy()


# ------------------------------------------------------------------ one seed, and the tables


def one_seed(prepared: Prepared, setting: Setting, made: Sequence[Round]) -> Cell:
    kept = cell(prepared, setting, made)
    rows = prepared.game.candidates.rows
    place = {name: i for i, name in enumerate(rows.id)}
    here = rows.take(np.array([place[name] for name in kept["id"]]))
    x, y = torch.from_numpy(here.x.astype(np.float32)), torch.from_numpy(np.asarray(here.y, np.int64))
    module = frozen(prepared, made[-1].aggregate)
    with torch.no_grad():
        outputs = module(x)
    right = (outputs.argmax(dim=1) == y).numpy()
    own, member = kept["own"], kept["role"] == Role.MEMBER.value

    distance = np.zeros(len(x))
    ways = nearest_by_projection(module, x[right], y[right])
    distance[right] = ways.norm(dim=1).numpy()
    distance = np.where(np.isnan(distance), np.nanmax(distance) + 1, distance)
    kept |= {"score/gradients": distance, "at/gradients": np.array(best_threshold(distance[own], member[own]))}

    nasr = np.zeros(len(x))
    nasr[~own] = auto_encoder(outputs.numpy()[~own], here.y[~own])
    kept |= {"score/nasr": nasr, "at/nasr": np.array(1.0)}
    kept["norms"] = np.concatenate([norms(frozen(prepared, r.aggregate), x, y) for r in made], axis=1)

    some = np.concatenate([np.flatnonzero(right & ~own & (member == m))[: COMPARED // 2] for m in (True, False)])
    return kept | angles(module, x[some], y[some], x[own]) | {"compared": some}


def frozen(prepared: Prepared, state: State) -> Any:
    module: Any = prepared.task.fresh(state)
    return module.eval().requires_grad_(False)


def run(asked: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    setting = SETTINGS["baskets"]
    for seed in asked.seeds:
        path = asked.out / f"compare-{seed}.npz"
        if path.exists():
            continue
        started = time.process_time()
        prepared = prepare(parse({
            "data": {"name": "baskets"}, "federation": setting.sections["federation"] | {"seed": seed},
            "audit": {
                "vantages": ["label-only-client", "client"], "attacks": list(ATTACKS), "fpr": [0.01, 0.1],
                "tear": {"queries": QUERIES, "own": setting.own},
            },
        }))  # fmt: skip
        kept = one_seed(prepared, setting, list(rounds(prepared)))
        np.savez_compressed(path.with_suffix(".part.npz"), **kept)
        path.with_suffix(".part.npz").rename(path)
        print(path.name, f"{time.process_time() - started:.0f} s of CPU", flush=True)


def tables(folder: Path) -> None:
    cells = [dict(np.load(path, allow_pickle=False)) for path in sorted(folder.glob("compare-?.npz"))]
    for made in cells:
        sets = [int(np.sum(~made["own"] & (made["role"] == role.value))) for role in ROLES]
        cost, right = made["labels"].sum(axis=1)[~made["own"]].mean(), made["right"].round(3)
        print(f"<!-- members, non-members, calibrating: {sets}; label right: {right}; labels a record: {cost:.0f} -->")
    print(OVER_SEEDS)
    each = {
        name: [(learnt(made, made["norms"]) if name == "norms" else blocks([made], name))[0] for made in cells]
        for name in NAMES
    }
    for name, title in NAMES.items():
        print(f"| {title} | {over_seeds(each[name], each['gap'], each['tear'])} |")
    print()
    angle_table(cells)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["run", "tables"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.what == "run":
        return run(asked)
    return tables(asked.out)


if __name__ == "__main__":
    main()
