"""Makes the figures of docs/subjects.md: is anything of this person's in there?

    python docs/make_subjects.py synthetic A new --seed 1
    python docs/make_subjects.py synthetic C - --seed 1 --items 2000 --attacks subject-loss > C-2000-1.jsonl
    python docs/make_subjects.py seeds C-*.jsonl              # means over seeds, and subjects-records.svg
    python docs/make_subjects.py people baskets fresh --seed 1
    python docs/make_subjects.py people mnist fresh --seed 1 --data PATH/TO/FOLDER --scores mnist-1.npz > mnist-1.jsonl
    python docs/make_subjects.py splits mnist-*.npz
    python docs/make_subjects.py aggregation silo
    python docs/make_subjects.py privacy subject 4
    python docs/make_subjects.py table FILE...

One JSON line for each attack; `table` makes Markdown of such lines. `splits` makes Markdown of the scores of runs that
differ in their seed: who is a member, and the training. The folder of --data holds mnist.npz, shakespeare_roles.json.gz
and hapt_windows.npz. From ten seconds to twenty minutes each on one core.
"""

import argparse
import json
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.audit import Auditor
from fedaudit.config.schema import parse
from fedaudit.federation.simulate import Trainer, federate
from fedaudit.files import write_atomically
from fedaudit.results.scores import Scores, blocks_of
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.session.run import rounds
from fedaudit.stats import auc_difference, over_runs
from fedaudit.stats.intervals import of_sum
from fedaudit.stats.paired import errors_behind
from fedaudit.types import Audit, Estimate, Plan, Round

HERE = Path(__file__).resolve().parent
PAPER = ["subject-loss", "subject-rounds", "subject-neighbourhood"]
BEYOND = ["subject-fta", "subject-cosine", "subject-matched", "subject-corrected", "subject-rmia"]
SHARES = {"partition": "subjects", "member_subjects": 0.4, "nonmember_subjects": 0.35}
# Long training, as many steps as the smaller data sets of the paper had.
SETTINGS: dict[str, dict[str, Any]] = {
    "baskets": {
        "data": {"name": "baskets"},
        "federation": {"parties": 4, "rounds": 30, "local_epochs": 8},
        "model": {"hidden": [128]},
    },
    "mnist": {
        "data": {"name": "mnist", "path": "mnist.npz"},
        "federation": {"parties": 16, "rounds": 20, "split_subjects": True},
        "model": {"hidden": [128]},
    },
    "shakespeare": {
        "data": {"name": "shakespeare", "path": "shakespeare_roles.json.gz"},
        "federation": {"parties": 4, "rounds": 8, "batch_size": 32, "lr": 0.01},
        "model": {"name": "lstm", "embedding": 8, "units": 64, "layers": 1},
    },
    "hapt": {
        "data": {"name": "hapt", "path": "hapt_windows.npz"},
        "federation": {"parties": 2, "rounds": 20, "split_subjects": True, "nonmember_subjects": 0.3},
        "model": {"hidden": [128]},
    },
}
SCALED: dict[str, dict[str, dict[str, Any]]] = {
    which: {"data": {"users": 10, "subjects": 2000}, "federation": {"parties": 10}} for which in "DE"
}
FIGURES = ("auc", "balanced-accuracy@25", "f1@25")
UNITS = {"item": "dp-sgd", "user": "dp-fedavg", "subject": "higradavg"}


def audited(config: dict[str, Any], label: dict[str, Any], scores: str | None = None) -> None:
    prepared = prepare(parse(config))
    say(prepared, rounds(prepared), label, scores)


def say(prepared: Prepared, made: Iterator[Round], label: dict[str, Any], scores: str | None = None) -> None:
    started = time.perf_counter()
    auditor = Auditor(prepared.task, prepared.game, prepared.settings)
    for round in made:
        auditor.observe(round)
    found: Audit = auditor.snapshot()
    task = found.accuracy.get("evaluation")
    for result in (r for r in found.results if r.party is None):
        estimates = {n: [e.value, e.low, e.high, e.n_pos, e.n_neg] for n, e in result.estimates.items()}
        line = {"attack": result.attack, "model": result.model, "round": result.round, "estimates": estimates}
        right = task and [task.value, task.low, task.high]
        print(json.dumps(label | line | {"task": right, "seconds": round_(started)}), flush=True)
    for why in (*found.failed.items(), *(h.sentence for h in found.headlines)):
        print(why, file=sys.stderr)
    if scores:
        known = {name: column for name, column in auditor.score_table().items() if None not in column}
        np.savez_compressed(scores, **{name: np.array(column) for name, column in known.items()})


