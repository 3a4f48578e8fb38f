"""How time and memory of an audit grow, and what follows for a consortium and for a million phones: docs/scale.md.

    python -m docs.make_scale run [NAMES]     measures all that is missing, or what is named
    python -m docs.make_scale page            writes docs/scale.md from docs/scale.json

Seconds are those of one core's processor time, so that what else a machine does counts little. The model is one layer
in plain numpy (`benchmarks.stream_memory`), because the audit's own work is measured; what a
real model takes is said in epochs of its training. `stream` and `day` are long: `make soak` runs them.
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
    "attacks": [(n, {**STEADY, "records": 10_000, "parties": 4, "attacks": n}) for n in (1, 6, 14)],
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


def cells() -> dict[str, Any]:
    single = {"million": lambda: alone(MILLION), "report": report}
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


def exponent(x: list[float], y: list[float]) -> str:
    """The slope of log y over log x by least squares, and its standard error."""
    a, b = np.log(x), np.log(y)
    slope, start = np.polyfit(a, b, 1)
    if len(a) < 3:
        return f"{slope:.2f} (two points)"
    rest = b - slope * a - start
    return f"{slope:.2f} ± {np.sqrt(np.sum(rest**2) / (len(a) - 2) / np.sum((a - a.mean()) ** 2)):.2f}"


def steady(one: dict[str, Any]) -> float:
    """Seconds of a round after the first ones, in which every attack is judged."""
    (first, *_, early), (last, *_, late) = one["marks"][0], one["marks"][-1]
    return float((late - early) / (last - first))


def series(found: dict[str, Any], name: str) -> list[tuple[float, dict[str, Any]]]:
    return [(x, found[f"{name} {x:g}"]) for x, _ in SERIES[name] if f"{name} {x:g}" in found]


def exponents(found: dict[str, Any]) -> str:
    rows = ["| in | from | to | seconds a round | exponent | seconds to judge | exponent | memory, MB | exponent |"]
    rows.append("|---" * 9 + "|")
    for name in SERIES:
        seen = series(found, name)
        x = [at for at, _ in seen]
        if len(x) > 1:
            measured = [steady(one) for _, one in seen], [one["judging"] for _, one in seen]
            cells = []
            for y, digits in zip((*measured, [one["end"] - one["before"] for _, one in seen]), (3, 1, 0), strict=True):
                cells += [f"{y[0]:.{digits}f} to {y[-1]:.{digits}f}", exponent(x, y)]
            rows.append(f"| {name} | {x[0]:,.0f} | {x[-1]:,.0f} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def over_rounds(one: dict[str, Any]) -> str:
    rows = ["| after round | memory, MB | peak, MB | seconds so far |", "|---|---|---|---|"]
    marks = one["marks"]
    chosen = sorted({round(i) for i in np.linspace(0, len(marks) - 1, min(8, len(marks)))})
    rows += [f"| {r:,} | {now:.0f} | {peak:.0f} | {s:.0f} |" for r, now, peak, s in (marks[i] for i in chosen)]
    return "\n".join(rows)


def wide(found: dict[str, Any]) -> str:
    one = found["stream"]
    a_round = steady({"marks": one["marks"][1:]})
    return WIDE_TEXT.format(
        a_round=a_round, minutes=1_000 * a_round / 60, table=over_rounds(one), cut=_cut(one, WIDE["rounds"])
    )


def day(found: dict[str, Any]) -> str:
    one = found["day"]
    settled = [mark for mark in one["marks"] if mark[0] >= 100]
    took = [mark[3] - one["marks"][0][3] for mark in settled]
    return DAY_TEXT.format(
        milliseconds=1_000 * steady({"marks": settled}),
        exponent=exponent([mark[0] - one["marks"][0][0] for mark in settled], took),
        kilobytes=1_000 * (settled[-1][1] - settled[0][1]) / (settled[-1][0] - settled[0][0]),
        table=over_rounds(one),
        cut=_cut(one, DAY["rounds"]),
    )


def _cut(one: dict[str, Any], planned: int) -> str:
    reached = one["marks"][-1][0]
    cut = f"\nThe run was cut off after {reached:,} of {planned:,} rounds, because the machine was shared;\n"
    return "" if reached >= planned else f"{cut}what is said of more rounds is extrapolated.\n"


def million(found: dict[str, Any]) -> str:
    one = found["million"]
    return MILLION_TEXT.format(a_round=steady(one), judging=one["judging"], peak=one["end"])


def phones(found: dict[str, Any]) -> str:
    (few, first), *_, (many, last) = series(found, "parties")
    each, judged = (1e6 * (of(last) - of(first)) / (many - few) for of in (steady, lambda one: one["judging"]))
    return PHONES_TEXT.format(minutes=each / 60, hours=judged / 3600, terabytes=1e6 * 4 * RESNET_20 / 1e12)


def hospital(found: dict[str, Any]) -> str:
    ratio = sum(EPOCHS.values())
    forward = 2 / 0.3 * EPOCHS["outputs"]
    return HOSPITAL_TEXT.format(**EPOCHS, ratio=ratio, forward=forward, whole=2 / 0.3 * ratio)


# Of a round of ResNet-20, in epochs over the same records: docs/decisions/0002-speed.md
RESNET_20 = 278_324  # parameters
EPOCHS = {"outputs": 0.29, "gradients": 0.95, "filter": 0.22}
SECTIONS = {
    "stream": wide, "million": million, "day": day, "report": lambda found: REPORT_TEXT.format(**found["report"]),
    "parties 100": lambda found: hospital(found) + "\n" + phones(found),
}  # fmt: skip


def page() -> None:
    found = json.loads(KEPT.read_text())
    parts = [HEAD.format(table=exponents(found)), *(of(found) for name, of in SECTIONS.items() if name in found)]
    missing = [name for name in cells() if name not in found]
    if missing:
        parts.append(f"## Not measured yet\n\n`python -m docs.make_scale run` measures: {', '.join(missing)}.\n")
    PAGE.write_text("\n".join(parts))


HEAD = """# How an audit grows

