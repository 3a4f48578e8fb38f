"""What the five papers claim at the head of their tables, and the federations that test it here.

A setting is a configuration, trained with several seeds. A claim is about figures of one or two settings; how it is
decided is fixed here, before anything is trained: `above` needs the difference of two means, over seeds and on the same
records, to lie above a margin with its whole interval; `within` a mean to lie between two values.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOCAL, GLOBAL = "local", "global"
COST = "cost"  # not an estimate of a result: audit time, in local epochs
FILTER, FILTER_OF_PEOPLE = "matched-filter", "subject-matched"

Raw = dict[str, Any]


@dataclass(frozen=True)
class TestedIn:
    """A federation: what it is, in words, and its configuration but for the seed; `data`: files that it needs."""

    about: str
    config: Callable[[Path], Raw]
    data: tuple[str, ...] = ()


@dataclass(frozen=True)
class Of:
    """One figure of a setting."""

    setting: str
    attack: str
    model: str = LOCAL
    metric: str = "tpr@0.01"


@dataclass(frozen=True)
class Above:
    """The first figure is larger than the second by more than `by`, in the mean over seeds."""

    first: Of
    second: Of
    by: float = 0.0


@dataclass(frozen=True)
class Within:
    """The mean over seeds of a figure, with its whole interval, lies between these."""

    of: Of
    least: float
    most: float


@dataclass(frozen=True)
class Claim:
    """What a paper says, where, with which figures; what is looked at here; and what a verdict against it rests on."""

    paper: str
    place: str
    said: str
    published: str
    tests: tuple[Above | Within, ...]
    why_not: str = ""
    beside: tuple[Of, ...] = ()
    after_a_look: bool = False  # written down when figures of its setting were known


@dataclass(frozen=True)
class NotTested:
    """A claim that no training here judges: why, and what it would take, or what judges it instead."""

    paper: str
    place: str
    said: str
    published: str
    cost: str
    verdict: str = "not testable here"


FORWARD = ["loss", "modified-entropy", "fed-loss", "back-front-diff", "back-front-ratio", "delta-diff", "delta-ratio",
           "gradient-norm", "fta-loss", "fta-confidence", "fta-logit",
           *(f"fta-loss-degree{k}" for k in (2, 3, 4))]  # fmt: skip
UPDATES = ["gradient-cosine", "gradient-diff", FILTER]


def small_pictures(folder: Path) -> Raw:
    """CIFAR-100 at 16 x 16 and four parties with 375 members: a model that learns its records by heart. (With one epoch
    a round it does not: the loss had an AUC of .65, and FTA found 1.8 %. Five were chosen with seed 100.)"""
    return {
        "data": {"name": "npz", "path": str(folder / "cifar100-16.npz"), "limit": 5000},
        "federation": {"parties": 4, "rounds": 60, "local_epochs": 5},
        "audit": {"attacks": FORWARD + UPDATES, "fpr": [0.01, 0.02]},
    }


def baskets(_: Path, attacks: tuple[str, ...] = (), **federation: Any) -> Raw:
    asked = {"attacks": list(attacks) or FORWARD + UPDATES, "fpr": [0.01, 0.02]}
    return {"federation": {"parties": 4, "rounds": 20} | federation, "audit": asked}


def skew(beta: float | None) -> Callable[[Path], Raw]:
    split = {"partition": "dirichlet", "beta": beta} if beta else {}
    return lambda folder: baskets(folder, ("loss", "fta-confidence", FILTER), rounds=15, **split)


def references(_: Path) -> Raw:
    asked = ["kta-logit", "kta-confidence", "lira", "distillation", "fta-logit", "fta-confidence", FILTER]
    federation = {"parties": 4, "rounds": 10, "split_subjects": True}
    return {"federation": federation, "audit": {"attacks": asked, "reference": {"models": 8}, "fpr": [0.01]}}


def references_under_skew(_: Path) -> Raw:
    federation = {
        "parties": 4, "rounds": 10, "local_epochs": 3, "split_subjects": True, "partition": "dirichlet", "beta": 0.5,
    }  # fmt: skip
    asked = ["kta-logit", "lira", "fta-confidence", FILTER]
    return {
        "data": {"name": "baskets", "limit": 6000},
        "federation": federation,
        "audit": {"attacks": asked, "reference": {"models": 4}, "fpr": [0.01]},
    }


def series(adversary: str) -> Callable[[Path], Raw]:
    """Three parties with 3,000 members each, as many records for the aggregator."""
    members, others = (0.439, 0.28) if adversary == "do-sh" else (0.585, 0.2)
    federation = {"parties": 3, "members": members, "nonmembers": others, "local_epochs": 5, "rounds": 10}
    asked = ["loss", "gradient-series", "logit-series", "cs-mia", FILTER]
    return lambda _: {
        "federation": federation | {"batch_size": 128},
        "model": {"hidden": [1024, 512, 256, 128]},
        "audit": {"adversary": adversary, "attacks": asked, "fpr": [0.01]},
    }


def cells(_: Path) -> Raw:
    """Of each 142 samples of a part 100 are trained on; the fourth part is the aggregator's."""
    federation = {"parties": 3, "members": 0.704, "nonmembers": 0.148, "rounds": 10, "local_epochs": 5}
    audit = {"adversary": "agg-sh", "attacks": ["loss", FILTER], "attribute": {"name": "area", "column": 3}}
    return {"data": {"name": "breast-cancer"}, "federation": federation, "model": {"hidden": [16, 6]}, "audit": audit}