def round_(started: float) -> int:
    return int(time.perf_counter() - started)


def synthetic(which: str, atoms: str, given: argparse.Namespace) -> None:
    """A configuration of the paper, with the rows that users hold in the attacker's hands, or others.

    D and E are scaled to a tenth of their users and subjects: as published, D alone would need 12 GB for its records.
    """
    config = tomllib.loads((HERE.parent / "examples" / f"subjects-{which}.toml").read_text())
    config["data"] |= {"data_seed": given.seed} | SCALED.get(which, {}).get("data", {})
    config["data"] |= {"items_per_user": given.items} if given.items else {}
    if config["data"]["sampling"] == "dirichlet":
        config["data"]["atoms"] = atoms
    config["federation"] |= {"seed": given.seed, "local_epochs": given.epochs} | SCALED.get(which, {}).get(
        "federation", {}
    )
    if given.attacks != PAPER + BEYOND:
        config["audit"]["attacks"] = given.attacks
    said = {"items": config["data"]["items_per_user"], "epochs": given.epochs, "seed": given.seed}
    audited(config, {"what": "synthetic", "which": which, "atoms": atoms} | said)


def settings(name: str, folder: str, seed: int, fresh: float) -> dict[str, Any]:
    found = {section: dict(keys) for section, keys in SETTINGS[name].items()}
    found["federation"] = SHARES | found["federation"] | {"seed": seed, "fresh": fresh}
    if "path" in found["data"]:
        found["data"]["path"] = str(Path(folder) / found["data"]["path"])
    return found


def people(name: str, how: str, given: argparse.Namespace) -> None:
    config = settings(name, given.data, given.seed, 0.5 if how == "fresh" else 0.0)
    config["federation"] |= {"rounds": given.rounds} if given.rounds else {}
    attacks = [attack for attack in given.attacks if (name, attack) != ("shakespeare", "subject-neighbourhood")]
    config["audit"] = {"vantages": ["client"], "attacks": attacks, "reference": {"models": 4}}
    if name != "hapt":  # too few people to set a threshold on
        config["audit"]["fpr"] = [0.05]
    audited(config, {"what": "people", "data": name, "how": how, "seed": given.seed}, given.scores)


def aggregation(how: str, seed: int, fresh: float) -> None:
    """One silo's model, a model on all data, and a federated one, of the same people (figure 2 of the paper)."""
    config = settings("baskets", "", seed, fresh)
    config["federation"] |= {"parties": 16, "split_subjects": True, "rounds": 10, "local_epochs": 4}
    config["audit"] = {"vantages": ["client"], "attacks": ["subject-loss", "subject-fta"], "fpr": [0.05]}
    label = {"what": "aggregation", "how": how, "fresh": fresh, "seed": seed}
    if how == "federated":
        audited(config, label)
        return
    prepared = prepare(parse(config))
    parties = [party for party in prepared.parties if isinstance(party, Trainer)]
    trained = prepared.game.training
    assert trained is not None
    together = Trainer(parties[0].name, trained.rows, parties[0].training)
    for party in [together] if how == "pooled" else parties[:4]:
        alone = [Plan((party.name,)) for _ in prepared.plans]
        made = federate(prepared.task, [party], alone, seed)
        say(prepared, made, label | {"silo": party.name if how == "silo" else "all"})


def privacy(unit: str, epsilon: float, seed: int, rounds: int) -> None:
    """Households in 16 parties, item-based, under DP for one unit (tables I and II of the paper)."""
    config = settings("baskets", "", seed, 0.0)
    config["federation"] |= {"parties": 16, "rounds": rounds, "local_epochs": 2}
    config["audit"] = {"vantages": ["client"], "attacks": ["subject-loss", "subject-fta"], "fpr": [0.05]}
    if unit != "none":
        where = {"local": True} if unit == "user" else {}  # as in the paper: every party adds the noise itself
        config["defences"] = [{"name": UNITS[unit], "epsilon": epsilon, "delta": 1e-5, "clip": 1.0, **where}]
    audited(config, {"what": "privacy", "unit": unit, "epsilon": epsilon if unit != "none" else None, "seed": seed})


