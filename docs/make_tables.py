"""Makes the tables in docs/tables.md: every forward-pass attack on two federations, beside what was published.

    python docs/make_tables.py --cifar100 PATH/TO/cifar100.npz   (or cifar-100-binary.tar.gz)

Runs are kept in runs/tables: a run that is there is read, an unfinished one resumed. On one core, baskets take about
three minutes and each of the two CIFAR-100 runs about nine. Merlin needs a hundred forward passes, so it is replayed on
the recorded models afterwards, on CIFAR-100 only with --merlin.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedaudit.adversary.attacks import ATTACKS
from fedaudit.config.schema import Config, parse
from fedaudit.results.document import Document, load
from fedaudit.session.replay import replay
from fedaudit.session.run import run
from fedaudit.types import AuditResult, Estimate

TABLE = ["modified-entropy", "loss", "fed-loss", "back-front-diff", "back-front-ratio", "delta-diff", "delta-ratio",
         "merlin", "gradient-norm", "fta-loss", "fta-confidence", "fta-logit"]  # fmt: skip
OPTIONS = [f"fta-{metric}-{option}" for metric in ("loss", "confidence", "logit")
           for option in ("printed", "degree2", "degree3", "degree4")]  # fmt: skip
MARK = "<!-- From here on made by docs/make_tables.py -->\n\n"
FPRS = (0.001, 0.005, 0.01, 0.02)

# Table 2 of the paper, CIFAR-100, local models: AUC, TPR in % at FPR 0.1, 0.5 and 1 %.
PUBLISHED_LOCAL = {
    "modified-entropy": (0.902, 0.0, 0.0, 0.0),
    "loss": (0.903, 0.4, 2.4, 5.1),
    "fed-loss": (0.901, 0.0, 0.6, 1.6),
    "back-front-diff": (0.879, 0.8, 2.6, 4.8),
    "back-front-ratio": (0.903, 0.4, 2.6, 5.3),
    "delta-diff": (0.2, 0.0, 0.0, 0.0),
    "delta-ratio": (0.858, 0.0, 0.0, 0.0),
    "merlin": (0.581, 0.3, 0.7, 2.0),
    "gradient-norm": (0.893, 0.3, 2.3, 5.2),
    "fta-loss": (0.95, 0.0, 15.6, 26.1),
    "fta-confidence": (0.975, 12.8, 43.2, 54.4),
    "fta-logit": (0.971, 0.1, 2.0, 11.2),
}
# Tables 6 and 3, CIFAR-100, global models: AUC (6), TPR in % at FPR 0.1 and 0.5 % (3) and at 2 % (6).
PUBLISHED_GLOBAL = {
    "modified-entropy": (0.93, None, None, 0.0),
    "loss": (0.93, 0.0, 1.76, 15.27),
    "fed-loss": (0.85, 0.11, 0.69, 2.87),
    "back-front-diff": (0.86, 0.71, 3.09, 7.47),
    "back-front-ratio": (0.93, None, None, 15.44),
    "delta-diff": (0.26, None, None, 0.0),
    "delta-ratio": (0.81, None, None, 6.64),
    "merlin": (0.72, None, None, 0.0),
    "fta-loss": (0.91, 2.42, 10.60, 28.31),
    "fta-confidence": (0.95, 15.22, 27.16, 49.62),
    "fta-logit": (0.97, 0.22, 4.31, 44.58),
}

Cells = dict[tuple[str, str], AuditResult]  # (attack, model) -> the pooled entry


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cifar100", type=Path, required=True)
    options.add_argument("--merlin", action="store_true", help="on CIFAR-100, too: 17 minutes more for each run")
    options.add_argument("--runs", type=Path, default=Path("runs/tables"))
    options.add_argument("--out", type=Path, default=Path(__file__).parent / "tables.md")
    given = options.parse_args()
    configs = configurations(given.cifar100.resolve())
    for later in (set(), {"baskets"}, set(configs) if given.merlin else {"baskets"}):
        found = {name: audited(config, given.runs / name, name in later) for name, config in configs.items()}
        kept = given.out.read_text(encoding="utf-8").partition(MARK)[0] if given.out.is_file() else ""
        given.out.write_text(kept + MARK + page(found), encoding="utf-8")


def configurations(cifar100: Path) -> dict[str, Config]:
    attacks = [name for name in (*TABLE, *OPTIONS) if name in ATTACKS.short_forms and name != "merlin"]
    audit = {"attacks": attacks, "fpr": list(FPRS), "keep": "snapshots"}
    data, model = {"name": "cifar100", "path": str(cifar100)}, {"name": "cnn", "filters": 16}
    configs = {"baskets": parse({"audit": audit})}
    for name, batch in (("cifar100", 16), ("cifar100-batch64", 64)):
        federation = {"parties": 4, "rounds": 30, "batch_size": batch}
        configs[name] = parse({"data": data, "model": model, "federation": federation, "audit": audit})
    return configs


def audited(config: Config, directory: Path, merlin: bool) -> tuple[Document, Cells]:
    """The run and its pooled results; Merlin's come from the recorded models."""
    document = run(config, directory, progress)
    entries, replayed = list(document.results), directory / "merlin"
    if merlin and not (replayed / "results.json").is_file():
        replay(directory, ["merlin"], replayed, progress)
    if (replayed / "results.json").is_file():
        entries += load(replayed).results
    found: Cells = {(e.attack, e.model): e for e in entries if e.party is None and e.attack != "blind"}
    return document, found


