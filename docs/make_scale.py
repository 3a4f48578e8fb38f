"""How time and memory of an audit grow, and what follows for a consortium and for a million phones: docs/scale.md.

    python -m docs.make_scale run [NAMES]     measures all that is missing, or what is named
    python -m docs.make_scale page            writes docs/scale.md from docs/scale.json

Seconds are those of one core's processor time, so that what else a machine does counts little. The model is one layer
in plain numpy (`benchmarks.stream_memory`), because the audit's own work is measured; its seconds per record of a real
model come from one round of a ResNet-20. `stream` and `day` are long: `make soak` runs them.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.stream_memory import Linear, Load, alone, resident, stream

PAGE, KEPT = Path(__file__).parent / "scale.md", Path(__file__).parent / "scale.json"
STEADY = {"rounds": 8, "planned": 1000, "marks": [2, 8], "attacks": 6}  # after two rounds in which all are judged
SERIES: dict[str, list[tuple[float, dict[str, Any]]]] = {
    "records": [(n, {**STEADY, "records": n, "parties": 4}) for n in (3_000, 10_000, 30_000, 100_000)],
    "parties": [(n, {**STEADY, "records": 10_000, "parties": n}) for n in (2, 8, 32, 100)],
    "parameters": [(10 * n, {**STEADY, "records": 3_000, "parties": 4, "inputs": n}) for n in (10, 100, 1_000, 4_000)],
    "attacks": [(n, {**STEADY, "records": 10_000, "parties": 4, "attacks": n}) for n in (1, 3, 7, 14)],
    "rounds": [(n, {"records": 600, "parties": 2, "rounds": n, "attacks": 6}) for n in (50, 200, 800)],
}
WIDE: dict[str, Any] = {"records": 100_000, "parties": 100, "rounds": 1_000, "marks": [1, 5, *range(10, 1001, 10)]}
DAY: dict[str, Any] = {"records": 400, "parties": 2, "rounds": 20_000, "attacks": 6}
DAY["marks"] = [10, 100, *range(500, 20_001, 500)]
MILLION: dict[str, Any] = {**STEADY, "records": 1_000_000, "parties": 4, "rounds": 4, "marks": [2, 4], "attacks": 3}
MANY_PARTIES, EACH = 100, 120


# ------------------------------------------------------------------ what is measured


def in_pieces(load: dict[str, Any]) -> dict[str, Any]:
    """A long run in this process: whatever it has reached is kept if it is interrupted."""
    load = {**load, "marks": tuple(load["marks"])}
    marks: list[Any] = []
    try:
        return stream(Load(**load), marks)
    except KeyboardInterrupt:
        return {"marks": marks, "cut": True}


def report() -> dict[str, Any]:
    """100 parties and all attacks that read outputs, in one page, by the way that a loop of somebody's own takes."""
    import fedaudit
    from fedaudit.data.partition import game, iid
    from fedaudit.data.records import dataset

    rng, task = np.random.default_rng(0), Linear()
    n = MANY_PARTIES * EACH
    rows = dataset("many", rng.normal(size=(n, task.inputs)).astype(np.float32), rng.integers(0, 10, n)).records
    split = game(rows, iid(rows, MANY_PARTIES, rng), 0.3, 0.3, rng)
    with tempfile.TemporaryDirectory() as folder:
        out, state = Path(folder) / "run", task.initial(0)
        began = time.process_time()
        with fedaudit.record(task, split, out=out, rounds=3, vantages=["client", "server"]) as audit:
            audit.observe(0, state)
            for index in (1, 2, 3):
                sent = {party: {"w": state["w"] + 0.05 * rng.normal(size=state["w"].shape)} for party in split.parties}
                state = {"w": np.mean([one["w"] for one in sent.values()], axis=0)}
                audit.observe(index, state, sent)
        audited = time.process_time() - began
        (out / "report.html").unlink()
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "fedaudit", "report", str(out)], check=True, capture_output=True)
        wall, page = time.perf_counter() - began, (out / "report.html").stat().st_size
        results = json.loads((out / "results.json").read_text())["results"]
        size = (out / "results.json").stat().st_size
    return {
        "attacks": len({one["attack"] for one in results}), "entries": len(results), "audited": audited,
        "page": page / 2**20, "results": size / 2**20, "rendering": wall, "end": resident(),
    }  # fmt: skip


