"""Makes the figures of docs/shadow.md: the series attacks of the three adversaries, and attributes.

    python docs/make_shadow.py series baskets agg-sh
    python docs/make_shadow.py series cifar100 agg-mal --cifar100 PATH/TO/cifar100.npz
    python docs/make_shadow.py breast-cancer
    python docs/make_shadow.py demographics age

One JSON line for each result. Settings as in the paper, with fewer records on two cores: parties of 3,000 baskets (10
rounds of 5 epochs), of 1,200 images (8 rounds of 5 epochs; batches of 32, so that as many steps are taken as with more
images), of 100 cell samples.
"""

import argparse
import json
from typing import Any

import numpy as np

from fedaudit.config.schema import parse
from fedaudit.session.prepare import prepare
from fedaudit.session.run import rounds
from fedaudit.types import Audit
from fedaudit.words import all_words

SERIES = ["loss", "gradient-series", "logit-series", "cs-mia"]
# A party has its share of all records, the aggregator another; members are what was said above.
SHARES = {
    ("baskets", "agg"): (0.585, 0.2),
    ("baskets", "do"): (0.439, 0.28),
    ("cifar100", "agg"): (0.24, 0.38),
    ("cifar100", "do"): (0.18, 0.41),
}


def series(data: str, adversary: str, seed: int, path: str | None) -> None:
    members, nonmembers = SHARES[data, adversary.split("-")[0]]
    federation = {"parties": 3, "members": members, "nonmembers": nonmembers, "local_epochs": 5, "seed": seed}
    audit = {"adversary": adversary, "attacks": SERIES, "fpr": [0.01]}
    if data == "baskets":
        model: dict[str, Any] = {"hidden": [1024, 512, 256, 128]}
        say(audited({"federation": federation | {"rounds": 10, "batch_size": 128}, "model": model, "audit": audit}))
        return
    model = {"name": "tanh-cnn"}
    source = {"name": "cifar100", "path": path}
    federation |= {"rounds": 8, "batch_size": 32}
    say(audited({"data": source, "federation": federation, "model": model, "audit": audit}))


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
    parser.add_argument("what", choices=["series", "breast-cancer", "demographics"])
    parser.add_argument("which", nargs="*")
    parser.add_argument("--cifar100")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=30)
    given = parser.parse_args()
    if given.what == "series":
        series(given.which[0], given.which[1], given.seed, given.cifar100)
    elif given.what == "breast-cancer":
        breast_cancer(given.seeds)
    else:
        demographics(given.which[0], given.seed)


if __name__ == "__main__":
    main()