def measurements(_: Path) -> Raw:
    """A regression, learnt by heart: of each 110 patients of a part 66 are trained on; the fourth part is the
    aggregator's."""
    federation = {"parties": 3, "members": 0.6, "nonmembers": 0.2, "rounds": 10, "local_epochs": 30, "batch_size": 16}
    audit = {"adversary": "agg-sh", "attacks": ["loss", "gradient-series", FILTER]}
    return {"data": {"name": "diabetes"}, "federation": federation, "model": {"hidden": [64, 32]}, "audit": audit}


def labels(defence: Raw | None = None) -> Callable[[Path], Raw]:
    """Five parties, ten rounds of eight epochs; the adversary is one of them, and is given labels alone."""
    federation = {
        "parties": 5, "rounds": 10, "local_epochs": 8, "split_subjects": True, "members": 0.3, "nonmembers": 0.2,
    }  # fmt: skip
    data = {"name": "baskets", "limit": 5000}
    return lambda _: {
        "data": data, "federation": federation, "audit": asked_for_labels(400, 300, defence is None),
        "defences": [defence] if defence else [],
    }  # fmt: skip


def asked_for_labels(queries: int, own: int, filtered: bool = True) -> Raw:
    return {
        "vantages": ["label-only-client", "client"],
        "attacks": ["gap", "tear", "tear-last", "loss"] + [FILTER] * filtered,
        "fpr": [0.01, 0.1],
        "tear": {"queries": queries, "own": own},
    }


def labels_of_pictures(folder: Path) -> Raw:
    """150 members a party, and a CNN; 120 epochs, because after fewer it had not learnt its members."""
    federation = {
        "parties": 5, "rounds": 6, "local_epochs": 20, "lr": 0.003, "members": 0.3, "nonmembers": 0.2,
    }  # fmt: skip
    return {
        "data": {"name": "npz", "path": str(folder / "cifar100-16.npz"), "limit": 2500},
        "federation": federation,
        "model": {"name": "cnn", "filters": 16},
        "audit": asked_for_labels(100, 150),
    }


def labels_of_digits(defence: Raw | None = None) -> Callable[[Path], Raw]:
    """A task that is still learnt under noise."""
    federation = {
        "parties": 5, "rounds": 10, "local_epochs": 4, "lr": 0.01, "members": 0.3, "nonmembers": 0.2,
    }  # fmt: skip
    return lambda folder: {
        "data": {"name": "mnist", "path": str(folder / "mnist.npz"), "limit": 8000},
        "federation": federation,
        "audit": asked_for_labels(50, 300, defence is None),
        "defences": [defence] if defence else [],
    }


