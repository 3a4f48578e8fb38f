"""Makes the figures of docs/shadow.md: the series attacks of the three adversaries, and attributes.

    python -m docs.make_reproduction --seeds 10 agg-sh agg-mal do-sh measurements
    python -m docs.make_shadow baskets                     # the table of means over those runs
    python -m docs.make_shadow cifar100 agg-mal --cifar100 PATH/TO/cifar100.npz
    python -m docs.make_shadow breast-cancer
    python -m docs.make_shadow demographics age

`baskets` prints Markdown, the others one JSON line for each result. Settings as in the paper, with fewer records on two
cores: parties of 1,750 baskets (10 rounds of 5 epochs), of 1,200 images (8 rounds of 5 epochs; batches of 32, so that
as many steps are taken as with more images), of 100 cell samples.
"""

import argparse
import json
from typing import Any

import numpy as np

from docs.make_reproduction import ended, mean
from docs.reproduction_claims import COST, Of
from docs.reproduction_settings import FILTER
from fedaudit.config.schema import parse
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.types import Audit, Estimate
from fedaudit.words import all_words

SERIES = ["loss", "gradient-series", "logit-series", "cs-mia"]
ADVERSARIES = {"agg-sh": "local", "agg-mal": "local", "do-sh": "global"}
FIGURES = ("auc", "accuracy", "precision", "recall", "f1-balanced", "tpr@0.01")
# A party has its share of all records, the aggregator another; members are what was said above.
SHARES = {"agg": (0.24, 0.38), "do": (0.18, 0.41)}


def baskets() -> None:
    """Means over the runs of `make reproduce`, and what the attack costs in per cent of the training."""
    print(f"| attack | figure | {' | '.join(ADVERSARIES)} |\n|---|---|{'---|' * len(ADVERSARIES)}")
    for attack in ("gradient-series", "logit-series", "cs-mia", "loss", FILTER):
        for figure in FIGURES:
            means = [mean(Of(setting, attack, model, figure)) for setting, model in ADVERSARIES.items()]
            if any(means):
                print(f"| {attack} | {figure} | {' | '.join('–' if e is None else cell(e) for e in means)} |")
        costs = [mean(Of(setting, attack, model, COST)) for setting, model in ADVERSARIES.items()]
        print(f"| | time, % of the training | {' | '.join('–' if e is None else cell(e, 100 / 5) for e in costs)} |")
    for attack in ("gradient-series", "loss", FILTER):
        found = mean(Of("measurements", attack, "local", "auc"))
        print(attack, "regression, AUC:", "–" if found is None else cell(found))
    for setting in (*ADVERSARIES, "measurements"):
        print(setting, "seeds", list(ended(setting)))


def cell(estimate: Estimate, scale: float = 1.0) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "–"
    digits = 0 if scale != 1 else 3
    value, low, high = (f"{scale * end:.{digits}f}" for end in (estimate.value, estimate.low, estimate.high))
    return f"{value} ({low}–{high})"


def pictures(adversary: str, seed: int, path: str | None) -> None:
    members, nonmembers = SHARES[adversary.split("-")[0]]
    config = {
        "data": {"name": "cifar100", "path": path},
        "federation": {
            "parties": 3, "members": members, "nonmembers": nonmembers, "local_epochs": 5, "rounds": 8,
            "batch_size": 32, "seed": seed,
        },
        "model": {"name": "tanh-cnn"},
        "audit": {"adversary": adversary, "attacks": SERIES, "fpr": [0.01]},
    }  # fmt: skip
    say(audited(config))


def audited(config: dict[str, Any]) -> Audit:
    prepared = prepare(parse(config))
    for round in rounds(prepared):
        prepared.auditor.observe(round)
    if prepared.isolation:
        prepared.isolation.run(lambda: None)
    return prepared.snapshot()


def say(audit: Audit) -> None:
    for result in audit.results:
        if result.party is None:
            found = {name: [e.value, e.low, e.high] for name, e in result.estimates.items()}
            print(json.dumps({"attack": result.attack, "model": result.model, "epochs": result.cost.epochs, **found}))
    print(
        json.dumps(
            {"accuracy": {name: e.value for name, e in audit.accuracy.items()}, "said": all_words(audit.notices)}
        )
    )


def breast_cancer(seeds: int) -> None:
    """Of each 142 samples of a part 100 are trained on; the fourth part is the aggregator's."""
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        federation = {
            "parties": 3, "members": 0.704, "nonmembers": 0.148, "rounds": 10, "local_epochs": 5, "seed": seed,
        }  # fmt: skip
        audit = {"adversary": "agg-sh", "attacks": ["loss"], "attribute": {"name": "area", "column": 3}}
        config = {"data": {"name": "breast-cancer"}, "federation": federation, "model": {"hidden": [16, 6]}}
        results = [r for r in audited(config | {"audit": audit}).results if r.attack == "attribute" and not r.party]
        for name, estimate in results[0].estimates.items():
            found.setdefault(name, []).append(estimate.value or float("nan"))
    for name, values in found.items():
        print(json.dumps({"name": name, "mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1))}))


def demographics(attribute: str, seed: int) -> None:
    """Households are members or not, whole; so are those whose attribute the aggregator knows."""
    federation = {
        "parties": 3, "partition": "subjects", "member_subjects": 0.5, "held_out": 0.25, "rounds": 10,
        "local_epochs": 5, "seed": seed,
    }  # fmt: skip
    audit = {
        "unit": "record", "adversary": "agg-sh", "attacks": ["loss"], "attribute": {"name": attribute}, "fpr": [0.01],
    }  # fmt: skip
    say(audited({"federation": federation, "audit": audit}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["baskets", "cifar100", "breast-cancer", "demographics"])
    parser.add_argument("which", nargs="?", help="of cifar100 the adversary, of demographics the attribute")
    parser.add_argument("--cifar100")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=30)
    given = parser.parse_args()
    if given.what == "baskets":
        baskets()
    elif given.what == "cifar100":
        pictures(given.which, given.seed, given.cifar100)
    elif given.what == "breast-cancer":
        breast_cancer(given.seeds)
    else:
        demographics(given.which, given.seed)


if __name__ == "__main__":
    main()
