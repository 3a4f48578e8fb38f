"""The attacks by name. A new attack is one module, one line here and one row in the attack test table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fedaudit.adversary.attacks import plugins
from fedaudit.adversary.attacks.base import BaseAttack
from fedaudit.adversary.attacks.fusion import Fusion
from fedaudit.adversary.attacks.gradients import GradientNorm as GradientNormAll
from fedaudit.adversary.attacks.gradients import LayerAttack
from fedaudit.adversary.attacks.matched import (
    InverseHessian,
    MatchedFilter,
    MatchedFilterPeer,
    ProjRes,
    RoundGain,
    UpdateAttack,
)
from fedaudit.adversary.attacks.peers import FedMIA, Source
from fedaudit.adversary.attacks.reference import (
    KTA,
    RMIA,
    Distillation,
    DistillationFraction,
    Gaussians,
    LiRA,
    ReferenceAttack,
    RMIASlope,
    Variance,
)
from fedaudit.adversary.attacks.series import Series
from fedaudit.adversary.attacks.subjects import SubjectLoss, SubjectNeighbourhood, SubjectRounds
from fedaudit.adversary.attacks.subjects_beyond import (
    SubjectCorrected,
    SubjectCosine,
    SubjectFTA,
    SubjectMatched,
    SubjectRMIA,
)
from fedaudit.adversary.attacks.tear import Boundary, Gap, GapRounds, Tear, TearDeepfool, TearLast
from fedaudit.adversary.attacks.trajectory import FTA, Fall, FedLoss, GradientNorm, LastLoss, Merlin, ModifiedEntropy
from fedaudit.adversary.signals.updates import Fit
from fedaudit.errors import FedauditError, suggest
from fedaudit.types import Unit


@dataclass(frozen=True)
class Entry:
    about: str
    make: Callable[[], BaseAttack]
    default: bool = True  # costs at most one local epoch a round


REGISTRY: dict[str, Entry] = {
    "matched-filter": Entry(
        "the record's gradient looked for in the update: both whitened, one layer; rounds weighted by its norm",
        MatchedFilter,
    ),
    "round-gain": Entry(
        "how much each round lowered the record's loss: two forward passes; mean over the rounds", RoundGain
    ),
    "fta-confidence": Entry("slope of the confidence in the record's label over the rounds", lambda: FTA("confidence")),
    "fta-loss": Entry("slope of the record's loss over the rounds", lambda: FTA("loss")),
    "fta-logit": Entry("slope of the rescaled logit over the rounds", lambda: FTA("logit")),
    "loss": Entry("the record's loss under the last model alone", LastLoss),
    "modified-entropy": Entry("entropy of the last model's answer, corrected by the label", ModifiedEntropy),
    "fed-loss": Entry("mean loss over the rounds", FedLoss),
    "back-front-diff": Entry("fall of the loss from the first round to the last", lambda: Fall("back-front", "diff")),
    "back-front-ratio": Entry("the same fall as a ratio", lambda: Fall("back-front", "ratio")),
    "delta-diff": Entry("largest fall of the loss between consecutive rounds", lambda: Fall("delta", "diff")),
    "delta-ratio": Entry("the same fall as a ratio", lambda: Fall("delta", "ratio")),
    "gradient-norm": Entry("gradient norm of the last model's last layer, without a backward pass", GradientNorm),
    "gradient-cosine": Entry("angle between the record's gradient and the update, one layer", LayerAttack),
    "gradient-diff": Entry("how much nearer the update lies to the record's gradient", lambda: LayerAttack("diff")),
    "gradient-norm-all": Entry("norm of the record's gradient over all layers, small for members", GradientNormAll),
    "fusion": Entry("sum of standardised attacks: gradient-cosine and fta-confidence", lambda: fuse()),
    "merlin": Entry("how often noise on the record makes the last model's loss rise; 100 passes", Merlin, False),
}

# The first party about the others, and published relatives of the matched filter.
REGISTRY |= {
    "matched-filter-peer": Entry(
        "matched-filter by the first party, its own update taken out of the sum", MatchedFilterPeer, False
    ),
    "projres": Entry("how near the record's hidden vector lies to the row space of the update", ProjRes, False),
    "inverse-hessian": Entry(
        "size of the record's gradient under the last model, weighted by curvature", InverseHessian, False
    ),
}

# The first party about the others, from predicted labels alone (vantage label-only-client), and with the weights.
REGISTRY |= {
    "gap": Entry("whether the label is right under the last model: one query", Gap),
    "gap-rounds": Entry("in how many rounds the label was right, and since when for good", GapRounds),
    "boundary": Entry("distance to the last model's decision boundary, by labels alone", Boundary, False),
    "tear": Entry("distances to decision boundaries over the rounds, by labels alone", Tear, False),
    "tear-last": Entry("tear on the last round alone", TearLast, False),
    "tear-deepfool": Entry("tear on distances found with the weights (client)", TearDeepfool, False),
}

# These compare the updates of all parties: a ghost pass with as many updates as there are parties.
REGISTRY |= {
    "fedmia": Entry("angle to the party's update, judged by the other parties' updates (server)", FedMIA, False),
    "source": Entry("which party held the record: whose update its gradient points to (server)", Source, False),
}

# Options of the paper, beside least squares of degree 1: its printed weights, and higher degrees.
for _metric in ("confidence", "loss", "logit"):
    REGISTRY[f"fta-{_metric}-printed"] = Entry(
        f"fta-{_metric} with the weights as the paper prints them", partial(FTA, _metric, weights="printed"), False
    )
    for _degree in (2, 3, 4):
        REGISTRY[f"fta-{_metric}-degree{_degree}"] = Entry(
            f"leading coefficient of a polynomial of degree {_degree} in place of the slope of fta-{_metric}",
            partial(FTA, _metric, _degree),
            False,
        )

# These train reference models beside the federation, so they run only on request.
REGISTRY |= {
    "kta-confidence": Entry(
        "slope of the confidence, judged by reference models that imitate the target",
        lambda: KTA(of="confidence"),
        False,
    ),
    "kta-loss": Entry("the same with the slope of the loss", lambda: KTA(of="loss"), False),
    "kta-logit": Entry("the same with the slope of the rescaled logit", lambda: KTA(of="logit"), False),
    "lira": Entry("logit under the last model, judged by reference models with and without the record", LiRA, False),
    "rmia": Entry("the record's likelihood, relative to its mean under reference models", RMIA, False),
    "rmia-slope": Entry("slope of the logit, relative to its mean under reference models", RMIASlope, False),
    "distillation": Entry(
        "logit, relative to models distilled from the target without the record", Distillation, False
    ),
    "distillation-fraction": Entry("share of such models with a larger loss", DistillationFraction, False),
    "outside-kta-confidence": Entry(
        "kta-confidence with reference models on an outsider's own data", lambda: KTA(outside=True), False
    ),
    "outside-lira": Entry("lira with reference models on an outsider's own data", lambda: LiRA(outside=True), False),
    "outside-rmia": Entry("rmia with reference models on an outsider's own data", lambda: RMIA(outside=True), False),
}

# Attacks by an adversary with its own shadow model; they need `audit.adversary`.
SHADOW: dict[str, Entry] = {
    "gradient-series": Entry(
        "series of last-layer gradient norms, judged by a classifier trained on the adversary's own records",
        lambda: Series("gradient-series", "gradient-norm"),
        False,
    ),
    "logit-series": Entry("the same with rescaled logits", lambda: Series("logit-series", "logit"), False),
    "cs-mia": Entry(
        "the same with confidences and a small network", lambda: Series("cs-mia", "confidence", "network"), False
    ),
}

# Attacks on people, from several records of each; they need a game about subjects.
SUBJECT: dict[str, Entry] = {
    "subject-loss": Entry("share of the person's records with a low loss under the last model", SubjectLoss),
    "subject-rounds": Entry("in how many rounds the loss of the person's records fell", SubjectRounds),
    "subject-fta": Entry("slope of the mean confidence in the labels of the person's records", SubjectFTA),
    "subject-cosine": Entry("mean angle between the gradients of the person's records and the update", SubjectCosine),
    "subject-matched": Entry(
        "the gradients of the person's records looked for in the update: matched-filter for people", SubjectMatched
    ),
    "subject-neighbourhood": Entry(
        "subject-loss on noisy copies of the records; ten passes", SubjectNeighbourhood, False
    ),
    "subject-corrected": Entry(
        "loss of the person's records, less that under reference models on other people", SubjectCorrected, False
    ),
    "subject-rmia": Entry(
        "likelihood of the person's records, relative to its mean under such reference models", SubjectRMIA, False
    ),
}

FUSED = ("gradient-cosine", "fta-confidence")

# `[audit.attribute]` asks for this attack.
ATTRIBUTE = "attribute"
ATTRIBUTE_ABOUT = (
    "guesses a hidden attribute of members; set audit.adversary and [audit.attribute] name; always beside a blind "
    "guess and the same guess about non-members"
)

# The auditor fits this one itself, because it must never see a model. It is named here so that users can ask for it.
BLIND = "blind"
BLIND_ABOUT = (
    "a classifier that sees the records but no model: whatever it finds is not leaked by training (always run)"
)


_OTHER_PART = "In audit.fusion.attacks, name attacks that read every round, such as fta-logit, kta-logit or rmia-slope."


def fuse(parts: Sequence[str] = FUSED, weights: Sequence[float] | None = None) -> Fusion:
    """The sum of other attacks' standardised scores, with equal weights unless given."""
    for name in parts:
        if name in SHADOW:
            raise FedauditError(
                "fusion-part", f"audit.fusion cannot use {name!r}: it needs a shadow model", _OTHER_PART
            )
        if name not in REGISTRY or name == "fusion":
            known = [other for other in REGISTRY if other != "fusion"]
            raise FedauditError("unknown-attack", f"audit.fusion cannot use {name!r}", suggest(name, known))
        part = REGISTRY[name].make()
        if part.deferred and not isinstance(part, ReferenceAttack):  # references train in every round, asked or not
            what = f"audit.fusion cannot use {name!r}: it looks only at the last model, at the end of the audit"
            raise FedauditError("fusion-part", what, _OTHER_PART)
    return Fusion(tuple(REGISTRY[name].make() for name in parts), tuple(weights or [1.0] * len(parts)))


