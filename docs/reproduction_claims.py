"""The claims of the five papers, and how docs/make_reproduction.py decides them.

A claim is about figures of one or two federations (reproduction_settings.py). `Above` needs the difference of two
means over seeds to lie above a margin with its whole interval; `Within` a mean to lie between two values, or below one.
"""

from dataclasses import dataclass
from math import inf

from docs.reproduction_settings import FORWARD

LOCAL, GLOBAL = "local", "global"
COST = "cost"  # not an estimate of a result: audit time, in local epochs
TASK = "task"  # nor this, and of no attack: of which share of outsiders the last model names the class

CONFIRMED, UNDECIDED, CONTRADICTED, NOT_RUN, UNTESTABLE = (
    "confirmed",
    "not confirmed: the interval leaves it open",
    "not confirmed: contradicted here",
    "not run with three seeds",
    "not testable here",
)


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


def below(of: Of, most: float) -> Within:
    return Within(of, -inf, most)


@dataclass(frozen=True)
class Claim:
    """What a paper says, where, with which figures; what is looked at here; what a verdict against it rests on; and
    what has to be known whatever the verdict."""

    paper: str
    place: str
    said: str
    published: str
    tests: tuple[Above | Within, ...]
    why_not: str = ""
    beside: tuple[Of, ...] = ()
    known: str = ""
    after_a_look: bool = False  # written down when figures of its setting were known


@dataclass(frozen=True)
class Elsewhere:
    """A claim that no training by this script judges: what judges it instead, or what judging it would take."""

    paper: str
    place: str
    said: str
    published: str
    found: str
    verdict: str = UNTESTABLE


FTA, CANIFE, SERIES, TEAR, SUBJECTS = (
    "Efficient Privacy Auditing in Federated Learning (Chang et al., USENIX Security 2024)",
    "CANIFE (Maddock et al., ICLR 2023)",
    "An Efficient Gradient-Based Inference Attack for Federated Learning (Montaña-Fernández et al.)",
    "TEAR (Liu et al.)",
    "Subject Membership Inference Attacks in Federated Learning (Suri et al.)",
)  # fmt: skip

UNLEARNT = "Under this much noise the model has learnt next to nothing (last table), so its loss tells little."

UNLEARNT_A = "Under DP for parties or people the model has learnt nothing, not even its members (last table)."

# Without reference models, and not FTA itself.
RIVALS = [*(name for name in FORWARD if not name.startswith("fta")), "gradient-cosine", "gradient-diff"]

