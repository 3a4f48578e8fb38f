"""Makes the figures of docs/tear.md that come from federations. Those against exact distances: make_tear_exact.py.

    python docs/make_tear.py run baskets --seeds 0 1 2 --queries 300 1000 3000 6000 --out FOLDER [--defence dp-sgd]
    python docs/make_tear.py run mnist --path PATH/TO/mnist.npz --queries 2000 --out FOLDER      # or cifar10
    python docs/make_tear.py tables --out FOLDER
    python docs/make_tear.py paper --seeds 0 1 2 --out FOLDER   # its comparisons, on cells of baskets; needs foolbox
    python docs/make_tear.py picture --out FOLDER       # tear-queries.svg, from all cells of baskets with seed 0

A cell (data, seed, queries and options) is one npz file with every score, threshold and distance; one that is there is
not made again. The first party attacks, and learns from its own records. The other parties' records are sampled after
training on all members: half of those reported on are members; further non-members calibrate. On one core, baskets take
1.7 min for training and 2.7 min for a cell with 6,000 queries; one with 1,000 takes 0.8 min.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.adversary.attacks.tear import best_threshold, boosted
from fedaudit.audit import Auditor
from fedaudit.config.schema import Config, parse
from fedaudit.files import write_atomically
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import rounds
from fedaudit.stats import Block, accuracy_difference, auc, auc_difference, decisions, hash_order, over_runs, tpr_at_fpr
from fedaudit.stats.intervals import of_sum
from fedaudit.stats.paired import accuracy_influence, by_name, errors_behind
from fedaudit.types import Candidates, Estimate, Game, Role, Round, Truth, UnitErrors

LABEL_ONLY = ("gap", "gap-rounds", "boundary", "tear", "tear-last")
ATTACKS = (*LABEL_ONLY, "tear-deepfool", "loss")
ROLES = (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)
LONG = {"parties": 5, "rounds": 10, "local_epochs": 8}
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Setting:
    """What is trained; how many records are reported on (half of them members), calibrate, and teach the adversary."""

    sections: dict[str, Any]
    evaluated: int
    calibrating: int
    own: int


SETTINGS = {
    # Five parties with 2,000 members each.
    "baskets": Setting(
        {"federation": LONG | {"split_subjects": True, "members": 0.488, "nonmembers": 0.25}}, 500, 200, 500
    ),
    # Five parties with 1,000 members each.
    "mnist": Setting({"federation": LONG | {"members": 0.0715, "split_subjects": True}}, 300, 200, 300),
    "cifar10": Setting({"federation": LONG | {"members": 0.25}, "model": {"name": "mlp"}}, 300, 200, 300),
}


def config(asked: argparse.Namespace, seed: int, queries: int, attacks: Sequence[str]) -> Config:
    setting, targets = SETTINGS[asked.data], asked.targets if asked.targets == "all" else int(asked.targets)
    return parse({
        "data": {"name": asked.data} | ({"path": asked.path} if asked.path else {}),
        "federation": setting.sections["federation"] | {"seed": seed},
        "model": setting.sections.get("model", {}),
        "audit": {
            "vantages": ["label-only-client", "client"], "attacks": list(attacks), "fpr": [0.01, 0.1],
            "tear": {"queries": queries, "targets": targets, "own": setting.own},
        },
        "defences": [{"name": asked.defence, "epsilon": 8.0, "delta": 1e-5, "clip": 1.0}] if asked.defence else [],
    })  # fmt: skip


def fewer(prepared: Prepared, setting: Setting) -> Game:
    """Everything that is trained on stays so; of the candidates only some are looked at."""
    game = prepared.game
    first, kept = game.parties[0], np.zeros(len(game.candidates), bool)
    others = game.candidates.party != first
    for role, many in zip(ROLES, (setting.evaluated // 2, setting.evaluated // 2, setting.calibrating), strict=True):
        mine = np.flatnonzero(others & game.truth.mask(role))
        kept[mine[hash_order(game.candidates.id[mine], "evaluated")[:many]]] = True
    for inside in (True, False):
        mine = np.flatnonzero(~others & (game.truth.mask(Role.MEMBER) == inside))
        kept[mine[hash_order(game.candidates.id[mine], "own")[: setting.own // 2]]] = True
    rows = game.candidates.rows.take(kept)
    some = Candidates("record", rows.id, game.candidates.party[kept], rows, np.arange(len(rows)), subject=rows.subject)
    return Game(some, Truth(rows.id, game.truth.role[kept]))


def cell(prepared: Prepared, setting: Setting, made: Sequence[Round]) -> dict[str, Any]:
    started = time.process_time()
    auditor = Auditor(prepared.task, fewer(prepared, setting), prepared.settings)
    for round in made:
        auditor.observe(round)
    found = auditor.snapshot()
    assert not found.failed, found.failed
    scores, sights = auditor.case().scores, auditor.outlooks.sights
    labels = sights["(label-only-client)"]
    own = labels.own(None)
    kept = {
        "id": labels.id, "role": labels.role, "own": own,
        "subject": labels.id if labels.subject is None else labels.subject,
        "right": np.array([found.accuracy[n].value for n in ("members", "evaluation")]),
        "labels": np.array(labels.reductions["tear"].asked).T,  # type: ignore[attr-defined]
    }  # fmt: skip
    for sight in (labels, sights[None]):
        for attack in sight.attacks:
            score = scores.of(sight, attack)
            at = scores.threshold([sight], attack)
            member = sight.role[own] == Role.MEMBER.value
            kept[f"score/{attack.name}"] = score
            kept[f"at/{attack.name}"] = np.array(best_threshold(score[own], member) if at is None else at)
            if attack.name in ("tear", "tear-deepfool"):
                kept[f"distance/{attack.name}"] = np.array(sight.reductions[attack.name].columns)  # type: ignore[attr-defined]
    last = made[-1].aggregate
    kept |= {f"model/{name}": np.asarray(value) for name, value in last.items()}
    return kept | {"seconds": np.array(time.process_time() - started)}


def run(asked: argparse.Namespace) -> None:
    """Those who hold the weights ask for no labels: they are in the cell with most queries only."""
    for seed in asked.seeds:
        made: list[Round] = []
        for queries in asked.queries:
            name = f"{asked.data}-{asked.defence or 'plain'}-{asked.targets}-{queries}-{seed}.npz"
            if (asked.out / name).exists():
                continue
            attacks = ATTACKS if queries == max(asked.queries) else (*LABEL_ONLY, "loss")
            prepared = prepare(config(asked, seed, queries, attacks))
            made = made or list(rounds(prepared))
            kept = cell(prepared, SETTINGS[asked.data], made)
            np.savez_compressed(asked.out / f".{name}", **kept)
            (asked.out / f".{name}").rename(asked.out / name)
            print(name, f"{kept['seconds']:.0f} s for the audit, {time.process_time():.0f} s in all", flush=True)


# ------------------------------------------------------------------ what is said of the scores

Cell = dict[str, Any]


def block(made: Cell, score: np.ndarray, at: float) -> Block:
    """The others' records. Scores count from the threshold, so that 0 is the threshold of every cell. One of minus
    infinity calls everybody a member, and so does one below all scores, which leaves these finite."""
    at = at if np.isfinite(at) else float(score.min()) - 1
    sets = [~made["own"] & (made["role"] == role.value) for role in ROLES]
    scores, whose, ids = ([of[one] for one in sets] for of in (score - at, made["subject"], made["id"]))
    return Block(scores[0], scores[1], scores[2], (whose[0], whose[1], whose[2]), (ids[0], ids[1], ids[2]))


def blocks(cells: Sequence[Cell], attack: str) -> list[Block]:
    return [block(made, made[f"score/{attack}"], float(made[f"at/{attack}"])) for made in cells]


def said(one: Sequence[Block], gap: Sequence[Block] | None) -> list[str]:
    """Accuracy, AUC and TPR; and how much more than gap, on the same records."""
    found: list[Estimate | None] = [
        decisions(one, 0.0)["accuracy"],
        auc(one),
        tpr_at_fpr(one, 0.01),
        tpr_at_fpr(one, 0.1),
    ]
    found += [accuracy_difference(one, gap, (0.0, 0.0)), auc_difference(one, gap)] if gap else [None, None]
    return [text(estimate) for estimate in found]


def text(estimate: Estimate | None) -> str:
    if estimate is None or estimate.value is None:
        return "–"
    return f"{estimate.value:.3f} ({estimate.low or 0:.3f} to {estimate.high or 0:.3f})"


def table(cells: Sequence[Cell]) -> None:
    print("| attack | accuracy | AUC | TPR at 1 % | TPR at 10 % | accuracy − gap | AUC − gap |")
    print("|---|---|---|---|---|---|---|")
    gap = blocks(cells, "gap")
    for name in (attack for attack in ATTACKS if f"score/{attack}" in cells[0]):
        print(f"| {name} | {' | '.join(said(blocks(cells, name), None if name == 'gap' else gap))} |")


def tables(folder: Path) -> None:
    groups: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("[!.]*.npz")):
        groups.setdefault(path.stem.rpartition("-")[0], []).append(path)
    for name, paths in groups.items():
        cells = [dict(np.load(path, allow_pickle=False)) for path in paths]
        for path, made in zip(paths, cells, strict=True):
            cost = made["labels"].sum(axis=1)[~made["own"]]
            members, others = made["right"]
            print(f"\n{path.stem}: labels a record {cost.mean():.0f}, at most {cost.max():.0f}; label right: members "
                  f"{members:.3f}, non-members {others:.3f}; {made['seconds']:.0f} s of CPU\n")  # fmt: skip
            table([made])
        if len(cells) > 1:
            print(f"\n{name}, all {len(cells)} seeds\n")
            table(cells)
            differences(cells)


def differences(cells: Sequence[Cell]) -> None:
    """What training again would change: the mean difference over the seeds, with their spread."""
    for name in ("gap-rounds", "boundary", "tear", "tear-last"):
        each = [(blocks([made], name), blocks([made], "gap")) for made in cells]
        decided = [of_sum(by_decision(a), by_decision(b), -1.0) for a, b in each]
        accuracy = over_runs([accuracy_difference(a, b, (0.0, 0.0)) for a, b in each], least=-1.0, errors=decided)
        ranked = [of_sum(errors_behind("auc", a), errors_behind("auc", b), -1.0) for a, b in each]
        area = over_runs([auc_difference(a, b) for a, b in each], least=-1.0, errors=ranked)
        print(f"{name} − gap over seeds: accuracy {text(accuracy)}, AUC {text(area)}")


def by_decision(blocks: Sequence[Block]) -> UnitErrors:
    """What each record, or person, adds to the error of the accuracy."""
    return by_name(accuracy_influence(blocks, 0.0), blocks)


# ------------------------------------------------------------------ accuracy against queries


def picture(folder: Path) -> None:
    """What gap, gap-rounds, boundary and tear come to, by how many queries a record may cost."""
    paths = {int(p.stem.split("-")[3]): p for p in folder.glob("baskets-plain-3-*-0.npz")}
    budgets = sorted(paths)
    cells = [dict(np.load(paths[budget], allow_pickle=False)) for budget in budgets]
    names = ("gap", "gap-rounds", "boundary", "tear")
    found = {n: [decisions(blocks([made], n), 0.0)["accuracy"] for made in cells] for n in names}
    write_atomically(HERE / "tear-queries.svg", drawn(budgets, found))
    print("| queries allowed | labels asked | " + " | ".join(names) + " |")
    for i, (budget, made) in enumerate(zip(budgets, cells, strict=True)):
        cost = made["labels"].sum(axis=1)[~made["own"]].mean()
        print(f"| {budget:,} | {cost:,.0f} | " + " | ".join(text(found[n][i]) for n in names) + " |")


def drawn(budgets: Sequence[int], found: dict[str, list[Estimate]]) -> str:
    width, height, left, bottom, top = 640, 320, 60, 50, 30
    ends = [end for es in found.values() for e in es for end in (e.low, e.high) if end is not None]
    low, high = min(0.5, *ends), max(ends) + 0.02

    def at(x: float, y: float) -> tuple[float, float]:
        share = np.log(x / budgets[0]) / np.log(budgets[-1] / budgets[0])
        across = left + 20 + share * (width - left - 50)
        return float(across), float(height - bottom - (y - low) / (high - low) * (height - bottom - top))

    marks = [f'<text x="{left}" y="14">accuracy, balanced</text>']
    for tick in np.arange(np.ceil(low * 20) / 20, high, 0.05):
        y = at(budgets[0], tick)[1]
        marks.append(f'<path d="M{left} {y:.1f}H{width - 10}" class="grid"/>')
        marks.append(f'<text x="{left - 8}" y="{y + 4:.1f}" class="y">{tick:.0%}</text>')
    marks += [f'<text x="{at(x, low)[0]:.1f}" y="{height - bottom + 18}" class="x">{x:,}</text>' for x in budgets]
    marks.append(f'<text x="{width / 2}" y="{height - 10}" class="x">labels that a record may cost</text>')
    for number, (attack, estimates) in enumerate(found.items()):
        points = [at(x, e.value or 0) for x, e in zip(budgets, estimates, strict=True)]
        aside = 5 * number - 7  # so that no interval hides another
        line = "L".join(f"{x + aside:.1f} {y:.1f}" for x, y in points)
        marks.append(f'<path d="M{line}" class="line c{number}"/>')
        for (x, y), budget, e in zip(points, budgets, estimates, strict=True):
            below, above = at(budget, e.low or 0)[1], at(budget, e.high or 0)[1]
            title = f"<title>{attack}, {budget:,} labels: {text(e)}</title>"
            marks.append(f'<path d="M{x + aside:.1f} {below:.1f}V{above:.1f}" class="bar c{number}"/>')
            marks.append(f'<circle cx="{x + aside:.1f}" cy="{y:.1f}" r="4" class="d{number}">{title}</circle>')
        marks.append(f'<text x="{width - 390 + 100 * number}" y="14" class="d{number}">{attack}</text>')
    colours = ("#666", "#15803d", "#1d4ed8", "#c2410c")
    style = "text{font:13px sans-serif;fill:#555}.x{text-anchor:middle}.y{text-anchor:end}.grid{stroke:#ddd}"
    style += ".line{fill:none;stroke-width:2}.bar{stroke-width:1.5;opacity:.5}"
    style += "".join(f".c{i}{{stroke:{c}}}.d{i}{{fill:{c}}}" for i, c in enumerate(colours))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return f"{head}<title>Accuracy against queries</title><style>{style}</style>{''.join(marks)}</svg>\n"


# ------------------------------------------------------------------ the paper's comparisons


def learnt(made: Cell, features: np.ndarray) -> list[Block]:
    """Gradient boosting on the adversary's own records, as `tear` learns."""
    own = made["own"]
    member = made["role"][own] == Role.MEMBER.value
    trained, held_out = boosted(features[own], member)
    return [block(made, trained.decision_function(features), best_threshold(held_out, member))]