def hospital() -> dict[str, Any]:
    """One round of a ResNet-20 on pictures of 32 x 32: seconds of one core per record, training and audit."""
    import torch

    from benchmarks.ghost import train, updates
    from benchmarks.matched import of_a_round, prepare, records
    from fedaudit.adversary.signals import matched
    from fedaudit.adversary.signals.updates import statistics
    from fedaudit.learn.tasks import build_task

    torch.set_num_threads(1)
    n, task = 256, build_task("resnet20", (3, 32, 32), 100, {})
    rows, state = records((3, 32, 32), n), task.initial(0)
    sent = updates(task, state, rows, 1)[0]
    module = task.fresh(state)
    update = {name: torch.from_numpy(state[name] - sent[name])[None] for name, _ in module.named_parameters()}
    prepared = prepare(task, state, rows, matched.largest_linear(module))
    parts = {
        "epoch": lambda: train(task, state, rows),
        "outputs": lambda: task.last_layer(state, rows.x),
        "gradients": lambda: statistics(task, state, [sent], rows),
        "filter": lambda: of_a_round(task, state, prepared, update),
    }
    seconds = {}
    for name, part in parts.items():
        part()
        taken = []
        for _ in range(3):
            began = time.process_time()
            part()
            taken.append((time.process_time() - began) / n)
        seconds[name] = sorted(taken)[1]
    return {"records": n, "parameters": sum(p.numel() for p in module.parameters()), **seconds}


def cells() -> dict[str, Any]:
    single = {"million": lambda: alone(MILLION), "report": report, "hospital": hospital}
    of_series = {f"{name} {x:g}": (lambda load=load: alone(load)) for name, xs in SERIES.items() for x, load in xs}
    return {**of_series, **single, "day": lambda: in_pieces(DAY), "stream": lambda: in_pieces(WIDE)}


def measure(names: list[str]) -> None:
    known = cells()
    for name in names or known:
        found = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        if names or name not in found:
            found[name] = known[name]()
            KEPT.write_text(json.dumps(found, indent=1) + "\n")
            print(name, json.dumps(found[name]), flush=True)


# ------------------------------------------------------------------ the page


def exponent(x: list[float], y: list[float]) -> tuple[float, float]:
    """The slope of log y over log x by least squares, and its standard error."""
    a, b = np.log(x), np.log(y)
    slope, start = np.polyfit(a, b, 1)
    rest = b - slope * a - start
    spread = np.sqrt(np.sum(rest**2) / max(len(a) - 2, 1) / np.sum((a - a.mean()) ** 2))
    return float(slope), float(spread)


def steady(one: dict[str, Any]) -> float:
    """Seconds of a round after the first ones, in which every attack is judged."""
    (first, *_, early), (last, *_, late) = one["marks"][0], one["marks"][-1]
    return float((late - early) / (last - first))


def of_series(found: dict[str, Any], name: str) -> list[tuple[float, dict[str, Any]]]:
    return [(x, found[f"{name} {x:g}"]) for x, _ in SERIES[name] if f"{name} {x:g}" in found]


