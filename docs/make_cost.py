"""What an audit costs: a model of its time and memory, fitted on small runs and checked on larger ones, in
docs/consortium.md.

    python -m docs.make_cost run      measures what is missing (some minutes on one core); docs/cost.json keeps it
    python -m docs.make_cost page     fits, checks, and writes the table into docs/consortium.md

An audit of a whole federation, with the attacks that are run by default, on a multilayer perceptron in torch. Seconds
are processor time of one core, so that what else a machine does counts little; each run has a process of its own, so
that its memory is its own.
"""

import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

PAGE, KEPT = Path(__file__).parent / "consortium.md", Path(__file__).parent / "cost.json"
INPUTS, CLASSES, ROUNDS = 60, 10, 4
Load = dict[str, int]  # records of the whole federation, parties, width of the hidden layer

SMALL: list[Load] = [
    {"records": n, "parties": k, "width": w}
    for n, k, w in (
        (600, 2, 32), (1200, 2, 32), (2400, 2, 32), (1200, 4, 32), (1200, 8, 32),
        (1200, 2, 128), (1200, 2, 512), (2400, 4, 128), (2400, 8, 256), (600, 4, 512),
    )
]  # fmt: skip
LARGE: list[Load] = [
    {"records": 12_000, "parties": 8, "width": 512},
    {"records": 6_000, "parties": 16, "width": 1024},
]
BEGIN, END = "<!-- cost: written by docs/make_cost.py -->", "<!-- end of cost -->"


def parameters(load: Load) -> int:
    return INPUTS * load["width"] + load["width"] + load["width"] * CLASSES + CLASSES


# ------------------------------------------------------------------ one run, in a process of its own


def measured(load: Load) -> dict[str, float]:
    import resource
    import tempfile

    import torch
    from torch import nn

    import fedaudit
    from fedaudit.integrations.options import audited
    from fedaudit.types import Round, Trained

    torch.set_num_threads(1)
    rng, each = np.random.default_rng(0), load["records"] // load["parties"]
    games, data = [], []
    for party in range(load["parties"]):
        x = rng.normal(size=(each, INPUTS)).astype(np.float32)
        y = rng.integers(0, CLASSES, each)
        records, game = fedaudit.set_aside(x, y, party=f"p{party}", seed=0)
        games.append(game)
        data.append((torch.from_numpy(records.x), torch.from_numpy(records.y)))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(INPUTS, load["width"]), nn.ReLU(), nn.Linear(load["width"], CLASSES))

    def state() -> dict[str, Any]:
        return {name: value.numpy().copy() for name, value in model.state_dict().items()}

    def train(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for batch in torch.split(torch.randperm(len(x)), 32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    at_rest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    spent, epochs = [], []
    with tempfile.TemporaryDirectory() as folder:
        session = audited(model, games, out=Path(folder) / "run", rounds=ROUNDS)
        now = state()
        for index in range(1, ROUNDS + 1):
            sent = {}
            begun = time.process_time()
            for party, (x, y) in enumerate(data):
                model.load_state_dict({name: torch.from_numpy(value) for name, value in now.items()})
                train(x, y)
                sent[f"p{party}"] = Trained(state(), len(x), 1.0)
            epochs.append(time.process_time() - begun)
            made = {name: np.mean([one.state[name] for one in sent.values()], axis=0) for name in now}
            begun = time.process_time()
            session.observe(Round(index, now, sent, made))
            spent.append(time.process_time() - begun)
            now = made
        begun = time.process_time()
        session.finish(Path(folder) / "run")
        end = time.process_time() - begun
        assert not session.gaps, session.gaps
        disk = sum(path.stat().st_size for path in (Path(folder) / "run").rglob("*") if path.is_file())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "round": float(np.median(spent[1:])),  # the first also makes what is kept between rounds
        "first": spent[0],
        "end": end,
        "epoch": float(np.median(epochs)),
        "memory": peak - at_rest,
        "disk": disk / 1e6 / ROUNDS,
    }


# ------------------------------------------------------------------ the model


def terms(load: Load) -> list[float]:
    """What a round is made of: something constant, something for each party, for each record, for each weight of each
    party's model, and for each record and weight: its gradient."""
    n, k, p = load["records"], load["parties"], parameters(load)
    return [1.0, k, n / 1e3, k * p / 1e6, n * p / 1e9]


NAMES = ["constant", "a party", "a thousand records", "a million weights of a party", "a record and weight, times 10⁹"]


def fitted(runs: list[tuple[Load, dict[str, float]]], what: str) -> list[float]:
    """Coefficients that are not negative, by relative error: a small run counts as much as a large one."""
    from scipy.optimize import nnls

    rows = np.array([terms(load) for load, _ in runs])
    found = np.array([one[what] for _, one in runs])
    return [float(c) for c in nnls(rows / found[:, None], np.ones(len(found)))[0]]


def predicted(coefficients: list[float], load: Load) -> float:
    return float(np.dot(coefficients, terms(load)))


WHAT = {
    "round": "seconds of a round",
    "end": "seconds at the end",
    "memory": "MB of memory",
    "disk": "MB a round on disk",
}


def page(kept: dict[str, Any]) -> str:
    small = [(load, kept[key(load)]) for load in SMALL]
    large = [(load, kept[key(load)]) for load in LARGE]
    models = {what: fitted(small, what) for what in WHAT}
    lines = [f"| | {' | '.join(NAMES)} | largest error where it was fitted |", "|---|" + "---|" * (len(NAMES) + 1)]
    for what, name in WHAT.items():
        worst = max(abs(math.log(predicted(models[what], load) / one[what])) for load, one in small)
        cells = " | ".join(f"{c:.2g}" if c else "0" for c in models[what])
        lines.append(f"| {name} | {cells} | {math.expm1(worst):.0%} |")
    lines += ["", "| larger run | | foretold | measured | off by |", "|---|---|---|---|---|"]
    for load, one in large:
        about = f"{load['records']:,} records, {load['parties']} parties, {parameters(load):,} weights"
        for what, name in WHAT.items():
            guess = predicted(models[what], load)
            lines.append(f"| {about} | {name} | {guess:.3g} | {one[what]:.3g} | {guess / one[what] - 1:+.0%} |")
    epochs = [[one["round"] / one["epoch"] for _, one in some] for some in (large, small)]
    told = [f"{min(some):.0f} to {max(some):.0f}" for some in epochs]
    lines += [
        "",
        f"In local epochs of all parties, a round of the larger audits took {told[0]}, and one of the small ones, "
        f"which is mostly made of constants, {told[1]}. An epoch trains on three fifths of the records in batches "
        "of 32; the audit looks at all.",
    ]
    return "\n".join(lines)


def key(load: Load) -> str:
    return "-".join(str(load[name]) for name in ("records", "parties", "width"))


def main(asked: list[str]) -> None:
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if asked[:1] == ["one"]:
        print(json.dumps(measured(json.loads(asked[1]))))
    elif asked == ["run"]:
        for load in [*SMALL, *LARGE]:
            if key(load) not in kept:
                command = [sys.executable, "-m", "docs.make_cost", "one", json.dumps(load)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                kept[key(load)] = json.loads(done.stdout.splitlines()[-1])
                KEPT.write_text(json.dumps(kept, indent=1) + "\n")
                print(key(load), kept[key(load)], flush=True)
    else:
        text = PAGE.read_text()
        found = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
        PAGE.write_text(found.sub(lambda _: f"{BEGIN}\n{page(kept)}\n{END}", text))


if __name__ == "__main__":
    main(sys.argv[1:])
