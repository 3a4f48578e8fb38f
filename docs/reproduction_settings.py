"""The federations in which docs/make_reproduction.py tests the papers' claims, each trained with several seeds."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILTER, FILTER_OF_PEOPLE = "matched-filter", "subject-matched"
LEAST = 3  # seeds of a setting

Raw = dict[str, Any]
Config = Callable[[Path], Raw]


@dataclass(frozen=True)
class TestedIn:
    """A federation: what it is, in words, and its configuration but for the seed; `data`: files that it needs; `seeds`:
    more than three where a run takes seconds and few records leave wide intervals."""

    about: str
    config: Config
    data: tuple[str, ...] = ()
    seeds: int = LEAST


# ------------------------------------------------------------------ Efficient Privacy Auditing (000)

FORWARD = ["loss", "modified-entropy", "merlin", "fed-loss", "back-front-diff", "back-front-ratio", "delta-diff",
           "delta-ratio", "gradient-norm", "fta-loss", "fta-confidence", "fta-logit",
           *(f"fta-loss-degree{k}" for k in (2, 3, 4))]  # fmt: skip
UPDATES = ["gradient-cosine", "gradient-diff", FILTER]
BRIEFLY = ["loss", "back-front-ratio", "fta-confidence", FILTER]
FROM_GLOBAL_MODELS = {"vantages": ["client"]}
ONE_LAYER = {"hidden": [128]}


def small_pictures(attacks: list[str]) -> Config:
    """CIFAR-100 at 16 x 16 and four parties with 375 members: a model that learns six of ten by heart. (With one epoch
    a round it does not: the loss had an AUC of .65, and FTA found 1.8 %. Five were chosen with seed 100.) A party's
    thresholds rest on some 1,100 outsiders."""
    return lambda folder: {
        "data": {"name": "npz", "path": str(folder / "cifar100-16.npz"), "limit": 10000},
        "federation": {"parties": 4, "members": 0.15, "nonmembers": 0.4, "rounds": 60, "local_epochs": 5},
        "audit": {"attacks": attacks, "fpr": [0.01, 0.02]},
    }


def baskets(
    attacks: list[str], limit: int = 15000, model: Raw | None = None, audit: Raw | None = None, **federation: Any
) -> Config:
    """Single records are dealt out, as in the paper."""
    return lambda _: {
        "data": {"name": "baskets", "limit": limit},
        "federation": {"parties": 4, "rounds": 30, "split_subjects": True} | federation,
        "model": model or {},
        "audit": {"attacks": attacks, "fpr": [0.01, 0.02]} | (audit or {}),
    }


def fedsgd(rounds: int) -> Config:
    return baskets(BRIEFLY, 6000, ONE_LAYER, FROM_GLOBAL_MODELS, rounds=rounds, algorithm="fedsgd", lr=1.0)


def references(attacks: list[str], limit: int, reference: Raw, **federation: Any) -> Config:
    return lambda _: {
        "data": {"name": "baskets", "limit": limit},
        "federation": {"parties": 4, "split_subjects": True} | federation,
        "audit": {"attacks": [*attacks, FILTER], "reference": reference, "fpr": [0.01]},
    }


# ------------------------------------------------------------------ CANIFE (001)


def canaries(folder: Path) -> Raw:
    from docs.canary_cases import cifar

    return cifar(folder, {"probes": 300, "steps": 400, "pool": 512})


def canaries_of_digits(folder: Path) -> Raw:
    """The same on MNIST, probed when the model is right on about 60 % (25 rounds, chosen with seed 100)."""
    from docs.canary_cases import cifar

    raw = cifar(folder, {"probes": 300, "steps": 400}, clip=0.5, lr=0.5, rounds=25, members=0.1)
    return raw | {"data": {"name": "mnist", "path": str(folder / "mnist.npz")}}


def canaries_without_noise(folder: Path) -> Raw:
    """As good as without: a thousandth of the clip norm."""
    raw = canaries(folder)
    return raw | {"defences": [defence | {"noise": 0.001} for defence in raw["defences"]]}


def canaries_of_text(folder: Path) -> Raw:
    from docs.canary_cases import plays

    return plays(folder)


# ------------------------------------------------------------------ gradient series (002)


def series(adversary: str, members: float, others: float, limit: int = 12000) -> Config:
    """Three parties, and a fourth part of the records for an aggregator."""
    federation = {"parties": 3, "members": members, "nonmembers": others, "local_epochs": 5, "rounds": 10}
    return lambda _: {
        "data": {"name": "baskets", "limit": limit},
        "federation": federation | {"batch_size": 128},
        "model": {"hidden": [1024, 512, 256, 128]},
        "audit": asked_for_series(adversary),
    }


def series_of_pictures(adversary: str, members: float, others: float) -> Config:
    """The paper's network on CIFAR-100 at 16 x 16; parties have 1,200 members and 1,400 others. Batches of 32 where the
    paper has 128, because after a quarter of the steps it had not learnt its members."""
    federation = {
        "parties": 3, "members": members, "nonmembers": others, "local_epochs": 5, "rounds": 10, "batch_size": 32,
        "weight_decay": 1e-7,
    }  # fmt: skip
    return lambda folder: {
        "data": {"name": "npz", "path": str(folder / "cifar100-16.npz")},
        "federation": federation,
        "model": {"name": "tanh-cnn"},
        "audit": asked_for_series(adversary),
    }


def asked_for_series(adversary: str) -> Raw:
    asked = ["loss", "gradient-norm", "gradient-series", "logit-series", "cs-mia", FILTER]
    return {"adversary": adversary, "attacks": asked, "fpr": [0.01]}


def cells(_: Path) -> Raw:
    """Four parts of 142 samples, 100 of each trained on; the fourth is the aggregator's."""
    federation = {"parties": 3, "members": 0.704, "nonmembers": 0.148, "rounds": 10, "local_epochs": 5}
    audit = {"adversary": "agg-sh", "attacks": ["loss", FILTER], "attribute": {"name": "area", "column": 3}}
    return {"data": {"name": "breast-cancer"}, "federation": federation, "model": {"hidden": [16, 6]}, "audit": audit}


