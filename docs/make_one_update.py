"""Makes the figures of docs/one-update.md: what single updates say, against the truth, in many ways of training.

    python -m docs.make_one_update run [NAMES] --data FOLDER --out FOLDER
    python -m docs.make_one_update tables --out FOLDER

`run` writes one JSON file for each case (all, or those named). FOLDER of data has adult.npz. Setting: five
parties, rounds of one local epoch in batches of 32 (Adam at 1e-3, SGD at 0.1), an MLP 512-256-128, records drawn
by seed 0, 6,000 other records as outsiders, of which 2,000 are looked at. Each party's update of rounds 1, 5 and 10 is
looked at; figures are over all parties of a round together.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedaudit.config.schema import parse
from fedaudit.data import load
from fedaudit.learn.tasks import TorchTask, Training, build_task, loss_of_batch, tensor
from fedaudit.questions.update import UpdateSection, labels, presence
from fedaudit.questions.update.parts import BesideTruth, CannotTell, Known, OneUpdate
from fedaudit.types import Records, State

OUTSIDERS, PARTIES, ROUNDS, LOOKED = 6000, 5, 10, (1, 5, 10)
CLIPPING, LEVELS, MOST = 8.0, 2**22, 1000  # Flower's SecAgg+, by default
ADAM, SGD = Training(batch_size=32), Training("sgd", 0.1, batch_size=32)
Change = Callable[[State, State, np.random.Generator], State]


@dataclass(frozen=True)
class Trial:
    """One federation. `own`: an optimizer that fedaudit does not have; `change`: what happens to an update on its way;
    `sum`: looked at as a mean of all parties; `before`: what stands before the model's first layer."""

    data: str
    records: int
    how: Training = ADAM
    own: Callable[[nn.Module], Any] | None = None
    change: Change | None = None
    parties: int = PARTIES
    sum: bool = False
    quantised: bool = False
    before: Callable[[], nn.Module] | None = None
    activation: Callable[[], nn.Module] = nn.ReLU
    other: bool = False  # judged against records that the update is not about
    rounds: tuple[int, ...] = LOOKED
    known: dict[str, Any] | None = None


def largest(share: float) -> Change:
    def change(start: State, sent: State, rng: np.random.Generator) -> State:
        cut = np.quantile(np.concatenate([np.abs(sent[n] - start[n]).ravel() for n in start]), 1 - share)
        return {n: np.where(np.abs(sent[n] - start[n]) > cut, sent[n], start[n]) for n in start}

    return change


def noise(share: float) -> Change:
    def change(start: State, sent: State, rng: np.random.Generator) -> State:
        def noised(name: str) -> NDArray[Any]:
            moved = sent[name] - start[name]
            per_weight = share * np.linalg.norm(moved) / np.sqrt(moved.size)
            return np.asarray(sent[name] + rng.normal(0, per_weight, moved.shape), moved.dtype)

        return {name: noised(name) for name in start}

    return change


def half(start: State, sent: State, rng: np.random.Generator) -> State:
    return {name: value.astype(np.float16) for name, value in sent.items()}


