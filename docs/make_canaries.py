"""Makes the figures of docs/canaries.md.

    python -m docs.make_canaries run NAME... --data FOLDER --out FOLDER
    python -m docs.make_canaries page --out FOLDER

The folder of data holds cifar10.npz, cifar100.npz, mnist.npz and shakespeare_roles.json.gz. The cases are in
docs/canary_cases.py: half a minute to three minutes each on one core, all of them about half an hour. Each leaves one
JSON file; `page` turns those that are there into the tables of the page, between its marks, and canaries.svg.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from docs.canary_ablations import ablations
from docs.canary_cases import CASES, OTHERS
from fedaudit.files import write_atomically
from fedaudit.stats import clopper_pearson

NOT_RUN = "Not run so far."
LEGEND = """![Empirical and claimed epsilon, MNIST by writer](canaries.svg)

Dashed: claimed. Blue: Gaussian fit, and on the right its composition over the training. Green: maximised. Red: proved
(over ranks). Bars are 95 % intervals.
"""
PAGE, PICTURE = (Path(__file__).with_name(name) for name in ("canaries.md", "canaries.svg"))
ALL = {**CASES, **OTHERS, "ablations": ablations}

EPSILONS = (
    "epsilon-maximised", "epsilon-ranks", "epsilon-split", "epsilon-gdp", "epsilon-accountant-round",
    "epsilon-composed", "epsilon-composed-paper", "epsilon-accountant-renyi", "epsilon-accountant",
)  # fmt: skip


def stored(out: Path, name: str) -> dict[str, Any] | None:
    path = out / f"{file_name(name)}.json"
    return json.loads(path.read_text()) if path.exists() else None


def file_name(case: str) -> str:
    return re.sub(r"\W+", "-", case)


# ------------------------------------------------------------------ tables


def table(head: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return NOT_RUN
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def crafted(out: Path) -> str:
    """How good the canaries are, and how well the sum gives them away."""
    head = ["case", "probes", "update / C", "spread of one party", "health", "score sd", "accuracy", "AUC", "model"]
    rows = []
    for name in CASES:
        if (found := stored(out, name)) is None:
            continue
        if "failed" in found:
            rows.append([name, found["failed"].get("canife", "failed"), *[""] * (len(head) - 2)])
            continue
        each = found["estimates"]
        model = found["model"]
        rows.append([
            name, f"{each['auc'][4]} + {each['auc'][5]}", f"{each['canary-norm'][0]:.3f}", f"{found['spread']:.3f}",
            f"{found['health']:.3f}", *(cell(each[key]) for key in ("score-sd", "accuracy", "auc")),
            "–" if model is None else f"{model:.3f}",
        ])  # fmt: skip
    return table(head, rows)


def epsilons(out: Path) -> str:
    head = ["case", *(name.removeprefix("epsilon-") for name in EPSILONS)]
    found = {name: stored(out, name) for name in CASES}
    return table(head, [
        [name, *(cell(one["estimates"].get(each)) for each in EPSILONS)]
        for name, one in found.items() if one is not None and "estimates" in one
    ])  # fmt: skip


def cell(one: list[Any] | None) -> str:
    if one is None or one[0] is None:
        return "–"
    low, high = ("…" if end is None else f"{end:.3g}" for end in one[1:3])
    return f"{one[0]:.3g}" if one[3] == "claimed" else f"{one[0]:.3g} ({low} to {high})"


def over_rounds(out: Path) -> str:
    """MNIST by writer, stop by stop."""
    names = ("epsilon-accountant-round", "epsilon-gdp", "epsilon-ranks", "epsilon-split", "epsilon-accountant")
    rows = []
    for case in ("mnist-10", "mnist-50"):
        curves = (stored(out, case) or {}).get("curves", {})
        for place, round in enumerate(curves.get("epsilon-gdp", [[]])[0]):
            ends = ([part[place] for part in curves[name][1:]] for name in names)
            kinds = ("claimed", "", "", "", "claimed")
            rows.append([case, f"{round:g}", *(cell([*e, kind]) for e, kind in zip(ends, kinds, strict=True))])
    return table(["case", "round", "claimed, one round", "Gaussian fit", "over ranks", "split", "claimed so far"], rows)


def mechanisms(out: Path) -> str:
    found = stored(out, "mechanisms")
    rows = []
    for name, lines in (found or {"found": {}})["found"].items():
        proved = np.array([line["proved"] for line in lines])
        hits, of = sum(line["refuted"] for line in lines), len(lines)
        low, high = clopper_pearson(hits, of, 0.025, 0.025)
        spread = f"{proved.mean():.2f} ({proved.min():.2f} to {proved.max():.2f})"
        share = f"{hits} of {of} ({100 * low:.0f}–{100 * high:.0f} %)"
        rows.append([name, f"{lines[0]['claimed']:.2f}", spread, share])
    return table(["mechanism", "claimed", "proved: mean (least to most)", "refuted"], rows)


def one_shot(out: Path) -> str:
    rows = []
    for epsilon, lines in (stored(out, "one-shot") or {"found": {}})["found"].items():
        value, bound = (np.array([x if key == "bound" else x[0] for x in (line[key] for line in lines)])
                        for key in ("estimate", "bound"))  # fmt: skip
        below = int((bound <= float(epsilon)).sum())
        covered = sum(line["estimate"][1] <= float(epsilon) <= line["estimate"][2] for line in lines)
        rows.append([
            epsilon, str(len(lines)), f"{value.mean():.2f} ({value.min():.2f} to {value.max():.2f})",
            f"{covered} of {len(lines)}", f"{bound.mean():.2f} ({bound.min():.2f} to {bound.max():.2f})",
            f"{below} of {len(lines)}",
        ])  # fmt: skip
    head = ["epsilon", "seeds", "estimate: mean (least to most)", "interval holds it", "lower bound", "bound holds"]
    return table(head, rows)


def changed(out: Path) -> str:
    """The ablations: means over the canaries, with the least and the most."""
    head = ["changed", "update / C", "score sd", "accuracy", "health", "dead", "parties clipped", "model's accuracy"]
    rows = []
    for name, one in (stored(out, "ablations") or {}).items():
        spans = (f"{np.mean(one[key]):.3f} ({min(one[key]):.3f} to {max(one[key]):.3f})" for key in
                 ("norm", "sd", "accuracy", "health"))  # fmt: skip
        rest = f"{one['dead']} of {len(one['norm'])}", f"{one['clipped']:.0%}", f"{one['model']:.3f}"
        rows.append([name, *spans, *rest])
    return table(head, rows)


def text(out: Path) -> str:
    found = stored(out, "shakespeare-silent")
    return f"```text\n{json.dumps(found['text'])}\n```" if found and "text" in found else NOT_RUN


# ------------------------------------------------------------------ the picture


def picture(out: Path) -> str:
    """Epsilon of one round and of the training, measured and claimed, for MNIST by writer."""
    cases = [("mnist-10", "user epsilon 10"), ("mnist-50", "user epsilon 50")]
    wide, high, left, base = 330, 240, 40, 200
    style = (
        "text{font:12px system-ui,sans-serif;fill:#57606a}.t{font-weight:600}.axis{stroke:#8b949e;fill:none}"
        ".c{stroke:#57606a;stroke-dasharray:5 3;fill:none}.g{stroke:#1d4ed8;fill:none}.p{stroke:#c2410c;fill:none}"
        ".gt{fill:#1d4ed8}.pt{fill:#c2410c}.m{stroke:#15803d;fill:none}.mt{fill:#15803d}"
    )
    marks = []
    for number, (name, title) in enumerate(cases):
        found = stored(out, name)
        if found is None or "curves" not in found:
            continue
        marks.append(f'<g transform="translate({number * wide} 0)">{panel(found, title, wide, left, base)}</g>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * wide} {high}" role="img">'
    named = "<title>Empirical and claimed epsilon of one round and of the training, MNIST by writer</title>"
    return f"{head}{named}<style>{style}</style>{''.join(marks)}</svg>\n"


def panel(found: dict[str, Any], title: str, wide: int, left: int, base: int) -> str:
    """One round on the left of a gap, the whole training on its right; bars are 95 % intervals."""
    curves, each = found["curves"], found["estimates"]
    shown = [("c", "epsilon-accountant-round"), ("g", "epsilon-gdp"), ("m", "epsilon-maximised"),
             ("p", "epsilon-ranks")]  # fmt: skip
    ends = [v for _, name in shown for part in curves[name][1:] for v in part if v is not None]
    whole = [("c", "epsilon-accountant"), ("g", "epsilon-composed")]
    ends += [v for _, name in whole for v in each[name][:3] if v is not None]
    most, xs = 1.1 * max(ends), curves["epsilon-gdp"][0]

    def across(x: float) -> float:
        return left + 10 + (x - xs[0]) / max(xs[-1] - xs[0], 1) * (wide - left - 110)

    def up(y: float) -> float:
        return base - y / most * (base - 40)

    parts = [f'<text class="t" x="{left}" y="16">{title}</text>']
    parts.append(f'<path class="axis" d="M{left} 30V{base}H{wide - 10}"/>')
    for tick in np.linspace(0, most, 6)[:-1].round():
        parts.append(f'<text x="{left - 6}" y="{up(tick) + 4:.0f}" text-anchor="end">{tick:g}</text>')
    parts += [f'<text x="{across(x):.0f}" y="{base + 16}" text-anchor="middle">{x:g}</text>' for x in xs]
    for place, (colour, name) in enumerate(shown):
        x, value, low, high = curves[name]
        line = "L".join(f"{across(a):.1f} {up(b):.1f}" for a, b in zip(x, value, strict=True) if b is not None)
        parts.append(f'<path class="{colour}" d="M{line}"/>')
        for a, b, c in zip(x, low, high, strict=True):
            if colour != "c" and b is not None and c is not None:
                parts.append(f'<path class="{colour}" d="M{across(a) + 2 * place - 3:.1f} {up(b):.1f}V{up(c):.1f}"/>')
    for place, (colour, name) in enumerate(whole):
        value, low, high = each[name][:3]
        x = wide - 60 + 25 * place
        if value is None:
            continue
        parts.append(f'<path class="{colour}" d="M{x - 8} {up(value):.1f}h16"/>')
        if colour == "g" and low is not None and high is not None:
            parts.append(f'<path class="{colour}" d="M{x} {up(low):.1f}V{up(high):.1f}"/>')
    parts.append(f'<text x="{wide - 48}" y="{base + 16}" text-anchor="middle">training</text>')
    parts.append(f'<text x="{left + 80}" y="{base + 34}" text-anchor="middle">one round, after round</text>')
    return "".join(parts)


# ------------------------------------------------------------------ the page


def page(out: Path) -> None:
    """Writes what was run into the page, each table between its marks."""
    blocks = {
        "crafted": crafted(out), "epsilons": epsilons(out), "rounds": over_rounds(out),
        "mechanisms": mechanisms(out), "one-shot": one_shot(out), "text": text(out),
        "ablations": changed(out),
    }  # fmt: skip
    told = PAGE.read_text()
    for name, made in blocks.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = told.split(begin)
        told = f"{before}{begin}{made}\n{end}{rest.split(end)[1]}"
    write_atomically(PAGE, told)
    if NOT_RUN not in blocks["rounds"]:
        write_atomically(PICTURE, picture(out))


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("what", choices=["run", "page"])
    reader.add_argument("names", nargs="*")
    reader.add_argument("--data", type=Path, default=Path("data"))
    reader.add_argument("--out", type=Path, default=Path("canaries"))
    asked = reader.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.what == "page":
        return page(asked.out)
    for name in asked.names or ALL:
        found = ALL[name](asked.data)
        write_atomically(asked.out / f"{file_name(name)}.json", json.dumps(found, indent=1))
        print(name, json.dumps(found.get("estimates", found)), flush=True)
    return None


if __name__ == "__main__":
    main()