def synthetic(which: str, **data: Any) -> Callable[[Path], Raw]:
    def config(_: Path) -> Raw:
        import tomllib

        raw = tomllib.loads((Path(__file__).parents[1] / "examples" / f"subjects-{which}.toml").read_text())
        asked = {"attacks": ["subject-loss", "subject-rounds", FILTER_OF_PEOPLE]}
        return raw | {"data": raw["data"] | data, "audit": raw["audit"] | asked}

    return config


def people(name: str, file: str, model: Raw, **federation: Any) -> Callable[[Path], Raw]:
    """People whose other records the adversary has."""
    about = {"partition": "subjects", "member_subjects": 0.4, "nonmember_subjects": 0.35, "fresh": 0.5}
    return lambda folder: {
        "data": {"name": name, "path": str(folder / file)},
        "federation": about | federation,
        "model": model,
        "audit": {"vantages": ["client"], "attacks": ["subject-loss", "subject-rounds"]},
    }


def households(defence: Raw | None = None, **federation: Any) -> Callable[[Path], Raw]:
    """Households of 16 parties, 40 epochs over every record; the adversary has the very records, or others."""
    about = {"partition": "subjects", "member_subjects": 0.4, "nonmember_subjects": 0.35, "fresh": 0.0}
    asked = ["subject-loss", "subject-rounds", "subject-fta"] + [FILTER_OF_PEOPLE] * (defence is None)
    return lambda _: {
        "federation": about | {"parties": 16, "rounds": 10, "local_epochs": 4} | federation,
        "model": {"hidden": [128]},
        "audit": {"vantages": ["client"], "attacks": asked, "fpr": [0.05]},
        "defences": [{"epsilon": 4.0, "delta": 1e-5, "clip": 1.0} | defence] if defence else [],
    }


def canaries(folder: Path) -> Raw:
    from docs.canary_cases import cifar

    return cifar(folder, {"probes": 100, "steps": 400})


def canaries_of_digits(folder: Path) -> Raw:
    """The same on MNIST, probed when the model is right on about 60 % (25 rounds, chosen with seed 100)."""
    from docs.canary_cases import cifar

    raw = cifar(folder, {"probes": 100, "steps": 400}, clip=0.5, lr=0.5, rounds=25, members=0.1)
    return raw | {"data": {"name": "mnist", "path": str(folder / "mnist.npz")}}