def measurements(_: Path) -> Raw:
    """A regression, learnt by heart: four parts of 110 patients, 66 of each trained on; the fourth is the
    aggregator's."""
    federation = {"parties": 3, "members": 0.6, "nonmembers": 0.2, "rounds": 10, "local_epochs": 30, "batch_size": 16}
    audit = {"adversary": "agg-sh", "attacks": ["loss", "gradient-series", FILTER]}
    return {"data": {"name": "diabetes"}, "federation": federation, "model": {"hidden": [64, 32]}, "audit": audit}


# ------------------------------------------------------------------ TEAR (003)

FEW_EPOCHS = {
    "parties": 5, "rounds": 10, "local_epochs": 4, "split_subjects": True, "members": 0.3, "nonmembers": 0.2,
}  # fmt: skip


def labels(queries: int, defence: Raw | None = None, more: Sequence[str] = ()) -> Config:
    """Five parties; the adversary is one of them, and is given labels alone. Four epochs a round, chosen with seed 100:
    the model is right on three members of four, so that a wrong label does not tell everything by itself."""
    return lambda _: {
        "data": {"name": "baskets", "limit": 5000},
        "federation": FEW_EPOCHS,
        "audit": asked_for_labels(queries, 300, more) | {"calibration": {"records": 800}},
        "defences": [defence] if defence else [],
    }


def asked_for_labels(queries: int, own: int, more: Sequence[str] = ()) -> Raw:
    return {
        "vantages": ["label-only-client", "client"],
        "attacks": ["gap", "boundary", "tear", "tear-last", "loss", FILTER, *more],
        "fpr": [0.01, 0.1],
        "tear": {"queries": queries, "own": own},
    }


def labels_of_pictures(folder: Path) -> Raw:
    """150 members a party, and a CNN; 128 epochs in many rounds, chosen with seed 100, because after fewer it had not
    learnt its members."""
    federation = {
        "parties": 5, "rounds": 16, "local_epochs": 8, "lr": 0.003, "members": 0.3, "nonmembers": 0.2,
    }  # fmt: skip
    return {
        "data": {"name": "npz", "path": str(folder / "cifar100-16.npz"), "limit": 2500},
        "federation": federation,
        "model": {"name": "cnn", "filters": 16},
        "audit": asked_for_labels(300, 150),
    }