def table(found: dict[str, Any]) -> str:
    rows = ["| in | from | to | seconds a round | exponent | seconds to judge | exponent | memory, MB | exponent |"]
    rows.append("|---" * 9 + "|")
    for name in SERIES:
        seen = of_series(found, name)
        x = [at for at, _ in seen]
        whole = name == "rounds"
        parts = [[one["streaming"] if whole else steady(one) for _, one in seen], [one["judging"] for _, one in seen]]
        parts.append([one["end"] - one["before"] for _, one in seen])
        cells = []
        for y, digits in zip(parts, (3, 1, 0), strict=True):
            slope, error = exponent(x, y)
            cells += [f"{y[0]:.{digits}f} to {y[-1]:.{digits}f}", f"{slope:.2f} ± {error:.2f}"]
        rows.append(f"| {name} | {x[0]:,.0f} | {x[-1]:,.0f} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def flat(one: dict[str, Any]) -> str:
    """Memory over the rounds, at some of the marks."""
    marks = one["marks"]
    chosen = sorted({round(i) for i in np.linspace(0, len(marks) - 1, min(8, len(marks)))})
    rows = ["| after round | memory, MB | peak, MB | seconds so far |", "|---|---|---|---|"]
    rows += [f"| {r:,} | {now:.0f} | {peak:.0f} | {s:.0f} |" for r, now, peak, s in (marks[i] for i in chosen)]
    return "\n".join(rows)


def page() -> None:
    found = json.loads(KEPT.read_text())
    wide, day, million, many, cell = (found[name] for name in ("stream", "day", "million", "report", "hospital"))
    a_round = (wide["marks"][-1][3] - wide["marks"][1][3]) / (wide["marks"][-1][0] - wide["marks"][1][0])
    reached, of_day = wide["marks"][-1][0], day["marks"][-1][0]
    e = cell["epoch"]
    passes = cell["outputs"] + cell["gradients"] + cell["filter"]
    ratio, site, sites, planned = passes / e, 20_000, 10, 100
    seen = 2 * sites * site * passes * planned  # global models, and the local one of each site
    largest = of_series(found, "records")[-1]
    kilobytes = 1_000 * (largest[1]["end"] - largest[1]["marks"][0][1]) / largest[0]
    few, most = of_series(found, "parties")[0], of_series(found, "parties")[-1]
    each = (steady(most[1]) - steady(few[1])) / (most[0] - few[0])
    text = TEXT.format(
        table=table(found), wide=flat(wide), day=flat(day), a_round=a_round, reached=reached, of_day=of_day,
        thousand=1_000 * a_round / 60, left="" if reached >= 1_000 else LEFT.format(reached=reached),
        day_left="" if of_day >= 20_000 else DAY_LEFT.format(reached=of_day), day_round=1_000 * steady(day),
        million=steady(million), million_mb=million["end"], million_judging=million["judging"], **{
            f"many_{key}": value for key, value in many.items()
        },
        milliseconds=1_000 * e, ratio=ratio, outputs=cell["outputs"] / e, gradients=cell["gradients"] / e,
        filter=cell["filter"] / e, training=sites * site * 0.3 * e * planned / 3600, hours=seen / 3600,
        forward=2 * sites * site * cell["outputs"] * planned / 3600, parameters=cell["parameters"],
        kilobytes=kilobytes, phones=1_000_000 * each / 3600,
    )  # fmt: skip
    PAGE.write_text(text)


LEFT = """
The run of 1,000 rounds was cut off after {reached}, because the machine was shared with other work; what is said of
more is extrapolated from these.
"""
DAY_LEFT = """
The run was cut off after {reached:,} rounds, for the same reason.
"""
TEXT = """# How an audit grows

Made by `python -m docs.make_scale`; the figures themselves are in `scale.json`. Seconds are processor time of one
core (of two, with 24 GB, shared with other work). The model is one layer in plain numpy with 80 parameters, unless
another number is given, so that the audit is measured and not the model: signals, attacks, bands over rounds, the
trace on disk (`keep = "signals"`). Attacks are those that read outputs, 14 at most. Memory is the peak of the
process, less what it held before the first round; about 270 MB of it are libraries that are loaded when they are
first needed.

## Exponents

Each row varies one size and holds the others. The exponent is the slope of a least-squares line through the
logarithms, with its standard error: 0 is constant, 1 linear. Fixed costs count at these sizes, so that an exponent
below 1 may only say that they do; read it together with the values at both ends. For rounds, the seconds are those of
all rounds together.

{table}

What grows, and why:

- **records**: signals, scores and sums hold a few numbers for each record.
- **parties**: the same records in more parties take more calls: a small forward pass and a block of scores for each.
- **rounds**: a round costs the same however many came before. Up to 500 planned rounds, the primary attack is judged
  after each; of more, after some 500. (Before, what a band keeps grew with the square of the rounds.)
- **parameters**: one forward pass. With a real model this is nearly all of the time (see below).
- **attacks**: an attack adds a running sum in a round, and statistics at the end.

## 100,000 records in 100 parties

Global and local models, 14 attacks, 1,000 planned rounds: {a_round:.2f} s a round, which makes {thousand:.0f} minutes
for 1,000 rounds, with the signals of every round stored. Memory stays far below 2 GB and does not grow after the first
rounds:

{wide}
{left}
## A million records

Three attacks that read outputs, four parties: {million:.1f} s a round, {million_judging:.0f} s to judge, peak
{million_mb:.0f} MB.

## A day of short rounds

400 records, two parties, 6 attacks, 20,000 planned rounds: {day_round:.0f} ms a round.

{day}
{day_left}
## 100 parties and 15 attacks in one report

{many_attacks} attacks (`blind` is one of them) on the models of 100 parties give {many_entries:,} results.
results.json has {many_results:.1f} MB, the page {many_page:.1f} MB; `fedaudit report` makes it in
{many_rendering:.0f} s.

## Read out: a consortium of ten hospitals

Ten sites with 20,000 pictures of 32 x 32 each, ResNet-20 ({parameters:,} parameters), 100 rounds of one local epoch
on 30 % of the records. Measured on 256 records, on one core: a training epoch takes {milliseconds:.1f} ms a record.
In units of that, a forward pass with the last layer's gradient takes {outputs:.2f}, all gradients {gradients:.2f},
the matched filter on one layer {filter:.2f}: together {ratio:.2f}. Every record is looked at under the global model
and under that of its own site, in every round:

| | hours of one core |
|---|---|
| training | {training:.0f} |
| audit, attacks that read outputs | {forward:.0f} |
| audit with gradients and matched filter | {hours:.0f} |

A site that audits itself has a tenth of this. Training looks at 30 % of the records and the audit at all of them,
twice: hence the factor. It is linear in the candidates: with 2,000 a site it costs a tenth, and intervals are about
three times as wide.

## Read out: a million phones

A server that looks at every phone's own model needs about {phones:.0f} hours of one core a round for the audit's own
work alone ({kilobytes:.1f} kB for each record, and one block of scores for each phone), before any model is run.
**That is not feasible.** Feasible are: the global models alone (`vantages = ["client"]`), whose cost does not depend
on the number of parties; a sample of phones as the parties of the game; canaries, whose cost does not depend on the
number of records. Behind secure aggregation there is nothing else to look at anyway."""


def main() -> None:
    match sys.argv[1:]:
        case ["run", *names]:
            measure(names)
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
