"""Makes the figures of docs/canaries.md.

    python -m docs.make_canaries run NAME --data FOLDER --out FOLDER
    python -m docs.make_canaries page --out FOLDER

The folder of data holds cifar10.npz, mnist.npz and shakespeare_roles.json.gz. Each case leaves one JSON file;
`page` turns those that are there into the tables of the page, between its marks.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from fedaudit.audit.canaries import CRAFTED
from fedaudit.config.schema import parse
from fedaudit.defences.dp_fedavg import NoisySum
from fedaudit.federation.canary import Canaries
from fedaudit.learn.crafting import Recipe
from fedaudit.session.engines import rounds
from fedaudit.session.prepare import Prepared, prepare
from fedaudit.types import Audit

PAGE = Path(__file__).with_name("canaries.md")
Case = Callable[[Path], dict[str, Any]]


def cnn26k(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Three convolutions and a linear layer: 26,650 parameters for CIFAR-10."""
    layers: list[nn.Module] = []
    for before, after in ((input_shape[0], 16), (16, 32), (32, 48)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(48 * (input_shape[1] // 8) ** 2, classes))


# ------------------------------------------------------------------ configurations


def cifar(data: Path, noise: float = 0.423, canary: dict[str, Any] | None = None, **federation: Any) -> dict[str, Any]:
    """64 parties with one picture each."""
    asked = {"probes": 100, "every": 2, "steps": 1500, **(canary or {})}
    return {
        "data": {"name": "cifar10", "path": str(data / "cifar10.npz")},
        "federation": {
            "parties": 64, "members": 0.0033, "nonmembers": 0.3, "rounds": 2, "algorithm": "fedsgd", "lr": 0.1,
            **federation,
        },
        "model": {"name": "docs.make_canaries:cnn26k"},
        "audit": {"attacks": ["canife"], "canary": asked},
        "defences": [{"name": "dp-fedavg", "noise": noise, "clip": 1.0, "delta": 1e-5}],
    }  # fmt: skip


def writers(data: Path, epsilon: float) -> dict[str, Any]:
    """MNIST, one party a writer."""
    return {
        "data": {"name": "mnist", "path": str(data / "mnist.npz")},
        "federation": {
            "parties": 200, "partition": "column", "column": "subject", "split_subjects": True, "rounds": 20,
            "participation": 0.2, "sampling": "poisson", "algorithm": "fedsgd", "lr": 0.5,
        },
        "model": {"name": "cnn", "filters": 16},
        "audit": {"attacks": ["canife"], "canary": {"probes": 100, "every": 10, "steps": 500}},
        "defences": [{"name": "dp-fedavg", "epsilon": epsilon, "clip": 0.5, "delta": 1e-4}],
    }  # fmt: skip


def households(_: Path) -> dict[str, Any]:
    """A canary household among parties of supermarket baskets."""
    return {
        "data": {"name": "baskets"},
        "federation": {"parties": 40, "rounds": 4, "algorithm": "fedsgd", "lr": 0.5},
        "model": {"hidden": [64]},
        "audit": {"attacks": ["canife"], "canary": {"probes": 100, "every": 4, "steps": 500}},
        "defences": [{"name": "dp-fedavg", "noise": 0.5, "clip": 0.5, "delta": 1e-3}],
    }


def plays(data: Path) -> dict[str, Any]:
    return {
        "data": {"name": "shakespeare", "path": str(data / "shakespeare_roles.json.gz"), "length": 40},
        "federation": {"parties": 16, "rounds": 2, "algorithm": "fedsgd", "lr": 0.05, "members": 0.02},
        "model": {"name": "lstm", "units": 64, "layers": 1},
        "audit": {"attacks": ["canife"], "canary": {"probes": 40, "every": 2, "steps": 300, "pool": 32}},
        "defences": [{"name": "dp-fedavg", "noise": 0.3, "clip": 0.5, "delta": 1e-3}],
    }


# ------------------------------------------------------------------ cases


def audited(
    config: dict[str, Any], silent: bool = False, change: Callable[[Recipe], Recipe] | None = None
) -> dict[str, Any]:
    """An audit's figures. `silent`: the noise is left out of the sum; `change` alters how canaries are crafted."""
    prepared = prepare(parse(config))
    if silent:
        assert isinstance(prepared.defence.aggregate, NoisySum)
        quiet = replace(prepared.defence.aggregate, noise=0.0)
        prepared = replace(prepared, defence=replace(prepared.defence, aggregate=quiet))
    if change:
        alter(prepared, change)
    for round in rounds(prepared):
        prepared.auditor.observe(round)
    return summary(prepared, prepared.auditor.snapshot())


def alter(prepared: Prepared, change: Callable[[Recipe], Recipe]) -> None:
    """All canary parties of a run share one designer."""
    assert prepared.canaries is not None
    crafted = prepared.canaries.game.crafted
    assert crafted is not None
    assert isinstance(crafted.canaries, Canaries)
    design = crafted.canaries.design
    crafted.canaries.design = replace(design, recipe=change(design.recipe))


def summary(prepared: Prepared, audit: Audit) -> dict[str, Any]:
    if audit.failed:
        return {"failed": dict(audit.failed)}
    (result,) = [r for r in audit.results if r.attack == "canife"]
    watch = prepared.auditor.canaries
    assert watch is not None
    values = watch.kept[CRAFTED].values
    accuracy = audit.accuracy.get("evaluation")
    return {
        "estimates": {n: [e.value, e.low, e.high, e.kind, e.n_pos, e.n_neg] for n, e in result.estimates.items()},
        "curves": {n: [list(c.x), list(c.value)] for n, c in result.curves.items() if n.startswith("epsilon")},
        "health": float(np.median(values[:, :, 2])),
        "spread": float(np.median(values[:, :, 3])),
        "model": None if accuracy is None else accuracy.value,
        "warnings": list(result.warnings),
        "text": result.canary.text if result.canary else "",
    }


def ablation(objective: str) -> Case:
    def case(data: Path) -> dict[str, Any]:
        config = cifar(data, canary={"steps": 600})
        return audited(config, True, lambda recipe: replace(recipe, objective=objective, batch=64))

    return case


CASES: dict[str, Case] = {
    "cifar-noise": lambda data: audited(cifar(data)),
    "cifar-silent": lambda data: audited(cifar(data), silent=True),
    "baskets": lambda data: audited(households(data)),
    "baskets-silent": lambda data: audited(households(data), silent=True),
    "mnist-50": lambda data: audited(writers(data, 50.0)),
    "mnist-10": lambda data: audited(writers(data, 10.0)),
    "shakespeare-silent": lambda data: audited(plays(data), silent=True),
    "shakespeare-noise": lambda data: audited(plays(data)),
    "objective-normalised": ablation("normalised"),
    "objective-printed": ablation("printed"),
    "objective-orthogonal": ablation("orthogonal"),
    "objective-long": ablation("long"),
    "parties-16": lambda data: audited(cifar(data, canary={"steps": 600}, parties=16, members=0.00085), silent=True),
    "steps-100": lambda data: audited(cifar(data, canary={"steps": 100}), silent=True),
    "pool-16": lambda data: audited(cifar(data, canary={"steps": 600, "pool": 16}), silent=True),
    "initial-data": lambda data: audited(cifar(data, canary={"steps": 600, "initial": "data"}), silent=True),
}


# ------------------------------------------------------------------ the page


def page(out: Path) -> None:
    """Writes every case that was run into the page."""
    shown = ("auc", "accuracy", "score-sd", "canary-norm")
    epsilons = (
        "epsilon-maximised", "epsilon-bonferroni", "epsilon-split", "epsilon-gdp", "epsilon-accountant-round",
        "epsilon-composed", "epsilon-composed-paper", "epsilon-accountant",
    )  # fmt: skip
    tables = []
    for names in (shown, epsilons):
        head = ["case", *(name.removeprefix("epsilon-") for name in names)]
        if names is shown:
            head += ["health", "spread of one party", "model's accuracy"]
        rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for name in CASES:
            path = out / f"{name}.json"
            if not path.exists():
                continue
            found = json.loads(path.read_text())
            if "failed" in found:
                rows.append(f"| {name} | {found['failed'].get('canife', 'failed')} |" + " |" * (len(head) - 2))
                continue
            cells = [name, *(_cell(found["estimates"].get(each)) for each in names)]
            if names is shown:
                model = found["model"]
                cells += [f"{found['health']:.4f}", f"{found['spread']:.3g}", "" if model is None else f"{model:.3f}"]
            rows.append("| " + " | ".join(cells) + " |")
        tables.append("\n".join(rows))
    before, rest = PAGE.read_text().split("<!-- figures -->\n")
    _, after = rest.split("<!-- end -->")
    PAGE.write_text(f"{before}<!-- figures -->\n" + "\n\n".join(tables) + f"\n<!-- end -->{after}")


def _cell(one: list[Any] | None) -> str:
    if one is None or one[0] is None:
        return "–"
    low, high = ("…" if end is None else f"{end:.3g}" for end in one[1:3])
    return f"{one[0]:.3g}" if one[3] == "claimed" else f"{one[0]:.3g} ({low} to {high})"


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
    for name in asked.names or CASES:
        found = CASES[name](asked.data)
        (asked.out / f"{name}.json").write_text(json.dumps(found, indent=1))
        print(name, json.dumps(found.get("estimates", found)), flush=True)
    return None


if __name__ == "__main__":
    main()