OVER_SEEDS = "| attack | accuracy | AUC | TPR at 10 % | AUC − gap | AUC − tear |\n|---|---|---|---|---|---|"


def over_seeds(each: Sequence[Block], gaps: Sequence[Block], tears: Sequence[Block]) -> str:
    """Means over training runs, with intervals for all of them; each attack is compared on the same records."""
    found: list[Estimate | None] = [
        over_runs([decisions([one], 0.0)["accuracy"] for one in each], errors=[by_decision([one]) for one in each]),
        over_runs([auc([one]) for one in each], errors=[errors_behind("auc", [one]) for one in each]),
        over_runs([tpr_at_fpr([one], 0.1) for one in each], errors=[errors_behind("tpr@0.1", [one]) for one in each]),
    ]
    for others in (gaps, tears):
        pairs = list(zip(each, others, strict=True))
        same = each is others
        errors = [of_sum(errors_behind("auc", [a]), errors_behind("auc", [b]), -1.0) for a, b in pairs]
        gap = over_runs([auc_difference([a], [b]) for a, b in pairs], least=-1.0, errors=errors)
        found.append(None if same else gap)
    return " | ".join(map(text, found))


def paper(asked: argparse.Namespace) -> None:
    """Single rounds (its Table IV), a distance by an attack that holds the weights, a trajectory by distillation."""
    queries, found = asked.queries[-1], dict[str, list[Block]]()
    for seed in asked.seeds:
        made = dict(np.load(asked.out / f"baskets-plain-3-{queries}-{seed}.npz", allow_pickle=False))
        for name, one in of_paper(made, prepare(config(asked, seed, queries, ATTACKS))).items():
            found.setdefault(name, []).append(one)
    print(OVER_SEEDS)
    for name, each in found.items():
        print(f"| {name} | {over_seeds(each, found['gap'], found['tear, all rounds'])} |")