Made by `python -m docs.make_scale`; the figures themselves are in `scale.json`. Seconds are processor time of one core
(of two, with 24 GB, shared with other work). The model is one layer in plain numpy with 80 parameters, unless another
number is given, so that the audit is measured and not the model: signals, attacks, bands over rounds, the trace on disk
(`keep = "signals"`). Attacks are those that read outputs, 6 unless another number is given. Memory is the peak of the
process, less what it held before the first round; about 270 MB of it are libraries that are loaded when they are first
needed.

## Exponents

Each row varies one size and holds the others. The exponent is the slope of a least-squares line through the logarithms,
with its standard error: 0 is constant, 1 linear. Fixed costs count at these sizes, so that an exponent below 1 may only
say that they do; read it together with the values at both ends.

{table}

- **records**: signals, scores and sums hold a few numbers for each record.
- **parties**: the same records in more parties take more calls: a small forward pass and a block of scores for each.
- **parameters**: one forward pass. With a real model this is nearly all of the time.
- **attacks**: an attack adds a running sum in a round, and statistics at the end.
- **rounds**: a round costs the same however many came before (below). Up to 500 planned rounds, the primary attack is
  judged after each; of more, after some 500. Before, what a band keeps grew with the square of the rounds.
"""
WIDE_TEXT = """## 100,000 records in 100 parties

Global and local models, 14 attacks, 1,000 planned rounds: {a_round:.2f} s a round, which makes {minutes:.0f} minutes
for 1,000 rounds, with the signals of every round stored. The limit is 2 GB:

{table}
{cut}"""
MILLION_TEXT = """## A million records

Three attacks, four parties: {a_round:.1f} s a round, {judging:.0f} s to judge, peak {peak:.0f} MB.
"""
DAY_TEXT = """## A day of short rounds

400 records, two parties, 20,000 planned rounds: {milliseconds:.1f} ms a round. From the hundredth round on, the time of
all rounds grows with the exponent {exponent}. Memory grows by {kilobytes:.1f} kB a round: a writer knows of every round
what its journal says, so that one that is delivered twice is recognised.

{table}
{cut}"""
REPORT_TEXT = """## 100 parties and 15 attacks in one report

{attacks} attacks (`blind` is one of them) on the models of 100 parties give {entries:,} results. results.json has
{results:.1f} MB, the page {page:.1f} MB; `fedaudit report` makes it in {rendering:.0f} s.
"""
HOSPITAL_TEXT = """## Read out: a consortium of ten hospitals

Ten sites with 20,000 pictures of 32 x 32 each, ResNet-20, one local epoch a round on 30 % of the records. By the
benchmarks, a forward pass with the last layer's gradient takes {outputs} of a training epoch over the same records, all
gradients {gradients}, the matched filter on one layer {filter}: together {ratio:.2f}. Every record is looked at under
the global model and under that of its own site, in every round, and only 30 % are trained on. So attacks that read
outputs take {forward:.1f} times as long as the training, and all default attacks {whole:.1f} times. A site that audits
itself has a tenth of this. It is linear in the candidates: with 2,000 a site it takes as long as the training or less,
and intervals are about three times as wide. The audit's own work beside the model (above) is seconds a round.
"""
PHONES_TEXT = """## Read out: a million phones

A server that looks at every phone's own model needs {minutes:.0f} minutes of one core a round for the audit's own
work with tiny models, and {hours:.0f} hours to judge at the end, if both stay linear in the parties. What rules it
out are the models: a round's updates of a ResNet-20 from a million phones are {terabytes:.1f} TB, and an audit
holds those of one round in memory. **Not feasible.** Feasible are: the global models alone (`vantages =
["client"]`), whose cost does not depend on the number of parties; a sample of phones as the parties of the game;
canaries, whose cost does not depend on the number of records. Behind secure aggregation there is nothing else to
look at anyway.
"""


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