def private(module: nn.Module) -> Any:
    """DP-SGD's step: each batch's mean gradient with noise of a tenth of the clip norm, in every weight."""

    class Noised(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            for group in self.param_groups:
                for weight in group["params"]:
                    weight.grad += torch.randn_like(weight) * 0.1 / 32
            super().step()

    return Noised(module.parameters(), lr=0.1)


OTHER = {
    "momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.02, momentum=0.9),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.01),
    "private": private,
}
SIZES = (("baskets", 60), ("adult", 300))
TRIALS: dict[str, Trial] = {
    **{f"baskets-{n}": Trial("baskets", n) for n in (20, 60, 100)},
    **{f"adult-{n}": Trial("adult", n) for n in (100, 300, 1000, 5000)},
    **{f"{d}-sgd": Trial(d, n, SGD) for d, n in SIZES},
    **{f"{d}-momentum": Trial(d, n, replace(SGD, lr=0.02), OTHER["momentum"]) for d, n in SIZES},
    **{f"{d}-adamw": Trial(d, n, ADAM, OTHER["adamw"], known={}) for d, n in SIZES},
    **{f"{d}-adam-l2": Trial(d, n, replace(ADAM, weight_decay=1e-3), known={}) for d, n in SIZES},
    **{f"{d}-sgd-l2": Trial(d, n, replace(SGD, weight_decay=1e-3)) for d, n in SIZES},
    **{f"{d}-3-epochs": Trial(d, n, replace(ADAM, epochs=3)) for d, n in SIZES},
    "baskets-gelu": Trial("baskets", 60, activation=nn.GELU),
    "sum-of-4": Trial("baskets", 20, replace(ADAM, batch_size=8), parties=4, sum=True),
    "sum-of-4-one-step": Trial("baskets", 20, parties=4, sum=True),
    "sum-of-20": Trial("adult", 40, parties=20, sum=True),
    "secagg-plus": Trial("baskets", 20, parties=4, sum=True, quantised=True),
    "float16": Trial("baskets", 60, change=half),
    "null": Trial("baskets", 60, other=True),
    "null-adult": Trial("adult", 300, other=True),
    **{f"top-{s}": Trial("baskets", 60, change=largest(s / 100), rounds=(1, 10)) for s in (50, 10, 1)},
    "dropout": Trial("baskets", 60, before=lambda: nn.Dropout(0.1), rounds=(1, 10)),
    "layer-norm": Trial("baskets", 60, before=lambda: nn.LayerNorm(600), rounds=(1, 10)),
    "noise": Trial("baskets", 60, change=noise(0.1), rounds=(1, 10)),
    "dp-sgd": Trial("baskets", 60, SGD, OTHER["private"], rounds=(1, 10)),
}


@dataclass(frozen=True)
class Labelled:
    """`step`: one step of SGD is looked at, after so many rounds of `how`; else its own updates, with simulation."""

    records: int
    how: Training = ADAM
    step: bool = True
    skew: float | None = None
    looked: int = PARTIES


LABELS: dict[str, Labelled] = {
    **{f"labels-{n}": Labelled(n) for n in (16, 64, 256, 1538)},
    "labels-skewed-sgd": Labelled(600, replace(SGD, batch_size=64), step=False, skew=0.3, looked=3),
    "labels-skewed-adam": Labelled(600, replace(ADAM, batch_size=64), step=False, skew=0.3, looked=3),
    "labels-very-skewed-sgd": Labelled(600, replace(SGD, batch_size=64), step=False, skew=0.05, looked=3),
    "labels-even-sgd": Labelled(1538, replace(SGD, batch_size=64), step=False, looked=2),
}


@dataclass
class World:
    """The records of a data set, shuffled: those of parties come first, the outsiders last."""

    folder: Path = Path("data")
    seen: dict[str, Records] = field(default_factory=dict)

    def records(self, name: str) -> Records:
        if name not in self.seen:
            where = {"path": str(self.folder / "adult.npz")} if name == "adult" else {}
            found = load(parse({"data": {"name": name, **where}}).data).records
            order = np.random.default_rng(0).permutation(len(found))
            self.seen[name] = found.take(order)
        return self.seen[name]

    def outsiders(self, name: str) -> Records:
        whole = self.records(name)
        return whole.take(np.arange(len(whole) - OUTSIDERS, len(whole)))

    def parties(self, name: str, many: int, records: int, skew: float | None = None) -> list[Records]:
        whole, rng = self.records(name), np.random.default_rng(1)
        pool = len(whole) - OUTSIDERS
        if skew is None:
            return [whole.take(np.arange(at * records, (at + 1) * records)) for at in range(many)]
        found = []
        by_class = [np.flatnonzero(whole.y[:pool] == label) for label in range(int(whole.y.max()) + 1)]
        for _ in range(many):
            wanted = rng.multinomial(records, rng.dirichlet(np.full(len(by_class), skew)))
            drawn = [rng.choice(own, min(k, len(own)), replace=False) for own, k in zip(by_class, wanted, strict=True)]
            found.append(whole.take(np.concatenate(drawn)))
        return found


def model(wide: int, classes: int, trial: Trial) -> TorchTask:
    if trial.before is None and trial.activation is nn.ReLU:
        return build_task("mlp", (wide,), classes, {})

    def build() -> nn.Module:
        sizes = (wide, 512, 256, 128)
        hidden = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), trial.activation())]
        return nn.Sequential(*([trial.before()] if trial.before else []), *hidden, nn.Linear(128, classes))

    return TorchTask(build, classes)