# ------------------------------------------------------------------ tables


def table(files: list[str]) -> None:
    lines = [json.loads(line) for file in files for line in Path(file).read_text().splitlines() if line[:1] == "{"]
    rest = ("estimates", "model", "round", "seconds", "task")
    for line in lines:
        shown = [str(value) for key, value in line.items() if key not in rest]
        for name in ("auc", "count-auc", "tpr@0.05", "balanced-accuracy@25", "balanced-accuracy@5", "f1@25"):
            shown.append(cell(line["estimates"].get(name)))
        print("|", " | ".join([*shown, cell(line["task"])]), "|")


def splits(files: list[str]) -> None:
    """Over runs of several seeds: AUC, what an attack is ahead of the paper's subject-loss on the same people, and
    balanced accuracy. Intervals are for all splits that could have been drawn."""
    runs = [load(file) for file in files]
    lines = [said(Path(file).with_suffix(".jsonl")) for file in files]
    print(
        "| attack | AUC, mean | of each split | minus subject-loss | balanced accuracy, k = 25 | members, outsiders |"
    )
    print("|---|---|---|---|---|---|")
    for name in [name for name in (*PAPER, *BEYOND, "blind") if all(name in line for line in lines)]:
        found = [line[name]["auc"] for line in lines]
        known = [line[name]["balanced-accuracy@25"] for line in lines if "balanced-accuracy@25" in line[name]]
        pairs = [[blocks_of(run, attack, "global") for attack in (name, "subject-loss")] for run in runs]
        ahead = [auc_difference(own, other) for own, other in pairs if own and name != "subject-loss"]
        errors = [errors_behind("auc", own) if own else None for own, _ in pairs]
        gaps = [
            of_sum(one, errors_behind("auc", other), -1.0) for one, (_, other) in zip(errors, pairs, strict=True) if one
        ]
        gaps = gaps if name != "subject-loss" else []
        each = ", ".join("–" if one.value is None else f"{one.value:.3f}" for one in found)
        gap = ends(over_runs(ahead, -1.0, errors=gaps), "+.3f") if ahead else "–"
        means = ends(over_runs(found, errors=errors)), each, gap
        decided = ends(over_runs(known)) if known else "–"
        print("|", " | ".join([name, *means, decided, f"{found[0].n_pos}, {found[0].n_neg}"]), "|")
    counted = [line["blind"]["count-auc"] for line in lines if "count-auc" in line["blind"]]
    print("\nnumber of records alone:", ends(over_runs(counted)) if counted else "–")