def labels_of_digits(defence: Raw | None = None) -> Config:
    """A task that is still learnt under noise."""
    federation = {
        "parties": 5, "rounds": 10, "local_epochs": 4, "lr": 0.01, "members": 0.3, "nonmembers": 0.2,
    }  # fmt: skip
    return lambda folder: {
        "data": {"name": "mnist", "path": str(folder / "mnist.npz"), "limit": 8000},
        "federation": federation,
        "audit": asked_for_labels(100, 300) | {"calibration": {"records": 800}},
        "defences": [defence] if defence else [],
    }


DP_SGD = {"name": "dp-sgd", "epsilon": 8.0, "delta": 1e-5, "clip": 1.0}

# ------------------------------------------------------------------ subject membership (004)


def synthetic(which: str, hidden: list[int] | None = None, rounds: int | None = None, **data: Any) -> Config:
    """A configuration of examples/, with other data, another network or other rounds."""

    def config(_: Path) -> Raw:
        raw = tomllib.loads((Path(__file__).parents[1] / "examples" / f"subjects-{which}.toml").read_text())
        asked = {"attacks": ["subject-loss", "subject-rounds", FILTER_OF_PEOPLE]}
        return raw | {
            "data": raw["data"] | data,
            "federation": raw["federation"] | ({"rounds": rounds} if rounds else {}),
            "model": {"hidden": hidden} if hidden else raw["model"],
            "audit": raw["audit"] | asked,
        }

    return config


def private_people(defence: Raw | None = None) -> Config:
    """Configuration A with a tenth of its records, and the batches of 20 and the epsilon of the paper's Table V."""
    config = synthetic("A", items_per_user=1000)

    def made(folder: Path) -> Raw:
        raw = config(folder)
        told = {} if defence is None else {"defences": [{"epsilon": 2.0, "delta": 1e-5, "clip": 1.0} | defence]}
        asked = ["subject-loss", "subject-fta", FILTER_OF_PEOPLE]
        federation = raw["federation"] | {"batch_size": 20}
        return raw | {"federation": federation, "audit": raw["audit"] | {"attacks": asked}} | told

    return made


def people(name: str, file: str, model: Raw, more: Sequence[str] = (), **federation: Any) -> Config:
    """People whose other records the adversary has."""
    about = {"partition": "subjects", "member_subjects": 0.4, "nonmember_subjects": 0.35, "fresh": 0.5}
    return lambda folder: {
        "data": {"name": name, "path": str(folder / file)},
        "federation": about | federation,
        "model": model,
        "audit": {"vantages": ["client"], "attacks": ["subject-loss", "subject-rounds", *more]},
    }


def households(defence: Raw | None = None, **federation: Any) -> Config:
    """Households of 16 parties, 40 epochs over every record; the adversary has the very records, or others."""
    about = {"partition": "subjects", "member_subjects": 0.4, "nonmember_subjects": 0.35, "fresh": 0.0}
    asked = ["subject-loss", "subject-rounds", "subject-fta", FILTER_OF_PEOPLE]
    return lambda _: {
        "federation": about | {"parties": 16, "rounds": 10, "local_epochs": 4} | federation,
        "model": {"hidden": [128]},
        "audit": {"vantages": ["client"], "attacks": asked, "fpr": [0.05]},
        "defences": [{"epsilon": 4.0, "delta": 1e-5, "clip": 1.0} | defence] if defence else [],
    }


PICTURES, CIFAR10, DIGITS, PLAYS = (
    ("cifar100.npz",), ("cifar10.npz",), ("mnist.npz",), ("shakespeare_roles.json.gz",),
)  # fmt: skip