ABOUT_RECORDS: tuple[Claim | Elsewhere, ...] = (
    Claim(
        FTA, "Table 2", "FTA (the slope of the confidence) finds more than the loss of the last model",
        "CIFAR-100, local models, at 1 % FPR: 54.4 against 5.1 %; AUC .975 against .903",
        (Above(Of("small-pictures", "fta-confidence"), Of("small-pictures", "loss")),),
        "More on average; the interval includes zero.",
        (Of("small-pictures", "fta-loss"), Of("small-pictures", "fta-confidence", metric="auc"),
         Of("small-pictures", "loss", metric="auc")),
        after_a_look=True,
    ),
    Claim(
        FTA, "Table 2", "FTA finds more than every attack without reference models",
        "CIFAR-100: 54.4 %, the next best (Gradient-Diff) 6.6 %",
        tuple(Above(Of(setting, "fta-confidence"), Of(setting, rival)) for setting in ("small-pictures", "baskets")
              for rival in RIVALS),
        "On *baskets* Gradient-Cosine leads. (In the paper's Table 2 it is below chance, as if the update's sign were "
        "reversed; in Table 6 Gradient-Diff is.)",
        after_a_look=True,
    ),
    Claim(
        FTA, "Table 6", "FTA finds more than the loss from global models, too",
        "at 2 % FPR: CIFAR-100 49.6 against 15.3 %, Purchase 2.82 against 0 %",
        tuple(Above(Of(setting, "fta-confidence", GLOBAL, "tpr@0.02"), Of(setting, "loss", GLOBAL, "tpr@0.02"))
              for setting in ("small-pictures", "baskets")),
        "More on average on both; at least one interval includes zero.",
        after_a_look=True,
    ),
    Claim(
        FTA, "Tables 3 and 6",
        "from global models FTA finds more than every other attack without reference models, on almost all data "
        "(asked: on both)",
        "at 2 % FPR, the best of the others: CIFAR-100 15.4 %, Purchase 2.68 %; on Kidney 2.91 against 2.42 % for FTA",
        tuple(Above(Of(setting, "fta-confidence", GLOBAL, "tpr@0.02"), Of(setting, rival, GLOBAL, "tpr@0.02"))
              for setting in ("small-pictures", "baskets") for rival in RIVALS),
        "On *small-pictures* it leads on average, on *baskets* Back-Front-Diff does.",
        after_a_look=True,
    ),
    Claim(
        FTA, "section 5.3, Tables 2 and 3",
        "FTA finds more from global models than from local ones (the paper: it can; asked: on both kinds of data)",
        "global against local models, at .1 and .5 % FPR: CIFAR-100 15.2 against 12.8 and 27.2 against 43.2 %, "
        "CIFAR-10 2.6 against 3.0 and 8.4 against 9.2 %",
        tuple(Above(Of(setting, "fta-confidence", GLOBAL, "tpr@0.02"), Of(setting, "fta-confidence", LOCAL, "tpr@0.02"))
              for setting in ("small-pictures", "baskets")),
        "On pictures local models tell more, as in three of the paper's four figures.",
        after_a_look=True,
    ),
    Claim(
        FTA, "section 4.2 and Table 4", "500 outsiders set as good a threshold as all (at most .02 of TPR less)",
        "CIFAR-10, global models, at .5 % FPR, FTA: 5.5 % (in the text 5.9) with 500, 6.5 % with 5,000",
        (Above(Of("few-outsiders", "fta-confidence", GLOBAL, "tpr@0.02"),
               Of("baskets", "fta-confidence", GLOBAL, "tpr@0.02"), -0.02),),
        "On average within the margin; a threshold from 500 outsiders varies more.",
    ),
    Claim(
        FTA, "Figure 3", "a straight line through the losses finds more than polynomials of degree 2 to 4 (whose signs "
        "are fixed beforehand here)", "the linear fit is best",
        tuple(Above(Of("small-pictures", "fta-loss"), Of("small-pictures", f"fta-loss-degree{k}")) for k in (2, 3, 4)),
        beside=tuple(Of("small-pictures", f"fta-loss{of}", metric="auc")
                     for of in ("", "-degree2", "-degree3", "-degree4")),
        known="An AUC below .5 means that the fixed sign is wrong here: reversed, it would be as far above .5.",
        after_a_look=True,
    ),
    Claim(
        FTA, "Figure 4", "the smaller a party's data, the larger is the risk",
        "CIFAR-10, global models, at 2 % FPR, FTA: rises in every column",
        (Above(Of("few-records", "fta-confidence", GLOBAL, "tpr@0.02"),
               Of("baskets", "fta-confidence", GLOBAL, "tpr@0.02")),),
        known="A quarter of the records also means a quarter of the steps.",
    ),
    Claim(
        FTA, "Figure 4", "the more parties of one size, the lower is the risk",
        "CIFAR-10, global models, at 2 % FPR, FTA: 52.1 % with 10 parties, 22.9 % with 100",
        (Above(Of("few-records", "fta-confidence", GLOBAL, "tpr@0.02"),
               Of("many-parties", "fta-confidence", GLOBAL, "tpr@0.02")),),
        known="Four against sixteen parties.",
    ),
    Claim(
        FTA, "Figure 4", "FTA finds more than Back-Front-Ratio whatever the number and the size of parties",
        "CIFAR-10, global models, at 2 % FPR: ahead in 28 of 28 federations",
        tuple(Above(Of(setting, "fta-confidence", GLOBAL, "tpr@0.02"),
                    Of(setting, "back-front-ratio", GLOBAL, "tpr@0.02"))
              for setting in ("baskets", "few-records", "many-parties")),
        "More on *baskets*; level with few records, and with many parties.",
    ),
    Claim(
        FTA, "Figure 5", "the more the parties' classes differ, the lower is the mean risk",
        "CIFAR-10, 10 and 20 parties, global models, at 2 % FPR, FTA: no figure in numbers",
        (Above(Of("baskets", "fta-confidence", GLOBAL, "tpr@0.02"),
               Of("skewed", "fta-confidence", GLOBAL, "tpr@0.02")),),
        "The skewed model has learnt less (last table).",
        (Of("baskets", "fta-confidence", metric="tpr@0.02"), Of("skewed", "fta-confidence", metric="tpr@0.02")),
        after_a_look=True,
    ),
    Claim(
        FTA, "Figure 6", "the larger the model, the larger is the risk",
        "CIFAR-10, CNNs and Wide-ResNets, global models: no figure in numbers",
        (Above(Of("baskets", "fta-confidence", GLOBAL, "tpr@0.02"),
               Of("narrow", "fta-confidence", GLOBAL, "tpr@0.02")),),
        "The small network is right on more outsiders and fewer members (last table).",
    ),
    Claim(
        FTA, "Figure 6 and section 5.4", "FTA finds more than the others whatever the model (here: two; in *narrow* "
        "it is compared with the loss and Back-Front-Ratio alone)",
        "CIFAR-10, global models: no figure in numbers",
        tuple(Above(Of(setting, "fta-confidence", GLOBAL, "tpr@0.02"), Of(setting, rival, GLOBAL, "tpr@0.02"))
              for setting, rivals in (("baskets", RIVALS), ("narrow", ("loss", "back-front-ratio")))
              for rival in rivals),
        "On *baskets* Back-Front-Diff leads on average; on *narrow* all three are level.",
        after_a_look=True,
    ),
    Claim(
        FTA, "Figure 7", "FTA's risk goes on rising when the accuracy on members and on others has levelled off",
        "CIFAR-10, global models, at .5 % FPR: no figure in numbers",
        (Above(Of("fedsgd", "fta-confidence", GLOBAL, "tpr@0.02"),
               Of("fedsgd-early", "fta-confidence", GLOBAL, "tpr@0.02")),),
        "More on average; three seeds leave a wide interval.",
        known="FedSGD after 200 and 400 rounds; the accuracies are in the last table.",
    ),
    Claim(
        FTA, "Figure 7", "what the loss and Back-Front-Ratio find barely changes meanwhile (at most .02 of TPR)",
        "CIFAR-10, global models, at .5 % FPR: no figure in numbers",
        tuple(Above(Of(first, rival, GLOBAL, "tpr@0.02"), Of(second, rival, GLOBAL, "tpr@0.02"), -0.02)
              for rival in ("loss", "back-front-ratio")
              for first, second in (("fedsgd", "fedsgd-early"), ("fedsgd-early", "fedsgd"))),
        "Unchanged on average; three seeds leave a wide interval.",
    ),
    Claim(
        FTA, "Table 5", "under FedSGD, too, FTA finds more than the loss",
        "CIFAR-10, global models, at 1 % FPR: 5.33 against 1.42 %",
        (Above(Of("fedsgd", "fta-confidence", GLOBAL), Of("fedsgd", "loss", GLOBAL)),),
    ),
    Claim(
        FTA, "section 5.4, Tables 3 and 5", "under FedSGD the risk is lower than under FedAvg",
        "CIFAR-10, global models, FTA: at .5 % FPR 2.7 against 8.4 %; its AUC is higher, .75 to .79 against .67 to .69",
        (Above(Of("fedavg", "fta-confidence", GLOBAL, "tpr@0.02"),
               Of("fedsgd", "fta-confidence", GLOBAL, "tpr@0.02")),),
        "400 steps of FedSGD have learnt the members by heart, 30 epochs of FedAvg have not (last table).",
        tuple(Of(setting, "fta-confidence", GLOBAL, "auc") for setting in ("fedavg", "fedsgd")),
    ),
    Claim(
        FTA, "Table 7", "KTA finds more than LiRA with as many reference models",
        "CIFAR-100, local models, at 1 % FPR: 62.6 against 15.2 %",
        (Above(Of("references", "kta-logit"), Of("references", "lira")),),
        beside=(Of("references", "kta-confidence"),),
        after_a_look=True,
    ),
    Claim(
        FTA, "introduction and Table 7", "KTA finds more than FTA",
        "CIFAR-100, local models, at 1 % FPR: 62.6 against 54.4 %",
        (Above(Of("references", "kta-logit"), Of("references", "fta-confidence")),),
        "More on average; three seeds leave a wide interval.",
        after_a_look=True,
    ),
    Claim(
        FTA, "introduction", "FTA, which trains nothing, finds more than LiRA and the distillation attack, which "
        "train reference models",
        "CIFAR-100, local models, at 1 % FPR: 54.4 %; LiRA 15.2, distillation 2.1 %",
        tuple(Above(Of("references", "fta-confidence"), Of("references", rival))
              for rival in ("lira", "distillation-fraction")),
        "More on average than LiRA. After 40 rounds, from global models, LiRA has more ([reference.md](reference.md)).",
        (Of("references", "distillation"),),
        known="Distillation-fraction is the paper's attack; distillation, ours, takes the difference of the losses.",
        after_a_look=True,
    ),
    Claim(
        FTA, "Table 7", "the distillation attack (the share of references with a larger loss) is the weakest of those "
        "with reference models", "AUC .583 (CIFAR-100), .608 (CIFAR-10)",
        tuple(Above(Of("references", rival, metric="auc"), Of("references", "distillation-fraction", metric="auc"))
              for rival in ("lira", "kta-logit")),
        beside=(Of("references", "distillation", metric="auc"),),
        after_a_look=True,
    ),
    Claim(
        FTA, "Table 8",
        "KTA finds more if its reference models learn from the truth and the target's answers than from either alone",
        "CIFAR-100, local models, at .5 % FPR: 50.0 % at alpha .4, 46.1 at .8; the truth alone 41.5, the answers alone "
        "25.4 %",
        tuple(Above(Of("references", "kta-confidence"), Of(setting, "kta-confidence"))
              for setting in ("references-alone", "references-copied")),
    ),
    Claim(
        FTA, "Table 9", "KTA and FTA find more than LiRA where classes differ between parties",
        "CIFAR-100, Dirichlet(.5), local models, at 1 % FPR: 70.3 and 55.7 % against 15.8 %",
        tuple(Above(Of("references-skewed", ours), Of("references-skewed", "lira"))
              for ours in ("kta-logit", "fta-confidence")),
        "More on average; three seeds leave a wide interval.",
        after_a_look=True,
    ),
    Claim(
        FTA, "section 6.2",
        "attacks with reference models cost many times what FTA does (asked: five epochs a round more)",
        "a round: KTA 94 s, LiRA 76 s, FTA 1.2 s",
        tuple(Above(Of("references", rival, metric=COST), Of("references", "fta-confidence", metric=COST), 5.0)
              for rival in ("kta-logit", "lira")),
        after_a_look=True,
    ),
    Claim(
        FTA, "section 5.3 and Table 2", "a round of FTA costs less than an epoch of training",
        "CIFAR-10: .56 of an epoch",
        (below(Of("baskets", "fta-confidence", metric=COST), 1.0),),
        "Less on average; three timings leave a wide interval.",
        after_a_look=True,
    ),
    Claim(
        FTA, "section 5.3 and Table 2", "attacks that use gradients cost hundreds of epochs a round",
        "CIFAR-10: 373 epochs",
        (Within(Of("baskets", "gradient-cosine", metric=COST), 100.0, inf),),
        "No gradient needs to be formed: the layers' inputs and output gradients give all that is asked for "
        "(docs/decisions/0002-speed.md).",
        after_a_look=True,
    ),
    Elsewhere(
        FTA, "Table 2", "FTA finds more than the loss with ResNet-56 on 60,000 pictures, 200 rounds",
        "54.4 against 5.1 %",
        "About 30 hours of one core for a seed, by the number of operations; only a third of the pictures is at hand.",
    ),
    Claim(
        CANIFE, "Figure 3b",
        "with noise, the scores of a canary spread little more than the noise does (asked: at most .1 more), on a new "
        "model", "CIFAR-10 at 60 % accuracy, one picture a party: sd .478 at noise .423",
        (below(Of("canaries", "canife", GLOBAL, "score-sd"), 0.523),),
        "The mean passes. The other parties add to the spread: a canary is orthogonal to the 512 mock updates it was "
        "crafted on, and less so to others.",
        (Of("canaries", "canife", GLOBAL, "canary-health"),),
        after_a_look=True,
    ),
    Claim(
        CANIFE, "Figure 3b", "a canary's scores spread little more than the noise on a model that has learnt, too",
        "CIFAR-10 at 60 % accuracy, one picture a party: sd .478 at noise .423",
        (below(Of("canaries-learnt", "canife", GLOBAL, "score-sd"), 0.523),),
        "The mean passes. The other parties add to the spread: a canary is orthogonal to the 64 mock updates it was "
        "crafted on, and less so to others.",
        (Of("canaries-learnt", "canife", GLOBAL, "canary-health"),),
        after_a_look=True,
    ),
    Claim(
        CANIFE, "Figure 3a",
        "with next to no noise, a canary is always told present or absent (asked: rightly in more than 95 % of the "
        "probes), here on a model that has hardly trained",
        "CIFAR-10: sd .006, \"completely succeeds\"",
        (Within(Of("canaries-silent", "canife", GLOBAL, "accuracy"), 0.95, 1.0),),
        "The other parties add to the spread, as they do with noise. The model is new, and on such models the paper's "
        "canaries, too, are seen less often (Figure 5c).",
        (Of("canaries-silent", "canife", GLOBAL, "score-sd"),),
        after_a_look=True,
    ),
    Claim(
        CANIFE, "contributions", "canaries can be crafted of text, too",
        "Sent140 and Shakespeare; health .970 on Sent140",
        (Within(Of("canaries-text", "canife", GLOBAL, "accuracy"), 0.8, 1.0),
         Within(Of("canaries-text", "canife", GLOBAL, "canary-health"), 0.8, 1.0)),
        beside=(Of("canaries-text", "canife", GLOBAL, "score-sd"),),
        after_a_look=True,
    ),
    Claim(
        CANIFE, "abstract, Figures 4a and 4b",
        "the recipe's epsilon of a round is far below the theoretical one (asked: less than half of 12.4)",
        "Sent140: 4.5 times below",
        (below(Of("canaries", "canife", GLOBAL, "epsilon-canife-round"), 6.2),
         below(Of("canaries-learnt", "canife", GLOBAL, "epsilon-canife-round"), 6.2)),
        beside=tuple(Of(setting, "canife", GLOBAL, "epsilon-gdp") for setting in ("canaries", "canaries-learnt")),
        known="12.4 by Renyi accounting, as the paper does. Most of the gap comes from the recipe: see the row after "
        "next.",
        why_not="A third of it on average; each figure has a wide interval.",
    ),
    Claim(
        CANIFE, "contributions", "in a toy setup canaries show nearly the guaranteed epsilon (asked: .8 of the exact "
        "12.3 of a round, by a Gaussian fit)", "no figure in epsilon",
        (Within(Of("canaries", "canife", GLOBAL, "epsilon-gdp"), 9.8, inf),),
        "The other parties' updates hide the canary beside the noise.",
    ),
    Elsewhere(
        CANIFE, "contributions and section 3.4",
        "the gap between the recipe's epsilon and the theoretical one is that between theory and practice: with "
        "perfect canaries the two would be close", "no figure",
        "Simulated (`python -m docs.make_headline`, 10 to 200 sets of probes): a perfect canary, too, shows 3.6 of "
        "13.2 for a round, and 6.3 of 48.2 for a training like that on CelebA. The gap comes from a hundred probes, a "
        "delta of 1/100 and Renyi accounting, with the noise of CIFAR-10, as CelebA's is not printed "
        "([canaries.md](canaries.md#the-papers-headline)).",
        CONTRADICTED,
    ),
    Elsewhere(
        CANIFE, "Figures 1, 4, 6 and 7", "whole trainings of LEAF's tasks at epsilon 10, 30 and 50",
        "CelebA, Sent140, Shakespeare",
        "CelebA and Sent140 are not at hand, and Shakespeare not as LEAF splits it; on a graphics card the paper takes "
        "hours.",
    ),
    *(
        Claim(
            SERIES, "Tables 4 and 5", f"gradient series tell members apart: {name} (asked: an AUC of .7)", told,
            (Within(Of(setting, "gradient-series", model, "auc"), 0.7, 1.0),),
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
        SERIES, "Tables 1, 2, 4 and 5, section 5.1 (of CS-MIA)",
        "recall is higher than precision: most members are found, and others are accused",
        "recall and precision of series, a semi-honest aggregator: CIFAR-100 .95 and .85; Purchase100 .94 and .64",
        (*(Above(Of(setting, attack, LOCAL, "recall"), Of(setting, attack, LOCAL, "precision"))
           for setting in ("agg-sh", "agg-sh-pictures") for attack in ("gradient-series", "cs-mia")),
         *(Within(Of(setting, "gradient-series", LOCAL, "recall"), 0.5, 1.0)
           for setting in ("agg-sh", "agg-sh-pictures"))),
        "On *agg-sh* it is; on pictures the two are level.",
        after_a_look=True,
    ),
    Claim(
        SERIES, "abstract and conclusion",
        "an aggregator learns more than a party (on pictures; on tables the paper has no difference)",
        "AUC CIFAR-100 .95 against .78; Purchase100 .73 both",
        (Above(Of("agg-sh-pictures", "gradient-series", LOCAL, "auc"),
               Of("do-sh-pictures", "gradient-series", GLOBAL, "auc")),),
        beside=(Of("agg-sh", "gradient-series", LOCAL, "auc"), Of("do-sh", "gradient-series", GLOBAL, "auc")),
    ),
    Claim(
        SERIES, "Tables 4 and 5", "a malicious aggregator learns more than a semi-honest one",
        "AUC CIFAR-100 .97 against .95; Purchase100 .74 against .73",
        (Above(Of("agg-mal", "gradient-series", LOCAL, "auc"), Of("agg-sh", "gradient-series", LOCAL, "auc")),),
        "More on average; the interval includes zero.",
        after_a_look=True,
    ),
    Claim(
        SERIES, "abstract",
        "the rounds together tell more than the last model (our reading; the paper does not compare)", "no figure",
        (Above(Of("agg-sh", "gradient-series", LOCAL, "auc"), Of("agg-sh", "gradient-norm", LOCAL, "auc")),
         Above(Of("do-sh", "gradient-series", GLOBAL, "auc"), Of("do-sh", "gradient-norm", GLOBAL, "auc"))),
        "The norm under the last model alone tells as much, or more: a member's gradient is smallest at the end.",
        after_a_look=True,
    ),
    Claim(
        SERIES, "abstract", "pictures give away more than tables", "AUC, CIFAR-100 .95 against Purchase100 .73",
        (Above(Of("agg-sh-pictures", "gradient-series", LOCAL, "auc"), Of("agg-sh", "gradient-series", LOCAL, "auc")),),
        "A little less, though parties have fewer pictures (1,200) than baskets (1,750): the network for tables has "
        "learnt nearly all of its members, that for pictures three in five.",
    ),
    Claim(
        SERIES, "section 5.2", "norms of gradients tell as much as CS-MIA's confidences (at most .05 of AUC less)",
        "AUC, semi-honest, malicious, party: CIFAR-100 .95, .97, .78 against .93, .97, .82; Purchase100 .73, .74, .73 "
        "against .76, .76, .72",
        tuple(Above(Of(setting, "gradient-series", model, "auc"), Of(setting, "cs-mia", model, "auc"), -0.05)
              for setting, model in (("agg-sh", LOCAL), ("agg-mal", LOCAL), ("do-sh", GLOBAL))),
        after_a_look=True,
    ),
    Claim(
        SERIES, "section 5.2", "on pictures a semi-honest aggregator learns more by gradient norms than by CS-MIA",
        "AUC CIFAR-100 .95 against .93",
        (Above(Of("agg-sh-pictures", "gradient-series", LOCAL, "auc"), Of("agg-sh-pictures", "cs-mia", LOCAL, "auc")),),
        "Level: in every round both see how large a record's loss is.",
    ),
    Claim(
        SERIES, "introduction", "gradient series work for regressions, too (asked: better than guessing)", "no figure",
        (Within(Of("measurements", "gradient-series", LOCAL, "auc"), 0.5, 1.0),),
        beside=(Of("measurements", "loss", LOCAL, "auc"),),
    ),
    Claim(
        SERIES, "abstract, Tables 3 and 6",
        "gradient series cost about as much as CS-MIA (at most .6 of an epoch a round more)",
        "share of the training time, aggregator and party: CIFAR-100 32 and 5 % for both; Purchase100 62 and 31 % "
        "(series), 51 and 21 % (CS-MIA)",
        (Above(Of("agg-sh", "cs-mia", LOCAL, COST), Of("agg-sh", "gradient-series", LOCAL, COST), -0.6),
         Above(Of("do-sh", "cs-mia", GLOBAL, COST), Of("do-sh", "gradient-series", GLOBAL, COST), -0.6)),
        after_a_look=True,
    ),
    Claim(
        SERIES, "Table 6",
        "gradient series cost less than the training, which is five epochs a round: a semi-honest aggregator, a party",
        "Purchase100: an aggregator 62 % of the training, a party 31 %",
        (below(Of("agg-sh", "gradient-series", LOCAL, COST), 5.0),
         below(Of("do-sh", "gradient-series", GLOBAL, COST), 5.0)),
        after_a_look=True,
    ),
    Claim(
        SERIES, "Table 6",
        "attacking an isolated party costs a malicious aggregator less than the training (three parties, five epochs "
        "each: 15 a round)",
        "one figure for both aggregators, 62 %",
        (below(Of("agg-mal", "gradient-series", LOCAL, COST), 15.0),),
        known="The figure is the mean per party, and counts its isolated training.",
        after_a_look=True,
    ),
    Claim(
        SERIES, "Table 7", "the attack names a hidden attribute of members", "accuracy .90, AUC .93",
        (Within(Of("cells", "attribute", LOCAL, "members-auc"), 0.85, 1.0),),
        "On average as published; a hundred people a party leave a wide interval.",
        after_a_look=True,
    ),
    Claim(
        SERIES, "sections 4.3 and 5.3", "the gradients give the attribute away", "no figure",
        (Within(Of("cells", "attribute", LOCAL, "excess-over-blind"), 0.0, 1.0),
         Within(Of("cells", "attribute", LOCAL, "members-minus-nonmembers"), 0.0, 1.0)),
        "A classifier that sees no model guesses better, and the attack does as well on non-members.",
        (Of("cells", "attribute", LOCAL, "blind-auc"),),
        after_a_look=True,
    ),
    Elsewhere(
        TEAR, "Figure 7", "TEAR's direction to the boundary is nearest to C&W's",
        "Purchase100, about 10 degrees; FMN 15, DeepFool 20, SurFree more than 40",
        "Three seeds, short versions of ours: 36.9 degrees (30.6 to 43.2) with 6,000 labels, 34.0 (29.4 to 38.7) with "
        "the paper's 250,000; FMN 3.1 (.7 to 5.4), DeepFool 19.9 (10.9 to 28.8), SurFree 55.8 (49.7 to 62.0) "
        "([tear.md](tear.md#with-gradients-nasr-et-al-and-angles)).<br>`python docs/make_tear_compare.py`",
        CONTRADICTED,
    ),
    Elsewhere(
        TEAR, "Table II", "TEAR tells more than distances by gradients (Auto-Attack)",
        "accuracy Purchase100 .820 against .740, CIFAR-10 .830 against .730",
        "Three seeds, a search of ours in its place, level: AUC .811 (.748 to .869) by gradients, .834 (.784 to .879) "
        "by TEAR with 3,000 labels; gradients minus TEAR -.024 (-.064 to .017) "
        "([tear.md](tear.md#with-gradients-nasr-et-al-and-angles)).<br>`python docs/make_tear_compare.py`",
        UNDECIDED,
    ),
    Elsewhere(
        TEAR, "abstract and Table II",
        "TEAR tells more than the loss over the rounds of a distilled model (Liu et al.)",
        "accuracy Purchase100 .820 against .760, CIFAR-10 .830 against .790",
        "Three seeds, level: AUC .849 (.806 to .887) by distillation, .838 (.783 to .887) by TEAR with 6,000 labels; "
        "distillation minus TEAR .012 (-.026 to .049) ([tear.md](tear.md#the-papers-comparisons)).<br>"
        "`python docs/make_tear.py paper`",
        UNDECIDED,
    ),
    Claim(
        TEAR, "Table IV", "labels of all rounds tell more than those of the last model (asked: .02 of AUC)",
        "accuracy Purchase100 .820 against .720, CIFAR-10 .830 against .800",
        (Above(Of("labels", "tear", GLOBAL, "auc"), Of("labels", "tear-last", GLOBAL, "auc"), 0.02),),
        "The last model alone tells nearly as much.",
        tuple(Of("labels", attack, GLOBAL, "accuracy") for attack in ("tear", "tear-last")),
        after_a_look=True,
    ),
    Claim(
        TEAR, "Table II", "TEAR tells more than distances to the boundary of the last model alone (HopSkipJump)",
        "accuracy Purchase100 .820 against .808, CIFAR-10 .830 against .785",
        (Above(Of("labels", "tear", GLOBAL, "auc"), Of("labels", "boundary", GLOBAL, "auc")),),
        why_not="Level: distances of earlier rounds add little.",
        beside=tuple(Of("labels", attack, GLOBAL, "accuracy") for attack in ("tear", "boundary")),
        after_a_look=True,
    ),
    Claim(
        TEAR, "Tables II and III", "TEAR tells more than whether the label is right (our comparison)",
        "accuracy Purchase100 .820; guessing by whether the label is right, .582",
        (Above(Of("labels", "tear", GLOBAL, "auc"), Of("labels", "gap", GLOBAL, "auc")),),
        why_not="A little more on average; a wrong label says most of what distances say.",
        beside=tuple(Of("labels", attack, GLOBAL, "accuracy") for attack in ("tear", "gap")),
        after_a_look=True,
    ),
    Claim(
        TEAR, "Tables II and IV",
        "with a CNN, TEAR tells more than the last model's labels, and than whether the label is right",
        "CIFAR-10, accuracy .830; last model .800; guessing by whether the label is right, .580",
        tuple(Above(Of("labels-cnn", "tear", GLOBAL, "auc"), Of("labels-cnn", rival, GLOBAL, "auc"))
              for rival in ("tear-last", "gap")),
        "Three hundred labels a record, for 16 models together, are few.",
        (Of("labels-cnn", "tear", GLOBAL, "accuracy"), Of("labels-cnn", "loss", GLOBAL, "auc")),
        after_a_look=True,
    ),
    Claim(
        TEAR, "Table II", "TEAR works on models that hardly overfit, too (asked: an accuracy of .55)",
        "accuracy MNIST .740, Adult .610",
        (Within(Of("labels-digits", "tear", GLOBAL, "accuracy"), 0.55, 1.0),),
        why_not="The model is right on nine outsiders in ten, so that there is little to find; labels are few, too.",
        beside=(Of("labels-digits", "gap", GLOBAL, "accuracy"), Of("labels-digits", "loss", GLOBAL, "auc")),
        after_a_look=True,
    ),
    Claim(
        TEAR, "introduction",
        "labels alone tell more than attacks that see inside the model, in most cases (our comparison, asked of both: "
        "its loss, its gradient)",
        "accuracy Purchase100 .820, Nasr et al. .674",
        tuple(Above(Of("labels", "tear", GLOBAL, "auc"), Of("labels", rival, GLOBAL, "auc"))
              for rival in ("loss", "gradient-norm")),
        "The loss tells more. For Nasr et al. see [tear.md](tear.md#with-gradients-nasr-et-al-and-angles).",
        after_a_look=True,
    ),
    Claim(
        TEAR, "section 6", "TEAR with labels alone tells as much as with gradients (DeepFool; at most .05 of AUC less)",
        "accuracy Purchase100 .820 against .810, CIFAR-10 .830 against .810",
        (Above(Of("labels", "tear", GLOBAL, "auc"), Of("labels", "tear-deepfool", GLOBAL, "auc"), -0.05),),
        after_a_look=True,
    ),
    Claim(
        TEAR, "Figures 5 and 6", "the more labels a record may cost, the more does TEAR tell",
        "CIFAR-10, precision .633 to .800 and .644 to .800, then stable",
        (Above(Of("labels", "tear", GLOBAL, "auc"), Of("labels-300", "tear", GLOBAL, "auc")),),
        "2,000 against 300 labels a record, for all rounds together.",
    ),
    Claim(
        TEAR, "Table V", "MemGuard, which leaves every label as it is, does not help (at most .01 of AUC less)",
        "accuracy Purchase100 .820, CIFAR-10 .830, as without",
        (Above(Of("labels-masked", "tear", GLOBAL, "auc"), Of("labels-300", "tear", GLOBAL, "auc"), -0.01),),
        beside=(Of("labels-masked", "tear", GLOBAL, "accuracy"), Of("labels-300", "tear", GLOBAL, "accuracy")),
        after_a_look=True,
    ),
    Claim(
        TEAR, "Table V", "TEAR works under DP-SGD, on a task that is still learnt (asked: an accuracy of .55)",
        "CIFAR-10, accuracy .750 instead of .830; epsilon not given",
        (Within(Of("labels-digits-dp", "tear", GLOBAL, "accuracy"), 0.55, 1.0),),
        "What little there is to find without noise is gone with it, and labels are few.",
        (Of("labels-digits", "tear", GLOBAL, "accuracy"), Of("labels-digits", "gap", GLOBAL, "accuracy")),
        after_a_look=True,
    ),
    Elsewhere(
        TEAR, "Table V", "TEAR works under DP-SGD on baskets, too",
        "Purchase100, accuracy .780 instead of .820; epsilon not given",
        "It would take a federation as large as the paper's: at this size and an epsilon of 8 the model is right on "
        "one or two outsiders in a hundred, and has nothing to give away.",
    ),
)  # fmt: skip

ABOUT_PEOPLE: tuple[Claim | Elsewhere, ...] = (
    Claim(
        SUBJECTS, "Table V, configuration A",
        "people whose few rows are often repeated are at high risk (here attacker and users share those rows)",
        "accuracy .93, F1 .93",
        (Within(Of("subjects-A", "subject-loss", GLOBAL, "balanced-accuracy@25"), 0.85, 1.0),),
        beside=(Of("subjects-A", "subject-loss", GLOBAL, "auc"),),
        after_a_look=True,
    ),
    Claim(
        SUBJECTS, "Table V, configuration C", "no two records alike, and still at risk", "accuracy .78, F1 .81",
        (Within(Of("subjects-C", "subject-loss", GLOBAL, "balanced-accuracy@25"), 0.6, 1.0),),
        "The mean is near the published one; people are few, and three seeds leave a wide interval.",
        after_a_look=True,
    ),
    Claim(
        SUBJECTS, "Table V, configuration F", "two dimensions and two units: near chance", "accuracy .53",
        (Within(Of("subjects-F", "subject-loss", GLOBAL, "balanced-accuracy@25"), 0.4, 0.6),),
        "The mean is at chance, and the interval a little wider than was asked for.",
        after_a_look=True,
    ),
    Claim(
        SUBJECTS, "section V-B1", "two rounds of training are enough to find people (here in a federation)",
        "FEMNIST, data in one place: high risk after two rounds",
        (Within(Of("subjects-A-early", "subject-loss", GLOBAL, "balanced-accuracy@25"), 0.6, 1.0),),
    ),
    Claim(
        SUBJECTS, "section VI-B4", "the longer the training, the larger is the risk",
        "no figure in numbers; it mentions a plateau",
        (Above(Of("subjects-A", "subject-loss", GLOBAL, "auc"),
               Of("subjects-A-early", "subject-loss", GLOBAL, "auc")),),
        "Twenty rounds against two, after which nearly all people of A are found already.",
    ),
    Claim(
        SUBJECTS, "contributions and Figure 5", "a handful of people known to the adversary is enough",
        "FEMNIST, F1 up to .8 with five",
        tuple(Within(Of(setting, "subject-loss", GLOBAL, "balanced-accuracy@5"), 0.6, 1.0)
              for setting in ("subjects-A", "subjects-C")),
        known="Synthetic people here.",
        beside=tuple(Of(setting, "subject-loss", GLOBAL, f"balanced-accuracy@{known}")
              for setting in ("subjects-A", "subjects-C") for known in (1, 10)),
        after_a_look=True,
    ),
    *(
        Claim(
            SUBJECTS, place, f"the loss over the rounds finds {how} that of the last model", told,
            (Above(Of("other-records", "subject-rounds", GLOBAL, "auc"),
                   Of("other-records", "subject-loss", GLOBAL, "auc"), by),),
            "The attack counts rounds in which the loss fell; where it fell in nearly all, scores are nearly equal.",
            tuple(Of(setting, attack, GLOBAL, "auc") for setting in ("subjects-A", "subjects-C")
                  for attack in ("subject-rounds", "subject-loss")),
            known="Both are near guessing there. On C, counting rounds finds far less than the loss.",
            after_a_look=True,
        )
        for place, how, told, by in (
            ("Figure 6", "more people than", "FEMNIST, F1: ahead in nearly all rounds, mostly by little", 0.0),
            ("conclusion", "about as many people (at most .05 of AUC less) as", "FEMNIST: a negligible gap", -0.05),
        )
    ),
    Claim(
        SUBJECTS, "Figure 4",
        "other records of a person do nearly as well as the very records (at most .05 of AUC less)",
        "FEMNIST, F1 with other records at least .85 (data in one place), .83 (a federation)",
        (Above(Of("other-records", "subject-loss", GLOBAL, "auc"),
               Of("households", "subject-loss", GLOBAL, "auc"), -0.05),),
        "Two trainings are compared, one of them on half of the records; the paper attacks one model with either half.",
        after_a_look=True,
    ),
    Claim(
        SUBJECTS, "Figure 2", "a federation gives away as much as all data in one place (at most .05 of AUC less)",
        "FEMNIST, F1: just as bad",
        (Above(Of("scattered", "subject-loss", GLOBAL, "auc"), Of("one-place", "subject-loss", GLOBAL, "auc"), -0.05),),
        "After as many epochs the model of one place has learnt more, too (last table); the paper does not print its "
        "own.",
        after_a_look=True,
    ),
    *(
        Claim(
            SUBJECTS, "Table I", f"DP for {unit} lowers the risk (here for an adversary who has the very records)",
            f"FEMNIST, other records, accuracy .82, with DP {told} (epsilon 4)",
            (Above(Of("households", "subject-loss", GLOBAL, "auc"), Of(setting, "subject-loss", GLOBAL, "auc")),),
            beside=(Of("households", "subject-fta", GLOBAL, "auc"), Of(setting, "subject-fta", GLOBAL, "auc")),
            known=UNLEARNT,
            after_a_look=True,
        )
        for setting, unit, told in (
            ("items-dp", "records", ".73"), ("users-dp", "parties", ".51"), ("people-dp", "people", ".65"),
        )
    ),
    Claim(
        SUBJECTS, "Table I", "DP for parties lowers it most, for people less, for records least",
        "FEMNIST, accuracy .51, .65 and .73; on A (Table V) .59, .58 and .66",
        (Above(Of("items-dp", "subject-loss", GLOBAL, "auc"), Of("people-dp", "subject-loss", GLOBAL, "auc")),
         Above(Of("people-dp", "subject-loss", GLOBAL, "auc"), Of("users-dp", "subject-loss", GLOBAL, "auc"))),
        "By the loss all three end near chance. By its slope (subject-fta) their means are in the published order.",
        tuple(Of(setting, "subject-fta", GLOBAL, "auc") for setting in ("items-dp", "people-dp", "users-dp")),
        known=UNLEARNT,
        after_a_look=True,
    ),
    *(
        Claim(
            SUBJECTS, "Table V", f"on A, DP for {unit} lowers the risk (asked: .1 of AUC)",
            f"accuracy .93 (task .99); with DP, epsilon 2: {told} ({task})",
            (Above(Of("people-open", "subject-loss", GLOBAL, "auc"), Of(setting, "subject-loss", GLOBAL, "auc"), 0.1),),
            beside=(Of("people-open", "subject-loss", GLOBAL, "balanced-accuracy@25"),
                    Of(setting, "subject-loss", GLOBAL, "balanced-accuracy@25")),
            known=known,
        )
        for setting, unit, told, task, known in (
            ("people-items-dp", "records", ".66", ".79",
             "By the loss: the matched filter finds nearly everybody. A promise about records says little about "
             "people."),
            ("people-users-dp", "parties", ".59", ".73", UNLEARNT_A),
            ("people-people-dp", "people", ".58", ".64", UNLEARNT_A),
        )
    ),
    Claim(
        SUBJECTS, "caption of Table V",
        "on A, with DP nearly nobody is found (asked only: a balanced accuracy of at most .7; .5 is guessing)",
        "accuracy .58 to .66 on A",
        tuple(below(Of(setting, "subject-loss", GLOBAL, "balanced-accuracy@25"), 0.7)
              for setting in ("people-items-dp", "people-users-dp", "people-people-dp")),
        "So it is for parties and people; for records the mean is below, and the interval wide.",
        known=UNLEARNT_A,
    ),
    Claim(
        SUBJECTS, "contributions, conclusion and Table I", "DP costs the model much of its accuracy (asked: .05)",
        "FEMNIST, accuracy of the task .92; with DP .85 (records), .41 (parties) and .82 (people)",
        tuple(Above(Of("households", "", GLOBAL, TASK), Of(setting, "", GLOBAL, TASK), 0.05)
              for setting in ("items-dp", "users-dp", "people-dp")),
        known="It costs all of it here (last table).",
        after_a_look=True,
    ),
    Elsewhere(
        SUBJECTS, "Figure 8 and Table II", "the smaller epsilon, the lower are the risk and the accuracy",
        "FEMNIST, epsilon 4 to .5",
        "It would take FEMNIST: no data set here has both people at risk and a model that still learns under such DP. "
        "Households at four budgets, one seed, are in [subjects.md](subjects.md#units-of-privacy).",
    ),
    Elsewhere(
        SUBJECTS, "introduction and Figure 2", "silos that train together give away more than each by itself",
        "no figure",
        "Three seeds, four silos each, as many epochs: AUC .661 (.576 to .745) for a silo, .617 (.590 to .643) for the "
        "federation, which has -.044 (-.133 to .045) more "
        "([subjects.md](subjects.md#one-silo-all-data-in-one-place-or-a-federation)).<br>"
        "`python docs/make_subjects.py aggregation`",
        UNDECIDED,
    ),
    Claim(
        SUBJECTS, "Table I", "writers are found by other pictures of theirs (asked: an AUC of .55)",
        "FEMNIST, accuracy .82, F1 .83",
        (Within(Of("writers", "subject-loss", GLOBAL, "auc"), 0.55, 1.0),),
        known="MNIST instead of FEMNIST (not at hand), three fifths as many records of a person, a fully connected "
        "network instead of a CNN, 8 rounds instead of 100.",
        after_a_look=True,
    ),
    Claim(
        SUBJECTS, "section V-D, Figure 9", "roles of Shakespeare are not found by other lines of theirs",
        "accuracy .50",
        (Within(Of("roles", "subject-loss", GLOBAL, "auc"), 0.4, 0.6),),
        "The mean is near chance; people are few, and the interval is a little wider than was asked for.",
        after_a_look=True,
    ),
    Claim(
        SUBJECTS, "Figure 14 and section VI-B5",
        "the more records of a person, the larger is the risk (said of many people a user; ten here)",
        "no figure in numbers; with ten people a user \"somewhat conflicting\"",
        (Above(Of("subjects-C", "subject-loss", GLOBAL, "auc"), Of("subjects-C-few", "subject-loss", GLOBAL, "auc")),),
        "More on average; [subjects.md](subjects.md) has the whole curve.",
        after_a_look=True,
    ),
    Claim(
        SUBJECTS, "Figure 11", "rows that repeat, and that the attacker has, too, raise the risk",
        "no figure in numbers",
        (Above(Of("subjects-C-repeated", "subject-loss", GLOBAL, "auc"),
               Of("subjects-C", "subject-loss", GLOBAL, "auc")),),
    ),
    Claim(
        SUBJECTS, "Figure 12", "the more features a record has, the larger is the risk", "no figure in numbers",
        (Above(Of("subjects-C", "subject-loss", GLOBAL, "auc"), Of("subjects-C-flat", "subject-loss", GLOBAL, "auc")),),
        after_a_look=True,
    ),
    Claim(
        SUBJECTS, "Figure 13", "the larger the model, the larger is the risk",
        "no figure in numbers; it mentions a plateau",
        (Above(Of("subjects-C", "subject-loss", GLOBAL, "auc"), Of("subjects-C-tiny", "subject-loss", GLOBAL, "auc")),),
        "Eight units find more than two on average. (Four layers, as A has, learnt nothing of C in three runs.)",
    ),
    Elsewhere(
        SUBJECTS, "Table III and section VI-B2", "what drives the risk in 720 synthetic federations",
        "sampling, features, layers, epochs, users, subjects, records",
        "It would take a cluster: the factors as printed give 432 federations, the largest with 12 GB of records "
        "(examples/subject-study/study.toml). The rows above vary one thing at a time; two-cores.toml has smaller "
        "values.",
    ),
)  # fmt: skip

CLAIMS = ABOUT_RECORDS + ABOUT_PEOPLE