def over_seeds(files: list[str]) -> None:
    """Of runs of `synthetic`: a row for each configuration, number of records and attack, with means over seeds."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        first = json.loads(Path(file).read_text().splitlines()[0])
        groups.setdefault(tuple(str(first[key]) for key in ("which", "atoms", "items", "epochs")), []).append(file)
    points: dict[int, Estimate] = {}
    for key, runs in groups.items():
        lines = [said(Path(file)) for file in runs]
        for attack in [name for name in (*PAPER, "subject-fta", "blind") if name in lines[0]]:
            found = [line[attack] for line in lines if attack in line]
            shown = [ends(over_runs([one[name] for one in found])) for name in FIGURES if name in found[0]]
            each = ", ".join(f"{one['auc'].value:.3f}" for one in found)
            print("|", " | ".join([*key, attack, *shown, each]), "|")
            if (key[0], key[3], attack) == ("C", "1", "subject-loss") and len(found) > 1:
                points[int(key[2]) // 10] = over_runs([one["auc"] for one in found])  # a user has ten people
    if len(points) > 1:
        write_atomically(HERE / "subjects-records.svg", drawn(dict(sorted(points.items()))))


def drawn(points: dict[int, Estimate]) -> str:
    width, height, left, bottom, top = 640, 300, 50, 50, 30
    first, last = min(points), max(points)

    def at(x: float, y: float | None) -> tuple[float, float]:
        across = left + 30 + np.log(x / first) / np.log(last / first) * (width - left - 70)
        return float(across), height - bottom - ((y or 0.0) - 0.1) / 0.9 * (height - bottom - top)

    marks = [f'<text x="{left}" y="16">AUC of subject-loss, 95 % intervals over seeds</text>']
    for tick in (0.25, 0.5, 0.75, 1.0):
        y = at(first, tick)[1]
        marks.append(f'<path d="M{left} {y:.1f}H{width - 10}" class="{"half" if tick == 0.5 else "grid"}"/>')
        marks.append(f'<text x="{left - 8}" y="{y + 4:.1f}" class="y">{tick:g}</text>')
    line = "L".join("{:.1f} {:.1f}".format(*at(x, e.value)) for x, e in points.items())
    marks.append(f'<path d="M{line}" class="line"/>')
    for x, e in points.items():
        (across, y), below, above = at(x, e.value), at(x, e.low)[1], at(x, e.high)[1]
        marks.append(f'<path d="M{across:.1f} {below:.1f}V{above:.1f}" class="bar"/>')
        marks.append(f'<circle cx="{across:.1f}" cy="{y:.1f}" r="4"><title>{x:,} records: {ends(e)}</title></circle>')
        marks.append(f'<text x="{across:.1f}" y="{height - bottom + 18}" class="x">{x:,}</text>')
    marks.append(f'<text x="{width / 2}" y="{height - 10}" class="x">records of a person at a user</text>')
    style = "text{font:13px sans-serif;fill:#555}.x{text-anchor:middle}.y{text-anchor:end}.grid{stroke:#ddd}"
    style += ".half{stroke:#999;stroke-dasharray:4}.line{fill:none;stroke:#1d4ed8;stroke-width:2}"
    style += ".bar{stroke:#1d4ed8;stroke-width:1.5;opacity:.5}circle{fill:#1d4ed8}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    title = "<title>AUC against the number of records of a person</title>"
    return f"{head}{title}<style>{style}</style>{''.join(marks)}</svg>\n"


def said(file: Path) -> dict[str, dict[str, Estimate]]:
    """By attack and name, the estimates of a run as it printed them."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return {
        line["attack"]: {n: Estimate(n, *e[:3], 0.95, "", "measured", *e[3:]) for n, e in line["estimates"].items()}
        for line in lines
    }


def load(file: str) -> Scores:
    with np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def ends(estimate: Estimate, form: str = ".3f") -> str:
    if estimate.value is None:
        return "–"
    return f"{estimate.value:{form}} ({estimate.low:{form}} to {estimate.high:{form}})"


def cell(ends: list[float] | None) -> str:
    if ends is None or ends[0] is None:
        return "–"
    counts = f" [{ends[3]}/{ends[4]}]" if len(ends) > 3 else ""
    return f"{ends[0]:.3f} ({ends[1]:.3f}–{ends[2]:.3f}){counts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["synthetic", "people", "aggregation", "privacy", "table", "splits", "seeds"])
    parser.add_argument("which", nargs="*")
    parser.add_argument("--data", default=".")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--items", type=int, help="of synthetic: records of a user, other than the example's")
    parser.add_argument("--epochs", type=int, default=1, help="of synthetic: passes of a party in a round")
    parser.add_argument("--attacks", nargs="+", default=PAPER + BEYOND)
    parser.add_argument("--fresh", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, help="of people and privacy: other than usual")
    parser.add_argument("--scores", help="of people: write everybody's scores to this file, for `splits`")
    given = parser.parse_args()
    if given.what == "table":
        table(given.which)
    elif given.what == "seeds":
        over_seeds(given.which)
    elif given.what == "splits":
        splits(given.which)
    elif given.what == "synthetic":
        synthetic(*given.which, given)
    elif given.what == "people":
        people(*given.which, given)
    elif given.what == "aggregation":
        aggregation(*given.which, seed=given.seed, fresh=given.fresh)
    else:
        epsilon = float(given.which[1]) if len(given.which) > 1 else 0.0
        privacy(given.which[0], epsilon, given.seed, given.rounds or 20)


if __name__ == "__main__":
    main()