SETTINGS: Mapping[str, TestedIn] = {
    "small-pictures": TestedIn(
        "CIFAR-100 at 16 x 16, four parties with 375 members, MLP, 60 rounds of 5 epochs",
        small_pictures,
        ("cifar100.npz",),
    ),
    "baskets": TestedIn("baskets, four parties with about 1,500 members, MLP, 20 rounds", baskets),
    "even": TestedIn("baskets, 15 rounds, classes alike in all parties", skew(None)),
    "skewed": TestedIn("the same, classes by Dirichlet(.1)", skew(0.1)),
    "references": TestedIn("baskets, 10 rounds, eight reference models a party", references),
    "references-skewed": TestedIn(
        "6,000 baskets, classes by Dirichlet(.5), 10 rounds of 3 epochs, four reference models a party",
        references_under_skew,
    ),
    "agg-sh": TestedIn("baskets, three parties with 3,000 members, 10 rounds of 5 epochs", series("agg-sh")),
    "agg-mal": TestedIn("the same, each party isolated", series("agg-mal")),
    "do-sh": TestedIn("the same, a party is the adversary", series("do-sh")),
    "cells": TestedIn("breast cancer, three parties with 100 samples, the area is guessed", cells),
    "measurements": TestedIn(
        "diabetes (a regression), three parties with 66 patients, 10 rounds of 30 epochs", measurements
    ),
    "labels": TestedIn("baskets, five parties with 300 members, 10 rounds of 8 epochs, 400 labels a record", labels()),
    "labels-dp": TestedIn(
        "the same under DP-SGD of epsilon 8", labels({"name": "dp-sgd", "epsilon": 8.0, "delta": 1e-5, "clip": 1.0})
    ),
    "labels-cnn": TestedIn(
        "CIFAR-100 at 16 x 16, five parties with 150 members, CNN, 6 rounds of 20 epochs, 100 labels a record",
        labels_of_pictures,
        ("cifar100.npz",),
    ),
    "labels-digits": TestedIn(
        "MNIST, five parties with 480 members, MLP, 10 rounds of 4 epochs, 50 labels a record",
        labels_of_digits(),
        ("mnist.npz",),
    ),
    "labels-digits-dp": TestedIn(
        "the same under DP-SGD of epsilon 8",
        labels_of_digits({"name": "dp-sgd", "epsilon": 8.0, "delta": 1e-5, "clip": 1.0}),
        ("mnist.npz",),
    ),
    "labels-masked": TestedIn(
        "labels with MemGuard, which changes what the model answers", labels({"name": "memguard", "strength": 1.0})
    ),
    "subjects-A": TestedIn("synthetic federation A, as examples/subjects-A.toml", synthetic("A")),
    "subjects-C": TestedIn("synthetic federation C", synthetic("C")),
    "subjects-flat": TestedIn("federation C with two features instead of a thousand", synthetic("C", dimensions=2)),
    "subjects-F": TestedIn("synthetic federation F", synthetic("F")),
    "households": TestedIn("baskets, households of 16 parties, none in two, 10 rounds of 4 epochs", households()),
    "other-records": TestedIn("the same, and the adversary has other records of them", households(fresh=0.5)),
    "scattered": TestedIn(
        "the same with the very records, every household in all parties", households(split_subjects=True)
    ),
    "one-place": TestedIn("the same with all records in one place", households(parties=1)),
    "items-dp": TestedIn("households under DP-SGD: epsilon 4 for a record", households({"name": "dp-sgd"})),
    "users-dp": TestedIn(
        "households under local DP of whole updates: epsilon 4 for a party",
        households({"name": "dp-fedavg", "local": True}),
    ),
    "people-dp": TestedIn("households under HiGradAvgDP: epsilon 4 for a household", households({"name": "higradavg"})),
    "writers": TestedIn(
        "MNIST, writers over 16 parties, 8 rounds",
        people("mnist", "mnist.npz", {"hidden": [128]}, parties=16, split_subjects=True, rounds=8),
        ("mnist.npz",),
    ),
    "roles": TestedIn(
        "Shakespeare, roles in four parties, LSTM with 64 units, 5 rounds",
        people("shakespeare", "shakespeare_roles.json.gz", {"name": "lstm", "units": 64}, parties=4, rounds=5),
        ("shakespeare_roles.json.gz",),
    ),
    "canaries": TestedIn(
        "CIFAR-10, 640 parties with one picture, 64 a round, noise .423", canaries, ("cifar10.npz",)
    ),
    "canaries-learnt": TestedIn(
        "MNIST, 640 parties with about 14 pictures, 64 a round, noise .423, after 25 rounds",
        canaries_of_digits,
        ("mnist.npz",),
    ),
}  # fmt: skip

FTA, CANIFE, SERIES, TEAR, SUBJECTS = (
    "Efficient Privacy Auditing (000)", "CANIFE (001)", "Gradient series (002)", "TEAR (003)",
    "Subject membership (004)",
)  # fmt: skip