def of_paper(made: Cell, prepared: Prepared) -> dict[str, Block]:
    """The comparisons of one seed."""
    state = {name.removeprefix("model/"): value for name, value in made.items() if name.startswith("model/")}
    rows = prepared.game.candidates.rows
    place = {name: i for i, name in enumerate(rows.id)}
    here = rows.take(np.array([place[name] for name in made["id"]]))
    found = {"gap": blocks([made], "gap")}
    for name in ("tear", "tear-deepfool"):
        distance = made[f"distance/{name}"]  # rounds x records x targets
        found[f"{name}, all rounds"] = blocks([made], name)
        for number in (len(distance), len(distance) // 2):
            found[f"{name}, round {number} alone"] = learnt(made, distance[number - 1])
    strong = minimum_norm(prepared, state, here)
    member = made["role"][made["own"]] == Role.MEMBER.value
    for name in ("tear", "tear-deepfool"):
        nearest = np.nanmin(made[f"distance/{name}"][-1], axis=1)
        both = (nearest > 0) & (strong > 0)
        ratio = np.quantile(nearest[both] / strong[both], (0.1, 0.5, 0.9)).round(2)
        print(f"<!-- last round, {name} over minimum norm: {ratio} at a tenth, a half, nine tenths -->", flush=True)
    at = best_threshold(strong[made["own"]], member)
    found["minimum-norm distance, last model"] = [block(made, strong, at)]
    found["loss trajectory by distillation"] = learnt(made, trajectory(prepared, state, here, set(made["id"])))
    return {name: one for name, (one,) in found.items()}


def minimum_norm(prepared: Prepared, state: Any, here: Any) -> np.ndarray:
    """The distance under the last model that the fast minimum-norm attack finds (Pintor et al. 2021, foolbox), with the
    weights in hand; 0 where the label is wrong. The paper has Auto-Attack's, which needs a radius beforehand."""
    import foolbox
    import torch

    module = prepared.task.fresh(state).eval()
    x, y = torch.from_numpy(here.x), torch.from_numpy(np.asarray(here.y, np.int64))
    model = foolbox.PyTorchModel(module, bounds=(-10, 10), device="cpu")
    _, moved, _ = foolbox.attacks.L2FMNAttack(steps=300)(model, x, y, epsilons=None)
    distance = (moved - x).flatten(1).norm(dim=1).numpy().astype(np.float64)
    right = (module(x).argmax(dim=1) == y).numpy()
    there = (module(moved).argmax(dim=1) != y).numpy()
    return np.where(right, np.where(there, distance, distance[there].max() + 1), 0.0)


def trajectory(prepared: Prepared, state: Any, here: Any, taken: set[str], epochs: int = 25) -> np.ndarray:
    """Liu et al. 2022: the last model is distilled on records of the adversary's that teach nothing else; a record's
    losses under the distilled models, and that under the last one, are its features. The adversary knows which of its
    own records were trained on, so that it needs no shadow model. It sees probabilities, not labels alone."""
    import torch
    from torch.nn.functional import cross_entropy, log_softmax, softmax

    game = prepared.game
    mine = (game.candidates.party == game.parties[0]) & ~np.isin(game.candidates.id, list(taken))
    torch.manual_seed(0)
    x = torch.from_numpy(game.candidates.rows.take(mine).x)
    teacher, student = prepared.task.fresh(state).eval(), prepared.task.fresh(prepared.task.initial(1)).train()
    with torch.no_grad():
        soft = softmax(teacher(x), dim=1)
    optimiser = torch.optim.Adam(student.parameters(), 1e-3)
    points, y = torch.from_numpy(here.x), torch.from_numpy(np.asarray(here.y, np.int64))
    found = [losses(teacher, points, y)]
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):  # type: ignore[no-untyped-call]
            optimiser.zero_grad()
            cross_entropy(student(x[batch]), soft[batch]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        found.append(losses(student.eval(), points, y))
        student.train()
    agreed = float((log_softmax(student(x), dim=1).argmax(dim=1) == soft.argmax(dim=1)).float().mean())
    print(f"<!-- distilled on {len(x)} records for {epochs} epochs; same label on {agreed:.3f} of them -->")
    return np.stack(found, axis=1)


def losses(module: Any, x: Any, y: Any) -> np.ndarray:
    import torch

    with torch.no_grad():
        return np.asarray(torch.nn.functional.cross_entropy(module(x).double(), y, reduction="none"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["run", "tables", "paper", "picture"])
    parser.add_argument("data", nargs="?", choices=list(SETTINGS), default="baskets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--path", help="of the data set, where it needs one")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--queries", type=int, nargs="+", default=[6000])
    parser.add_argument("--targets", default="3")
    parser.add_argument("--defence")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.what == "run":
        return run(asked)
    if asked.what == "paper":
        return paper(asked)
    return tables(asked.out) if asked.what == "tables" else picture(asked.out)


if __name__ == "__main__":
    main()
