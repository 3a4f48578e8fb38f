"""Label-only boundary distances against HopSkipJump of ART and of foolbox, on one MLP with 600 inputs.

Labels a second at equal queries, and the time to the median distance that ART reaches. ART and foolbox are not needed
for anything else: `pip install -e '.[peers]' -c constraints.txt` brings both, and leaves torch, numpy and scikit-learn
as they are. One that is not installed is left out, and the result says so. ART's network is wrapped to float: it asks
in float64.
"""

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import nn

from benchmarks.measuring import Case, verdict
from fedaudit.adversary.signals.boundary import Points, Rays, any_starts, nearest_of_each_label, search, starts_among
from fedaudit.learn.tasks import TorchTask, Training, build_task
from fedaudit.types import Floats, Ints, Records, State

# As many records as a small audit has: ours are searched together, and fewer than a hundred do not fill the products.
RECORDS, CLASSES, INPUTS = 192, 100, 600
BUDGETS = (150, 300, 600, 1200, 2400)
BOX = (0.0, 1.0)  # ART keeps to the range of the records and foolbox to this one, whatever it is told; so do we
GOALS = {"ART": (3.0, 6.0)}  # labels a second, time to its distance; foolbox is told beside it
Found = tuple[Floats, float, float]  # distances, labels asked for, seconds


def run() -> dict[str, Any]:
    task, state, x, pool = world()
    ours = {budget: mine(task, state, x, pool, budget) for budget in BUDGETS}
    again = mine(task, state, x, pool, BUDGETS[-1], seed=1)
    agreement = float(stats.spearmanr(ours[BUDGETS[-1]][0], again[0]).statistic)
    cases: dict[str, Case] = {}
    told: dict[str, Any] = {"seed-to-seed Spearman": round(agreement, 3), "goal of Spearman": 0.9}
    for name, way in PEERS.items():
        if not installed(name):
            told[name] = "not installed"
            continue
        theirs = way(task, state, x)
        told[name] = {
            "median distance": round(float(np.median(theirs[0])), 4),
            "labels a record": round(theirs[1] / len(x)),
        }
        if name in GOALS:
            cases |= compared(name, ours, theirs)
        else:
            told[name] |= {what: round(case.ratio, 3) for what, case in compared(name, ours, theirs).items()}
    told["median distance by budget"] = {b: round(float(np.median(f[0])), 4) for b, f in ours.items()}
    if not cases:
        return {"name": "boundary", "ratio": None, "goal": 3.0, "better": "higher", "ok": False, "detail": told}
    return verdict("boundary", "higher", cases, **told)


def installed(peer: str) -> bool:
    return find_spec(peer.lower()) is not None


def compared(name: str, ours: dict[int, Found], theirs: Found) -> dict[str, Case]:
    """At equal queries: our largest budget against what the peer asked. At equal distance: our first budget that
    reaches the peer's median distance; a ratio of 0 if no budget does."""
    distance, asked, seconds = theirs
    each, goals = ours[BUDGETS[-1]][2] / ours[BUDGETS[-1]][1], GOALS.get(name, (0.0, 0.0))
    near = [found[2] for found in ours.values() if np.median(found[0]) <= np.median(distance)]
    soonest = near[0] if near else float("inf")
    return {
        f"{name}, labels a second": Case(seconds / asked / each, goals[0], (each, seconds / asked)),
        f"{name}, time to its distance": Case(seconds / soonest, goals[1], (soonest, seconds)),
    }


def world() -> tuple[TorchTask, State, Points, Points]:
    """A trained MLP on sparse binary inputs; records that it labels rightly by its own account, and others to start
    from."""
    rng = np.random.default_rng(0)
    centres = rng.random((CLASSES, INPUTS)) < 0.15
    y = rng.integers(0, CLASSES, 4000)
    x = (centres[y] ^ (rng.random((4000, INPUTS)) < 0.05)).astype(np.float32)
    task = build_task("mlp", (INPUTS,), CLASSES, {"hidden": [256, 128]})
    records = Records(x, y, np.array([str(i) for i in range(len(x))]))
    trained = task.train(task.initial(0), records, Training("adam", 1e-3, 4, 64), rng)
    return task, trained.state, x[:RECORDS], x[1000:1500]


def mine(task: TorchTask, state: State, x: Points, pool: Points, budget: int, seed: int = 0) -> Found:
    def labels(points: Points) -> Ints:
        return np.asarray(ask(points).argmax(axis=1))

    started = time.perf_counter()
    ask = task.asking(state)
    label = labels(pool)
    allowed = ~np.eye(CLASSES, dtype=bool)[labels(x)]
    distance, which = nearest_of_each_label(x, pool, label, CLASSES)
    starts = np.concatenate(
        [starts_among(pool, distance, which, allowed, 8), any_starts(pool, label, allowed, 24, 0)], axis=1
    )
    rays = search(labels, x, allowed, starts, Rays.none(*x.shape), budget, seed, BOX)
    moved = np.clip(x + rays.reach[:, None] * rays.direction, *BOX)
    return np.linalg.norm(moved - x, axis=1), float(rays.queries.sum()), time.perf_counter() - started


class Counting(nn.Module):
    """Counts the points it is asked about, and takes them in whatever precision they come."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module, self.asked = module, 0

    def forward(self, x: torch.Tensor) -> Any:
        self.asked += len(x)
        return self.module(x.float())


def art(task: TorchTask, state: State, x: Points, steps: int = 10) -> Found:
    from art.attacks.evasion import HopSkipJump
    from art.estimators.classification import PyTorchClassifier

    counting = Counting(task.fresh(state)).eval()
    classifier = PyTorchClassifier(counting, nn.CrossEntropyLoss(), (INPUTS,), CLASSES, device_type="cpu")
    attack = HopSkipJump(classifier, batch_size=512, max_iter=steps, max_eval=300, init_eval=100, verbose=False)
    started = time.perf_counter()
    moved = attack.generate(x)
    seconds = time.perf_counter() - started
    return np.linalg.norm(moved - x, axis=1), float(counting.asked), seconds


def foolbox(task: TorchTask, state: State, x: Points, steps: int = 10) -> Found:
    import foolbox as fb

    counting = Counting(task.fresh(state)).eval()
    model = fb.PyTorchModel(counting, bounds=BOX, device="cpu")
    points = torch.from_numpy(x)
    labels = counting(points).argmax(dim=1)
    attack = fb.attacks.HopSkipJumpAttack(steps=steps, initial_gradient_eval_steps=50, max_gradient_eval_steps=300)
    started, before = time.perf_counter(), counting.asked
    _, moved, _ = attack(model, points, labels, epsilons=None)
    seconds = time.perf_counter() - started
    return np.linalg.norm(moved.numpy() - x, axis=1), float(counting.asked - before), seconds


PEERS: dict[str, Callable[..., Found]] = {"ART": art, "foolbox": foolbox}