@contextmanager
def progress(what: str, steps: int) -> Iterator[Callable[[], None]]:
    print(what, flush=True)
    yield lambda: print(".", end="", flush=True)


# ------------------------------------------------------------------ words and tables


def page(found: dict[str, tuple[Document, Cells]]) -> str:
    parts = []
    titles = {"cifar100": "CIFAR-100", "cifar100-batch64": "CIFAR-100, larger batches", "baskets": "Baskets"}
    for name, title in titles.items():
        about, cells = found[name]
        local, everywhere = ({}, {}) if name == "baskets" else (PUBLISHED_LOCAL, PUBLISHED_GLOBAL)
        parts += [
            f"## {title}\n\n{setting(about, cells)}",
            "### Local models (the server's view)\n\n" + table(cells, "local", TABLE, local, FPRS[:3]),
            "### Global models (any party's view)\n\n" + table(cells, "global", TABLE, everywhere, FPRS),
            "### Options of FTA, local models\n\n" + table(cells, "local", OPTIONS, {}, FPRS[:3]),
        ]
    return "\n\n".join(parts) + "\n"


def setting(about: Document, found: Cells) -> str:
    """What was run, how good the model is, and what looking cost."""
    ran, accuracy = about.run, about.run.accuracy
    federation, model, sizes = ran.config["federation"], ran.config["model"], ran.parties[0]
    width = f", {model['filters']} filters" if "filters" in model else ""
    one_pass = {kind: found["fta-confidence", kind].cost.epochs for kind in ("local", "global")}
    return (
        f"{ran.data.records:,} records, {federation['parties']} parties, {federation['rounds']} rounds of one "
        f"local epoch, {model['name']}{width}, Adam at {federation['lr']:g}, batches of {federation['batch_size']}, "
        f"seed {federation['seed']}. The first party has {sizes.members:,} members, {sizes.evaluation:,} "
        f"evaluation and {sizes.calibration:,} calibration non-members; the others as many, give or take one. "
        f"Accuracy of the released model: {percent(accuracy['members'])} % on members, "
        f"{percent(accuracy['evaluation'])} % on outsiders. All attacks but Merlin share one pass, which costs "
        f"{one_pass['local']:.1f} local epochs a round on local models and {one_pass['global']:.1f} on global ones "
        "(each candidate is looked at, and there are 3.3 of them for each record trained on)."
    )


def table(found: Cells, model: str, attacks: list[str], published: dict[str, Any], fprs: tuple[float, ...]) -> str:
    rates = [f"TPR @ {100 * fpr:g} %" for fpr in fprs]
    known = [fpr for fpr in fprs if not (model == "global" and fpr == 0.01)] if published else []
    theirs = ["published AUC", *(f"@ {100 * fpr:g} %" for fpr in known)] if published else []
    head = ["attack", "AUC", *rates, *theirs]
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for attack in attacks:
        entry = found.get((attack, model))
        if entry is None:
            continue
        cells = [share(entry.estimates["auc"]), *(percent(entry.estimates.get(f"tpr@{fpr:g}")) for fpr in fprs)]
        figures = [number(value) for value in published.get(attack, [None] * (1 + len(known)))] if published else []
        rows.append(f"| {' | '.join([attack, *cells, *figures])} |")
    return "\n".join(rows)


def share(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} ({estimate.low:.3f}–{estimate.high:.3f})"


def percent(estimate: Estimate | None) -> str:
    if estimate is None or estimate.value is None or estimate.low is None or estimate.high is None:
        return "–"
    return f"{100 * estimate.value:.1f} ({100 * estimate.low:.1f}–{100 * estimate.high:.1f})"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


if __name__ == "__main__":
    main()