def trained(task: TorchTask, start: State, mine: Records, trial: Trial, rng: np.random.Generator) -> State:
    if trial.own is None:
        return task.train(start, mine, trial.how, rng).state
    module = task.fresh(start)
    optimizer = trial.own(module)
    x, y = tensor(mine.x), tensor(mine.y)
    torch.manual_seed(int(rng.integers(2**31)))
    for batch in torch.split(torch.from_numpy(rng.permutation(len(mine))), trial.how.batch_size):
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss_of_batch(module(x[batch]), y[batch], task.classes))
        optimizer.step()
    return task.state_of(module)


def mean(sent: Sequence[State], like: State) -> dict[str, NDArray[Any]]:
    return {n: np.mean([s[n] for s in sent], axis=0, dtype=np.float32).astype(like[n].dtype) for n in like}


def secagg(sent: Sequence[State], records: int) -> dict[str, NDArray[Any]]:
    """As Flower's SecAgg+ does it: weights times the share of records, rounded at random, added, divided again."""
    from flwr.common.secure_aggregation.quantization import dequantize, quantize

    np.random.seed(0)  # noqa: NPY002 - Flower rounds with the global generator
    share = round(records / MOST * LEVELS) / LEVELS
    names = list(sent[0])
    whole = [quantize([state[n].astype(np.float64) * share for n in names], CLIPPING, LEVELS) for state in sent]
    added = [np.sum([one[i].astype(np.int64) for one in whole], axis=0) for i in range(len(names))]
    back = dequantize([each - (len(sent) - 1) * (LEVELS // 2) for each in added], CLIPPING, LEVELS)
    return {n: (each / (share * len(sent))).astype(np.float32) for n, each in zip(names, back, strict=True)}


def one_trial(world: World, trial: Trial) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    mine, outside = world.parties(trial.data, trial.parties, trial.records), world.outsiders(trial.data)
    others = world.parties(trial.data, 2 * trial.parties, trial.records)[trial.parties :] if trial.other else mine
    classes = int(world.records(trial.data).y.max()) + 1
    task = model(outside.x.shape[1], classes, trial)
    how = trial.how.__dict__ if trial.known is None else trial.known
    known = Known(outsiders=outside, classes=classes, training=how)
    quantum = 2 * CLIPPING / LEVELS * MOST / trial.records if trial.quantised else None
    options, start, found = UpdateSection(quantum=quantum), task.initial(0), []
    for round in range(1, max(trial.rounds) + 1):
        rngs = [np.random.default_rng([0, round, at]) for at in range(len(mine))]
        sent = [trained(task, start, own, trial, rng) for own, rng in zip(mine, rngs, strict=True)]
        if round in trial.rounds:
            changed = [trial.change(start, s, rng) if trial.change else s for s, rng in zip(sent, rngs, strict=True)]
            found.append({"round": round, **looked(task, start, changed, mine, others, trial, known, options)})
        start = mean(sent, start)
    return found


def looked(
    task: TorchTask,
    start: State,
    sent: list[State],
    mine: list[Records],
    others: list[Records],
    trial: Trial,
    known: Known,
    options: UpdateSection,
) -> dict[str, Any]:
    if trial.sum:
        both = [np.concatenate([getattr(own, name) for own in mine]) for name in ("x", "y", "id")]
        together = Records(both[0], both[1], both[2])
        state: State = secagg(sent, trial.records) if trial.quantised else mean(sent, start)
        sent, mine = [state], [together]
    seen, unable, seconds = [], list[str](), 0.0
    for at, (state, own) in enumerate(zip(sent, mine, strict=True)):
        parties = tuple(map(str, range(trial.parties))) if trial.sum else ("a",)
        update = OneUpdate(received=start, sent=state, task=task, examples=len(own), parties=parties)
        began = time.perf_counter()
        try:
            table = presence.PART.look(update, known, options)
        except CannotTell as why:
            unable.append(why.code)
            continue
        finally:
            seconds += time.perf_counter() - began
        truth = others[at] if trial.other else own
        seen.append(BesideTruth(party=str(at), round=1, vantage="server", table=table, members=truth))
    figures = presence.PART.judge(seen, known, 0.95) if seen else {}
    plain = {name: [e.value, e.low, e.high, e.n_pos, e.n_neg] for name, e in figures.items()}
    absent = [int((~(one.members.x != 0).any(axis=0) & one.table["update-possible"]).sum()) for one in seen]
    rules = sorted({str(one.table["update-rule"][0]) for one in seen})
    most = sum(bool(one.table["update-at-most"][0]) for one in seen)
    told = {"figures": plain, "unable": unable, "absent": absent, "rules": rules, "at-most": most}
    return {**told, "seconds": seconds / len(sent)}


def one_labelled(world: World, case: Labelled) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    mine, outside = world.parties("baskets", PARTIES, case.records, case.skew), world.outsiders("baskets")
    task = build_task("mlp", (outside.x.shape[1],), 100, {})
    start, found = task.initial(0), []
    for round in range(1, ROUNDS + 1):
        rngs = [np.random.default_rng([0, round, at]) for at in range(len(mine))]
        sent = [task.train(start, own, case.how, rng).state for own, rng in zip(mine, rngs, strict=True)]
        if round in (1, ROUNDS):
            how = Training("sgd", 0.1, batch_size=10**6) if case.step else case.how
            known = Known(outsiders=outside, classes=100, training=how.__dict__)
            seen, began = [], time.perf_counter()
            for at, own in enumerate(mine[: case.looked]):
                state = task.train(start, own, how, rngs[at]).state if case.step else sent[at]
                update = OneUpdate(received=start, sent=state, task=task, examples=len(own), round=round)
                table = labels.PART.look(update, known, UpdateSection(simulate=not case.step))
                seen.append(BesideTruth(party=str(at), round=round, vantage="server", table=table, members=own))
            took = (time.perf_counter() - began) / len(seen)
            figures = labels.PART.judge(seen, known, 0.95)
            plain = {name: [e.value, e.low, e.high, e.n_pos, e.n_neg] for name, e in figures.items()}
            found.append({"round": round, "figures": plain, "seconds": took})
        start = mean(sent, start)
    return found


def run(names: Sequence[str], data: Path, out: Path) -> None:
    world = World(data)
    out.mkdir(parents=True, exist_ok=True)
    for name in names or [*TRIALS, *LABELS]:
        if not (out / f"{name}.json").exists():
            began = time.perf_counter()
            found = one_trial(world, TRIALS[name]) if name in TRIALS else one_labelled(world, LABELS[name])
            (out / f"{name}.json").write_text(json.dumps(found))
            print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


def cell(figures: dict[str, Any], name: str) -> str:
    """The value with its interval and counts."""
    if name not in figures:
        return "–"
    value, low, high, hits, misses = figures[name]
    return f"{value:.2f} ({low:.2f}–{high:.2f}; {hits + misses})"


def listed(figures: dict[str, Any], name: str) -> str:
    """Precision with its interval and counts, recall, and the precision of a guess that lists as many."""
    if f"{name}-precision" not in figures:
        return "–"
    value, low, high, hits, misses = figures[f"{name}-precision"]
    blind = figures[f"{name}-blind"][3] / (hits + misses)
    recall = figures[f"{name}-recall"][0]
    return f"{value:.2f} / {recall:.2f} / {blind:.2f} ({low:.2f}–{high:.2f}; {hits + misses})"


def tables(out: Path) -> None:
    print("| case | round | absent | rule | nobody has it | exactly one has it | the same bearers |")
    print("|---|---|---|---|---|---|---|")
    for name in TRIALS:
        for one in json.loads((out / f"{name}.json").read_text()) if (out / f"{name}.json").exists() else ():
            told = [listed(one["figures"], figure) for figure in FIGURES]
            rule = ", ".join([*one["rules"], *(f"cannot tell: {why}" for why in sorted(set(one["unable"])))])
            print(f"| {name} | {one['round']} | {sum(one['absent'])} | {rule} | {' | '.join(told)} |")
    print("\n| case | round | records counted wrongly | by outsiders' classes | AUC of having a class | counts held |")
    print("|---|---|---|---|---|---|")
    for name in LABELS:
        for one in json.loads((out / f"{name}.json").read_text()) if (out / f"{name}.json").exists() else ():
            told = [cell(one["figures"], key) for key in OF_LABELS]
            print(f"| {name} | {one['round']} | {' | '.join(told)} |")


FIGURES = ("presence", "singletons", "twins")
OF_LABELS = ("label-error", "label-error-blind", "label-auc", "label-interval")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "tables"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("one-update"))
    given = parser.parse_args()
    if given.what == "run":
        run(given.names, given.data, given.out)
    else:
        tables(given.out)


if __name__ == "__main__":
    main()