SETTINGS: Mapping[str, TestedIn] = {
    "small-pictures": TestedIn(
        "CIFAR-100 at 16 x 16, four parties with 375 members, MLP, 60 rounds of 5 epochs",
        small_pictures(FORWARD + UPDATES), PICTURES,
    ),
    "baskets": TestedIn(
        "15,000 baskets, four parties with 1,125 members, MLP, 30 rounds", baskets(FORWARD + UPDATES)
    ),
    "few-outsiders": TestedIn(
        "*baskets*, whose thresholds rest on 500 outsiders instead of 6,000",
        baskets(["loss", "fta-confidence", FILTER], audit=FROM_GLOBAL_MODELS | {"calibration": {"records": 500}}),
    ),
    "skewed": TestedIn(
        "*baskets*, classes by Dirichlet(.1)", baskets(BRIEFLY, partition="dirichlet", beta=0.1)
    ),
    "few-records": TestedIn(
        "*baskets*, 281 members a party", baskets(BRIEFLY, 3750, audit=FROM_GLOBAL_MODELS)
    ),
    "many-parties": TestedIn(
        "*baskets*, 16 parties with about 280 members", baskets(BRIEFLY, audit=FROM_GLOBAL_MODELS, parties=16)
    ),
    "narrow": TestedIn(
        "*baskets* with one hidden layer of 64", baskets(BRIEFLY, model={"hidden": [64]}, audit=FROM_GLOBAL_MODELS)
    ),
    "fedsgd": TestedIn(
        "6,000 baskets, four parties with 450 members, one hidden layer of 128, 400 rounds of one step (FedSGD)",
        fedsgd(400),
    ),
    "fedsgd-early": TestedIn("*fedsgd* after 200 rounds", fedsgd(200)),
    "fedavg": TestedIn(
        "*fedsgd*'s records and network, 30 rounds of an epoch", baskets(BRIEFLY, 6000, ONE_LAYER, FROM_GLOBAL_MODELS)
    ),
    "references": TestedIn(
        "6,000 baskets, four parties with 450 members, 15 rounds, eight reference models a party",
        references(
            ["kta-logit", "kta-confidence", "lira", "distillation", "distillation-fraction", "fta-confidence"],
            6000, {"models": 8}, rounds=15,
        ),
    ),
    "references-alone": TestedIn(
        "*references*, whose reference models never see the target's answers (alpha 0)",
        references(["kta-confidence"], 6000, {"models": 8, "alpha": 0.0}, rounds=15),
    ),
    "references-copied": TestedIn(
        "*references*, whose reference models see only the target's answers (alpha 1)",
        references(["kta-confidence"], 6000, {"models": 8, "alpha": 1.0}, rounds=15),
    ),
    "references-skewed": TestedIn(
        "6,000 baskets, classes by Dirichlet(.5), 10 rounds of 3 epochs, four reference models a party",
        references(
            ["kta-logit", "lira", "fta-confidence"], 6000, {"models": 4},
            rounds=10, local_epochs=3, partition="dirichlet", beta=0.5,
        ),
    ),
    "canaries": TestedIn("CIFAR-10, 640 parties with one picture, 64 a round, noise .423", canaries, CIFAR10),
    "canaries-silent": TestedIn("*canaries* with next to no noise", canaries_without_noise, CIFAR10),
    "canaries-learnt": TestedIn(
        "MNIST, 640 parties with about 14 pictures, 64 a round, noise .423, after 25 rounds", canaries_of_digits,
        DIGITS,
    ),
    "canaries-text": TestedIn(
        "Shakespeare, 64 parties, 16 a round, LSTM with 64 units, noise .3", canaries_of_text, PLAYS
    ),
    "agg-sh": TestedIn(
        "12,000 baskets, three parties with about 1,750 members, 10 rounds of 5 epochs", series("agg-sh", 0.585, 0.2)
    ),
    "agg-mal": TestedIn("*agg-sh*, each party isolated", series("agg-mal", 0.585, 0.2)),
    "do-sh": TestedIn("*agg-sh*, a party is the adversary", series("do-sh", 0.439, 0.28)),
    "agg-sh-pictures": TestedIn(
        "CIFAR-100 at 16 x 16, three parties with 1,200 members, the paper's CNN, 10 rounds of 5 epochs",
        series_of_pictures("agg-sh", 0.3, 0.35), PICTURES,
    ),
    "do-sh-pictures": TestedIn(
        "*agg-sh-pictures*, a party is the adversary", series_of_pictures("do-sh", 0.225, 0.2625), PICTURES
    ),
    "cells": TestedIn("breast cancer, three parties with 100 samples, the area is guessed", cells, seeds=12),
    "measurements": TestedIn(
        "diabetes (a regression), three parties with 66 patients, 10 rounds of 30 epochs", measurements, seeds=5
    ),
    "labels": TestedIn(
        "5,000 baskets, five parties with 300 members, 10 rounds of 4 epochs, 2,000 labels a record",
        labels(2000, more=("tear-deepfool", "gradient-norm")),
    ),
    "labels-300": TestedIn("*labels* with 300 labels a record", labels(300)),
    "labels-masked": TestedIn(
        "*labels-300* with MemGuard, which changes what the model answers",
        labels(300, {"name": "memguard", "strength": 1.0}),
    ),
    "labels-cnn": TestedIn(
        "CIFAR-100 at 16 x 16, five parties with 150 members, CNN, 16 rounds of 8 epochs, 300 labels a record",
        labels_of_pictures, PICTURES,
    ),
    "labels-digits": TestedIn(
        "MNIST, five parties with 480 members, MLP, 10 rounds of 4 epochs, 100 labels a record", labels_of_digits(),
        DIGITS,
    ),
    "labels-digits-dp": TestedIn("*labels-digits* under DP-SGD of epsilon 8", labels_of_digits(DP_SGD), DIGITS),
    "subjects-A": TestedIn("synthetic federation A, as examples/subjects-A.toml", synthetic("A")),
    "subjects-A-early": TestedIn("A after two rounds", synthetic("A", rounds=2)),
    "subjects-C": TestedIn("synthetic federation C", synthetic("C")),
    "subjects-C-few": TestedIn("C with 2,000 records a user instead of 10,000", synthetic("C", items_per_user=2000)),
    "subjects-C-flat": TestedIn("C with two features instead of a thousand", synthetic("C", dimensions=2)),
    "subjects-C-repeated": TestedIn(
        "C with rows that repeat, as in A", synthetic("C", sampling="dirichlet", atoms="shared")
    ),
    "subjects-C-tiny": TestedIn("C with two hidden units instead of eight", synthetic("C", [2])),
    "subjects-F": TestedIn("synthetic federation F", synthetic("F"), seeds=5),
    "people-open": TestedIn(
        "A with 1,000 records a user, 20 rounds, batches of 20, without DP", private_people()
    ),
    "people-items-dp": TestedIn(
        "*people-open* under DP-SGD: epsilon 2 for a record", private_people({"name": "dp-sgd"})
    ),
    "people-users-dp": TestedIn(
        "*people-open* under local DP of whole updates: epsilon 2 for a party",
        private_people({"name": "dp-fedavg", "local": True}),
    ),
    "people-people-dp": TestedIn(
        "*people-open* under HiGradAvgDP: epsilon 2 for a person", private_people({"name": "higradavg"})
    ),
    "households": TestedIn("baskets, 16 parties, each household in one of them, 10 rounds of 4 epochs", households()),
    "other-records": TestedIn("*households*, and the adversary has other records of them", households(fresh=0.5)),
    "scattered": TestedIn(
        "*households*, each household in all parties", households(split_subjects=True)
    ),
    "one-place": TestedIn("*households*, all records in one place", households(parties=1)),
    "items-dp": TestedIn("*households* under DP-SGD: epsilon 4 for a record", households({"name": "dp-sgd"})),
    "users-dp": TestedIn(
        "*households* under local DP of whole updates: epsilon 4 for a party",
        households({"name": "dp-fedavg", "local": True}),
    ),
    "people-dp": TestedIn(
        "*households* under HiGradAvgDP: epsilon 4 for a household", households({"name": "higradavg"})
    ),
    "writers": TestedIn(
        "MNIST, writers over 16 parties, 8 rounds",
        people("mnist", "mnist.npz", {"hidden": [128]}, (FILTER_OF_PEOPLE,), parties=16, split_subjects=True, rounds=8),
        DIGITS,
    ),
    "roles": TestedIn(
        "Shakespeare, roles in four parties, LSTM with 64 units, 5 rounds",
        people(
            "shakespeare", "shakespeare_roles.json.gz", {"name": "lstm", "units": 64},
            parties=4, rounds=5, lr=0.01, batch_size=32,
        ),
        PLAYS,
    ),
}  # fmt: skip