CLAIMS: tuple[Claim | NotTested, ...] = (
    Claim(
        FTA, "Table 2", "the slope of the confidence finds more than the loss of the last model",
        "CIFAR-100, local models, at 1 % FPR: 54.4 against 5.1 %",
        (Above(Of("small-pictures", "fta-confidence"), Of("small-pictures", "loss")),),
        "More in the mean; three seeds with 1,500 outsiders leave a wide interval.",
        (Of("small-pictures", "fta-loss"),),
    ),
    Claim(
        FTA, "Table 2", "FTA finds more than every attack without reference models",
        "CIFAR-100: 54.4 %, the next best (Gradient-Diff) 6.6 %",
        tuple(Above(Of(setting, "fta-confidence"), Of(setting, rival)) for setting in ("small-pictures", "baskets")
              for rival in ("back-front-diff", "gradient-norm", "gradient-cosine")),
        "On baskets Gradient-Cosine leads, whose update has the wrong sign in the paper.",
        after_a_look=True,
    ),
    Claim(
        FTA, "Table 6", "FTA finds more than the loss from global models, too",
        "at 2 % FPR: CIFAR-100 49.6 against 15.3 %, Purchase 2.82 against 0 %",
        (Above(Of("small-pictures", "fta-confidence", GLOBAL, "tpr@0.02"),
               Of("small-pictures", "loss", GLOBAL, "tpr@0.02")),
         Above(Of("baskets", "fta-confidence", GLOBAL, "tpr@0.02"), Of("baskets", "loss", GLOBAL, "tpr@0.02"))),
        "A little more in the mean, and not for sure; on baskets they are level.",
    ),
    Claim(
        FTA, "Figure 5", "the more the parties' classes differ, the lower is the mean risk",
        "global models, at 2 % FPR, by FTA: falls with beta",
        (Above(Of("even", "fta-confidence", GLOBAL, "tpr@0.02"), Of("skewed", "fta-confidence", GLOBAL, "tpr@0.02")),),
        beside=(Of("even", "fta-confidence", metric="tpr@0.02"), Of("skewed", "fta-confidence", metric="tpr@0.02")),
        after_a_look=True,
    ),
    Claim(
        FTA, "Table 7", "KTA finds more than LiRA with as many reference models",
        "CIFAR-100, local models, at 1 % FPR: 62.6 against 15.2 %",
        (Above(Of("references", "kta-logit"), Of("references", "lira")),),
        beside=(Of("references", "kta-confidence"),),
    ),
    Claim(
        FTA, "Table 9", "KTA, and FTA, too, finds more than LiRA where classes differ between parties",
        "CIFAR-100, Dirichlet(.5), local models, at 1 % FPR: 70.3 and 55.7 % against 15.8 %",
        tuple(Above(Of("references-skewed", ours), Of("references-skewed", "lira"))
              for ours in ("kta-logit", "fta-confidence")),
        after_a_look=True,
    ),
    Claim(
        FTA, "Table 7", "the distillation attack is the weakest of those with reference models", "AUC .583",
        tuple(Above(Of("references", rival, metric="auc"), Of("references", "distillation", metric="auc"))
              for rival in ("lira", "kta-logit")),
        "Here it is level with LiRA.",
    ),
    Claim(
        FTA, "introduction", "it finds more than attacks that train reference models",
        "CIFAR-100, local models, at 1 % FPR: 54.4 %, LiRA 15.2 %",
        (Above(Of("references", "fta-confidence"), Of("references", "lira")),),
        after_a_look=True,
    ),
    Claim(
        FTA, "Figure 3", "a straight line through the losses finds more than polynomials of degree 2 to 4",
        "the linear fit is best",
        tuple(Above(Of("small-pictures", "fta-loss"), Of("small-pictures", f"fta-loss-degree{k}")) for k in (2, 3, 4)),
        after_a_look=True,
    ),
    Claim(
        FTA, "section 5.3 and Table 2", "a round of it costs less than an epoch of training",
        "CIFAR-100: .56 of an epoch",
        (Within(Of("small-pictures", "fta-loss", metric=COST), -1.0, 1.0),
         Within(Of("baskets", "fta-confidence", metric=COST), -1.0, 1.0)),
    ),
    NotTested(
        FTA, "Table 2", "the same with ResNet-56 on 50,000 pictures, 200 rounds", "as above",
        "days of two cores without a graphics card; not tried",
    ),
    Claim(
        CANIFE, "Figure 3", "with noise, the scores of a good canary spread as the noise does", "sd .478 at sigma .423",
        (Within(Of("canaries", "canife", "global", "score-sd"), 0.40, 0.53),),
        "The mean lies at the edge, and three seeds leave too wide an interval. The other parties add to the spread.",
    ),
    Claim(
        CANIFE, "Figure 3", "and so they do on a model that is right on 60 %", "ResNet-18, CIFAR-10",
        (Within(Of("canaries-learnt", "canife", "global", "score-sd"), 0.40, 0.53),),
        "As above; crafting itself is as good on it as on a new model.",
        (Of("canaries-learnt", "canife", "global", "canary-health"),),
        after_a_look=True,
    ),
    NotTested(
        CANIFE, "Figure 4", "the empirical epsilon is four to five times below the theoretical one",
        "CelebA, Sent140, Shakespeare",
        "No training is needed to judge it: a perfect canary shows the same gap, which a hundred probes make "
        "(docs/canaries.md, the headline; `python -m docs.make_headline`, ten sets of probes and more)",
        "not confirmed: simulated",
    ),
    *(
        Claim(
            SERIES, "Tables 4 and 5", f"gradient series tell members apart: {name}", told,
            (Within(Of(setting, "gradient-series", model, "auc"), 0.5, 1.0),),
            beside=(Of(setting, "cs-mia", model, "auc"), Of(setting, "loss", model, "auc")),
            after_a_look=True,
        )
        for setting, name, model, told in (
            ("agg-sh", "a semi-honest aggregator", LOCAL, "AUC CIFAR-100 .95, Purchase100 .73"),
            ("agg-mal", "a malicious aggregator", LOCAL, "AUC CIFAR-100 .97, Purchase100 .74"),
            ("do-sh", "a party", GLOBAL, "AUC CIFAR-100 .78, Purchase100 .73"),
        )
    ),
    Claim(
        SERIES, "Tables 4 and 5",
        "a malicious aggregator learns more than a semi-honest one, and that one more than a party",
        "AUC CIFAR-100 .97, .95, .78; Purchase100 .74, .73, .73",
        (Above(Of("agg-mal", "gradient-series", LOCAL, "auc"), Of("agg-sh", "gradient-series", LOCAL, "auc")),
         Above(Of("agg-sh", "gradient-series", LOCAL, "auc"), Of("do-sh", "gradient-series", GLOBAL, "auc"))),
        after_a_look=True,
    ),
    Claim(
        SERIES, "section 5.2", "norms of gradients tell as much as CS-MIA's confidences (at most .05 of AUC less)",
        "AUC, semi-honest aggregator and party: CIFAR-100 .95 and .78 against .93 and .82, Purchase100 .73 and .73 "
        "against .76 and .72",
        (Above(Of("agg-sh", "gradient-series", LOCAL, "auc"), Of("agg-sh", "cs-mia", LOCAL, "auc"), -0.05),
         Above(Of("do-sh", "gradient-series", GLOBAL, "auc"), Of("do-sh", "cs-mia", GLOBAL, "auc"), -0.05)),
        after_a_look=True,
    ),
    Claim(
        SERIES, "introduction", "it works for regressions, too", "no figure",
        (Within(Of("measurements", "gradient-series", LOCAL, "auc"), 0.5, 1.0),),
        beside=(Of("measurements", "loss", LOCAL, "auc"),),
    ),
    Claim(
        SERIES, "Table 6", "it costs less than the training itself, which is five epochs a round here",
        "Purchase100: an aggregator 62 % of the training, a party 31 %",
        tuple(Within(Of(setting, "gradient-series", model, COST), -1.0, 5.0) for setting, model in
              (("agg-sh", LOCAL), ("do-sh", GLOBAL), ("agg-mal", LOCAL))),
        "A malicious aggregator, whom the paper does not time by himself, trains another federation for every party.",
        (Of("agg-sh", "cs-mia", LOCAL, COST), Of("do-sh", "cs-mia", GLOBAL, COST)),
        after_a_look=True,
    ),
    Claim(
        SERIES, "Table 7", "a hidden attribute is inferred from the gradients", "accuracy .90, AUC .93",
        (Within(Of("cells", "attribute", LOCAL, "excess-over-blind"), 0.0, 1.0),
         Within(Of("cells", "attribute", LOCAL, "members-minus-nonmembers"), 0.0, 1.0)),
        "A classifier that sees no model guesses better, and the attack does as well on non-members.",
        (Of("cells", "attribute", LOCAL, "members-auc"), Of("cells", "attribute", LOCAL, "blind-auc")),
    ),
    Claim(
        TEAR, "Table IV", "labels of all rounds tell more than those of the last model",
        "accuracy Purchase100 .820 against .720, CIFAR-10 .830 against .800",
        (Above(Of("labels", "tear", GLOBAL, "auc"), Of("labels", "tear-last", GLOBAL, "auc")),),
        "The last model alone tells as much, and so does, in accuracy, whether the label is right.",
        beside=(Of("labels", "tear", GLOBAL, "accuracy"), Of("labels", "gap", GLOBAL, "accuracy")),
    ),
    Claim(
        TEAR, "Tables II and IV",
        "with a CNN: labels of all rounds tell more than the last ones, and than whether they are right",
        "CIFAR-10, accuracy .830 against .800 and less",
        tuple(Above(Of("labels-cnn", "tear", GLOBAL, "auc"), Of("labels-cnn", rival, GLOBAL, "auc"))
              for rival in ("tear-last", "gap")),
        beside=(Of("labels-cnn", "tear", GLOBAL, "accuracy"), Of("labels-cnn", "loss", GLOBAL, "auc")),
        after_a_look=True,
    ),
    Claim(
        TEAR, "Table II", "distances tell more than whether the label is right",
        "accuracy Purchase100 .820, the best of four rivals .808",
        (Above(Of("labels", "tear", GLOBAL, "auc"), Of("labels", "gap", GLOBAL, "auc")),),
    ),
    Claim(
        TEAR, "introduction", "labels alone tell more than attacks that see inside the model",
        "accuracy Purchase100 .820, Nasr et al. .674",
        (Above(Of("labels", "tear", GLOBAL, "auc"), Of("labels", "loss", GLOBAL, "auc")),),
        "The rival here is the loss of the last model; for gradients and Nasr et al. see docs/tear.md.",
        after_a_look=True,
    ),
    Claim(
        TEAR, "Table V", "it works under MemGuard (which leaves every label as it is)",
        "accuracy Purchase100 .820, CIFAR-10 .830, as without",
        (Within(Of("labels-masked", "tear", GLOBAL, "accuracy"), 0.55, 1.0),),
    ),
    Claim(
        TEAR, "Table V", "it works under DP-SGD", "accuracy .780 instead of .820",
        (Within(Of("labels-dp", "tear", GLOBAL, "accuracy"), 0.55, 1.0),),
        "A federation of this size learns next to nothing under that noise.",
    ),
    Claim(
        TEAR, "Table V", "it works under DP-SGD where the task is still learnt",
        "CIFAR-10, accuracy .750 instead of .830",
        (Within(Of("labels-digits-dp", "tear", GLOBAL, "accuracy"), 0.5, 1.0),),
        "What there is to find without noise (the first line) is gone with it.",
        (Of("labels-digits", "tear", GLOBAL, "accuracy"), Of("labels-digits", "gap", GLOBAL, "accuracy")),
        after_a_look=True,
    ),
    Claim(
        SUBJECTS, "Table V, configuration A", "few rows, often repeated, are the riskiest",
        "accuracy .93, F1 .93",
        (Within(Of("subjects-A", "subject-loss", GLOBAL, "balanced-accuracy@25"), 0.85, 1.0),
         *(Above(Of("subjects-A", "subject-loss", GLOBAL, "auc"), Of(other, "subject-loss", GLOBAL, "auc"))
           for other in ("subjects-C", "subjects-F"))),
    ),
    Claim(
        SUBJECTS, "Table V, configuration C", "no two records alike, and still at risk", "accuracy .78, F1 .81",
        (Within(Of("subjects-C", "subject-loss", GLOBAL, "balanced-accuracy@25"), 0.6, 1.0),),
        "The mean is near the published one; people are few, and three seeds leave a wide interval.",
    ),
    Claim(
        SUBJECTS, "Table V, configuration F", "two dimensions and two units: near chance", "accuracy .53",
        (Within(Of("subjects-F", "subject-loss", GLOBAL, "balanced-accuracy@25"), 0.4, 0.6),),
        "The mean is at chance, and the interval a little wider than was asked for.",
    ),
    Claim(
        SUBJECTS, "abstract", "a handful of people known to the adversary is enough", "FEMNIST, F1 up to .8 with five",
        tuple(Within(Of(setting, "subject-loss", GLOBAL, "balanced-accuracy@5"), 0.6, 1.0)
              for setting in ("subjects-A", "subjects-C")),
        after_a_look=True,
    ),
    Claim(
        SUBJECTS, "Figure 6", "the loss over the rounds finds more people than that of the last model",
        "FEMNIST, F1: ahead in nearly all rounds, mostly by little",
        tuple(Above(Of(setting, "subject-rounds", GLOBAL, "auc"), Of(setting, "subject-loss", GLOBAL, "auc"))
              for setting in ("subjects-A", "subjects-C", "other-records")),
        after_a_look=True,
    ),
    Claim(
        SUBJECTS, "Figure 4",
        "other records of a person do nearly as well as the very records (at most .05 of AUC less)",
        "FEMNIST, F1: little is lost",
        (Above(Of("other-records", "subject-loss", GLOBAL, "auc"),
               Of("households", "subject-loss", GLOBAL, "auc"), -0.05),),
    ),
    Claim(
        SUBJECTS, "Figure 2", "a federation gives away as much as all data in one place (at most .05 of AUC less)",
        "FEMNIST, F1: just as bad",
        (Above(Of("scattered", "subject-loss", GLOBAL, "auc"), Of("one-place", "subject-loss", GLOBAL, "auc"), -0.05),),
    ),
    Claim(
        SUBJECTS, "Table I", "DP lowers the risk, for users and subjects more than for items",
        "FEMNIST, accuracy .82; items .73, users .51, subjects .65",
        (*(Above(Of("households", "subject-loss", GLOBAL, "auc"), Of(setting, "subject-loss", GLOBAL, "auc"))
           for setting in ("items-dp", "users-dp", "people-dp")),
         *(Above(Of("items-dp", "subject-loss", GLOBAL, "auc"), Of(setting, "subject-loss", GLOBAL, "auc"))
           for setting in ("users-dp", "people-dp"))),
        "All three lower it; at this size none learns the task, and the order is not seen. (The adversary has the very "
        "records here, because with others there is hardly a risk to lower.)",
        beside=tuple(Of(setting, "subject-fta", GLOBAL, "auc") for setting in
                     ("households", "items-dp", "users-dp", "people-dp")),
    ),
    Claim(
        SUBJECTS, "Table I", "writers are found by other pictures of theirs", "FEMNIST .82",
        (Within(Of("writers", "subject-loss", GLOBAL, "auc"), 0.55, 1.0),),
        "MNIST in FEMNIST's place, with a fifth of the records of a person; FEMNIST is not at hand.",
    ),
    Claim(
        SUBJECTS, "section on Shakespeare", "roles of Shakespeare are not found", "accuracy .51 and .50",
        (Within(Of("roles", "subject-loss", GLOBAL, "auc"), 0.4, 0.6),),
    ),
    Claim(
        SUBJECTS, "Figures 11 to 14", "the more features a record has, the larger is the risk", "no figure in numbers",
        (Above(Of("subjects-C", "subject-loss", GLOBAL, "auc"), Of("subjects-flat", "subject-loss", GLOBAL, "auc")),),
    ),
    NotTested(
        SUBJECTS, "Figures 11 to 14", "what drives the risk in 720 synthetic federations",
        "users, subjects, layers, epochs, sampling",
        "A cluster: the largest of the 432 that are printed hold 4 GB of records (examples/subject-study/study.toml). "
        "The smaller values of all factors, 48 federations, are in two-cores.toml; the number of records is in "
        "docs/subjects.md",
    ),
)  # fmt: skip