def choose(
    names: Iterable[str] | None,
    variance: Variance = "shared",
    fusion: Fusion | None = None,
    fit: Fit = "all",
    unit: Unit = "record",
) -> list[BaseAttack]:
    """The named attacks, or the default ones. `blind` is left out, because the auditor runs it itself."""
    suited = SUBJECT if unit == "subject" else REGISTRY
    wanted = [name for name, entry in suited.items() if entry.default] if names is None else list(dict.fromkeys(names))
    made = [_made(name) for name in wanted if name != BLIND]
    if twice := next((a.name for i, a in enumerate(made) if a.name in [b.name for b in made[:i]]), None):
        raise FedauditError("attack-name", f"two attacks are called {twice!r}", "Leave one of them out, or rename it.")
    chosen = [fusion if fusion is not None and attack.name == fusion.name else attack for attack in made]
    return [with_fit(with_variance(attack, variance), fit) for attack in chosen]


def about(name: str) -> str:
    """What an attack does, in a line; nothing is known of attacks from outside."""
    if name == ATTRIBUTE:
        return ATTRIBUTE_ABOUT
    entry = (REGISTRY | SHADOW | SUBJECT).get(name)
    return entry.about if entry else ""


def _made(name: str) -> BaseAttack:
    """One of ours, of a plug-in, or named as "package.module:name". Nobody else may take a name of ours."""
    ours = REGISTRY | SHADOW | SUBJECT
    if name in ours:
        return ours[name].make()
    found, broken = plugins.plugged()
    if ":" not in name and name not in found | broken:
        raise FedauditError("unknown-attack", f"unknown attack {name!r}", suggest(name, [*ours, *found, BLIND]))
    attack = plugins.made(name)
    if attack.name in ours:
        raise FedauditError("attack-name", f"{name!r} is called {attack.name!r}, like one of ours", "Rename it.")
    return attack


def with_fit(attack: BaseAttack, fit: Fit) -> BaseAttack:
    """The attack with its whitening fitted on these records, also as a part of fusion."""
    if isinstance(attack, Fusion):
        return replace(attack, parts=tuple(with_fit(part, fit) for part in attack.parts))
    return replace(attack, fit_on=fit) if isinstance(attack, UpdateAttack) else attack


def with_variance(attack: BaseAttack, variance: Variance) -> BaseAttack:
    """The attack with this variance option for its references, also inside fusion."""
    if isinstance(attack, Fusion):
        return replace(attack, parts=tuple(with_variance(part, variance) for part in attack.parts))
    return replace(attack, variance=variance) if isinstance(attack, Gaussians | Distillation) else attack
